"""Gradient rules where formulas divide by zero, elements tie, positions repeat, nothing is left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from expand import traced
from gradient_harness import check_region, gradient_graph, is_float, noise, region_of

from graphc.config import Config
from graphc.ir.op import OPS, Sample
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.dce import dce

RNG = np.random.default_rng(5)
ZEROS = np.array([[2.0, 3, -4, 5], [2, 0, -4, 5], [0, 3, 0, 5], [0, 0, 0, 0]])


def gradients(name: str, *operands: Any, ct: Any = None, **attrs: Any) -> list[Any]:
    """The gradients of an op's float operands; the cotangent is all ones by default."""
    region = region_of(OPS[name], Sample(operands, attrs), list(operands))
    wrt = tuple(k for k, p in enumerate(region.params) if is_float(p))
    kinds = [r.type for r in region.results]
    seeds = [np.ones(k.dims, k.dtype.numpy) for k in kinds]  # type: ignore[union-attr]
    return interpret(gradient_graph(region, wrt), [*operands, *(seeds if ct is None else [ct])])


def check_twice(name: str, *operands: Any, **attrs: Any) -> None:
    """First and second derivatives of a polynomial against differences, at these very operands."""
    region = region_of(OPS[name], Sample(operands, attrs), list(operands))
    made = check_region(region, list(operands), RNG)
    assert made is not None
    kind = made.params[len(operands)].type
    seed = noise(RNG, np.empty(kind.dims, kind.dtype.numpy))  # type: ignore[union-attr]
    check_region(made, [*operands, seed], RNG)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_product_with_zeros(axes: tuple[int, ...], keepdims: bool) -> None:
    check_twice("prod", ZEROS, axes=axes, keepdims=keepdims)


def test_product_of_three_axes_and_of_complex_numbers() -> None:
    x = RNG.standard_normal((2, 3, 2, 3))
    x[0, 1, 1, 2] = x[1, 2, 0, 0] = 0
    check_twice("prod", x, axes=(0, 2, 3))
    check_twice("prod", x[0] + 1j * x[1], axes=(0, 2))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_product_with_zeros(axis: int, reverse: bool) -> None:
    check_twice("cumprod", ZEROS, axis=axis, reverse=reverse)


@pytest.mark.parametrize(("name", "sign"), [("max", 1), ("min", -1)])
def test_extremes_share_equally_among_ties(name: str, sign: int) -> None:
    x = sign * np.array([[1.0, 3, 3, 2], [3, 3, 3, 0]])
    (got,) = gradients(name, x, axes=(1,), keepdims=False, ct=np.array([6.0, 12]))
    assert got.tolist() == [[0, 3, 3, 0], [4, 4, 4, 0]]
    (got,) = gradients(name, x, axes=(0, 1), keepdims=True, ct=np.array([[5.0]]))
    assert got.tolist() == [[0, 1, 1, 0], [1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("reverse", "x", "expected"),
    [(False, [4.0, 1, 4, 5, 5], [2, 0, 1, 1, 1]), (True, [9.0, 2, 1, 2, 1], [1, 1, 0, 2, 1])],
)
def test_running_extreme_goes_to_the_latest_that_reached_it(
    reverse: bool, x: list[float], expected: list[float]
) -> None:
    (got,) = gradients("cummax", np.array(x), axis=0, reverse=reverse)
    assert got.tolist() == expected


def test_sums_of_exponentials_of_nothing() -> None:
    x = np.array([[-np.inf, -np.inf], [-np.inf, 1.0]])
    (got,) = gradients("logsumexp", x, axes=(1,), keepdims=False)
    assert got.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_logsumexp_of_narrow_floats_is_as_exact_as_they_are(name: str) -> None:
    x = (RNG.standard_normal((3, 50)) + 40).astype(name)
    (got,) = gradients("logsumexp", x, axes=(1,), keepdims=False)
    wide = np.exp(x.astype(float) - x.astype(float).max(1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=2e-3)


def test_deviation_of_equal_elements_has_no_slope() -> None:
    (got,) = gradients("std", np.full((2, 3), 4.0), axes=(1,), keepdims=True, correction=1.0)
    assert not got.any()


@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
def test_gathered_positions_may_repeat(mode: str) -> None:
    x = RNG.standard_normal((3, 4, 2))
    rows, columns = np.array([[0, 2], [2, 0]]), np.array([[-1, 3], [3, 3]])
    rows, columns = (rows, columns) if mode == "raise" else (rows * 2 - 1, columns * 3)
    check_twice("gather", x, rows, columns, axes=(0, 1), position=0, mode=mode)
    check_twice("gather", x, rows.astype("i1"), axes=(0,), position=1, mode=mode)
    check_twice("gather", x, columns[0, 0], axes=(1,), position=2, mode=mode)
    check_twice(
        "take_along", x, np.broadcast_to(rows[:1, :, None], (3, 2, 2)) * 1, axis=1, mode=mode
    )


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("mode", ["set", "add", "mul"])
def test_scattered_positions_may_repeat(mode: str, drop: bool) -> None:
    x, updates = RNG.standard_normal((4, 2)), RNG.standard_normal((5, 2))
    index = np.array([1, 3, -3, 9, 1] if drop else [1, 3, -3, 0, 1])
    check_twice("scatter", x, index, updates, mode=mode, drop=drop)


def test_scattered_factors_may_be_zero() -> None:
    x, updates = RNG.standard_normal((3, 2)), RNG.standard_normal((5, 2))
    updates[0, 0] = updates[4, 1] = updates[1, 1] = x[2, 0] = 0
    index = np.array([1, 1, 2, 0, 1])
    region = region_of(
        OPS["scatter"], Sample((x, index, updates), {"mode": "mul"}), [x, index, updates]
    )
    assert check_region(region, [x, index, updates], RNG) is not None


def test_scattered_extremes_share_equally() -> None:
    x, updates = np.array([1.0, 5, 7]), np.array([4.0, 5, 4, 2])
    index, ct = np.array([0, 1, 0, 2]), np.array([6.0, 8, 3])
    made = gradients("scatter", x, index, updates, mode="max", drop=False, ct=ct)
    assert [m.tolist() for m in made] == [[0, 4, 3], [3, 4, 3, 0]]


EMPTY = [
    ("sum", [(2, 0)], {"axes": (1,)}),
    ("mean", [(2, 0)], {"axes": (1,), "keepdims": True}),
    ("prod", [(2, 0, 3)], {"axes": (1, 2)}),
    ("max", [(0, 3)], {"axes": (1,)}),
    ("var", [(0, 3)], {"axes": (1,), "correction": 0.0}),
    ("logsumexp", [(0, 3)], {"axes": (1,)}),
    ("cumprod", [(3, 0)], {"axis": 1}),
    ("cummax", [(3, 0)], {"axis": 1, "reverse": True}),
    ("broadcast", [(1, 3)], {"dims": (2, 0, 3)}),
    ("slice", [(3,)], {"starts": (3,), "stops": (3,), "steps": (2,)}),
    ("concat", [(0, 2), (0, 3)], {"axis": 1}),
    ("pad", [(0, 2), ()], {"low": (1, 0), "high": (0, 1), "interior": (2, 0)}),
    ("diagonal", [(3, 2)], {"offset": -3}),
    ("sort", [(2, 0)], {}),
    ("slice_update", [(3, 2), (0, 2)], {"starts": (1, 0), "steps": (-2, 1)}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), EMPTY)
def test_nothing_has_a_gradient_too(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]
) -> None:
    operands = [RNG.standard_normal(s) for s in shapes]
    made = gradients(name, *(np.asarray(x) for x in operands), **attrs)
    assert [m.shape for m in made] == shapes
    assert all(np.isfinite(m).all() for m in made)


def test_empty_gathers_and_scatters() -> None:
    nothing = np.zeros((0,), np.int64)
    (got,) = gradients("gather", np.ones((3, 0)), nothing, axes=(1,), position=1, mode="clip")
    assert got.shape == (3, 0)
    index, updates = np.array([4, 0]), np.ones((2, 2))
    of_x, of_updates = gradients("scatter", np.ones((0, 2)), index, updates, drop=True)
    assert of_x.shape == (0, 2)
    assert not of_updates.any()


# ------------------------------------------------------------------------------------ arrivals


def check_function(function: Any, x: Any, most: dict[str, int] | None = None) -> None:
    """First and second derivatives of a function against differences; `most` nodes of some ops."""
    region = traced(lambda value: function(value), [x])
    made = check_region(region, [x], RNG)
    assert made is not None
    check_region(made, [x, RNG.standard_normal(region.results[0].type.dims)], RNG)  # type: ignore[union-attr]
    counts = Counter(node.op.name for node in dce(made, Config()).nodes)
    assert all(counts[name] <= count for name, count in (most or {}).items()), counts


def test_slices_that_tile_an_array_are_joined() -> None:
    def unrolled(x: Any) -> Any:
        state = x[0] * 0
        for k in range(6):
            state = (state + x[k]) * x[k]
        return state

    check_function(unrolled, RNG.standard_normal((6, 2)), {"slice_update": 1})


def test_slices_with_gaps_overlaps_and_steps() -> None:
    def mixed(x: Any) -> Any:
        windows = [x[k : k + 3] * x[k + 1 : k + 4] for k in (0, 1, 4)]
        columns = x[2:5, 1:] * x[5:2:-1, :2] * x[::3, 0:1]
        return windows[0] * windows[1] + windows[2] + (columns * x[6, :2]).sum() + x[1:1].sum()

    check_function(mixed, RNG.standard_normal((8, 3)))


def test_rows_are_added_where_they_belong() -> None:
    index = np.array([1, 3, 1])

    def tied(x: Any) -> Any:
        return (x[index] * x[index + 1]) @ x.T * x[2, 0]

    check_function(tied, RNG.standard_normal((5, 2)), {"add": 1, "scatter": 2})
