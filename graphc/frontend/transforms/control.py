"""`gc.cond`, `switch`, `while_loop`, `fori`, `scan` and `map`: control flow of the data.

Inside a compiled function each becomes one node whose bodies are closed regions; what a body uses
of the function around it is captured.  Called on plain arrays they run in Python at once.  Carries,
operands and results are any nesting of containers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import TraceError
from graphc.frontend.trace.counted_results import (
    FoundSizes,
    Room,
    require_known,
    room_of_branches,
    surveyed,
)
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.region import Operands, Region, emit_region, enclosing, trace_region
from graphc.frontend.trace.trace import Parameter
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten
from graphc.frontend.transforms.carry import Carry
from graphc.ir.promotion import promote
from graphc.ir.sizes import Size, greatest
from graphc.ir.types import DType, tensor
from graphc.ops.control.control import FLAG
from graphc.ops.record.value import Stateful, Value, current, emit, functions, lift

MOST_STORED = 1 << 16  # counts of a loop that are an array: less work per step, 8 bytes each

IN_LOOPS = "the body of a loop has the same shapes in every step"


def is_traced() -> bool:
    """Is a graph being built, so that control flow becomes nodes of it?"""
    return current() is not None


# ---------------------------------------------------------------------------------------- branches


@refusing
def cond(pred: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """then(*operands) if pred holds, else otherwise(*operands); only the one that is taken runs.

    pred is a bool (or number, compared with 0) of rank 0.  Both functions must return the same
    nesting of the same shapes and dtypes; extents that the run counts may differ.  Raises
    TraceError naming what differs.
    """
    _require_functions("cond", (then, otherwise))
    if not isinstance(pred, Value | Stateful):
        return (then if pred else otherwise)(*operands)
    flag = functions.astype(lift(pred, enclosing()), bool)
    if flag.shape != ():
        raise TraceError(
            f"the predicate of cond has shape {list(flag.shape)}",
            hint="use np.where for a choice per element, or reduce with .any() or .all()",
        )
    return emit_branch("cond", (flag,), (then, otherwise), operands)


@refusing
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index out of range is clamped to it.

    The index is one integer.  All branches return the same nesting of the same shapes and dtypes,
    but for extents that the run counts.  Raises TraceError naming what differs.
    """
    if not branches:
        raise TraceError("switch needs at least one branch")
    _require_functions("switch", branches)
    index = _read(index)
    if not isinstance(index, Value):
        chosen = _integer(index, "the index of switch must be one integer")
        return branches[min(max(chosen, 0), len(branches) - 1)](*operands)
    if index.element.kind not in "iu" or index.shape != ():
        raise TraceError(f"the index of switch must be one integer, got {index.type}")
    number = index if index.element.name in ("i32", "i64") else functions.astype(index, "i64")
    return emit_branch("switch", (number,), branches, operands)


def _require_functions(name: str, branches: Sequence[Any]) -> None:
    for branch in branches:
        if not callable(branch):
            raise TraceError(
                f"{name} chooses between functions, got {type(branch).__name__}",
                hint="use np.where for a choice of values, or lambda: value",
            )


def emit_branch(
    name: str, choosers: Sequence[Value], branches: Sequence[Callable[..., Any]], operands: Any
) -> Any:
    """Emit a branch op that runs one of some functions on the operands; `choosers` say which."""
    given = Operands(operands)

    def traced(number: int, targets: Sequence[DType | None] = (), room: Room | None = None) -> Any:
        branch = branches[number]
        return trace_region(
            getattr(branch, "__name__", f"branch{number}"),
            given.parameters,
            lambda tracers: seen(branch)(*given.rebuilt(tracers)),
            targets,
            fixed_by="branches have results of the same shapes",
            keep=require_known if room is None else lambda values, tree, trace: room.held(values),
        )

    def again(targets: Sequence[DType | None], room: Room | None) -> list[Region]:
        return [traced(number, targets, room) for number in range(len(branches))]

    first = [surveyed(partial(traced, number)) for number in range(len(branches))]
    _require_one_tree(name, first)
    room = room_of_branches(name, first)
    regions = [region for region in first if isinstance(region, Region)]
    if room is not None:
        regions = again((), room)
    targets = [_common(regions, k) for k in range(len(regions[0].types))]
    if any(target is not None for target in targets):
        regions = again(targets, room)
    made = emit_region(name, (*choosers, *given.values), regions)
    return unflatten(regions[0].tree, made if room is None else room.shown(made))


def _require_one_tree(name: str, regions: Sequence[Region | FoundSizes]) -> None:
    for number, region in enumerate(regions):
        if region.tree is not regions[0].tree:
            raise TraceError(
                f"{name}: branch 0 returns {regions[0].tree!r}, branch {number} {region.tree!r}",
                hint="all branches must return the same nesting of containers",
            )


def _common(regions: Sequence[Region], k: int) -> DType | None:
    """What result k is cast to: where branches differ, numbers take the dtype of an array, or the
    highest kind among them.  Nothing is cast to a lower kind; the type rule then says what differs.
    """
    kinds = [region.types[k].dtype for region in regions]
    if all(kind is kinds[0] for kind in kinds):
        return None
    strong = {kind for kind, region in zip(kinds, regions) if not region.weak[k]}
    return strong.pop() if len(strong) == 1 else None if strong else reduce(promote, kinds)


# ---------------------------------------------------------------------------------------- loops


@refusing
def while_loop(test: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """Repeat state = body(state) while test(state) holds, from state = init.

    The state is any nesting of arrays whose dtypes and shapes stay the same, but for extents that
    the run counts (state[state > 0]); test returns one bool, or a length (0 ends it).
    Zero iterations return init.  Raises TraceError naming the part of the state that changes type.
    """
    if not is_traced():
        state = init
        while test(state):
            state = body(state)
        return state
    carry = Carry("while_loop", init)
    region = carry.settle(
        lambda: trace_region(
            "body",
            carry.parameters,
            lambda s: seen(body)(carry.shown(s)),
            carry.targets,
            fixed_by=IN_LOOPS,
            keep=carry.kept,
        )
    )
    check = trace_region(
        "test",
        carry.parameters,
        lambda s: _as_condition(seen(test)(carry.shown(s))),
        fixed_by=IN_LOOPS,
    )
    if check.types != [FLAG]:
        found = ", ".join(str(kind) for kind in check.types)
        raise TraceError(
            f"the test of while_loop must return one bool, it returns {found}",
            hint="compare, or reduce with .any() or .all()",
        )
    operands = carry.operands()
    return carry.shown(emit_region("while", operands, (check, region), carries=len(operands)))


def _as_condition(made: Any) -> Any:
    """What a test returns, or whether a length that it returns is not 0."""
    return lift(made, enclosing()) != 0 if isinstance(made, Size) else made


@refusing
def fori(start: Any, stop: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """Repeat state = body(i, state) for i in start..stop-1, from state = init.

    The bounds may be traced integers; i is an i64 of rank 0.  The state is any nesting of arrays
    whose dtypes and shapes stay the same, but for extents that the run counts.  Raises TraceError
    naming the part that changes type.
    """
    start, stop = _read(start), _read(stop)
    if not is_traced():
        state = init
        for i in range(_integer(start), _integer(stop)):
            state = body(np.int64(i), state)
        return state
    if not isinstance(start, Value) and not isinstance(stop, Value):
        return _for_range(_integer(start), _integer(stop), body, init)
    bounds = [n if isinstance(n, Value) else np.int64(_integer(n)) for n in (start, stop)]
    if any(n.dtype.kind not in "iu" for n in bounds):
        raise TraceError("the bounds of fori must be integers")
    first, last = (functions.astype(lift(n, enclosing()), "i64") for n in bounds)
    return while_loop(
        lambda s: s[0] < last, lambda s: (s[0] + np.int64(1), seen(body)(s[0], s[1])), (first, init)
    )[1]


def _for_range(start: int, stop: int, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """A loop whose number of steps is known or a size, over stored counts unless they are many."""
    count = greatest(stop - start, 0)
    if count > MOST_STORED:
        step, first = np.int64(1), np.int64(start)
        counted = _traced_scan(
            "fori",
            lambda s, _: ((s[0] + step, seen(body)(*s)), ()),
            (first, init),
            None,
            count,
            False,
        )
        return counted[0][1]
    numbers = emit("iota", extent=count, dtype="i64")
    numbers = numbers + lift(start, enclosing()) if isinstance(start, Size) or start else numbers
    return _traced_scan("fori", lambda s, i: (seen(body)(i, s), ()), init, numbers, count, False)[0]


def _read(number: Any) -> Any:
    """A variable as its value at this point of a trace; anything else as it is."""
    return lift(number, enclosing()) if isinstance(number, Stateful) and is_traced() else number


def _integer(bound: Any, what: str = "the bounds of fori must be integers") -> int:
    """The number, or the size that is left open."""
    if isinstance(bound, Size):
        return bound
    try:
        return operator.index(bound)
    except TypeError:
        raise TraceError(f"{what}, got {bound!r}") from None


@refusing
def scan(
    body: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Fold along the first axis of xs: (carry, y) = body(carry, x) for each slice x.

    Returns the last carry and the ys stacked along a new first axis.  xs is any nesting of arrays
    with one length, or None with `length`; `reverse` runs from the last slice to the first, and y
    slot t still belongs to x slice t.  Extents of the carry may be other ones in each step where
    the run counts them.  Raises TraceError for lengths that differ and for carries that change
    type.
    """
    count = _length("scan", xs, length)
    if not is_traced():
        return _scan_now(body, init, xs, count, reverse)
    return _traced_scan("scan", body, init, xs, count, reverse)


def _traced_scan(
    name: str, body: Callable[[Any, Any], Any], init: Any, xs: Any, count: int, reverse: bool
) -> tuple[Any, Any]:
    """The node of a scan; `name` is what errors call it."""
    carry, given = Carry(name, init, part=0, steps=count), Operands(xs)
    slices = [Parameter(p.name, tensor(p.type.dtype, p.type.shape[1:])) for p in given.parameters]

    def step(tracers: list[Any]) -> Any:
        split = len(tracers) - len(slices)
        return _pair(seen(body)(carry.shown(tracers[:split]), given.rebuilt(tracers[split:])))

    region = carry.settle(
        lambda: trace_region(
            "body",
            [*carry.parameters, *slices],
            step,
            carry.targets,
            fixed_by=IN_LOOPS,
            keep=carry.kept,
        )
    )
    operands = carry.operands()
    made = emit_region(
        "scan",
        (*operands, *given.values),
        (region,),
        carries=len(operands),
        scanned=len(slices),
        length=count,
        reverse=reverse,
    )
    split = len(operands)
    return carry.shown(made[:split]), unflatten(region.tree.children[1], made[split:])


def _pair(made: Any) -> tuple[Any, Any]:
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise TraceError("the body of scan must return (carry, y)")
    return made[0], made[1]


@refusing
def map(body: Callable[[Any], Any], xs: Any) -> Any:
    """body(x) for each slice x along the first axis of xs, stacked along a new first axis.

    xs is any nesting of arrays with one length.  Raises TraceError for lengths that differ.
    """
    _length("map", xs)
    return scan(lambda nothing, x: ((), seen(body)(x)), (), xs)[1]


def _length(name: str, xs: Any, length: int | None = None) -> int:
    """How many slices there are. Raises TraceError unless all operands agree."""
    leaves, tree = flatten(xs)
    if isinstance(length, Value):
        raise TraceError(
            f"the length of {name} must be known when tracing",
            hint="gc.fori and gc.while_loop take numbers of steps that are computed",
        )
    known = None if length is None else _integer(length, f"the length of {name} must be an integer")
    found: dict[str, Any] = {} if known is None else {"length": known}
    for leaf, path in zip(leaves, leaf_names(tree)):
        shape = np.shape(leaf) if not isinstance(leaf, Value) else leaf.shape
        if not shape:
            raise TraceError(f"{name} walks over the first axis, but {path or 'xs'} has rank 0")
        found[path or "xs"] = shape[0]
    if not found:
        raise TraceError(f"{name} over nothing" + " needs length=" * (name == "scan"))
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name}: {extent}" for name, extent in found.items())
        raise TraceError(f"{name}: the lengths differ ({listed})")
    return next(iter(found.values()))  # type: ignore[no-any-return]


def _scan_now(
    body: Callable[[Any, Any], Any], init: Any, xs: Any, count: int, reverse: bool
) -> tuple[Any, Any]:
    leaves, tree = flatten(xs)
    arrays = [np.asarray(leaf) for leaf in leaves]
    carry, rows, shape = init, [], None
    for step in reversed(range(count)) if reverse else range(count):
        carry, y = _pair(body(carry, unflatten(tree, [a[step] for a in arrays])))
        row, shape = flatten(y)
        rows.append(row)
    if shape is None:
        return _empty_scan(body, init, arrays, tree)
    ordered = rows[::-1] if reverse else rows
    return carry, unflatten(shape, [np.stack(column) for column in zip(*ordered)])


def _empty_scan(
    body: Callable[[Any, Any], Any], init: Any, arrays: list[Any], tree: TreeDef
) -> tuple[Any, Any]:
    """No slice to run the body on: its results are traced for their types."""
    from graphc.frontend.compile.decorator import compile

    xs = unflatten(tree, arrays)
    made = compile(lambda carry, xs: scan(body, carry, xs, length=0))(init, xs)
    return made[0], made[1]
