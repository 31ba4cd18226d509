"""Values that decide sizes and paths: known while tracing, or told by a run.

Importers run a file's graph once on traced arrays.  Where the elements of one decide a size,
tracing stops with `Needed`, unless who traces can tell them (`deciding`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.formats.carried import Carried
from graphc.ops.record.value import Value


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


@contextmanager
def deciding(decide: Callable[[Value], np.ndarray[Any, Any]]) -> Iterator[None]:
    """Values that decide sizes in here are told by this function."""
    RUNNING.decide.append(decide)
    try:
        yield
    finally:
        RUNNING.decide.pop()


def is_known(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return all(map(is_known, x))
    return not isinstance(x.value if isinstance(x, Carried) else x, Value)


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
