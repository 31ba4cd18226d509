"""The writer: a graph becomes lines of StableHLO, one operation each.

    %3 = "stablehlo.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>

Operations take operands of one shape, so a rule says where one is broadcast.  A region begins with
the declaration of its arguments, and sees the values around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.formats.exporting import Array, Exporter, Names, Refused, Rules
from graphc.ir.graph import Node
from graphc.ir.types import BOOL, U8, AnyType, Dim, DType, StackType, Type, leaves, tensor

HLO = Rules()
rule, in_other_ops = HLO.rule, HLO.in_other_ops

_ELEMENTS = {"bool": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}


@record(frozen=True)
class Value:
    """A value of the module: its name and its type."""

    name: str
    type: Type

    @property
    def dims(self) -> tuple[int, ...]:
        return self.type.dims

    @property
    def dtype(self) -> DType:
        return self.type.dtype


def text_of(kind: Type) -> str:
    """A type in MLIR's words. Raises Refused for open sizes."""
    if any(isinstance(d, Dim) for d in kind.shape):
        raise Refused(f"of {kind}: sizes must be known (--bind gives them)")
    name = kind.dtype.name
    element = _ELEMENTS.get(name) or (f"ui{name[1:]}" if name[0] == "u" else name)
    return f"tensor<{''.join(f'{d}x' for d in kind.dims)}{element}>"


def attribute(value: Any) -> str:
    """An attribute in MLIR's words; text stays what it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    return f"array<i64{': ' if value else ''}{', '.join(str(int(v)) for v in value)}>"


Body = Callable[..., Sequence[Value]]  # from the arguments of a region to what it returns


class Writer(Exporter):
    """Lines of one module; `lines` are those of the function or region that is being written."""

    format, rules = "StableHLO", HLO

    def __init__(self, values: dict[tuple[str, str], Array] | None = None) -> None:
        super().__init__(values)
        self.lines: list[str] = []
        self.depth, self.count = 2, 0

    def converted(self, node: Node, inputs: list[Names]) -> Names | None:
        """Stacks grow with the run; types of this format do not."""
        for kind in (node.type, *(n.type for n in node.inputs)):
            if any(isinstance(leaf, StackType) for leaf in leaves(kind)):
                raise Refused("a stack grows as long as a loop runs, and types here have a size")
        return None

    def stand_in(self, kind: AnyType) -> Names:
        assert isinstance(kind, Type | StackType)
        return Value("%refused", kind)  # type: ignore[arg-type]

    def fresh(self) -> str:
        self.count += 1
        return f"%{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def op(
        self,
        kind: str,
        *operands: Value,
        to: Type | Sequence[Type],
        regions: Sequence[str] = (),
        **attributes: Any,
    ) -> Any:
        """Write an operation: its result, or a tuple of them where `to` is a list of types."""
        several = not isinstance(to, Type)
        types: Sequence[Type] = to if not isinstance(to, Type) else (to,)
        name = self.fresh()
        many = f":{len(types)}" if len(types) > 1 else ""
        given = ", ".join(v.name for v in operands)
        inner = f" ({', '.join(regions)})" if regions else ""
        listed = ", ".join(f"{key} = {attribute(value)}" for key, value in attributes.items())
        more = f" {{{listed}}}" if attributes else ""
        takes = ", ".join(text_of(v.type) for v in operands)
        gives = text_of(types[0]) if len(types) == 1 else f"({', '.join(map(text_of, types))})"
        left = f"{name}{many} = " if types else ""
        self.line(f'{left}"stablehlo.{kind}"({given}){inner}{more} : ({takes}) -> {gives}')
        if not several:
            return Value(name, types[0])
        numbered = len(types) > 1
        return tuple(Value(f"{name}#{k}" if numbered else name, t) for k, t in enumerate(types))

    def region(self, types: Sequence[Type], body: Body) -> str:
        """The text of a region with arguments of these types."""
        outer, self.lines = self.lines, []
        self.depth += 1
        try:
            params = [Value(self.fresh(), kind) for kind in types]
            made = body(*params)
            takes = ", ".join(text_of(v.type) for v in made)
            names = ", ".join(v.name for v in made)
            self.line(f'"stablehlo.return"({names}) : ({takes}) -> ()')
            declared = ", ".join(f"{p.name}: {text_of(p.type)}" for p in params)
            edge = "  " * (self.depth - 1)
            head = f"\n{edge}^bb0({declared}):" if params else ""
            return "\n".join(("{" + head, *self.lines, edge + "}"))
        finally:
            self.lines = outer
            self.depth -= 1

    # ---------------------------------------------------------------------------- constants, casts

    def constant(self, array: Any) -> Value:
        """A constant; its bytes stand in the text as they lie in memory."""
        array = np.asarray(array, order="C")
        if array.dtype == bool:
            made = self.constant(array.view(np.uint8))
            return self.cast(made, BOOL)
        kind = array_type(array)
        if not array.size:
            held = ""
        else:
            raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            held = f'"0x{raw.hex().upper()}"'
        made = self.op("constant", to=kind, value=f"dense<{held}> : {text_of(kind)}")
        return made  # type: ignore[no-any-return]

    def full(self, number: complex, kind: Type) -> Value:
        """A number everywhere."""
        element = U8 if kind.dtype is BOOL else kind.dtype
        raw = np.asarray(number).astype(element.numpy).tobytes()
        if not math.prod(kind.dims):
            return self.constant(np.zeros(kind.dims, kind.dtype.numpy))
        like = tensor(element, kind.shape)
        value = f'dense<"0x{raw.hex().upper()}"> : {text_of(like)}'
        made: Value = self.op("constant", to=like, value=value)
        return self.cast(made, BOOL) if kind.dtype is BOOL else made

    def cast(self, x: Value, element: DType) -> Value:
        if x.dtype is element:
            return x
        return self.op("convert", x, to=tensor(element, x.type.shape))  # type: ignore[no-any-return]

    def reshaped(self, x: Value, dims: Sequence[int]) -> Value:
        if tuple(dims) == x.dims:
            return x
        return self.op("reshape", x, to=tensor(x.dtype, tuple(dims)))  # type: ignore[no-any-return]

    def spread(self, x: Value, dims: Sequence[int]) -> Value:
        """Broadcast as NumPy does, aligned at the right."""
        if tuple(dims) == x.dims:
            return x
        first = len(dims) - len(x.dims)
        axes = tuple(range(first, len(dims)))
        to = tensor(x.dtype, tuple(dims))
        return self.op("broadcast_in_dim", x, to=to, broadcast_dimensions=axes)  # type: ignore[no-any-return]


def array_type(array: Array) -> Type:
    """The type of an array."""
    from graphc.ir.types import dtype

    return tensor(dtype(array.dtype), array.shape)


def type_of(node: Node) -> Type:
    """The type of what is one array."""
    assert isinstance(node.type, Type)
    return node.type


def types_of(kind: AnyType) -> tuple[Type, ...]:
    """The types of the arrays in it."""
    return tuple(leaf for leaf in leaves(kind) if isinstance(leaf, Type))
