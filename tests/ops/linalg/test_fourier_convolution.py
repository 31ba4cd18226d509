"""Convolutions by Fourier transforms beside sums written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import slow

import graphc as gc
from graphc.errors import GraphError
from graphc.ops.linalg.fourier_convolution import fast_length

RNG = np.random.default_rng(5)
CASES: list[tuple[tuple[int, ...], tuple[int, ...], Any]] = [
    ((7,), (3,), None),
    ((3,), (7,), 0),
    ((1,), (1,), None),
    ((5, 6), (2, 3), None),
    ((5, 6), (5, 3), 1),
    ((5, 6), (1, 3), -1),
    ((4, 5, 6), (2, 5, 3), (0, 2)),
]
TOLERANCE = {"f2": 5e-3, "f4": 1e-5, "f8": 1e-12, "c8": 1e-5, "c16": 1e-12, "i4": 1e-9, "?": 1e-9}


def whole(x: Any, y: Any, axes: list[int]) -> Any:
    """Every element of y times a shifted x."""
    others = ([1 if k in axes else n for k, n in enumerate(v.shape)] for v in (x, y))
    shape = list(np.broadcast_shapes(*map(tuple, others)))
    for axis in axes:
        shape[axis] = x.shape[axis] + y.shape[axis] - 1
    made = np.zeros(shape, np.result_type(x, y, "f8"))
    for place in np.ndindex(*(y.shape[axis] for axis in axes)):
        there: list[Any] = [slice(None)] * x.ndim
        one: list[Any] = [slice(None)] * x.ndim
        for axis, k in zip(axes, place, strict=True):
            there[axis], one[axis] = slice(k, k + x.shape[axis]), slice(k, k + 1)
        made[tuple(there)] += x.astype(made.dtype) * y[tuple(one)]
    return made


def middle(made: Any, axis: int, count: int) -> Any:
    first = (made.shape[axis] - count) // 2
    return np.take(made, range(first, first + count), axis)


@pytest.mark.parametrize("dtype", [d if d in ("f4", "c16", "i4") else slow(d) for d in TOLERANCE])
@pytest.mark.parametrize(("a", "b", "axes"), CASES)
def test_sums_are_those_of_shifted_arrays(
    a: tuple[int, ...], b: tuple[int, ...], axes: Any, dtype: str
) -> None:
    x, y = (RNG.standard_normal(shape) * 3 for shape in (a, b))
    if dtype[0] == "c":
        x, y = x + 1j * x[::-1], y - 1j
    x, y = x.astype(dtype), y.astype(dtype)
    along = [k % len(a) for k in np.atleast_1d(range(len(a)) if axes is None else axes)]
    full = whole(x, y, along)
    same, valid = full, full
    for axis in along:
        same = middle(same, axis, a[axis])
        valid = middle(valid, axis, abs(a[axis] - b[axis]) + 1)
    size = np.abs(full).max() * TOLERANCE[dtype]
    for mode, want in (("full", full), ("same", same), ("valid", valid)):
        call = lambda x, y, mode=mode: gc.fftconvolve(x, y, mode, axes)
        for made in (gc.compile(call)(x, y), call(x, y)):
            assert made.dtype == (x.dtype if x.dtype.kind in "fc" else np.float64)
            np.testing.assert_allclose(made, want, rtol=0, atol=size)


def test_gradients_and_slices() -> None:
    x, y = RNG.standard_normal(9), RNG.standard_normal(4)
    made = gc.grad(lambda x, y: (gc.fftconvolve(x, y) ** 2).sum(), wrt=(0, 1))(x, y)
    want = gc.grad(lambda x, y: (np.convolve(x, y) ** 2).sum(), wrt=(0, 1))(x, y)
    for one, other in zip(made, want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    rows = RNG.standard_normal((3, 9))
    lanes = gc.vmap(lambda x: gc.fftconvolve(x, y, "same"))(rows)
    np.testing.assert_allclose(lanes, [np.convolve(row, y)[1:10] for row in rows], atol=1e-12)


def test_what_does_not_meet_is_refused() -> None:
    ones = np.ones
    for x, y, mode, axes, match in (
        (ones(3), ones((3, 3)), "full", None, "of one rank"),
        (ones(()), ones(()), "full", None, "axes are None"),
        (ones(0), ones(3), "full", None, "known lengths, got 0"),
        (ones(2), ones(3), "all", None, "no mode 'all'"),
        (ones((2, 2)), ones((3, 3)), "full", 1, "broadcast"),
        (ones((2, 2)), ones((2, 2)), "full", (0, -2), "axes are"),
        (ones((2, 2)), ones((2, 2)), "full", 2, "out of range"),
        (ones((2, 5)), ones((5, 2)), "valid", None, "neither array"),
    ):
        with pytest.raises(GraphError, match=match):
            gc.fftconvolve(x, y, mode, axes)


def test_fast_lengths_are_the_least() -> None:
    known = sorted(2**a * 3**b * 5**c for a in range(1, 12) for b in range(7) for c in range(5))
    for n in range(1, 2049):
        assert fast_length(n) == next(k for k in known if k >= n)
