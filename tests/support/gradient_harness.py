"""Gradients against differences: every op of the registry, in f64, along random directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OPS, Op, Sample
from graphc.ir.types import TupleType, Type, dtype, tensor
from graphc.ops.control.control import param_node
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.gradient import gradient

DIRECTIONS = 3
FIVE_POINTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))
# Ops of the compiler's own.
OWN = {
    "param", "const", "tuple", "item", "workspace", "pack", "unpack", "barrier", "stack", "push",
    "pop", "read", "assign", "send", "recv", "print", "assert", "callback", "summary", "axis_sum",
    "axis_gather", "axis_slice",
}  # fmt: skip

# Ops with a kink wherever two elements are equal.
ORDERED = {"sort", "topk", "max", "min", "cummax", "cummin"}


# Ops whose vectors are known up to their phases, and those some of whose vectors complete a basis:
# see test_decompositions.py.
PHASES, COMPLETED = {"eigh", "svd"}, {"complete", "full"}


def differentiable_ops() -> Iterator[Op]:
    """Every op that a gradient flows through, but those whose gradient is that of a region."""
    for name, op in sorted(OPS.items()):
        if op.differentiable and name not in OWN and not op.regions and not op.is_custom:
            yield op


def is_smooth(op: Op, sample: Sample) -> bool:
    """Are the results a differentiable function of the operands?"""
    if any(sample.attrs.get(flag) for flag in COMPLETED):
        return False
    return op.name not in PHASES or np.asarray(sample.operands[0]).dtype.kind != "c"


def plain(array: Any, rng: np.random.Generator) -> Any:
    """A float operand in f64 whose values are finite, moderate and off every kink; others kept."""
    array = np.asarray(array)
    kind = dtype(array.dtype).kind
    if kind not in "fc":
        return array
    wide = array.astype(np.complex128 if kind == "c" else np.float64)
    size = np.abs(wide)
    usual = wide[np.isfinite(wide) & (size > 0.04) & (size < 20)]
    if not usual.size:
        usual = np.array([0.7])
    bad = ~(np.isfinite(wide) & (size > 0.04) & (size < 20))
    wide = np.where(bad, rng.choice(usual, wide.shape), wide)
    return wide * (1 - 0.03 * rng.random(wide.shape))


def apart(array: Any) -> Any:
    """Values in the same order with equal distances, so that no step makes two of them change
    places."""
    order = np.argsort(array.reshape(-1), kind="stable")
    made = np.empty(array.size)
    made[order] = np.linspace(-4, 4, array.size)
    return made.reshape(array.shape)


def definite(matrices: Any) -> Any:
    """Matrices that are symmetric and positive definite, and stay so for small steps."""
    return matrices @ np.conj(np.swapaxes(matrices, -1, -2)) + np.eye(matrices.shape[-1])


def region_of(op: Op, sample: Sample, operands: list[Any]) -> Graph:
    """The op alone, with its float results as the results."""
    params = tuple(param_node(k, tensor(dtype(a.dtype), a.shape)) for k, a in enumerate(operands))
    builder = Builder(len(params))
    node = builder.emit(op, params, sample.attrs)
    results: list[Node] = [node]
    if isinstance(node.type, TupleType):
        count = len(node.type.elements)
        results = [builder.emit(OPS["item"], (node,), {"index": k}) for k in range(count)]
    return Graph(op.name, params, builder.nodes, tuple(r for r in results if is_float(r)))


def is_float(node: Node) -> bool:
    return isinstance(node.type, Type) and node.type.dtype.kind in "fc"


def gradient_graph(region: Graph, wrt: tuple[int, ...]) -> Graph:
    """(operands, cotangents of all results) -> gradients, without `grad` nodes."""
    kinds = (*region.signature[0], *region.signature[1])
    params = tuple(param_node(k, kind) for k, kind in enumerate(kinds))
    builder = Builder(len(params))
    seeds = len(region.results)
    node = builder.emit(OPS["grad"], params, {"wrt": wrt, "seeds": seeds}, regions=(region,))
    items = [builder.emit(OPS["item"], (node,), {"index": seeds + k}) for k in range(len(wrt))]
    graph = Graph(f"grad_{region.name}", params, builder.nodes, tuple(items))
    return gradient(graph, Config())


def noise(rng: np.random.Generator, like: Any) -> Any:
    like = np.asarray(like)
    made = rng.standard_normal(like.shape)
    if like.dtype.kind == "c":
        made = made + 1j * rng.standard_normal(like.shape)
    return made.astype(like.dtype)


def inner(a: list[Any], b: list[Any]) -> float:
    """Re <a, b> over a list of arrays."""
    return float(sum(np.sum(np.conj(x) * y).real for x, y in zip(a, b, strict=True)))


def along(function: Callable[[list[Any]], float], at: list[Any], way: list[Any]) -> float:
    """The derivative of a number along a direction, by five-point differences."""
    step = 1e-3
    return sum(
        weight * function([x + k * step * v for x, v in zip(at, way, strict=True)]) / step
        for k, weight in FIVE_POINTS
    )


def check_region(
    region: Graph, operands: list[Any], rng: np.random.Generator, bound: float = 1e-6
) -> Graph | None:
    """Compare the gradient of a region with differences; returns the gradient graph."""
    wrt = tuple(k for k, p in enumerate(region.params) if is_float(p))
    outputs = interpret(region, operands)
    if not wrt or not outputs:
        return None
    seeds = [np.where(np.isfinite(y), noise(rng, y), 0) for y in outputs]
    graph = gradient_graph(region, wrt)
    found = interpret(graph, [*operands, *seeds])

    def value(moved: list[Any]) -> float:
        arguments = list(operands)
        for k, x in zip(wrt, moved, strict=True):
            arguments[k] = x
        made = interpret(region, arguments)
        return inner(seeds, [np.where(s != 0, y, 0) for s, y in zip(seeds, made, strict=True)])

    for _ in range(DIRECTIONS):
        way = [noise(rng, operands[k]) for k in wrt]
        scale = max(1.0, *(float(np.max(np.abs(g), initial=0)) for g in found))
        want = along(value, [operands[k] for k in wrt], [0.3 * v for v in way]) / 0.3
        got = inner(found, way)
        size = max(abs(want), scale)
        assert abs(got - want) <= bound * size, f"{region.name}: {got} for {want}"
    return graph


def check_sample(op: Op, sample: Sample, seed: int, orders: int = 1) -> None:
    """First derivatives of an op on a sample, and those of its gradient graph."""
    rng = np.random.default_rng(seed)
    operands = [plain(a, rng) for a in sample.operands]
    if op.name in ORDERED:
        operands[0] = apart(operands[0])
    if op.name == "cholesky":
        operands[0] = definite(operands[0])
    made = check_region(region_of(op, sample, operands), operands, rng)
    if orders > 1 and made is not None:
        seeds = [
            noise(rng, np.empty(p.type.dims, p.type.dtype.numpy))  # type: ignore[union-attr]
            for p in made.params[len(operands) :]
        ]
        check_region(made, [*operands, *seeds], rng, 3e-6)
