"""Lists that hold traced values, where NumPy takes an array, and np.r_ and np.c_."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import TraceError

X = np.array([1.0, 2, 3, 4, 5, 6])
K = np.array(2)


def row(x, k):
    made = np.zeros((3, 2))
    made[k] = [x[0], x[1]]
    made[0] = (x[3], 1)
    made[1, :] = [0, x[5]]
    return made


def everything(x, k):
    made = np.zeros((3, 2))
    made[:] = [[x[0], 1], [2, x[1]], [3, 4]]
    made += [x[0], x[1]]
    return made


def elements(x, k):
    made = x.copy()
    made[[4, k]] = [x[0], 7]
    made *= [1, 2, 3, 4, 5, x[1]]
    return made


def swapped(x, k):
    made = x.reshape(3, 2).copy()
    made[[0, k]] = made[[k, 0]]
    made[[0, k], 1] = made[[k, 0], 1]
    return made


PROGRAMS = {
    "row": row,
    "everything": everything,
    "elements": elements,
    "swapped": swapped,
    "operand": lambda x, k: x[:2] * [x[0], 1] - (2, x[1]),
    "reflected": lambda x, k: [x[0], 1] * x[:2] / [[x[0], 1], [2, x[1]]],
    "dtype": lambda x, k: x[:2].astype("f4") * [x[0].astype("f4"), 1],
    "whole numbers": lambda x, k: k - [k, 1],
    "index": lambda x, k: x[[k, 0, -1]],
    "two indices": lambda x, k: x.reshape(2, 3)[[0, k - 1], [k, 0]],
    "index of known": lambda x, k: np.arange(5.0)[[k, 1]],
    "nested index": lambda x, k: x[[[k, 0], [1, k]]],
    "mask": lambda x, k: x[:3][[x[0] > 0, False, x[1] > 5]],
    "columns": lambda x, k: np.c_[x, x[::-1], np.arange(6)],
    "column of a matrix": lambda x, k: np.c_[x.reshape(2, 3), np.ones(2)],
    "pieces": lambda x, k: np.r_[0, x, 1:4, [k, 1], 0:1:3j],
    "edges": lambda x, k: np.r_[True, x[1:] != x[:-1]],
    "number and f4": lambda x, k: np.r_[0, x.astype("f4"), 1.5],
    "rows": lambda x, k: np.r_["0,2", x, x],
    "last axis": lambda x, k: np.r_["-1", x.reshape(2, 3), x.reshape(2, 3)],
    "vectors upright": lambda x, k: np.r_["1,2,0", x, x],
    "vectors in the middle": lambda x, k: np.r_["0,3,1", x, x],
    "known pieces": lambda x, k: np.r_[1:4, 9] * x[:4],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_are_the_arrays_numpy_makes_of_them(name: str) -> None:
    function: Any = PROGRAMS[name]
    want = function(X.copy(), K)
    for opt in (0, 2):
        made = gc.compile(function, opt=opt)(X.copy(), K)
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(made, want)


def test_lists_of_other_lengths_are_refused() -> None:
    with pytest.raises(TraceError, match="items of one shape"):
        gc.compile(lambda x: x * [x, x[0]])(X)
    with pytest.raises(TraceError, match="matrix"):
        gc.compile(lambda x: np.r_["r", x])(X)


def test_gradients_go_through_lists() -> None:
    def loss(x: Any) -> Any:
        return (np.r_[x[0], 2, x] * ([x[1], 1] * x[:2]).sum()).sum()

    want = [loss(X + 1e-6 * e) - loss(X - 1e-6 * e) for e in np.eye(6)]
    np.testing.assert_allclose(gc.grad(loss)(X), np.array(want) / 2e-6, rtol=1e-6)
