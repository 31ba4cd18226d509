"""The least keys of rows, and where they were.

One pass finds the keys: those below the greatest of the best so far are gathered in a list, which
is put in order and cut off when it is full.  Most vectors have none.  A second pass finds where the
best lie: in the order of the row, so that of equal keys the first come first.

    row   5 2 7 1 8 3 1 ...     list  5 2 7 -> 2 5 | 1 3 -> 1 2 | 1 -> 1 1      places  3 6
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I1,
    I32,
    I64,
    Extern,
    Local,
    Module,
    Native,
    Number,
    Operand,
    Pointer,
    Value,
    Writer,
    native,
)
from graphc.codegen.sorting.lanes import Lanes
from graphc.codegen.sorting.looks import watched
from graphc.codegen.sorting.quicksort import Sorter
from graphc.tuning import forgotten

TOGETHER = 4  # vectors that are looked at as one
NOWHERE = -1
MOST = 1024  # keys of which the list lies on the stack


class Selector:
    """Native functions that select keys of one kind."""

    def __init__(self, target: Target, bits: int, is_short: bool) -> None:
        self.sorter = Sorter(target, bits)
        self.lanes: Lanes = self.sorter.lanes
        self.is_short = is_short  # the list fits in registers
        self.room = self.sorter.block if is_short else 4 * MOST
        self.shrink = self._shrink()
        self.select = self._select()
        self.place = self._place()

    def named(self, name: str) -> str:
        return f"graphc_{name}{self.lanes.bits}"

    # -- vectors of a row

    def each(
        self,
        f: Writer,
        row: Value,
        count: Value,
        flag: Value,
        is_some: Callable[[Value], Value],
        visit: Callable[[Value, Value, Value], None],
    ) -> None:
        """Visit the vectors that may hold a key below a bound, each with its start and its mask."""
        lanes, width = self.lanes, self.lanes.count
        whole = count // width
        rounds = whole // TOGETHER

        def one(start: Value) -> None:
            there = lanes.first(f, lanes.count_of(f, count - start))
            visit(lanes.load_first(f, lanes.at(f, row, start), there, -1), start, there)

        with watched(f, flag, 0, rounds) as k:
            start = k * (width * TOGETHER)
            held = [lanes.load(f, lanes.at(f, row, start + i * width)) for i in range(TOGETHER)]
            while len(held) > 1:
                held = [lanes.least(f, x, y) for x, y in zip(held[::2], held[1::2], strict=True)]
            with (
                f.when(self.any(f, is_some(held[0]))),
                f.loop(k * TOGETHER, (k + 1) * TOGETHER) as i,
            ):
                one(i * width)
        with f.loop(rounds * TOGETHER, whole + 1) as i:
            one(i * width)

    def any(self, f: Writer, mask: Value) -> Value:
        name = f"llvm.vector.reduce.or.v{self.lanes.count}i1"
        return Extern(name, I1, self.lanes.mask)(f, mask)

    def not_above(self, f: Writer, keys: Value, bound: Value) -> Value:
        return self.lanes.opposite(f, self.lanes.less(f, bound, keys))

    # -- the list

    def _shrink(self) -> Native:
        lanes, sorter = self.lanes, self.sorter

        def body(f: Writer, best: Pointer, count: Number, wanted: Number) -> None:
            """Put the list in order, and give the greatest of the keys that are wanted."""
            if self.is_short:
                sorter.small(f, best, best, count)
            else:
                work, never = f.slot(lanes.element, self.room + lanes.count, 64), f.slot(I64)
                never.store(0)
                sorter.sort(f, best, best, work, count, never)
            f.give(lanes.at(f, best, wanted - 1).load())

        return native(lanes.element, symbol=self.named("shrink"))(body)

    def _select(self) -> Native:
        lanes = self.lanes

        def body(
            f: Writer, row: Pointer, count: Number, best: Pointer, wanted: Number, flag: Pointer
        ) -> None:
            """Write the least keys of a row in order, and those of the greatest kind if it is
            short; 0, or CANCELLED."""
            found = f.local(0)
            greatest = f.local(Value(f, lanes.element, "-1"), lanes.element)

            def shrink() -> None:
                greatest.set(self.shrink(f, best, found, wanted))
                found.set(wanted)

            def visit(keys: Value, start: Value, there: Value) -> None:
                mask = lanes.less(f, keys, lanes.splat(f, greatest.value))
                place = lanes.at(f, best, found)
                lanes.store(f, lanes.compressed(f, keys, mask), place)
                found.set(found + lanes.number(f, mask))
                with f.when(found > self.room - lanes.count):
                    shrink()

            self.each(
                f,
                row,
                count,
                flag,
                lambda keys: lanes.less(f, keys, lanes.splat(f, greatest.value)),
                visit,
            )
            with f.loop(found, wanted) as k:
                lanes.at(f, best, k).store(Value(f, lanes.element, "-1"))
            self.shrink(f, best, found.most(wanted), wanted)
            f.give(0)

        return native(I32, symbol=self.named("select"))(body)

    # -- the places

    def _place(self) -> Native:
        lanes = self.lanes

        def body(
            f: Writer,
            row: Pointer,
            count: Number,
            best: Pointer,
            places: Pointer,
            wanted: Number,
            flag: Pointer,
        ) -> None:
            """Write where the keys lie that `select` has found; 0, or CANCELLED."""
            last = lanes.at(f, best, wanted - 1).load()
            equal = f.local(0)
            with f.loop(0, wanted) as k:
                places[k] = NOWHERE
                equal.set(equal + lanes.at(f, best, k).load().below(last).cast("zext", I64))
            bound = lanes.splat(f, last)

            def visit(keys: Value, start: Value, there: Value) -> None:
                mask = lanes.both(f, self.not_above(f, keys, bound), there)
                bits = f.local(self.bits(f, mask))
                with f.forever():
                    with f.when(bits == 0):
                        f.leave()
                    lane = Extern("llvm.cttz.i64", I64, I64, I1)(f, bits, 1)
                    bits.set(bits & (bits - 1))
                    self.put(f, row, start + lane, best, places, last, equal, wanted)

            self.each(f, row, count, flag, lambda keys: self.not_above(f, keys, bound), visit)
            f.give(0)

        return native(I32, symbol=self.named("place"))(body)

    def bits(self, f: Writer, mask: Value) -> Value:
        kind = f"i{self.lanes.count}"
        return mask.cast("bitcast", kind).cast("zext", I64)

    def put(
        self,
        f: Writer,
        row: Value,
        place: Operand,
        best: Value,
        places: Value,
        last: Value,
        equal: Local,
        wanted: Value,
    ) -> None:
        """Note where a key lies: those that equal the last take the places behind in turn."""
        lanes = self.lanes
        key = lanes.at(f, row, place).load()
        spot = f.local(0)
        with f.when(key == last):
            spot.set(equal)
            equal.set((equal + 1).least(wanted))
        with f.when(key != last), f.forever():
            is_here = (lanes.at(f, best, spot).load() == key) & (places[spot] == NOWHERE)
            with f.when(is_here):
                f.leave()
            spot.set(spot + 1)
        with f.when(spot < wanted):
            places[spot] = place


@forgotten
@cache
def select_text(target: Target, bits: int, is_short: bool) -> str:
    """The kernel that selects keys of rows; its params are their length, and how many."""
    made = Selector(target, bits, is_short)
    lanes = made.lanes

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        count, wanted = params[0], params[1]
        keys, out, places, flag = (bufs.pointer(k) for k in (0, 1, 2, -1))
        best = f.slot(lanes.element, made.room + lanes.count, 64)
        with f.loop(lo, hi) as row:
            given, first = lanes.at(f, keys, row * count), row * wanted
            status = made.select(f, given, count, best, wanted, flag)
            with f.when(status != 0):
                f.give(status)
            status = made.place(f, given, count, best, places.at(first), wanted, flag)
            with f.when(status != 0):
                f.give(status)
            with f.loop(0, wanted) as k:
                lanes.at(f, out, first + k).store(lanes.at(f, best, k).load())
        f.give(0)

    return Module(target.triple).text([kernel])
