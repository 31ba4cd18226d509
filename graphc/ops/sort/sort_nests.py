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

from typing import Any

from graphc.ir.op import Loops
from graphc.ir.types import I64, U64, DType
from graphc.ops.reduce.cumulative import unravel

LINE = 64  # bytes of a comparator's side
LONGEST = 4096  # keys in a row: more fill the second cache, and radix passes cost less
LONGEST_NARROW = 64  # the same for 8 and 16 bits, which take a pass or two


class Network:
    """The keys of rows in order."""

    def __init__(self, b: Any, node: Any, read: Any, write: Any, scratch: Any) -> None:
        self.b, self.node, self.read, self.write, self.scratch = b, node, read, write, scratch
        self.extent = node.type.dims[-1]
        self.rows = _rows(node)
        self.lanes = lanes_of(node)

    def nest(self) -> None:
        b = self.b
        with b.loop(groups(self.node), "parallel") as group:
            first = b.mul(group, b.integer(self.lanes))
            count = b.op("min", b.sub(b.integer(self.rows), first), b.integer(self.lanes))
            with b.loop(count) as lane, b.loop(self.extent) as k:
                self.fill(b.add(first, lane), k, b.affine([(k, self.lanes)], lane))
            self.sort()
            with b.loop(count) as lane, b.loop(self.extent) as k:
                self.store(b.add(first, lane), k, b.affine([(k, self.lanes)], lane))

    def sort(self) -> None:
        """All comparators, a pass of independent ones after another."""
        b = self.b
        steps = max(self.extent - 1, 0).bit_length()
        widest = b.integer(1 << max(steps - 1, 0))
        with b.loop(steps) as step:
            p = b.op("shr", widest, step)
            with b.loop(b.add(step, b.integer(1))) as turn:
                initial = b.compare("eq", turn, b.integer(0))
                q = b.op("shr", widest, b.op("max", b.sub(turn, b.integer(1)), b.integer(0)))
                offset = b.select(initial, b.integer(0), p)
                distance = b.select(initial, p, b.sub(q, p))
                self.exchanges(p, offset, distance)

    def exchanges(self, p: Any, offset: Any, distance: Any) -> None:
        """The comparators i, i + distance of all i with (i & p) == offset."""
        b = self.b
        last = b.sub(b.integer(self.extent), distance)
        twice = b.mul(p, b.integer(2))
        runs = b.op("idiv", b.sub(b.add(last, b.sub(twice, b.integer(1))), offset), twice)
        with b.loop(runs) as run:
            start = b.add(b.mul(run, twice), offset)
            with b.loop(b.op("min", b.add(start, p), last), "serial", start) as i:
                upper = b.mul(i, b.integer(self.lanes))
                lower = b.mul(b.add(i, distance), b.integer(self.lanes))
                with b.loop(self.lanes, "vector") as lane:
                    self.compare(b.add(upper, lane), b.add(lower, lane))

    def row_start(self, row: Any) -> Any:
        return self.b.mul(row, self.b.integer(self.extent))

    def fill(self, row: Any, k: Any, place: Any) -> None:
        (keys,) = self.scratch
        self.b.store(keys, place, self.read(0, self.b.add(self.row_start(row), k)))

    def compare(self, upper: Any, lower: Any) -> None:
        b, (keys,) = self.b, self.scratch
        x, y = b.register(b.load(keys, upper)), b.register(b.load(keys, lower))
        b.store(keys, upper, b.op("min", b.read(x), b.read(y)))
        b.store(keys, lower, b.op("max", b.read(x), b.read(y)))

    def store(self, row: Any, k: Any, place: Any) -> None:
        (keys,) = self.scratch
        self.write(self.index(row, k), self.b.load(keys, place))

    def index(self, row: Any, k: Any) -> tuple[Any, ...]:
        return (*unravel(self.b, row, self.node.type.dims[:-1]), k)


class Places(Network):
    """The positions of keys of up to 32 bits: the low half of what is sorted."""

    def fill(self, row: Any, k: Any, place: Any) -> None:
        b, (keys,) = self.b, self.scratch
        key = b.cast(self.read(0, b.add(self.row_start(row), k)), U64)
        high = b.op("shl", key, b.const(32, U64))
        b.store(keys, place, b.op("or", high, b.cast(k, U64)))

    def store(self, row: Any, k: Any, place: Any) -> None:
        b, (keys,) = self.b, self.scratch
        low = b.op("and", b.load(keys, place), b.const((1 << 32) - 1, U64))
        self.write(self.index(row, k), b.cast(low, I64))


class WidePlaces(Network):
    """The positions of 64-bit keys, moved along with them; equal keys are told apart by them."""

    def fill(self, row: Any, k: Any, place: Any) -> None:
        keys, places = self.scratch
        self.b.store(keys, place, self.read(0, self.b.add(self.row_start(row), k)))
        self.b.store(places, place, k)

    def compare(self, upper: Any, lower: Any) -> None:
        b = self.b
        (x, y), (i, j) = (
            [b.register(b.load(buffer, place)) for place in (upper, lower)]
            for buffer in self.scratch
        )
        later = b.compare("gt", b.read(i), b.read(j))
        equal = b.op("and", b.compare("eq", b.read(x), b.read(y)), later)
        swap = b.op("or", b.compare("gt", b.read(x), b.read(y)), equal)
        for buffer, one, other in zip(self.scratch, (x, i), (y, j), strict=True):
            b.store(buffer, upper, b.select(swap, b.read(other), b.read(one)))
            b.store(buffer, lower, b.select(swap, b.read(one), b.read(other)))

    def store(self, row: Any, k: Any, place: Any) -> None:
        self.write(self.index(row, k), self.b.load(self.scratch[1], place))


def _rows(node: Any) -> int:
    return int(node.type.size // max(node.type.dims[-1], 1))


def sorted_types(node: Any) -> tuple[DType, ...]:
    """What a lane holds of a key and, if they are wanted, of its position."""
    key = node.inputs[0].type.dtype
    if node.op.name == "sort_keys":
        return (key,)
    return (U64,) if key.bits <= 32 else (U64, I64)


def lanes_of(node: Any) -> int:
    return int(LINE // sorted_types(node)[0].itemsize)


def groups(node: Any) -> int:
    return int(-(-_rows(node) // lanes_of(node)))


def network(node: Any) -> Loops | None:
    """The loops that sort the rows of a node, if they are many and not too long."""
    narrow = node.inputs[0].type.dtype.bits < 32
    longest = LONGEST_NARROW if narrow else LONGEST
    if _rows(node) < lanes_of(node) or node.type.dims[-1] > longest:
        return None
    types = sorted_types(node)
    kind = Network if node.op.name == "sort_keys" else Places if len(types) == 1 else WidePlaces
    size = node.type.dims[-1] * lanes_of(node)
    workspace = tuple((element, size) for element in types)
    return Loops(lambda *given: kind(*given).nest(), groups, lambda node: workspace)
