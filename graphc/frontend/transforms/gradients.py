"""`gc.gradients`: gradients of a value that is already in a graph, and why one is missing.

The part of the graph between x and y becomes the region of a `grad` node; y may be in the trace
of a function (`gc.gradients(y, [x])`) or in a graph, by name (`gc.gradients("y", ["x"], graph=g)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError, TraceError
from graphc.frontend.files.gir_files import graph_of
from graphc.frontend.session.session_graph import Growing
from graphc.frontend.trace.region import emit_closed
from graphc.frontend.trace.tree import leaf_names
from graphc.frontend.transforms.grad import Wrt, loss_region
from graphc.ir.graph import Graph, Node
from graphc.ir.op import OPS, Effect
from graphc.ir.types import TupleType
from graphc.ops.autodiff.missing_gradients import explain_path, flows
from graphc.ops.autodiff.vjp import has_gradient
from graphc.ops.control.control import param_node
from graphc.ops.record.value import Stateful, Trace, Value, current, functions, lift, tracing


@record(frozen=True)
class Between:
    """The nodes between xs and ys as a closed region, and what it takes from outside."""

    region: Graph
    outside: tuple[Node, ...]


def dependants(nodes: Sequence[Node], xs: Sequence[Node]) -> set[int]:
    """Ids of what is computed from the xs, without themselves unless one depends on another."""
    given, depends = {x.id for x in xs}, set()
    for node in nodes:
        if any(n.id in depends or n.id in given for n in node.inputs):
            depends.add(node.id)
    return depends


def independent(nodes: Sequence[Node], xs: Sequence[Node]) -> list[list[int]]:
    """The xs in groups of which no member depends on another: a gradient by x also flows through
    an h between x and y that is asked for itself."""
    rest, groups = list(range(len(xs))), []
    while rest:
        depends = dependants(nodes, [xs[k] for k in rest])
        groups.append([k for k in rest if xs[k].id not in depends])
        rest = [k for k in rest if xs[k].id in depends]
    return groups


def between(nodes: Sequence[Node], ys: Sequence[Node], xs: Sequence[Node]) -> Between:
    """Cut out what depends on the xs and is needed for the ys.

    A write to a variable passes its value on: differentiating does not write again.
    """
    depends = dependants(nodes, xs)
    given, needed = {x.id for x in xs}, set()
    pending = list(ys)
    while pending:
        node = pending.pop()
        if node.id in depends and node.id not in given and node.id not in needed:
            needed.add(node.id)
            pending.extend(node.inputs)
    mapped: dict[int, Node] = {x.id: param_node(x.id, x.type, f"x{k}") for k, x in enumerate(xs)}
    outside: dict[int, Node] = {}

    def inner(node: Node) -> Node:
        if node.id not in mapped:
            outside[node.id] = node
            mapped[node.id] = param_node(node.id, node.type, f"outer{node.id}")
        return mapped[node.id]

    kept = []
    for node in nodes:
        if node.id in needed:
            inputs = tuple(inner(n) for n in node.inputs)
            if node.op.effect is Effect.WRITE:
                mapped[node.id] = inputs[0]
                continue
            mapped[node.id] = node.replace(inputs=inputs, after=())
            kept.append(mapped[node.id])
    results = tuple(inner(y) for y in ys)
    params = (*(mapped[x.id] for x in xs), *(mapped[n.id] for n in outside.values()))
    return Between(Graph("between", params, kept, results), tuple(outside.values()))


@refusing
def gradients(y: Any, xs: Any, unconnected: str = "none", graph: Any = None) -> Any:
    """The gradients of y (summed, if it is no scalar) by each of xs (or by one x).

    Inside a compiled function y and xs are traced arrays and the result is a list.  With `graph`
    they are names ("h", "h:1", "%7") and the result is the graph with one more result per gradient,
    named "dy/dx".  `unconnected` says what an x gets that y does not depend on: "none" (None; left
    out of a graph) or "zero".  Raises TraceError or FeedError for names and values that do not fit.
    """
    if unconnected not in ("none", "zero"):
        raise GraphError(f'unconnected is "none" or "zero", got {unconnected!r}')
    xs = [xs] if isinstance(xs, str | Value | Stateful) else list(xs)
    if graph is not None:
        return _of_graph(y, xs, unconnected, graph_of("gradients", graph))
    trace = current()
    if trace is not None:
        y, *xs = (lift(v, trace) if isinstance(v, Stateful) else v for v in (y, *xs))
    if trace is None or not all(isinstance(v, Value) for v in (y, *xs)):
        raise TraceError(
            "gc.gradients differentiates traced arrays",
            hint="call it in a compiled function, or name values of a graph with graph=",
        )
    return _emitted(trace, y, xs, unconnected)


def _emitted(trace: Trace, y: Value, xs: list[Value], unconnected: str) -> list[Value | None]:
    for value in (y, *xs):
        if value.owner is not trace:
            raise TraceError(f"{value!r} belongs to the function around this loop body or branch")
        if not has_gradient(value.type):
            raise TraceError(f"{value!r} has no gradient", hint="only floats have one")
    made: list[Value | None] = [None] * len(xs)
    for group in independent(trace.builder.nodes, [x.node for x in xs]):
        chosen = [xs[k] for k in group]
        cut = between(trace.builder.nodes, [y.node], [x.node for x in chosen])
        found = [k for k in range(len(group)) if flows(cut.region, k, (0,))]
        if found:
            operands = [*chosen, *map(trace.wrap, cut.outside), functions.ones_like(y)]
            results = emit_closed("grad", operands, (cut.region,), wrt=tuple(found), seeds=1)
            for k, value in zip(found, results[1:], strict=True):
                made[group[k]] = value
    if unconnected == "zero":
        made = [functions.zeros_like(x) if g is None else g for x, g in zip(xs, made, strict=True)]
    return made


def _of_graph(y: Any, xs: Sequence[Any], unconnected: str, graph: Graph) -> Graph:
    growing = Growing()
    growing.extend(graph, {}, "")
    trace = Trace(growing.builder)
    with tracing(trace):

        def value(name: Any) -> Value:
            node, (id, port) = growing.node(name), growing.edge(name)
            if isinstance(growing.by_id[id].type, TupleType):
                node = trace.builder.emit(OPS["item"], (growing.by_id[id],), {"index": port})
            return trace.wrap(node)

        made = _emitted(trace, value(y), [value(x) for x in xs], unconnected)
    old = [growing.by_id[growing.edge(name)[0]] for name in graph.result_names]
    pairs = [(f"d{y}/d{x}", g.node) for x, g in zip(xs, made, strict=True) if g is not None]
    whole = growing.graph()
    return whole.replace(
        name=graph.name,
        results=(*old, *(node for _, node in pairs)),
        result_names=(*graph.result_names, *(name for name, _ in pairs)),
    )


@refusing
def gradient_report(function: Callable[..., Any], wrt: Wrt = 0) -> Callable[..., dict[str, str]]:
    """The function that says, for each leaf of the arguments in wrt, whether its gradient flows.

    A gradient that is zero everywhere is explained: "the path is cut at %3 -> %4 = floor(%3) ...
    (model.py:9)".  It takes the arguments of `function`, arrays or specs, and runs nothing.
    """

    def report(*args: Any, **kwargs: Any) -> dict[str, str]:
        from graphc.frontend.compile.decorator import compile

        made: dict[str, str] = {}

        def traced(*inner: Any, **named: Any) -> Any:
            region, given, _, numbers = loss_region(
                function, wrt, False, inner, named, floats_only=False
            )
            paths = leaf_names(given.tree)
            for number in numbers:
                path = given.parameters[number].name
                made[path] = explain_path(region.graph, number, (0,))
            return np.float64(len(paths))

        compile(traced).graph(*args, **kwargs)
        return made

    return report
