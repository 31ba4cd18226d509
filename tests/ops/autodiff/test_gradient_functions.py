"""Gradients of public functions that are programs over ops, against differences in f64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gradient_functions import FUNCTIONS, RNG
from gradient_harness import check_region, noise

import graphc as gc


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_public_functions(name: str) -> None:
    function, x = FUNCTIONS[name]
    region = gc.compile(function).graph(x)
    made = check_region(region, [x], RNG)
    assert made is not None
    kind = region.results[0].type
    check_region(made, [x, noise(RNG, np.empty(kind.dims))], RNG, 3e-6)  # type: ignore[union-attr]


LEFT_ALONE = {
    "flag": (True, lambda x, n: x if n else 2 * x),
    "size": (3, lambda x, n: x * np.ones(n)),
    "exponent": (2, lambda x, n: [1, x, x * x][n]),
    "number for math": (2.0, lambda x, n: x * math.sqrt(n)),
    "string": ("twice", lambda x, n: {"twice": 2}[n] * x),
    "none": (None, lambda x, n: x if n is None else 2 * x),
    "in a dict": ({"size": 3, "of": [True]}, lambda x, n: x * np.ones(n["size"] * n["of"][0])),
}
WAYS = {
    "grad": lambda f, x, n: gc.grad(f)(x, n),
    "by name": lambda f, x, n: gc.grad(f, wrt="x")(x, n=n),
    "value_and_grad": lambda f, x, n: gc.value_and_grad(f)(x, n)[1],
    "traced": lambda f, x, n: gc.compile(lambda x: gc.grad(f)(x, n))(x),
    "checkpoint": lambda f, x, n: gc.grad(lambda x: gc.checkpoint(f)(x, n))(x),
    "checkpoint by name": lambda f, x, n: gc.grad(lambda x: gc.checkpoint(f)(x, n=n))(x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_other_arguments_are_python_values(kind: str, way: str) -> None:
    value, function = LEFT_ALONE[kind]

    def total(x, n):
        return (function(x, n) * 1.0).sum()

    x = np.float64(1.5)
    slope = (total(x + 1e-6, value) - total(x - 1e-6, value)) / 2e-6
    np.testing.assert_allclose(WAYS[way](total, x, value), slope, rtol=1e-6)


@pytest.mark.parametrize("n", [2, 3, True])
def test_integers_are_python_values_in_products(n: int) -> None:
    f = lambda x, n: x * np.ones(n if n is not True else 4)
    size = 4 if n is True else n
    made, pullback = gc.vjp(f, 2.0, n)
    assert made.shape == (size,)
    assert pullback(np.ones(size)) == (size, None)
    assert gc.jvp(f, (2.0, n), (1.0, n))[1].tolist() == [1] * size


def test_numbers_that_keep_changing_become_arrays_unless_their_values_are_needed() -> None:
    needed = gc.grad(lambda x, n: x * math.sqrt(n))
    assert [float(needed(1.0, float(n))) for n in range(8)] == [math.sqrt(n) for n in range(8)]
    counted = []
    changing = gc.grad(lambda x, n: (counted.append(None), x * n)[1])
    assert [float(changing(1.0, float(n))) for n in range(20)] == list(range(20))
    assert len(counted) == 4


ALONE = np.float32(3)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (gc.grad(lambda x: x), 1),
        (gc.value_and_grad(lambda x: x), (3, 1)),
        (lambda x: gc.grad(lambda x, y: x, wrt=1)(x, x * 2), 0),
        (lambda x: gc.vjp(lambda x: x, x)[1](x * 2), 6),
        (lambda x: gc.jvp(lambda x: x, [x], [x * 2]), (3, 6)),
        (lambda x: gc.vmap(gc.grad(lambda x: x))(np.stack([x, x])), (1, 1)),
        (gc.grad(gc.grad(lambda x: x)), 0),
        (gc.hessian(lambda x: x), 0),
    ],
    ids=["grad", "value", "other", "vjp", "jvp", "vmap", "twice", "hessian"],
)
def test_functions_that_give_what_they_got(function: Any, wanted: Any) -> None:
    """Their regions have no nodes, and were taken for none: VerifyError, as of a pyramid of pools
    of which one pools nothing."""
    np.testing.assert_array_equal(gc.compile(function)(ALONE), wanted)
