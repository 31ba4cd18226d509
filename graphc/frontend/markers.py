"""`gc.stop_gradient`, `gc.checkpoint` and `gc.custom_grad`: how a model steers its gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import TraceError
from graphc.frontend.region import (
    Operands,
    Region,
    closed,
    emit_closed,
    emit_region,
    enclosing,
    trace_region,
)
from graphc.frontend.trace import Parameter
from graphc.frontend.tree import flatten, unflatten
from graphc.ops.value import Value, current, emit, functions, lift

Function = Callable[..., Any]


def stop_gradient(x: Any) -> Any:
    """x (any nesting of arrays), through which no gradient flows."""
    leaves, tree = flatten(x)
    made = [emit("stop_gradient", leaf) if isinstance(leaf, Value) else leaf for leaf in leaves]
    return unflatten(tree, made)


def checkpoint(function: Function) -> Function:
    """The function, whose intermediate values are computed again on the backward pass.

    Only its arguments are kept (and what it captures), at the price of running it twice.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return function(*args, **kwargs)
        given = Operands((args, kwargs))

        def run(tracers: list[Any]) -> Any:
            positional, named = given.rebuilt(tracers)
            return function(*positional, **named)

        region = trace_region(getattr(function, "__name__", "f"), given.parameters, run)
        made = emit_region("checkpoint", given.values, (region,), name=region.graph.name)
        return unflatten(region.tree, made)

    return call


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
        made = function(*given.rebuilt(tracers))
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
    """Trace the backward function: a cotangent for each float argument leaf, zeros if it gives
    None."""
    parameters = [Parameter(f"ct{k}", v.type) for k, v in enumerate(values)]

    def call(tracers: list[Any]) -> Any:
        made = backward(unflatten(tree, tracers))
        count = len(given.tree.children)
        parts = made if isinstance(made, tuple) and count != 1 else (made,)
        if len(parts) != count:
            raise TraceError(f"backward returns {len(parts)} gradient(s) for {count} argument(s)")
        leaves: list[Any] = []
        for part, child in zip(parts, given.tree.children):
            found, structure = flatten(part)
            leaves += found if structure is child else [None] * child.count
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


def _require_no_floats(captured: Sequence[Value]) -> None:
    if any(value.element.kind in "fc" for value in captured):
        raise TraceError(
            "a function with gc.custom_grad uses a float value of the function around it",
            hint="pass it as an argument, so that backward can return its gradient",
        )
