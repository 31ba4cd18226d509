"""`gc.stop_gradient`, `gc.checkpoint` and `gc.custom_grad`: how a model steers its gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

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
from graphc.frontend.trace.trace import Parameter
from graphc.frontend.trace.tree import LEAF, NONE, TreeDef, flatten, unflatten
from graphc.ops.record.value import Value, current, emit, functions, lift

P = ParamSpec("P")
R = TypeVar("R")
Tree = TypeVar("Tree")
Function = Callable[..., Any]


@refusing
def stop_gradient(x: Tree) -> Tree:
    """x (any nesting of arrays), through which no gradient flows."""
    leaves, tree = flatten(x)
    made = [emit("stop_gradient", leaf) if isinstance(leaf, Value) else leaf for leaf in leaves]
    return unflatten(tree, made)  # type: ignore[no-any-return]


@refusing
def checkpoint(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose intermediate values are computed again on the backward pass.

    Only its arguments are kept (and what it captures), at the price of running it twice.  Python
    numbers among them stay what they are.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return function(*args, **kwargs)
        given = Operands((args, kwargs), stays=lambda path, number: True)

        def run(tracers: list[Any]) -> Any:
            positional, named = given.rebuilt(tracers)
            return seen(function)(*positional, **named)

        title = getattr(function, "__name__", "f")
        region = trace_region(title, given.parameters, run, once=True)
        name = region.graph.name
        made = region.made(emit_region("checkpoint", given.values, (region,), name=name))
        return unflatten(region.tree, made)

    return call


@refusing
def custom_grad(function: Function) -> Function:
    """A function with its own gradient: it returns (result, backward).

        @gc.custom_grad
        def clipped(x):
            return np.clip(x, -1, 1), lambda ct: ct     # the gradient passes straight through

    backward maps the cotangent of the result to that of the argument, or to a tuple with one for
    each argument.  It may use any value computed in the function; those are kept for it.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if current() is None:
            return function(*args)[0]
        return _custom(function, args)

    return call


def _custom(function: Function, args: tuple[Any, ...]) -> Any:
    given = Operands(args)
    kept: dict[str, Any] = {}

    def forward(tracers: list[Any]) -> Any:
        made = seen(function)(*given.rebuilt(tracers))
        if not isinstance(made, tuple) or len(made) != 2 or not callable(made[1]):
            raise TraceError("a function with gc.custom_grad returns (result, backward)")
        result, backward = made
        leaves, tree = flatten(result)
        values = [lift(leaf, enclosing()) for leaf in leaves]
        kept.update(tree=tree, count=len(values))
        region = _backward(backward, tree, values, given)
        kept["backward"] = region
        return [*values, *(value for value, _ in region.captured.values())]

    region = trace_region(getattr(function, "__name__", "f"), given.parameters, forward)
    captured, graphs = closed((region,))
    backward: Region = kept["backward"]
    own = len(backward.graph.params) - len(backward.captured)
    params = backward.graph.params
    reordered = backward.graph.replace(params=(*params[own:], *params[:own]))
    _require_no_floats(captured)
    operands = (*given.values, *captured)
    made = emit_closed("custom_grad", operands, (graphs[0], reordered), results=kept["count"])
    return unflatten(kept["tree"], made)


def _backward(backward: Function, tree: Any, values: Sequence[Value], given: Operands) -> Region:
    """Trace the backward function: a gradient for each float leaf of the arguments."""
    parameters = [Parameter(f"ct{k}", v.type) for k, v in enumerate(values)]

    def call(tracers: list[Any]) -> Any:
        made = seen(backward)(unflatten(tree, tracers))
        arguments = given.tree.children
        parts = _per_argument(made, arguments)
        leaves = [leaf for pair in zip(parts, arguments) for leaf in _like(*pair)]
        gradients = []
        for position, operand in zip(given.positions, given.parameters):
            if operand.type.dtype.kind not in "fc":
                continue
            leaf = leaves[position]
            if leaf is None:
                leaf = functions.zeros(operand.type.shape, dtype=operand.type.dtype)
            gradients.append(lift(leaf, enclosing(), operand.type.dtype))
        return gradients

    return trace_region("backward", parameters, call)


def _per_argument(made: Any, arguments: Sequence[TreeDef]) -> Sequence[Any]:
    """What backward returns, one gradient per argument; one alone needs no tuple."""
    is_sequence = type(made) in (tuple, list)
    if len(arguments) == 1 and not (is_sequence and len(made) == 1):
        return (made,)
    if len(arguments) == 1 and flatten(made)[1] is arguments[0]:  # the argument is such a sequence
        return (made,)
    if not is_sequence or len(made) != len(arguments):
        count = len(made) if is_sequence else 1
        raise TraceError(f"backward returns {count} gradient(s) for {len(arguments)} argument(s)")
    return made  # type: ignore[no-any-return]


def _like(gradient: Any, argument: TreeDef) -> list[Any]:
    """The leaves of a gradient in the nesting of its argument; None stands for all below it."""
    leaves, found = flatten(gradient)
    given = iter(leaves)

    def walk(have: TreeDef, want: TreeDef) -> list[Any]:
        if have is NONE:
            return [None] * want.count
        if have is LEAF and want is LEAF:
            return [next(given)]
        levels = [(t.kind, t.keys, len(t.children)) for t in (have, want)]
        if LEAF in (have, want) or levels[0] != levels[1]:
            raise TraceError(
                f"backward returns {found!r} for an argument that is {argument!r}",
                hint="a gradient has the nesting of its argument; None stands for zeros",
            )
        return [leaf for pair in zip(have.children, want.children) for leaf in walk(*pair)]

    return walk(found, argument)


def _require_no_floats(captured: Sequence[Value]) -> None:
    if any(value.element.kind in "fc" for value in captured):
        raise TraceError(
            "a function with gc.custom_grad uses a float value of the function around it",
            hint="pass it as an argument, so that backward can return its gradient",
        )
