"""Rows of keys in order: quicksort whose partitions go by vectors, networks for what is short.

A partition reads a part once.  What is below the pivot goes to the front of where the part belongs,
the rest to the front of scratch: both have been read already, wherever the part lies.

    part     5 2 7 1 | 8 3 ...        front   2 1 3          scratch   5 7 8

What is in scratch is sorted first, from there; the fronts wait.

Where nothing is below the pivot it is the least key, and all that are equal to it are in place
after a second partition.  After too many bad pivots a heap sorts what is left.
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
)
from graphc.codegen.sorting.lanes import Lanes
from graphc.codegen.sorting.looks import CANCELLED, look, watched
from graphc.codegen.sorting.network import Block
from graphc.codegen.tuning import tuned
from graphc.tuning import forgotten


def block_of(target: Target, bits: int) -> int:
    """The keys that a network sorts in registers."""
    lanes = Lanes(target, bits)
    return lanes.most * lanes.count


class Sorter:
    """Native functions that sort keys of one kind."""

    def __init__(
        self, target: Target, bits: int, patience: int = 3, vectors: int | None = None
    ) -> None:
        self.lanes = Lanes(target, bits)
        self.patience = patience  # partitions of a part, for each bit of its length
        most = vectors or self.lanes.most  # of a block
        self.blocks = {v: self._block(v) for v in (most >> k for k in (3, 2, 1, 0)) if v > 1}
        self.block = most * self.lanes.count
        self.small = self._small()
        self.partition = self._partition()
        self.sift = self._sift()
        self.heap = self._heap()
        self.pivot = self._pivot()
        self.sort = self._sort()

    def named(self, name: str) -> str:
        return f"graphc_{name}{self.lanes.bits}"

    def load(self, f: Writer, base: Value, index: Operand) -> Value:
        return self.lanes.at(f, base, index).load()

    # -- a block

    def _block(self, vectors: int) -> Native:
        lanes = self.lanes

        def body(f: Writer, source: Pointer, target: Pointer, count: Number) -> None:
            """Sort a block of keys of `count` that are there."""
            places, held = [], []
            counts = lanes.count_of(f, count)
            for k in range(vectors):
                mask = lanes.first(f, counts, k * lanes.count)
                places.append(mask)
                held.append(lanes.load_first(f, lanes.at(f, source, k * lanes.count), mask, -1))
            for k, value in enumerate(Block(f, lanes, held).sort()):
                lanes.store_first(f, value, lanes.at(f, target, k * lanes.count), places[k])
            f.give()

        return native(symbol=self.named(f"block{vectors}_"))(body)

    def _small(self) -> Native:

        def body(f: Writer, source: Pointer, target: Pointer, count: Number) -> None:
            """Sort what fits in a block, in the shortest."""
            for vectors, block in self.blocks.items():
                with f.when(count <= vectors * self.lanes.count):
                    block(f, source, target, count)
                    f.give()
            f.give()

        return native(symbol=self.named("small"))(body)

    # -- a partition

    def _partition(self) -> Native:
        lanes = self.lanes
        width = lanes.count

        def body(
            f: Writer,
            source: Pointer,
            target: Pointer,
            work: Pointer,
            count: Number,
            pivot: Number,
            flag: Pointer,
        ) -> None:
            """How many keys come first; CANCELLED if the flag is set."""
            if lanes.bits < 64:
                pivot = pivot.cast("trunc", lanes.element)
            middle = lanes.splat(f, pivot)
            low, high = f.local(0), f.local(0)

            def part(start: Value, vectors: int) -> None:
                each = [start + k * width for k in range(vectors)]
                held = [lanes.load(f, lanes.at(f, source, place)) for place in each]
                for keys in held:
                    mask = lanes.less(f, keys, middle)
                    found = lanes.number(f, mask)
                    lanes.store(f, lanes.compressed(f, keys, mask), lanes.at(f, target, low))
                    other = lanes.compressed(f, keys, lanes.opposite(f, mask))
                    lanes.store(f, other, lanes.at(f, work, high))
                    low.set(low + found)
                    high.set(high + width - found)

            whole, together = count // width, tuned.partitioned_vectors
            rounds = whole // together
            with watched(f, flag, 0, rounds) as k:
                part(k * (width * together), together)
            with f.loop(rounds * together, whole) as k:
                part(k * width, 1)
            rest = count - whole * width
            there = lanes.first(f, lanes.count_of(f, rest))
            keys = lanes.load_first(f, lanes.at(f, source, whole * width), there, -1)
            mask = lanes.both(f, lanes.less(f, keys, middle), there)
            found = lanes.number(f, mask)
            made = lanes.compressed(f, keys, mask)
            lanes.store_first(
                f, made, lanes.at(f, target, low), lanes.first(f, lanes.count_of(f, found))
            )
            other = lanes.compressed(f, keys, lanes.opposite(f, mask))
            lanes.store(f, other, lanes.at(f, work, high))
            f.give(low + found)

        return native(I64, symbol=self.named("partition"))(body)

    def copy(self, f: Writer, target: Value, source: Value, count: Value, flag: Value) -> None:
        lanes = self.lanes
        whole = count // lanes.count
        with watched(f, flag, 0, whole) as k:
            at = k * lanes.count
            lanes.store(f, lanes.load(f, lanes.at(f, source, at)), lanes.at(f, target, at))
        at = whole * lanes.count
        mask = lanes.first(f, lanes.count_of(f, count - at))
        keys = lanes.load_first(f, lanes.at(f, source, at), mask, 0)
        lanes.store_first(f, keys, lanes.at(f, target, at), mask)

    def _pivot(self) -> Native:
        lanes = self.lanes

        def body(f: Writer, source: Pointer, count: Number) -> None:
            """The median of some keys, which lie far apart."""
            sample = f.slot(lanes.element, tuned.pivot_sample, 64)
            wanted = (count < tuned.sampled_part).choose(16, tuned.pivot_sample)
            step = count // wanted
            with f.loop(0, wanted) as k:
                lanes.at(f, sample, k).store(self.load(f, source, k * step))
            self.small(f, sample, sample, wanted)
            found = self.load(f, sample, wanted >> 1)
            f.give(found.cast("zext", I64) if lanes.bits < 64 else found)

        return native(I64, symbol=self.named("pivot"))(body)

    # -- a heap

    def _sift(self) -> Native:
        lanes = self.lanes

        def body(f: Writer, keys: Pointer, start: Number, count: Number) -> None:
            """Let the key at `start` sink to where it is above those that follow it."""
            here = f.local(start)
            key = self.load(f, keys, start)
            with f.forever():
                child = (here << 1) + 1
                with f.when(child >= count):
                    f.leave()
                second = (child + 1).least(count - 1)
                is_less = self.load(f, keys, child).below(self.load(f, keys, second))
                larger = is_less.choose(second, child)
                found = self.load(f, keys, larger)
                with f.when(key.below(found) == 0):
                    f.leave()
                lanes.at(f, keys, here).store(found)
                here.set(larger)
            lanes.at(f, keys, here).store(key)
            f.give()

        return native(symbol=self.named("sift"))(body)

    def _heap(self) -> Native:
        lanes = self.lanes

        def body(f: Writer, keys: Pointer, count: Number, flag: Pointer) -> None:
            """Heap sort, which takes n log n steps whatever the keys are; 0, or CANCELLED."""
            half = count >> 1
            with watched(f, flag, 0, half) as k:
                self.sift(f, keys, half + (k ^ -1), count)
            with watched(f, flag, 1, count) as k:
                last = count - k
                top, other = self.load(f, keys, 0), self.load(f, keys, last)
                lanes.at(f, keys, last).store(top)
                lanes.at(f, keys, 0).store(other)
                self.sift(f, keys, 0, last)
            f.give(0)

        return native(I32, symbol=self.named("heap"))(body)

    # -- a row

    def _sort(self) -> Native:
        lanes = self.lanes

        def body(
            f: Writer, keys: Pointer, out: Pointer, work: Pointer, count: Number, flag: Pointer
        ) -> None:
            """Sort a row of keys, which may lie in `out`; 0, or CANCELLED if the flag is set."""
            waiting = f.slot(I64, 3 * 64 * max(self.patience, 1))
            bits = Extern("llvm.ctlz.i64", I64, I64, I1)(f, count | 1, 0)
            start, number, left = f.local(0), f.local(count), f.local((bits ^ 63) * self.patience)
            source, top = f.local(keys), f.local(0)

            def part_off(low: Value) -> None:
                """Go on with what is in scratch, behind so many keys."""
                start.set(start + low)
                number.set(number - low)
                left.set(left - 1)
                source.set(work)

            def stop_at(made: Value) -> None:
                with f.when(made < 0):
                    f.give(CANCELLED)

            with f.forever():
                part = lanes.at(f, out, start)
                with f.when(number <= self.block):
                    self.small(f, source, part, number)
                    with f.when(top == 0):
                        f.give(0)
                    top.set(top - 1)
                    for k, variable in enumerate((start, number, left)):
                        variable.set(waiting[top * 3 + k])
                    source.set(lanes.at(f, out, start))
                    f.again()
                look(f, flag)
                with f.when(left == 0):
                    self.copy(f, part, source, number, flag)
                    stop_at(self.heap(f, part, number, flag))
                    number.set(0)
                    f.again()
                pivot = self.pivot(f, source, number)
                low = self.partition(f, source, part, work, number, pivot, flag)
                stop_at(low)
                with f.when(low != 0):
                    for k, word in enumerate((start.value, low, left - 1)):
                        waiting[top * 3 + k] = word
                    top.set(top + 1)
                    part_off(low)
                    f.again()
                with f.when(pivot == (-1 if lanes.bits == 64 else (1 << lanes.bits) - 1)):
                    self.copy(f, part, work, number, flag)
                    number.set(0)
                    f.again()
                equal = self.partition(f, work, part, work, number, pivot + 1, flag)
                stop_at(equal)
                part_off(equal)

        return native(I32, symbol=self.named("sort"))(body)


@forgotten
@cache
def sort_text(target: Target, bits: int) -> str:
    lanes = Lanes(target, bits)
    # 256 keys of 64 bits do not fit in registers, and yet a partition takes longer.
    vectors = 2 * lanes.most if lanes.is_wide and bits == 64 else lanes.most
    return rows_text(Sorter(target, bits, vectors=vectors), target.triple)


def rows_text(sorter: Sorter, triple: str) -> str:
    """The kernel that sorts rows of keys; its params are their length and the bytes of scratch that
    a thread has."""
    lanes = sorter.lanes

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        count, work = params[0], bufs.pointer(2) + params[1] * thread
        keys, out, flag = bufs.pointer(0), bufs.pointer(1), bufs.pointer(-1)
        with f.loop(lo, hi) as row:
            given, made = (lanes.at(f, base, row * count) for base in (keys, out))
            status = sorter.sort(f, given, made, work, count, flag)
            with f.when(status != 0):
                f.give(status)
        f.give(0)

    return Module(triple).text([kernel])
