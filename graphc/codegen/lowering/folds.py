"""Folding: the accumulators of a reduction, how an element enters them and what comes out.

Complex sums and products keep two accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.codegen.lowering.evaluate import Element, tensor_type, to_compute, to_storage
from graphc.ir.graph import Node
from graphc.ir.op import Reduction
from graphc.ir.types import DType
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import Pair


def reduction_of(node: Node) -> Reduction:
    assert isinstance(node.op.lower, Reduction)
    return node.op.lower


def is_carried(node: Node) -> bool:
    """Complex products: each step needs both parts of the last, so the loop does not vectorise."""
    element = tensor_type(node.inputs[0]).dtype
    return element.is_complex and reduction_of(node).combine == "mul"


def initial(b: Scalars, lower: Reduction, element: DType) -> list[Expr]:
    """The start values of the accumulators."""
    accumulator = lower.accumulator(element)
    if accumulator.is_complex:
        start = complex(lower.identity(element))
        return [b.const(part, accumulator.real) for part in (start.real, start.imag)]
    return [b.const(lower.identity(element), accumulator)]


def prepared(b: Scalars, lower: Reduction, value: Element, element: DType) -> Element:
    """An element as it is folded: in the accumulator's type, after `prepare`."""
    value = to_compute(b, value, element)
    if lower.prepare is not None:
        value = lower.prepare(value)
    accumulator = lower.accumulator(element)
    if isinstance(value, Pair):
        return Pair(value.re.cast(accumulator.real), value.im.cast(accumulator.real))
    if accumulator.is_complex:
        return Pair(value.cast(accumulator.real), b.const(0.0, accumulator.real))
    return value.cast(accumulator)


def combined(b: Scalars, lower: Reduction, x: Pair, y: Pair) -> Pair:
    """Fold two complex partial results."""
    if lower.combine == "add":
        return x + y
    assert lower.combine == "mul"
    return x * y


def finished(b: Scalars, node: Node, values: Sequence[Expr]) -> Element:
    """The element of a reduction from its accumulators."""
    lower, kind = reduction_of(node), tensor_type(node)
    total: Element = Pair(*values) if len(values) == 2 else values[0]
    source = tensor_type(node.inputs[0])
    count = math.prod(source.dims[a] for a in node.attrs["axes"])
    if lower.combine in ("min", "max") and not isinstance(total, Pair) and total.dtype.is_float:
        # The smallest of zeros is either, as they come together: make it +0.
        total = total + 0.0
    if lower.finish is not None:
        total = lower.finish(total, count, source.dtype)
    if not isinstance(total, Pair):
        total = total.cast(kind.dtype.compute)
    return to_storage(b, total, kind.dtype)
