"""Functions made of reshape, transpose, broadcast, slice and concat: stack, split, flip, tile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.sizes import least
from graphc.ir.types import Dim, Dimension
from graphc.limits import check_within
from graphc.ops.record.arguments import ArrayLike, Axes, DTypeLike, Tensor
from graphc.ops.record.dims import as_shape, mode_of_known, rank_of, shape_of, size_of
from graphc.ops.record.families import broadcast_dims, normalise_axes, normalise_axis, require
from graphc.ops.record.value import NO_SIZE, Value, common_element, functions, public
from graphc.ops.shape.concat import concatenate
from graphc.ops.shape.shape import broadcast_to, reshape, transpose
from graphc.ops.shape.slicing import emit_slice, slice_axis

# ------------------------------------------------------------------------------------ reshapes

public(np.shape, name="shape")(shape_of)
public(np.ndim, name="ndim")(rank_of)


@public(np.size)
def size(x: Tensor, axis: int | None = None) -> Dimension:
    """The number of elements, or the extent of one axis."""
    return size_of(shape_of(x)) if axis is None else shape_of(x)[axis]


@public(np.ravel, method=True)
def ravel(x: ArrayLike, order: str = "C") -> Any:
    """The elements as one row."""
    return reshape(x, -1, order=order)


@public(method=True)
def flatten(x: ArrayLike, order: str = "C") -> Any:
    """The elements as one row."""
    return reshape(x, -1, order=order)


@public(np.squeeze, method=True)
def squeeze(x: ArrayLike, axis: Axes = None) -> Any:
    """x without its axes of extent 1, or without the given ones."""
    dims = shape_of(x)
    axes = normalise_axes(axis, len(dims), "squeeze")
    if axis is None:
        axes = tuple(k for k in axes if dims[k] == 1)
    for k in axes:
        require(dims[k] == 1, f"squeeze: axis {k} has extent {dims[k]}, not 1")
    return reshape(x, tuple(d for k, d in enumerate(dims) if k not in axes))


@public(np.expand_dims)
def expand_dims(x: ArrayLike, axis: Axes) -> Any:
    """x with new axes of extent 1 at the given positions of the result."""
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = normalise_axes(tuple(given), rank_of(x) + len(given), "expand_dims")
    rest = iter(shape_of(x))
    rank = rank_of(x) + len(axes)
    return reshape(x, tuple(1 if k in axes else next(rest) for k in range(rank)))


def _at_least(rank: int, arrays: tuple[Any, ...]) -> Any:
    def one(x: Value) -> Any:
        dims = shape_of(x)
        if len(dims) >= rank:
            return x
        if rank == 3 and len(dims) >= 1:  # NumPy puts a vector in the middle, a matrix in front
            return expand_dims(x, (0, 2) if len(dims) == 1 else 2)
        return expand_dims(x, tuple(range(rank - len(dims))))

    made = tuple(one(x) for x in arrays)
    return made[0] if len(made) == 1 else made


@public(np.atleast_1d)
def atleast_1d(*arrays: ArrayLike) -> Any:
    """Every array with at least one axis."""
    return _at_least(1, arrays)


@public(np.atleast_2d)
def atleast_2d(*arrays: ArrayLike) -> Any:
    """Every array with at least two axes."""
    return _at_least(2, arrays)


@public(np.atleast_3d)
def atleast_3d(*arrays: ArrayLike) -> Any:
    """Every array with at least three axes."""
    return _at_least(3, arrays)


# ------------------------------------------------------------------------------------ axes


@public(np.swapaxes, method=True)
def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Any:
    """x with two axes exchanged."""
    perm = list(range(rank_of(x)))
    first = normalise_axis(axis1, len(perm), "swapaxes")
    second = normalise_axis(axis2, len(perm), "swapaxes")
    perm[first], perm[second] = second, first
    return transpose(x, perm)


@public(np.matrix_transpose, np.linalg.matrix_transpose, method=True)
def matrix_transpose(x: ArrayLike) -> Any:
    """x with its last two axes exchanged."""
    require(rank_of(x) >= 2, f"matrix_transpose needs two axes, got shape {list(shape_of(x))}")
    return swapaxes(x, -1, -2)


@public(np.moveaxis)
def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """x with some axes moved to new positions, the others in their order."""
    rank = rank_of(x)
    sources = [normalise_axis(a, rank, "moveaxis") for a in np.atleast_1d(source)]
    targets = [normalise_axis(a, rank, "moveaxis") for a in np.atleast_1d(destination)]
    require(
        len(sources) == len(targets) == len(set(sources)) == len(set(targets)),
        f"moveaxis: {source} and {destination} must be distinct axes, equally many",
    )
    order = [a for a in range(rank) if a not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return transpose(x, order)


@public(np.flip)
def flip(x: ArrayLike, axis: Axes = None) -> Any:
    """x backwards along the given axes (all by default)."""
    dims = shape_of(x)
    axes = normalise_axes(axis, len(dims), "flip")
    return emit_slice(
        x,
        [d - 1 if k in axes else 0 for k, d in enumerate(dims)],
        [-1 if k in axes else d for k, d in enumerate(dims)],
        [-1 if k in axes else 1 for k in range(len(dims))],
    )


@public(np.fliplr)
def fliplr(x: ArrayLike) -> Any:
    """x backwards along axis 1."""
    return flip(x, 1)


@public(np.flipud)
def flipud(x: ArrayLike) -> Any:
    """x backwards along axis 0."""
    return flip(x, 0)


@public(np.rot90)
def rot90(x: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """x turned k times by 90 degrees in the plane of two axes, first towards second."""
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, axes)
    turned = swapaxes(x, *axes)
    return flip(turned, axes[0] if turns == 1 else axes[1])


# ------------------------------------------------------------------------------------ joining


@public(np.stack)
def stack(
    arrays: Any, axis: int = 0, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Any:
    """Arrays of one shape joined along a new axis."""
    parts = list(arrays)
    require(bool(parts), "stack needs at least one array")
    first = shape_of(parts[0])
    for other in map(shape_of, parts):
        require(other == first, f"stack: shapes {list(first)} and {list(other)} differ")
    axis = normalise_axis(axis, len(first) + 1, "stack")
    return concatenate([expand_dims(p, axis) for p in parts], axis, dtype, casting)


@public(np.hstack)
def hstack(arrays: Any, dtype: DTypeLike | None = None, casting: str = "same_kind") -> Any:
    """Arrays joined along axis 1 (axis 0 for vectors)."""
    parts = [atleast_1d(a) for a in arrays]
    return concatenate(parts, 0 if parts and rank_of(parts[0]) == 1 else 1, dtype, casting)


@public(np.vstack)
def vstack(arrays: Any, dtype: DTypeLike | None = None, casting: str = "same_kind") -> Any:
    """Arrays joined along axis 0; vectors are rows."""
    return concatenate([atleast_2d(a) for a in arrays], 0, dtype, casting)


@public(np.dstack)
def dstack(arrays: Any) -> Any:
    """Arrays joined along axis 2."""
    return concatenate([atleast_3d(a) for a in arrays], 2)


@public(np.column_stack)
def column_stack(arrays: Any) -> Any:
    """Vectors as the columns of a matrix; matrices as they are."""
    return concatenate([reshape(a, -1, 1) if rank_of(a) < 2 else a for a in arrays], 1)


@public(np.append)
def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> Any:
    """values after x along an axis (None: both flattened)."""
    return concatenate([x, values], axis)


# ------------------------------------------------------------------------------------ splitting


def _cuts(extent: Dimension, sections: Any, even: bool) -> list[Dimension]:
    """Positions at which to cut an axis into equal sections, or at the given indices."""
    if not isinstance(sections, int | np.integer):
        assert isinstance(extent, int) or all(i >= 0 for i in sections)
        if isinstance(extent, Dim):
            return list(sections)
        return [min(max(i + extent if i < 0 else i, 0), extent) for i in map(int, sections)]
    require(int(sections) > 0, "split: the number of sections must be positive")
    check_within("results", int(sections), f"split into {sections} sections")
    if isinstance(extent, Dim):
        part = extent.divide(int(sections))
        if part is None:
            raise TypeRuleError(f"split: {extent} does not divide into {sections} equal sections")
        return [part * k for k in range(1, sections)]
    size, rest = divmod(extent, int(sections))
    require(
        not (even and rest),
        f"split: extent {extent} does not divide into {sections} equal sections",
        hint="np.array_split allows sections of unequal size",
    )
    return [size * k + (0 if even else least(k, rest)) for k in range(1, sections)]


def _split(x: Value, sections: ArrayLike, axis: int, even: bool) -> list[Any]:
    axis = normalise_axis(axis, rank_of(x), "split")
    extent = shape_of(x)[axis]
    if isinstance(sections, Value) and sections.ndim == 1 and isinstance(sections.shape[0], int):
        places = [None, *(sections[k] for k in range(sections.shape[0])), None]
        before = (slice(None),) * axis
        return [functions.getitem(x, (*before, slice(a, z))) for a, z in itertools.pairwise(places)]
    cuts = _cuts(extent, sections, even)
    pairs = zip([0, *cuts], [*cuts, extent])
    return [slice_axis(x, axis, a, z if _ordered(a, z) else a) for a, z in pairs]


def _ordered(start: Dimension, stop: Dimension) -> bool:
    span = stop - start
    return not isinstance(span, int) or span >= 0


@public(np.split)
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """x cut along an axis into equal sections, or at the given indices."""
    return _split(x, indices_or_sections, axis, even=True)


@public(np.array_split)
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Like split; the first sections are one longer where the extent does not divide."""
    return _split(x, indices_or_sections, axis, even=False)


@public(np.hsplit)
def hsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> Any:
    """split along axis 1 (axis 0 for vectors)."""
    return split(x, indices_or_sections, 0 if rank_of(x) == 1 else 1)


@public(np.vsplit)
def vsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> Any:
    """split along axis 0."""
    return split(x, indices_or_sections, 0)


@public(np.dsplit)
def dsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> Any:
    """split along axis 2."""
    return split(x, indices_or_sections, 2)


@public(np.unstack)
def unstack(x: ArrayLike, axis: int = 0) -> tuple[Any, ...]:
    """The sub-arrays along an axis, which they lose."""
    axis = normalise_axis(axis, rank_of(x), "unstack")
    extent = shape_of(x)[axis]
    if isinstance(extent, Dim):
        raise TypeRuleError(f"unstack: the extent {extent} is not known")
    return tuple(squeeze(slice_axis(x, axis, k, k + 1), axis) for k in range(extent))


# ------------------------------------------------------------------------------------ repeating


@public(np.tile)
def tile(x: ArrayLike, reps: Any) -> Any:
    """x repeated as a whole reps[k] times along axis k."""
    counts = as_shape(reps)
    rank = max(len(counts), rank_of(x))
    counts = (1,) * (rank - len(counts)) + counts
    dims = (1,) * (rank - rank_of(x)) + tuple(shape_of(x))
    apart = tuple(e for d in dims for e in (1, d))
    spread = tuple(e for c, d in zip(counts, dims) for e in (c, d))
    return reshape(
        broadcast_to(reshape(x, apart), spread), tuple(c * d for c, d in zip(counts, dims))
    )


@public(np.repeat, method=True)
def repeat(x: Tensor, repeats: Tensor, axis: int | None = None) -> Any:
    """Every element (or sub-array along an axis) repeated, all as often or each by its count;
    a traced count below zero is a ValueError of the run."""
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalise_axis(axis, rank_of(x), "repeat")
    dims = shape_of(x)
    if isinstance(repeats, Value):
        return _repeated(x, repeats, axis)
    if np.size(repeats) == 1:
        count = int(np.reshape(repeats, ()))
        spread = (*dims[: axis + 1], count, *dims[axis + 1 :])
        made = broadcast_to(expand_dims(x, axis + 1), spread)
        return reshape(made, (*dims[:axis], dims[axis] * count, *dims[axis + 1 :]))
    require(np.shape(repeats) == (dims[axis],), f"repeat: {len(repeats)} counts for {dims[axis]}")
    return functions.take(x, np.repeat(np.arange(len(repeats)), repeats), axis=axis, mode="clip")


def _repeated(x: Tensor, repeats: Value, axis: int) -> Any:
    """The same with counts that the run decides."""
    counts = functions.astype(repeats, "i64")
    is_wrong = functions.any(functions.less(counts, 0))
    counts = broadcast_to(reshape(counts, -1), (shape_of(x)[axis],))
    total = functions.where(is_wrong, NO_SIZE, functions.sum(counts))
    total = repeats.owner.data_size("repeat", total)
    ends = functions.cumsum(counts)
    places = functions.searchsorted(ends, functions.arange(total), "right")
    return functions.take(x, places, axis=axis, mode=mode_of_known(shape_of(x)[axis]))


def _roll_one(x: Value, shift: Any, axis: int) -> Any:
    extent = shape_of(x)[axis]
    if isinstance(shift, Value) or not isinstance(extent, int):
        positions = functions.arange(extent) - shift
        return functions.take(x, positions, axis=axis, mode="wrap")
    cut = int(shift) % extent if extent else 0
    if cut == 0:
        return x
    ends = (slice_axis(x, axis, extent - cut, extent), slice_axis(x, axis, 0, extent - cut))
    return concatenate(ends, axis)


@public(np.roll)
def roll(x: Any, shift: ArrayLike, axis: Axes = None) -> Any:
    """x moved along axes by shifts (may be traced); what leaves at one end enters at the other."""
    if axis is None:
        return reshape(_roll_one(ravel(x), shift, 0), shape_of(x))
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = shift if isinstance(shift, tuple | list) else (shift,) * len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    require(len(shifts) == len(axes), f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for amount, k in zip(shifts, axes):
        x = _roll_one(x, amount, normalise_axis(k, rank_of(x), "roll"))
    return x


@public(np.meshgrid)
def meshgrid(
    *arrays: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> Any:
    """Coordinate arrays of the grid that vectors span."""
    require(indexing in ("xy", "ij"), f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    rank = len(arrays)
    positions: Sequence[int] = range(rank)
    if indexing == "xy" and rank > 1:
        positions = (1, 0, *range(2, rank))
    grids = [
        reshape(a, tuple(-1 if k == p else 1 for k in range(rank)))
        for a, p in zip(arrays, positions)
    ]
    if sparse:
        return tuple(grids)
    common = broadcast_dims([shape_of(g) for g in grids])
    return tuple(broadcast_to(g, common) for g in grids)


@public(np.resize)
def resize(x: ArrayLike, new_shape: Any) -> Any:
    """x's elements repeated or cut to fill a new shape."""
    target = as_shape(new_shape)
    have, want = size_of(shape_of(x)), size_of(target)
    if isinstance(have, Dim) or isinstance(want, Dim):
        raise TypeRuleError("resize: a size is not known")
    if have == 0:
        return functions.zeros(target, common_element(x)[0])
    repeated = tile(ravel(x), -(-want // have))
    return reshape(slice_axis(repeated, 0, 0, want), target)
