"""Along axes: reductions and running sums."""

from __future__ import annotations

from typing import Any

from graphc.codegen.lowering.folds import finished, prepared
from graphc.formats.exporting import Refused
from graphc.formats.stablehlo.rules.elements import Elementwise, leaf, result
from graphc.formats.stablehlo.writer import Value, Writer, in_other_ops, rule, type_of
from graphc.ir.graph import Node
from graphc.ir.op import OPS, Reduction
from graphc.ir.types import tensor
from graphc.loops.nest import Scalars
from graphc.ops.record.value import functions as f

_COMBINE = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
}


@rule(*(name for name, op in OPS.items() if isinstance(op.lower, Reduction)))
def reduction(w: Writer, node: Node, x: Value) -> Value:
    """Elements are prepared, folded and finished as in a kernel."""
    lower, kind, axes, b = node.op.lower, type_of(node), tuple(node.attrs["axes"]), Scalars()
    assert isinstance(lower, Reduction)
    if x.dtype.is_complex and lower.combine != "add":
        raise Refused("a product of complex numbers is no operator")
    each = Elementwise(w, x.dims, [x])
    wide = lower.accumulator(x.dtype)
    ready = result(each, prepared(b, lower, leaf(b, 0, x.dtype), x.dtype), tensor(wide, x.dims))
    kept = tuple(d for axis, d in enumerate(x.dims) if axis not in axes)
    one, folded = tensor(wide), tensor(wide, kept)
    total = ready
    if axes:
        start = w.full(lower.identity(x.dtype), one)
        word = _COMBINE[lower.combine]
        body = w.region([one, one], lambda p, q: [w.op(word, p, q, to=one)])
        total = w.op("reduce", ready, start, to=folded, regions=[body], dimensions=axes)
    e = Elementwise(w, kept, [total])
    held = leaf(b, 0, wide)
    parts = (held.re, held.im) if wide.is_complex else (held,)
    made = result(e, finished(b, node, parts), tensor(kind.dtype, kept))
    return w.reshaped(made, kind.dims)


def _shifted(x: Any, by: int, axis: int, first: Any) -> Any:
    """The elements so many places later, and the first ones of a number."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (by, 0)
    whole = [slice(None)] * x.ndim
    whole[axis] = slice(0, x.shape[axis] - by)
    return f.pad(x[tuple(whole)], widths, constant_values=first)


def _running(combine: Any, neutral: Any) -> Any:
    """After each step a place knows twice as many before it (Hillis and Steele, 1986)."""

    def function(x: Any, axis: int, reverse: bool) -> Any:
        x = f.flip(x, axis) if reverse else x
        first, by = neutral(x), 1
        while by < x.shape[axis]:
            x = combine(x, _shifted(x, by, axis, first))
            by *= 2
        return f.flip(x, axis) if reverse else x

    return function


def _bound(highest: bool) -> Any:
    import numpy as np

    def number(x: Any) -> Any:
        if x.dtype.kind == "b":
            return highest
        if x.dtype.kind not in "iu":
            return np.inf if highest else -np.inf
        info = np.iinfo(x.dtype)
        return info.max if highest else info.min

    return number


in_other_ops("cumsum")(_running(lambda x, y: x + y, lambda x: 0))
in_other_ops("cumprod")(_running(lambda x, y: x * y, lambda x: 1))
in_other_ops("cummax")(_running(lambda x, y: f.maximum(x, y), _bound(False)))
in_other_ops("cummin")(_running(lambda x, y: f.minimum(x, y), _bound(True)))


@in_other_ops("recurrence")
def _recurrence(a: Any, x: Any, axis: int, reverse: bool) -> Any:
    """h[k] = a[k] h[k - 1] + x[k]: steps are joined as pairs, twice as many each time."""
    a, x = (f.flip(v, axis) if reverse else v for v in (a, x))
    by = 1
    while by < x.shape[axis]:
        x = x + a * _shifted(x, by, axis, 0)
        a = a * _shifted(a, by, axis, 1)
        by *= 2
    return f.flip(x, axis) if reverse else x
