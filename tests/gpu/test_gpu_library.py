"""Sorting, scattering, scanning, factorising and users' own ops on a GPU, beside the CPU: rows and
matrices of several tiles, many repeated positions, ties, NaN, and what kernels refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import few
from gpu_harness import GPU, crossed, need_gpu, rng, sized, some

import graphc as gc
from graphc.ops.index.scatter import scatter_rows

need_gpu()
pytestmark = pytest.mark.gpu

LONG = sized(20, 300_000)  # elements of a row
SIDE = sized(5, 300)  # of a matrix
MODES = ("set", "add", "mul", "min", "max")


def both(function: Any, *arrays: Any, **options: Any) -> list[tuple[Any, Any]]:
    """Pairs of results on the GPU and on the CPU."""
    found, wanted = (
        gc.compile(function, devices=devices, **options)(*arrays) for devices in (GPU, ["cpu:0"])
    )
    return list(zip(found, wanted)) if isinstance(wanted, tuple) else [(found, wanted)]


def equal(function: Any, *arrays: Any, **options: Any) -> None:
    for found, wanted in both(function, *arrays, **options):
        np.testing.assert_array_equal(found, wanted)


def close(function: Any, *arrays: Any, tolerance: float = 1e-4) -> None:
    for found, wanted in both(function, *arrays):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def row(kind: Any = np.float32, rows: int = 2) -> Any:
    """Rows with ties, and NaN where there is one."""
    made = rng(1).integers(-50, 50, (rows, LONG)).astype(kind)
    if np.dtype(kind).kind == "f":
        made[:, ::7] = np.nan
        made[:, 1::5] = -0.0
    return made


# ------------------------------------------------------------------------------------ order


@pytest.mark.parametrize(
    "kind", some([np.float32, np.float64, np.int8, np.int32, np.uint16, np.int64], 2)
)
def test_long_rows_in_order(kind: Any) -> None:
    x = row(kind)
    equal(lambda x: (np.sort(x), np.argsort(x), np.argsort(x[:, :9], axis=0)), x)
    equal(lambda x: (*gc.topk(x, 3), *gc.topk(x, sized(6, 60), largest=False)), x)


def test_true_places() -> None:
    mask = rng(2).random(LONG) < 0.3
    for size in (0, 5, LONG):
        equal(lambda m: gc.flatnonzero(m, size=size), mask)  # noqa: B023


# ------------------------------------------------------------------------------------ scatter


@pytest.mark.parametrize(("mode", "kind"), crossed(MODES, [np.int8, np.float32, np.int64]))
def test_many_repeated_positions(kind: Any, mode: str) -> None:
    """Strict updates apply in order, as on the CPU: every bit is the same."""
    random = rng(3)
    count = sized(70, 50_000)
    x = random.integers(-4, 5, (sized(4, 999), 3)).astype(kind)
    index = random.integers(-len(x), len(x), count)
    updates = random.integers(-4, 5, (count, 3)).astype(kind)
    if kind is np.float32:
        updates = updates * np.float32(0.3)
        updates[::50] = np.nan

    def function(x: Any, index: Any, updates: Any) -> Any:
        return scatter_rows(x, index, updates, mode)

    equal(function, x, index, updates, fast_math=False)
    if mode == "add":
        close(function, x, index, np.nan_to_num(updates), tolerance=1e-2)


# ------------------------------------------------------------------------------------ running


def test_running_totals() -> None:
    x = rng(4).standard_normal((2, LONG)).astype(np.float32)

    def bent(x: Any) -> Any:
        y = np.cumsum(x, axis=1)
        return y, np.tanh(y) * x

    close(bent, x, tolerance=1e-3)
    close(lambda x: np.cumsum(x[:, ::-1], axis=1) * 2, x, tolerance=1e-3)
    equal(lambda x: (gc.cummax(x, axis=1), np.cumsum(x.astype(np.int64), axis=1)), x * 100)
    close(gc.grad(lambda x: np.cumprod(np.tanh(x) + 1, axis=1).sum()), x[:, :18])


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_running_totals_of_rows_in_warps_blocks_and_parts(rows: int) -> None:
    """Parts of rows in whole stretches and with a rest, as vectors and element by element."""
    for extent in few([13, 16, 33, 64, 127, 300, 513], 2):
        x = rng(extent).integers(-9, 9, (rows, extent))
        for turned in (x, x[:, ::-1]):
            equal(
                lambda x: (np.cumsum(x, 1), gc.cummin(x, 1), gc.cumsum(x, 1, reverse=True)), turned
            )
        close(lambda x: (np.cumsum(x, 1), gc.cummax(x, 1)), x.astype(np.float32) / 3)


def test_overlapping_pools() -> None:
    x = rng(5).standard_normal((2, 3, sized(5, 64), sized(6, 64))).astype(np.float32)
    close(gc.grad(lambda x: (gc.max_pool(x, 3, stride=2) ** 2).sum()), x)
    close(lambda x: (gc.max_pool(x[:, :, :4, :4], 2), gc.avg_pool(x, 2)), x)


# ------------------------------------------------------------------------------------ matrices


@pytest.mark.parametrize("kind", some([np.float32, np.float64], 1))
def test_matrices(kind: Any) -> None:
    random = rng(6)
    x = random.standard_normal((3, SIDE, SIDE)).astype(kind)
    square = x @ x.swapaxes(-1, -2) + SIDE * np.eye(SIDE, dtype=kind)
    b = random.standard_normal((3, SIDE, 11)).astype(kind)
    close(np.linalg.cholesky, square, tolerance=1e-3)
    close(lambda a, b: (np.linalg.solve(a, b), np.linalg.inv(a)), square, b, tolerance=1e-3)
    close(lambda a: np.linalg.slogdet(a), square, tolerance=1e-3)
    close(gc.grad(lambda a, b: np.linalg.solve(a, b).sum()), square, b, tolerance=1e-3)


# ------------------------------------------------------------------------------------ users' own


@gc.custom_op("halved_on_any_device")
def halved(x: Any, out: Any) -> int:
    """Half of a vector of numbers that must not be negative."""
    for i in range(x.shape[0]):
        if x[i] < 0:
            return 5
        out[i] = x[i] * 0.5
    return 0


def turned_element(i: Any, x: Any, out: Any) -> None:
    place, column = i // out.shape[1], i % out.shape[1]
    out[place, column] = x[column, place]


@gc.custom_op("turned_on_any_device", infer=lambda x: gc.spec(x.shape[::-1]), cuda=turned_element)
def turned(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j, i] = x[i, j]


def test_custom_ops() -> None:
    x = rng(7).standard_normal((3, sized(4, 999))).astype(np.float32)
    made = gc.compile(lambda x, y: (halved(x) + 1, turned(y) + 1), devices=GPU)(np.arange(5.0), x)
    np.testing.assert_array_equal(made[0], np.arange(5.0) / 2 + 1)
    np.testing.assert_array_equal(made[1], x.T + 1)
    equal(np.gcd, np.arange(10) * 6, np.arange(10) * 6 - 8)


# ------------------------------------------------------------------------------------ refused


def updated(x: Any, index: Any) -> Any:
    y = x * 1
    y[index] += 1
    return y


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (np.linalg.cholesky, (-np.eye(3),)),
        (np.linalg.inv, (np.zeros((3, 3)),)),
        (lambda x: halved(x), (-np.ones(3),)),
        (updated, (np.ones((3, 2)), np.array([5]))),
    ],
)
def test_what_a_kernel_refuses_names_the_node(function: Any, arrays: Any) -> None:
    with pytest.raises(gc.GraphError, match="%"):
        gc.compile(function, devices=GPU)(*arrays)


@pytest.mark.parametrize(("status", "reason"), [(-1, "custom op"), (3, "custom op"), (77, "77")])
@pytest.mark.parametrize("alone", [True, False])
def test_what_a_custom_op_returns(status: int, reason: str, alone: bool) -> None:
    def element(i: Any, x: Any, out: Any) -> int:
        return status if x[i] < 0 else 0

    def whole(x: Any, out: Any) -> int:
        return status if x[0] < 0 else 0

    op = gc.custom_op("stopped_on_any_device", cuda=None if alone else element)(whole)
    with pytest.raises(gc.GraphError, match=reason):
        gc.compile(lambda x: op(x) + 1, devices=GPU)(-np.ones(3))
