"""Powers with known exponents: products of few factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc


def ops_after(function: Any, x: Any, stage: str = "simplify") -> list[str]:
    compiled = gc.compile(function)
    graph = next(g for name, g, *_ in reversed(compiled.stages(x)) if name == stage)
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-4, -3, -2, 4, 5, 6.0, 7, 8])
def test_short_powers_are_products(dtype: Any, exponent: float) -> None:
    """Each product rounds once: seven at most, and a quotient."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=200) * 3, [0, -0.0, np.inf, -np.inf, np.nan, 1e30]])
    x = x.astype(dtype)
    assert "pow" not in ops_after(lambda x: x**exponent, x)
    with np.errstate(all="ignore"):
        made = gc.compile(lambda x: x**exponent)(x)
        want = (x.astype(np.longdouble) ** exponent).astype(dtype)
    np.testing.assert_allclose(made, want, rtol=8 * np.finfo(dtype).eps)
    assert (np.signbit(made) == np.signbit(want))[~np.isnan(want)].all()


def all_sizes(dtype: Any) -> Any:
    """All numbers of 16 bits; of longer ones 200,000 bit patterns, and numbers around each power
    of two: those whose powers are denormal, overflow or vanish are among them.
    """
    bits = np.dtype(dtype).itemsize * 8
    whole = np.dtype(f"u{bits // 8}")
    if bits == 16:
        return np.arange(1 << 16).astype(whole).view(dtype)
    some = np.random.default_rng(5).integers(0, 1 << bits, 200_000, whole, endpoint=False)
    info = np.finfo(dtype)
    scales = np.arange(info.minexp - info.nmant, info.maxexp)
    near = np.ldexp(np.random.default_rng(6).uniform(1, 2, (20, len(scales))), scales).ravel()
    return np.concatenate([some.view(dtype), near.astype(dtype), -near.astype(dtype)])


# Of each type: bits of a fraction, the exponents of its least and greatest normal numbers.
FORMATS = {
    "float16": (10, -14, 15),
    "bfloat16": (7, -126, 127),
    "float32": (23, -126, 127),
    "float64": (52, -1022, 1023),
}


def ulps(made: Any, want: Any, dtype: str) -> Any:
    """How far numbers are from true ones, in last places of these; inf is the number after all
    finite ones."""
    bits, least, most = FORMATS[dtype]
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(want)[1] - 1, least, most)
        end = np.ldexp(np.longdouble(1), most + 1)
        made, want = (np.clip(v.astype(np.longdouble), -end, end) for v in (made, want))
        return np.abs(made - want) / np.ldexp(np.longdouble(1), exponent - bits)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [-4, -3, -2, -1, 2, 3, 4, 5, 6, 7, 8])
def test_errors_of_powers_over_the_whole_range(dtype: str, exponent: int) -> None:
    """Numbers of 16 bits round once, as NumPy's; others as often as they are multiplied."""
    x = all_sizes(np.dtype(dtype))
    x = x[~np.isnan(x.astype(np.float64))]
    made = gc.compile(lambda x: x**exponent)(x)
    with np.errstate(all="ignore"):
        error = ulps(made, x.astype(np.longdouble) ** exponent, dtype)
    roundings = abs(exponent) - 1 if exponent > 0 else 2 * abs(exponent) - 1
    once = dtype in ("float16", "bfloat16") and exponent != 3  # which is traced as two products
    worst = 0.5 + roundings * 2.0 ** (FORMATS[dtype][0] - 23) if once else roundings
    assert error.max() <= worst, (x[error.argmax()], made[error.argmax()], error.max())
    assert (np.signbit(made) == (np.signbit(x) & (exponent % 2 == 1))).all()


@pytest.mark.parametrize("options", [{"fast_math": False}, {"parity": True}])
@pytest.mark.parametrize("exponent", [-4, -2, 5, 8])
def test_powers_stay_powers_in_strict_order(exponent: int, options: Any) -> None:
    x = np.array([0.3, 7.7, 4e19, 1e-12], np.float32)
    compiled = gc.compile(lambda x: x**exponent, **options)
    graph = next(g for name, g, *_ in reversed(compiled.stages(x)) if name == "simplify")
    assert "pow" in [node.op.name for node in graph.nodes]
    with np.errstate(over="ignore"):
        want = (x.astype(np.float64) ** exponent).astype(np.float32)
    np.testing.assert_array_max_ulp(compiled(x), want, 1)


@pytest.mark.parametrize("exponent", [9, -5, 0.5, 4.5, 0, np.inf])
def test_other_powers_are_left(exponent: float) -> None:
    x = np.random.default_rng(3).uniform(0.5, 2, 50)
    made = gc.compile(lambda x: np.power(x, np.float64(exponent)))(x)
    np.testing.assert_allclose(made, x**exponent, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
def test_whole_numbers_have_all_powers(dtype: Any) -> None:
    x = np.arange(-60, 60).astype(dtype)
    for exponent in (1, 5, 12, 31):
        assert "pow" not in ops_after(lambda x, e=exponent: x**e, x)
        np.testing.assert_array_equal(gc.compile(lambda x, e=exponent: x**e)(x), x**exponent)


def test_gradients_of_short_powers() -> None:
    x = np.array([-1.5, 0.0, 2.0])
    made = gc.compile(gc.grad(lambda x: (x**5 + 1 / (1 + x**4)).sum()))(x)
    np.testing.assert_allclose(made, 5 * x**4 - 4 * x**3 / (1 + x**4) ** 2, rtol=1e-13)
