"""What the writers of other formats share: the walk over a graph, by a rule for each op.

    for node in graph: names[node] = rules[node.op](writer, node, *names of its inputs)

What a format has no word for is written with other ops, by a function over traced values: an op's
own expansion, or one of a table.  What cannot be written is collected, and refused all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.frontend.trace.spec import symbols_of
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import Composite
from graphc.ir.types import AnyType, Dim, Dimension, TupleType, Type, leaves
from graphc.ops.control.control import param_node
from graphc.ops.record.value import Trace, as_value, tracing

Array = np.ndarray[Any, Any]
Names = Any  # what stands for a value, or a tuple of such
Rule = Callable[..., Names]

SHOWN = 9  # refusals in a message


class Refused(Exception):
    """A node that the format cannot express; the message says why."""


class Rules:
    """How each op is written in a format.

    rules     (writer, node, *names) -> names; None leaves the node to its expansion
    moves     ops that only move elements, which may be of any type
    traced    functions (*values, **attributes) -> values that say an op in terms of others
    """

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.moves: set[str] = set()
        self.traced: dict[str, Callable[..., Any]] = {}

    def rule(self, *ops: str, moves: bool = False) -> Callable[[Rule], Rule]:
        """Enter a rule."""

        def enter(function: Rule) -> Rule:
            self.rules.update(dict.fromkeys(ops, function))
            self.moves.update(ops if moves else ())
            return function

        return enter

    def in_other_ops(self, *ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Enter a function that makes what an op makes."""

        def enter(function: Callable[..., Any]) -> Callable[..., Any]:
            self.traced.update(dict.fromkeys(ops, function))
            return function

        return enter


@record(frozen=True)
class Refusal:
    """An op that cannot be written, why, and where the first of them stands."""

    op: str
    reason: str
    loc: tuple[str, int] | None

    def __str__(self) -> str:
        place = f" at {self.loc[0]}:{self.loc[1]}" if self.loc else ""
        return f"{self.op}{place}: {self.reason}"


class Exporter:
    """Writes graphs; `values` are the present values of variables that they read."""

    format: str  # its name
    rules: Rules

    def __init__(self, values: dict[tuple[str, str], Array] | None = None) -> None:
        self.refused: dict[tuple[str, str], Refusal] = {}
        self.values = values or {}
        self.sizes: set[str] = set()  # symbols that the arguments say

    def value_of(self, read: Node) -> Array:
        """The present value of the variable that a node reads."""
        key = read.attrs["container"], read.attrs["name"]
        if key not in self.values:
            raise Refused(f"the variable {key[1]!r} has no value")
        return self.values[key]

    def whole(self, graph: Graph, operands: Sequence[Names]) -> list[Names]:
        """Write a graph that is in no other: the names of its results. Raises GraphError that lists
        all that cannot be written."""
        self.sizes = symbols_of(p.type for p in graph.params)
        made = self.graph(graph, operands)
        self.require_written(f"@{graph.name}")
        return made

    def graph(self, graph: Graph, operands: Sequence[Names]) -> list[Names]:
        """Write the nodes of a graph on these operands: the names of its results."""
        made: dict[int, Names] = {p.id: name for p, name in zip(graph.params, operands)}
        for node in graph.nodes:
            made[node.id] = self.node(node, [made[n.id] for n in node.inputs])
        return [made[r.id] for r in graph.results]

    def node(self, node: Node, inputs: list[Names]) -> Names:
        """The names of what a node makes."""
        name, rules = node.op.name, self.rules
        try:
            self._require_said(node)
            found = self.converted(node, inputs)
            if found is None and name in rules.rules:
                found = rules.rules[name](self, node, *inputs)
            if found is not None:
                return found
            if name in rules.traced:
                return self.written_out(rules.traced[name], node, inputs)
            if isinstance(node.op.lower, Composite):
                return self.written_out(node.op.lower.expand, node, inputs)
            raise Refused(f"{self.format} has no operator for it")
        except Refused as refused:
            key = name, str(refused)
            self.refused.setdefault(key, Refusal(*key, node.loc))
            return self.placeholder(node.type)

    def _require_said(self, node: Node) -> None:
        found = unsaid(node, self.sizes)
        if found:
            raise Refused(f"a run finds out its size ({', '.join(found)})")

    def converted(self, node: Node, inputs: list[Names]) -> Names | None:
        """What is written for a node of types that its rule does not take; None where it does.
        Raises Refused."""
        return None

    def written_out(
        self, function: Callable[..., Any], node: Node, inputs: Sequence[Names]
    ) -> Names:
        """What a function of traced values makes of a node's operands."""
        params = tuple(param_node(k, n.type) for k, n in enumerate(node.inputs))
        trace = Trace(Builder(len(params)))
        trace.builder.loc = node.loc
        held = {"regions": node.regions} if node.op.regions else {}
        with tracing(trace):
            made = function(*map(trace.wrap, params), **held, **node.attrs.values_dict)
            several = isinstance(made, tuple | list)
            results = tuple(as_value(v).node for v in (made if several else (made,)))
        region = Graph(node.op.name, params, trace.builder.nodes, results)
        names = self.graph(region, inputs)
        return tuple(names) if several else names[0]

    def placeholder(self, kind: AnyType) -> Names:
        """What stands for a value that could not be written."""
        if isinstance(kind, TupleType):
            return tuple(map(self.placeholder, kind.elements))
        return self.stand_in(kind)

    def stand_in(self, kind: AnyType) -> Names:
        """The same of one value."""
        raise NotImplementedError

    def require_written(self, name: str) -> None:
        """Raise GraphError that lists all that could not be written."""
        if self.refused:
            found = list(self.refused.values())
            shown = [str(refusal) for refusal in found[:SHOWN]]
            more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
            raise GraphError(
                f"{name} holds {len(found)} op(s) that {self.format} cannot express",
                details=(*shown, *more),
            )


def unsaid(node: Node, symbols: set[str]) -> list[str]:
    """Extents of what a node makes that are not made of these symbols: a run counts them, or
    rounds what it divides."""
    dims = [d for kind in leaves(node.type) if isinstance(kind, Type) for d in kind.shape]
    open_ones = [d for d in dims if not isinstance(d, int)]
    is_said = [isinstance(d, Dim) and d.symbols() <= symbols for d in open_ones]
    return sorted({str(d) for d, said in zip(open_ones, is_said) if not said})


def static(dims: Sequence[Dimension]) -> tuple[int, ...]:
    """Extents that a rule must know. Raises Refused for symbolic ones."""
    if any(isinstance(d, Dim) for d in dims):
        raise Refused(f"it needs known extents, not {list(map(str, dims))}")
    return tuple(int(d) for d in dims)  # type: ignore[arg-type]
