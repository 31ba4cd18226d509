"""What stands in for instructions that WebAssembly lacks, beside exact arithmetic."""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from emitted_kernels import HOST, Loaded

from graphc.codegen.llvm.target import optimise_and_object
from graphc.codegen.llvm.writer import Module
from graphc.codegen.standalone.missing_instructions import WIDE_PRODUCT, wide_product, without_fused

COUNT = 4096
KERNEL = """
define i32 @fused(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {{
entry:
  %xs = load ptr, ptr %bufs
  %p1 = getelementptr ptr, ptr %bufs, i64 1
  %ys = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %bufs, i64 2
  %zs = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %bufs, i64 3
  %rs = load ptr, ptr %p3
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %xp = getelementptr {kind}, ptr %xs, i64 %i
  %yp = getelementptr {kind}, ptr %ys, i64 %i
  %zp = getelementptr {kind}, ptr %zs, i64 %i
  %rp = getelementptr {kind}, ptr %rs, i64 %i
  %x = load {kind}, ptr %xp, align 4
  %y = load {kind}, ptr %yp, align 4
  %z = load {kind}, ptr %zp, align 4
  %r = call {kind} @llvm.fma.{name}({kind} %x, {kind} %y, {kind} %z)
  store {kind} %r, ptr %rp, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %hi
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}}
"""


def fused(kind: str, name: str, lanes: int, *given: np.ndarray) -> np.ndarray:
    text = without_fused(KERNEL.format(kind=kind, name=name))
    assert "llvm.fma" not in text
    made = np.empty_like(given[0])
    kernel = Loaded(optimise_and_object([text], HOST), "fused")
    assert kernel([*given, made], 0, made.size // lanes) == 0
    return made


def numbers(dtype: type, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(COUNT) * 2.0 ** rng.integers(-30, 30, COUNT)).astype(dtype)


def distance(made: np.ndarray, exact: list[Fraction]) -> float:
    """The most units in the last place from the exact value."""
    units = np.spacing(np.abs(made)).astype(np.float64)
    return max(
        float(abs(Fraction(float(m)) - e) / Fraction(u)) for m, e, u in zip(made, exact, units)
    )


@pytest.mark.parametrize(
    ("kind", "name", "lanes", "dtype"),
    [
        ("float", "f32", 1, np.float32),
        ("<4 x float>", "v4f32", 4, np.float32),
        ("double", "f64", 1, np.float64),
        ("<2 x double>", "v2f64", 2, np.float64),
    ],
)
def test_the_product_of_a_fused_addition_is_not_rounded(
    kind: str, name: str, lanes: int, dtype: type
) -> None:
    x, y, z = (numbers(dtype, seed) for seed in range(3))
    z[::2] = -(x * y)[::2]  # what is left is the error of the product
    z[1::4] = -np.nextafter(x * y, dtype(np.inf))[1::4]
    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)) for a, b, c in zip(x, y, z)
    ]
    made = fused(kind, name, lanes, x, y, z)
    assert distance(made, exact) < 0.51
    lost = [Fraction(float(m)) == e for m, e in zip(made[::2], exact[::2])]
    assert all(lost)


def test_fused_additions_of_no_numbers() -> None:
    ends = np.array([np.inf, -np.inf, np.nan, 1e308, 5e-324, 0.0, -0.0, 2.0])
    x, y = (a.ravel() for a in np.meshgrid(ends, ends))
    z = np.roll(x, 5)
    with np.errstate(all="ignore"):
        want = x * y + z
    made = fused("double", "f64", 1, x, y, z)
    plain = ~np.isfinite(want)
    np.testing.assert_array_equal(made[plain], want[plain])
    assert np.isfinite(made[~plain]).all()


def test_products_of_128_bits() -> None:
    text = Module(HOST.triple).text([wide_product]).replace(WIDE_PRODUCT, "wide")
    wrapper = """
define i32 @kernel(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %to = load ptr, ptr %bufs
  %p1 = getelementptr i64, ptr %params, i64 1
  %p2 = getelementptr i64, ptr %params, i64 2
  %p3 = getelementptr i64, ptr %params, i64 3
  %a = load i64, ptr %params
  %ah = load i64, ptr %p1
  %b = load i64, ptr %p2
  %bh = load i64, ptr %p3
  call void @wide(ptr %to, i64 %a, i64 %ah, i64 %b, i64 %bh)
  ret i32 0
}
"""
    kernel = Loaded(optimise_and_object([text + wrapper], HOST), "kernel")
    rng = np.random.default_rng(1)
    ends = [0, 1, 2**64 - 1, 2**127, 2**128 - 1, 2**32, 2**64]
    others = [int.from_bytes(rng.bytes(16), "little") for _ in range(40)]
    made = np.zeros(2, np.uint64)
    for a in ends + others:
        for b in ends + others[:5]:
            words = [ctypes.c_int64(v >> s).value for v in (a, b) for s in (0, 64)]
            kernel([made], 0, 1, words)
            assert int(made[0]) | int(made[1]) << 64 == a * b % 2**128
