"""Gradients of products, convolutions, pooling, attention and factorisations beyond the samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from effort import crossed, few
from gradient_harness import along, check_sample, gradient_graph, inner, region_of

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.op import OPS, Sample
from graphc.ir.types import Type
from graphc.ops.nn import attention_gradient
from graphc.ops.record.value import emit
from graphc.ops.tuning import tuned


def check_function(function: Callable[[Any], Any], x: Any, bound: float = 1e-7) -> None:
    """The compiled gradient of a number against differences along random directions."""
    rng = np.random.default_rng(1)
    found = gc.compile(gc.grad(function))(x)
    value = gc.compile(function)
    for _ in range(3):
        way = rng.standard_normal(x.shape)
        want = along(lambda moved: float(value(moved[0])), [x], [way])
        assert abs(inner([found], [way]) - want) <= bound * max(1.0, abs(want))


# ------------------------------------------------------------------------------------ products


def test_products_differentiate_into_contractions_of_the_arrays_as_they_lie() -> None:
    a, b = np.ones((5, 3, 4)), np.ones((4, 2))
    region = region_of(OPS["matmul"], Sample((a, b)), [a, b])
    names = [node.op.name for node in gradient_graph(region, (0, 1)).nodes]
    assert names.count("einsum") == 2
    assert not {"transpose", "broadcast", "sum"} & set(names)


@pytest.mark.parametrize(
    ("equation", "terms"),
    [
        ("ii->", 1),
        ("ij->", 1),
        ("ij,jk,ki->i", 3),
        ("ij,kl->ikjl", 2),
        ("...i,...j->...ij", 2),
        ("ij,ij->", 2),
        ("ii,ij->j", 2),
    ],
)
def test_einsum(equation: str, terms: int) -> None:
    x = np.random.default_rng(0).normal(size=(4, 4))
    check_function(lambda x: np.sum(np.einsum(equation, *(x,) * terms) ** 2), x)


def test_a_number_contracts_with_an_array() -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    double = gc.compile(lambda x: emit("einsum", np.float32(2), x.T, equation=",ab->ab"))
    assert double(x).tolist() == [[0, 4], [2, 6]]


# ------------------------------------------------------------------------------------ windows

STEPS = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 3)]  # (stride, dilation)


@pytest.mark.parametrize(("step", "groups"), [*itertools.product(STEPS, (1, 2, 4))])
def test_convolution(step: tuple[int, int], groups: int) -> None:
    """Strides with a rest, beyond the window and with gaps in it; groups narrow and wide."""
    rng = np.random.default_rng(groups)
    for window in ((3, 2), (1, 5)):
        x, w = rng.normal(size=(2, 4, 11, 16)), rng.normal(size=(4, 4 // groups, *window))
        attrs = {"stride": (step[0], 2), "dilation": (step[1], 1), "groups": groups}
        check_sample(OPS["conv"], Sample((x, w), attrs), groups, orders=2)


def test_wide_groups_contract() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 6, 5, 5)), rng.normal(size=(8, 3, 3, 3))
    attrs = {"stride": (1, 1), "dilation": (1, 1), "groups": 2}
    region = region_of(OPS["conv"], Sample((x, w), attrs), [x, w])
    assert "conv_weights" in {node.op.name for node in gradient_graph(region, (1,)).nodes}
    check_sample(OPS["conv"], Sample((x, w), attrs), 0, orders=2)


@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_with_padding(transposed: bool) -> None:
    rng = np.random.default_rng(3)
    w = rng.normal(size=(3, 3, 3, 3))
    function = gc.conv_transpose if transposed else gc.conv
    x = rng.normal(size=(2, 3, 6, 7))
    check_function(lambda x: np.sum(function(x, w, stride=2, padding=1) ** 2), x)
    check_function(lambda w: np.sum(function(x, w, stride=2, padding=1) ** 2), w)


@pytest.mark.parametrize("pool", [gc.max_pool, gc.min_pool, gc.avg_pool])
def test_pooling_with_padding(pool: Callable[..., Any]) -> None:

    def pooled(options: dict[str, Any], x: Any) -> Any:
        return np.sum(pool(x, 3, **options) ** 2)

    x = np.random.default_rng(5).permutation(2 * 7 * 9).reshape(1, 2, 7, 9) / 10.0
    for options in ({}, {"stride": 1}, {"padding": 1, "ceil_mode": True}):
        check_function(partial(pooled, options), x)


def test_the_first_of_equal_elements_takes_all() -> None:
    x = np.zeros((1, 1, 4), np.float32)
    found = gc.compile(gc.grad(lambda x: np.sum(gc.max_pool(x, 2, stride=1))))(x)
    assert found.tolist() == [[[1, 1, 1, 0]]]


# ------------------------------------------------------------------------------------ attention

SHAPES = [
    ((2, 12, 3), (2, 14, 3), (2, 14, 5)),
    ((2, 4, 9, 3), (2, 2, 9, 3), (2, 2, 9, 2)),
    ((2, 4, 9, 3), (1, 4, 9, 3), (1, 4, 9, 2)),
]


@pytest.mark.parametrize(("shapes", "causal"), [*itertools.product(SHAPES, (True, False))])
def test_attention_in_bands_and_computed_anew(
    shapes: Any, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "gradient_band", 4)
    monkeypatch.setattr(tuned, "gradient_band_causal", 3)
    monkeypatch.setattr(attention_gradient, "few_scores", lambda q, v: False)
    rng = np.random.default_rng(0)
    operands = tuple(rng.normal(size=shape) for shape in shapes)
    check_sample(OPS["attention"], Sample(operands, {"causal": causal}), 1, orders=2)


MASKS = [
    ((9, 9), bool),
    ((2, 1, 1, 9), bool),
    ((2, 1, 9, 9), bool),
    ((9, 9), float),
    ((2, 1, 1, 9), float),
    ((9, 1), float),
    ((9,), float),
    ((2, 4, 9, 9), float),
]


@pytest.mark.parametrize(("mask", "causal"), crossed(MASKS, (True, False)))
def test_masks_of_attention_computed_anew(
    mask: Any, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "gradient_band", 4)
    monkeypatch.setattr(tuned, "gradient_band_causal", 3)
    monkeypatch.setattr(attention_gradient, "few_scores", lambda q, v: False)
    rng = np.random.default_rng(0)
    shape, kind = mask
    hidden = rng.normal(size=shape) if kind is float else rng.random(shape) > 0.4
    operands = (*(rng.normal(size=(2, 4, 9, d)) for d in (3, 3, 2)), hidden)
    check_sample(OPS["attention"], Sample(operands, {"causal": causal}), 1, orders=2)


def test_long_attention_keeps_no_scores() -> None:
    """Between the passes only arrays of the operands' size live: none of the scores does."""
    q = np.zeros((1, 256, 8))

    def loss(q: Any) -> Any:
        return np.sum(gc.attention(q, q, q) ** 2)

    graph = next(value for name, value, *_ in gc.compile(gc.grad(loss)).stages(q) if name == "cse")
    result = next(k for k, n in enumerate(graph.nodes) if n.op.name == "barrier")
    before = set(graph.nodes[:result])
    crossing = {n for node in graph.nodes[result:] for n in node.inputs} & before
    sizes = [n.type.size for n in crossing if isinstance(n.type, Type)]
    assert sizes
    assert max(sizes) < 256 * 256


# ------------------------------------------------------------------------------------ matrices

MATRIX_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "det": np.linalg.det,
    "slogdet": lambda a: np.linalg.slogdet(a)[1],
    "inv": lambda a: np.sum(np.linalg.inv(a) ** 2),
    "solve": lambda a: np.sum(np.linalg.solve(a, np.arange(4.0)) ** 2),
    "solve both": lambda a: np.sum(np.linalg.solve(a, a @ a + 1) ** 2),
    "cholesky": lambda a: np.sum(np.linalg.cholesky(a @ a.T)[:, :2] ** 3),
    "power": lambda a: np.sum(np.linalg.matrix_power(a, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(MATRIX_FUNCTIONS, 4))
def test_matrix_functions_twice(name: str) -> None:
    x = np.random.default_rng(2).normal(size=(4, 4)) + 3 * np.eye(4)
    function = MATRIX_FUNCTIONS[name]
    check_function(function, x)
    weights = np.arange(16.0).reshape(4, 4) / 16
    check_function(lambda x: np.sum(gc.grad(function)(x) * weights), x)


# ------------------------------------------------------------------------------------ custom ops


def _doubled(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = 2 * x[i]


def _gradient_through(name: str, rule: Any) -> Any:
    op = gc.custom_op(name, gradient=rule)(_doubled)
    return gc.compile(gc.grad(lambda x: np.sum(op(x) * x)))(np.arange(3.0))


@pytest.mark.slow
def test_custom_gradient() -> None:
    assert _gradient_through("doubled_a", lambda ct, y, x: (ct * 2,)).tolist() == [0, 4, 8]
    assert _gradient_through("doubled_b", lambda ct, y, x: ct * 2).tolist() == [0, 4, 8]
    assert _gradient_through("doubled_c", lambda ct, y, x: (None,)).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (None, "doubled_d has no gradient rule"),
        (lambda ct, y, x: (ct, ct), "2 cotangents for 1 operand"),
        (lambda ct, y, x: (np.sum(ct),), r"type f64\[\] for operand 0, which is f64\[3\]"),
        (lambda ct, y, x: (ct.astype(np.float32),), r"type f32\[3\] for operand 0"),
    ],
)
def test_custom_gradients_that_do_not_fit(rule: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        _gradient_through("doubled_d", rule)
