"""Shape ops: index maps against NumPy, functions against their NumPy namesakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_harness import check_samples, same, traced

from graphc.codegen.lowering.evaluate import reshape_groups, reshaped_index
from graphc.errors import GraphError
from graphc.ir.op import OPS
from graphc.ir.types import F32, symbol, tensor
from graphc.loops.nest import Scalars
from graphc.ops.linalg import matmul as linalg
from graphc.ops.record.dims import resolve_shape
from graphc.ops.record.value import NUMPY, PUBLIC
from graphc.ops.shape import concat, shape
from graphc.ops.shape import manipulation as arrange

X = np.arange(24.0).reshape(2, 3, 4)
V = np.arange(7, dtype=np.int32)


@pytest.mark.parametrize("name", ["reshape", "transpose", "broadcast", "slice", "concat"])
def test_samples(name: str) -> None:
    check_samples(OPS[name])


CASES: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (np.reshape, (X, (4, -1)), {}),
    (np.reshape, (X, -1), {}),
    (np.reshape, (X, (4, 6)), {"order": "F"}),
    (np.ravel, (X,), {}),
    (np.squeeze, (X[:1],), {}),
    (np.squeeze, (X[:, :1],), {"axis": 1}),
    (np.expand_dims, (X, (0, -1)), {}),
    (np.expand_dims, (X, 1), {}),
    (np.atleast_1d, (np.float32(3),), {}),
    (np.atleast_2d, (V,), {}),
    (np.atleast_3d, (V,), {}),
    (np.atleast_3d, (X[0],), {}),
    (np.transpose, (X,), {}),
    (np.transpose, (X, (1, 2, 0)), {}),
    (np.permute_dims, (X, (2, 0, 1)), {}),
    (np.swapaxes, (X, 0, -1), {}),
    (np.matrix_transpose, (X,), {}),
    (np.moveaxis, (X, 0, -1), {}),
    (np.moveaxis, (X, (0, 1), (-1, 0)), {}),
    (np.broadcast_to, (V, (3, 7)), {}),
    (np.flip, (X,), {}),
    (np.flip, (X,), {"axis": (0, 2)}),
    (np.fliplr, (X,), {}),
    (np.flipud, (X,), {}),
    (np.rot90, (X,), {}),
    (np.rot90, (X, 3, (1, 2)), {}),
    (np.rot90, (X, 2), {}),
    (np.split, (X, 2, 2), {}),
    (np.split, (V, [2, 5]), {}),
    (np.array_split, (V, 3), {}),
    (np.hsplit, (X, [1]), {}),
    (np.vsplit, (X, 2), {}),
    (np.dsplit, (X, 2), {}),
    (np.unstack, (X,), {"axis": 1}),
    (np.tile, (X, 2), {}),
    (np.tile, (V, (2, 3)), {}),
    (np.repeat, (X, 2), {}),
    (np.repeat, (X, 3), {"axis": 1}),
    (np.roll, (V, 3), {}),
    (np.roll, (X, -5), {}),
    (np.roll, (X, (1, -2)), {"axis": (0, 2)}),
    (np.roll, (X, 1), {"axis": (0, 1)}),
    (np.resize, (V, (3, 4)), {}),
    (np.append, (V, V), {}),
]


@pytest.mark.parametrize(("function", "args", "named"), CASES)
def test_function_is_numpys(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    x, *rest = args
    made = traced(lambda v: NUMPY[function](v, *rest, **named), x, lower=True)
    same(made, function(*args, **named))
    same(NUMPY[function](*args, **named), function(*args, **named))


JOINS: list[tuple[Any, list[Any], dict[str, Any]]] = [
    (np.concatenate, [X, X + 1], {"axis": 1}),
    (np.concatenate, [X, V], {"axis": None}),
    (np.concat, [V, V.astype(np.float32)], {}),
    (np.stack, [V, V + 1], {"axis": -1}),
    (np.hstack, [V, V], {}),
    (np.hstack, [X, X], {}),
    (np.vstack, [V, V], {}),
    (np.dstack, [V, V], {}),
    (np.column_stack, [V, V + 1], {}),
]


@pytest.mark.parametrize(("function", "arrays", "named"), JOINS)
def test_join_is_numpys(function: Any, arrays: list[Any], named: dict[str, Any]) -> None:
    made = traced(lambda *v: NUMPY[function](v, **named), *arrays)
    same(made, function(arrays, **named))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [True, False])
def test_meshgrid(indexing: str, sparse: bool) -> None:
    arrays = [np.arange(3), np.arange(4), np.arange(2)]
    named = {"indexing": indexing, "sparse": sparse}
    made = traced(lambda *v: arrange.meshgrid(*v, **named), *arrays)
    same(made, np.meshgrid(*arrays, **named))


BAD = [
    lambda v: v.reshape(5, -1),
    lambda v: v.reshape(-1, -1),
    lambda v: v.transpose(0, 1),
    lambda v: arrange.squeeze(v, 1),
    lambda v: arrange.split(v, 5, 2),
    lambda v: arrange.stack([v, v.reshape(6, 4)]),
    lambda v: concat.concatenate([]),
    lambda v: shape.broadcast_to(v, (2, 4, 4)),
    lambda v: arrange.moveaxis(v, (0, 0), (1, 2)),
    lambda v: arrange.repeat(v, v),
    lambda v: v.transpose(0, 1, 3),
]


@pytest.mark.parametrize("function", BAD)
def test_misuse_is_refused(function: Any) -> None:
    with pytest.raises(GraphError):
        traced(function, X)


def test_methods() -> None:
    same(traced(lambda v: v.T, X), X.T)
    same(traced(lambda v: v.mT, X), X.mT)
    same(traced(lambda v: v.reshape((6, 4)).transpose(1, 0).ravel(), X), X.reshape(6, 4).T.ravel())
    assert PUBLIC["shape"](X) == (2, 3, 4)


def test_symbolic_dimensions() -> None:
    n = symbol("N")
    infer = OPS["reshape"].infer
    assert infer(tensor(F32, (n, 4)), dims=(2 * n, 2)) is tensor(F32, (2 * n, 2))
    assert resolve_shape((n, 4), (-1,)) == (4 * n,)
    assert resolve_shape((n, 4), (n, -1, 2)) == (n, 2, 2)
    assert resolve_shape((2 * n, 3), (-1, 6)) == (n, 6)
    with pytest.raises(GraphError):
        resolve_shape((n, 3), (2, -1))
    cut = OPS["slice"].infer(tensor(F32, (n,)), starts=(1,), stops=(n,), steps=(1,))
    assert cut is tensor(F32, (n - 1,))
    back = OPS["slice"].infer(tensor(F32, (2 * n,)), starts=(0,), stops=(2 * n,), steps=(2,))
    assert back is tensor(F32, (n,))
    joined = OPS["concat"].infer(tensor(F32, (n, 2)), tensor(F32, (3, 2)), axis=0)
    assert joined is tensor(F32, (n + 3, 2))


@pytest.mark.parametrize(
    ("result", "source"),
    [
        ((3, 1, 4), (3, 4)),
        ((12,), (3, 4)),
        ((2, 6), (3, 4)),
        ((1, 1), ()),
        ((), (1, 1)),
        ((4, 3, 5), (4, 15)),
        ((2, 3, 1, 4), (6, 2, 2)),
        ((1, 3), (3, 1)),
        ((0, 2), (0,)),
    ],
)
def test_reshaped_index(result: tuple[int, ...], source: tuple[int, ...]) -> None:
    groups = reshape_groups(result, source)
    assert [a for here, _ in groups for a in here] == list(range(len(result)))
    assert [a for _, there in groups for a in there] == list(range(len(source)))
    values = np.arange(int(np.prod(source))).reshape(source)
    b = Scalars()
    for index in np.ndindex(*result):
        place = reshaped_index(b, tuple(b.integer(i) for i in index), result, source)
        assert values[tuple(p.data for p in place)] == values.reshape(result)[index]


def test_dropping_unit_axes_costs_no_arithmetic() -> None:
    b = Scalars()
    from graphc.ir.types import I64

    i, j = (b.make("var", I64, (), k) for k in range(2))
    assert reshaped_index(b, (i, j), (3, 4), (3, 1, 4, 1))[0] is i
    assert reshaped_index(b, (i, j), (3, 4), (3, 1, 4, 1))[2] is j


def test_matmul_samples() -> None:
    check_samples(linalg.matmul_op)
