"""Edited arrays against NumPy, traced and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_harness import same, traced

import graphc as gc
from graphc.errors import GraphError

X = np.arange(12.0).reshape(3, 4)
V = np.arange(5.0)

CALLS: list[tuple[Any, Any]] = [
    (lambda x: np.block([[x, x[:, :1]], [x[:1], np.ones((1, 1))]]), X),
    (lambda x: np.block([x, 1.0]), V),
    (lambda x: np.delete(x, 1, 0), X),
    (lambda x: np.delete(x, [0, 2], 1), X),
    (lambda x: np.delete(x, slice(1, 3)), X),
    (lambda x: np.insert(x, 2, 7.0), V),
    (lambda x: np.insert(x, [1, 1, 4], [7.0, 8, 9]), V),
    (lambda x: np.insert(x, 1, 5.0, axis=1), X),
    (lambda x: np.insert(x, 1, x[:, 0], axis=1), X),
    (lambda x: np.insert(x, [1], [[1.0], [2], [3]], axis=1), X),
    (lambda x: np.insert(x, [0, 2], 5.0, axis=0), X),
    (lambda x: np.rollaxis(x[None], 2, 0), X),
    (lambda x: np.gradient(x), V**2),
    (lambda x: np.gradient(x, 0.5), X**2),
    (lambda x: np.gradient(x, 2.0, axis=1), X**2),
    (lambda x: np.gradient(x, edge_order=2), X**2),
    (lambda x: np.gradient(x, np.int8(100), axis=0, edge_order=2), X**2),
    (lambda x: np.gradient(x, np.array([-100, 0, 100, 110, 120], np.int8)), np.arange(5.0) ** 2),
    (lambda x: np.gradient(x, np.array([90, 60, 50, 20, 0], np.uint8)), np.arange(5.0) ** 2),
    (lambda x: np.gradient(x, edge_order=2), np.array([1, 2, np.inf, 4, 7, 9])),
    (lambda x: np.gradient(x, np.arange(8) * 2.0), np.array([1, 2, np.inf, 4, 7, 9, 1, 0])),
    (lambda x: np.gradient(x, edge_order=2), np.array([1e17, 1, 1e17, 3, 1e17, 5])),
    (lambda x: np.gradient(x, np.float64(0.5)), np.array([1, 2, 4], np.float32)),
    (lambda x: np.gradient(x, np.float32(0.5), 2.0, edge_order=2), X**2),
    (lambda x: np.gradient(x, np.arange(x.shape[1]) ** 2, axis=1), X),
    (lambda x: np.gradient(x, np.arange(x.shape[0]) ** 2, 0.5, edge_order=2), X),
    (lambda x: np.gradient(x, [0.0, 1.0, 1.5, 4.0][: x.shape[1]], axis=-1, edge_order=2), X[:, :4]),
    (lambda x: np.polyval(x[:3], x), V),
    (lambda x: np.vander(x, 3), V),
    (lambda x: np.vander(x, increasing=True), V),
    (lambda x: np.matvec(x, x[0]), X),
    (lambda x: np.vecmat(x[:, 0], x), X),
]


@pytest.mark.parametrize(("function", "x"), CALLS)
def test_function_is_numpys(function: Any, x: Any) -> None:
    same(gc.compile(function)(x), function(x), 1e-12)


def in_place(x: Any) -> Any:
    x = x * 1
    np.fill_diagonal(x, -1)
    np.put(x, [1, -1], [50, 60])
    np.putmask(x, x > 8, [70.0, 80])
    return x


def test_changes_in_place() -> None:
    same(gc.compile(in_place)(X), in_place(X))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.insert(x, x[0].astype(int), 1),
        lambda x: np.gradient(x[:1]),
        lambda x: gc.block([[x], x]),
        lambda x: np.gradient(x, x[:2]),
        lambda x: np.gradient(x[:2], edge_order=2),
    ],
)
def test_misuse_is_refused(function: Any) -> None:
    with pytest.raises(GraphError):
        gc.compile(function)(V)


def test_aliases() -> None:
    same(traced(lambda x: gc.concat([gc.permute_dims(x, (1, 0))] * 2), X), np.vstack([X.T] * 2))
