"""What arrives at one value on the way back, summed without spreading every part over the whole.

The cotangent of x[2:4] is zero elsewhere.  Added one after another as whole arrays, the n slices
that a loop takes would cost n * n of them; side by side they are one array:

    [0 0 a a 0 0] + [b b 0 0 0 0] + [0 0 0 0 c c]  =  concat(b, a, c)

Rows that a gather leaves behind are added where they belong in the sum of all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from graphc.base.record import record
from graphc.ir.graph import Node
from graphc.ir.sizes import Size
from graphc.ir.types import definitely_equal
from graphc.ops.record.value import Value, emit, functions
from graphc.ops.shape.concat import concatenate


@record(frozen=True)
class Block:
    """A cotangent that is zero but for start..stop-1 along one axis, and what stands there."""

    axis: int
    start: int
    stop: int
    part: Value
    placed: Value


class Arrivals:
    """The cotangents of one value, in order of arrival."""

    __slots__ = ("blocks", "rows", "whole")

    def __init__(self) -> None:
        self.whole: Value | None = None
        self.blocks: list[Block] = []
        self.rows: list[Value] = []

    def add(self, cotangent: Value) -> None:
        """Parts wait; whole arrays are summed at once, so that none is kept for long."""
        block = _block(cotangent)
        if block is not None:
            self.blocks.append(block)
        elif _adds_rows(cotangent.node):
            self.rows.append(cotangent)
        else:
            self.whole = _plus(self.whole, cotangent)

    def total(self) -> Value:
        """The sum of all that has arrived: at least one cotangent."""
        made = self.whole
        for layer in _layers(self.blocks):
            made = _plus(made, _side_by_side(layer))
        for value in self.rows:
            made = value if made is None else _with_rows(made, value)
        assert made is not None
        return made


def _plus(total: Value | None, cotangent: Value) -> Value:
    return cotangent if total is None else emit("add", total, cotangent)


# ------------------------------------------------------------------------------------ rows


def _is_zero(node: Node) -> bool:
    """Whether a node is a broadcast zero."""
    if node.op.name != "broadcast" or node.inputs[0].op.name != "const":
        return False
    return not node.inputs[0].attrs["value"].array.any()


def _adds_rows(node: Node) -> bool:
    adds = node.op.name == "scatter" and node.attrs["mode"] == "add"
    return adds and _is_zero(node.inputs[0])


def _with_rows(total: Value, scattered: Value) -> Value:
    _, index, updates = map(scattered.owner.wrap, scattered.node.inputs)
    return emit("scatter", total, index, updates, **scattered.node.attrs)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------ blocks


def _block(value: Value) -> Block | None:
    """The block that a slice leaves behind, if it is a run of whole sub-arrays along one axis."""
    node = value.node
    if node.op.name != "slice_update" or not node.type.is_static or not _is_zero(node.inputs[0]):  # type: ignore[union-attr]
        return None
    part = value.owner.wrap(node.inputs[1])
    extents, counts = value.type.dims, part.type.dims
    cut = [k for k, count in enumerate(counts) if not definitely_equal(count, extents[k])]
    known = [None if isinstance(n, Size) else n for n in counts]  # nothing is asked of open ones
    in_order = all(s == 1 or n == 1 for s, n in zip(node.attrs["steps"], known))
    if len(cut) != 1 or not in_order or 0 in known or node.attrs["axes"]:
        return None
    start = node.attrs["starts"][cut[0]]
    if isinstance(start, Size):
        return None
    return Block(cut[0], start, start + counts[cut[0]], part, value)


def _layers(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """The blocks in groups along one axis within which none overlaps another, in order."""
    ordered = sorted(blocks, key=lambda block: (block.axis, block.start))
    for _, along in groupby(ordered, key=lambda block: block.axis):
        layers: list[list[Block]] = []
        for block in along:
            free = next((layer for layer in layers if layer[-1].stop <= block.start), None)
            if free is None:
                layers.append([block])
            else:
                free.append(block)
        yield from layers


def _side_by_side(layer: Sequence[Block]) -> Value:
    """The sum of a layer, zeros in its gaps."""
    if len(layer) == 1:
        return layer[0].placed
    axis, whole = layer[0].axis, layer[0].placed
    pieces: list[Value] = []
    end = 0
    for block in layer:
        pieces += [*_gap(whole, axis, block.start - end), block.part]
        end = block.stop
    pieces += _gap(whole, axis, whole.type.dims[axis] - end)
    return concatenate(pieces, axis)  # type: ignore[no-any-return]


def _gap(whole: Value, axis: int, extent: int) -> list[Value]:
    """Zeros of an extent, none if it is 0."""
    dims = list(whole.shape)
    dims[axis] = extent
    return [functions.zeros(tuple(dims), whole.element)] if extent else []
