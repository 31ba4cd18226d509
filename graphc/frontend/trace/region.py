"""Tracing closed regions: loop bodies, branches and functions that are differentiated.

What a region uses of the function around it is captured: it becomes one more parameter of the
region and one more operand of its node.  Captures nest: a value of the outermost trace that is used
in a body two levels down is an operand on both levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError, TraceError
from graphc.frontend.compile.signature import Static, is_number, leaf_key, parameter_type
from graphc.frontend.trace.trace import FunctionTrace, Parameter, identifier
from graphc.frontend.trace.tracer import Tracer
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten, unique_names
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OPS
from graphc.ir.promotion import weak_promote
from graphc.ir.sizes import Size
from graphc.ir.types import Dim, DType, TupleType, Type, symbol
from graphc.ir.user_lines import location_of
from graphc.ops.control.control import param_node
from graphc.ops.record.value import (
    Stateful,
    Trace,
    Value,
    cast_value,
    current,
    emit,
    is_python_number,
    lift,
    tracing,
)
from graphc.passes.normalise.cut_phases import sizes_of


class RegionTrace(FunctionTrace):
    """The trace of a region inside another trace.

    What one that runs `once` counts, the enclosing one knows; a body, branch or slice keeps it.
    """

    def __init__(self, outer: Trace, once: bool, fixed_by: str = "") -> None:
        super().__init__(getattr(outer, "scope", None))
        self.is_body = not once or getattr(outer, "is_body", False)
        self.fixed_by = fixed_by or outer.fixed_by
        self.outer = outer
        if isinstance(outer, FunctionTrace) and outer.locate != outer._locate:
            self.locate = outer.locate  # an importer's, which knows the layer or node
        self.builder.place = outer.builder.place
        self.captured: dict[int, tuple[Value, Node]] = {}  # by outer id: (value, parameter)

    def capture(self, value: Value) -> Value:
        if value.owner is not self.outer:
            value = self.outer.capture(value)
        node = value.node
        known = self.captured.get(node.id)
        if known is None:
            kind = node.type
            assert isinstance(kind, Type)
            param = self.parameter(self.title(node), kind)[0]
            known = self.captured[node.id] = self.outer.wrap(node, value.weak), param
        return Tracer(known[1], self, value.weak)

    def title(self, node: Node) -> str:
        """The name of what is captured, where it has one that is free here."""
        name = node.attrs["name"] if node.op.traits.parameter else None
        return name if name and name not in self.names else f"outer{len(self.captured)}"


@record(frozen=True)
class Region:
    """A traced region: its own parameters come first, then the captured ones.

    The results are those of the function, then what its run counts (`FunctionTrace.counts`).
    """

    graph: Graph
    tree: TreeDef
    weak: tuple[bool, ...]  # which results are Python numbers as far as promotion goes
    captured: dict[int, tuple[Value, Node]]
    counts: tuple[str, ...] = ()

    @property
    def types(self) -> list[Type]:
        return [r.type for r in self.graph.results[: len(self.weak)]]  # type: ignore[misc]

    def made(self, results: Sequence[Value]) -> tuple[Any, ...]:
        """What an op on it gives, without the counts: these are the enclosing trace's from here."""
        first = len(self.weak)
        last = first + len(self.counts)
        for name, value in zip(self.counts, results[first:last], strict=True):
            enclosing().counts.setdefault(name, value.node)  # type: ignore[attr-defined]
        return (*results[:first], *results[last:])


def enclosing() -> Trace:
    """The trace that a region is part of."""
    trace = current()
    assert trace is not None
    return trace


def trace_region(
    name: str,
    parameters: Sequence[Parameter],
    call: Callable[[list[Tracer]], Any],
    targets: Sequence[DType | None] = (),
    once: bool = False,
    fixed_by: str = "",
    keep: Callable[[list[Value], TreeDef, RegionTrace], list[Value]] | None = None,
) -> Region:
    """Trace `call` as a region of the current trace, which runs `once` or how often one knows not.

    `fixed_by` says why its shapes are fixed.  `targets` are dtypes that results which came from
    Python numbers are cast to, where they fit; `keep` says what of results leaves the region.
    Raises TraceError with the user's line for what has no meaning in a graph.
    """
    trace = RegionTrace(enclosing(), once, fixed_by)
    titles = unique_names([p.name for p in parameters])
    made = [trace.parameter(t, p.type, p.weak) for t, p in zip(titles, parameters)]
    try:
        with tracing(trace):
            leaves, tree = flatten(call([tracer for _, tracer in made]))
            values = [as_result(leaf, trace, k) for k, leaf in enumerate(leaves)]
            for k, (value, target) in enumerate(zip(values, targets)):
                if target is not None and value.weak and adapts(value.element, target):
                    values[k] = cast_value(value, target)
            values = keep(values, tree, trace) if keep else values
            results = tuple(v.node for v in values)
            if trace.counts and not once:
                require_known(values, trace)
                own = (*(node for node, _ in made), *(p for _, p in trace.captured.values()))
                tell_sizes(trace, own, results)
    except GraphError as error:
        raise error.at(location_of(error)) from None
    finally:
        trace.close()
    params = (*(node for node, _ in made), *(param for _, param in trace.captured.values()))
    counts, weak = tuple(trace.counts), tuple(v.weak for v in values)
    counting = tuple(trace.counts.values())
    graph = Graph(
        identifier(name),
        params,
        trace.builder.nodes,
        (*results, *counting) if once else (*counting, *results),
        names=trace.given_names,
        next_id=trace.builder.next_id,
    )
    if once or not counts:
        return Region(graph, tree, weak, trace.captured, counts)
    made_graph, captured = in_phases(graph, counts, trace)
    return Region(made_graph, tree, weak, captured)


def require_known(values: Sequence[Value], trace: RegionTrace) -> None:
    """Raise TraceError for a result of a size that only the region knows."""
    for k, value in enumerate(values):
        assert isinstance(value.type, Type)
        for extent in value.type.shape:
            if isinstance(extent, Dim | Size) and extent.symbols() & trace.counts.keys():
                raise TraceError(
                    f"result {k} is {value.type}, of a size that the run finds, and"
                    f" {trace.fixed_by}",
                    location=value.node.loc,
                    hint="return what is of a fixed size, or give it one (size=); a loop may carry "
                    "what it finds: np.concatenate([found, y])",
                )


def counted_around(trace: RegionTrace) -> set[str]:
    """The sizes that traces around this one count."""
    found = set[str]()
    outer: Trace | None = trace.outer
    while isinstance(outer, FunctionTrace):
        found |= outer.counts.keys()
        outer = getattr(outer, "outer", None)
    return found


def tell_sizes(trace: RegionTrace, params: Sequence[Node], results: Sequence[Node]) -> None:
    """Let the region have an array of each size that it uses and no operand is as long as."""
    assert trace.scope is not None
    sizes = [size for node in (*trace.builder.nodes, *results) for size in sizes_of(node)]
    given = [size for param in params for size in sizes_of(param)]
    known = {repr(size) for size in given}
    around = counted_around(trace)
    for name in sorted({name for size in (*sizes, *given) for name in size.symbols()}):
        if name not in known and (name not in trace.scope.inner or name in around):
            extent = trace.scope.symbols.get(name, symbol(name))
            with tracing(trace.outer):
                told = emit("broadcast", np.zeros((), np.bool_), dims=(extent,))
            trace.capture(told)


def in_phases(
    graph: Graph, counts: tuple[str, ...], trace: RegionTrace
) -> tuple[Graph, dict[int, tuple[Value, Node]]]:
    """A graph of one node that runs this one phase by phase, and what it captures."""
    params = [param_node(k, p.type, p.attrs["name"]) for k, p in enumerate(graph.params)]
    own = dict(zip(graph.params, params, strict=True))
    builder = Builder(len(params))
    builder.place = trace.builder.place
    loc = next(iter(trace.counts.values())).loc
    made = builder.emit(OPS["phased"], params, {"counts": counts}, regions=(graph,), loc=loc)
    items = [made]
    if isinstance(made.type, TupleType):
        count = len(made.type.elements)
        items = [builder.emit(OPS["item"], (made,), {"index": k}, loc=loc) for k in range(count)]
    outer = Graph(graph.name, tuple(params), builder.nodes, tuple(items), next_id=builder.next_id)
    return outer, {id: (value, own[p]) for id, (value, p) in trace.captured.items()}


def adapts(weak: DType, target: DType) -> bool:
    """Does a Python number of dtype `weak` become `target` without loss (1 a float, 1.5 no int)?"""
    return weak_promote(target, weak) is target


def as_result(leaf: Any, trace: Trace, number: int) -> Value:
    """A result of a region as a value of its trace."""
    arrays = Value | Stateful | np.ndarray | np.generic | Dim | Size
    if isinstance(leaf, arrays) or is_python_number(leaf):
        return lift(leaf, trace)
    if hasattr(leaf, "__array__"):
        return lift(np.asarray(leaf), trace)
    raise TraceError(
        f"result {number} of a loop body, branch or differentiated function is "
        f"{type(leaf).__name__}, not an array",
        hint="return arrays in any nesting of dict, list, tuple or dataclass",
    )


def emit_region(
    op: str, operands: Sequence[Value], regions: Sequence[Region], /, **attrs: Any
) -> tuple[Any, ...]:
    """Emit a region op on operands and what its regions capture; returns its results."""
    captured, graphs = closed(regions)
    return emit_closed(op, (*operands, *captured), graphs, **attrs)


def emit_closed(
    op: str, operands: Sequence[Value], graphs: Sequence[Graph], /, **attrs: Any
) -> tuple[Any, ...]:
    """Emit a region op whose operands are complete; returns its results."""
    trace = enclosing()
    nodes = tuple([lift(v, trace).node for v in operands])
    made = trace.emit(OPS[op], nodes, attrs, regions=tuple(graphs))
    return made if isinstance(made, tuple) else (made,)


def closed(regions: Sequence[Region]) -> tuple[list[Value], list[Graph]]:
    """What the regions capture together, and their graphs with equal parameter lists."""
    union: dict[int, Value] = {}
    for region in regions:
        for id, (outer, _) in region.captured.items():
            union.setdefault(id, outer)
    graphs = []
    for region in regions:
        graph, next_id = region.graph, region.graph.next_id
        params = list(graph.params[: len(graph.params) - len(region.captured)])
        for id, outer in union.items():
            known = region.captured.get(id)
            params.append(known[1] if known else param_node(next_id, outer.type, f"outer{next_id}"))
            next_id += known is None
        graphs.append(graph.replace(params=tuple(params), next_id=next_id))
    return list(union.values()), graphs


class Operands:
    """Arguments taken apart: the arrays and numbers among their leaves, and how to put them back.

    What is no array (strings, functions, dtypes) stays as it is, and so does a number for
    which `stays(path, number)` holds.
    """

    def __init__(
        self,
        arguments: Any,
        name: Callable[[str], str] = str,
        stays: Callable[[str, Any], bool] | None = None,
    ) -> None:
        trace = enclosing()
        self.name = name
        self.leaves, self.tree = flatten(arguments)
        self.positions: list[int] = []
        self.values: list[Value] = []
        self.parameters: list[Parameter] = []
        for position, (leaf, path) in enumerate(zip(self.leaves, leaf_names(self.tree))):
            if stays is not None and is_number(leaf) and stays(path, leaf):
                continue
            key = leaf_key(leaf)
            kind = parameter_type(key)
            if kind is None:
                if not isinstance(key, Static):
                    raise TraceError(
                        f"{path or 'the operand'} is {type(leaf).__name__}, which is neither an "
                        "array nor a number",
                        hint="register the class with gc.register_pytree, or close over it",
                    )
                continue
            value = lift(leaf, trace)
            self.positions.append(position)
            self.values.append(trace.wrap(value.node, value.weak))  # later writes do not reach it
            self.parameters.append(Parameter(name(path) or "x", value.type, value.weak))

    def rebuilt(self, values: Sequence[Any]) -> Any:
        """The arguments with other values in the place of the arrays."""
        leaves = list(self.leaves)
        for position, value in zip(self.positions, values, strict=True):
            leaves[position] = value
        return unflatten(self.tree, leaves)
