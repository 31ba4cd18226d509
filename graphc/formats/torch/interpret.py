"""The importer: a program is run once on traced values.

    for node in block: values[node.outputs] = TABLE[node.target](**node.inputs)

Tensors are traced arrays, sizes and other numbers are Python's.  Views are linked to what they are
views of, as those of NumPy's style are, so that operators that work in place become functional.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import FeedError, GraphError, LimitError
from graphc.formats.deciding_values import DecidedInside, Needed, number
from graphc.formats.encoded_values import Narrow
from graphc.formats.torch.promotion import with_default
from graphc.formats.torch.records import Block, Name, Node, Program, Whole
from graphc.formats.torch.table import SAME_NAMES, Rule, find, why_not
from graphc.frontend.trace.trace import FunctionTrace, give_name
from graphc.frontend.trace.tracer import Tracer
from graphc.ir.sizes import Size
from graphc.limits import check_within
from graphc.ops.record.value import Trace, Value, current, lift
from graphc.ops.record.value import functions as f

Scope = ChainMap[str, Any]
SHOWN = 9
_UNCOMPUTABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    NotImplementedError,
    MemoryError,
)


class Refusal(GraphError):
    """A node that cannot be imported.

    outer  the node of the program's own graph that it is, or that holds it in a graph of its own
    """

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.title}: {reason}", location=node.location)
        self.outer = node


def nodes_of(block: Block) -> Iterator[Node]:
    """The nodes of a graph and of the graphs among their arguments."""
    for node in block.nodes:
        yield node
        for _, value in node.inputs:
            if isinstance(value, Block):
                yield from nodes_of(value)


def require_supported(program: Program) -> None:
    """Raise GraphError that lists every operator without a rule."""
    import graphc.formats.torch.operators  # noqa: F401  (fills the table)

    found: dict[str, Node] = {}
    for node in nodes_of(program.block):
        if find(node.target) is None:
            found.setdefault(node.target, node)
    if found:
        shown = [node.title + why_not(name) for name, node in found.items()][:SHOWN]
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise GraphError(
            f"{program.name} holds {len(found)} operator(s) that cannot be imported",
            details=(*shown, *more),
            hint="program.run_decompositions() makes simpler ones of many operators",
        )


@record(frozen=True)
class Call:
    """A node being imported, for rules that run the graphs among its arguments."""

    importer: Importer
    node: Node
    scope: Scope

    def run(self, block: Block, *arguments: Any) -> list[Any]:
        """The results of a graph on these values."""
        if len(arguments) != len(block.inputs):
            raise GraphError(f"its graph takes {len(block.inputs)} values, got {len(arguments)}")
        held = dict(zip(block.inputs, arguments))
        return self.importer.run(block, self.scope.new_child(held))


class Importer:
    """Imports one program into the trace that is active."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps = 0
        self.depth = 0

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The results of the program on feeds."""
        self._check_sizes(feeds)
        trace = current()
        assert trace is not None
        scope: dict[str, Any] = {}
        for name, value in self.program.fixed.items():
            scope[name] = _Unused(value) if isinstance(value, np.ndarray) else value
        for name, (source, axis) in self.program.sizes.items():
            scope[name] = feeds[source].shape[axis]
        with with_default(self.program.default):
            return self.run(self.program.block, ChainMap({**scope, **feeds}))

    def _check_sizes(self, feeds: Mapping[str, Any]) -> None:
        sizes: dict[str, int] = {}
        for name, kind in self.program.kinds.items():
            for axis, title in enumerate(kind.shape or ()):
                extent = feeds[name].shape[axis] if isinstance(title, str) else None
                if isinstance(title, str) and isinstance(extent, int | Size):
                    low, high = self.program.ranges.get(title, (None, None))
                    if sizes.setdefault(title, extent) != extent:
                        raise FeedError(f"{name}: size {title} is {extent} and {sizes[title]}")
                    if extent < (low or 0) or (high is not None and extent > high):
                        upper = "any" if high is None else high
                        raise FeedError(
                            f"{name}: size {title} is {extent}, "
                            f"the program was exported for {low or 0} to {upper}"
                        )

    def run(self, block: Block, scope: Scope) -> list[Any]:
        """The results of a graph whose inputs are in the innermost scope."""
        self.depth += 1
        check_within("region_depth", self.depth, f"{self.program.name} has graphs in one another")
        for node in block.nodes:
            self._step(node, scope)
        self.depth -= 1
        return [self._value(v, scope, "a result") for v in block.outputs]

    def _step(self, node: Node, scope: Scope) -> None:
        self.steps += self.depth > 1
        check_within("imported_nodes", self.steps, f"{self.program.name}: graphs copied")
        trace = current()
        assert trace is not None
        if trace.locate is not None:
            location = node.location or (self.program.name, node.index)
            trace.locate = lambda: location
        try:
            made = self._apply(node, scope, trace)
            self._keep(node.outputs, made, scope, trace, node)
        except Refusal as error:
            error.outer = node
            raise
        except (LimitError, Needed, DecidedInside):
            raise
        except GraphError as error:
            raise Refusal(node, error.message) from error
        except _UNCOMPUTABLE as error:
            raise Refusal(node, f"{type(error).__name__}: {error}"[:300]) from error

    def _apply(self, node: Node, scope: Scope, trace: Trace) -> Any:
        rule = find(node.target)
        if rule is None:
            raise Refusal(node, "this operator is not supported")
        ordered: list[Any] = []
        named: dict[str, Any] = {}
        for name, given in node.inputs:
            value = self._value(given, scope, node.title)
            known = rule.names is not None and name in rule.names
            title = name if known else SAME_NAMES.get(name, name)
            if rule.names is None or not name or rule.names == {"call"}:
                ordered.append(value)
            elif title in rule.names:
                named[title] = value
            elif title not in _IGNORED:
                raise GraphError(f"argument {name!r} is not supported")
        if rule.takes_call:
            named["call"] = Call(self, node, scope)
        made = rule.function(*ordered, **named)
        first = ordered[0] if ordered else named.get("x")
        if rule.in_place and rule.views:
            return self._become(node.inputs[0][1], made, scope)
        return _written(first, made) if rule.in_place else _own(rule, made, first)

    def _become(self, given: Any, made: Any, scope: Scope) -> Any:
        """A tensor that was given another shape in place: its name means the view from here on."""
        if isinstance(given, Name):
            scope.maps[0][given.name] = made
        return made

    def _value(self, given: Any, scope: Scope, reader: str) -> Any:
        if isinstance(given, Name):
            if given.name not in scope:
                raise GraphError(f"{reader} reads {given.name!r}, which nothing before it makes")
            value = scope[given.name]
            return self._lifted(given.name, value, scope) if isinstance(value, _Unused) else value
        if isinstance(given, list | tuple):
            return [self._value(item, scope, reader) for item in given]
        return given

    def _lifted(self, name: str, held: _Unused, scope: Scope) -> Any:
        """A stored array as a value of the outermost trace, once it is used."""
        from graphc.formats.encoded_values import carried

        trace = current()
        assert trace is not None
        plain = carried(held.array)
        if isinstance(plain, Narrow):
            raise GraphError(f"{name!r} has elements of {plain.element}, which are not supported")
        value = lift(plain, trace)
        scope.maps[0][name] = value
        title = self.program.titles.get(name, name)
        if isinstance(trace, FunctionTrace) and title.isprintable():
            give_name(trace.names, title, value.node.id)
        return value

    def _keep(
        self, names: Sequence[Any], made: Any, scope: Scope, trace: Trace, node: Node
    ) -> None:
        """Enter results under their names."""
        if names and isinstance(names[0], Whole):
            if isinstance(made, list | tuple):
                scope.maps[0][names[0].name] = made
                return
            names = [names[0].name]
        if len(names) == 1 and isinstance(names[0], tuple):
            names = names[0]
        values = list(made) if isinstance(made, list | tuple) else [made]
        if len(values) < len(names):
            raise Refusal(node, f"has {len(values)} results, the file names {len(names)}")
        for name, value in zip(names, values):
            if isinstance(name, tuple):
                self._keep(name, value, scope, trace, node)
            elif isinstance(name, str):
                value = lift(value, trace) if isinstance(value, np.ndarray) else value
                scope.maps[0][name] = value
                own = isinstance(value, Value) and value.owner is trace and self.depth == 1
                if own and isinstance(trace, FunctionTrace):
                    give_name(trace.names, name, value.node.id)


class _Unused:
    """A stored array that nothing has read yet."""

    def __init__(self, array: Any) -> None:
        self.array = array


# What says where and how memory lies, which is the compiler's business.
_IGNORED = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"}


def _own(rule: Rule, made: Any, first: Any) -> Any:
    """A result that shares no memory with the first argument unless it is a view."""
    if isinstance(made, list):
        return [_own(rule, value, first) for value in made]
    shared = rule.copies or (made is first and not rule.views)
    return made.copy() if shared and isinstance(made, Tracer) else made


def _written(target: Any, made: Any) -> Any:
    """The first argument, after a result was written to it, or to each of a list."""
    if isinstance(target, list):
        return [_written(one, value) for one, value in zip(target, made, strict=True)]
    if not isinstance(target, Tracer):
        raise GraphError("works in place on what is no tensor")
    value = made if isinstance(made, Value) else f.full(target.shape, made, dtype=target.dtype)
    if np.dtype(value.dtype) != np.dtype(target.dtype):
        value = f.astype(value, target.dtype)
    if tuple(value.shape) != tuple(target.shape):
        value = f.broadcast_to(value, target.shape)
    target.assign(value)
    return target


def number_of(value: Any) -> Any:
    """A number of Python from a size or from an array of one element."""
    return number(value) if isinstance(value, Value | np.ndarray) else value
