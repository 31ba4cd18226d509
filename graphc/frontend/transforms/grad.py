"""`gc.grad` and its kin: functions that trace to a `grad` node, which the gradient pass expands.

Each works inside a compiled function, nests to any order, and compiles itself when it is called on
plain arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from graphc.base.record import replace
from graphc.base.refusing import refusing
from graphc.errors import TraceError
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.region import (
    Operands,
    Region,
    closed,
    emit_closed,
    emit_region,
    enclosing,
    trace_region,
)
from graphc.frontend.trace.tree import flatten, leaf_names, unflatten
from graphc.frontend.transforms.on_arrays import (
    NUMBERS,
    argument_names,
    compiled,
    compiling,
    leaf_title,
    require_function,
)
from graphc.frontend.transforms.vmap import vmap
from graphc.ir.types import Type
from graphc.ops.control.host_calls import without_calls
from graphc.ops.record.value import Stateful, Value, current, functions, lift

P = ParamSpec("P")
Function = Callable[..., Any]
Wrt = int | str | Sequence[int | str]
INTEGERS = (bool, int)  # which have no derivative
Key = int | str  # a position among the positional arguments or the name of a keyword argument


# ---------------------------------------------------------------------------------------- gradients


@refusing
def grad(function: Callable[P, Any], wrt: Wrt = 0, has_aux: bool = False) -> Callable[P, Any]:
    """The function that computes the gradient of a scalar function.

    wrt        number or name of an argument, or several: then the result is a tuple
    has_aux    the function returns (value, aux); the result is (gradient, aux)

    Each gradient has the nesting, shapes and dtypes of its argument.  Numbers, flags and strings in
    other arguments are Python values inside the function.  Raises TraceError for a value that is no
    scalar float and for an argument that holds no floats.
    """

    entries, has_aux = _entries(wrt), bool(has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        (_, aux), made = _value_and_grad(function, wrt, has_aux, args, kwargs)
        return (made, aux) if has_aux else made

    return compiling(gradient, function, "grad", lambda: _left_alone(function, entries))


@refusing
def value_and_grad(
    function: Callable[P, Any], wrt: Wrt = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """Like `grad`, and returns (value, gradient), or ((value, aux), gradient) with `has_aux`."""

    entries, has_aux = _entries(wrt), bool(has_aux)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        (value, aux), made = _value_and_grad(function, wrt, has_aux, args, kwargs)
        return ((value, aux), made) if has_aux else (value, made)

    return compiling(
        value_and_gradient, function, "value_and_grad", lambda: _left_alone(function, entries)
    )


def _entries(wrt: Wrt) -> tuple[int | str, ...]:
    """The numbers and names in wrt. Raises TraceError for anything else."""
    listed = wrt if isinstance(wrt, tuple | list) else (wrt,)
    if not all(isinstance(entry, int | str | np.integer) for entry in listed):
        raise TraceError(
            f"wrt takes numbers or names of arguments, got {wrt!r:.80}",
            hint='wrt=0, wrt="x" or wrt=(0, 1)',
        )
    return tuple(int(entry) if isinstance(entry, np.integer) else entry for entry in listed)


def _left_alone(
    function: Function, entries: Sequence[int | str]
) -> Callable[[str], tuple[type, ...]]:
    """The numbers of each argument that are not differentiated."""
    names = argument_names(function)
    chosen = set()
    for entry in entries:
        if isinstance(entry, int) and not -len(names) <= entry < len(names):
            return lambda name: ()  # one of *args: which, only a call tells
        chosen.add(names[entry] if isinstance(entry, int) else entry)
    return lambda name: () if name in chosen else NUMBERS


def _value_and_grad(
    function: Function, wrt: Wrt, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, Any], Any]:
    region, given, keys, chosen = loss_region(function, wrt, has_aux, args, kwargs)
    seed = enclosing().constant(np.ones((), region.types[0].dtype.numpy))
    made = _emit_grad(region, given, [seed], chosen)
    results = len(region.types)
    value, aux = unflatten(region.tree, made[:results])
    found = dict(zip(chosen, made[results:]))
    trees = [gradient_tree(given, key, found) for key in keys]
    return (value, aux), tuple(trees) if isinstance(wrt, tuple | list) else trees[0]


def loss_region(
    function: Function,
    wrt: Wrt,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    once: bool = True,
    floats_only: bool = True,
) -> tuple[Region, Operands, list[Key], list[int]]:
    """The region of a scalar function, its operands, where among the arguments each entry of wrt
    is, and the `chosen_leaves`: what has no gradient is refused before the function is traced."""
    names = argument_names(function)
    keys = _keys(names, wrt, args, kwargs)
    given = given_arguments(function, keys, args, kwargs)
    chosen = chosen_leaves(given, keys, floats_only)

    def call(tracers: list[Any]) -> Any:
        positional, named = given.rebuilt(tracers)
        made = seen(function)(*positional, **named)
        value, aux = _pair(made) if has_aux else (made, None)
        return [_loss(value), aux]

    name = getattr(function, "__name__", "loss")
    return trace_region(name, given.parameters, call, once=once), given, keys, chosen


def given_arguments(
    function: Function, keys: Sequence[Key], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Operands:
    """The arguments of a call; numbers in others than those of `keys` stay Python numbers."""
    names = argument_names(function)
    return Operands(
        (args, kwargs),
        lambda path: leaf_title(path, names),
        lambda path, number: not any(under(path, key) for key in keys),
    )


def _emit_grad(
    region: Region, given: Operands, seeds: Sequence[Value], wrt: Sequence[int]
) -> tuple[Any, ...]:
    """The results of a grad node on a region and what it captures."""
    captured, graphs = closed((region,))
    operands = (*given.values, *captured, *seeds)
    made = emit_closed("grad", operands, graphs, wrt=tuple(wrt), seeds=len(seeds))
    return region.made(made)


def _pair(made: Any) -> tuple[Any, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise TraceError("with has_aux the function must return (value, aux)")
    return made


def _loss(value: Any) -> Value:
    """The value of a function that is differentiated: one float."""
    is_one = isinstance(value, Value | Stateful | np.ndarray | np.generic | int | float | complex)
    made = lift(value, enclosing()) if is_one else None
    if made is None or made.shape != () or made.element.kind != "f":
        found = type(value).__name__ if made is None else str(made.type)
        raise TraceError(
            f"gradients are of a function that returns one float, it returns {found}",
            hint="with has_aux=True the function returns (value, aux), and aux has no gradient"
            if isinstance(value, tuple)
            else "reduce with .sum() or .mean(); gc.vjp and gc.jacobian take any result"
            if made is None or made.shape != ()
            else "it is reduced, but no float: cast it, or what it is made of, to one",
        )
    return made


def _keys(names: Sequence[str], wrt: Wrt, args: Any, kwargs: dict[str, Any]) -> list[Key]:
    """Where each entry of wrt is: a position in args or a name in kwargs."""
    keys: list[Key] = []
    for entry in _entries(wrt):
        if isinstance(entry, int) and -len(args) <= entry < 0:
            entry += len(args)
        name = names[entry] if isinstance(entry, int) and 0 <= entry < len(names) else entry
        position = names.index(name) if name in names else entry
        if isinstance(position, int) and 0 <= position < len(args):
            keys.append(position)
        elif name in kwargs:
            keys.append(name)
        else:
            raise TraceError(
                f"wrt names {entry!r}, but the function is called with {len(args)} argument(s)"
                + (f" and {', '.join(kwargs)}" if kwargs else ""),
                hint="wrt is the number or the name of an argument that is given",
            )
    return keys


def under(path: str, key: Key) -> bool:
    start = f"0.{key}" if isinstance(key, int) else f"1.{key}"
    return path == start or path.startswith(start + ".")


def chosen_leaves(given: Operands, keys: Sequence[Key], floats_only: bool = True) -> list[int]:
    """Numbers of the operands under wrt. Raises TraceError for other than floats, and where an
    entry of wrt is an argument without any."""
    paths = leaf_names(given.tree)
    chosen = []
    for key in keys:
        _require_arrays(given, paths, key)
    for number, (position, value) in enumerate(zip(given.positions, given.values)):
        if any(under(paths[position], key) for key in keys):
            if floats_only and value.element.kind not in "fc":
                raise TraceError(
                    f"argument {given.parameters[number].name} is {value.type}, which has no "
                    "gradient",
                    hint="gradients are of floats: cast it, or leave it out of wrt",
                )
            chosen.append(number)
    return chosen


def _require_arrays(given: Operands, paths: Sequence[str], key: Key) -> None:
    """Raise TraceError for an argument that holds something, but no array."""
    held = [k for k, path in enumerate(paths) if under(path, key)]
    others = [k for k in held if given.leaves[k] is not None]
    if others and not any(k in given.positions for k in held):
        first = others[0]
        raise TraceError(
            f"argument {given.name(paths[first])} is {given.leaves[first]!r:.40}, which has no "
            "gradient",
            hint="wrt= is the number or the name of an argument with arrays of floats",
        )


def gradient_tree(given: Operands, key: Key, found: dict[int, Any]) -> Any:
    """The gradients in the nesting of their argument; leaves that are no arrays become None."""
    made: list[Any] = [None] * len(given.leaves)
    for number, position in enumerate(given.positions):
        made[position] = found.get(number)
    args, kwargs = unflatten(given.tree, made)
    return args[key] if isinstance(key, int) else kwargs[key]


# ---------------------------------------------------------------------------------------- products


@refusing
def vjp(function: Function, *primals: Any) -> tuple[Any, Function]:
    """function(*primals) and its pullback: cotangent of the result -> cotangents of the primals.

    The pullback takes what the function returns (leaves that are no floats are ignored) and returns
    a tuple with one entry per primal; integers get None.  Python's bools and ints stay what they
    are inside the function.
    """
    require_function("vjp", function)
    if current() is None:

        def pulled(primals: Any, cotangent: Any) -> Any:
            return _vjp(function, primals, quiet=True)[1](cotangent)

        run = compiled(pulled, lambda name: INTEGERS if name == "primals" else ())
        made = compiled(function, lambda name: INTEGERS)(*primals)
        return made, lambda cotangent: run(primals, cotangent)
    return _vjp(function, primals)


def _vjp(function: Function, primals: tuple[Any, ...], quiet: bool = False) -> tuple[Any, Function]:
    """As `vjp`, in a trace. The pullback runs the function again, without its calls of Python; so
    does a `quiet` result."""
    given = Operands(primals, stays=lambda path, number: isinstance(number, INTEGERS))
    tree: list[Any] = []

    def call(tracers: list[Any]) -> Any:
        leaves, structure = flatten(seen(function)(*given.rebuilt(tracers)))
        values = [lift(leaf, enclosing()) for leaf in leaves]
        order = sorted(range(len(values)), key=lambda k: values[k].element.kind not in "fc")
        tree[:] = [structure, order]
        return [values[k] for k in order]

    region = trace_region(getattr(function, "__name__", "f"), given.parameters, call, once=True)
    structure, order = tree
    floats = [k for k, kind in enumerate(region.types) if kind.dtype.kind in "fc"]
    if not floats:
        raise TraceError("a function without float results has no pullback")
    shown = _again(region) if quiet else region
    made = region.made(emit_region("call", given.values, (shown,), name=region.graph.name))
    found = dict(zip(order, made))
    result = unflatten(structure, [found[k] for k in range(len(order))])
    chosen = [k for k, v in enumerate(given.values) if v.element.kind in "fc"]

    def pullback(cotangent: Any) -> Any:
        seeds = _seeds(cotangent, structure, [order[k] for k in floats], region.types)
        pulled = _emit_grad(_again(region), given, seeds, chosen)[len(region.types) :]
        gradients = dict(zip(chosen, pulled))
        leaves: list[Any] = [None] * len(given.leaves)
        for number, position in enumerate(given.positions):
            leaves[position] = gradients.get(number)
        return unflatten(given.tree, leaves)

    return result, pullback


def _again(region: Region) -> Region:
    """The region where it runs once more than the function was called."""
    return replace(region, graph=without_calls(region.graph))


def _seeds(
    cotangent: Any, structure: Any, places: Sequence[int], types: Sequence[Type]
) -> list[Value]:
    """The cotangents of the float results, checked and in their order."""
    leaves, tree = flatten(cotangent)
    if tree is not structure:
        raise TraceError(f"the cotangent is {tree!r}, the function returns {structure!r}")
    seeds = []
    for place, kind in zip(places, types):
        value = lift(leaves[place], enclosing())
        if value.shape != kind.shape:
            raise TraceError(f"the cotangent of a {kind} result is {value.type}")
        shaped = functions.reshape(value, kind.shape)  # a number may stand for a size
        seeds.append(lift(shaped, enclosing(), kind.dtype))
    return seeds


@refusing
def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """function(*primals) and its derivative along the tangents (same nesting as the primals).

    The pullback is linear, so its own pullback carries tangents forward; what only the backward
    pass would need is dropped as dead code.
    """
    require_function("jvp", function)
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TraceError("jvp takes tuples of primals and tangents, one of each per argument")
    if current() is None:
        run = compiled(lambda p, t: jvp(function, p, t), lambda name: INTEGERS)
        return run(tuple(primals), tuple(tangents))  # type: ignore[no-any-return]
    result, pullback = vjp(function, *primals)
    leaves, tree = flatten(result)
    zeros = unflatten(tree, [functions.zeros_like(leaf) for leaf in leaves])
    _, push = vjp(pullback, zeros)
    return result, push(_moving(tuple(primals), tuple(tangents)))[0]


def _moving(primals: Any, tangents: Any) -> Any:
    """The tangents of the primals that are floats; None of the others, whatever was given."""
    moved, tree = flatten(primals)
    floats = [_kind(leaf) in "fc" for leaf in moved]
    alone = unflatten(tree, [leaf if keep else None for leaf, keep in zip(moved, floats)])
    ways, structure = flatten(tangents)
    if structure is tree:
        ways = [way for way, keep in zip(ways, floats) if keep]
    elif structure is not flatten(alone)[1]:
        raise TraceError(f"jvp: the tangents are {structure!r}, the primals {tree!r}")
    points = [leaf for leaf, keep in zip(moved, floats) if keep]
    if [np.shape(x) for x in points] != [np.shape(way) for way in ways]:
        raise TraceError("jvp: each tangent must have the shape of its primal")
    return unflatten(flatten(alone)[1], ways)


def _kind(leaf: Any) -> str:
    return leaf.element.kind if isinstance(leaf, Value) else np.asarray(leaf).dtype.kind


# ---------------------------------------------------------------------------------------- matrices


@refusing
def jacobian(function: Callable[P, Any], wrt: Wrt = 0) -> Callable[P, Any]:
    """The function that computes the derivative of every result element by every element of one
    argument: result shape + argument shape, in the nesting of the result.  Several in wrt give a
    tuple in the place of each array.  Raises TraceError for arguments that hold no floats."""

    entries = _entries(wrt)

    def jacobians(*args: Any, **kwargs: Any) -> Any:
        names = argument_names(function)
        keys = _keys(names, wrt, args, kwargs)
        chosen_leaves(Operands((args, kwargs), lambda path: leaf_title(path, names)), keys)
        whole: dict[Key, Any] = dict(enumerate(args))
        whole.update(kwargs)

        def of_chosen(*chosen: Any) -> Any:
            given = {**whole, **dict(zip(keys, chosen))}
            return seen(function)(
                *(given[k] for k in range(len(args))), **{k: given[k] for k in kwargs}
            )

        result, pullback = vjp(of_chosen, *(whole[key] for key in keys))
        leaves, tree = flatten(result)
        rows = [_rows(leaves, k, tree, pullback) for k in range(len(leaves))]
        return unflatten(tree, rows if isinstance(wrt, tuple | list) else [row[0] for row in rows])

    return compiling(jacobians, function, "jacobian", lambda: _left_alone(function, entries))


def _rows(leaves: Sequence[Value], k: int, tree: Any, pullback: Function) -> Any:
    """The pullbacks of each element of result leaf k, stacked: one entry per primal."""
    chosen = leaves[k]
    size, element = math.prod(chosen.type.dims), chosen.dtype
    basis = functions.reshape(functions.eye(size, dtype=element), (size, *chosen.shape))

    def row(unit: Any) -> Any:
        seeds = [functions.zeros_like(leaf) for leaf in leaves]
        seeds[k] = unit
        return pullback(unflatten(tree, seeds))

    rows = vmap(row)(basis)
    parts, structure = flatten(rows)
    shaped = [functions.reshape(p, (*chosen.shape, *p.shape[1:])) for p in parts]
    return unflatten(structure, shaped)


@refusing
def hessian(function: Callable[P, Any], wrt: Wrt = 0) -> Callable[P, Any]:
    """The function that computes the second derivatives of a scalar function by one argument:
    an array of the argument's shape twice over; for several, a tuple of a tuple for each.  Raises
    what `grad` raises."""
    return jacobian(grad(function, wrt), wrt)
