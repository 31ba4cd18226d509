"""Contractions: loop dimensions against NumPy, einsum equations, convolution and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_harness import check_samples, same, traced

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.op import OPS
from graphc.ops.linalg import einsum
from graphc.ops.linalg import matmul as linalg
from graphc.ops.nn import conv, pooling
from graphc.ops.record.value import NUMPY

RNG = np.random.default_rng(0)


def rand(*shape: int) -> Any:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("name", ["matmul", "einsum", "conv", "pool"])
def test_samples(name: str) -> None:
    check_samples(OPS[name])


SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 2)),
    ((4, 1, 2, 3), (5, 3, 2)),
    ((5, 2, 3), (3, 4)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_is_numpys(left: Any, right: Any) -> None:
    a, b = rand(*left), rand(*right)
    same(traced(lambda x, y: x @ y, a, b, lower=True), a @ b, 1e-12)
    c = a + 1j * rand(*left)
    same(traced(lambda x, y: x @ y, c, b), c @ b, 1e-12)
    p, q = a > 0, b > 0
    same(traced(lambda x, y: x @ y, p, q), p @ q)
    m, n = (a * 100).astype(np.int8), (b * 100).astype(np.int8)
    same(traced(lambda x, y: x @ y, m, n, lower=True), m @ n)


PRODUCTS: list[tuple[Any, Any, Any, dict[str, Any]]] = [
    (np.dot, rand(3), rand(3), {}),
    (np.dot, rand(2, 3), rand(4, 3, 5), {}),
    (np.dot, rand(2, 3), np.float64(2.0), {}),
    (np.vdot, rand(2, 3) + 1j, rand(2, 3) - 2j, {}),
    (np.inner, rand(2, 3), rand(4, 3), {}),
    (np.inner, rand(3), rand(3), {}),
    (np.outer, rand(2, 2), rand(3), {}),
    (np.tensordot, rand(2, 3, 4), rand(3, 4, 5), {}),
    (np.tensordot, rand(2, 3, 4), rand(4, 3), {"axes": ([1, 2], [1, 0])}),
    (np.tensordot, rand(2), rand(3), {"axes": 0}),
    (np.kron, rand(2, 3), rand(4, 2), {}),
    (np.kron, rand(3), rand(4, 2), {}),
    (np.cross, rand(4, 3), rand(3), {}),
    (np.cross, rand(3, 4), rand(3, 4), {"axis": 0}),
    (np.linalg.vecdot, rand(4, 3) + 1j, rand(3), {}),
    (np.linalg.outer, rand(4), rand(3), {}),
    (np.linalg.cross, rand(4, 3), rand(4, 3), {}),
    (np.convolve, rand(7), rand(3), {}),
    (np.convolve, rand(3), rand(7), {"mode": "same"}),
    (np.convolve, rand(7), rand(4), {"mode": "valid"}),
    (np.correlate, rand(7), rand(4), {}),
    (np.correlate, rand(7), rand(4), {"mode": "full"}),
]


@pytest.mark.parametrize(("function", "a", "b", "named"), PRODUCTS)
def test_product_is_numpys(function: Any, a: Any, b: Any, named: Any) -> None:
    made = traced(lambda x, y: NUMPY[function](x, y, **named), a, b, lower=True)
    same(made, function(a, b, **named), 1e-12)


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij,kj->ki", [(2, 3), (4, 3)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]), ("ii->i", [(4, 4)]), ("ii", [(4, 4)]),
    ("ij->ji", [(2, 3)]), ("ij->", [(2, 3)]), ("i,i", [(3,), (3,)]), ("i,j->ij", [(3,), (4,)]),
    ("i,i->i", [(3,), (3,)]), ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...i->...", [(2, 3, 4)]),
    ("i...,i...->...", [(2, 3), (2, 1)]), ("ij,jk,kl->il", [(2, 3), (3, 40), (40, 2)]),
    ("bij,bjk,kk->bi", [(2, 3, 4), (2, 4, 5), (5, 5)]), ("iij,jk->ik", [(3, 3, 4), (4, 2)]),
    ("ab,bc,cd,da->", [(2, 3), (3, 4), (4, 5), (5, 2)]), ("ij,ij->", [(2, 1), (2, 3)]),
    ("abc,cd->da", [(2, 3, 4), (4, 5)]), ("ij,k->ijk", [(2, 3), (4,)]), ("ijk->kij", [(2, 3, 4)]),
    ("i...j->j...", [(2, 5, 6, 3)]), ("a,b,c->abc", [(2,), (3,), (4,)]),
    ("ijij->ji", [(2, 3, 2, 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum_is_numpys(equation: str, shapes: Any) -> None:
    arrays = [rand(*s) for s in shapes]
    made = traced(lambda *v: einsum.einsum(equation, *v), *arrays, lower=True)
    same(made, np.einsum(equation, *arrays), 1e-12)


def test_einsum_interleaved_and_integers() -> None:
    a, b = rand(2, 3), rand(3, 4)
    same(traced(lambda x, y: einsum.einsum(x, [0, 1], y, [1, 2], [2, 0]), a, b), (a @ b).T, 1e-12)
    same(
        traced(lambda x, y: einsum.einsum(x, [0, ...], y, [0, 2]), a, b[:2]),
        np.einsum(a, [0, ...], b[:2], [0, 2]),
        1e-12,
    )
    small = np.arange(100, 106, dtype=np.int8).reshape(2, 3)
    same(traced(lambda x: einsum.einsum("ij->i", x), small), np.einsum("ij->i", small))
    flags = rand(3, 3) > 0
    same(
        traced(lambda x, y: einsum.einsum("ij,jk->ik", x, y), flags, flags),
        np.einsum("ij,jk->ik", flags, flags),
    )


@pytest.mark.parametrize(
    "equation", ["ij,jk->ii", "ij,jk->iz", "ij", "i,jk->ik", "ij,jk->i!k", "ij,kj,k->i", "...ijk,j"]
)
def test_einsum_refuses(equation: str) -> None:
    with pytest.raises(GraphError):
        traced(lambda x, y: einsum.einsum(equation, x, y), rand(2, 3), rand(3, 4))


def direct_conv(
    x: Any, w: Any, stride: int, low: int, high: int, dilation: int, groups: int
) -> Any:
    """One spatial axis, one output element at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (low, high)))
    reach = (w.shape[2] - 1) * dilation + 1
    count = (x.shape[2] - reach) // stride + 1
    made = np.zeros((x.shape[0], w.shape[0], count))
    inside, outside = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        part = x[:, o // outside * inside :][:, :inside]
        for p in range(count):
            window = part[:, :, p * stride : p * stride + reach : dilation]
            made[:, o, p] = (window * w[o]).sum((1, 2))
    return made


@pytest.mark.parametrize(
    ("options", "pads"),
    [
        ({}, (0, 0)),
        ({"stride": 2, "padding": 1}, (1, 1)),
        ({"padding": "same"}, (1, 1)),
        ({"padding": "same", "stride": 2}, (0, 1)),
        ({"padding": [(2, 0)], "dilation": 2}, (2, 0)),
        ({"groups": 2, "padding": "valid"}, (0, 0)),
    ],
)
def test_conv(options: dict[str, Any], pads: tuple[int, int]) -> None:
    groups = options.get("groups", 1)
    x, w = rand(2, 4, 8), rand(6, 4 // groups, 3)
    made = traced(lambda a, b: conv.conv(a, b, **options), x, w, lower=True)
    expected = direct_conv(
        x, w, options.get("stride", 1), *pads, options.get("dilation", 1), groups
    )
    same(made, expected, 1e-12)


@pytest.mark.parametrize(
    ("stride", "padding", "extra", "dilation", "groups"),
    [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 0, 0, 2, 2)],
)
def test_conv_transpose_is_the_adjoint(
    stride: int, padding: int, extra: int, dilation: int, groups: int
) -> None:
    y, w = rand(2, 4, 5), rand(4, 6 // groups, 3)
    made = conv.conv_transpose(y, w, stride, padding, extra, dilation, groups)
    x = rand(2, 6, made.shape[2])
    forward = conv.conv(x, w, stride, padding, dilation, groups)
    np.testing.assert_allclose((forward * y).sum(), (x * made).sum())


@pytest.mark.parametrize(
    "bad", [{"stride": 0}, {"dilation": 0}, {"groups": 0}, {"groups": 3}, {"padding": 4}]
)
def test_misuse_of_conv_transpose(bad: dict[str, int]) -> None:
    with pytest.raises(GraphError, match="conv_transpose"):
        traced(lambda x, w: conv.conv_transpose(x, w, **bad), rand(1, 2, 5), rand(2, 1, 3))
    with pytest.raises(GraphError, match="2 channels do not fit weights for 3"):
        conv.conv_transpose(rand(1, 2, 5), rand(3, 1, 3))


def test_two_dimensional_conv_and_misuse() -> None:
    x, w = rand(1, 2, 5, 6), rand(3, 2, 3, 3)
    same(conv.conv(x, w, padding=1).shape, (1, 3, 5, 6))
    traced(lambda a, b: conv.conv(a, b, (2, 1), ((1, 0), 1), (1, 2)), x, w, lower=True)
    for bad in ({"padding": "full"}, {"stride": (1, 2, 3)}, {"stride": 0}, {"groups": 2}):
        with pytest.raises(GraphError):
            traced(lambda a, b, bad=bad: conv.conv(a, b, **bad), x, w)


def test_pooling() -> None:
    x = rand(2, 3, 7, 8)
    made = traced(lambda v: pooling.max_pool(v, 2), x, lower=True)
    same(made, x[:, :, :6].reshape(2, 3, 3, 2, 4, 2).max((3, 5)))
    same(traced(lambda v: pooling.min_pool(v, (7, 2), 1), x)[:, :, 0, 0], x[..., :2].min((2, 3)))
    same(pooling.max_pool(x, 3, 2, 1).shape, (2, 3, 4, 4))
    same(pooling.avg_pool(x, 2), x[:, :, :6].reshape(2, 3, 3, 2, 4, 2).mean((3, 5)), 1e-12)
    large = traced(lambda v: pooling.avg_pool(v, (7, 8) and 7, 1), rand(1, 1, 12, 12), lower=True)
    assert large.shape == (1, 1, 6, 6)
    big = rand(1, 1, 20, 20)
    same(pooling.max_pool(big, 10, 10), big.reshape(1, 1, 2, 10, 2, 10).max((3, 5)))


def test_average_counts() -> None:
    ones = np.ones((1, 1, 5))
    same(pooling.avg_pool(ones, 2, 2, ceil_mode=True), np.ones((1, 1, 3)))
    same(pooling.avg_pool(ones, 3, 2, 1), np.array([[[2 / 3, 1, 2 / 3]]]), 1e-12)
    same(pooling.avg_pool(ones, 3, 2, 1, count_include_pad=False), np.ones((1, 1, 3)), 1e-12)
    same(
        pooling.max_pool(np.arange(5, dtype=np.int32).reshape(1, 1, 5), 2, ceil_mode=True),
        np.array([[[1, 3, 4]]], np.int32),
    )


def test_norms_and_powers() -> None:
    a, s = rand(3, 4), rand(4, 4)
    for order in (None, "fro", 1, -1, np.inf, -np.inf):
        same(
            traced(lambda v, o=order: NUMPY[np.linalg.norm](v, o), a),
            np.linalg.norm(a, order),
            1e-12,
        )
    for order in (None, 0, 1, 2, 3, np.inf, -np.inf):
        made = traced(lambda v, o=order: NUMPY[np.linalg.norm](v, o, axis=1, keepdims=True), a)
        same(made, np.linalg.norm(a, order, axis=1, keepdims=True), 1e-12)
    for power in (0, 1, 2, 5):
        made = traced(lambda v, p=power: NUMPY[np.linalg.matrix_power](v, p), s)
        same(made, np.linalg.matrix_power(s, power), 1e-9)
    arrays = [rand(3, 4), rand(4, 50), rand(50, 2)]
    same(
        traced(lambda *v: NUMPY[np.linalg.multi_dot](v), *arrays), np.linalg.multi_dot(arrays), 1e-9
    )
    assert linalg.matmul_op.commutative is False


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("function", [np.convolve, np.correlate], ids=lambda f: f.__name__)
def test_nothing_lies_beyond_the_ends_of_a_convolved_vector(function, mode):
    """Zeros that are laid around an array would make NaN of infinity."""
    for n, m in ((5, 2), (2, 5), (4, 4), (6, 1), (1, 1)):
        x, y = np.arange(1.0, n + 1), np.arange(2.0, m + 2)
        for places in ((0, None), (None, 0), (-1, None), (None, -1)):
            u, v = x.copy(), y.copy()
            if places[0] is not None:
                u[places[0]] = np.inf
            if places[1] is not None:
                v[places[1]] = np.nan if m > 1 else np.inf
            made = gc.compile(lambda u, v: function(u, v, mode))(u, v)
            np.testing.assert_array_equal(made, function(u, v, mode))


@pytest.mark.parametrize(("n", "m"), [(65, 65), (66, 130), (500, 129)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_long_convolutions_end_where_their_arrays_end(n: int, m: int, mode: Any) -> None:
    """An infinity or NaN reaches the sums that it is a term of, and no others."""

    def both(a: Any, v: Any) -> Any:
        return np.convolve(a, v, mode), np.correlate(v, a, mode)

    rng = np.random.default_rng(n)
    for kind, size in (("f8", 1e-11), ("f4", 1e-3), ("c16", 1e-11)):
        a, v = (rng.standard_normal(count).astype(kind) for count in (n, m))
        for places in ((), (3,), (m - 1, m // 2)):
            v[list(places)] = np.inf
            a[n // 3 : n // 3 + len(places)] = (-np.inf, 0)[: len(places)]
            with np.errstate(all="ignore"):
                want = both(a, v)
            for one, other in zip(gc.compile(both)(a, v), want, strict=True):
                if kind[0] == "c" and places:
                    assert np.array_equal(np.isfinite(one), np.isfinite(other))
                else:
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=size)
