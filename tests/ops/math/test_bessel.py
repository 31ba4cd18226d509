"""Modified Bessel functions beside sums in many digits, and their gradients beside one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import graphc as gc
from graphc.ops.math import bessel

X = np.concatenate([np.linspace(-40, 40, 161), [1e-300, 1e-9, 8.0, np.nextafter(8, 9), -300.0]])
CASES = [(bessel.i0, 0, False), (bessel.i0e, 0, True), (bessel.i1, 1, False), (bessel.i1e, 1, True)]


@pytest.mark.parametrize(("function", "order", "scaled"), CASES)
def test_values(function: Callable[[Any], Any], order: int, scaled: bool) -> None:
    want = [
        mpmath.besseli(order, x) * (mpmath.exp(-abs(x)) if scaled else 1) for x in map(float, X)
    ]
    for kind, bound in ((np.float64, 2e-15), (np.float32, 1e-6)):
        x = X if kind is np.float64 else np.clip(X, -40, 40).astype(np.float32)
        made = gc.compile(function)(x)
        assert made.dtype == kind
        if kind is np.float64:
            np.testing.assert_allclose(made, np.array(want, np.float64), rtol=bound)
        else:
            np.testing.assert_allclose(made, function(x.astype(np.float64)), rtol=bound, atol=1e-37)


def test_ends() -> None:
    ends = np.array([np.nan, np.inf, -np.inf, 0.0])
    np.testing.assert_array_equal(bessel.i1e(ends), [np.nan, 0, 0, 0])
    np.testing.assert_allclose(bessel.i0e(ends), [np.nan, 0, 0, 1], rtol=1e-15)


def test_slopes() -> None:
    """Of I0 it is I1, of I1 it is I0 - I1 / x."""
    x = np.array([-20.0, -7.0, -0.5, 0.25, 3.0, 9.0, 30.0])
    slope0, slope1 = (gc.grad(lambda x, f=f: f(x).sum())(x) for f in (bessel.i0, bessel.i1))
    np.testing.assert_allclose(slope0, bessel.i1(x), rtol=1e-11)
    np.testing.assert_allclose(slope1, bessel.i0(x) - bessel.i1(x) / x, rtol=1e-11)
