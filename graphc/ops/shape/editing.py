"""Whole arrays edited: block, insert, delete, NumPy's in-place functions, differences, meshes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import TraceError, TypeRuleError
from graphc.ir.promotion import promote
from graphc.ir.sizes import is_open
from graphc.ir.types import BOOL, I64, Dim
from graphc.ops.index.update import index_update
from graphc.ops.record.arguments import ArrayLike, Axes, Tensor
from graphc.ops.record.dims import rank_of, shape_of, size_of
from graphc.ops.record.families import alias, normalise_axis, require, stored
from graphc.ops.record.value import Value, as_value, common_element, functions, public
from graphc.ops.shape.concat import concatenate
from graphc.ops.shape.manipulation import expand_dims, moveaxis
from graphc.ops.shape.shape import broadcast_to, reshape, transpose

alias("concatenate", "concat")
alias("transpose", "permute_dims")

# ------------------------------------------------------------------------------------ new arrays


@public(np.block)
def block(arrays: ArrayLike) -> Any:
    """Nested lists of arrays put together: the innermost along the last axis, and so outwards."""
    depth = _depth(arrays)
    rank = max(depth, *(rank_of(leaf) for leaf in _leaves(arrays)))
    return _joined(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    require(bool(arrays), "block: an empty list")
    depths = {_depth(a) for a in arrays}
    require(len(depths) == 1, "block: lists of different depths")
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Any]:
    return [leaf for a in arrays for leaf in _leaves(a)] if isinstance(arrays, list) else [arrays]


def _joined(arrays: Any, depth: int, rank: int) -> Any:
    if not isinstance(arrays, list):
        return reshape(arrays, (1,) * (rank - rank_of(arrays)) + tuple(shape_of(arrays)))
    return concatenate([_joined(a, depth - 1, rank) for a in arrays], rank - depth)


def _axis_extent(x: Value, axis: int, name: str) -> int:
    extent = shape_of(x)[axis]
    if isinstance(extent, Dim):
        raise TypeRuleError(f"{name}: the extent {extent} is not known")
    return extent


def _static(obj: Any, name: str) -> Any:
    """Positions known while tracing: they decide the shape of the result."""
    if isinstance(obj, Value):
        raise TraceError(f"{name} at traced positions has a shape that depends on data")
    return obj if isinstance(obj, slice) else np.asarray(obj)


@public(np.delete)
def delete(x: Any, obj: Any, axis: int | None = None) -> Any:
    """x without the sub-arrays at positions or where a mask is true."""
    x, axis = (
        (reshape(x, -1), 0) if axis is None else (x, normalise_axis(axis, rank_of(x), "delete"))
    )
    if isinstance(obj, Value):
        gone = obj
        if obj.element is not BOOL:
            none = functions.zeros((shape_of(x)[axis],), BOOL)
            gone = functions.setitem(none, reshape(obj, -1), True)
        return functions.compress(functions.logical_not(gone), x, axis)
    kept = np.delete(np.arange(_axis_extent(x, axis, "delete")), _static(obj, "delete"))
    return functions.take(x, kept, axis=axis)


@public(np.trim_zeros)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """An array without the zeros at its front ("f"), at its back ("b") or at both ends; of several
    axes the box that holds everything else."""
    ends = trim.lower()
    require(set(ends) <= {"f", "b"}, f"trim_zeros: {trim!r} is not 'f', 'b' or 'fb'")
    x, f = as_value(filt), functions
    axes = range(rank_of(x)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    chosen = {normalise_axis(k, rank_of(x), "trim_zeros") for k in axes}
    there, parts = f.not_equal(x, 0), [slice(None)] * rank_of(x)
    for k in chosen:
        extent = shape_of(x)[k]
        if isinstance(extent, int) and extent == 0:
            continue
        hit = f.any(there, axis=tuple(other for other in range(rank_of(x)) if other != k))
        found = f.any(hit)
        first = f.where(found, f.argmax(hit), extent)
        last = f.where(found, extent - f.argmax(f.flip(hit)), 0)
        parts[k] = slice(first if "f" in ends else None, last if "b" in ends else None)
    return f.getitem(x, tuple(parts)) if isinstance(x, Value) else x[tuple(parts)]


@public(np.insert)
def insert(x: Any, obj: ArrayLike, values: Any, axis: int | None = None) -> Any:
    """x with values put before positions known while tracing."""
    x, axis = (
        (reshape(x, -1), 0) if axis is None else (x, normalise_axis(axis, rank_of(x), "insert"))
    )
    extent, places = _axis_extent(x, axis, "insert"), _static(obj, "insert")
    places = np.arange(extent)[places] if isinstance(places, slice) else places
    values = stored("insert", values, x)
    if places.ndim == 0 and rank_of(values) > 0:
        missing = rank_of(x) - rank_of(values)
        values = reshape(values, (1,) * missing + tuple(shape_of(values)))
        values = moveaxis(values, 0, axis)
    dims = list(shape_of(x))
    several = rank_of(values) == rank_of(x) and places.size == 1
    count = _axis_extent(values, axis, "insert") if several else places.size
    dims[axis] = count
    order = np.insert(np.arange(extent), places, np.arange(count) + extent)
    whole = concatenate([x, broadcast_to(values, tuple(dims))], axis)
    return functions.take(whole, order, axis=axis)


@public(np.rollaxis)
def rollaxis(x: ArrayLike, axis: int, start: int = 0) -> Any:
    """x with one axis moved to lie before another."""
    rank = rank_of(x)
    axis = normalise_axis(axis, rank, "rollaxis")
    start = start + rank if start < 0 else start
    order = [k for k in range(rank) if k != axis]
    order.insert(start - (axis < start), axis)
    return transpose(x, order)


# ------------------------------------------------------------------------------------ in place


def _assign(name: str, x: Any, value: Tensor) -> None:
    if not hasattr(x, "assign"):
        raise TraceError(f"{name} changes an array that is not traced", hint="use gc.zeros(...)")
    x.assign(value)


@public(np.fill_diagonal)
def fill_diagonal(x: Any, value: ArrayLike, wrap: bool = False) -> None:
    """Set the main diagonal of a traced array."""
    rank = rank_of(x)
    extent = min(_axis_extent(x, axis, "fill_diagonal") for axis in range(rank))
    require(rank >= 2 and not wrap, "fill_diagonal takes two axes or more, without wrap")
    require(rank == 2 or len(set(shape_of(x))) == 1, "fill_diagonal: the extents differ")
    places = np.arange(extent)
    _assign("fill_diagonal", x, index_update(x, (places,) * rank, value))


@public(np.put, method=True)
def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike, mode: str = "raise") -> None:
    """Set elements of a traced array at row-major positions; values repeat as needed."""
    places = functions.ravel(as_value(indices))
    count, total = shape_of(places)[0], size_of(shape_of(x))
    if mode != "raise":
        limit = functions.clip if mode == "clip" else None
        places = limit(places, 0, total - 1) if limit else functions.remainder(places, total)
    filled = functions.resize(as_value(values), (count,))
    made = index_update(reshape(x, -1), (places,), filled)
    _assign("put", x, reshape(made, shape_of(x)))


@public(np.putmask)
def putmask(x: ArrayLike, mask: ArrayLike, values: ArrayLike) -> None:
    """Set elements of a traced array where a mask holds, from values repeated to its shape."""
    filled = functions.resize(stored("putmask", values, x), shape_of(x))
    made = functions.where(mask, filled, x)
    _assign("putmask", x, made)


@public(np.place)
def place(x: Tensor, mask: ArrayLike, values: Any) -> None:
    """Set the elements of a traced array where a mask holds to the values one after the other,
    which start again where there are too few."""
    values = functions.ravel(stored("place", values, x))
    count = _axis_extent(values, 0, "place")
    require(count > 0, "place: there are no values")
    chosen = functions.astype(reshape(mask, -1), bool)
    turn = functions.remainder(functions.cumsum(functions.astype(chosen, I64)) - 1, count)
    filled = reshape(functions.take(values, turn, mode="clip"), shape_of(x))
    made = functions.where(reshape(chosen, shape_of(x)), filled, x)
    _assign("place", x, made)


# ------------------------------------------------------------------------------------ differences


@public(np.gradient)
def gradient(x: Any, *spacing: ArrayLike, axis: Axes = None, edge_order: int = 1) -> Any:
    """Central differences, one-sided at both ends: of two elements, or of three (`edge_order` 2).

    The spacing of each axis is a number, or a vector of places.
    """
    rank = rank_of(x)
    require(edge_order in (1, 2), "gradient: edge_order must be 1 or 2")
    given = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [normalise_axis(a, rank, "gradient") for a in given]
    steps = spacing * len(axes) if len(spacing) == 1 else spacing or (1.0,) * len(axes)
    require(len(steps) == len(axes), f"gradient: {len(steps)} spacings for {len(axes)} axes")
    require(
        all(rank_of(s) < 2 for s in steps),
        "gradient: a spacing must be a number or a vector of places",
    )
    if common_element(x)[0].is_integer:
        x = functions.astype(x, np.float64)
    plain = edge_order == 1 and all(rank_of(s) == 0 for s in steps)
    made = [
        _difference(x, a, s) if plain else _slopes(x, a, s, edge_order) for a, s in zip(axes, steps)
    ]
    return made[0] if len(made) == 1 else tuple(made)


def _difference(x: Value, axis: int, step: ArrayLike) -> Any:
    extent = _axis_extent(x, axis, "gradient")
    require(extent >= 2, f"gradient: axis {axis} has {extent} element(s), fewer than 2")
    f: Any = functions if is_open((extent,)) else np
    places = f.arange(extent)
    ahead = functions.take(x, f.minimum(places + 1, extent - 1), axis=axis)
    behind = functions.take(x, f.maximum(places - 1, 0), axis=axis)
    width = f.where((places == 0) | (places == extent - 1), 1.0, 2.0)
    width = f.reshape(width, [-1 if k == axis else 1 for k in range(rank_of(x))])
    kind = common_element(x)[0]
    return functions.astype((ahead - behind) / (functions.astype(width, kind) * step), kind)


def _slopes(x: Value, axis: int, step: ArrayLike, edge_order: int) -> Any:
    """Those of a parabola through each element and its neighbours, in the terms that NumPy adds; at
    the ends that of the chord, or of the parabola that ends there."""
    f, rank, extent = functions, rank_of(x), _axis_extent(x, axis, "gradient")
    require(extent > edge_order, f"gradient: {extent} element(s) for edge_order {edge_order}")
    spread = rank_of(step) == 1
    require(not spread or shape_of(step)[0] == extent, "gradient: as many places as elements")
    if common_element(step)[0].is_integer:
        step = f.astype(step, np.float64)  # whose differences and sums have room
    gaps = f.diff(step) if spread else f.full((extent - 1,), step)
    gaps = f.reshape(gaps, [-1 if k == axis else 1 for k in range(rank)])

    def part(values: Any, start: int | None, stop: int | None) -> Any:
        return f.getitem(values, (slice(None),) * axis + (slice(start, stop),))

    def weighted(three: Any, a: Any, b: Any, c: Any) -> Any:
        return three[0] * a + three[1] * b + three[2] * c

    three = part(x, None, -2), part(x, 1, -1), part(x, 2, None)
    near, far = part(gaps, None, -1), part(gaps, 1, None)
    both = near + far
    middle = f.divide(three[2] - three[0], part(gaps, None, 1) * 2.0)
    if spread:
        a, c = -far / (near * both), near / (far * both)
        bent = weighted(three, a, (far - near) / (near * far), c)
        middle = f.where(f.all(f.equal(near, far)), middle, bent)
    if edge_order == 1:
        chords = f.divide(f.diff(x, axis=axis), gaps)
        first, last = part(chords, None, 1), part(chords, -1, None)
    else:
        one, other = ([part(v, *at) for v in (*three, near, far)] for at in ((None, 1), (-1, None)))
        *ends, h, k = one
        first = weighted(
            ends, -(h * 2.0 + k) / (h * (h + k)), (h + k) / (h * k), -h / (k * (h + k))
        )
        *ends, h, k = other
        last = weighted(ends, k / (h * (h + k)), -(h + k) / (h * k), (k * 2.0 + h) / (k * (h + k)))
    return f.astype(f.concatenate([first, middle, last], axis), common_element(x)[0])


@public(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: ArrayLike,
    window_shape: int | Sequence[int],
    axis: Axes = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    """All windows of a shape along axes (None: all), as new axes at the end; a copy of its own."""
    name, x = "sliding_window_view", as_value(x)
    extents = window_shape if isinstance(window_shape, tuple | list) else (window_shape,)
    given = tuple(range(rank_of(x))) if axis is None else axis
    given = given if isinstance(given, tuple | list) else (given,)
    require(len(given) == len(extents), f"{name}: {len(extents)} windows on {len(given)} axes")
    for place, extent in zip(given, extents):
        place = normalise_axis(place, rank_of(x), name)
        have, extent = shape_of(x)[place], extent if is_open((extent,)) else operator.index(extent)
        if isinstance(have, Dim):
            raise TypeRuleError(f"{name} needs a known extent, got {have}")
        require(0 <= extent <= have, f"{name}: a window of {extent} in {have} elements")
        f: Any = functions if is_open((have, extent)) else np
        rows = f.arange(have - extent + 1)[:, None] + f.arange(extent)
        x = moveaxis(functions.take(x, rows, axis=place), place + 1, -1)
    return x


@public(np.ix_, name="ix_")
def ix_(*arrays: ArrayLike) -> tuple[Any, ...]:
    """Vectors as an open mesh, one axis each: x[np.ix_(rows, columns)]. Of masks, which must be
    known while tracing, the positions."""
    rank, made = len(arrays), []
    for axis, array in enumerate(map(as_value, arrays)):
        require(rank_of(array) == 1, "ix_ takes vectors")
        if common_element(array)[0].name == "bool":
            array = functions.nonzero(array)[0]
        listed = isinstance(arrays[axis], list | tuple)
        array = functions.astype(array, I64) if listed and shape_of(array)[0] == 0 else array
        made.append(reshape(array, (1,) * axis + (-1,) + (1,) * (rank - axis - 1)))
    return tuple(made)


@public(np.vander)
def vander(x: Any, n: int | None = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns, falling from n - 1 to 0."""
    count = operator.index(_axis_extent(x, 0, "vander") if n is None else n)
    powers = np.arange(count) if increasing else np.arange(count)[::-1]
    element = promote(common_element(x)[0], I64)
    columns = expand_dims(functions.astype(x, element), 1)
    return functions.power(columns, functions.astype(powers, element))
