"""reduce and accumulate of ufuncs that fold in any grouping, and np.ndenumerate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError

rng = np.random.default_rng(4)
UFUNCS = {
    "bitwise_or": "ib",
    "bitwise_and": "ib",
    "bitwise_xor": "ib",
    "logical_or": "ibf",
    "logical_and": "ibf",
    "logical_xor": "ibf",
    "gcd": "i",
    "lcm": "i",
    "fmax": "ibf",
    "fmin": "ibf",
}


def operand(kind: str, *shape: int) -> Any:
    numbers = rng.integers(0, 4, size=shape)
    if kind == "f":
        return np.where(numbers == 3, np.nan, numbers - 1.0)
    return numbers.astype({"i": "i2", "b": "?"}[kind])


@pytest.mark.parametrize("kind", "ibf")
@pytest.mark.parametrize("name", UFUNCS)
def test_folds_are_those_of_numpy(name: str, kind: str) -> None:
    ufunc = getattr(np, name)
    x = operand(kind, 5, 3)
    calls = [
        lambda x: ufunc.reduce(x),
        lambda x: ufunc.reduce(x, axis=-1, keepdims=True),
        lambda x: ufunc.reduce(x[:, 1], None),
        lambda x: ufunc.reduce([x[0], x[1]], 0),
        lambda x: ufunc.accumulate(x),
        lambda x: ufunc.accumulate(x, axis=1),
    ]
    if kind not in UFUNCS[name]:
        with pytest.raises(GraphError):
            gc.compile(calls[0])(x)
        return
    for call in calls:
        want, made = call(x), gc.compile(call)(x)
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(made, want)


def test_a_fold_of_nothing_is_the_identity_or_an_error() -> None:
    empty = np.zeros((0, 2), int)
    made = gc.compile(lambda x: np.bitwise_and.reduce(x))(empty)
    np.testing.assert_array_equal(made, np.bitwise_and.reduce(empty))
    assert gc.compile(lambda x: np.bitwise_or.accumulate(x))(empty).shape == (0, 2)
    with pytest.raises(ValueError, match="no identity"):
        gc.compile(lambda x: np.fmax.reduce(x))(empty)
    with pytest.raises(GraphError, match="one axis"):
        gc.compile(lambda x: np.bitwise_or.reduce(x, axis=(0, 1)))(empty)


def test_ndenumerate_walks_over_traced_values() -> None:
    def weighed(x: Any) -> Any:
        return sum(v * (i + 1) * (j - 1) for (i, j), v in np.ndenumerate(x))

    x = operand("i", 3, 4).astype(float)
    np.testing.assert_allclose(gc.compile(weighed)(x), weighed(x))
