"""`gc.vmap`: a function of one slice as one of all slices, and what slices say to each other.

It traces to a `vmap` node with the function as its region, which the pass `vmap` expands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import TraceError
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.region import (
    Operands,
    Region,
    closed,
    emit_closed,
    enclosing,
    trace_region,
)
from graphc.frontend.trace.trace import Parameter
from graphc.frontend.trace.tree import (
    LEAF,
    NONE,
    TreeDef,
    children_of,
    flatten,
    leaf_names,
    unflatten,
)
from graphc.frontend.transforms.on_arrays import NUMBERS, argument_names, compiling, leaf_title
from graphc.ir.place import parse_spec
from graphc.ir.types import Dimension, definitely_different, tensor
from graphc.ops.record.batching import moved
from graphc.ops.record.value import Value, current, emit, functions, lift

P = ParamSpec("P")
Axis = int | None
_lanes: ContextVar[dict[str, Dimension]] = ContextVar("lanes", default={})  # noqa: B039

IN_SLICES = "all slices of gc.vmap have the same shapes"


@refusing
def vmap(
    function: Callable[P, Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    devices: Sequence[str] | None = None,
) -> Callable[P, Any]:
    """The function on every slice of its arguments at once, its results stacked.

    in_axes     which axis of the arguments is sliced: an int for all of them, or one entry for each
                positional argument: an int, None for an argument that is the same for all slices,
                or a nesting of these down to where all leaves below agree; keyword arguments are
                sliced along their first axis
    out_axes    the axis along which results are stacked, likewise; None for a result that is the
                same for all slices
    axis_name   what gc.psum, gc.pmean, gc.pmax, gc.pmin, gc.all_gather and gc.axis_index call it
    axis_size   how many slices there are, where no argument is sliced
    devices     names, one for each slice, which is computed there; what combines slices goes from
                device to device. It belongs in what is compiled for these devices

    Results equal those of one call after the other.  Numbers that are not sliced stay Python
    numbers inside the function.  Raises TraceError for axes that do not exist, sizes that differ
    and nestings that do not fit, GraphError for what cannot differ from slice to slice.
    """
    name, homes = _name(axis_name), _names(devices)
    if axis_size is not None and not (_is_axis(axis_size) and axis_size >= 0):
        raise TraceError(f"vmap: axis_size is how many slices there are, got {axis_size!r:.80}")

    def slices(*args: Any, **kwargs: Any) -> Any:
        tree = flatten((args, kwargs))[1]
        spared = _with_defaults(function)
        given_axes = _per_argument(in_axes, args, spared)
        named_axes = {key: _axis_of(value, key in spared) for key, value in kwargs.items()}
        axes = _axes_of("in_axes", (given_axes, named_axes), tree)
        paths = leaf_names(tree)
        sliced = {path for path, axis in zip(paths, axes) if axis is not None}
        names = argument_names(function)
        given = Operands(
            (args, kwargs),
            lambda path: leaf_title(path, names),
            lambda path, number: path not in sliced,
        )
        chosen = [axes[position] for position in given.positions]
        known = {"axis_size": axis_size, "devices": len(homes) or None}
        size = _size(given, chosen, known)
        operands = [_first(v, axis) for v, axis in zip(given.values, chosen)]
        region = _region(function, given, operands, chosen, name, size)
        mapped = tuple(k for k, axis in enumerate(chosen) if axis is not None)
        attrs = {"mapped": mapped, "size": size, "axis_name": name, "devices": homes}
        return _emitted(region, operands, out_axes, **attrs)

    return compiling(slices, function, "vmap", lambda: lambda name: NUMBERS)


def _name(axis_name: str | None) -> str:
    if axis_name is not None and (not isinstance(axis_name, str) or not axis_name):
        raise TraceError(f"vmap: axis_name is a name, got {axis_name!r}")
    return axis_name or ""


def _names(devices: Sequence[str] | None) -> tuple[str, ...]:
    given = () if devices is None else devices
    is_listed = isinstance(given, Sequence) and not isinstance(given, str)
    is_listed = is_listed and all(isinstance(name, str) for name in given)
    if not is_listed or (devices is not None and not given):
        raise TraceError(f"vmap: devices is a list of names, got {devices!r:.80}")
    for name in given:
        parse_spec(name)
    return tuple(given)


def _with_defaults(function: Callable[..., Any]) -> set[int | str]:
    """The arguments that a call need not give, by position and by name."""
    try:
        parameters = enumerate(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return set()
    return {key for k, p in parameters if p.default is not p.empty for key in (k, p.name)}


def _axis_of(value: Any, may_be_default: bool, axis: Any = 0) -> Any:
    """The axis of an argument: none of a number that nobody may have given."""
    leaves = flatten(value)[0] if may_be_default else ()
    return None if may_be_default and not any(map(np.ndim, leaves)) else axis


def _per_argument(in_axes: Any, args: tuple[Any, ...], spared: set[int | str]) -> Any:
    """in_axes as one entry per argument."""
    if _is_axis(in_axes):
        return tuple(_axis_of(value, k in spared, in_axes) for k, value in enumerate(args))
    count = len(in_axes) if isinstance(in_axes, tuple | list) else 0
    rest = [_axis_of(value, k in spared) for k, value in enumerate(args) if k >= count]
    if not isinstance(in_axes, tuple | list) or count > len(args) or any(a == 0 for a in rest):
        raise TraceError(
            f"vmap: in_axes is {in_axes!r} for {len(args)} argument(s)",
            hint="give one int, or a tuple with an int, None or a nesting for each argument",
        )
    return (*in_axes, *rest)


def _is_axis(given: Any) -> bool:
    is_number = isinstance(given, int | np.integer) and not isinstance(given, bool)
    return given is None or is_number


def _axes_of(what: str, axes: Any, tree: TreeDef) -> list[Axis]:
    """An axis (or None) for each leaf: one that is given for a container holds for all in it."""
    if _is_axis(axes):
        return [None if axes is None else int(axes)] * tree.count
    if tree is NONE:
        return []
    try:
        parts = children_of(tree, axes) if tree is not LEAF and type(axes) is tree.kind else None
    except KeyError:
        parts = None
    if parts is None:
        raise TraceError(
            f"vmap: {what} has {axes!r} where the value is {tree!r}",
            hint="axes have the nesting of the value, down to an int or None for all leaves below",
        )
    return [
        axis for part, child in zip(parts, tree.children) for axis in _axes_of(what, part, child)
    ]


def _size(given: Operands, axes: Sequence[Axis], known: dict[str, int | None]) -> Dimension:
    """The one size of all sliced axes. Raises TraceError."""
    sizes: dict[str, Dimension] = {k: size for k, size in known.items() if size is not None}
    for value, axis, parameter in zip(given.values, axes, given.parameters):
        if axis is None:
            continue
        title = parameter.name
        if not -value.ndim <= axis < value.ndim:
            raise TraceError(
                f"vmap: {title} is {value.type}, which has no axis {axis}",
                hint="in_axes=None leaves an argument as it is for every slice",
            )
        sizes[title] = value.shape[axis]
    if not sizes:
        raise TraceError(
            "vmap: no argument is sliced", hint="in_axes says which, or give axis_size"
        )
    first = next(iter(sizes.values()))
    if any(definitely_different(first, extent) for extent in sizes.values()):
        listed = ", ".join(f"{title}: {extent}" for title, extent in sizes.items())
        raise TraceError(f"vmap: the sizes of the sliced axes differ ({listed})")
    return first


def _first(value: Value, axis: Axis) -> Value:
    """The value with the axis that is sliced as its first."""
    return value if axis is None else moved(value, axis % value.ndim, 0)


def _region(
    function: Callable[..., Any],
    given: Operands,
    operands: Sequence[Value],
    axes: Sequence[Axis],
    name: str,
    size: Dimension,
) -> Region:
    """The function of one slice."""
    parameters = [
        p if axis is None else Parameter(p.name, tensor(v.element, v.shape[1:]), p.weak)
        for p, v, axis in zip(given.parameters, operands, axes)
    ]

    def call(tracers: list[Any]) -> Any:
        positional, named = given.rebuilt(tracers)
        with _inside(name, size):
            return seen(function)(*positional, **named)

    return trace_region(getattr(function, "__name__", "f"), parameters, call, fixed_by=IN_SLICES)


def _emitted(region: Region, operands: Sequence[Value], out_axes: Any, **attrs: Any) -> Any:
    """The results of the node, each with its axis where it is wanted."""
    axes = _axes_of("out_axes", out_axes, region.tree)
    for k, (kind, axis) in enumerate(zip(region.types, axes)):
        if axis is not None and not -kind.rank - 1 <= axis <= kind.rank:
            raise TraceError(f"vmap: result {k} is {kind} for one slice; out_axes says {axis}")
    order = sorted(range(len(axes)), key=lambda k: axes[k] is None)
    captured, (graph,) = closed((region,))
    results = tuple(graph.results[k] for k in order)
    made = emit_closed(
        "vmap",
        (*operands, *captured),
        [graph.replace(results=results, result_names=())],
        stacked=sum(axis is not None for axis in axes),
        **attrs,
    )
    found = dict(zip(order, made))
    leaves = [
        found[k] if axis is None else moved(found[k], 0, axis % (kind.rank + 1))
        for k, (kind, axis) in enumerate(zip(region.types, axes))
    ]
    return unflatten(region.tree, leaves)


# ------------------------------------------------------------------------------------ all slices


@contextmanager
def _inside(name: str, size: Dimension) -> Iterator[None]:
    token = _lanes.set({**_lanes.get(), name: size} if name else _lanes.get())
    try:
        yield
    finally:
        _lanes.reset(token)


def _axis(name: str, axis_name: str) -> dict[str, Any]:
    """The attributes of an op of all lanes. Raises TraceError outside of a vmap of this name."""
    known = _lanes.get()
    if current() is None or axis_name not in known:
        raise TraceError(
            f"{name}: there is no vmap with axis_name={axis_name!r} around this",
            hint=f"the names are {', '.join(map(repr, known))}" if known else "gc.vmap names it",
        )
    return {"axis_name": axis_name, "size": known[axis_name]}


def _each(
    name: str, x: Any, axis_name: str, combine: Callable[[Value, dict[str, Any]], Any]
) -> Any:
    attrs = _axis(name, axis_name)
    leaves, tree = flatten(x)
    return unflatten(tree, [combine(lift(leaf, enclosing()), attrs) for leaf in leaves])


@refusing
def psum(x: Any, axis_name: str) -> Any:
    """The sum of x (any nesting of arrays) over all slices of the vmap of this name; bool counts.

    Raises TraceError outside of one.
    """

    def combine(v: Value, attrs: dict[str, Any]) -> Any:
        return emit("axis_sum", functions.astype(v, "i64") if v.element.kind == "b" else v, **attrs)

    return _each("psum", x, axis_name, combine)


@refusing
def pmean(x: Any, axis_name: str) -> Any:
    """The mean of x (any nesting of arrays) over all slices of the vmap of this name.

    Raises TraceError outside of one.
    """
    return _each(
        "pmean",
        x,
        axis_name,
        lambda v, attrs: (
            functions.divide(psum(v, axis_name), functions.astype(attrs["size"], v.element))
            if v.element.kind in "fc"
            else functions.mean(emit("axis_gather", v, **attrs), axis=0)
        ),
    )


@refusing
def pmax(x: Any, axis_name: str) -> Any:
    """The largest x of all slices, element by element. Raises TraceError outside of a vmap of this
    name."""
    return _each(
        "pmax",
        x,
        axis_name,
        lambda v, attrs: functions.max(emit("axis_gather", v, **attrs), axis=0),
    )


@refusing
def pmin(x: Any, axis_name: str) -> Any:
    """The smallest x of all slices, element by element. Raises TraceError outside of a vmap of this
    name."""
    return _each(
        "pmin",
        x,
        axis_name,
        lambda v, attrs: functions.min(emit("axis_gather", v, **attrs), axis=0),
    )


@refusing
def all_gather(x: Any, axis_name: str, axis: int = 0) -> Any:
    """The x of all slices, stacked along a new axis. Raises TraceError outside of a vmap of this
    name, and for an axis that does not exist."""
    return _each(
        "all_gather",
        x,
        axis_name,
        lambda v, attrs: functions.moveaxis(emit("axis_gather", v, **attrs), 0, axis),
    )


@refusing
def axis_index(axis_name: str) -> Any:
    """The number of this slice, an i64, in the vmap of this name.

    Raises TraceError outside of one.
    """
    attrs = _axis("axis_index", axis_name)
    return emit("axis_slice", emit("iota", extent=attrs["size"], dtype="i64"), **attrs)
