"""The table of operators: (domain, name) and the version since which it holds -> a function.

A rule is a plain function over graphc's public functions: inputs are positional (None for one that
is left out), attributes are keywords with the defaults of the format, results are what it returns.

    @operator("LeakyRelu")
    def leaky_relu(x, *, alpha=0.01): ...

What it emits is traced like any other code.  A rule that takes `call` gets its node and may run
the graphs in its attributes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ops.record.value import Value
from graphc.record import record

Function = Callable[..., Any]
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"


@record(frozen=True)
class Rule:
    """What an operator is from a version on.

    takes_call   its function wants the node, too
    folds        on values that are known while tracing it may be computed at once
    moves        it only moves elements about, whatever they are
    """

    function: Function
    since: int
    takes_call: bool
    folds: bool
    moves: bool


TABLE: dict[tuple[str, str], list[Rule]] = {}


def operator(
    *names: str, domain: str = "", since: int = 1, folds: bool = True, moves: bool = False
) -> Callable[[Function], Function]:
    """Enter a function in the table under these operator names."""

    def enter(function: Function) -> Function:
        code = function.__code__
        keywords = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name in names:
            rules = TABLE.setdefault((domain, name), [])
            rules.append(Rule(function, since, "call" in keywords, folds, moves))
            rules.sort(key=lambda rule: -rule.since)
        return function

    return enter


def find(domain: str, name: str, version: int) -> Rule | None:
    """The rule of an operator in a version of its domain."""
    rules = TABLE.get((domain, name), ())
    return next((rule for rule in rules if rule.since <= version), None)


# ------------------------------------------------------------------------------------ known values


class Needed(Exception):
    """Tracing cannot go on without the elements of this value: they decide a size or a path."""

    def __init__(self, value: Value) -> None:
        super().__init__(repr(value))
        self.value = value


class DecidedInside(GraphError):
    """What is made inside a loop or a branch decides a size there: each turn has its own."""

    def __init__(self) -> None:
        super().__init__("what runs inside a loop or a branch decides a size")


class _Running(threading.local):
    def __init__(self) -> None:
        self.decide: list[Callable[[Value], np.ndarray[Any, Any]]] = []


RUNNING = _Running()


def is_known(x: Any) -> bool:
    return not isinstance(x, Value) and not (
        isinstance(x, list | tuple) and any(not is_known(item) for item in x)
    )


def known(x: Any) -> np.ndarray[Any, Any]:
    """The elements of a value that decides sizes. Raises Needed where only a run can tell them."""
    return RUNNING.decide[-1](x) if isinstance(x, Value) else np.asarray(x)


def ints(x: Any) -> tuple[int, ...]:
    """A known list of integers."""
    array = known(x)
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise GraphError(f"expected a list of integers, got {array.dtype} of {list(array.shape)}")
    return tuple(map(int, array.reshape(-1)))


def number(x: Any) -> Any:
    """A known array of one element as a Python number."""
    array = known(x)
    if array.size != 1:
        raise GraphError(f"expected one number, got an array of shape {list(array.shape)}")
    return array.reshape(-1)[0].item()


def refuse(unless: bool, message: str) -> None:
    if not unless:
        raise GraphError(message)


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front. Raises GraphError for one that is not there."""
    for axis in axes:
        refuse(-rank <= axis < rank, f"axis {axis} of an array of rank {rank}")
    return tuple(int(axis) % rank for axis in axes)
