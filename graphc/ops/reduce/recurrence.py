"""Linear recurrences along an axis: running sums whose total fades, and what cumprod leaves behind.

s[0] = b[0]        s[k] = a[k] * s[k-1] + b[k]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import AXIS, Attr, Loops, Sample
from graphc.ir.types import AnyType, Type
from graphc.loops.nest import Expr
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import along
from graphc.ops.record.families import (
    define,
    device_code,
    require,
    require_dtype,
    require_tensor,
    sample_array,
)
from graphc.ops.record.value import Value, emit, functions
from graphc.ops.reduce.cumulative import Scan, units, workspace
from graphc.ops.shape.padding import shifted

DTYPES = ("f32", "f64")


def _infer(a: AnyType, b: AnyType, *, axis: int, reverse: bool) -> Type:
    require_tensor("recurrence", a, b)
    assert isinstance(a, Type)
    require(a is b, f"recurrence takes two arrays of one type, got {a} and {b}")
    require_dtype("recurrence", a, DTYPES)
    require(axis < a.rank, f"recurrence: axis {axis} is out of range for {a}")
    return a


def _reference(a: Array, b: Array, axis: int, reverse: bool) -> Any:
    factors, terms = (np.moveaxis(v.astype(np.float64), axis, 0) for v in (a, b))
    made = np.zeros_like(terms)
    total = np.zeros(terms.shape[1:])
    for k in range(len(terms))[:: -1 if reverse else 1]:
        total = made[k] = factors[k] * total + terms[k]
    return np.moveaxis(made, 0, axis)


class _Recurrence(Scan):
    """The loops of a running sum whose total is multiplied before it is added to."""

    def next(self, total: Expr, place: tuple[Any, Any, Any]) -> Any:
        position = self.position(place)
        factor, term = (self.read(k, position).cast(self.carried) for k in (0, 1))
        return factor * total + term


def _gradient(
    ct: Value, result: Value, a: Value, b: Value, *, axis: int, reverse: bool
) -> list[Any]:
    """g[k] = ct[k] + a[k+1] * g[k+1] for b, and g[k] * s[k-1] for a."""
    ahead = 1 if reverse else -1
    terms = emit("recurrence", shifted(a, axis, ahead, 0), ct, axis=axis, reverse=not reverse)
    return [functions.multiply(terms, shifted(result, axis, -ahead, 0)), terms]


def _samples() -> list[Sample]:
    def sample(name: str, shape: tuple[int, ...], good: bool = True, **attrs: object) -> Sample:
        factors, terms = (sample_array(name, shape, (-1.0, 1.0), seed) for seed in (1, 2))
        return Sample((factors, terms), attrs, good, tolerance=16)

    made = [sample(name, (3, 5), axis=1) for name in DTYPES]
    made += [sample("f32", (2, 3, 4), axis=k, reverse=r) for k in range(3) for r in (True, False)]
    made += [sample("f32", (4, 0), axis=1), sample("f32", (1,), axis=0)]
    mixed = Sample((np.zeros(3), np.zeros(4)), {"axis": 0}, False)
    return [*made, mixed, sample("f32", (3,), False, axis=1), sample("i32", (3,), False, axis=0)]


recurrence_op = define(
    "recurrence",
    batch=along("axis"),
    infer=_infer,
    reference=_reference,
    lower=Loops(
        lambda *given: _Recurrence("add", *given).nest(),
        units,
        workspace,
        device_code("reduce.scan_launches", "cumulative_code"),
    ),
    attrs=(Attr("axis", "int", within=AXIS), Attr("reverse", "bool", False)),
    dtypes=DTYPES,
    gradient=_gradient,
    samples=_samples,
    doc="s[k] = a[k] * s[k-1] + b[k] along an axis, from the end if `reverse`.",
)
