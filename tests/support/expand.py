"""Running a composite's expansion with NumPy: trace it, then interpret the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.graph import Builder, Graph
from graphc.ir.op import OPS, Attrs, Composite, Op
from graphc.ops.record.value import Trace, literal_type, tracing
from graphc.ops.reference.interpreter import interpret


def traced(function: Callable[..., Any], arrays: Sequence[Any]) -> Graph:
    """The graph of `function` over Values of the arrays' types."""
    builder = Builder()
    params = []
    for k, array in enumerate(arrays):
        node = builder.emit(OPS["param"], (), {"name": f"p{k}"})
        params.append(node.replace(type=literal_type(np.asarray(array))))
    builder.nodes.clear()
    trace = Trace(builder)
    with tracing(trace):
        made = function(*(trace.wrap(p) for p in params))
    results = made if isinstance(made, tuple) else (made,)
    nodes = tuple(r.node for r in results)
    return Graph("f", tuple(params), builder.nodes, nodes, next_id=builder.next_id)


def expanded(graph: Graph) -> Graph:
    """The graph with every composite node replaced by its expansion, innermost last."""
    while any(isinstance(n.op.lower, Composite) for n in graph.nodes):
        graph = _expand_once(graph)
    return graph


def _expand_once(graph: Graph) -> Graph:
    builder = Builder(graph.next_id)
    trace = Trace(builder)
    mapped = {p.id: p for p in graph.params}
    with tracing(trace):
        for node in graph.nodes:
            inputs = tuple(mapped[n.id] for n in node.inputs)
            if isinstance(node.op.lower, Composite):
                values = (trace.wrap(n) for n in inputs)
                made = node.op.lower.expand(*values, **node.attrs.values_dict)
                assert made.type is node.type, (node, made.type)
                mapped[node.id] = made.node
            else:
                mapped[node.id] = node.replace(inputs=inputs)
                builder.nodes.append(mapped[node.id])
    results = tuple(mapped[r.id] for r in graph.results)
    return Graph("f", graph.params, builder.nodes, results, next_id=builder.next_id)


def run_composite(op: Op, arrays: Sequence[Any], attrs: Attrs) -> list[Any]:
    """The values of one composite op through its expansion, as a list."""
    lower = op.lower
    assert isinstance(lower, Composite)
    graph = traced(lambda *values: lower.expand(*values, **attrs.values_dict), arrays)
    return interpret(expanded(graph), [np.asarray(a) for a in arrays])
