"""The writer of LLVM text: what it writes does what it says, in LLVM and read by the tests."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleavings import Machine, Program, explore

from graphc.base.memory_layout import Half, Layout, Word
from graphc.codegen.llvm.target import host, optimise_and_object
from graphc.codegen.llvm.writer import (
    I32,
    I64,
    SEQ_CST,
    Module,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    native,
)
from graphc.runtime.load import load
from graphc.seams.cpython import keep_for_ever


class PointWords(Layout, nbytes=32):
    """A layout with a gap."""

    x: Word
    small: Half
    y: Word = 24


@native(I64)
def collatz(f: Writer, start: Number) -> None:
    """How many steps lead to 1; -1 for more than 100."""
    n = f.local(start)
    with f.loop(0, 100) as steps:
        with f.when(n == 1):
            f.give(steps)
        with f.when(n % 2 == 0):
            n.set(n // 2)
            f.again()
        n.set(n * 3 + 1)
    f.give(-1)


@native(I64, is_public=True)
def everything(f: Writer, points: Struct[PointWords], count: Number, key: Number) -> None:
    total = f.local(0)
    with f.loop(0, count) as k:
        point = points[k]
        with f.switch(point.small) as case:
            with case(0):
                total += point.x
            with case(1, 2):
                total.set(total - point.y)
                point.x = total
            with case(3):
                total.set((total ^ point.y) & ~(point.x << 3) | (point.x >> 2))
            with case(4):
                total += point.at("x").fetch_add(k, SEQ_CST).least(point.y).most(key)
            with case(5):
                with f.when(point.at("y").cas(key, k, SEQ_CST)):
                    total += 1
                with f.otherwise():
                    total.set(total + (point.x.below(key)).choose(collatz(f, point.x & 31), key))
            with case(6):
                f.leave()
    f.give(total)


@cache
def compiled() -> Any:
    text = Module(host().triple).text([everything])
    linked = load.link(optimise_and_object([text], host()), ("graphc_everything",))
    keep_for_ever(linked)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return kind(linked["graphc_everything"])


@native()
def into(f: Writer, points: Pointer, count: Number, key: Number, out: Pointer) -> None:
    out[0] = everything(f, points, count, key)


numbers = st.integers(-9, 9) | st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(numbers, st.integers(0, 7), numbers), max_size=6), numbers)
def test_llvm_and_the_interpreter_agree(rows: list[tuple[int, int, int]], key: int) -> None:
    words = np.zeros((len(rows), PointWords.nbytes // 8), np.int64)
    for row, (x, small, y) in zip(words, rows, strict=True):
        row[PointWords.x], row[PointWords.small], row[PointWords.y] = x, small, y
    points, out = 1 << 24, 1 << 25
    memory = {points + 8 * k: int(v) & (1 << 64) - 1 for k, v in enumerate(words.ravel())}
    machine = Machine(Program(Module(host().triple).text([into])))
    key_word = key & (1 << 64) - 1
    start = machine.start(memory, [("into", (points, len(rows), key_word, out))])
    found: list[int] = []
    explore(machine, start, check=lambda memory: found.append(memory.get(out, 0)))
    assert found == [compiled()(words.ctypes.data, len(rows), key) & (1 << 64) - 1]


def test_mistakes_are_found_when_the_text_is_written() -> None:
    def written(body: Any) -> str:
        body.__globals__["PointWords"] = PointWords
        return Module(host().triple).text([native(I32)(body)])

    def misspelt(f: Writer, point: Struct[PointWords]) -> None:
        f.give(point.z)

    def decided(f: Writer, number: Number) -> None:
        if number == 0:
            f.give(1)

    def short(f: Writer, number: Number) -> None:
        collatz(f)

    for body, error in ((misspelt, AttributeError), (decided, TypeError), (short, ValueError)):
        with pytest.raises(error):
            written(body)


def test_text_that_is_written_is_sound() -> None:
    def body(f: Writer, number: Number) -> None:
        kept: Value = f.local(number)
        with f.forever():
            with f.when(number > 3):
                f.leave()
            with f.otherwise(), f.when(number < 1):
                f.give(f.half(7))
            kept += 1
        f.give(kept.cast("trunc", I32))

    llvm.parse_assembly(Module(host().triple).text([native(I32)(body)])).verify()
