"""Sorting many rows at once: a network of comparators, each of which orders a vector of lanes.

Rows lie in scratch as columns, one to a lane, so a comparator takes two cache lines and no lane
looks at another.  The network is Batcher's odd-even merge sort for any number of keys, Knuth's
algorithm 5.2.2 M:

    distance p = 2, 1                       keys  0 --o-----o---------
                                                    1 --|--o--o---o---
    for each p: comparators i, i + d with           2 --o--|--o---o---     (the last between
    (i & p) == r, first d = p, then d = q - p       3 -----o--o-------      1 and 2)

Positions are sorted as the low half of 64-bit keys; those of 64-bit keys in lanes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.op import Loops
from graphc.ir.sizes import is_open
from graphc.ir.types import I64, U64, DType
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import maximum, minimum, where
from graphc.ops.record.arguments import Applied, Read, Write
from graphc.ops.reduce.cumulative import unravel
from graphc.ops.tuning import tuned

LINE = 64  # bytes of a comparator's side


class Network:
    """The keys of rows in order."""

    def __init__(
        self, b: Scalars, node: Applied, read: Read, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write, self.scratch = b, node, read, write, scratch
        self.extent = node.type.dims[-1]
        self.rows = _rows(node)
        self.lanes = lanes_of(node)

    def nest(self) -> None:
        b = self.b
        with b.loop(groups(self.node), "parallel") as group:
            first = group * self.lanes
            count = minimum(self.rows - first, self.lanes)
            with b.loop(count) as lane, b.loop(self.extent) as k:
                self.fill(first + lane, k, b.affine([(k, self.lanes)], lane))
            self.sort()
            with b.loop(count) as lane, b.loop(self.extent) as k:
                self.store(first + lane, k, b.affine([(k, self.lanes)], lane))

    def sort(self) -> None:
        """All comparators, a pass of independent ones after another."""
        b = self.b
        steps = max(self.extent - 1, 0).bit_length()
        widest = b.integer(1 << max(steps - 1, 0))
        with b.loop(steps) as step:
            p = widest >> step
            with b.loop(step + 1) as turn:
                initial = turn == 0
                q = widest >> maximum(turn - 1, 0)
                offset = where(initial, 0, p)
                distance = where(initial, p, q - p)
                self.exchanges(p, offset, distance)

    def exchanges(self, p: Expr, offset: Expr, distance: Expr) -> None:
        """The comparators i, i + distance of all i with (i & p) == offset."""
        b = self.b
        last = self.extent - distance
        twice = p * 2
        runs = (last + (twice - 1) - offset) // twice
        with b.loop(runs) as run:
            start = run * twice + offset
            with b.loop(minimum(start + p, last), "serial", start) as i:
                upper = i * self.lanes
                lower = (i + distance) * self.lanes
                with b.loop(self.lanes, "vector") as lane:
                    self.compare(upper + lane, lower + lane)

    def row_start(self, row: Expr) -> Any:
        return row * self.extent

    def fill(self, row: Expr, k: Expr, place: Expr) -> None:
        (keys,) = self.scratch
        self.b.store(keys, place, self.read(0, self.row_start(row) + k))

    def compare(self, upper: Expr, lower: Expr) -> None:
        b, (keys,) = self.b, self.scratch
        x, y = b.register(b.load(keys, upper)), b.register(b.load(keys, lower))
        b.store(keys, upper, minimum(b.read(x), b.read(y)))
        b.store(keys, lower, maximum(b.read(x), b.read(y)))

    def store(self, row: Expr | int, k: Expr | int, place: Expr | int) -> None:
        (keys,) = self.scratch
        self.write(self.index(row, k), self.b.load(keys, place))

    def index(self, row: Expr | int, k: Expr | int) -> tuple[Any, ...]:
        return (*unravel(row, self.node.type.dims[:-1]), k)


class Places(Network):
    """The positions of keys of up to 32 bits: the low half of what is sorted."""

    def fill(self, row: Expr, k: Expr, place: Expr) -> None:
        b, (keys,) = self.b, self.scratch
        key = self.read(0, self.row_start(row) + k).cast(U64)
        high = key << 32
        b.store(keys, place, high | k.cast(U64))

    def store(self, row: Expr | int, k: Expr | int, place: Expr | int) -> None:
        b, (keys,) = self.b, self.scratch
        low = b.load(keys, place) & ((1 << 32) - 1)
        self.write(self.index(row, k), low.cast(I64))


class WidePlaces(Network):
    """The positions of 64-bit keys, moved along with them; equal keys are told apart by them."""

    def fill(self, row: Expr, k: Expr, place: Expr) -> None:
        keys, places = self.scratch
        self.b.store(keys, place, self.read(0, self.row_start(row) + k))
        self.b.store(places, place, k)

    def compare(self, upper: Expr, lower: Expr) -> None:
        b = self.b
        (x, y), (i, j) = (
            [b.register(b.load(buffer, place)) for place in (upper, lower)]
            for buffer in self.scratch
        )
        later = b.read(i) > b.read(j)
        equal = (b.read(x) == b.read(y)) & later
        swap = (b.read(x) > b.read(y)) | equal
        for buffer, one, other in zip(self.scratch, (x, i), (y, j), strict=True):
            b.store(buffer, upper, where(swap, b.read(other), b.read(one)))
            b.store(buffer, lower, where(swap, b.read(one), b.read(other)))

    def store(self, row: Expr | int, k: Expr | int, place: Expr | int) -> None:
        self.write(self.index(row, k), self.b.load(self.scratch[1], place))


def _rows(node: Applied) -> int:
    return int(node.type.size // max(node.type.dims[-1], 1))


def sorted_types(node: Applied) -> tuple[DType, ...]:
    """What a lane holds of a key and, if they are wanted, of its position."""
    key = node.inputs[0].type.dtype
    if node.op.name == "sort_keys":
        return (key,)
    return (U64,) if key.bits <= 32 else (U64, I64)


def lanes_of(node: Applied) -> int:
    return int(LINE // sorted_types(node)[0].itemsize)


def groups(node: Applied) -> int:
    return int(-(-_rows(node) // lanes_of(node)))


def network(node: Applied) -> Loops | None:
    """The loops that sort the rows of a node, if they are many and not too long."""
    narrow = node.inputs[0].type.dtype.bits < 32
    longest = tuned.network_row_narrow if narrow else tuned.network_row
    if is_open(node.type.dims) or _rows(node) < lanes_of(node) or node.type.dims[-1] > longest:
        return None
    types = sorted_types(node)
    kind = Network if node.op.name == "sort_keys" else Places if len(types) == 1 else WidePlaces
    size = node.type.dims[-1] * lanes_of(node)
    workspace = tuple((element, size) for element in types)
    return Loops(lambda *given: kind(*given).nest(), groups, lambda node: workspace)
