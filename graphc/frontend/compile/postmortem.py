"""What made a run fail: a kernel tells a status and its node; the reference interpreter, the value.

Only for what is cheap to repeat: plain graphs without loops or state, of no great size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import INDEX, STATUS, GraphError, OutOfRangeError, RunError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import Effect
from graphc.ir.types import Type, leaves
from graphc.ops.reference.interpreter import interpret

MOST_ELEMENTS = 1 << 24  # of all results together: a second or so
_BAD_INDEX, _NON_FINITE = STATUS[INDEX], STATUS[2]


def explained(error: GraphError, graph: Graph | Program, arguments: Sequence[Any]) -> GraphError:
    """The error, with index and extent, or where a result is not finite and what it is."""
    if isinstance(error, RunError) and isinstance(graph, Graph) and _is_cheap(graph):
        if isinstance(error, OutOfRangeError):
            _say(error, _BAD_INDEX, _index(graph, arguments) or _BAD_INDEX)
        elif error.message.startswith(_NON_FINITE):
            _say(error, _NON_FINITE, _NON_FINITE + _position(error, graph, arguments))
    return error


def _say(error: RunError, reason: str, text: str) -> None:
    """Put it in place of the reason; the device that is named behind that stays."""
    error.message = error.message.replace(reason, text, 1)


def _is_cheap(graph: Graph) -> bool:
    if any(node.regions or node.op.effect != Effect.PURE for node in graph.nodes):
        return False
    kinds = [kind for node in graph.nodes for kind in leaves(node.type)]
    sizes = [k.size for k in kinds if isinstance(k, Type) and k.is_static]
    return len(sizes) == len(kinds) and sum(sizes) <= MOST_ELEMENTS


def _index(graph: Graph, arguments: Sequence[Any]) -> str | None:
    try:
        interpret(graph, arguments)
    except OutOfRangeError as error:
        return error.message
    except GraphError:
        pass
    return None


def _position(error: RunError, graph: Graph, arguments: Sequence[Any]) -> str:
    """Of the node whose kernel failed; kernels keep the number of the node they compute."""
    number = error.details[0].split(" ", 1)[0] if error.details else ""
    node = next((n for n in graph.nodes if f"%{n.id}" == number), None)
    if node is None:
        return ""
    try:
        (value,) = interpret(_up_to(graph, node), arguments)
    except (GraphError, ValueError):
        return ""
    wrong = np.argwhere(~np.isfinite(value))
    if not len(wrong):
        return ""  # finite here: rounding differs
    place = tuple(map(int, wrong[0]))
    more = f", the first of {len(wrong)}" if len(wrong) > 1 else ""
    return f": {value[place]} at {list(place)}{more}" if place else f": {value}"


def _up_to(graph: Graph, node: Node) -> Graph:
    nodes = graph.nodes[: graph.nodes.index(node) + 1]
    return graph.replace(nodes=nodes, results=(node,), result_names=(), names={})
