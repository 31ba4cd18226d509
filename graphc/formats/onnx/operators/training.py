"""Gradients and steps of optimisers: ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.records import Node, Subgraph
from graphc.formats.onnx.table import operator
from graphc.frontend.transforms.grad import grad
from graphc.ops.record.value import functions as f

TRAINING = "ai.onnx.preview.training"


def _each(
    values: tuple[Any, ...], parts: int, step: Callable[..., tuple[Any, ...]]
) -> tuple[Any, ...]:
    """A step for each parameter; the values are all parameters, then all gradients, and so on."""
    refuse(len(values) % parts == 0, f"{len(values)} values in groups of {parts}")
    count = len(values) // parts
    made = [step(*values[k::count]) for k in range(count)]
    return tuple(row[k] for k in range(len(made[0])) for row in made)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Any,
    count: Any,
    *values: Any,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    slower = f.add(f.multiply(f.astype(count, np.float32), np.float32(decay_factor)), np.float32(1))
    pace = f.divide(rate, slower)

    def step(x: Any, gradient: Any, squares: Any) -> tuple[Any, Any]:
        whole = f.add(gradient, f.multiply(x, np.float32(norm_coefficient)))
        total = f.add(squares, f.multiply(whole, whole))
        size = f.add(f.sqrt(total), np.float32(epsilon))
        return f.subtract(x, f.divide(f.multiply(pace, whole), size)), total

    return _each(values, 3, step)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Any,
    count: Any,
    *values: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    refuse(mode in ("standard", "nesterov"), f"no mode {mode!r}")
    first = f.equal(count, 0)
    factor = f.where(first, np.float32(1), np.float32(beta))

    def step(x: Any, gradient: Any, velocity: Any) -> tuple[Any, Any]:
        whole = f.add(f.multiply(x, np.float32(norm_coefficient)), gradient)
        new = f.add(f.multiply(velocity, np.float32(alpha)), f.multiply(whole, factor))
        move = new if mode == "standard" else f.add(whole, f.multiply(new, np.float32(alpha)))
        return f.subtract(x, f.multiply(rate, move)), new

    return _each(values, 3, step)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Any,
    count: Any,
    *values: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    turn = f.astype(count, np.float32)
    unbiased = f.divide(
        f.sqrt(f.subtract(1, f.power(np.float32(beta), turn))),
        f.subtract(1, f.power(np.float32(alpha), turn)),
    )
    pace = f.where(f.greater(count, 0), f.multiply(rate, unbiased), rate)

    def step(x: Any, gradient: Any, mean: Any, square: Any) -> tuple[Any, Any, Any]:
        whole = f.add(f.multiply(x, np.float32(norm_coefficient)), gradient)
        v = f.add(f.multiply(mean, np.float32(alpha)), f.multiply(whole, np.float32(1 - alpha)))
        part = f.multiply(f.multiply(whole, whole), np.float32(1 - beta))
        h = f.add(f.multiply(square, np.float32(beta)), part)
        size = f.add(f.sqrt(h), np.float32(epsilon))
        new = f.subtract(x, f.divide(f.multiply(pace, v), size))
        return f.multiply(new, np.float32(1 - norm_coefficient_post)), v, h

    return _each(values, 4, step)


@operator("Gradient", domain=TRAINING, folds=False)
def gradient(*values: Any, xs: Sequence[str], zs: Sequence[str] = (), y: str, call: Any) -> Any:
    """The gradient of a value of the graph with respect to other values of it, at these values."""
    names = (*xs, *zs)
    refuse(len(values) == len(names) == len(set(names)), f"{len(values)} values for {len(names)}")
    nodes = _between(call.importer.file.graph, set(names), y)
    part = Subgraph("gradient", nodes, names, (y,), {}, {})
    whole = grad(lambda *given: f.sum(call.run(part, *given)[0]), wrt=tuple(range(len(xs))))
    return tuple(whole(*values))


def _between(graph: Subgraph, known: set[str], result: str) -> tuple[Node, ...]:
    """The nodes of a graph that a value needs, from known values on."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    seen, waiting = set(known), [result]
    found: dict[int, Node] = {}
    while waiting:
        name = waiting.pop()
        if name in seen or name not in makers:
            continue
        node = makers[name]
        seen.update(node.outputs)
        found[node.index] = node
        waiting += node.inputs
    return tuple(found[index] for index in sorted(found))
