"""The writer: a graph becomes the nodes of the format, by a rule for each op.

A rule writes nodes with `writer.op("Gemm", ...)` and returns the names of what they make.

Regions are closed in graphc and see what is around them in the format: their parameters become the
names of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.formats.exporting import Array, Exporter, Names, Refused, Rules, static
from graphc.ir.graph import Node
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

__all__ = ["ONNX", "Refused", "Writer", "element_number", "rule", "static", "traced"]

SMALL_BYTES = 4096  # of constants that are compared by what they hold

ONNX = Rules()
rule, traced = ONNX.rule, ONNX.in_other_ops


class Writer(Exporter):
    """Nodes and constants of one model.

    nodes     those of the graph or body that is being written
    """

    format, rules = "ONNX", ONNX

    def __init__(self, values: dict[tuple[str, str], Array] | None = None) -> None:
        from onnx import helper, numpy_helper

        self.helper = helper
        self.numpy_helper = numpy_helper
        self.nodes: list[Any] = []
        self.constants: dict[tuple[Any, ...], Any] = {}
        super().__init__(values)
        self.symbols: dict[str, str] = {}
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

    def stand_in(self, kind: AnyType) -> Names:
        return "__refused"

    def converted(self, node: Node, inputs: list[Names]) -> Names | None:
        """Few operators compute bf16, and none complex numbers."""
        _require_real(node)
        is_narrow = node.op.name not in ONNX.moves and _has_bf16(node)
        return self.widened(node, inputs) if is_narrow else None

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
