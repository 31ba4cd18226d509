"""The positions that put rows of keys in order, equal keys as they stand.

What is sorted are words of a key and its position; equal ones there are not.  Of keys that are too
wide for that the low bits are left out, once the least key is taken off:

    word    (key - least) >> cut | position

Then keys that agree so far lie side by side, and each such run is sorted again by the bits that
were cut off, which are no more than those of a position.

The words of a long row are first put into groups by the leading bits of their keys, each where it
belongs, as one step of a radix sort does; most groups then fit in a network.  Where a group has all
bits of its keys there is nothing left to sort.
"""

from __future__ import annotations

from functools import cache

from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I1,
    I32,
    I64,
    Extern,
    Module,
    Native,
    Number,
    Operand,
    Pointer,
    Value,
    Writer,
    native,
    text_of,
)
from graphc.codegen.sorting.lanes import Lanes
from graphc.codegen.sorting.looks import CANCELLED, watched
from graphc.codegen.sorting.quicksort import Sorter
from graphc.codegen.tuning import tuned
from graphc.tuning import forgotten

MOST_GROUPS = 1 << 10  # their ends lie on the stack, and what is written at once in the first cache
SAMPLE = 64  # keys that tell whether groups would be of about the same size


class Orderer:
    """Native functions that find the order of keys of so many bits."""

    def __init__(self, target: Target, bits: int) -> None:
        self.bits = bits
        self.sorter = Sorter(target, 64)
        self.lanes: Lanes = self.sorter.lanes
        self.ends = self._ends()
        self.is_mixed = self._is_mixed()
        self.again = self._again()
        self.grouped = self._grouped()
        self.sorted = self._sorted()
        self.order = self._order()

    def named(self, name: str) -> str:
        return f"graphc_{name}{self.bits}"

    def key(self, f: Writer, keys: Value, place: Operand) -> Value:
        """A key as a word."""
        kind = f"i{self.bits}"
        found = f.new("ptr", f"getelementptr {kind}, ptr {keys.text}, i64 {text_of(place)}", kind)
        return self.widened(found.load(), I64)

    def vector(self, f: Writer, keys: Value, place: Value) -> Value:
        """Keys as a vector of words."""
        kind = f"<{self.lanes.count} x i{self.bits}>"
        element = f"getelementptr i{self.bits}, ptr {keys.text}, i64 {place.text}"
        found = f.new("ptr", element)
        loaded = f.new(kind, f"load {kind}, ptr {found.text}, align {self.bits // 8}")
        return self.widened(loaded, self.lanes.kind)

    def widened(self, value: Value, kind: str) -> Value:
        return value if self.bits == 64 else value.cast("zext", kind)

    # -- the words

    def _ends(self) -> Native:
        lanes = self.lanes

        def body(f: Writer, keys: Pointer, count: Number, ends: Pointer, flag: Pointer) -> None:
            """Write the least and the greatest key; 0, or CANCELLED."""
            low = f.local(lanes.splat(f, -1), lanes.kind)
            high = f.local(lanes.splat(f, 0), lanes.kind)
            whole = count // lanes.count
            with watched(f, flag, 0, whole) as k:
                found = self.vector(f, keys, k * lanes.count)
                low.set(lanes.least(f, low, found))
                high.set(lanes.most_of(f, high, found))
            least, most = (
                f.local(Extern(f"llvm.vector.reduce.{n}.v{lanes.count}i64", I64, lanes.kind)(f, v))
                for n, v in (("umin", low.value), ("umax", high.value))
            )
            with f.loop(whole * lanes.count, count) as k:
                one = self.key(f, keys, k)
                least.set(one.below(least).choose(one, least))
                most.set(most.below(one).choose(one, most))
            ends[0], ends[1] = least, most
            f.give(0)

        return native(I32, symbol=self.named("ends"))(body)

    def _is_mixed(self) -> Native:
        lanes = self.lanes

        def body(f: Writer, words: Pointer, count: Number, width: Number, flag: Pointer) -> None:
            """Do neighbours agree in all but the position?  Said, too, when the run is cancelled:
            what is done about it stops at once."""
            shift = lanes.splat(f, width)
            same = f.local(Value(f, lanes.mask, "zeroinitializer"), lanes.mask)
            whole = (count - 1) // lanes.count
            with watched(f, flag, 0, whole) as k:
                left, right = (
                    lanes.load(f, lanes.at(f, words, k * lanes.count + i)) >> shift for i in (0, 1)
                )
                equal = f.new(lanes.mask, f"icmp eq {lanes.kind} {left.text}, {right.text}")
                same.set(f.new(lanes.mask, f"or {lanes.mask} {same.text}, {equal.text}"))
            some = f.local(
                Extern(f"llvm.vector.reduce.or.v{lanes.count}i1", I1, lanes.mask)(f, same)
            )
            with f.loop(whole * lanes.count + 1, count) as k:
                some.set(some | ((words[k - 1] >> width) == (words[k] >> width)))
            f.give(some.value)

        return native(I1, symbol=self.named("is_mixed"))(body)

    def _again(self) -> Native:
        def body(
            f: Writer,
            keys: Pointer,
            words: Pointer,
            work: Pointer,
            count: Number,
            ends: Pointer,
            width: Number,
            cut: Number,
            flag: Pointer,
        ) -> None:
            """Sort each run of words that agree by the bits that were cut off."""
            start, one = f.local(0), f.local(1)
            position, low = ((one << bits) - 1 for bits in (width, cut))
            with watched(f, flag, 1, count + 1) as k:
                here, before = (words[place] >> width for place in (k.least(count - 1), k - 1))
                with f.when((k == count) | (here != before)):
                    with f.when(k - start > 1):
                        with f.loop(start, k) as i:
                            place = words[i] & position
                            rest = (self.key(f, keys, place) - ends[0]) & low
                            words[i] = (rest << width) | place
                        run = words.at(start)
                        status = self.sorter.sort(f, run, run, work, k - start, flag)
                        with f.when(status != 0):
                            f.give(status)
                    start.set(k)
            f.give(f.half(0))

        return native(I32, symbol=self.named("again"))(body)

    def word(
        self, f: Writer, keys: Value, k: Value, least: Value, width: Value, cut: Value
    ) -> Value:
        return (((self.key(f, keys, k) - least) >> cut) << width) | k

    def _grouped(self) -> Native:
        def body(
            f: Writer,
            keys: Pointer,
            words: Pointer,
            count: Number,
            least: Number,
            width: Number,
            cut: Number,
            drop: Number,
            groups: Number,
            ends: Pointer,
            flag: Pointer,
        ) -> None:
            """Write the words in groups, by their keys without the last `drop` bits, and where each
            group ends. 1; 0 if in a sample more pairs agree than keys that are spread evenly have;
            or CANCELLED."""

            def group_of(k: Operand) -> Value:
                return (self.key(f, keys, k) - least) >> drop

            with f.loop(0, groups) as group:
                ends[group] = 0
            with f.when(drop != 0):
                pairs, step = f.local(0), count // SAMPLE
                with f.loop(0, SAMPLE) as k:
                    group = group_of(k * step)
                    pairs.set(pairs + ends[group])
                    ends[group] = ends[group] + 1
                with f.when(pairs * groups > tuned.crowded_groups * (SAMPLE * (SAMPLE - 1) // 2)):
                    f.give(0)
                with f.loop(0, groups) as group:
                    ends[group] = 0
            with watched(f, flag, 0, count) as k:
                group = group_of(k)
                ends[group] = ends[group] + 1
            total = f.local(0)
            with f.loop(0, groups) as group:
                found = ends[group]
                ends[group] = total
                total.set(total + found)
            with watched(f, flag, 0, count) as k:
                group = group_of(k)
                place = ends[group]
                words[place] = self.word(f, keys, k, least, width, cut)
                ends[group] = place + 1
            f.give(1)

        return native(I32, symbol=self.named("grouped"))(body)

    def _sorted(self) -> Native:
        def body(
            f: Writer,
            keys: Pointer,
            words: Pointer,
            work: Pointer,
            count: Number,
            least: Number,
            width: Number,
            cut: Number,
            spare: Number,
            flag: Pointer,
        ) -> None:
            """Write the words of a row, sorted; 0, or CANCELLED."""
            ends = f.slot(I64, MOST_GROUPS, 64)
            most = MOST_GROUPS.bit_length() - 1
            used, wanted = f.local(64) - spare, f.local(64) - zeros(f, count // tuned.group_keys)
            bits = (used <= most).choose(used, wanted.least(most).most(1))
            drop = used - bits
            made = f.local(f.half(0))
            with f.when(count >= tuned.grouped_row):
                groups = f.local(1) << bits
                rest = least, width, cut, drop, groups, ends, flag
                made.set(self.grouped(f, keys, words, count, *rest))
                with f.when(made < 0):
                    f.give(CANCELLED)
                with f.when(made == 1):
                    start = f.local(0)
                    with watched(f, flag, 0, (drop == 0).choose(0, groups)) as group:
                        end = ends[group]
                        part = words.at(start)
                        status = self.sorter.sort(f, part, part, work, end - start, flag)
                        with f.when(status != 0):
                            f.give(status)
                        start.set(end)
                    f.give(f.half(0))
            self.fill(f, keys, words, count, least, width, cut, flag)
            f.give(self.sorter.sort(f, words, words, work, count, flag))

        return native(I32, symbol=self.named("sorted"))(body)

    def _order(self) -> Native:
        lanes = self.lanes

        def body(
            f: Writer, keys: Pointer, words: Pointer, work: Pointer, count: Number, flag: Pointer
        ) -> None:
            """The positions of a row; 0, or CANCELLED if the flag is set."""
            with f.when(count == 0):
                f.give(f.half(0))
            ends = f.slot(I64, 2)
            status = self.ends(f, keys, count, ends, flag)
            with f.when(status != 0):
                f.give(status)
            width = f.local(64) - zeros(f, (count - 1) | 1)
            spare = zeros(f, ends[1] - ends[0])
            cut = (width - spare).most(0)
            rest = ends[0], width, cut, spare, flag
            status = self.sorted(f, keys, words, work, count, *rest)
            with f.when(status != 0):
                f.give(status)
            with f.when(cut != 0), f.when(self.is_mixed(f, words, count, width, flag)):
                status = self.again(f, keys, words, work, count, ends, width, cut, flag)
                with f.when(status != 0):
                    f.give(status)
            position = (f.local(1) << width) - 1
            low = lanes.splat(f, position)
            whole = count // lanes.count
            with watched(f, flag, 0, whole) as k:
                place = lanes.at(f, words, k * lanes.count)
                lanes.store(f, lanes.load(f, place) & low, place)
            with f.loop(whole * lanes.count, count) as k:
                words[k] = words[k] & position
            f.give(f.half(0))

        return native(I32, symbol=self.named("order"))(body)

    def fill(
        self,
        f: Writer,
        keys: Value,
        words: Value,
        count: Value,
        least: Value,
        width: Value,
        cut: Value,
        flag: Value,
    ) -> None:
        """The words of a row, in its order."""
        lanes = self.lanes
        low, shift, up = (lanes.splat(f, value) for value in (least, cut, width))
        numbers = ", ".join(f"i64 {k}" for k in range(lanes.count))
        first = Value(f, lanes.kind, f"<{numbers}>")
        whole = count // lanes.count
        with watched(f, flag, 0, whole) as k:
            start = k * lanes.count
            high = ((self.vector(f, keys, start) - low) >> shift) << up
            lanes.store(f, high | (lanes.splat(f, start) + first), lanes.at(f, words, start))
        with f.loop(whole * lanes.count, count) as k:
            words[k] = self.word(f, keys, k, least, width, cut)


def zeros(f: Writer, number: Value) -> Value:
    """The bits before the first that is set, of 64."""
    return Extern("llvm.ctlz.i64", I64, I64, I1)(f, number, 0)


@forgotten
@cache
def order_text(target: Target, bits: int) -> str:
    """The kernel that finds the order of rows; its params are their length and the bytes of scratch
    that a thread has."""
    made = Orderer(target, bits)

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        count, work = params[0], bufs.pointer(2) + params[1] * thread
        keys, places, flag = bufs.pointer(0), bufs.pointer(1), bufs.pointer(-1)
        nbytes = bits // 8
        with f.loop(lo, hi) as row:
            at = row * count
            status = made.order(f, keys + at * nbytes, places.at(at), work, count, flag)
            with f.when(status != 0):
                f.give(status)
        f.give(f.half(0))

    return Module(target.triple).text([kernel])
