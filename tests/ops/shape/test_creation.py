"""Arrays from shapes and counts, diagonals, and every mode of pad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_harness import check_samples, same, traced

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.graph import Builder
from graphc.ir.op import OPS
from graphc.ir.types import I64, symbol, tensor
from graphc.ops.record.value import NUMPY, Trace, tracing
from graphc.ops.shape import creation, padding

X = np.arange(12.0).reshape(3, 4) ** 2
N = np.arange(12, dtype=np.int32).reshape(3, 4) * 3
V = np.array([3, 1, 2])


@pytest.mark.parametrize("name", ["pad", "iota", "diagonal"])
def test_samples(name: str) -> None:
    check_samples(OPS[name])


MADE: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (np.arange, (5,), {}), (np.arange, (2, 20, 3), {}), (np.arange, (5, 0, -2), {}),
    (np.arange, (0, 1, 0.125), {}), (np.arange, (3,), {"dtype": "f4"}), (np.arange, (2.5,), {}),
    (np.arange, (5, 1), {}), (np.linspace, (0, 1), {}), (np.linspace, (2, 5, 4), {}),
    (np.linspace, (0, 1, 5, False), {}), (np.linspace, (0, 9, 4), {"dtype": int}),
    (np.linspace, (0, 1, 1), {}), (np.linspace, (0, 1, 0), {}), (np.full, ((2, 3), 7), {}),
    (np.full, (3, True), {}), (np.zeros, ((2, 2),), {}), (np.ones, (3, "i4"), {}),
    (np.ones, (2, bool), {}), (np.eye, (3,), {}), (np.eye, (2, 4, 1), {"dtype": "i2"}),
    (np.eye, (4, 3, -2), {}), (np.identity, (2,), {}), (np.tri, (3, 4, -1), {}),
    (np.logspace, (0, 2, 3), {}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "named"), MADE)
def test_made_arrays_are_numpys(function: Any, args: Any, named: Any) -> None:
    expected = function(*args, **named)
    same(traced(lambda: NUMPY[function](*args, **named), lower=True), expected, 1e-12)
    same(NUMPY[function](*args, **named), expected, 1e-12)


DERIVED: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (np.zeros_like, (N,), {}), (np.ones_like, (X > 3,), {}), (np.full_like, (N, 2), {}),
    (np.ones_like, (X,), {"dtype": "i4"}), (np.zeros_like, (X,), {"shape": (2,)}),
    (np.tril, (X,), {}), (np.triu, (X, 1), {}), (np.tril, (X[None], -1), {}), (np.triu, (V,), {}),
    (np.diagonal, (X, 1), {}), (np.diagonal, (X[None] + 1, 0, 0, 2), {}), (np.diag, (X, -1), {}),
    (np.diag, (V,), {}), (np.diag, (V, 2), {}), (np.diag, (V, -1), {}), (np.diagflat, (N, 1), {}),
    (np.trace, (N,), {}), (np.trace, (X[None] + 1,), {"axis1": 1, "axis2": 2, "offset": 1}),
    (np.linspace, (V, 9.0, 3), {}), (np.linspace, (V, V + 1, 3), {"axis": 1}),
    (np.linalg.diagonal, (X[None],), {"offset": 1}), (np.linalg.trace, (X[None],), {}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "named"), DERIVED)
def test_derived_arrays_are_numpys(function: Any, args: Any, named: Any) -> None:
    x, *rest = args
    made = traced(lambda v: NUMPY[function](v, *rest, **named), x, lower=True)
    same(made, function(*args, **named), 1e-12)


PADS: list[tuple[Any, str, dict[str, Any]]] = [
    (2, "constant", {}),
    (((1, 2), (0, 3)), "constant", {"constant_values": 5}),
    (1, "constant", {"constant_values": ((1, 2), (3, 4))}),
    ((2, 1), "edge", {}),
    (((2, 1), (3, 2)), "reflect", {}),
    (5, "reflect", {}),
    (5, "symmetric", {}),
    (5, "wrap", {}),
    (((2, 3), (1, 0)), "linear_ramp", {"end_values": ((7, -3), (1, 2))}),
    (2, "maximum", {}),
    (2, "minimum", {"stat_length": 2}),
    (2, "mean", {}),
    (0, "constant", {}),
    ({1: (1, 2)}, "constant", {}),
    ({-1: 2}, "edge", {}),
]


@pytest.mark.parametrize(("width", "mode", "named"), PADS)
@pytest.mark.parametrize("x", [X, N])
def test_pad_is_numpys(x: Any, width: Any, mode: str, named: Any) -> None:
    made = traced(lambda v: padding.pad(v, width, mode, **named), x, lower=True)
    wide = width
    if isinstance(width, dict):
        wide = [(0, 0), (0, 0)]
        for axis, amount in width.items():
            wide[axis] = (amount, amount) if isinstance(amount, int) else amount
    same(made, np.pad(x, wide, mode, **named), 1e-12)


def test_traced_values_and_symbols() -> None:
    same(
        traced(lambda v, c: padding.pad(v, 1, constant_values=c), X, np.array(3.0)),
        np.pad(X, 1, constant_values=3),
    )
    same(traced(lambda v: creation.full((2, 3), v[0]), V), np.full((2, 3), 3))
    n = symbol("N")
    with tracing(Trace(Builder())):
        assert creation.arange(n).type is tensor(I64, (n,))
        assert creation.zeros((n, 2), int).type is tensor(I64, (n, 2))
        assert creation.eye(n).shape == (n, n)


BAD = [
    lambda v: creation.arange(v[0]),
    lambda v: padding.pad(v, -1),
    lambda v: padding.pad(v, 1, "mirror"),
    lambda v: padding.pad(v, ((1, 1), (2, 2))),
    *(lambda v, mode=mode: padding.pad(v[:0], 1, mode) for mode in ("edge", "mean", "linear_ramp")),
    lambda v: creation.diagonal(v),
    lambda v: creation.diag(v.reshape(1, 1, 3)),
    lambda v: creation.zeros((-1,)),
]


@pytest.mark.parametrize("function", BAD)
def test_misuse_is_refused(function: Any) -> None:
    with pytest.raises(GraphError):
        traced(function, V)


@pytest.mark.slow
def test_edges_between_traced_ends_are_numpys_to_the_last_bit():
    """A product that is fused with its sum would put values on the other side of an edge."""
    rng = np.random.default_rng(5)
    compiled = gc.compile(lambda a, b: np.linspace(a, b, 23))
    counted = gc.compile(lambda x: np.histogram(x, 7))
    for _ in range(20):
        a, b = rng.normal(size=2) * 30
        np.testing.assert_array_equal(compiled(a, b), np.linspace(a, b, 23))
        x = rng.integers(-40, 40, 50)
        for made, right in zip(counted(x), np.histogram(x, 7), strict=True):
            np.testing.assert_array_equal(made, right)


@pytest.mark.parametrize("k", [-(2**70), -(2**63), -4, -3, 0, 5, 6, 2**63, 2**70])
def test_diagonals_beyond_the_corners_are_empty(k):
    """As NumPy's; from 2**63 on, where NumPy overflows, as the nearest k it takes."""
    near, x = max(-9, min(k, 9)), np.arange(15.0).reshape(3, 5)
    np.testing.assert_array_equal(gc.compile(lambda x: np.triu(x, k))(x), np.triu(x, near))
    np.testing.assert_array_equal(gc.compile(lambda x: np.tril(x, k))(x), np.tril(x, near))
    np.testing.assert_array_equal(gc.eye(3, 5, k), np.eye(3, 5, near))
    np.testing.assert_array_equal(gc.tri(3, 5, k), np.tri(3, 5, near))
