"""Views and writes: NumPy's in-place style made functional.

A view remembers how it is derived from its parent and how a write to it becomes a write to the
parent.  An array and its views share a `Storage` that counts writes; a tracer whose count is behind
derives its node again when it is next read.

    x ----[1:]----> v ----.T----> w          w += 1   writes w, then v, then x (count 0 -> 1)
    count 0         seen 0        seen 0     y = v    v is current; other views derive again
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import record, replace
from graphc.errors import TraceError, also
from graphc.frontend.trace.masks import counted_elements, selected
from graphc.frontend.trace.operands import is_basic, mapped, plain
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import Size, alike, hint_of, is_open
from graphc.ops.record.dims import row_major_strides
from graphc.ops.record.value import (
    METHODS,
    PUBLIC,
    Value,
    as_value,
    cast_value,
    current,
    holds_values,
    tracing,
)

if TYPE_CHECKING:
    from graphc.frontend.trace.tracer import Tracer


class Storage:
    """What an array shares with its views: the number of writes so far, and what the last was to.

    `known` holds until a traced value is written to arrays whose elements are known.
    """

    __slots__ = ("known", "last", "writes")

    def __init__(self, known: bool = False) -> None:
        self.writes = 0
        self.last: Tracer | None = None
        self.known = known


@record(frozen=True)
class Link:
    """How a view follows from its parent.

    derive(parent) -> value        the view of the parent's present value
    ghost(array) -> array          the same on a NumPy array (never read), to follow strides
    write(parent, value) -> value  the parent after a write through the view; None: read-only
    steps                          of slices: 1, and others by which it takes every so many elements
    keeps() -> bool                whether it is a view at all, where open sizes decide that: asked
                                   for once something is written
    """

    parent: Tracer
    derive: Callable[[Any], Any]
    ghost: Callable[[Any], Any]
    write: Callable[[Any, Any], Any] | None
    index: Any = None
    steps: tuple[int, ...] = (1,)
    keeps: Callable[[], bool] | None = None


def _attach(view: Value, link: Link) -> Tracer:
    """A fresh tracer of the view's node, linked to its parent."""
    from graphc.frontend.trace.tracer import Tracer

    parent = link.parent
    if parent.storage is None:
        parent.storage = Storage()
    made = Tracer(view.node, view.owner, view.weak)
    if view.owner is not parent.owner:  # a loop body or branch reads an array of the outer function
        link = replace(link, write=None)
    made.link, made.storage, made.seen = link, parent.storage, parent.storage.writes
    return made


def refresh(tracer: Tracer) -> None:
    """Derive an outdated view again, from its nearest current ancestor down."""
    storage = tracer.storage
    assert storage is not None
    chain = []
    while tracer.seen != storage.writes and (link := _settled(tracer)) is not None:
        chain.append(tracer)
        tracer = link.parent
    tracer.seen = storage.writes  # an array of its own is always current
    with tracing(tracer.owner):  # which need not be the innermost one
        for view in reversed(chain):
            assert view.link is not None
            view._node = view.link.derive(view.link.parent).node
            view.seen = storage.writes


def _settled(tracer: Tracer) -> Link | None:
    """How a tracer follows from another one, where that is decided now if it was not yet."""
    link = tracer.link
    if link is not None and link.keeps is not None:
        tracer.link = replace(link, keeps=None) if link.keeps() else None
    return tracer.link


def write(tracer: Tracer, value: Value) -> None:
    """Replace the whole value of a tracer and carry the write to everything it is a view of.

    Raises TraceError when a view on the way is read-only, and inside a loop body or branch for an
    array of the function around it.
    """
    if current() is not tracer.owner:
        raise foreign_write(tracer)
    target = tracer
    while (link := _settled(target)) is not None:
        if link.write is None:
            raise TraceError(
                f"{target!r} is a view that cannot be written through",
                hint="write to the array itself, or to a .copy()",
            )
        value = link.write(link.parent, value)
        target = link.parent
    storage = target.storage
    target._node, target.weak = value.node, False
    if storage is not None:
        # Views are read from the array again: what was written to them would be a second copy.
        storage.known = False
        storage.writes += 1
        target.seen, storage.last = storage.writes, tracer


def foreign_write(tracer: Tracer) -> TraceError:
    """The error for a write to an array of another trace than the innermost one."""
    return TraceError(
        f"{tracer!r} belongs to the function around this loop body or branch",
        hint="make it a carry: take it as an argument and return what it becomes",
    )


def fitted(value: Value, target: Tracer, name: str) -> Value:
    """A result as the new content of an array: same shape, cast as NumPy's in-place rules allow."""
    if value.shape != target.shape:
        text = f"{name} in place: a result of shape {list(value.shape)} does not fit {target.type}"
        raise also(TraceError(text), ValueError)
    if not np.can_cast(value.dtype, target.dtype, "same_kind"):
        hint = f"write x = x ... instead, or cast the result with .astype('{target.dtype}')"
        text = f"{name} in place: cannot store {value.element} in {target.type}"
        raise also(TraceError(text, hint=hint), TypeError)
    return cast_value(value, target.element)


# ------------------------------------------------------------------------------------ indexing


def _ghost_index(index: Any) -> Any:
    """A traced position has no number; any other gives a view of the same strides."""
    if type(index) is tuple:
        return tuple(map(_ghost_index, index))
    if isinstance(index, slice):
        start, stop = (None if isinstance(v, Value) else v for v in (index.start, index.stop))
        return slice(start, stop, index.step)
    return 0 if isinstance(index, Value) else index


def getitem(tracer: Tracer, index: Any) -> Any:
    """x[index]: a linked view where NumPy makes one."""
    given, index = index, plain(index)
    if isinstance(index, bool | np.bool_):
        return tracer[None].copy() if index else tracer[None][:0].copy()
    chosen = selected(tracer, index)
    if chosen is not None:
        return chosen
    made = METHODS["getitem"](tracer, mapped(with_arrays(index), counted_elements))
    if not isinstance(made, Value) or not is_basic(index):
        return made
    if made.ndim == 0 and index is not Ellipsis and not _has_ellipsis(index):
        return made if made is not tracer else tracer.copy()
    return _attach(made, link_at(tracer, index, given))


def with_arrays(index: Any) -> Any:
    """An index with arrays in the place of lists that hold traced numbers."""
    if not isinstance(index, tuple):
        return as_value(index) if holds_values(index) else index
    parts = tuple(as_value(part) if holds_values(part) else part for part in index)
    return parts if any(map(operator.is_not, parts, index)) else index


def link_at(parent: Tracer, index: Any, given: Any) -> Link:
    """How the view at a basic index, given as some object, follows from its parent."""
    return Link(
        parent,
        lambda value: METHODS["getitem"](value, index),
        lambda array: array[_ghost_index(index)],
        lambda value, written: METHODS["setitem"](value, index, written),
        given,
        (1, *_steps(index)),
    )


def _steps(index: Any) -> Iterator[int]:
    for part in index if type(index) is tuple else (index,):
        if isinstance(part, slice) and part.step is not None:
            yield abs(part.step)


def _has_ellipsis(index: Any) -> bool:
    return type(index) is tuple and any(part is Ellipsis for part in index)


def is_own_view(tracer: Tracer, index: Any, value: Tracer) -> bool:
    """Whether value is the current view of tracer at this very index object (`x[i] += v`)."""
    link = value.link
    if link is None or link.parent is not tracer or link.index is not index:
        return False
    assert value.storage is not None
    return value.storage.last is value or value.seen == value.storage.writes


# ------------------------------------------------------------------------------------ functions


def _write_reshaped(name: str, args: Any, kwargs: Any) -> Callable[[Any, Any], Any]:
    return lambda parent, value: PUBLIC["reshape"](value, parent.shape)


def _write_permuted(name: str, args: Any, kwargs: Any) -> Callable[[Any, Any], Any]:
    def write_back(parent: Any, value: Any) -> Any:
        # Axis k of a ghost is k + 2 long, so the result's shape names the permutation.
        ghost = np.broadcast_to(np.empty(()), tuple(range(2, 2 + parent.ndim)))
        moved = _numpy_call(name, ghost, args, kwargs).shape
        return PUBLIC["transpose"](value, tuple(int(k) for k in np.argsort(moved)))

    return write_back


def _write_flipped(name: str, args: Any, kwargs: Any) -> Callable[[Any, Any], Any]:
    return lambda parent, value: PUBLIC[name](value, *args, **kwargs)  # its own inverse


def _write_part(name: str, args: Any, kwargs: Any) -> Callable[[Any, Any], Any]:
    def write_back(parent: Any, value: Any) -> Any:
        if not parent.element.is_complex:
            return value
        parts = [value, PUBLIC["imag"](parent)]
        if name == "imag":
            parts = [PUBLIC["real"](parent), value]
        return cast_value(PUBLIC["complex"](*parts), parent.element)

    return write_back


def _write_bits(name: str, args: Any, kwargs: Any) -> Callable[[Any, Any], Any]:
    return lambda parent, value: PUBLIC["view"](value, parent.dtype)


def _read_only(name: str, args: Any, kwargs: Any) -> None:
    return None


# Public functions whose result is a view in NumPy, and what a write through it does to the parent.
LINKED: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("reshape", "ravel", "squeeze", "expand_dims"), _write_reshaped),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), _write_reshaped),
    **dict.fromkeys(("transpose", "swapaxes", "moveaxis", "rollaxis"), _write_permuted),
    **dict.fromkeys(("permute_dims", "matrix_transpose"), _write_permuted),
    **dict.fromkeys(("flip", "flipud", "fliplr"), _write_flipped),
    **dict.fromkeys(("real", "imag"), _write_part),
    "view": _write_bits,
    **dict.fromkeys(("broadcast_to", "diagonal", "rot90", "sliding_window_view"), _read_only),
}
_MAY_COPY = ("reshape", "ravel")
_PARTS = ("real", "imag")


def _numpy_call(name: str, array: Any, args: Any, kwargs: Any) -> Any:
    if name == "transpose" and args and isinstance(args[0], int):
        args = (args,)
    if name == "reshape" and args and not isinstance(args[0], tuple | list):
        args = (args,)
    if name in _MAY_COPY:
        shape = -1 if name == "ravel" else kwargs.get("shape", args[0] if args else -1)
        return np.reshape(array, shape, copy=False)
    if name == "view":
        return array
    if name in _PARTS:  # every other number
        strides = tuple(2 * step for step in array.strides)
        return np.lib.stride_tricks.as_strided(array, strides=strides, writeable=False)
    home = np.lib.stride_tricks if name == "sliding_window_view" else np
    return getattr(home, name)(array, *args, **kwargs)


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A public function of LINKED; its result is linked to a tracer where NumPy makes a view."""
    made = PUBLIC[name](*args, **kwargs)
    parent = args[0] if args else None
    if parent is None or not hasattr(parent, "link") or not isinstance(made, Value):
        return made
    rest, shape = args[1:], made.shape
    if name in _PARTS and not parent.element.is_complex:
        return parent if name == "real" else made
    link = link_of(name, parent, rest, kwargs)

    def keeps() -> bool:
        return _keeps_memory(parent, shape, name, rest, kwargs)

    if name in _MAY_COPY and is_open((*parent.shape, *shape)):
        return _attach(made, replace(link, keeps=keeps))
    if parent.is_scalar or (name in _MAY_COPY and not keeps()):
        return made if made is not parent else parent.copy()
    return _attach(made, link)


def followed(
    parent: Any, derive: Callable[[Any], Any], write_back: Callable[[Any, Any], Any]
) -> Any:
    """derive(parent) as a view: it sees what is written to the parent, and the other way round.

    write_back(parent, value) is the parent after a write through the view.
    """
    made = derive(parent)
    if not hasattr(parent, "link"):
        return made
    return _attach(made, Link(parent, derive, lambda array: np.empty(made.shape), write_back))


def set_part(tracer: Tracer, name: str, value: Any) -> None:
    """z.real = value, or z.imag."""
    part = PUBLIC[name](tracer).copy()
    part[...] = value
    tracer.assign(_write_part(name, (), {})(tracer, part))


def link_of(name: str, parent: Tracer, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Link:
    """How the view that a function of LINKED makes follows from its parent."""
    return Link(
        parent,
        lambda value: PUBLIC[name](value, *rest, **kwargs),
        lambda array: _numpy_call(name, array, rest, kwargs),
        LINKED[name](name, rest, kwargs),
    )


LINKED_LISTS = ("split", "array_split", "hsplit", "vsplit", "dsplit", "unstack", "broadcast_arrays")
_CUT_AXIS = {"hsplit": 1, "vsplit": 0, "dsplit": 2}


def call_list(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A public function of LINKED_LISTS: every part of its first argument is linked to it."""
    made = PUBLIC[name](*args, **kwargs)
    parent = args[0] if args else None
    if name == "broadcast_arrays" or parent is None or not hasattr(parent, "link"):
        return made
    axis = kwargs.get("axis", args[2] if len(args) > 2 else 0)
    if name in _CUT_AXIS:
        axis = _CUT_AXIS[name] if parent.ndim > 1 else 0

    def part(k: int) -> Tracer:
        def derive(value: Any) -> Any:
            return PUBLIC[name](value, *args[1:], **kwargs)[k]

        def write_back(value: Any, written: Any) -> Any:
            place: Any = k
            if name != "unstack":
                start = sum(before.shape[axis] for before in made[:k])
                place = slice(start, start + made[k].shape[axis])
            index = (*(slice(None),) * (axis % parent.ndim), place)
            return METHODS["setitem"](value, index, written)

        def ghost(array: Any) -> Any:
            return getattr(np, name)(array, *args[1:], **kwargs)[k]

        return _attach(made[k], Link(parent, derive, ghost, write_back))

    return type(made)(part(k) for k in range(len(made)))


def _keeps_memory(parent: Tracer, shape: Any, name: str, args: Any, kwargs: Any) -> bool:
    """Whether a reshape is a view: an array of its own is contiguous, a view has strides."""
    if kwargs.get("order", "C") == "F" or "F" in args:
        return False
    if _settled(parent) is None:
        return True
    ghost = _ghost(parent)
    if ghost is None or (name == "ravel" and not ghost.flags.c_contiguous):
        return False
    if not ghost.flags.c_contiguous:
        _settle_products(parent.shape, shape)
    with contextlib.suppress(ValueError), by_example():
        _numpy_call(name, ghost, args, kwargs)
        return True
    return False


def _settle_products(before: Any, after: Any) -> None:
    """Ask which axes of two shapes come of the same ones, where their sizes are open."""
    if not is_open((*before, *after)):
        return
    first, second = (list(accumulate(shape[:-1], mul)) for shape in (before, after))
    for product in first:
        for other in second:
            bool(product == other)


def has_order(tracer: Tracer, order: str | None) -> bool:
    """Whether NumPy's array would lie in row-major ("C") or column-major ("F") order."""
    ghost = _ghost(tracer) if order in ("C", "F") else None
    if ghost is None:
        return True
    return ghost.flags.c_contiguous if order == "C" else ghost.flags.f_contiguous


def _ghost(tracer: Tracer) -> np.ndarray[Any, Any] | None:
    """An array with the strides NumPy would give this view, over memory that is never read.

    Of sizes that are open it has those at hand, and is alike for all others: they are not 1, and
    are the numbers themselves where a view is of a part.
    """
    chain: list[Tracer] = []
    while (link := _settled(tracer)) is not None:
        chain.append(tracer)
        tracer = link.parent
    if not tracer.type.is_static:
        return None
    for view in chain:
        _settle(view)
    shape = tuple(map(hint_of, tracer.type.dims))
    array: np.ndarray[Any, Any] = np.lib.stride_tricks.as_strided(
        np.zeros(1, np.int8), shape, row_major_strides(shape), writeable=False
    )
    with by_example():
        for view in reversed(chain):
            assert view.link is not None
            array = view.link.ghost(array)
    return array


def _settle(view: Tracer) -> None:
    """Ask for what the strides of a view depend on where sizes are open: which extents are 1, and
    whether a part is the whole."""
    assert view.link is not None
    before, after = view.link.parent.shape, view.shape
    for extent in (*before, *after):
        bool(isinstance(extent, Size) and extent == 1)
    if is_open((*before, *after)):
        for whole in _others(before, after):
            for part in _others(after, before):
                for step in view.link.steps:
                    bool(whole == part * step)


def _others(shape: Any, than: Any) -> list[Any]:
    """The extents that another shape does not have."""
    rest = list(than)
    found = []
    for extent in shape:
        match = next((k for k, d in enumerate(rest) if alike((d,), (extent,))), None)
        if match is None:
            found.append(extent)
        else:
            del rest[match]
    return found
