"""NumPy functions made of others: eager and traced results against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from expand import expanded, traced

import graphc as gc
from graphc.ops.record.value import NUMPY
from graphc.ops.reference.interpreter import interpret

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6))
HOLES = np.where(RNG.random((4, 6)) < 0.3, np.nan, X)
INTS = RNG.integers(-30, 30, (4, 6))
COMPLEX = X + 1j * RNG.integers(0, 2, (4, 6))
CASES = [
    (np.gcd, (INTS, INTS[::-1]), {}),
    (np.gcd, (INTS.astype(np.uint8), np.uint8(12)), {}),
    (np.lcm, (INTS, INTS[0]), {}),
    (np.modf, (X * 10,), {}),
    (np.modf, (np.array([np.inf, -np.inf, np.nan, -0.0]),), {}),
    (np.ldexp, (X, INTS), {}),
    (np.isreal, (COMPLEX,), {}),
    (np.iscomplex, (COMPLEX,), {}),
    (np.diff, (X,), {}),
    (np.diff, (INTS,), {"n": 2, "axis": 0}),
    (np.diff, (X > 0,), {"axis": 0}),
    (np.diff, (X,), {"prepend": 0.0, "append": X[:, :2]}),
    (np.ediff1d, (X,), {}),
    (np.trapezoid, (X,), {"dx": 0.5}),
    (np.trapezoid, (X, np.arange(6.0) ** 2), {}),
    (np.trapezoid, (X, np.arange(4.0) ** 2), {"axis": 0}),
    (np.cov, (X,), {}),
    (np.cov, (X, X[::-1]), {"rowvar": False, "bias": True}),
    (np.cov, (X[0],), {"ddof": 0}),
    (np.cov, (COMPLEX,), {}),
    (np.corrcoef, (X,), {}),
    (np.corrcoef, (X[0],), {}),
    (np.nancumsum, (HOLES,), {"axis": 1}),
    (np.nancumprod, (HOLES,), {}),
    (np.nanargmax, (HOLES,), {"axis": 0}),
    (np.nanargmin, (HOLES,), {}),
    (np.median, (X,), {"axis": 1}),
    (np.median, (HOLES,), {"axis": 0}),
    (np.median, (INTS,), {}),
    (np.median, (X[:3],), {"axis": 0, "keepdims": True}),
    (np.isclose, (X, X + 1e-9), {}),
    (np.isclose, (HOLES, HOLES), {"equal_nan": True}),
    (np.allclose, (X, X + 1), {}),
    (np.array_equal, (INTS, INTS), {}),
    (np.array_equal, (INTS, INTS[0]), {}),
    (np.nan_to_num, (np.array([np.nan, np.inf, -np.inf, 1.0]),), {"nan": 2.0, "posinf": 3.0}),
    (np.nan_to_num, (HOLES + 1j * HOLES[::-1],), {}),
    (np.clip, (INTS, None, 5), {}),
    (np.clip, (X, -0.5, X[0]), {}),
    (np.round, (X * 100, -1), {}),
    (np.round, (INTS, -1), {}),
    (np.around, (X, 2), {}),
    (np.fix, (X,), {}),
    (np.angle, (COMPLEX,), {"deg": True}),
    (np.divmod, (INTS, 7), {}),
    (np.divmod, (X, -0.3), {}),
    (np.float_power, (INTS, 2), {}),
    (np.power, (X, 3), {}),
    (np.power, (INTS, 0), {}),
    (np.power, (X, 0.5), {}),
    (np.ptp, (X,), {"axis": 0}),
    (np.isposinf, (HOLES,), {}),
]


def tidy(made):
    return [np.asarray(m) for m in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_equals_numpy(number):
    function, operands, options = CASES[number]
    with np.errstate(all="ignore"):
        want = tidy(function(*operands, **options))
    eager = tidy(NUMPY[function](*operands, **options))
    arrays = [o for o in operands if isinstance(o, np.ndarray)]

    def rebuilt(*values):
        left = iter(values)
        given = [next(left) if isinstance(o, np.ndarray) else o for o in operands]
        return NUMPY[function](*given, **options)

    lazy = interpret(expanded(traced(rebuilt, arrays)), arrays)
    for got in (eager, lazy):
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=1e-13, atol=1e-13)


def test_kind_of_object_is_known_while_tracing():
    kinds = []

    def look(x):
        kinds.append((NUMPY[np.iscomplexobj](x), NUMPY[np.isrealobj](x)))
        return x

    traced(look, [COMPLEX])
    assert kinds == [(True, False)]


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u8"])
def test_lcm_wraps_as_numpy_s(kind: str) -> None:
    info = np.iinfo(kind)
    ends = {info.min, info.min + 1, max(info.min, -6), 0, 1, 4, 6, info.max - 1, info.max}
    row = np.array(sorted(ends), kind)
    for function in (np.lcm, np.gcd):
        made = gc.compile(lambda x, y, f=function: f(x, y))(row[:, None], row)
        np.testing.assert_array_equal(made, function(row[:, None], row))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_the_sign_of_zero_is_zero(kind: str) -> None:
    x = np.array([0.0, -0.0, 2, -3, np.nan], kind)
    made = gc.compile(lambda x: np.sign(x))(x)
    np.testing.assert_array_equal(made, np.sign(x))
    np.testing.assert_array_equal(np.signbit(made), np.signbit(np.sign(x)))


def test_the_fraction_has_slope_one() -> None:
    for x in (2.0, 2.5, -2.5, -3.0, 0.0, -0.0):
        assert gc.grad(lambda x: np.modf(x)[0])(x) == 1
        assert gc.grad(lambda x: np.modf(x)[1])(x) == 0
        assert gc.grad(lambda x: np.copysign(x, -1.0))(x) == (-1 if x > 0 else 1)


@pytest.mark.parametrize("kind", ["u1", "i1", "u8", "i8"])
def test_bounds_beyond_all_integers_of_a_type_are_none(kind: str) -> None:
    info = np.iinfo(kind)
    x = np.array([info.min, 0, 1, info.max - 1, info.max], kind)
    for low, high in ((-(2**70), 5), (0, 2**70), (info.min, info.max), (1, info.max - 1)):
        made = gc.compile(lambda x, low=low, high=high: np.clip(x, low, high))(x)
        np.testing.assert_array_equal(made, np.clip(x, low, high))


def test_large_unsigned_indices_are_out_of_range() -> None:
    x, far = np.arange(5.0), np.array([2**63, 2**64 - 1], np.uint64)
    assert gc.compile(lambda x, i: gc.take(x, i, mode="clip"))(x, far).tolist() == [4, 4]
    assert gc.compile(lambda x, i: gc.take(x, i, mode="wrap"))(x, far).tolist() == [3, 0]
    for function in (lambda x, i: x[i], lambda x, i: gc.index_update(x, i, 7.0)):
        with pytest.raises(gc.GraphError, match="out of range"):
            gc.compile(function)(x, far)
