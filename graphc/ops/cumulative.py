"""Running sums, products and extremes along an axis: one pass per row, so a library kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import Attr, Library, Sample
from graphc.ir.types import AnyType, Type
from graphc.ops.reduce import accumulating, no_out
from graphc.ops.registry import (
    as_dtype,
    define,
    normalise_axis,
    require,
    require_dtype,
    require_tensor,
    sample_array,
)
from graphc.ops.value import as_value, element_of, emit, functions, public

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
    def reference(x: Any, axis: int, reverse: bool) -> Any:
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        x = np.flip(x, axis) if reverse else x
        made = function.accumulate(x.astype(wide), axis=axis, dtype=wide)
        return np.flip(made, axis) if reverse else made

    return reference


# The kernels see x as [outer, extent, inner]; a unit of work is one outer slice.


def _sum_kernel(x: Any, out: Any, params: Any, lo: int, hi: int) -> None:
    extent, inner, first, step = params[0], params[1], params[2], params[3]
    for outer in range(lo, hi):
        for lane in range(inner):
            place = (outer * extent + first) * inner + lane
            total = x[place]
            out[place] = total
            for _ in range(extent - 1):
                place += step * inner
                total += x[place]
                out[place] = total


def _product_kernel(x: Any, out: Any, params: Any, lo: int, hi: int) -> None:
    extent, inner, first, step = params[0], params[1], params[2], params[3]
    for outer in range(lo, hi):
        for lane in range(inner):
            place = (outer * extent + first) * inner + lane
            total = x[place]
            out[place] = total
            for _ in range(extent - 1):
                place += step * inner
                total *= x[place]
                out[place] = total


def _maximum_kernel(x: Any, out: Any, params: Any, lo: int, hi: int) -> None:
    extent, inner, first, step = params[0], params[1], params[2], params[3]
    for outer in range(lo, hi):
        for lane in range(inner):
            place = (outer * extent + first) * inner + lane
            best = x[place]
            out[place] = best
            for _ in range(extent - 1):
                place += step * inner
                if x[place] > best or x[place] != x[place]:
                    best = x[place]
                out[place] = best


def _minimum_kernel(x: Any, out: Any, params: Any, lo: int, hi: int) -> None:
    extent, inner, first, step = params[0], params[1], params[2], params[3]
    for outer in range(lo, hi):
        for lane in range(inner):
            place = (outer * extent + first) * inner + lane
            best = x[place]
            out[place] = best
            for _ in range(extent - 1):
                place += step * inner
                if x[place] < best or x[place] != x[place]:
                    best = x[place]
                out[place] = best


def _params(node: Any) -> tuple[int, ...]:
    """(extent, elements inside one step of the axis, first step, direction)."""
    dims, axis = node.inputs[0].type.dims, node.attrs["axis"]
    first, step = (dims[axis] - 1, -1) if node.attrs["reverse"] else (0, 1)
    return dims[axis], math.prod(dims[axis + 1 :]), first, step


def _units(node: Any) -> int:
    dims, axis = node.inputs[0].type.dims, node.attrs["axis"]
    return math.prod(dims[:axis]) if math.prod(dims) else 0


def _samples(domain: tuple[float, float]) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        def sample(name: str, shape: tuple[int, ...], good: bool = True, **attrs: Any) -> Sample:
            array = sample_array(name, shape, domain, len(shape))
            return Sample((array,), attrs, good=good, tolerance=16)

        made = [sample(name, (3, 5), axis=1) for name in DTYPES]
        made += [
            sample("f32", (2, 3, 4), axis=k, reverse=r) for k in range(3) for r in (True, False)
        ]
        made += [sample("f32", (4, 0), axis=1), sample("f32", (1,), axis=0)]
        return [*made, sample("f32", (3,), False, axis=1), sample("bool", (3,), False, axis=0)]

    return samples


_FOLDS: tuple[tuple[str, Any, Any, tuple[float, float]], ...] = (
    ("cumsum", _sum_kernel, np.add, (-4.0, 4.0)),
    ("cumprod", _product_kernel, np.multiply, (0.5, 1.5)),
    ("cummax", _maximum_kernel, np.maximum, (-4.0, 4.0)),
    ("cummin", _minimum_kernel, np.minimum, (-4.0, 4.0)),
)

for _name, _kernel, _function, _domain in _FOLDS:
    define(
        _name,
        infer=_infer(_name),
        reference=_reference(_function),
        lower=Library(lambda node, k=_kernel: k, _params, units=_units),
        attrs=(Attr("axis", "int"), Attr("reverse", "bool", False)),
        dtypes=DTYPES,
        samples=_samples(_domain),
        doc=f"Running {_name[3:]} along an axis, from the end if `reverse`.",
    )


def _publish(op: str, *numpy_functions: Any) -> Callable[..., Any]:
    def function(
        a: Any,
        axis: int | None = None,
        dtype: Any = None,
        out: Any = None,
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


def _extreme(op: str, x: Any, axis: int, reverse: bool) -> Any:
    x, element = as_value(x), element_of(x)[0]
    place = normalise_axis(axis, len(x.shape), op)
    wide = accumulating(element.compute)
    made = emit(op, functions.astype(x, wide), axis=place, reverse=reverse)
    return functions.astype(made, element)


def _with_initial(total: Any, axis: int, value: int) -> Any:
    shape = list(total.shape)
    shape[axis] = 1
    start = functions.broadcast_to(functions.astype(value, element_of(total)[0]), tuple(shape))
    return functions.concatenate([start, total], axis=axis)


def _publish_standard(
    name: str, running: Callable[..., Any], start: int, numpy_function: Any
) -> None:
    def function(
        x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
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
