"""Running sums, products and extremes along an axis, as loops that carry the total."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.graph import Node
from graphc.ir.op import AXIS, Attr, Loops, Sample
from graphc.ir.sizes import hint_of
from graphc.ir.types import F32, F64, AnyType, DType, Type
from graphc.loops.nest import Expr
from graphc.loops.scalars import minimum
from graphc.ops.index.scatter import add_along
from graphc.ops.record.arguments import Array, ArrayLike, DTypeLike
from graphc.ops.record.batching import along
from graphc.ops.record.dims import row_major_strides
from graphc.ops.record.families import (
    as_dtype,
    define,
    device_code,
    normalise_axis,
    require,
    require_dtype,
    require_tensor,
    sample_array,
)
from graphc.ops.record.value import Value, as_value, element_of, emit, functions, public
from graphc.ops.reduce.reduce import IDENTITY, accumulating, no_out
from graphc.ops.shape.padding import shifted
from graphc.ops.tuning import tuned

DTYPES = ("i64", "u64", "f32", "f64")  # what the public functions widen everything to


def _infer(name: str) -> Callable[..., Type]:
    def infer(x: AnyType, *, axis: int, reverse: bool) -> Type:
        require_tensor(name, x)
        assert isinstance(x, Type)
        require_dtype(name, x, DTYPES)
        require(0 <= axis < x.rank, f"{name}: axis {axis} is out of range for {x}")
        return x

    return infer


def _reference(function: Any) -> Callable[..., Any]:
    def reference(x: Array, axis: int, reverse: bool) -> Any:
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        x = np.flip(x, axis) if reverse else x
        made = function.accumulate(x.astype(wide), axis=axis, dtype=wide)
        return np.flip(made, axis) if reverse else made

    return reference


# ------------------------------------------------------------------------------------ loops


def _shape(node: Any) -> tuple[int, int, int]:
    """x as [outer, extent, inner]: what lies around the axis is flattened."""
    dims, axis = node.inputs[0].type.dims, node.attrs["axis"]
    return math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])


def _rows(node: Node) -> int:
    return tuned.running_rows if hint_of(_shape(node)[1]) > tuned.running_short else 1


def units(node: Node) -> int:
    outer, _, inner = _shape(node)
    rows = _rows(node)
    return outer // rows + outer % rows if inner == 1 else outer * -(-inner // tuned.running_lanes)


def workspace(node: Node) -> tuple[tuple[DType, int], ...]:
    inner = _shape(node)[2]
    return () if inner == 1 else ((_carried(node), min(inner, tuned.running_lanes)),)


def _carried(node: Any) -> DType:
    """f32 is carried in f64, so that a long run loses nothing; extremes have nothing to lose."""
    element: DType = node.type.dtype
    return F64 if element is F32 and node.op.name not in ("cummax", "cummin") else element


class Scan:
    """The loops of one op: `combine` of all elements so far.

    Along the last axis registers carry the totals of a few rows.  Along another one a block of
    lanes advances together, and their totals lie in scratch memory.
    """

    def __init__(self, combine: str, *given: Any) -> None:
        self.combine = combine
        self.b, self.node, self.read, self.write, self.scratch = given
        self.element = self.node.type.dtype
        self.carried = _carried(self.node)
        start = IDENTITY[combine](self.element)
        # -0.0 + x is x for every x; 0.0 + -0.0 is not.
        start = -0.0 if combine == "add" and self.element.is_float else start
        self.start = self.b.const(start, self.carried)

    def nest(self) -> None:
        b, (outer, _, inner) = self.b, _shape(self.node)
        blocks = b.integer(-(-inner // tuned.running_lanes))
        with b.loop(units(self.node), "parallel") as unit:
            if inner == 1:
                self.some(unit, outer, _rows(self.node))
                return
            first = unit % blocks * tuned.running_lanes
            stop = minimum(first + tuned.running_lanes, inner)
            self.lanes(unit // blocks, first, stop)

    def some(self, unit: Expr, outer: int, rows: int) -> None:
        """A few rows, or one of those that are left over."""
        b, several = self.b, self.b.integer(outer // rows)
        if rows == 1:
            self.rows([unit])
            return
        with b.when(unit < several):
            self.rows([b.affine([(unit, rows)], k) for k in range(rows)])
        with b.when(unit >= several):
            self.rows([b.affine([(unit, 1)], outer // rows * (rows - 1))])

    def rows(self, rows: list[Any]) -> None:
        """Carry the totals of whole rows."""
        b = self.b
        totals = [b.register(self.start) for _ in rows]
        with b.loop(_shape(self.node)[1]) as step:
            places = [self.place(row, step, b.integer(0)) for row in rows]
            for total, place in zip(totals, places, strict=True):
                b.assign(total, self.next(b.read(total), place))
            for total, place in zip(totals, places, strict=True):
                self.put(place, b.read(total))

    def lanes(self, outer: Expr, first: Expr, stop: Expr | int) -> None:
        """Carry the totals of one block of lanes along the axis."""
        b, (totals,) = self.b, self.scratch
        with b.loop(stop, "vector", first) as lane:
            b.store(totals, lane - first, self.start)
        with b.loop(_shape(self.node)[1]) as step, b.loop(stop, "vector", first) as lane:
            slot, place = lane - first, self.place(outer, step, lane)
            total = b.register(self.next(b.load(totals, slot), place))
            b.store(totals, slot, b.read(total))
            self.put(place, b.read(total))

    def place(self, outer: Expr | int, step: Expr | int, lane: Expr | int) -> tuple[Any, Any, Any]:
        """The index of the step's element in [outer, extent, inner]."""
        if self.node.attrs["reverse"]:
            step = _shape(self.node)[1] - 1 - step
        return outer, step, lane

    def position(self, place: tuple[Any, Any, Any]) -> Any:
        """Where the step's element lies in a stored operand."""
        return self.b.affine(zip(place, row_major_strides(_shape(self.node))))

    def next(self, total: Expr, place: tuple[Any, Any, Any]) -> Any:
        value = self.read(0, self.position(place)).cast(self.carried)
        return self.b.op(self.combine, total, value)

    def put(self, place: tuple[Any, Any, Any], total: Expr) -> None:
        outer, step, lane = place
        dims, axis = self.node.type.dims, self.node.attrs["axis"]
        around = (unravel(outer, dims[:axis]), unravel(lane, dims[axis + 1 :]))
        self.write((*around[0], step, *around[1]), total.cast(self.element))


def unravel(position: Any, dims: tuple[int, ...]) -> list[Any]:
    """The index tuple of a row-major position."""
    made: list[Any] = []
    for extent in reversed(dims[1:]):
        made.append(position % extent)
        position = position // extent
    return [position, *reversed(made)] if dims else []


def _samples(domain: tuple[float, float]) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        def sample(name: str, shape: tuple[int, ...], good: bool = True, **attrs: object) -> Sample:
            array = sample_array(name, shape, domain, len(shape))
            return Sample((array,), attrs, good=good, tolerance=16)

        made = [sample(name, (3, 5), axis=1) for name in DTYPES]
        made += [
            sample("f32", (2, 3, 4), axis=k, reverse=r) for k in range(3) for r in (True, False)
        ]
        made += [sample("f32", (4, 0), axis=1), sample("f32", (1,), axis=0)]
        return [*made, sample("f32", (3,), False, axis=1), sample("bool", (3,), False, axis=0)]

    return samples


# ------------------------------------------------------------------------------------ cotangents


def _sum_gradient(ct: Value, result: Value, x: Value, *, axis: int, reverse: bool) -> list[Any]:
    return [emit("cumsum", ct, axis=axis, reverse=not reverse)]


def _product_gradient(ct: Value, result: Value, x: Value, *, axis: int, reverse: bool) -> list[Any]:
    """The product before x[i], times s[i] = ct[i] + x[i+1] * s[i+1]: no division, so zeros do no
    harm."""
    ahead = 1 if reverse else -1
    factors = shifted(x, axis, ahead, 0)
    following = emit("recurrence", factors, ct, axis=axis, reverse=not reverse)
    return [functions.multiply(shifted(result, axis, -ahead, 1), following)]


def _extreme_gradient(ct: Value, result: Value, x: Value, *, axis: int, reverse: bool) -> list[Any]:
    """To the latest element that reached the extreme."""
    f, extent = functions, x.type.dims[axis]
    column = tuple(extent if k == axis else 1 for k in range(len(x.shape)))
    places = f.reshape(f.arange(extent), column)
    reached = f.where(f.equal(x, result), places, extent - 1 if reverse else 0)
    owner = emit("cummin" if reverse else "cummax", reached, axis=axis, reverse=reverse)
    return [add_along(x.type.dims, owner, axis, ct)]


_FOLDS: tuple[tuple[str, str, Any, tuple[float, float], Any], ...] = (
    ("cumsum", "add", np.add, (-4.0, 4.0), _sum_gradient),
    ("cumprod", "mul", np.multiply, (0.5, 1.5), _product_gradient),
    ("cummax", "max", np.maximum, (-4.0, 4.0), _extreme_gradient),
    ("cummin", "min", np.minimum, (-4.0, 4.0), _extreme_gradient),
)

for _name, _combine, _function, _domain, _gradient in _FOLDS:
    define(
        _name,
        batch=along("axis"),
        gradient=_gradient,
        infer=_infer(_name),
        reference=_reference(_function),
        lower=Loops(
            lambda *given, c=_combine: Scan(c, *given).nest(),
            units,
            workspace,
            device_code("reduce.scan_launches", "cumulative_code"),
        ),
        attrs=(Attr("axis", "int", within=AXIS), Attr("reverse", "bool", False)),
        dtypes=DTYPES,
        samples=_samples(_domain),
        doc=f"Running {_name[3:]} along an axis, from the end if `reverse`.",
    )


def _publish(op: str, *numpy_functions: Callable[..., Any]) -> Callable[..., Any]:
    def function(
        a: ArrayLike,
        axis: int | None = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        *,
        reverse: bool = False,
    ) -> Any:
        no_out(op, out)
        f, x = functions, as_value(a)
        if axis is None:
            x, axis = f.ravel(x), 0
        element = accumulating(element_of(x)[0]) if dtype is None else as_dtype(dtype)
        place = normalise_axis(axis, len(x.shape), op)
        x = f.astype(x, element)
        if element.is_complex:
            require(op == "cumsum", "cumprod of complex numbers is not available")
            return f.complex(
                *(emit(op, p(x), axis=place, reverse=reverse) for p in (f.real, f.imag))
            )
        made = emit(op, f.astype(x, accumulating(element.compute)), axis=place, reverse=reverse)
        return f.astype(made, element)

    function.__name__ = op
    function.__doc__ = f"Running {op[3:]} along `axis` (None: of the flattened array)."
    return public(*numpy_functions, method=True, name=op)(function)


cumsum = _publish("cumsum", np.cumsum)
cumprod = _publish("cumprod", np.cumprod)


@public()
def cummax(x: Any, axis: int = 0, *, reverse: bool = False) -> Any:
    """The largest element so far along an axis; a NaN stays (`np.maximum.accumulate`)."""
    return _extreme("cummax", x, axis, reverse)


@public()
def cummin(x: Any, axis: int = 0, *, reverse: bool = False) -> Any:
    """The smallest element so far along an axis; a NaN stays (`np.minimum.accumulate`)."""
    return _extreme("cummin", x, axis, reverse)


def _extreme(op: str, x: Value, axis: int, reverse: bool) -> Any:
    x, element = as_value(x), element_of(x)[0]
    place = normalise_axis(axis, len(x.shape), op)
    wide = accumulating(element.compute)
    made = emit(op, functions.astype(x, wide), axis=place, reverse=reverse)
    return functions.astype(made, element)


def _with_initial(total: Value, axis: int, value: int) -> Any:
    shape = list(total.shape)
    shape[axis] = 1
    start = functions.broadcast_to(functions.astype(value, element_of(total)[0]), tuple(shape))
    return functions.concatenate([start, total], axis=axis)


def _publish_standard(
    name: str, running: Callable[..., Any], start: int, numpy_function: Callable[..., Any]
) -> None:
    def function(
        x: ArrayLike,
        *,
        axis: int | None = None,
        dtype: DTypeLike | None = None,
        include_initial: bool = False,
    ) -> Any:
        rank = len(as_value(x).shape)
        require(axis is not None or rank == 1, f"{name} of rank {rank} needs an axis")
        place = normalise_axis(axis or 0, rank, name)
        made = running(x, place, dtype)
        return _with_initial(made, place, start) if include_initial else made

    function.__doc__ = f"{name} of the array-API standard; `include_initial` puts {start} first."
    public(numpy_function, name=name)(function)


_publish_standard("cumulative_sum", cumsum, 0, np.cumulative_sum)
_publish_standard("cumulative_prod", cumprod, 1, np.cumulative_prod)
