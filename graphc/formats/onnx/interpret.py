"""The importer: a graph of the format is a function, run once on traced values.

    for node in graph: values[node.outputs] = TABLE[node.op](values[node.inputs], attributes)

Values are traced arrays or, where they are known while tracing (sizes, axes, small constants),
NumPy's own; lists of them are sequences.  Operators of small known values are computed at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError, LimitError
from graphc.formats.deciding_values import DecidedInside, Needed, is_known
from graphc.formats.encoded_values import (
    Carried,
    Text,
    carried,
    carriers,
    common_form,
    laid_bare,
    wrapped,
)
from graphc.formats.kinds import Kind
from graphc.formats.onnx.reader import MALFORMED
from graphc.formats.onnx.records import File, Node, Reference, Subgraph
from graphc.formats.onnx.schemas import body_of, check_call
from graphc.formats.onnx.table import Rule, find
from graphc.frontend.trace.trace import FunctionTrace, give_name
from graphc.ir.types import TupleType, leaves
from graphc.limits import check_within, limit
from graphc.ops.record.value import Trace, Value, current, tracing

Array = np.ndarray[Any, Any]
Scope = ChainMap[str, Any]
_UNCOMPUTABLE = (
    *MALFORMED,
    ArithmeticError,
    AssertionError,
    RecursionError,
    NotImplementedError,
    MemoryError,
)


class Refusal(GraphError):
    """A node that cannot be imported; `node` is what messages call it."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.title}: {reason}")


@record(frozen=True)
class Call:
    """A node being imported, for rules that look at it: its outputs, its opset, its graphs."""

    importer: Importer
    node: Node
    scope: Scope

    @property
    def outputs(self) -> int:
        """How many results it has, up to the last that is used."""
        return len(self.node.outputs)

    def wants(self, position: int) -> bool:
        """Whether a result has a name."""
        return position < len(self.node.outputs) and bool(self.node.outputs[position])

    def run(self, graph: Subgraph, *arguments: Any) -> list[Any]:
        """The results of a graph in an attribute, which sees the values around it."""
        if len(arguments) != len(graph.inputs):
            raise GraphError(f"its graph takes {len(graph.inputs)} values, got {len(arguments)}")
        return self.importer.run(graph, self.scope.new_child(dict(zip(graph.inputs, arguments))))


class Importer:
    """Imports one file into the trace that is active."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.depth = 0
        self.steps = 0

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The results of the file's graph on feeds."""
        made = self.run(self.file.graph, ChainMap(dict(feeds)))
        scope = dict(zip(self.file.graph.outputs, made))
        self._name_constants()
        return [_result(scope, self.file, name) for name in self.file.graph.outputs]

    def run(self, graph: Subgraph, scope: Scope) -> list[Any]:
        """The results of a graph whose inputs are in the innermost scope."""
        self.depth += 1
        try:
            return self._results(graph, scope)
        finally:
            self.depth -= 1

    def _results(self, graph: Subgraph, scope: Scope) -> list[Any]:
        self.steps += 1
        check_within("imported_nodes", self.steps, f"{self.file.name}: loops and functions copied")
        check_within("region_depth", self.depth, f"{self.file.name} has graphs in one another")
        here = scope.maps[0]
        for name, array in graph.constants.items():
            here.setdefault(name, carried(array))
        for node in graph.nodes:
            self.steps += self.depth > 1
            self._step(node, scope)
        return [scope.get(name) for name in graph.outputs]

    def _step(self, node: Node, scope: Scope) -> None:
        check_within("imported_nodes", self.steps, f"{self.file.name}: loops and functions copied")
        trace = current()
        assert trace is not None
        if trace.locate is not None:
            location = self.file.name, node.index
            trace.locate = lambda: location
        arguments = [_look_up(scope, name, node.title) if name else None for name in node.inputs]
        while arguments and arguments[-1] is None:
            arguments.pop()
        made = self.apply(node, arguments, scope)
        if len(made) < len([name for name in node.outputs if name]):
            raise Refusal(node, f"has {len(made)} results, the file names {len(node.outputs)}")
        for name, value in zip(node.outputs, made):
            if name:
                scope.maps[0][name] = value
                self._name(name, value, trace)

    def _name(self, name: str, value: Any, trace: Trace) -> None:
        own = isinstance(value, Value) and value.owner is trace
        if own and self.depth == 1 and name.isprintable() and isinstance(trace, FunctionTrace):
            give_name(trace.names, name, value.node.id)

    def _name_constants(self) -> None:
        """Let stored arrays that were read as they are have their names; results have theirs."""
        trace = current()
        if not isinstance(trace, FunctionTrace):
            return
        for name, array in self.file.graph.constants.items():
            if id(array) in trace.constants and name.isprintable():
                give_name(trace.names, name, trace.constants[id(array)][1].id)

    # ---------------------------------------------------------------------------------- one node

    def apply(self, node: Node, arguments: Sequence[Any], scope: Scope) -> Sequence[Any]:
        """The results of a node. Raises Refusal for one that has none here."""
        try:
            return _listed(self._apply(node, arguments, scope))
        except (Refusal, LimitError, Needed, DecidedInside):
            raise
        except GraphError as error:
            raise Refusal(node, error.message) from error
        except _UNCOMPUTABLE as error:
            raise Refusal(node, f"{type(error).__name__}: {error}"[:300]) from error

    def _apply(self, node: Node, arguments: Sequence[Any], scope: Scope) -> Any:
        own = self.file.functions.get((node.domain, node.op, node.overload))
        if own is not None:
            return self._inline(own, node, arguments, node.attributes)
        check_call(node)
        rule = find(node.domain, node.op, node.version)
        if rule is None:
            body = body_of(node, arguments, self.file.versions)
            if body is None:
                raise Refusal(node, "this operator is not supported")
            return self._inline(body, node, arguments, node.attributes)
        keywords = dict(node.attributes)
        if rule.takes_call:
            keywords["call"] = Call(self, node, scope)
        return self._ruled(rule, arguments, keywords)

    def _ruled(self, rule: Rule, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        found = list(carriers(arguments))
        if found and rule.moves is not None:
            moved = arguments[rule.moves]
            if len(list(carriers(moved))) < max(len(found), _array_count(moved)):
                raise GraphError("its values have different element types")
            form = common_form(found)
            return wrapped(self._ruled(rule, laid_bare(arguments, form), keywords), form)
        if rule.folds and not rule.carried and any(isinstance(value, Text) for value in found):
            raise GraphError("strings are not supported here")
        if rule.folds and not found and all(map(is_known, arguments)):
            known = _folded(rule.function, arguments, keywords)
            if known is not None:
                return known
        return rule.function(*arguments, **keywords)

    def _inline(
        self, body: Subgraph, node: Node, arguments: Sequence[Any], attributes: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The body of a function in place of its call."""
        given = {**body.defaults, **attributes}
        padded = [*arguments, *[None] * (len(body.inputs) - len(arguments))]
        if len(padded) > len(body.inputs):
            raise Refusal(node, f"takes {len(body.inputs)} values, got {len(padded)}")
        inner = Subgraph(
            body.name,
            tuple(_with_attributes(inner, given) for inner in body.nodes),
            body.inputs,
            body.outputs,
            body.constants,
            body.kinds,
        )
        return tuple(self.run(inner, ChainMap(dict(zip(body.inputs, padded)))))


def _with_attributes(node: Node, given: Mapping[str, Any]) -> Node:
    """A node of a function's body with the attributes of the call in the place of references."""

    def bound(value: Any) -> Any:
        if isinstance(value, Subgraph):
            nodes = tuple(_with_attributes(inner, given) for inner in value.nodes)
            return Subgraph(
                value.name, nodes, value.inputs, value.outputs, value.constants, value.kinds
            )
        return given.get(value.name) if isinstance(value, Reference) else value

    pairs = {name: bound(value) for name, value in node.attributes.items()}
    kept = {name: value for name, value in pairs.items() if value is not None}
    return Node(
        node.index,
        node.name,
        node.domain,
        node.op,
        node.version,
        node.inputs,
        node.outputs,
        kept,
        node.overload,
    )


def _result(scope: Mapping[str, Any], file: File, name: str) -> Any:
    value = scope.get(name)
    if value is None and file.graph.kinds.get(name, Kind()).form != "optional":
        raise GraphError(f"{file.name}: nothing makes the result {name!r}")
    return value


def _look_up(scope: Scope, name: str, reader: str) -> Any:
    if not name:
        return None
    try:
        return scope[name]
    except KeyError:
        raise GraphError(
            f"{reader} reads {name!r}, which nothing before it makes",
            hint="nodes that read one another in a circle cannot run",
        ) from None


def _listed(made: Any) -> Sequence[Any]:
    """The results of a rule: one alone, or several in a tuple (a list is one, a sequence)."""
    return made if isinstance(made, tuple) else (made,)


# ------------------------------------------------------------------------------------ folding


@contextmanager
def _untraced() -> Iterator[None]:
    """Functions called inside compute at once."""
    with tracing(None):  # type: ignore[arg-type]
        yield


def _folded(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: dict[str, Any]
) -> Any | None:
    """What a rule makes of known values, or None where that is more than may be kept.

    A trace that is thrown away tells the sizes first: a few bytes may ask for terabytes.
    """
    if _elements(arguments) > limit("folded_elements"):
        return None
    scratch = FunctionTrace()
    scratch.locate = None
    with tracing(scratch):
        function(*arguments, **keywords)
    sizes = (
        kind.size if kind.is_static else limit("folded_elements") + 1  # type: ignore[union-attr]
        for node in scratch.builder.nodes
        if not isinstance(node.type, TupleType)
        for kind in leaves(node.type)
    )
    if max(sizes, default=0) > limit("folded_elements"):
        return None
    with _untraced():
        made = function(*arguments, **keywords)
    return tuple(map(_plain, made)) if isinstance(made, tuple) else _plain(made)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, list | Carried):
        return value
    return np.asarray(value)


def _array_count(values: Iterable[Any]) -> int:
    """How many arrays there are, in sequences, too."""
    return sum(
        _array_count(value) if isinstance(value, list | tuple) else value is not None
        for value in values
    )


def _elements(arguments: Iterable[Any]) -> int:
    total = 0
    for value in arguments:
        if isinstance(value, list | tuple):
            total += _elements(value)
        elif value is not None:
            total += np.size(value)
    return total
