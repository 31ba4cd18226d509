"""The object linker: agreement with LLVM's, external functions, data, damage."""

from __future__ import annotations

import contextlib
import ctypes
import math
import platform
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from project import environment

from graphc.codegen.llvm.target import host, named, optimise_and_object
from graphc.errors import GraphError
from graphc.runtime.load import elf, load

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="needs x86-64 Linux"
)

TEXT = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40], align 64
@count = internal global i64 5, align 8
@room = internal global [1000 x i64] zeroinitializer, align 4096
@shared = global i64 7, align 8
@where = internal constant ptr @count, align 8
@methods = internal constant [2 x ptr] [ptr @twice, ptr @thrice], align 16
declare double @cos(double)
declare i64 @strlen(ptr)

define internal i64 @twice(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}
define internal i64 @thrice(i64 %x) noinline {
  %y = mul i64 %x, 3
  ret i64 %y
}
define i64 @look(i64 %i) {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %x = load i64, ptr %at
  ret i64 %x
}
define i64 @next() {
  %at = load volatile ptr, ptr @where
  %x = load i64, ptr %at
  %y = add i64 %x, 1
  store i64 %y, ptr %at
  %s = load i64, ptr @shared
  %z = add i64 %y, %s
  ret i64 %z
}
define i64 @method(i64 %i, i64 %x) {
  %at = getelementptr [2 x ptr], ptr @methods, i64 0, i64 %i
  %f = load volatile ptr, ptr %at
  %y = call i64 %f(i64 %x)
  ret i64 %y
}
define i64 @fill(i64 %i) {
  %at = getelementptr [1000 x i64], ptr @room, i64 0, i64 %i
  %old = load i64, ptr %at
  store i64 %i, ptr %at
  ret i64 %old
}
define double @cosine(double %x) {
  %y = call double @cos(double %x)
  %z = fadd double %y, 0.25
  ret double %z
}
define i64 @length(ptr %s) {
  %n = call i64 @strlen(ptr %s)
  ret i64 %n
}
define ptr @address_of_cos() {
  ret ptr @cos
}
"""
SYMBOLS = ("look", "next", "method", "fill", "cosine", "length", "address_of_cos", "shared")


@cache
def code() -> bytes:
    return optimise_and_object([TEXT], host())


def call(address: int, result, *kinds):
    return ctypes.CFUNCTYPE(result, *kinds)(address)


def test_our_linker_does_what_the_object_says():
    source = elf.parse(code())
    assert source.imports == ["cos", "strlen"] and set(SYMBOLS) <= source.defined
    at, _memory = elf.load(source, load.process_symbol)
    check(at)


# Leaves free pages that lie 3 GiB apart, and takes what is free between other mappings.
APART = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
kinds = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
libc.mmap.argtypes = kinds
libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
reserve = lambda nbytes: libc.mmap(None, nbytes, 0, 0x4022, -1, 0)
places = [reserve(3 << 30) for _ in range(32)]
taken = [reserve(4096) for _ in range(4000)]
freed = [libc.munmap(place + (1 << 30), 4096) for place in places]
"""


@pytest.mark.parametrize("memory", ["", APART], ids=["plain", "apart"])
def test_llvm_links_the_same(memory):
    """Also where no two free pages of the process are within 2 GiB of one another."""
    script = f"""
from test_load import *
load._jit()
{memory}
check(load._link_with_llvm(code(), "test", SYMBOLS, {{}}))
"""
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True)


def check(at):
    """Call everything in the linked object."""
    word = ctypes.c_int64
    assert [call(at["look"], word, word)(i) for i in range(4)] == [10, 20, 30, 40]
    assert [call(at["next"], word)() for _ in range(3)] == [13, 14, 15]
    assert ctypes.c_int64.from_address(at["shared"]).value == 7
    assert [call(at["method"], word, word, word)(i, 5) for i in range(2)] == [10, 15]
    assert [call(at["fill"], word, word)(999) for _ in range(2)] == [0, 999]
    assert call(at["cosine"], ctypes.c_double, ctypes.c_double)(1.0) == math.cos(1.0) + 0.25
    assert call(at["length"], word, ctypes.c_char_p)(b"graphc") == 6
    assert call(at["address_of_cos"], ctypes.c_void_p)() == load.process_symbol("cos")


def test_objects_load_twice_with_data_of_their_own():
    source = elf.parse(code())
    (first, keep), (second, also) = (elf.load(source, load.process_symbol) for _ in range(2))
    assert call(first["next"], ctypes.c_int64)() == 13
    assert call(second["next"], ctypes.c_int64)() == 13
    assert len(keep) == len(also)


def test_explicit_imports_win():
    text = """
    declare i64 @graphc_test_answer()
    define i64 @ask() {
      %x = call i64 @graphc_test_answer()
      ret i64 %x
    }
    """
    answer = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 42)
    address = ctypes.cast(answer, ctypes.c_void_p).value
    made = optimise_and_object([text], host())
    at = load.link(made, ["ask"], {"graphc_test_answer": address})
    assert call(at["ask"], ctypes.c_int64)() == 42
    assert load.link(made, ["ask"], {"graphc_test_answer": address, "other": 1}) == at
    assert load.link(made, ["ask"], {"graphc_test_answer": address + 1}) != at


WEAK = """
declare extern_weak i64 @graphc_test_answer()
@table = internal constant [1 x ptr] [ptr @graphc_test_answer]
define ptr @place() {
  %p = load volatile ptr, ptr @table
  ret ptr %p
}
"""


def test_weak_imports_are_null_where_there_are_none():
    made = optimise_and_object([WEAK], host())
    without = load.link(made, ["place"])
    assert call(without["place"], ctypes.c_void_p)() is None
    given = load.link(made, ["place"], {"graphc_test_answer": 4096})
    assert call(given["place"], ctypes.c_void_p)() == 4096
    again = load.link(made, ["place"], {"other": 4096})
    assert call(again["place"], ctypes.c_void_p)() is None
    assert load.link(made, ["place"]) is again


def test_llvm_leaves_weak_imports_null():
    script = """
from test_load import *
made = optimise_and_object([WEAK], host())
for given, found in (({}, None), ({"graphc_test_answer": 4096}, 4096)):
    at = load._link_with_llvm(made, f"test{found}", ["place"], given)
    assert call(at["place"], ctypes.c_void_p)() == found
"""
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True)


def test_symbols_that_are_not_defined_are_named():
    with pytest.raises(GraphError, match="does not define nothing_here"):
        load.link(code(), ["nothing_here"])


def test_other_formats_are_left_to_llvm():
    with pytest.raises(elf.Unsupported):
        elf.load(elf.parse(optimise_and_object([TEXT], named("neoverse-n1"))), load.process_symbol)
    for data in (b"", b"\x7fELF", b"MZ" + bytes(100)):
        with pytest.raises(elf.Unsupported):
            elf.parse(data)


def test_thread_local_data_is_left_to_llvm():
    text = "@t = thread_local global i64 3\ndefine ptr @f() {\n  ret ptr @t\n}\n"
    with pytest.raises(elf.Unsupported):
        elf.parse(optimise_and_object([text], host()))


def test_truncated_objects_are_errors():
    for size in range(6, len(code()), 61):
        with pytest.raises((elf.Damaged, elf.Unsupported)):
            elf.load(elf.parse(code()[:size]), load.process_symbol)


@pytest.mark.slow
def test_altered_objects_never_crash_the_linker():
    data = code()
    (table,) = np.frombuffer(data, "<u8", 1, 40)
    random = np.random.default_rng(12)
    places = [*range(16, 64), *range(int(table), len(data))]
    for _ in range(3000):
        changed = bytearray(data)
        for place in random.choice(places, 2):
            changed[place] = random.integers(0, 256)
        with contextlib.suppress(elf.Damaged, elf.Unsupported):
            elf.load(elf.parse(bytes(changed)), lambda _name: 0)
