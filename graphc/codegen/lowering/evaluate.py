"""Pulling one element of a region's node: the heart of lowering.

`Elements.at(node, index)` returns the scalar expression of a node at an index tuple, inlining
element-wise ops and index lambdas down to what is already in memory or in a register.  Nothing is
computed twice at one index: expressions are hash-consed and memoised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.errors import GraphError
from graphc.ir.graph import Node
from graphc.ir.op import Alias, Compute, Scalar
from graphc.ir.types import BOOL, DType, Type
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import Pair
from graphc.loops.vecmath import exp_below_zero
from graphc.ops.record.dims import row_major_strides

Index = tuple[Expr, ...]
Element = Any  # Expr, or Pair of Exprs for complex
Reader = Callable[[Index], Element]


def tensor_type(node: Node) -> Type:
    assert isinstance(node.type, Type)
    return node.type


def flat_index(b: Scalars, index: Index, dims: tuple[int, ...]) -> Expr:
    """The row-major position of an index tuple; dimensions of extent 1 contribute nothing."""
    triples = zip(index, row_major_strides(dims), dims, strict=True)
    wide = [(place, step, extent) for place, step, extent in triples if extent != 1]
    return b.affine((place, step) for place, step, _ in joined(b, wide))


def joined(b: Scalars, terms: list[tuple[Expr, int, int]]) -> list[tuple[Expr, int, int]]:
    """Terms of a position (index, step, extent), where (x // n) * n + x % n is x."""
    made: list[tuple[Expr, int, int]] = []
    for term in reversed(terms):
        while made and (whole := _rejoined(b, term, made[-1])) is not None:
            term = whole
            made.pop()
        made.append(term)
    return made[::-1]


def _rejoined(
    b: Scalars, outer: tuple[Expr, int, int], inner: tuple[Expr, int, int]
) -> tuple[Expr, int, int] | None:
    """One term for two of neighbouring axes, if those are the quotient and rest of one index."""
    (high, far, many), (low, near, few) = outer, inner
    if low.op != "irem" or low.args[1] is not b.integer(few) or far != near * few:
        return None
    return (low.args[0], near, many * few) if low.args[0] // few is high else None


def load_element(b: Scalars, buffer: Buffer, position: Expr, element: DType) -> Element:
    """Read one element; complex numbers are two reals in a buffer of twice the length."""
    if not element.is_complex:
        return b.load(buffer, position)
    base = position * 2
    return Pair(b.load(buffer, base), b.load(buffer, base + 1))


def store_element(b: Scalars, buffer: Buffer, position: Expr, value: Element) -> None:
    if not isinstance(value, Pair):
        b.store(buffer, position, value)
        return
    base = position * 2
    b.store(buffer, base, value.re)
    b.store(buffer, base + 1, value.im)


def to_compute(b: Scalars, value: Element, element: DType) -> Element:
    """A stored element in the type arithmetic happens in (f16 and bf16 widen to f32)."""
    return value if isinstance(value, Pair) else value.cast(element.compute)


def to_storage(b: Scalars, value: Element, element: DType) -> Element:
    """A computed element in its storage type. Raises AssertionError if an expression has another
    type.
    """
    if element.is_complex:
        if not isinstance(value, Pair):
            zero = b.const(0.0, element.real)
            return Pair(value.cast(element.real), zero)
        return value
    assert not isinstance(value, Pair), f"a complex value where {element} is due"
    if value.dtype is element:
        return value
    assert value.dtype is element.compute or element is BOOL, (
        f"{value.dtype} where {element} is due"
    )
    return value.cast(element)


class Elements:
    """Evaluates nodes of one region. `readers` says how to read what is not inlined (params, tiles,
    staged values, finished reductions); everything else is pulled."""

    def __init__(self, b: Scalars) -> None:
        self.b = b
        self.readers: dict[int, Reader] = {}
        self.buffers: dict[int, Buffer] = {}
        self.memo: dict[Any, Element] = {}

    def bind(self, node: Node, reader: Reader) -> None:
        """From now on read `node` this way."""
        self.readers[node.id] = reader
        self.memo.clear()

    def bind_value(self, node: Node, value: Element) -> None:
        """From now on `node` is this value at every index."""
        self.bind(node, lambda _: value)

    def bind_buffer(self, node: Node, buffer: Buffer) -> None:
        """Read a node from a row-major buffer of its shape."""
        kind = tensor_type(node)
        self.buffers[node.id] = buffer

        def read(index: Index) -> Element:
            return load_element(self.b, buffer, flat_index(self.b, index, kind.dims), kind.dtype)

        self.bind(node, read)

    def at(self, node: Node, index: Index) -> Element:
        """The element of `node` at `index`, in its storage type.

        Iterative over element-wise chains through the memo: depth is bounded by the group size.
        """
        key = (node.id, tuple(i.number for i in index), id(self.b.body))
        found = self.memo.get(key)
        if found is None:
            reader = self.readers.get(node.id)
            if reader is not None:
                found = reader(index)
            else:
                before = self.b.own(node.id)
                found = self._pull(node, index)
                self.b.own(before)
            self.memo[key] = found
        return found

    def _pull(self, node: Node, index: Index) -> Element:
        lower = node.op.lower
        if isinstance(lower, Scalar):
            return self._scalar(node, lower, index)
        if isinstance(lower, Compute):
            made = lower.element(self.b, node, self.reader_of(node), index)
            return to_storage(self.b, made, tensor_type(node).dtype)
        if isinstance(lower, Alias):
            return self._reshaped(node, index)
        if node.op.traits.constant:
            return self._literal(node)
        raise GraphError(f"{node.op.name} cannot be computed element by element", location=node.loc)

    def reader_of(self, node: Node) -> Callable[[int, Index], Element]:
        """How the rule of a node reads an element of one of its operands."""
        return lambda k, index: self.at(node.inputs[k], tuple(index))

    def _scalar(self, node: Node, lower: Scalar, index: Index) -> Element:
        operands = []
        for source in node.inputs:
            kind = tensor_type(source)
            value = self.at(source, broadcast_index(self.b, index, kind.dims))
            operands.append(value if lower.stored else to_compute(self.b, value, kind.dtype))
        if node.op.name == "exp" and is_below_greatest(node.inputs[0]):
            made = exp_below_zero(*operands)
        else:
            made = lower.expression(*operands, **node.attrs.values_dict)
        return to_storage(self.b, made, tensor_type(node).dtype)

    def _literal(self, node: Node) -> Element:
        value = node.attrs["value"]
        element = value.type.dtype
        number = value.array.reshape(-1)[0]
        if element.is_complex:
            parts = (float(number.real), float(number.imag))
            return Pair(*(self.b.const(p, element.real) for p in parts))
        made = self.b.const(
            number.item() if element.kind != "f" else float(number), element.compute
        )
        return made.cast(element)

    def _reshaped(self, node: Node, index: Index) -> Element:
        source = node.inputs[0]
        while isinstance(source.op.lower, Alias) and source.id not in self.readers:
            source = source.inputs[0]
        before, after = tensor_type(source).dims, tensor_type(node).dims
        if source.id in self.buffers:  # the same bytes under another shape
            position = flat_index(self.b, index, after)
            element = tensor_type(source).dtype
            return load_element(self.b, self.buffers[source.id], position, element)
        return self.at(source, reshaped_index(self.b, index, after, before))


def is_below_greatest(node: Node) -> bool:
    """Is each element what it lacks of the greatest in its row, and so at most zero or NaN?"""
    if node.op.name != "sub":
        return False
    whole, greatest = node.inputs
    found = greatest
    while isinstance(found.op.lower, Alias):
        found = found.inputs[0]
    if found.op.name != "max" or found.inputs[0] is not whole:
        return False
    axes, dims = found.attrs["axes"], tensor_type(whole).dims
    kept = tuple(1 if k in axes else extent for k, extent in enumerate(dims))
    return tensor_type(greatest).dims == kept


def broadcast_index(b: Scalars, index: Index, dims: tuple[int, ...]) -> Index:
    """The index of a broadcast operand: aligned at the right, 0 along extents of 1."""
    tail = index[len(index) - len(dims) :]
    zero = b.integer(0)
    return tuple(zero if extent == 1 else i for i, extent in zip(tail, dims, strict=True))


def reshaped_index(
    b: Scalars, index: Index, after: tuple[int, ...], before: tuple[int, ...]
) -> Index:
    """The index into `before` of the element at `index` of `after` (row-major reshape).

    The shapes are split into the smallest blocks of equal size, so that untouched and merged
    dimensions cost no division.
    """
    made: list[Expr] = []
    for here, there in reshape_groups(after, before):
        position = flat_index(b, tuple(index[k] for k in here), tuple(after[k] for k in here))
        made.extend(split_index(b, position, tuple(before[k] for k in there)))
    return tuple(made)


def reshape_groups(
    after: tuple[int, ...], before: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """Pairs of axis runs (of after, of before) with equal products; every axis appears once."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    if 0 in after:  # nothing is ever read
        return [(list(range(len(after))), list(range(len(before))))]
    while i < len(after) or j < len(before):
        here, there = [], []
        left = right = 1
        if i < len(after):
            here, left, i = [i], after[i], i + 1
        if j < len(before) and (left != 1 or before[j] == 1 or not here):
            there, right, j = [j], before[j], j + 1
        while left != right:
            if left < right:
                left, here, i = left * after[i], [*here, i], i + 1
            else:
                right, there, j = right * before[j], [*there, j], j + 1
        groups.append((here, there))
    return groups


def split_index(b: Scalars, position: Expr, dims: tuple[int, ...]) -> list[Expr]:
    """The index tuple of a row-major position."""
    wide = [k for k, extent in enumerate(dims) if extent != 1]
    made = [b.integer(0)] * len(dims)
    for k in reversed(wide):
        if k == wide[0]:
            made[k] = position
        else:
            made[k] = position % dims[k]
            position = position // dims[k]
    return made
