"""Products by matrices of few bits in digits: as near as sums of f32, whatever the rows hold."""

from __future__ import annotations

from typing import Any

import emitted_kernels
import numpy as np
import pytest
from effort import crossed, rounds, slow

import graphc as gc
from graphc.codegen import gemm
from graphc.ir.types import I32
from graphc.loops.nest import Buffer, Kernel, Scalars
from graphc.loops.scalars import quads
from graphc.ops.linalg.digits import LONGEST
from graphc.ops.linalg.few_bits import LANES, packed
from graphc.ops.record.value import emit

HAS_QUADS = gemm.host_target().quads
needs_quads = pytest.mark.skipif(not HAS_QUADS, reason="this CPU does not multiply bytes by fours")
F4 = np.float32


def matrix(rng: Any, depth: int, columns: int, bits: int, groups: int) -> tuple[Any, Any, Any]:
    """Words, scales, and the matrix that they are."""
    most = 2 ** (bits - 1)
    integers = rng.integers(-most, most, (columns, depth))
    words = packed(integers, bits)
    scales = rng.uniform(0.1, 2, (len(words), groups, LANES)).astype(F4)
    each = scales.swapaxes(1, 2).reshape(-1, groups)[:columns]
    return words, scales, (integers * np.repeat(each, depth // groups, axis=1).astype(float)).T


def product(bits: int, columns: int, marked: bool = False, **options: Any) -> Any:
    def run(x: Any, words: Any, scales: Any) -> Any:
        x = gc.exact(x) if marked else x
        return emit("packed_matmul", x, words, scales, bits=bits, columns=columns)

    return gc.compile(run, **options)


def made_by(compiled: Any, *args: Any) -> int:
    note = next(r for r in compiled.stages(*args) if r[0] == "choose_digits")[3]
    return sum("digits" in text for _, text in note.reasons)


@needs_quads
@pytest.mark.parametrize("seed", [0, 1, *map(slow, range(2, rounds(6)))])
def test_random_products_are_as_near_as_those_of_f32(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, groups = int(rng.choice([2, 4, 8])), int(rng.integers(1, 4))
    depth = groups * 32 // bits * int(rng.integers(1, 30))
    rows, columns = int(rng.integers(1, 20)), int(rng.integers(1, 70))
    words, scales, whole = matrix(rng, depth, columns, bits, groups)
    x = (rng.standard_normal((rows, depth)) * 10.0 ** rng.integers(-20, 20, (rows, 1))).astype(F4)
    for precision, digits in (("f32", 3), ("bf16", 2)):
        compiled = product(bits, columns, precision=precision)
        made = compiled(x, words, scales)
        assert made_by(compiled, x, words, scales) == 1
        most = np.abs(x).max(axis=1, keepdims=True).astype(float)
        bound = most * 2.0 ** (1 - 8 * digits) * np.abs(whole).sum(axis=0)
        bound += 2.0**-22 * (np.abs(x).astype(float) @ np.abs(whole))
        assert (np.abs(made - x.astype(float) @ whole) <= bound).all()


@needs_quads
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_what_is_not_finite_tiny_or_zero(bits: int) -> None:
    words, scales, whole = matrix(np.random.default_rng(1), 64, 20, bits, 2)
    x = np.random.default_rng(2).standard_normal((7, 64)).astype(F4)
    x[0], x[1, 3], x[2, 5], x[3] = 0, np.nan, np.inf, x[3] * F4(1e-30)
    x[4], x[5, 9] = x[4] * F4(1e36), F4(3e38)
    x[6] = np.where(np.arange(64) == 7, F4(1), F4(1e-4))
    made = product(bits, 20)(x, words, scales)
    assert (made[0] == 0).all() and np.isnan(made[1]).all()
    with np.errstate(invalid="ignore"):
        wanted = whole[5] * np.inf
    np.testing.assert_array_equal(made[2], wanted)
    finite = np.array([3, 4, 5, 6])
    near = np.abs(x[finite]).max(axis=1, keepdims=True) * 1e-6 * np.abs(whole).sum(axis=0)
    with np.errstate(over="ignore"):
        exact = x[finite].astype(float) @ whole
        inside = np.abs(exact) < np.finfo(F4).max
        assert (np.abs(made[finite] - exact) <= near)[inside].all()
        assert (np.sign(made[finite]) == np.sign(exact))[~inside].all()


@needs_quads
@pytest.mark.parametrize(("bits", "depth"), [(8, LONGEST), (4, 32), (4, 40), (2, 112), (2, 144)])
def test_the_largest_sums_have_room(bits: int, depth: int) -> None:
    integers = np.full((16, depth), -(2 ** (bits - 1)))
    integers[1::2] = 2 ** (bits - 1) - 1
    words, scales = packed(integers, bits), np.ones((1, 1, LANES), F4)
    x = np.ones((2, depth), F4)
    x[1] = -1
    made = product(bits, 16)(x, words, scales)
    np.testing.assert_allclose(made, x.astype(float) @ integers.T, rtol=1e-6)


@needs_quads
def test_longer_groups_strict_products_and_what_is_read_exactly() -> None:
    rng = np.random.default_rng(3)
    words, scales, _ = matrix(rng, LONGEST + 64, 16, 8, 1)
    x = rng.standard_normal((1, LONGEST + 64)).astype(F4)
    assert made_by(product(8, 16), x, words, scales) == 0
    words, scales, whole = matrix(rng, 64, 16, 8, 1)
    x = rng.standard_normal((2, 64)).astype(F4)
    assert made_by(product(8, 16, fast_math=False), x, words, scales) == 0
    errors = [
        np.abs(product(8, 16, marked, precision="bf16")(x, words, scales) - x @ whole).max()
        for marked in (False, True)
    ]
    assert errors[1] * 20 < errors[0]


@needs_quads
def test_rows_of_open_numbers() -> None:
    rng = np.random.default_rng(4)
    words, scales, whole = matrix(rng, 96, 33, 4, 3)
    compiled = product(4, 33, sizes={"x": ("n", 96)})
    for rows in (1, 2, 7, 8, 9, 19):
        x = rng.standard_normal((rows, 96)).astype(F4)
        made = compiled(x, words, scales)
        np.testing.assert_allclose(made, x.astype(float) @ whole, rtol=1e-4, atol=1e-3)
    assert len(compiled.compiles) == 1


@pytest.mark.parametrize(("count", "places"), crossed([3, 16, 37], ["along", "for all"]))
def test_quads_of_any_count_are_those_of_the_evaluator(count: int, places: str) -> None:
    b = Scalars()
    x, y, z, out = (Buffer(k, I32, count, "out" if k == 3 else "in") for k in range(4))
    with b.loop(count, "vector") as i:
        right = b.load(y, i if places == "along" else 0)
        b.store(out, i, quads(b.load(x, i), right, b.load(z, i)))
    kernel = Kernel("k0", (x, y, z, out), 0, b.body)
    rng = np.random.default_rng(count)
    drawn = [rng.integers(-(2**31), 2**31, count).astype(np.int32) for _ in range(3)]
    emitted_kernels.check(kernel, [*drawn, np.zeros(count, np.int32)])
