"""join_writes: an array that is written part by part is the concatenation of its parts.

    y = np.zeros(3)                     %1 = slice_update(zeros, %a) [0]
    y[0] = a                            %2 = slice_update(%1, %b) [1]
    y[1] = b                            %3 = slice_update(%2, %c) [2]     ->     concat(%a, %b, %c)
    y[2] = c

What makes a part then writes it where it belongs.  Nothing else may read the array in between, and
of what was there before only constants may be left: an array of the caller's is better written in
place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS
from graphc.ir.readers import live_readers
from graphc.ir.types import Type
from graphc.ops.record.dims import run_in_memory
from graphc.passes.reasons import explain


class Part(NamedTuple):
    """What stands at start..stop-1 along an axis, or in the memory of the array."""

    start: int
    stop: int
    value: Node


def join_writes(graph: Graph, config: Config) -> Graph:
    """The graph with concatenations in place of arrays that are written part by part."""
    updates = [node for node in graph.nodes if node.op.traits.writes_slice]
    if not updates:
        return graph
    readers = live_readers(graph)
    last = {node.id for node in updates} - {
        node.inputs[0].id for node in updates if readers[node.inputs[0].id] == 1
    }

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        return joined(node, readers, r) if node.id in last else None

    return rebuild(graph, rewrite)


def joined(node: Node, readers: list[int], r: Rewriter) -> Node | None:
    """The concatenation that stands for a chain of updates, given by the last of them."""
    kind = node.type
    assert isinstance(kind, Type)
    if not are_known(kind.shape) or not kind.size or node.after:
        return None
    axis = axis_of(node)
    extent = kind.size if axis is None else kind.dims[axis]
    parts, array = written_parts(node, axis, readers)
    count = len(parts)
    if sum(part.stop - part.start for part in parts) < extent:
        if count < 2 or not is_constant(array):
            return None
        before = array if axis is not None else reshaped(array, (extent,), r)
        parts = list(with_rest(parts, before, axis or 0, r))
    values = [part.value for part in parts]
    if axis is None:
        values = [reshaped(part.value, (part.stop - part.start,), r) for part in parts]
    explain(node.id, f"{count} writes side by side")
    whole = r.emit(OPS["concat"], values, {"axis": axis or 0}) if len(values) > 1 else values[0]
    return reshaped(whole, kind.dims, r)


def reshaped(node: Node, dims: tuple[int, ...], r: Rewriter) -> Node:
    assert isinstance(node.type, Type)
    return node if node.type.dims == dims else r.emit(OPS["reshape"], (node,), {"dims": dims})


def axis_of(update: Node) -> int | None:
    """The one axis of which an update writes a part; None if it is not one."""
    kind, part = update.type, update.inputs[1].type
    assert isinstance(kind, Type)
    assert isinstance(part, Type)
    pairs = enumerate(zip(kind.dims, part.shape, strict=True))
    cut = [axis for axis, (whole, count) in pairs if whole != count]
    return cut[0] if len(cut) == 1 else None


def written_parts(node: Node, axis: int | None, readers: list[int]) -> tuple[list[Part], Node]:
    """The parts that a chain of updates leaves, in order, and the array that it begins with."""
    parts: list[Part] = []
    last = node
    while node is last or readers[node.id : node.id + 1] == [1]:
        part = part_of(node, axis)
        if part is None:
            break
        at = bisect_right(parts, part.start, key=lambda other: other.start)
        over = [other for other in parts[max(at - 1, 0) : at + 1] if meet(part, other)]
        if not over:
            parts.insert(at, part)
        elif not any(o.start <= part.start and part.stop <= o.stop for o in over):
            break
        node = node.inputs[0]
    return parts, node


def meet(part: Part, other: Part) -> bool:
    return part.start < other.stop and other.start < part.stop


def part_of(node: Node, axis: int | None) -> Part | None:
    """What an update writes, if that is one run along the axis, or in memory."""
    if not node.op.traits.writes_slice or node.attrs["axes"] or node.after:
        return None
    kind, value = node.type, node.inputs[1]
    assert isinstance(kind, Type)
    assert isinstance(value.type, Type)
    starts = node.attrs["starts"]
    if not are_known((*value.type.shape, *starts)):
        return None
    dims = value.type.dims
    if 0 in dims:
        return None
    if axis is None:
        start = run_in_memory(kind.dims, dims, starts, node.attrs["steps"])
        return None if start is None else Part(start, start + value.type.size, value)
    if any(n != kind.dims[k] for k, n in enumerate(dims) if k != axis):
        return None
    steps = zip(dims, node.attrs["steps"], strict=True)
    if any(step != 1 for count, step in steps if count != 1):
        return None
    return Part(starts[axis], starts[axis] + dims[axis], value)


def are_known(numbers: Iterable[Any]) -> bool:
    """Are these numbers, whatever a call brings?  To compare open ones would settle them."""
    return all(isinstance(number, int) for number in numbers)


def is_constant(array: Node) -> bool:
    """A constant, or one number all over."""
    return array.op.traits.constant or (
        array.op.name == "broadcast" and array.inputs[0].op.traits.constant
    )


def with_rest(parts: list[Part], array: Node, axis: int, r: Rewriter) -> Iterator[Part]:
    """The parts, and between them what has been there before."""
    assert isinstance(array.type, Type)
    at, extent = 0, array.type.dims[axis]
    for part in (*parts, Part(extent, extent, array)):
        if at < part.start:
            yield Part(at, part.start, rest(array, axis, at, part.start, r))
        if part.start < part.stop:
            yield part
        at = part.stop


def rest(array: Node, axis: int, start: int, stop: int, r: Rewriter) -> Node:
    """What stands at start..stop-1 of a constant."""
    assert isinstance(array.type, Type)
    dims = list(array.type.dims)
    starts, stops = [0] * len(dims), list(dims)
    starts[axis], stops[axis] = start, stop
    attrs = {"starts": starts, "stops": stops, "steps": [1] * len(dims)}
    return r.emit(OPS["slice"], (array,), attrs)
