"""Rewrites have ordinals, and a stage can be stopped at any of them.

    with counting(17) as rewrites:       the first 17 rewrites of a stage happen, no later one does
        made = step(stage, graph, config)
    rewrites.nodes                       what each of them was about, those left out as well

A decision is a rewrite, too: where something is placed, what runs in one kernel, which memory is
used again.  What happened is always a beginning of what the stage does: a rewrite that needs
another one comes after it, or with it as one (`rebuild(..., each=False)` and `permitted`).  Nothing
is counted, and nothing costs time, outside of `counting`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from graphc.ir.graph import Node

R = TypeVar("R")


class Rewrites:
    """The nodes that rewrites were about, in order; `limit` is how many of them may happen."""

    __slots__ = ("limit", "nodes")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.nodes: list[Node] = []

    def take(self, node: Node) -> bool:
        """Count a rewrite of a node. May it happen?"""
        self.nodes.append(node)
        return self.limit is None or len(self.nodes) <= self.limit


_CURRENT: ContextVar[Rewrites | None] = ContextVar("rewrites", default=None)


def permitted(node: Node) -> bool:
    """Count a rewrite of a node, if they are counted. May it happen?"""
    current = _CURRENT.get()
    return current is None or current.take(node)


def is_counting() -> bool:
    """Are rewrites counted? What a stage knows from an earlier run is not to be used then."""
    return _CURRENT.get() is not None


class counting:
    """Rewrites are counted meanwhile, and happen up to a limit: `with counting(17) as rewrites`."""

    __slots__ = ("rewrites", "token")

    def __init__(self, limit: int | None = None) -> None:
        self.rewrites = Rewrites(limit)

    def __enter__(self) -> Rewrites:
        self.token = _CURRENT.set(self.rewrites)
        return self.rewrites

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self.token)


def stoppable(rewrite: Callable[[Node, R], Node | None]) -> Callable[[Node, R], Node | None]:
    """The function that `rebuild` calls, with every rewrite counted; one that may not happen leaves
    nothing behind."""
    rewrites = _CURRENT.get()
    if rewrites is None:
        return rewrite

    def counted(node: Node, r: R) -> Node | None:
        start = len(r.nodes)  # type: ignore[attr-defined]
        made = rewrite(node, r)
        if made is None or _is_inside(node, made) or rewrites.take(node):
            return made
        del r.nodes[start:]  # type: ignore[attr-defined]
        return None

    return counted


def _is_inside(node: Node, made: Node) -> bool:
    """Is only a region of the node new? What happened there has been counted there."""
    same = made.id == node.id and made.op is node.op and made.inputs == node.inputs
    return same and made.attrs is node.attrs and made.regions != node.regions
