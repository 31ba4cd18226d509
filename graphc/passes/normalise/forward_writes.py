"""forward_writes: what reads a part that was just written reads the value that was written there.

    %2 = slice_update(%1, %v) [i]       y[i] = v
    %3 = slice(%2) [i]                  y[i] * 2               ->   %v * 2
    %4 = slice(%2) [i - 1]              y[i - 1] + 1           ->   slice(%1) [i - 1] + 1

A Python loop that fills an array and reads what its last turns have left there waits for no memory
then, and nothing else needs the array between two writes: `join_writes` makes one of them.

The second rewrite makes %1 outlive the write, which could not take its memory then.  So it is for
arrays that nothing may overwrite: constants, and arguments that are not donated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from graphc.codegen.table.donation import is_named
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.regions import map_inside
from graphc.ir.types import Type
from graphc.passes.normalise.join_writes import are_known, is_constant
from graphc.passes.normalise.rules import by_op

MOST_WRITES = 500_000  # elsewhere, that all reads of a graph together are followed through


class Along(NamedTuple):
    """Every `step`-th position from `start` on of one axis, `length` of them, at least one."""

    start: int
    step: int
    length: int

    def within(self, other: Along) -> Along | None:
        """The same positions, counted among those of `other`; None if one is not there."""
        step = self.step if self.length > 1 else other.step
        first, apart = self.start - other.start, step % other.step
        if apart or first % other.step:
            return None
        begin, stride = first // other.step, step // other.step
        last = begin + (self.length - 1) * stride
        inside = 0 <= begin < other.length and 0 <= last < other.length
        return Along(begin, stride, self.length) if inside else None

    def apart(self, other: Along) -> bool:
        """Has it no position in common with `other`, seen from their ends and steps?"""
        low, high = self.ends()
        other_low, other_high = other.ends()
        every = math.gcd(self.step, other.step)
        return high < other_low or other_high < low or (self.start - other.start) % every != 0

    def ends(self) -> tuple[int, int]:
        last = self.start + (self.length - 1) * self.step
        return min(self.start, last), max(self.start, last)


def forward_writes(graph: Graph, config: Config) -> Graph:
    """The graph with reads of what was written, not of the array that it was written into."""
    given = [p for p in graph.params if not is_named(p.attrs["name"], config.donate)]
    return forwarded(graph, frozenset(given))


def forwarded(graph: Graph, given: frozenset[Node]) -> Graph:
    """The same, knowing the parameters that nothing may overwrite."""
    if graph.nesting:  # what a region is given may be overwritten
        graph = map_inside(graph, lambda region: forwarded(region, frozenset()))
    if not any(node.op.traits.writes_slice for node in graph.nodes):
        return graph
    boxes: dict[Node, list[Along] | None] = {}
    passed = 0

    def read_of_written(node: Node, r: Rewriter) -> Node | None:
        """The slice of what was last written to its elements, or of the array before that."""
        nonlocal passed
        read, source = box(node, node), node.inputs[0]
        if read is None or node.after:
            return None
        while passed < MOST_WRITES:
            if source not in boxes:
                boxes[source] = written_box(source)
            written = boxes[source]
            if written is None:
                break
            if not any(a.apart(b) for a, b in zip(read, written, strict=True)):
                return part_of_updates(node, read, source, written, r)
            source, passed = source.inputs[0], passed + 1
        stays = is_constant(source) or source in given
        moves = stays and source is not node.inputs[0]
        return r.emit(node.op, (source,), node.attrs) if moves else None

    return by_op(graph, {"slice": (read_of_written,)})


def part_of_updates(
    node: Node, read: list[Along], update: Node, written: list[Along], r: Rewriter
) -> Node | None:
    """What a slice reads, all of which an update wrote; None where it reads other elements too."""
    parts = []
    for mine, theirs in zip(read, written, strict=True):
        part = mine.within(theirs)
        if part is None:
            return None
        parts.append(part)
    updates = update.inputs[1]
    assert isinstance(updates.type, Type)
    if updates.type is node.type and all(
        (p.start, p.step) == (0, 1) or p.length == 1 for p in parts
    ):
        return updates
    steps = tuple(p.step if p.length > 1 else 1 for p in parts)
    stops = tuple(p.start + p.length * s for p, s in zip(parts, steps, strict=True))
    attrs = {"starts": tuple(p.start for p in parts), "stops": stops, "steps": steps}
    return r.emit(node.op, (updates,), attrs)


def written_box(node: Node) -> list[Along] | None:
    """The positions that an update writes; None if some are computed, or it is no update."""
    if not node.op.traits.writes_slice or node.attrs["axes"] or node.after:
        return None
    return box(node, node.inputs[1])


def box(node: Node, part: Node) -> list[Along] | None:
    """The positions on each axis of the part that a slice reads, or an update writes; None where
    there are none, or sizes are open."""
    assert isinstance(part.type, Type)
    starts, counts = node.attrs["starts"], part.type.shape
    if not all(isinstance(n, int) and n for n in counts) or not are_known(starts):
        return None
    return list(map(Along, starts, node.attrs["steps"], part.type.dims))
