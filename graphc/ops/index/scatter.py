"""scatter: a copy of an array with rows at computed positions set, added to or bounded.

    scatter(x[n, *rest], positions[*b], updates[*b, *rest])

One sequential pass over the positions makes every result deterministic.  Threads share the rows of
the result where these are long: each goes over all positions and takes those in its part.  Indexed
writes in Python syntax are in `update.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import OutOfRangeError
from graphc.ir.op import Attr, Library, Op, Sample
from graphc.ir.sizes import alike, hint_of
from graphc.ir.traits import Traits
from graphc.ir.types import BOOL, F32, I64, U64, AnyType, Type, definitely_different, tensor
from graphc.ops.index import scatter_gradients as rules
from graphc.ops.record.arguments import Applied, Array, ArrayLike
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import shape_of, tensor_type
from graphc.ops.record.families import (
    INTEGERS,
    define,
    device_code,
    require,
    require_dtype,
    sample_array,
    stored,
)
from graphc.ops.record.value import Value, common_element, emit, functions
from graphc.ops.shape.shape import broadcast_to, reshape
from graphc.ops.tuning import tuned

STORED = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "c64", "c128")
UPDATES = ("set", "add", "mul", "min", "max")
CANCELLED = -1  # the status of a run that was cancelled
STRIDE = 1 << 16  # elements written between two looks at the cancel flag


def require_index_types(name: str, *types: AnyType) -> list[Type]:
    """Integer index tensors. Raises TypeRuleError."""
    made = [tensor_type(name, t) for t in types]
    for kind in made:
        require(
            kind.dtype.name in INTEGERS,
            f"{name}: an index must have an integer type, got {kind.dtype}",
        )
    return made


# ------------------------------------------------------------------------------------ scatter


def _infer_scatter(x: AnyType, index: AnyType, updates: AnyType, *, mode: str, drop: bool) -> Type:
    x, updates = tensor_type("scatter", x), tensor_type("scatter", updates)
    (index,) = require_index_types("scatter", index)
    require(index.dtype is not U64, "scatter: an index of type u64", hint="cast it to i64")
    require_dtype("scatter", x, STORED)
    require(x.rank >= 1, "scatter into a scalar")
    wanted = tensor(x.dtype, (*index.shape, *x.shape[1:]))
    same = updates.rank == wanted.rank and updates.dtype is x.dtype
    same = same and not any(map(definitely_different, updates.shape, wanted.shape))
    require(same, f"scatter into {x} at {index} takes updates of type {wanted}, not {updates}")
    require(
        mode == "set" or x.dtype.kind in "iuf" or (mode == "add" and x.dtype.is_complex),
        f"scatter does not take mode {mode} for {x.dtype}",
    )
    return x


def _scatter_kernel(kind: int, is_narrow: bool, is_shared: bool) -> Callable[..., int]:
    """The kernel of UPDATES[kind], for rows of one element or of any number, all of them or those
    of a part; Numba drops what the constants rule out, and a loop of one turn, too.
    """

    def kernel(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        params: Array,
        lo: int,
        hi: int,
        cancelled: Array | None = None,
    ) -> int:
        # Rows lo..hi of the result. Updates apply in order: the last of equal positions wins.
        # Unsigned places cannot count from the end, which would keep the loops from vectorising.
        # Out may be x itself, a variable updated where it lies: a bad index changes nothing.
        rows, width, drop = params[0], params[1], params[2]
        if is_narrow:
            width = 1
        if not is_shared:
            lo, hi = 0, rows
        is_wrong = False  # an exit from the loop would keep it from vectorising
        for first in range(0, 0 if drop else len(index), STRIDE):
            if cancelled is not None and cancelled[0] != 0:
                return CANCELLED
            for k in range(first, min(first + STRIDE, len(index))):
                is_wrong |= np.int64(index[k]) < -rows or np.int64(index[k]) >= rows
        if is_wrong:
            return 1
        is_elsewhere = x.ctypes.data != out.ctypes.data
        for first in range(lo * width, hi * width if is_elsewhere else 0, STRIDE):
            if cancelled is not None and cancelled[0] != 0:
                return CANCELLED
            for at in range(np.uint64(first), np.uint64(min(first + STRIDE, hi * width))):
                out[at] = x[at]
        step = STRIDE // max(1, width) + 1
        for first in range(0, len(index), step):
            if cancelled is not None and cancelled[0] != 0:
                return CANCELLED
            for k in range(np.uint64(first), np.uint64(min(first + step, len(index)))):
                target = np.int64(index[k])
                if target < 0:
                    target += rows
                if target < lo or target >= hi:
                    continue
                start, source = np.uint64(target * width), k * np.uint64(width)
                for column in range(np.uint64(width)):
                    place = start + column
                    value = updates[source + column]
                    if kind == 0:
                        out[place] = value
                    elif kind == 1:
                        out[place] += value
                    elif kind == 2:
                        out[place] *= value
                    elif kind == 3:
                        if value < out[place] or value != value:
                            out[place] = value
                    elif value > out[place] or value != value:
                        out[place] = value
        return 0

    return kernel


_KERNELS = {
    (mode, is_narrow, is_shared): _scatter_kernel(kind, is_narrow, is_shared)
    for kind, mode in enumerate(UPDATES)
    for is_narrow, is_shared in ((True, False), (False, False), (False, True))
}


def _width(node: Applied) -> int:
    return math.prod(node.inputs[0].type.dims[1:])


def is_shared(node: Applied) -> bool:
    """Whether threads share rows: each of them goes over all positions, so that what is written
    must be little beside what is copied."""
    rows, positions = node.inputs[0].type.dims[0], math.prod(node.inputs[1].type.dims)
    is_large = hint_of(rows) >= tuned.scattered_share * hint_of(positions)
    return bool(is_large and hint_of(_width(node)) >= tuned.scattered_row)


def _units(node: Applied) -> int:
    return node.inputs[0].type.dims[0] if is_shared(node) else 1


def _kernel_of(node: Applied) -> Callable[..., int]:
    return _KERNELS[node.attrs["mode"], _width(node) == 1, is_shared(node)]


def _scatter_params(node: Applied) -> tuple[int, ...]:
    return node.inputs[0].type.dims[0], _width(node), int(node.attrs["drop"])


def _scatter_reference(x: Array, index: Array, updates: Array, mode: str, drop: bool) -> Any:
    made = np.array(x)
    rows = len(made)
    inside = (index >= -rows) & (index < rows)
    if not drop and not inside.all():
        wrong = index[~inside].flat[0]
        raise OutOfRangeError(f"index {wrong} is out of range for an axis of extent {rows}")
    index = index[inside].astype(np.int64)
    updates = updates[inside]
    if mode == "set":
        made[index] = updates
        return made
    ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
    ufunc.at(made, index, updates)
    return made


def _scatter_samples() -> list[Sample]:
    def case(name: str, shape: Any, index: Any, good: bool = True, **attrs: object) -> Sample:
        index = np.asarray(index)
        dims = (*index.shape, *shape[1:])
        arrays = (sample_array(name, s, (-4, 4), k) for k, s in enumerate((shape, dims)))
        x, updates = arrays
        return Sample((x, index, updates), attrs, good)

    made = [case(n, (4, 3), [2, 0, -1, 2]) for n in STORED]
    for mode in UPDATES[1:]:
        made += [case(n, (4, 3), [2, 0, -1, 2], mode=mode) for n in ("i8", "u32", "f32", "f64")]
    return [
        *made,
        case("c64", (5,), [4, 4], mode="add"),
        case("f32", (5,), [[1, 7], [-6, 1]], mode="add", drop=True),
        case("f32", (0, 2), np.zeros(0, "i4")),
        case("c64", (5,), [1], False, mode="max"),
        case("bool", (5,), [1], False, mode="add"),
        Sample((np.zeros((3, 2)), np.array([0]), np.zeros((1, 3))), {}, False),
        Sample((np.zeros(3), np.array([0.0]), np.zeros(1)), {}, False),
    ]


def _batch_scatter(
    op: Op, lanes: Lanes, x: Value, index: Value, updates: Value, *, mode: str, drop: bool
) -> Any:
    """The rows of all lanes one after another; a position outside of its lane is outside of all."""
    f = functions
    x, index, updates = lanes.spread((x, index, updates))
    rows, places = x.shape[1], f.astype(index, I64)
    places = f.where(places < 0, places + rows, places)
    lane = reshape(f.arange(lanes.size), (lanes.size, *(1,) * (index.ndim - 1)))
    total = lanes.size * rows
    places = f.where((places >= 0) & (places < rows), places + lane * rows, total)
    flat = reshape(x, (total, *x.shape[2:]))
    return reshape(emit(op, flat, places, updates, mode=mode, drop=drop), x.shape)


scatter_op = define(
    "scatter",
    batch=_batch_scatter,
    infer=_infer_scatter,
    gradient=rules.scatter_gradient,
    reference=_scatter_reference,
    lower=Library(
        _kernel_of,
        _scatter_params,
        units=_units,
        cuda=device_code("index.scatter_launches", "scatter_code"),
        updates=True,
        native="scatter",
    ),
    attrs=(Attr("mode", "str", "set", UPDATES), Attr("drop", "bool", False)),
    dtypes=STORED,
    samples=_scatter_samples,
    doc="x with rows set, added to, multiplied or bounded by updates, in order. Negative positions "
    "count from the end; those out of range are an error, or left out with `drop`.",
    traits=Traits(checks=True),
)


def scatter_rows(
    x: Value, index: Value, updates: Value, mode: str = "set", drop: bool = False
) -> Any:
    """scatter on any dtype: bool adds as `or`, multiplies as `and`; f16 and bf16 go through f32."""
    element = common_element(x)[0]
    updates = broadcast_to(stored("scatter", updates, x), (*shape_of(index), *shape_of(x)[1:]))
    if element is BOOL and mode != "set":
        wide = {"add": "max", "mul": "min"}.get(mode, mode)
        made = scatter_rows(functions.astype(x, "u8"), index, functions.astype(updates, "u8"), wide)
        return functions.astype(made, BOOL)
    if element.compute is F32 and element is not F32:
        x, updates = functions.astype(x, F32), functions.astype(updates, F32)
    if common_element(index)[0] is U64:
        index = functions.astype(functions.minimum(index, 2**63 - 1), I64)
    made = emit("scatter", x, index, updates, mode=mode, drop=drop)
    return functions.astype(made, element)


def add_along(dims: tuple[int, ...], index: Value, axis: int, updates: ArrayLike) -> Any:
    """Zeros of shape `dims`, with updates added where an index of their shape names the place
    along one axis: what is left of a take_along on the way back.
    """
    f, inner = functions, math.prod(dims[axis + 1 :])
    if alike(
        shape_of(index)[axis : axis + 1], (1,)
    ):  # one place per row: an index map, which fuses with what follows
        column = tuple(-1 if k == axis else 1 for k in range(len(dims)))
        return f.where(f.equal(reshape(f.arange(dims[axis]), column), index), updates, 0)
    outer, total = math.prod(dims[:axis]), math.prod(dims)
    place = reshape(index, (outer, shape_of(index)[axis], inner))
    if inner > 1:
        place = place * inner + f.arange(inner)
    if outer > 1:
        place = place + reshape(f.arange(outer) * (dims[axis] * inner), (outer, 1, 1))
    zeros = f.zeros((total,), common_element(updates)[0])
    count = (math.prod(shape_of(index)),)
    made = scatter_rows(zeros, reshape(place, count), reshape(updates, count), "add")
    return reshape(made, dims)
