"""Bessel and Airy functions beside sums in many digits, and their gradients beside one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from effort import slow

import graphc as gc
from graphc.ops.math import bessel, bessel_waves

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


# ------------------------------------------------------------------------------ second kinds, waves

RANDOM = np.random.default_rng(0)
POSITIVE = np.concatenate(
    [RANDOM.uniform(0, 12, 40), 10 ** RANDOM.uniform(-12, 2.5, 20), [2, np.nextafter(2, 3), 8, 4]]
)
SECOND = {
    bessel.k0: lambda x: mpmath.besselk(0, x),
    bessel.k1: lambda x: mpmath.besselk(1, x),
    bessel.k0e: lambda x: mpmath.exp(x) * mpmath.besselk(0, x),
    bessel.k1e: lambda x: mpmath.exp(x) * mpmath.besselk(1, x),
}
WAVES = {
    bessel_waves.j0: lambda x: mpmath.besselj(0, x),
    bessel_waves.j1: lambda x: mpmath.besselj(1, x),
    bessel_waves.y0: lambda x: mpmath.bessely(0, x),
    bessel_waves.y1: lambda x: mpmath.bessely(1, x),
    bessel_waves.airy_ai: mpmath.airyai,
}


@pytest.mark.parametrize("function", SECOND)
def test_second_kinds(function: Callable[[Any], Any]) -> None:
    """K has no zeros: all its digits count."""
    want = np.array([SECOND[function](x) for x in map(float, POSITIVE)], np.float64)
    np.testing.assert_allclose(gc.compile(function)(POSITIVE), want, rtol=3e-15, atol=1e-300)
    in_32_bits = gc.compile(function)(POSITIVE.astype(np.float32))
    assert in_32_bits.dtype == np.float32
    exact = function(POSITIVE.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(in_32_bits, exact, rtol=1e-6, atol=1e-36)
    np.testing.assert_array_equal(
        function(np.array([0.0, -1, np.inf, np.nan])), [np.inf, np.nan, 0, np.nan]
    )


@pytest.mark.parametrize("function", WAVES)
def test_waves(function: Callable[[Any], Any]) -> None:
    """Errors beside the height of the waves: where they cross zero, digits are lost."""
    is_second = function in (bessel_waves.y0, bessel_waves.y1)
    x = POSITIVE if is_second else np.concatenate([POSITIVE, -POSITIVE])
    want = np.array([WAVES[function](v) for v in map(float, x)], np.float64)
    height = np.maximum(np.abs(want), 0.5 / np.sqrt(np.abs(x) + 1))
    height = np.where((x > 4) & (function is bessel_waves.airy_ai), np.abs(want) + 1e-300, height)
    assert np.max(np.abs(gc.compile(function)(x) - want) / height) < 1e-12
    in_32_bits = gc.compile(function)(x.astype(np.float32))
    assert in_32_bits.dtype == np.float32
    exact = function(x.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(in_32_bits, exact.astype(np.float32))
    ends = function(np.array([np.inf, np.nan, -np.inf]))
    np.testing.assert_array_equal(ends, [0, np.nan, np.nan if is_second else 0])


def test_slopes_of_waves() -> None:
    """Of J0 and Y0 they are -J1 and -Y1, and Ai'' = x Ai."""
    x = np.array([0.5, 3.0, 7.0, 9.0, 30.0])
    for function, other in ((bessel_waves.j0, bessel_waves.j1), (bessel_waves.y0, bessel_waves.y1)):
        slope = gc.grad(lambda x, f=function: f(x).sum())(x)
        np.testing.assert_allclose(slope, -other(x), atol=1e-13)
    x = np.array([-9.0, -3.0, 0.5, 3.0, 6.0])
    slope = gc.grad(lambda x: bessel_waves.airy_ai(x).sum())
    bend = gc.grad(lambda x: slope(x).sum())(x)
    np.testing.assert_allclose(bend, x * bessel_waves.airy_ai(x), rtol=1e-9, atol=1e-11)


KINDS = {
    **{f: lambda x, n=n: mpmath.besseli(n, x) for f, n in ((bessel.i0, 0), (bessel.i1, 1))},
    bessel.i0e: lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
    bessel.i1e: lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
    **SECOND,
    **WAVES,
}
EDGES = {
    value
    for module in (bessel, bessel_waves)
    for name, value in vars(module).items()
    if name.endswith("_EDGE")
}


@pytest.mark.parametrize("function", [f if f in SECOND else slow(f) for f in KINDS])
def test_slopes_at_edges(function: Callable[[Any], Any]) -> None:
    """One series meets another there, and either gives the whole slope."""
    assert {2, 4, 8} <= EDGES
    edges = sorted(float(v) for edge in EDGES for v in (edge, np.nextafter(edge, 0)))
    is_positive = function in SECOND or function in (bessel_waves.y0, bessel_waves.y1)
    x = np.array(edges if is_positive else [*edges, *(-v for v in edges)])
    want = np.array([mpmath.diff(KINDS[function], v) for v in map(float, x)], np.float64)
    slope = gc.grad(lambda x: function(x).sum())
    np.testing.assert_allclose(slope(x), want, rtol=1e-10, atol=1e-12)
    if not is_positive:
        middle = 0.0 if function is bessel.i0e else float(mpmath.diff(KINDS[function], 0.0))
        np.testing.assert_allclose(slope(np.zeros(2)), [middle] * 2, atol=1e-13)
