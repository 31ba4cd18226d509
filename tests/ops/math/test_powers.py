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
