"""The writer: a graph becomes the nodes of the format, by a rule for each op.

    for node in graph: names[node] = RULES[node.op](writer, node, *names of its inputs)

A rule writes nodes with `writer.op("Gemm", ...)` and returns the names of what they make.  What the
format has no word for is written with other ops, by a function over traced values: an op's own
expansion, or one of the table.  What cannot be written is collected, and refused all at once.

Regions are closed in graphc and see what is around them in the format: their parameters become the
names of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import Composite
from graphc.ir.types import (
    BF16,
    F32,
    AnyType,
    Dim,
    Dimension,
    DType,
    StackType,
    TupleType,
    Type,
    leaves,
    tensor,
)
from graphc.ops.control.control import param_node
from graphc.ops.record.value import Trace, as_value, tracing
from graphc.record import record

Array = np.ndarray[Any, Any]
Names = Any  # the name of a value, or a tuple of them
Rule = Callable[..., Names]

SMALL_BYTES = 4096  # of constants that are compared by what they hold

RULES: dict[str, Rule] = {}
MOVES: set[str] = set()
TRACED: dict[str, Callable[..., Any]] = {}  # functions of values that say an op in terms of others


class Refused(Exception):
    """A node that the format cannot express; the message says why."""


def rule(*ops: str, moves: bool = False) -> Callable[[Rule], Rule]:
    """Enter a rule (writer, node, *names) -> names; None leaves the node to its expansion.

    One that only moves elements takes them of any type.
    """

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        MOVES.update(ops if moves else ())
        return function

    return enter


def traced(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function (*values, **attributes) -> values that makes what an op makes."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        TRACED.update(dict.fromkeys(ops, function))
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


class Writer:
    """Nodes and constants of one model.

    nodes     those of the graph or body that is being written
    values    the present values of variables that the graph reads
    """

    def __init__(self, values: dict[tuple[str, str], Array] | None = None) -> None:
        from onnx import helper, numpy_helper

        self.helper = helper
        self.numpy_helper = numpy_helper
        self.nodes: list[Any] = []
        self.constants: dict[tuple[Any, ...], Any] = {}
        self.refused: dict[tuple[str, str], Refusal] = {}
        self.symbols: dict[str, str] = {}
        self.values = values or {}
        self.count = 0

    # ---------------------------------------------------------------------------- nodes, constants

    def fresh(self) -> str:
        """A name that nothing has; names of users never begin with two underscores here."""
        self.count += 1
        return f"__{self.count}"

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Write a node: the name of its result, or a tuple of names."""
        made = tuple(self.fresh() for _ in range(outputs))
        self.nodes.append(self.helper.make_node(kind, inputs, made, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, array: Any) -> str:
        """A constant; equal ones are written once, outside all bodies."""
        array = np.asarray(array, order="C")
        small = array.nbytes <= SMALL_BYTES
        key = (array.dtype.str, array.shape, array.tobytes() if small else id(array))
        found = self.constants.get(key)
        if found is None:
            proto = self.numpy_helper.from_array(array, self.fresh())
            found = self.constants[key] = (proto, array)  # the array is kept, and so is its id
        return str(found[0].name)

    def number(self, value: float | bool, element: DType) -> str:
        """A constant without axes."""
        return self.constant(np.asarray(value).astype(element.numpy))

    def integers(self, values: Sequence[int]) -> str:
        """A constant vector of i64."""
        return self.constant(np.array(values, np.int64))

    def cast(self, name: str, element: DType) -> str:
        return str(self.op("Cast", name, to=element_number(element)))

    # ---------------------------------------------------------------------------- sizes

    def extents(self, dims: Sequence[Dimension]) -> str:
        """A vector of i64 of these extents."""
        if not any(isinstance(d, Dim) for d in dims):
            return self.integers([int(d) for d in dims])  # type: ignore[arg-type]
        return str(self.op("Concat", *map(self.extent, dims), axis=0))

    def extent(self, dim: Dimension) -> str:
        """A vector of one i64: the value of a dimension."""
        if not isinstance(dim, Dim):
            return self.integers([dim])
        total: str | None = None
        for monomial, coefficient in dim.terms:
            product: str | None = (
                None if coefficient == 1 and monomial else self.integers([coefficient])
            )
            for symbol in monomial:
                name = self.symbols[symbol]
                product = name if product is None else self.op("Mul", product, name)
            assert product is not None
            total = product if total is None else self.op("Add", total, product)
        assert total is not None
        return total

    def measure(self, params: Sequence[Node], names: Sequence[str]) -> None:
        """Find out the values of symbols: each is an extent of some parameter."""
        for param, name in zip(params, names):
            assert isinstance(param.type, Type)
            for axis, dim in enumerate(param.type.shape):
                alone = isinstance(dim, Dim) and dim.terms == (((str(dim),), 1),)
                if alone and str(dim) not in self.symbols:
                    self.symbols[str(dim)] = self.op("Shape", name, start=axis, end=axis + 1)

    # ---------------------------------------------------------------------------- graphs

    def graph(self, graph: Graph, operands: Sequence[Names]) -> list[Names]:
        """Write the nodes of a graph on these operands: the names of its results."""
        made: dict[int, Names] = {p.id: name for p, name in zip(graph.params, operands)}
        for node in graph.nodes:
            made[node.id] = self.node(node, [made[n.id] for n in node.inputs])
        return [made[r.id] for r in graph.results]

    def node(self, node: Node, inputs: list[Names]) -> Names:
        """The names of what a node makes."""
        name = node.op.name
        try:
            _require_real(node)
            if name not in MOVES and _has_bf16(node):
                return self.widened(node, inputs)
            found = RULES[name](self, node, *inputs) if name in RULES else None
            if found is not None:
                return found
            if name in TRACED:
                return self.written_out(TRACED[name], node, inputs)
            if isinstance(node.op.lower, Composite):
                return self.written_out(node.op.lower.expand, node, inputs)
            raise Refused("ONNX has no operator for it")
        except Refused as refused:
            key = name, str(refused)
            self.refused.setdefault(key, Refusal(*key, node.loc))
            return _placeholder(node.type)

    def widened(self, node: Node, inputs: Sequence[Names]) -> Names:
        """A node on bf16, which few operators and no runtime compute, in f32."""
        kinds = tuple(_wide(n.type) for n in node.inputs)
        params = tuple(param_node(k, kind) for k, kind in enumerate(kinds))
        made = node.replace(inputs=params, type=node.op.result_type(kinds, node.attrs))
        given = [
            name if kind is n.type else self.cast(name, F32)
            for name, kind, n in zip(inputs, kinds, node.inputs)
        ]
        return self._narrowed(self.node(made, given), made.type, node.type)

    def _narrowed(self, names: Names, made: AnyType, wanted: AnyType) -> Names:
        if isinstance(made, TupleType) and isinstance(wanted, TupleType):
            parts = zip(names, made.elements, wanted.elements)
            return tuple(self._narrowed(*part) for part in parts)
        return names if made is wanted else self.cast(names, BF16)

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

    def body(
        self,
        title: str,
        inputs: Sequence[tuple[str, AnyType]],
        write: Callable[[], Sequence[str]],
        types: Sequence[AnyType],
    ) -> Any:
        """A graph for an attribute; its results are made inside it, as the format wants."""
        outer, self.nodes = self.nodes, []
        try:
            results = [self.op("Identity", name) for name in write()]
            return self.helper.make_graph(
                self.nodes,
                title,
                [self.info(name, kind) for name, kind in inputs],
                [self.info(name, kind) for name, kind in zip(results, types)],
            )
        finally:
            self.nodes = outer

    def info(self, name: str, kind: AnyType) -> Any:
        """The declaration of a value."""
        if isinstance(kind, StackType):
            inner = self.helper.make_tensor_type_proto(element_number(kind.element.dtype), None)
            return self.helper.make_value_info(name, self.helper.make_sequence_type_proto(inner))
        assert isinstance(kind, Type)
        shape = [str(d) if isinstance(d, Dim) else d for d in kind.shape]
        return self.helper.make_tensor_value_info(name, element_number(kind.dtype), shape)


def _placeholder(kind: AnyType) -> Names:
    if isinstance(kind, TupleType):
        return tuple(map(_placeholder, kind.elements))
    return "__refused"


def _require_real(node: Node) -> None:
    for kind in leaves(node.type):
        inner = kind.element if isinstance(kind, StackType) else kind
        if isinstance(inner, Type) and inner.dtype.is_complex:
            raise Refused("ONNX computes no complex numbers")


def _has_bf16(node: Node) -> bool:
    kinds = [n.type for n in node.inputs]
    return any(isinstance(kind, Type) and kind.dtype is BF16 for kind in kinds)


def _wide(kind: AnyType) -> AnyType:
    bf16 = isinstance(kind, Type) and kind.dtype is BF16
    return tensor(F32, kind.shape) if bf16 else kind  # type: ignore[union-attr]


def element_number(element: DType) -> int:
    """The number of an element type in the format."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(element.numpy)))


def static(dims: Sequence[Dimension]) -> tuple[int, ...]:
    """Extents that a rule must know. Raises Refused for symbolic ones."""
    if any(isinstance(d, Dim) for d in dims):
        raise Refused(f"it needs known extents, not {list(map(str, dims))}")
    return tuple(int(d) for d in dims)  # type: ignore[arg-type]


def require_written(writer: Writer, name: str) -> None:
    """Raise GraphError that lists all that could not be written."""
    if writer.refused:
        found = list(writer.refused.values())
        shown = [str(refusal) for refusal in found[:9]]
        more = [f"and {len(found) - 9} more"] if len(found) > 9 else []
        raise GraphError(
            f"{name} holds {len(found)} op(s) that ONNX cannot express", details=(*shown, *more)
        )
