"""Rows of unsigned keys of any width, on any machine: radix sort, as `ops.sort.sort_kernels` tells,
and insertion for short rows. Of keys of a byte the counts are all: the result is written from them.

    scratch of a thread:    counts of each byte's digits | a row
"""

from __future__ import annotations

from functools import cache

from graphc.base.record import record
from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I8,
    I32,
    I64,
    Module,
    Number,
    Operand,
    Pointer,
    Value,
    Writer,
    clear_bytes,
    copy_bytes,
    fill,
    native,
    text_of,
)
from graphc.codegen.sorting.looks import watched
from graphc.ops.tuning import tuned
from graphc.tuning import forgotten

DIGITS = 256


@record(frozen=True)
class Rows:
    """What a kernel is written for: bits of a key; it sorts keys, or finds positions."""

    bits: int
    positions: bool

    @property
    def counted(self) -> int:
        """Bytes of the counts."""
        return 8 * DIGITS * (self.bits // 8)

    @property
    def item(self) -> int:
        """Bytes of an element of the result."""
        return 8 if self.positions else self.bits // 8

    def key(self, f: Writer, keys: Value, number: Operand) -> Value:
        """A key as 64 bits."""
        return load(f, keys, number, self.bits)

    def held(self, f: Writer, items: Value, number: Operand) -> Value:
        """An element of a result, or of a row of scratch."""
        return load(f, items, number, 8 * self.item)

    def put(self, f: Writer, items: Value, number: Operand, value: Value) -> None:
        store(f, items, number, value, 8 * self.item)

    def key_of(self, f: Writer, keys: Value, held: Value) -> Value:
        """The key of an element."""
        return self.key(f, keys, held) if self.positions else held

    def insert(self, f: Writer, keys: Value, out: Value, count: Value) -> None:
        """Sort a short row."""
        with f.loop(0, count) as k:
            key, spot = self.key(f, keys, k), f.local(k)
            with f.forever():
                here = spot.value
                with f.when(here == 0):
                    f.leave()
                before = self.held(f, out, here - 1)
                with f.when((key.below(self.key_of(f, keys, before))) ^ 1):
                    f.leave()
                self.put(f, out, here, before)
                spot.set(here - 1)
            self.put(f, out, spot, k if self.positions else key)

    def sort(
        self, f: Writer, keys: Value, out: Value, work: Value, count: Value, flag: Value
    ) -> None:
        """Sort a row of any length."""
        clear_bytes(f, work, self.counted)
        with watched(f, flag, 0, count) as k:
            key = self.key(f, keys, k)
            for place in range(self.bits // 8):
                counter = work.at(_digit(key, place) + DIGITS * place)
                counter.store(counter.load() + 1)
            if self.positions:
                self.put(f, out, k, k)
        if self.item == 1:
            _write(f, out, work)
            return
        first, row = self.key(f, keys, 0), work + self.counted
        source = f.local(out if self.positions else keys)
        target = f.local(row if self.positions else out)
        for place in range(self.bits // 8):
            counts = work.at(DIGITS * place)
            with f.when(counts[_digit(first, place)] != count):
                _begin(f, counts)
                before, after = source.value, target.value
                with watched(f, flag, 0, count) as k:
                    held = self.held(f, before, k)
                    counter = counts.at(_digit(self.key_of(f, keys, held), place))
                    spot = counter.load()
                    counter.store(spot + 1)
                    self.put(f, after, spot, held)
                source.set(after)
                target.set((after == out).choose(row, out))
        with f.when(source != out):
            copy_bytes(f, out, source, count * self.item)


def load(f: Writer, items: Value, number: Operand, bits: int) -> Value:
    """An unsigned number of so many bits, as 64."""
    kind = f"i{bits}"
    at = f.new("ptr", f"getelementptr {kind}, ptr {items.text}, i64 {text_of(number)}")
    found = at.load(kind)
    return found if kind == I64 else found.cast("zext", I64)


def store(f: Writer, items: Value, number: Operand, value: Value, bits: int) -> None:
    kind = f"i{bits}"
    at = f.new("ptr", f"getelementptr {kind}, ptr {items.text}, i64 {text_of(number)}")
    at.store(value if kind == I64 else value.cast("trunc", kind))


def _digit(key: Value, place: int) -> Value:
    return (key >> 8 * place) & (DIGITS - 1)


def _begin(f: Writer, counts: Value) -> None:
    """Turn counts into where each digit begins."""
    total = f.local(0)
    with f.loop(0, DIGITS) as digit:
        here, before = counts[digit], total.value
        counts[digit] = before
        total.set(before + here)


def _write(f: Writer, out: Value, counts: Value) -> None:
    """The bytes of a row, by how often each is there."""
    start = f.local(0)
    with f.loop(0, DIGITS) as digit:
        count, first = counts[digit], start.value
        with f.when(count != 0):
            fill(f, out + first, digit.cast("trunc", I8), count, 0)
        start.set(first + count)


def scratch_of(kind: Rows, length: int) -> int:
    """Bytes of scratch of a thread."""
    return kind.counted + -(-length * kind.item // 64) * 64


@forgotten
@cache
def digits_text(target: Target, kind: Rows) -> str:
    """The kernel of rows lo..hi; its params are their length and the bytes of scratch that a thread
    has."""

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        count, flag = params[0], bufs.pointer(-1)
        keys, out = bufs.pointer(0), bufs.pointer(1)
        work = bufs.pointer(2) + params[1] * thread
        is_short = count <= tuned.insertion_row
        with f.loop(lo, hi) as row:
            at = row * count
            mine, made = keys + at * (kind.bits // 8), out + at * kind.item
            with f.when(is_short):
                kind.insert(f, mine, made, count)
            with f.otherwise():
                kind.sort(f, mine, made, work, count, flag)
        f.give(f.half(0))

    return Module(target.triple).text([kernel])


@forgotten
@cache
def least_text(target: Target, bits: int) -> str:
    """The kernel that finds the least keys of rows lo..hi by insertion: most lose to the last of
    them at the first comparison. Its params are the length of a row and how many are wanted."""

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        count, wanted, flag = params[0], params[1], bufs.pointer(-1)
        keys, best, places = (bufs.pointer(k) for k in range(3))
        with f.loop(lo, hi) as row:
            mine, made = keys + row * count * (bits // 8), best + row * wanted * (bits // 8)
            found = places.at(row * wanted)
            with watched(f, flag, 0, count) as k:
                key, spot = load(f, mine, k, bits), f.local(k.least(wanted))
                with f.when((k < wanted) | key.below(load(f, made, wanted - 1, bits))):
                    with f.forever():
                        here = spot.value
                        with f.when(here == 0):
                            f.leave()
                        before = load(f, made, here - 1, bits)
                        with f.when(key.below(before) ^ 1):
                            f.leave()
                        with f.when(here < wanted):
                            store(f, made, here, before, bits)
                            found[here] = found[here - 1]
                        spot.set(here - 1)
                    store(f, made, spot, key, bits)
                    found[spot] = k
        f.give(f.half(0))

    return Module(target.triple).text([kernel])
