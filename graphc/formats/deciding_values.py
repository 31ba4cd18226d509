"""Values that decide sizes and paths: known while tracing, or told by a run.

Importers run a file's graph once on traced arrays.  Where the elements of one decide a size,
tracing stops with `Needed`, unless who traces can tell them (`deciding`).  Of what follows from
open sizes the elements are formulas (`Formulas`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.formats.encoded_values import Carried
from graphc.ir.graph import Node
from graphc.ir.op import Effect
from graphc.ir.sizes import Size, greatest, is_open
from graphc.ir.types import MAX_ELEMENTS, Type
from graphc.limits import check_within, limit
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
    """A known list of integers, or of sizes."""
    array = known(x)
    kind = x.dtype if isinstance(x, Value) else array.dtype
    if kind.kind not in "iu" or array.ndim > 1:
        raise GraphError(f"expected a list of integers, got {kind} of {list(array.shape)}")
    return tuple(v if isinstance(v, Size) else int(v) for v in array.reshape(-1))


def number(x: Any) -> Any:
    """A known array of one element as a Python number."""
    array = known(x)
    if array.size != 1:
        raise GraphError(f"expected one number, got an array of shape {list(array.shape)}")
    value = array.reshape(-1)[0]
    return value.item() if isinstance(value, np.generic) else value


def is_end(end: Any) -> bool:
    """Whether the end of a slice is that of the axis, however long it is."""
    return end is None or (not isinstance(end, Size) and end >= MAX_ELEMENTS)


def count_of(first: Any, last: Any, step: Any) -> Any:
    """How many numbers there are from the first up to the last, in steps."""
    if isinstance(first, Size) or isinstance(last, Size):
        return greatest(-((first - last) // step), 0)
    return max(math.ceil((last - first) / step), 0)


def refuse(unless: bool, message: str) -> None:
    if not unless:
        raise GraphError(message)


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front. Raises GraphError for one that is not there."""
    for axis in axes:
        refuse(-rank <= axis < rank, f"axis {axis} of an array of rank {rank}")
    return tuple(int(axis) % rank for axis in axes)


# ------------------------------------------------------------------------------------ formulas


# What NumPy, and a reference, raise on sizes that they cannot compute with.
_NO_FORMULA = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, GraphError)


class Formulas:
    """What values are that follow from sizes and constants alone: arrays of numbers and sizes."""

    def __init__(self) -> None:
        self._found: dict[Node, np.ndarray[Any, Any] | None] = {}

    def of(self, node: Node) -> np.ndarray[Any, Any] | None:
        """The elements of a value; None where they depend on anything else."""
        pending = [node]
        while pending:
            last = pending[-1]
            missing = [i for i in last.inputs if i not in self._found]
            if last in self._found or not missing:
                pending.pop()
                if last not in self._found:
                    self._found[last] = self._computed(last)
            elif any(self._found.get(i, ()) is None for i in last.inputs):
                self._found[pending.pop()] = None
            else:
                pending += missing
        return self._found[node]

    def _computed(self, node: Node) -> np.ndarray[Any, Any] | None:
        kind = node.type
        if not isinstance(kind, Type) or is_open(kind.shape) or not kind.is_static:
            return None
        if kind.size > limit("folded_elements") or node.op.effect is not Effect.PURE:
            return None
        if node.op.traits.constant:
            made: np.ndarray[Any, Any] = node.attrs["value"].array
            return made
        arrays = [a for i in node.inputs if (a := self._found[i]) is not None]
        if node.op.traits.parameter or node.regions or len(arrays) < len(node.inputs):
            return None
        return _evaluated(node, kind, arrays)


def _evaluated(
    node: Node, kind: Type, arrays: Sequence[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any] | None:
    """An op on numbers and sizes, None where it has no formula."""
    if node.op.traits.casts and kind.dtype.is_integer and arrays[0].dtype == object:
        return arrays[0]
    try:
        made = node.op.reference(*arrays, **node.attrs.values_dict)
    except _NO_FORMULA:
        return None
    if isinstance(made, np.ndarray) and made.dtype != object:
        return made
    array = _objects(made, kind.dims)
    return None if any(isinstance(v, Value) for v in array.reshape(-1)) else array


def _objects(made: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array of objects, of one or of several."""
    if isinstance(made, np.ndarray):
        return made
    array = np.empty(shape, object)
    array[...] = made
    return array


class Oracle:
    """Tells the elements of values, in the order in which a trace asks for them."""

    def __init__(self, trace: Any, answers: Sequence[np.ndarray[Any, Any]]) -> None:
        self.trace = trace
        self.answers = list(answers)
        self.told: dict[int, np.ndarray[Any, Any]] = {}
        self.formulas = Formulas()

    def decide(self, value: Value) -> np.ndarray[Any, Any]:
        node = value.node
        if node.op.traits.constant:
            array: np.ndarray[Any, Any] = node.attrs["value"].array
            return array
        formula = self.formulas.of(node)
        if formula is not None:
            return formula
        if value.owner is not self.trace:
            raise DecidedInside
        count = value.type.size
        check_within("folded_elements", count, f"{count} elements decide sizes")
        found = self.told.get(node.id)
        if found is None:
            if not self.answers:
                raise Needed(value)
            found = self.told[node.id] = self.answers.pop(0)
        return found
