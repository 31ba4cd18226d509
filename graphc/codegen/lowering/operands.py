"""Folding views of a contraction's operands into strides.

A chain of transposes, slices, broadcasts and reshapes between a stored value and a contraction is
followed symbolically: if the position it reads is an affine function of the operand's index, the
contraction reads the stored value itself with other strides and an offset.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.lowering.evaluate import Element, Elements, tensor_type
from graphc.ir.graph import Node
from graphc.ir.op import Contraction
from graphc.ir.types import F32, I8, I32, I64, U8, DType
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import Pair
from graphc.ops.record.dims import row_major_strides

# What contractions widen while they read, and to what.
NARROW = {"bf16": F32, "f16": F32, "i8": I32, "u8": I32, "i16": I32, "u16": I32}

BYTES = (I8, U8)

Dims = list[tuple[str, int, int, int, int]]
Terms = dict[Expr | None, int]  # a sum: the factor of each variable, and of 1


class Read:
    """How an operand reads a stored value: position = offset + sum(stride[axis] * index[axis]).

    The stored value may be of a narrower type than the operand.
    """

    __slots__ = ("offset", "source", "strides")

    def __init__(self, source: Node, offset: int, strides: tuple[int, ...]) -> None:
        self.source = source
        self.offset = offset
        self.strides = strides

    @property
    def dtype(self) -> DType:
        return tensor_type(self.source).dtype

    @property
    def is_packed(self) -> bool:
        """Whether panels are stored in place of the value."""
        return self.source.op.traits.unpacks


def affine(expr: Expr) -> Terms | None:
    """Coefficients of loop variables (None: the constant), or None if the expression is not
    affine.
    """
    if expr.op == "const":
        return {None: expr.data}
    if expr.op == "size":
        return {None: expr.data}
    if expr.op == "var":
        return {expr: 1}
    if expr.op not in ("add", "sub", "mul") or expr.dtype is not I64:
        return None
    left, right = (affine(a) for a in expr.args)
    if left is None or right is None:
        return None
    if expr.op == "mul":
        if set(left) <= {None}:
            left, right = right, left
        if not set(right) <= {None}:
            return None
        factor = right.get(None, 0)
        return {key: value * factor for key, value in left.items()}
    sign = 1 if expr.op == "add" else -1
    total = dict(left)
    for key, value in right.items():
        total[key] = total.get(key, 0) + sign * value
    return total


def read_of(operand: Node, is_stored: Callable[[Node], bool], widens: bool = False) -> Read | None:
    """How reading `operand` reads a stored value, or None if that is not affine.

    With `widens` the values may be cast to a wider type on the way.
    """
    if is_stored(operand):
        return Read(operand, 0, row_major_strides(tensor_type(operand).dims))
    source = operand
    while not is_stored(source):
        if len(source.inputs) != 1:
            return None
        source = source.inputs[0]
    b = Scalars()
    elements = Elements(b)
    kind = tensor_type(source)
    elements.bind_buffer(source, Buffer(0, kind.dtype.real, kind.size, "in"))
    variables = [b.make("var", I64, (), k) for k in range(tensor_type(operand).rank)]
    made = elements.at(operand, tuple(variables))
    wide = NARROW.get(kind.dtype.name)  # of no complex type
    if widens and wide is tensor_type(operand).dtype and made.op == "cast":
        made = made.args[0]
    terms = position_of(made, kind.dtype) if not b.body else None
    if terms is None:
        return None
    return Read(source, terms.get(None, 0), tuple(terms.get(v, 0) for v in variables))


def position_of(made: Element, element: DType) -> Terms | None:
    """Which element of a buffer an element is, unchanged; None if it is something else."""
    if not element.is_complex:
        plain = not isinstance(made, Pair) and made.op == "load"
        return affine(made.args[0]) if plain else None
    if not isinstance(made, Pair) or not made.re.op == made.im.op == "load":
        return None
    terms, following = affine(made.re.args[0]), affine(made.im.args[0])
    if terms is None or following != terms | {None: terms.get(None, 0) + 1}:
        return None  # its parts do not lie side by side
    return {variable: factor // 2 for variable, factor in terms.items()}


def axis_of(extent: int, stride: int, dims: tuple[int, ...]) -> int | None:
    """The axis of a row-major operand that a contraction dim runs along in full; None if there is
    none.
    """
    for axis, (have, step) in enumerate(zip(dims, row_major_strides(dims), strict=True)):
        if have == extent and step == stride and extent != 1:
            return axis
    return None


def meet(first: object, second: object) -> bool:
    """May a contraction widen operands of these types while it reads them?"""
    return first is second or (first in BYTES and second in BYTES)


def can_fold_view(node: Node, position: int, is_stored: Callable[[Node], bool]) -> bool:
    """May operand `position` of a contraction stay a view?"""
    read = read_of(node.inputs[position], is_stored, widens=True)
    return read is not None and folded_dims(node, {position: read}) is not None


def folded_dims(node: Node, reads: dict[int, Read]) -> Dims | None:
    """The contraction's dims with the strides of its operands' views; None where they do not
    decompose.
    """
    lower = node.op.lower
    assert isinstance(lower, Contraction)
    made: Dims = []
    for role, extent, *strides in lower.dims(node):
        for position, read in reads.items():
            stride = strides[position]
            if stride == 0 or extent == 1 or is_plain(node.inputs[position], read):
                continue
            axis = axis_of(extent, stride, tensor_type(node.inputs[position]).dims)
            if axis is None:
                return None
            strides[position] = read.strides[axis]
        made.append((role, extent, strides[0], strides[1], strides[2]))
    return made


def is_plain(operand: Node, read: Read) -> bool:
    """The view reads a contiguous run in row-major order."""
    dims = tensor_type(operand).dims
    pairs = zip(row_major_strides(dims), read.strides, dims, strict=True)
    return all(mine == theirs or extent == 1 for mine, theirs, extent in pairs)
