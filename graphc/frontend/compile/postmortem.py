"""What made a run fail: a kernel tells a status and its node; the reference interpreter, the rest.

    non-finite value: inf at [3], on the way back, in trip 4 of the scan at model.py:12
      at model.py:13
      %31 = fused(%28, %30) : f32[8] of div
      operand 0 of div, mul at model.py:13, at [3]: 1.0
      operand 1 of div, sqrt at model.py:13, at [3]: 0.0

The run is done again, node by node, as long as that takes a second or so; what calls Python is not
called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from graphc.errors import INDEX, STATUS, GraphError, OutOfRangeError, RunError, plain
from graphc.frontend.compile.known_nodes import known_nodes
from graphc.ir.graph import Graph, Location, Node, Program
from graphc.ir.op import Effect, Host
from graphc.ir.types import Type, leaves
from graphc.ops.reference.interpreter import Interpreter

MOST_WORK = 1 << 25  # elements that are computed again, a second or so
NODE_WORK = 500  # of a node beside its elements
MOST_FOUND = 64  # lines that are told apart
MOST_OPERANDS = 4
_BAD_INDEX, _NON_FINITE = STATUS[INDEX], STATUS[2]

Array = np.ndarray[Any, Any]
State = dict[tuple[str, str], Any]


def explained(
    error: GraphError,
    graph: Graph | Program,
    arguments: Sequence[Any],
    state: Callable[[], State] | None = None,
    gone: Sequence[bool] = (),
) -> GraphError:
    """The error, with index and extent, or where a result is not finite, why, and in which trip.

    `state` gives the variables as they were before the run; without it a program that uses some
    stays unexplained.  `gone` says of which arguments the run may have written over the values:
    what they decide is not told.
    """
    is_index = isinstance(error, OutOfRangeError)
    is_algebra = isinstance(error, np.linalg.LinAlgError)
    is_value = isinstance(error, RunError) and error.message.startswith(_NON_FINITE)
    known = is_index or ((is_algebra or is_value) and not any(gone))
    if not known or not isinstance(graph, Graph) or (state is None and graph.effect in _STATEFUL):
        return error
    watch = _Watch(state() if state is not None else {})
    if any(gone):
        watch.known = known_nodes(graph, gone)
        arguments = [_zeros(p) if g else a for p, a, g in zip(graph.params, arguments, gone)]
    failure = watch.failure(graph, arguments)
    if any(gone) and not (watch.is_sure and failure and failure.location == error.location):
        return error
    if is_index and isinstance(failure, OutOfRangeError):
        _say(error, _BAD_INDEX, failure.message + (watch.about or "") + watch.where)
    elif is_algebra:  # matrices of NaN are told by their elements
        found = watch.found.get(error.location)
        error.details = (*error.details, *(found[1] if found else ()))
    elif is_value:
        found = watch.found.get(error.location) or next(iter(watch.found.values()), None)
        if found is not None:
            _say(error, _NON_FINITE, found[0])
            error.details = (*error.details, *found[1])
    return error


def _zeros(param: Node) -> Array:
    kind = param.type
    assert isinstance(kind, Type)
    return np.zeros(kind.shape, kind.dtype.numpy)


_STATEFUL = (Effect.READ, Effect.WRITE)
_BACK = "on the way back"


def _say(error: GraphError, reason: str, text: str) -> None:
    """Put it in place of the reason; the device that is named behind that stays."""
    error.message = error.message.replace(reason, text, 1)


class _Enough(Exception):
    """It would take too long, or call Python."""


class _Watch(Interpreter):
    """Runs a graph and notes, for each line, the first result there that is not finite.

    `path` says where in loops and gradients the run is; `where` is what it was when the run failed.
    """

    def __init__(self, state: State) -> None:
        super().__init__(False, state)
        self.found: dict[Location | None, tuple[str, tuple[str, ...]]] = {}
        self.path: list[str] = []
        self.where = ""
        self.about: str | None = None  # the arguments that an index and its array are
        self.work = 0
        self.known: set[Node] | None = None  # whose values are those of the run; None for all
        self.is_sure = False  # the index that ended the run is one of them

    def failure(self, graph: Graph, arguments: Sequence[Any]) -> GraphError | None:
        """Run; the error that ends the run, if one does."""
        try:
            with np.errstate(all="ignore"):
                self.graph(graph, list(arguments))
        except GraphError as error:
            return error
        except (_Enough, ValueError, MemoryError):
            pass
        return None

    def node(self, node: Node, inputs: list[Any]) -> Any:
        if isinstance(node.op.lower, Host):
            return _unheard(node)
        try:
            made = super().node(node, inputs)
        except OutOfRangeError:
            if self.about is None:  # inside of loops they have other names
                self.about = "" if self.path else _arguments(node)
                self.is_sure = self.known is None or self.known.issuperset(_indices(node))
            raise
        parts = made if isinstance(made, tuple) else (made,)
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        self.work += NODE_WORK + sum(array.size for array in arrays)
        if self.work > MOST_WORK:
            raise _Enough
        if not _moves(node) and node.loc not in self.found and len(self.found) < MOST_FOUND:
            for array in arrays:
                if array.dtype.kind not in "iub" and not np.isfinite(array).all():
                    self.found[node.loc] = _described(node, array, inputs, self._place())
                    break
        return made

    def region_node(self, node: Node, inputs: list[Any]) -> Any:
        traits = node.op.traits
        if traits.asks_gradient:  # its forward pass first, so that what is left is the way back
            region = node.regions[0]
            with self._inside("in the forward pass"):
                self.graph(region, inputs[: len(region.params)])
            with self._inside(_BACK):
                return super().region_node(node, inputs)
        if not (traits.loop or traits.lanes):
            return super().region_node(node, inputs)
        numbers = {id(region): count() for region in node.regions}

        def run(region: Graph, arguments: list[Any]) -> list[Any]:
            if id(region) not in numbers:
                return self.graph(region, arguments)
            with self._inside(_trip(node, next(numbers[id(region)]), _BACK in self.path)):
                return self.graph(region, arguments)

        return node.op.reference(*inputs, regions=node.regions, run=run, **node.attrs.values_dict)

    @contextmanager
    def _inside(self, step: str) -> Iterator[None]:
        self.path.append(step)
        try:
            yield
        except GraphError:
            self.where = self.where or self._place()
            raise
        finally:
            self.path.pop()

    def _place(self) -> str:
        """The path in words; of gradients of gradients it is told once that it is the way back."""
        return "".join(f", {step}" for step in dict.fromkeys(self.path))


def _indices(node: Node) -> list[Node]:
    """The operands that may be indices: those of integers."""
    kinds = [
        (n, [k.dtype.kind for k in leaves(n.type) if isinstance(k, Type)]) for n in node.inputs
    ]
    return [n for n, found in kinds if set(found) & set("iu")]


def _unheard(node: Node) -> Any:
    """What a node that calls Python gives to those behind it. Raises _Enough where only Python can
    tell."""
    if len(leaves(node.type)) > node.attrs["threaded"]:
        raise _Enough
    return np.zeros((), np.uint8) if node.attrs["threaded"] else ()


def _moves(node: Node) -> bool:
    """Does a node compute nothing itself?"""
    traits = node.op.traits
    is_view = traits.idle or traits.reshapes or traits.permutes or traits.broadcasts
    return bool(node.regions) or is_view or traits.resident or traits.stored or traits.recv


def _trip(node: Node, number: int, is_back: bool) -> str:
    """A trip in words: that of a slice, or as they are run; on the way back from the last."""
    traits = node.op.traits
    text = f"in {'slice' if traits.lanes else 'trip'} {number}"
    if traits.counted and node.attrs["reverse"]:
        text = f"in trip {node.attrs['length'] - 1 - number}"
    elif traits.loop and not traits.counted and is_back:
        text += " from the last"
    where = f" at {node.loc[0]}:{node.loc[1]}" if node.loc else ""
    return f"{text} of the {node.op.name}{where}"


def _described(
    node: Node, array: Array, inputs: Sequence[Any], where: str
) -> tuple[str, tuple[str, ...]]:
    """What is wrong with a result, and what it was made from."""
    wrong = np.argwhere(~np.isfinite(array))
    place = tuple(map(int, wrong[0]))
    more = f", the first of {len(wrong)}" if len(wrong) > 1 else ""
    found = f": {array[place]} at {list(place)}{more}" if place else f": {array}"
    pairs = list(enumerate(zip(node.inputs, inputs)))[:MOST_OPERANDS]
    operands = (
        f"operand {k} of {node.op.name}, {_called(source)}{_value(np.asarray(value), array, place)}"
        for k, (source, value) in pairs
        if isinstance(value, np.ndarray | np.generic)
    )
    return f"{_NON_FINITE}{found}{where}", tuple(operands)


def _called(source: Node) -> str:
    if source.op.traits.parameter:
        return f"argument {source.attrs['name']}"
    return f"{source.op.name} at {source.loc[0]}:{source.loc[1]}" if source.loc else source.op.name


def _value(operand: Array, array: Array, place: tuple[int, ...]) -> str:
    """The element of an operand that a wrong one was made of; of a product or sum, their range."""
    if operand.ndim == 0:
        return f": {operand}"
    try:
        lies_along = operand.shape == np.broadcast_shapes(operand.shape, array.shape) == array.shape
    except ValueError:
        lies_along = False
    if lies_along and place:
        return f", at {list(place)}: {operand[place]}"
    if not operand.size:
        return ": empty"
    text = f", {operand.dtype}{list(operand.shape)}"
    if operand.dtype.kind == "c":
        return text
    finite = operand[np.isfinite(operand)] if operand.dtype.kind not in "iub" else operand
    spread = f": from {finite.min():.6g} to {finite.max():.6g}" if finite.size else ""
    bad = operand.size - finite.size
    return f"{text}{spread}" + (f", {bad} not finite" if bad else "")


def _arguments(node: Node) -> str:
    """The arguments among the operands of a node."""
    names = dict.fromkeys(n.attrs["name"] for n in node.inputs if n.op.traits.parameter)
    listed = ", ".join(repr(plain(name)) for name in names)
    return f" (argument{'s' * (len(names) > 1)} {listed})" if names else ""
