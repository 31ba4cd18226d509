"""Program order on state: what a read or write must come after.

Tracing turns the order of statements into `after` edges: a read waits for the last write of its
variable, a write for that and for the reads since.  A region op counts as what its body does, and
nodes that talk to other devices (COMM) are kept in line with one another, as are those that call
Python (IO).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.ir.graph import Graph, Node
from graphc.ir.op import Effect, Op

Key = tuple[str, str]  # container and name of a variable
OUTSIDE: Key = ("", "")
HOST: Key = ("", "python")  # what calls Python, until the pass `state` has threaded it


def token_of(attrs: Mapping[str, Any]) -> Key:
    """What keeps a call of Python in line with others: with those of the same resource, or all."""
    return ("", attrs["resource"]) if "resource" in attrs else HOST


def is_token(key: Key) -> bool:
    """Does the key stand for calls of Python?"""
    return not key[0] and key != OUTSIDE


def accesses(op: Op, attrs: Mapping[str, Any], regions: tuple[Graph, ...]) -> dict[Key, Effect]:
    """The variables that a node touches, regions included, each with READ or WRITE."""
    found: dict[Key, Effect] = {}
    _note(found, op, attrs)
    pending = list(regions)
    while pending:
        for node in pending.pop().nodes:
            pending.extend(node.regions)
            _note(found, node.op, node.attrs)
    return found


def _note(found: dict[Key, Effect], op: Op, attrs: Mapping[str, Any]) -> None:
    if op.effect is Effect.PURE:
        return
    if op.effect is Effect.IO:
        if not attrs.get("threaded"):
            found[token_of(attrs)] = Effect.WRITE
        return
    state = op.effect <= Effect.WRITE
    key = (attrs["container"], attrs["name"]) if state else OUTSIDE
    found[key] = max(found.get(key, Effect.PURE), min(op.effect, Effect.WRITE))


class Order:
    """The accesses of one trace so far: the last write of every variable and the reads since."""

    __slots__ = ("reads", "written")

    def __init__(self) -> None:
        self.written: dict[Key, Node] = {}
        self.reads: dict[Key, list[Node]] = {}

    def before(self, touched: Mapping[Key, Effect]) -> tuple[Node, ...]:
        """The nodes that must run before one that touches these variables."""
        found: dict[Node, None] = {}
        for key, effect in touched.items():
            if key in self.written:
                found[self.written[key]] = None
            if effect is Effect.WRITE:
                found.update(dict.fromkeys(self.reads.get(key, ())))
        return tuple(found)

    def note(self, touched: Mapping[Key, Effect], node: Node) -> None:
        """Remember a node that touches these variables."""
        for key, effect in touched.items():
            if effect is Effect.WRITE:
                self.written[key] = node
                self.reads[key] = []
            else:
                self.reads.setdefault(key, []).append(node)
