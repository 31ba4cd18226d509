"""pad: one op for constants and spacing between elements; the other modes of np.pad around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import EXTENT, Attr, Compute, Op
from graphc.ir.sizes import greatest, is_open
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Dim, Dimension, Type, tensor
from graphc.loops.nest import Scalars
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read
from graphc.ops.record.batching import Lanes, reshaped
from graphc.ops.record.dims import both, guarded, inside, rank_of, samples_of, shape_of, tensor_type
from graphc.ops.record.families import define, normalise_axis, require, require_real
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    emit,
    emit_promoted,
    functions,
    public,
)
from graphc.ops.shape.concat import concatenate
from graphc.ops.shape.shape import broadcast_to
from graphc.ops.shape.slicing import emit_slice, slice_axis

Ints = tuple[int, ...]
Pairs = Sequence[tuple[int, int]]

# ------------------------------------------------------------------------------------ the op


def _spread(extent: Dimension, interior: int) -> Dimension:
    """The extent with `interior` new elements between neighbours."""
    return extent if extent == 0 else extent + (extent - 1) * interior


def _infer_pad(x: AnyType, value: AnyType, *, low: Ints, high: Ints, interior: Ints) -> Type:
    x, value = tensor_type("pad", x), tensor_type("pad", value)
    require(
        value is tensor(x.dtype), f"pad: the padding value of {x} is a {x.dtype}[], not {value}"
    )
    interior = interior or (0,) * x.rank
    counts = (low, high, interior)
    require(all(len(c) == x.rank for c in counts), f"pad of {x} needs {x.rank} lows and highs")
    return tensor(x.dtype, (a + _spread(n, i) + z for n, a, z, i in zip(x.shape, *counts)))


def _pad(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    dims = node.inputs[0].type.dims
    fill = read(1, ())
    if 0 in dims:
        return fill
    legal, source = None, []
    for k, extent in enumerate(dims):
        interior = node.attrs["interior"][k] if node.attrs["interior"] else 0
        low = node.attrs["low"][k]
        end = low + extent + max(extent - 1, 0) * interior
        legal = both(legal, inside(index[k], low, end, node.type.dims[k]))
        offset, step = index[k] - low, b.integer(interior + 1)
        if interior and extent > 1:
            legal = both(legal, offset % step == 0)
        source.append(offset // step)
    if legal is None:
        return read(0, tuple(source))
    return guarded(b, node.type.dtype, fill, [(legal, lambda: read(0, tuple(source)))])


def _pad_reference(x: Array, value: Array, low: Ints, high: Ints, interior: Ints) -> Any:
    interior = interior or (0,) * x.ndim
    sizes = zip(x.shape, low, high, interior)
    made = np.full([a + _spread(n, i) + z for n, a, z, i in sizes], value, x.dtype)  # type: ignore[misc]
    places = zip(x.shape, low, interior)
    made[tuple(slice(a, a + _spread(n, i), i + 1) for n, a, i in places)] = x
    return made


def _pad_gradient(
    ct: Value, result: Value, x: Value, value: Value, *, low: Ints, high: Ints, interior: Ints
) -> list[Any]:
    steps = tuple(gap + 1 for gap in interior or (0,) * len(low))
    spans = (_spread(n, step - 1) for n, step in zip(x.shape, steps))
    part = emit_slice(ct, low, tuple(a + span for a, span in zip(low, spans)), steps)
    around = emit("slice_update", ct, functions.zeros_like(x), starts=low, steps=steps)
    return [part, functions.sum(around)]


def _batch_pad(
    op: Op, lanes: Lanes, x: Value, value: Value, *, low: Ints, high: Ints, interior: Ints
) -> Any:
    """A value per lane fills what a pad of the places themselves says is new."""
    rows = {"low": (0, *low), "high": (0, *high), "interior": (0, *interior) if interior else ()}
    if not lanes.mapped[1]:
        return emit(op, x, value, **rows)
    x, value = lanes.spread((x, value))
    own = emit(op, functions.ones(x.shape[1:], bool), False, low=low, high=high, interior=interior)
    made = emit(op, x, functions.zeros((), x.element), **rows)
    return functions.where(own, made, reshaped(value, (lanes.size, *(1,) * (x.ndim - 1))))


pad_op = define(
    "pad",
    batch=_batch_pad,
    gradient=_pad_gradient,
    infer=_infer_pad,
    reference=_pad_reference,
    lower=Compute(_pad, cheap=False),
    attrs=(
        Attr("low", "ints", within=EXTENT),
        Attr("high", "ints", within=EXTENT),
        Attr("interior", "ints", (), within=EXTENT),
    ),
    samples=samples_of(
        [
            ([(2, 3), ()], {"low": (1, 0), "high": (0, 2)}),
            ([(4,), ()], {"low": (1,), "high": (2,), "interior": (2,)}),
            ([(0, 3), ()], {"low": (2, 0), "high": (0, 1)}),
            ([(), ()], {"low": (), "high": ()}),
            ([(3, 1), ()], {"low": (0, 0), "high": (0, 0), "interior": (0, 3)}),
        ],
        [
            ([(4,), ()], {"low": (-1,), "high": (0,)}),
            ([(4,), (1,)], {"low": (1,), "high": (0,)}),
            ([(4,), ()], {"low": (1, 1), "high": (0, 0)}),
        ],
    ),
    doc="x with `low` elements of a value before each axis, `high` after it and `interior` between "
    "neighbours.",
    traits=Traits(pads=True),
)


def emit_pad(x: ArrayLike, value: ArrayLike, pairs: Pairs, interior: Ints = ()) -> Any:
    """pad, or x itself when nothing is added."""
    if not any(map(any, pairs)) and not any(interior):
        return x
    element = common_element(x)[0]
    low, high = [p[0] for p in pairs], [p[1] for p in pairs]
    return emit_promoted("pad", x, value, element=element, low=low, high=high, interior=interior)


def pad_zeros(x: ArrayLike, pairs: Pairs, interior: Ints = ()) -> Any:
    """x surrounded by zeros (False for bool)."""
    return emit_pad(x, False if common_element(x)[0].kind == "b" else 0, pairs, interior)


def shifted(x: Any, axis: int, by: int, fill: float) -> Any:
    """x moved `by` places along an axis (towards its start if negative); `fill` enters."""
    extent = x.type.dims[axis]
    count = min(abs(by), extent)
    pairs = [(0, 0)] * len(x.shape)
    pairs[axis] = (count, 0) if by > 0 else (0, count)
    kept = (0, extent - count) if by > 0 else (count, extent)
    return emit_pad(slice_axis(x, axis, *kept), fill, pairs)


# ------------------------------------------------------------------------------------ np.pad


def _pairs(value: Any, rank: int, name: str) -> list[tuple[Any, Any]]:
    """np.pad's argument forms (a number, a pair, pairs per axis, a dict) as a pair per axis."""
    if isinstance(value, dict):
        made: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, part in value.items():
            pair = (part, part) if np.ndim(part) == 0 else tuple(part)
            made[normalise_axis(axis, rank, name)] = (pair[0], pair[1])
        return made
    if isinstance(value, Value):
        return [(value, value)] * rank
    try:
        table = np.broadcast_to(np.asarray(value), (rank, 2))
    except ValueError:
        raise TypeRuleError(f"pad: {name} {value} does not fit {rank} axes") from None
    return [(low, high) for low, high in table.tolist()]


def _pad_constant(x: Any, pairs: Pairs, constant_values: Any = 0) -> Any:
    values = _pairs(constant_values, rank_of(x), "constant_values")
    for pair in values:
        for value in pair:
            require_real("pad", value, x)
    first = values[0][0] if values else 0
    if all(v is first or v == first for pair in values for v in pair if not isinstance(v, Value)):
        return emit_pad(x, first, pairs)
    for axis, (low, high) in enumerate(pairs):
        for side, count in ((0, low), (1, high)):
            alone = [(0, 0)] * rank_of(x)
            alone[axis] = (count, 0) if side == 0 else (0, count)
            x = emit_pad(x, values[axis][side], alone)
    return x


def _pad_open(x: Any, pairs: Pairs, constant_values: Any = 0) -> Any:
    """Constants around it, as many as open sizes say: maybe none."""
    values, element = _pairs(constant_values, rank_of(x), "constant_values"), common_element(x)[0]
    for axis, (amounts, constants) in enumerate(zip(pairs, values, strict=True)):
        parts = []
        for count, value in zip(amounts, constants, strict=True):
            require_real("pad", value, x)
            dims = tuple(count if k == axis else d for k, d in enumerate(shape_of(x)))
            parts.append(broadcast_to(functions.astype(as_value(value), element), dims))
        x = concatenate([parts[0], x, parts[1]], axis)
    return x


def _pad_by_index(x: Value, pairs: Pairs, mode: str) -> Any:
    """Modes that repeat elements: positions come from padding 0, 1, 2, ... with NumPy itself."""
    for axis, pair in enumerate(pairs):
        extent = shape_of(x)[axis]
        if not any(pair):
            continue
        if isinstance(extent, Dim):
            raise TypeRuleError(f"pad: mode {mode!r} cannot extend an axis of extent {extent}")
        if is_open((extent,)):
            beyond = _repeated_places(extent, pair, mode)
        else:
            places = np.pad(np.arange(extent), pair, mode)  # type: ignore[call-overload]
            beyond = places[: pair[0]], places[pair[0] + extent :]
        low, high = (functions.take(x, part, axis=axis, mode="clip") for part in beyond)
        x = concatenate(
            [part for part, count in ((low, pair[0]), (x, 1), (high, pair[1])) if count], axis
        )
    return x


def _repeated_places(extent: int, pair: tuple[int, int], mode: str) -> tuple[Any, Any]:
    """Which elements of an axis of open extent stand before it and behind it."""
    f = functions
    before, behind = f.arange(pair[0]) - pair[0], f.arange(pair[1]) + extent

    def repeated(places: Any) -> Any:
        if mode in ("edge", "wrap"):
            return f.remainder(places, extent) if mode == "wrap" else places  # a take clips them
        shared = int(mode == "reflect")  # whether a turn has the last element once, or twice
        period = greatest(2 * (extent - shared), 1)
        turn = f.remainder(places, period)
        return f.minimum(turn, period - 1 + shared - turn)

    return repeated(before), repeated(behind)


def _edges(x: Value, axis: int) -> tuple[Any, Any]:
    extent = shape_of(x)[axis]
    return slice_axis(x, axis, 0, 1), slice_axis(x, axis, extent - 1, extent)


def _pad_ramp(x: Any, pairs: Pairs, end_values: Any = 0) -> Any:
    ends = _pairs(end_values, rank_of(x), "end_values")
    element = common_element(x)[0]
    for axis, (low, high) in enumerate(pairs):
        first, last = _edges(x, axis)
        parts = [x]
        if low:
            parts.insert(0, _ramp(first, ends[axis][0], low, axis))
        if high:
            parts.append(functions.flip(_ramp(last, ends[axis][1], high, axis), axis))
        x = functions.astype(concatenate(parts, axis), element) if len(parts) > 1 else x
    return x


def _ramp(edge: Value, end: Value, count: int, axis: int) -> Any:
    """`count` values from end to just before the edge, rounded down for integers."""
    element = common_element(edge)[0]
    shape = tuple(count if k == axis else 1 for k in range(rank_of(edge)))
    steps = np.reshape(np.arange(count), shape)
    if element.is_integer:
        whole = functions.astype(edge, np.int64)
        made = end + functions.floor_divide((whole - end) * steps, count)
    else:
        made = end + (edge - end) * (steps / count).astype(element.numpy)
    return functions.astype(made, element)


_STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}


def _pad_statistic(x: Value, pairs: Pairs, mode: str, stat_length: ArrayLike | None = None) -> Any:
    rank = rank_of(x)
    lengths = _pairs(stat_length, rank, "stat_length") if stat_length is not None else None
    for axis, pair in enumerate(pairs):
        extent = shape_of(x)[axis]
        sides = []
        for side, count in enumerate(pair):
            length = extent if lengths is None else min(lengths[axis][side], extent)
            start = 0 if side == 0 else extent - length
            part = slice_axis(x, axis, start, start + length)
            value = _statistic(part, mode, axis)
            dims = tuple(count if k == axis else d for k, d in enumerate(shape_of(x)))
            sides.append(broadcast_to(value, dims))
        if any(pair):
            x = concatenate([sides[0], x, sides[1]], axis)
    return x


def _statistic(part: ArrayLike, mode: str, axis: int) -> Any:
    element = common_element(part)[0]
    value = getattr(functions, _STATISTICS[mode])(part, axis=axis, keepdims=True)
    if element.is_integer and mode in ("mean", "median"):
        value = functions.round(value)
    return functions.astype(value, element)


_TAKEN = {
    "constant": "constant_values",
    "linear_ramp": "end_values",
    **dict.fromkeys(_STATISTICS, "stat_length"),
}
_TAKEN |= dict.fromkeys(("reflect", "symmetric"), "reflect_type")


@public(np.pad)
def pad(x: Any, pad_width: ArrayLike, mode: str = "constant", **named: Any) -> Any:
    """np.pad: every mode given by name, with its own keyword arguments."""
    taken = _TAKEN.get(mode, "")
    for name in named:
        require(
            name == taken,
            f"pad: mode {mode!r} has no {name!r}",
            hint=f"it has {taken}=" if taken else None,
        )
    x = x if isinstance(x, Value) else np.asarray(x)
    given = _pairs(pad_width, rank_of(x), "pad_width")
    is_known = mode != "constant" or not any(map(is_open, given))
    pairs = [(int(a), int(z)) for a, z in given] if is_known else given
    is_negative = any(amount < 0 for pair in pairs for amount in pair)
    require(not is_negative, "pad: a negative amount", hint="use a slice")
    if not is_known:
        return _pad_open(x, pairs, **named)
    if mode == "constant":
        return _pad_constant(x, pairs, **named)
    if mode == "empty":
        return pad_zeros(x, pairs)
    for extent, pair in zip(shape_of(x), pairs):
        empty = extent == 0 and any(pair)
        require(not empty, f"pad: mode {mode!r} cannot extend an axis without elements")
    if mode == "linear_ramp":
        return _pad_ramp(x, pairs, **named)
    if mode in _STATISTICS:
        return _pad_statistic(x, pairs, mode, **named)
    require(
        mode in ("edge", "reflect", "symmetric", "wrap"),
        f"pad: there is no mode {mode!r}",
        hint="constant, edge, reflect, symmetric, wrap, linear_ramp, maximum, minimum, mean, "
        "median or empty",
    )
    require(named.get("reflect_type", "even") == "even", "pad: reflect_type must be 'even'")
    return _pad_by_index(x, pairs, mode)
