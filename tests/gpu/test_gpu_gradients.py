"""Gradient rules on a GPU: the gradient graph of every op, in f64, and of public functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_harness import SEED, need_gpu, rng, run_graph, sized, some
from gradient_functions import FUNCTIONS
from gradient_harness import (
    ORDERED,
    apart,
    differentiable_ops,
    gradient_graph,
    is_float,
    noise,
    plain,
    region_of,
)

import graphc as gc
from graphc.ir.graph import Graph
from graphc.ir.op import Op, Sample
from graphc.ops.reference.interpreter import interpret

need_gpu()
pytestmark = pytest.mark.gpu

OPS_WITH_GRADIENT = [
    op for op in differentiable_ops() if op.samples is not None and not op.traits.on_cpu
]
MOST_SAMPLES = sized(1, 1000)
MOST_ELEMENTS = sized(300, 1 << 20)
BOUND = 1e-10


def check_gradient(region: Graph, operands: list[Any], random: np.random.Generator) -> bool:
    """The gradient of a region on the GPU equals the reference; whether there is any."""
    wrt = tuple(k for k, p in enumerate(region.params) if is_float(p))
    outputs = interpret(region, operands)
    if not wrt or not outputs:
        return False
    seeds = [np.where(np.isfinite(y), noise(random, y), 0) for y in outputs]
    graph = gradient_graph(region, wrt)
    arguments = [*operands, *seeds]
    for got, want in zip(run_graph(graph, arguments), interpret(graph, arguments), strict=True):
        scale = float(np.max(np.abs(want[np.isfinite(want)]), initial=1.0))
        where = f"{region.name}, seed {SEED}"
        np.testing.assert_allclose(got, want, BOUND, BOUND * scale, err_msg=where)
    return True


def chosen(op: Op) -> list[Sample]:
    """Samples of different shapes, types and attributes."""
    found: dict[str, Sample] = {}
    for sample in op.samples():
        arrays = [np.asarray(a) for a in sample.operands]
        small = sum(a.size for a in arrays) <= MOST_ELEMENTS
        if sample.good and small and any(a.size and a.dtype.kind in "fcV" for a in arrays):
            key = f"{[a.shape for a in arrays]} {[a.dtype.kind for a in arrays]} {sample.attrs}"
            found.setdefault(key, sample)
    return list(found.values())


@pytest.mark.parametrize("op", OPS_WITH_GRADIENT, ids=lambda op: op.name)
def test_gradient_of_op(op: Op) -> None:
    checked = 0
    for number, sample in enumerate(chosen(op)):
        random = rng(number)
        operands = [plain(a, random) for a in sample.operands]
        if op.name in ORDERED:
            operands[0] = apart(operands[0])
        checked += check_gradient(region_of(op, sample, operands), operands, random)
        if checked == MOST_SAMPLES:
            break
    assert checked


@pytest.mark.parametrize("name", some(FUNCTIONS, 40))
def test_gradient_of_public_function(name: str) -> None:
    function, x = FUNCTIONS[name]
    assert check_gradient(gc.compile(function).graph(x), [x], rng(3))
