"""How often a loop of the format runs, where known values alone make its condition.

Such a condition is made of a counter, as a rule, and its end.  The part of the body that makes it
is traced once, and that graph is run by the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError, LimitError
from graphc.formats.onnx.records import Subgraph
from graphc.frontend.trace.trace import Parameter, trace_function
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Effect
from graphc.ir.types import Type, dtype, leaves, tensor
from graphc.ops.record.value import functions as f
from graphc.ops.reference.interpreter import Interpreter

Array = np.ndarray[Any, Any]

# A tenth of a second or so: one element of one node costs 1, and a node as much as many of them.
MOST_WORK = 1 << 20
NODE_WORK = 64


def counted(most: int | None, state: Sequence[Any], body: Subgraph, call: Any) -> int | None:
    """How often a loop that begins runs, at most `most` times.

    None where only a run can tell, or where counting takes too long: the run counts then.
    """
    part = _decisive(body)
    if part is None:
        return None
    values = [state[k] for k in part.carried]
    if not all(isinstance(value, np.ndarray) and value.dtype != object for value in values):
        return None
    graph = _traced(part.graph, values, call)
    if graph is None:
        return None
    work = sum(NODE_WORK + _elements(node) for node in (*graph.params, *graph.nodes))
    interpreter, going = Interpreter(wide=False, state={}), np.array(True)
    with np.errstate(all="ignore"):
        for turn in range(MOST_WORK // work + 1):
            if not going or (most is not None and turn >= most):
                return turn
            given = [np.array(turn, np.int64), np.array(True), *values]
            going, *values = interpreter.graph(graph, given)
    return None


def _traced(part: Subgraph, values: Sequence[Array], call: Any) -> Graph | None:
    """One turn as a graph; None where a run alone can tell it, or its values change in type."""

    def turn(given: list[Any]) -> Any:
        going, *made = call.run(part, *given)
        return f.astype(f.reshape(going, ()), bool), made

    first = [np.array(0, np.int64), np.array(True), *values]
    try:
        parameters = [
            Parameter(f"x{k}", tensor(dtype(value.dtype), value.shape))
            for k, value in enumerate(first)
        ]
        graph = trace_function("turn", parameters, turn).graph
    except LimitError:
        raise
    except GraphError:  # it reads what is not known
        return None
    same = all(made.type is given.type for made, given in zip(graph.results, graph.params[1:]))
    plain = all(node.op.effect is Effect.PURE and not node.regions for node in graph.nodes)
    return graph if same and plain and all(map(_is_static, graph.nodes)) else None


def _is_static(node: Node) -> bool:
    return all(isinstance(kind, Type) and kind.is_static for kind in leaves(node.type))


def _elements(node: Node) -> int:
    return sum(kind.size for kind in leaves(node.type))  # type: ignore[union-attr, misc]


@record(frozen=True)
class _Decisive:
    """The part of a loop's body that its condition is made of, and the values it carries."""

    graph: Subgraph
    carried: tuple[int, ...]


def _decisive(body: Subgraph) -> _Decisive | None:
    """None where graphs inside the body have to do with its condition."""
    names, nodes = {body.outputs[0]}, set[int]()
    while True:
        before = len(names)
        for place in reversed(range(len(body.nodes))):
            if not names.isdisjoint(body.nodes[place].outputs):
                nodes.add(place)
                names.update(body.nodes[place].inputs)
        carried = [k for k, name in enumerate(body.inputs[2:]) if name in names]
        names.update(body.outputs[1 + k] for k in carried)
        if len(names) == before:
            break
    kept = tuple(body.nodes[place] for place in sorted(nodes))
    if any(True for node in kept for _ in node.graphs()):
        return None
    graph = Subgraph(
        body.name,
        kept,
        (*body.inputs[:2], *(body.inputs[2 + k] for k in carried)),
        (body.outputs[0], *(body.outputs[1 + k] for k in carried)),
        {name: body.constants[name] for name in body.constants.keys() & names},
        body.kinds,
    )
    return _Decisive(graph, tuple(carried))
