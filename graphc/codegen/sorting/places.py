"""Where an array is true: words of a bit for each element, of which a few lanes at a time become
numbers that are compressed.  Words without a bit cost nothing more; what may not fit any more is
written one by one, as is all on machines without vectors of 256 bits.
"""

from __future__ import annotations

from functools import cache

from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I1,
    I32,
    I64,
    Extern,
    Local,
    Module,
    Number,
    Pointer,
    Value,
    Writer,
    native,
)
from graphc.codegen.sorting.lanes import Lanes
from graphc.codegen.sorting.looks import watched
from graphc.tuning import forgotten


class Finder:
    """What finds the true elements, a vector of bytes at a time."""

    def __init__(self, f: Writer, target: Target, places: Value, size: Value) -> None:
        self.f, self.lanes, self.places, self.size = f, Lanes(target, 64), places, size
        self.width = target.vector_bytes
        self.found = f.local(0)

    def word(self, mask: Value, start: Value) -> Value:
        """The elements of a vector as bits."""
        f, kind = self.f, f"<{self.width} x i8>"
        held = f.new(kind, f"load {kind}, ptr {(mask + start).text}, align 1")
        flags = f"<{self.width} x i1>"
        true = f.new(flags, f"icmp ne {kind} {held.text}, zeroinitializer")
        return f.new(f"i{self.width}", f"bitcast {flags} {true.text} to i{self.width}")

    def all_at_once(self, word: Value, start: Value) -> None:
        """The numbers of the bits of a word, when all its elements would fit."""
        f, lanes = self.f, self.lanes
        numbers = ", ".join(f"i64 {k}" for k in range(lanes.count))
        first = Value(f, lanes.kind, f"<{numbers}>") + lanes.splat(f, start)
        for step in range(0, self.width, lanes.count):
            part = (word >> step).cast("trunc", f"i{lanes.count}")
            mask = part.cast("bitcast", lanes.mask)
            made = lanes.compressed(f, first + lanes.splat(f, step), mask)
            lanes.store(f, made, lanes.at(f, self.places, self.found))
            self.found.set(self.found + lanes.number(f, mask))

    def vectors(self, mask: Value, total: Value, flag: Value) -> Value:
        """The places of all whole vectors; returns how many elements those have."""
        f, whole = self.f, total // self.width
        with watched(f, flag, 0, whole) as k:
            start = k * self.width
            word = self.word(mask, start)
            with f.when(word != 0):
                with f.when(self.found + self.width <= self.size):
                    self.all_at_once(word, start)
                    f.again()
                wide = word if self.width == 64 else word.cast("zext", I64)
                self.one_by_one(wide, start)
        return whole * self.width

    def one_by_one(self, word: Value, start: Value) -> None:
        f = self.f
        left = f.local(word)
        with f.forever():
            with f.when(left == 0):
                f.leave()
            bit = Extern("llvm.cttz.i64", I64, I64, I1)(f, left, 1)
            left.set(left & (left - 1))
            with f.when(self.found < self.size):
                self.places[self.found] = start + bit
            self.found.set(self.found + 1)


@forgotten
@cache
def places_text(target: Target) -> str:
    """The kernel; its params are how many elements there are, and how many places."""

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        total, size = params[0], params[1]
        mask, places, count, flag = (bufs.pointer(k) for k in (0, 1, 2, -1))
        made = Finder(f, target, places, size)
        found: Local = made.found
        first = made.vectors(mask, total, flag) if target.vector_bits >= 256 else total * 0
        with watched(f, flag, first, total) as k:  # nothing to predict but whether there is room
            byte = f.new("ptr", f"getelementptr i8, ptr {mask.text}, i64 {k.text}", "i8")
            with f.when(found < size):
                places[found] = k
            found.set(found + (byte.load() != 0).cast("zext", I64))
        count[0] = found
        with watched(f, flag, found, size) as k:
            places[k] = 0
        f.give(f.half(0))

    return Module(target.triple).text([kernel])
