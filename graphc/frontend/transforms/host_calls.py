"""`gc.print`, `gc.assert_` and `gc.callback`: Python that a compiled function calls while it runs.

Outside of a trace each of them happens at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.base.refusing import refusing
from graphc.errors import GraphError, RunError, TraceError
from graphc.frontend.trace.tree import NONE, TreeDef, flatten, unflatten
from graphc.ir.op import OPS
from graphc.ir.types import Type
from graphc.ir.user_lines import locate
from graphc.ops.control.host_calls import function_of
from graphc.ops.record.value import emit


@refusing
def print(text: str, *values: Any) -> None:
    """Print a line whenever this is reached: `gc.print("loss {} at {}", loss, step)`.

    text     the line, with {} for each value; {:.3f} formats a number, {{ and }} are braces
    values   arrays and numbers, one for each {}

    Lines come in program order, also in branches and loops.  Through gradients it prints once, in
    the forward pass.  Raises TypeRuleError for a text whose fields do not fit the values.
    """
    if not isinstance(text, str):
        raise TraceError(
            f"gc.print takes a text first, got {type(text).__name__}",
            location=locate(2),
            hint='gc.print("x is {}", x)',
        )
    _require_no_tracer("gc.print", text)
    _emit("print", values, text=text)


@refusing
def assert_(condition: Any, message: str = "", *values: Any) -> None:
    """Stop the run unless all elements of a condition are true.

    The RunError has the message, the values (any arrays) and the line of this call.  A {} or
    {:.3f} in the message is the next of the values, as in `print`; those without one have a line
    each.  Raises TypeRuleError for a condition that is not of booleans, and for a message whose
    fields do not fit the values.
    """
    if not isinstance(message, str):
        raise TraceError(
            f"the message of gc.assert_ is a str, got {type(message).__name__}", location=locate(2)
        )
    _require_no_tracer("gc.assert_", message)
    _emit("assert", (condition, *values), message=message)


def _require_no_tracer(name: str, text: str) -> None:
    """Refuse a text that a traced array was formatted into: no run would put its value there."""
    if "<Tracer %" in text:
        raise TraceError(
            f"{name}: a traced array has no value yet that could be in a text: {text!r}",
            location=locate(3),
            hint="write {} without an f before the text, and the array after it: "
            'gc.print("x is {}", x)',
        )


@refusing
def callback(function: Callable[..., Any], result_specs: Any, *values: Any) -> Any:
    """What a Python function returns for NumPy arrays, whenever this is reached.

    function       called with a copy of each value, in program order with all other calls
    result_specs   gc.spec(shape, dtype) of the array that it returns, any nesting of them for a
                   nesting of arrays, or None: then what it returns is not looked at

    It runs on the thread of the run, which holds the containers of its variables: a callback that
    uses one which the program writes waits forever; pass the value as an operand.  It has no
    gradient: take gc.stop_gradient of a value, or write gc.custom_grad.  An exception in it is a
    RunError of the run with the exception as its cause, as is a result of another dtype or shape.
    """
    if not callable(function):
        raise TraceError(f"gc.callback calls a function, got {function!r}", location=locate(2))
    specs, tree = flatten(result_specs)
    for spec in specs:
        if not isinstance(spec, Type):
            raise TraceError(
                f"gc.callback: the results are described by specs, got {type(spec).__name__}",
                location=locate(2),
                hint='gc.spec(shape, "f32"), a nesting of them, or None',
            )
    made = _emit(
        "callback",
        values,
        function=function_of(_Flat(function, tree)),
        dtypes=tuple(spec.dtype.name for spec in specs),
        ranks=tuple(spec.rank for spec in specs),
        dims=tuple(extent for spec in specs for extent in spec.shape),
    )
    return unflatten(tree, list(made) if isinstance(made, tuple) else [made])


class _Flat:
    """A function whose result is the list of its arrays."""

    def __init__(self, function: Callable[..., Any], tree: TreeDef) -> None:
        self.function = function
        self.tree = tree
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *arrays: Any) -> list[Any]:
        made = self.function(*arrays)
        if self.tree is NONE:
            return []
        leaves, tree = flatten(made)
        if tree is not self.tree:
            raise TypeError(f"it returned {tree!r} where the specs are {self.tree!r}")
        return leaves


def _emit(op: str, values: tuple[Any, ...], **attrs: Any) -> Any:
    try:
        return emit(OPS[op], *values, **attrs)
    except RunError as error:
        raise error.at(locate(3)) from error.__cause__
    except GraphError as error:
        raise error.at(locate(3)) from None
