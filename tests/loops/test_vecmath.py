"""Vector math: accuracy of every function in both float types, special values, vectorisation."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from cases import case
from ulp_table import BELOW_ZERO, LEFT_OF_ZERO, measure, measure_left
from vecmath_reference import NUMPY, arity, optimised, points, run, run_by_numba, special_points

from graphc.ir.types import F32, F64
from graphc.loops.nest import Scalars, postorder
from graphc.loops.vecmath import FUNCTIONS

TIGHT = {"exp", "exp2", "log", "log2", "log1p", "expm1", "tanh", "sigmoid", "erf", "sin", "cos"}
TIGHT |= {
    "exp_below_zero",
    "pow",
    "rsqrt",
    "atan",
    "atan2",
    "acos",
    "asinh",
    "cbrt",
    "cosh",
    "sinh",
    "log10",
}
KINDS = [np.float32, np.float64]
ODD = ["asin", "asinh", "atan", "atanh", "cbrt", "erf", "erfinv", "expm1", "log1p", "sin", "sinh"]
ODD += ["tan", "tanh"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_error_is_within_two_or_four_ulp(name: str, kind: type) -> None:
    error, where = measure(name, kind, 150_000 if kind is np.float32 else 1000)
    assert error <= (2 if name in TIGHT else 4), where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(LEFT_OF_ZERO))
def test_gamma_functions_left_of_zero(name: str, kind: type) -> None:
    assert measure_left(name, kind, 100_000 if kind is np.float32 else 500, -100.0) < 16


def test_special_values_are_those_of_numpy() -> None:
    """Infinities, NaN and zeros' signs must be alike, other values to 1e-6 (f32) or 1e-14 (f64)."""
    for kind, name in itertools.product(KINDS, sorted(NUMPY)):
        with case(kind, name):
            edge = special_points(kind)
            arrays = [-np.abs(edge) if name in BELOW_ZERO else edge]
            if arity(name) == 2:
                left, right = np.meshgrid(edge, edge)
                arrays = [left.ravel().copy(), right.ravel().copy()]
            got = run(name, *arrays)
            with np.errstate(all="ignore"):
                wide = arrays if kind is np.float64 else [a.astype(np.float64) for a in arrays]
                expected = NUMPY[name](*wide).astype(kind)
            relative, absolute = (
                1e-6 if kind is np.float32 else 1e-14,
                1.5 * np.finfo(kind).smallest_subnormal,
            )
            np.testing.assert_allclose(got, expected, rtol=relative, atol=absolute)
            zero = (expected == 0) & (got == 0)
            assert (np.signbit(got) == np.signbit(expected))[zero].all()


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_numpy_has_no_function_for(kind: type) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan], kind)
    inf, nan = math.inf, math.nan
    rows = {
        "erf": [0, 0, None, None, None, 1, -1, nan],
        "erfc": [1, 1, None, None, None, 0, 2, nan],
        "erfinv": [0, 0, inf, -inf, nan, nan, nan, nan],
        "lgamma": [inf, inf, 0, inf, 0, inf, inf, nan],
        "digamma": [-inf, inf, None, nan, None, inf, nan, nan],
        "sinc": [1, 1, 0, 0, 0, 0, 0, nan],
    }
    for name, expected in rows.items():
        for value, wanted in zip(run(name, x).tolist(), expected, strict=True):
            same = wanted is None or value == wanted or (math.isnan(value) and math.isnan(wanted))
            assert same, (name, value, wanted)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_nan_of_any_bits_stays_nan(kind: type) -> None:
    """Also where powers of two are added to exponents, which lie above the bits of a NaN."""
    word = np.dtype(f"u{np.dtype(kind).itemsize}")
    low = np.array([*range(64), 511, 513, 2**20 + 3], word)
    quiet = np.asarray(np.nan, kind).view(word) | low
    arguments = np.concatenate([quiet.view(kind), -quiet.view(kind)])
    for name in ("exp", "exp2", "expm1", "sigmoid", "tanh", "sinh", "erf", "erfc", "softplus"):
        assert np.isnan(run(name, arguments)).all(), name
    assert np.isnan(run("pow", arguments, np.full_like(arguments, 1.5))).all()


def test_odd_functions_are_odd_down_to_denormals() -> None:
    for kind, name in itertools.product(KINDS, ODD):
        with case(kind, name):
            tiny = np.finfo(kind).smallest_subnormal
            x = np.array([0.0, tiny, 5 * tiny, np.finfo(kind).tiny, 0.125, 0.75], kind)
            if name in ("expm1", "log1p"):
                x = x[:4]
            got, mirrored = run(name, x), run(name, -x)
            assert (got == -mirrored).all() and np.signbit(mirrored).all()
            if name not in ("erf", "erfinv", "cbrt"):
                assert (got[:4] == x[:4]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_exp_below_zero_is_exp(kind: type) -> None:
    x = -np.abs(
        np.concatenate(
            [
                points(kind, 200_000, 3),
                np.linspace(85, 110, 100_000, dtype=kind),
                np.linspace(700, 750, 100_000, dtype=kind),
            ]
        )
    )
    np.testing.assert_array_equal(run("exp_below_zero", x), run("exp", x))
    assert np.isnan(run("exp_below_zero", np.array([math.nan, -math.nan], kind))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_power_of_integers_is_exact(kind: type) -> None:
    pairs = [(b, e) for b, e in itertools.product(range(-12, 13), range(7)) if abs(b) ** e < 2**23]
    x, y = (np.array(column, kind) for column in zip(*pairs, strict=True))
    assert run("pow", x, y).tolist() == [float(b**e) for b, e in pairs]


def test_every_function_is_vectorised() -> None:
    """The loop over blocks stores vectors and calls nothing but vector intrinsics."""
    for name in sorted(FUNCTIONS):
        with case(name):
            for kind in (F32, F64):
                body = optimised().get_function(f"each_{name}_{kind}").__str__()
                assert re.search(r"store <\d+ x ", body)
                calls = [line for line in body.splitlines() if " call " in line]
                assert all(re.search(r"@llvm\.\w+|asm \"\"", call) for call in calls)


def test_expressions_hold_primitive_ops_of_one_float_type() -> None:
    for name in sorted(FUNCTIONS):
        with case(name):
            for dtype in (F32, F64):
                scalars = Scalars()
                inputs = [scalars.make("reg", dtype, (), (k, 0, 0)) for k in range(arity(name))]
                made = FUNCTIONS[name](*inputs)
                assert made.dtype is dtype
                assert not {e.op for e in postorder([made])} & {"call", "load", "var", "param"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("exp", np.float32), ("pow", np.float32), ("sin", np.float64)]
)
def test_numba_computes_the_same_bits(name: str, kind: type) -> None:
    arrays = [points(kind, 20_000, seed) for seed in range(arity(name))]
    words = np.uint32 if kind is np.float32 else np.uint64
    native, portable = run(name, *arrays), run_by_numba(name, *arrays)
    assert np.array_equal(np.isnan(native), np.isnan(portable))
    numbers = ~np.isnan(native)
    assert np.array_equal(native.view(words)[numbers], portable.view(words)[numbers])
