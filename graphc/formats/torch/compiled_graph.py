"""A graph of AOT autograd as a function of tensors.

    placeholders -> arrays over their memory -> program -> arrays -> tensors

Tensors lie as PyTorch says, in and out: an axis order other than that of contiguous memory is part
of the program, and results that share memory in PyTorch are views of one result of the program.
Sizes that the graph leaves open are open in the program, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.formats.kinds import Kind
from graphc.formats.torch.interpret import Refusal, nodes_of
from graphc.formats.torch.layout import Order, dense_order, expression, inverse, value_of
from graphc.formats.torch.live import (
    Reader,
    array_of,
    element_name,
    kind_of,
    tensor_of,
    torch_package,
    with_known_sizes,
)
from graphc.formats.torch.model import TorchModel
from graphc.formats.torch.operators.random import SEED, draws
from graphc.formats.torch.records import Array, Block, Name, Node, Program, Whole

Placement = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides and start in memory
Plan = tuple[list[Placement | None], list[Placement | None]]  # of what is made, and of results
_EXTENT = "_extent"  # what carries a number as an extent


class CompiledGraph:
    """A graph as a function of tensors and numbers.

    `shares` says whether results that are views of inputs or of one another share their memory, as
    those of a forward pass do.  Raises Refusal, when it is first called, for a node that cannot be
    imported.
    """

    def __init__(self, module: Any, config: Config, shares: bool) -> None:
        reader = Reader()
        self.block = reader.block(module)
        # PyTorch computes with no tensor while it calls a backend: read when the first call comes.
        self.held = reader.held
        self.config = config
        self.default = element_name(torch_package().get_default_dtype())
        self.draws = any(draws(node.target) for node in nodes_of(self.block))
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.inputs = _inputs(placeholders, self.block)
        outputs = [reader.tokens.get(v, v) for v in _outputs(module)]
        self.results, self.made = _results(outputs, placeholders, _roots(module) if shares else {})
        read = _read_by([r.view for r in self.results] + [made.view for made in self.made])
        self.symbols = {held: at for held, at in _symbols(placeholders).items() if held in read}
        self.plans: dict[tuple[int, ...], Plan] = {}
        self.models: dict[tuple[Any, ...], TorchModel] = {}
        self.lock = threading.Lock()
        self.is_for_one_size = all(given.is_known for given in self.inputs)
        self.run: Callable[[Sequence[Array]], list[Array]] | None = None  # of such a graph

    def __call__(self, *values: Any) -> list[Any]:
        arrays: list[Array] = []
        fixed: list[Any] = []
        for value, given in zip(values, self.inputs):
            given.enter(value, arrays, fixed)
        if self.draws:
            arrays.append(array_of(torch_package().randint(1 << 62, ())))
        of_made, of_results = self._plan(values)
        found = (self.run or partial(self._run, tuple(fixed)))(arrays)
        made = [self._tensor(*each) for each in zip(self.made, found, of_made)]
        return [result(values, made, place) for result, place in zip(self.results, of_results)]

    def _run(self, fixed: tuple[Any, ...], arrays: list[Array]) -> list[Array]:
        """What the program makes of arrays, for these numbers."""
        if not self.made:
            return []
        model = self.models.get(fixed) or self._model(fixed)
        found = model.run(arrays)
        if self.is_for_one_size:
            self.run = model.runner(arrays)
        return found

    def _tensor(self, made: _Made, array: Any, place: Placement | None) -> Any:
        """The one tensor of what is made, no view: gradients are added to in place."""
        if array is None:
            raise Refusal(self._maker(made.name), "what a gradient reads is not made")
        tensor = tensor_of(array)
        if place is not None:
            sizes, strides, _ = place
            tensor.set_(tensor.untyped_storage(), 0, sizes, strides)
        return tensor

    def _maker(self, name: str) -> Node:
        """The node that makes a value, of which it may be one of several results."""
        nodes = {whole.name: node for node in nodes_of(self.block) for whole in node.outputs}
        maker = nodes[name]
        while maker.target == "_operator.getitem":
            maker = nodes[maker.inputs[0][1].name]
        return maker

    def _plan(self, values: Sequence[Any]) -> Plan:
        """Where in memory everything lies, for the sizes of these values."""
        key = tuple([_number(values, at) for at in self.symbols.values()])
        found = self.plans.get(key)
        if found is None:
            held = dict(zip(self.symbols, key))
            found = self.plans[key] = (
                [_placed(made.view, held) for made in self.made],
                [_placed(result.view, held) for result in self.results],
            )
        return found

    def _model(self, fixed: tuple[Any, ...]) -> TorchModel:
        with self.lock:
            if fixed not in self.models:
                self.models[fixed] = TorchModel(self._program(fixed), self.config)
            return self.models[fixed]

    def _program(self, numbers: tuple[Any, ...]) -> Program:
        given = iter(numbers)
        fixed: dict[str, Any] = {name: array_of(tensor) for name, tensor in self.held.items()}
        kinds: dict[str, Kind] = {}
        sizes: dict[str, tuple[str, int]] = {}
        for entry in self.inputs:
            entry.declare(given, kinds, sizes, fixed)
        if self.draws:
            kinds[SEED] = Kind("tensor", "int64", ())
        first = [node for entry in self.inputs for node in entry.turned_back()]
        last = [node for entry in self.made for node in entry.turned()]
        nodes = [*first, *self.block.nodes, *last]
        wanted = tuple(Name(entry.result_name) for entry in self.made)
        block = Block(tuple(kinds), tuple(nodes), wanted)
        names = tuple(f"{entry.name}_{k}" for k, entry in enumerate(self.made))
        kinds = with_known_sizes(kinds)
        return Program("graph", block, kinds, fixed, names, sizes=sizes, default=self.default)


# ------------------------------------------------------------------------------------ inputs


class _Input:
    """One value that a graph takes, and how a program is given it; this is one that none reads."""

    is_known = True  # whether neither a size nor a number of it changes from call to call

    def __init__(self, name: str) -> None:
        self.name = name

    def enter(self, value: Any, arrays: list[Array], fixed: list[Any]) -> None:
        """Append to the arrays that a program takes, or to the numbers that it is made for."""

    def declare(
        self,
        numbers: Iterator[Any],
        kinds: dict[str, Kind],
        sizes: dict[str, tuple[str, int]],
        fixed: dict[str, Any],
    ) -> None:
        """Enter what the program is told about it, taking its numbers as they were entered."""

    def turned_back(self) -> Sequence[Node]:
        """The node that gives a tensor its axes again."""
        return ()


_ARRAY = methodcaller("numpy", force=True)  # half the time of array_of, for what NumPy has


class _Tensor(_Input):
    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name)
        self.kind = kind_of(value)
        self.is_known = all(isinstance(extent, int) for extent in value.shape)
        self.array = array_of if value.dtype is torch_package().bfloat16 else _ARRAY
        order = dense_order(value)
        self.order = order if order is not None and order != tuple(range(value.ndim)) else None

    def enter(self, value: Any, arrays: list[Array], fixed: list[Any]) -> None:
        arrays.append(self.array(value if self.order is None else value.permute(self.order)))

    def declare(
        self,
        numbers: Iterator[Any],
        kinds: dict[str, Kind],
        sizes: dict[str, tuple[str, int]],
        fixed: dict[str, Any],
    ) -> None:
        if self.order is None:
            kinds[self.name] = self.kind
        else:
            shape = self.kind.shape or ()
            turned = tuple(shape[axis] for axis in self.order)
            kinds[f"{self.name}_laid"] = Kind("tensor", self.kind.element, turned)

    def turned_back(self) -> Sequence[Node]:
        if self.order is None:
            return ()
        return (_permute(f"{self.name}_laid", inverse(self.order), self.name),)


class _Extent(_Input):
    """A size of a tensor that comes, too."""

    is_known = False

    def __init__(self, name: str, tensor: _Tensor, axis: int) -> None:
        super().__init__(name)
        turned = tensor.order is not None
        self.source = f"{tensor.name}_laid" if turned else tensor.name
        self.axis = tensor.order.index(axis) if tensor.order is not None else axis

    def declare(
        self,
        numbers: Iterator[Any],
        kinds: dict[str, Kind],
        sizes: dict[str, tuple[str, int]],
        fixed: dict[str, Any],
    ) -> None:
        sizes[self.name] = self.source, self.axis


class _Number(_Input):
    """A number: a whole one is an extent of an array without elements, so that one program serves
    all; others have programs of their own."""

    is_known = False

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name)
        symbol = expression(value) if _is_open(value) else None
        self.symbol = str(symbol) if str(symbol).isidentifier() else None
        self.is_open = _is_open(value)

    def enter(self, value: Any, arrays: list[Array], fixed: list[Any]) -> None:
        carried = self.is_open and type(value) is int and value >= 0
        if carried:
            arrays.append(np.empty((value, 0), np.int8))
        fixed.append(None if carried else value)

    def declare(
        self,
        numbers: Iterator[Any],
        kinds: dict[str, Kind],
        sizes: dict[str, tuple[str, int]],
        fixed: dict[str, Any],
    ) -> None:
        number = next(numbers)
        if number is None and self.is_open:
            kinds[self.name + _EXTENT] = Kind("tensor", "int8", (self.symbol, 0))
            sizes[self.name] = self.name + _EXTENT, 0
        else:
            fixed[self.name] = number


def _is_open(value: Any) -> bool:
    return isinstance(value, torch_package().SymInt)


def _inputs(placeholders: Sequence[Any], block: Block) -> list[_Input]:
    """What a graph takes; tokens, which nothing reads, come as None."""
    torch = torch_package()
    read = _read(block)
    tensors: dict[str, _Tensor] = {}
    for node in placeholders:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and node.name in read:
            tensors[node.name] = _Tensor(node.name, value)
    axes = {
        expression(extent): (tensors[node.name], axis)
        for node in reversed(placeholders)
        if node.name in tensors
        for axis, extent in enumerate(node.meta["val"].shape)
        if not isinstance(extent, int)
    }
    made: list[_Input] = []
    for node in placeholders:
        value = node.meta.get("val")
        if node.name not in read:
            made.append(_Input(node.name))
        elif node.name in tensors:
            made.append(tensors[node.name])
        elif _is_open(value) and expression(value) in axes:
            made.append(_Extent(node.name, *axes[expression(value)]))
        else:
            made.append(_Number(node.name, value))
    return made


def _read(block: Block) -> set[str]:
    """The names that the nodes of a graph read."""

    def names(value: Any) -> Iterator[str]:
        if isinstance(value, Name):
            yield value.name
        for item in value if isinstance(value, list) else ():
            yield from names(item)

    return {name for node in nodes_of(block) for _, v in node.inputs for name in names(v)}


def _symbols(placeholders: Sequence[Any]) -> dict[Any, tuple[int, int | None]]:
    """Where the values of symbols are found: a number, or an axis of a tensor."""
    torch = torch_package()
    found: dict[Any, tuple[int, int | None]] = {}
    for position, node in enumerate(placeholders):
        value = node.meta.get("val")
        if _is_open(value):
            found.setdefault(expression(value), (position, None))
        for axis, extent in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if not isinstance(extent, int):
                found.setdefault(expression(extent), (position, axis))
    return {held: at for held, at in found.items() if held.is_Symbol}


def _number(values: Sequence[Any], at: tuple[int, int | None]) -> int:
    position, axis = at
    number: int = values[position] if axis is None else values[position].shape[axis]
    return number


# ------------------------------------------------------------------------------------ results


View = tuple[Sequence[Any], Sequence[Any], Any]  # a Placement that symbols may be in


def _placed(view: View | None, symbols: Mapping[Any, int]) -> Placement | None:
    if view is None:
        return None
    sizes, strides, start = view
    extents = tuple(value_of(n, symbols) for n in sizes)
    return extents, tuple(value_of(n, symbols) for n in strides), value_of(start, symbols)


def _read_by(views: Iterable[View | None]) -> set[Any]:
    """The symbols that views read; a ragged extent, for one, has no number that one could read."""
    numbers = [n for view in views if view is not None for n in (*view[0], *view[1], view[2])]
    return {held for n in numbers if not isinstance(n, int) for held in expression(n).free_symbols}


class _Made:
    """A value that the program makes; a tensor lies in an order of its axes, and is told its
    strides where that order is another than its own."""

    def __init__(self, name: str, order: Order | None, view: View | None) -> None:
        self.name = name
        plain = order is None or order == tuple(range(len(order)))
        self.order = None if plain else order
        self.view = None if plain else view

    @property
    def result_name(self) -> str:
        return self.name if self.order is None else f"{self.name}_laid"

    def turned(self) -> Sequence[Node]:
        """The node that puts the axes of a tensor into the order in which it lies."""
        return () if self.order is None else (_permute(self.name, self.order, self.result_name),)


@record(frozen=True)
class _Result:
    """One result: what it is, or is a view of.

    constant  where it is neither an input nor made by the program
    given     the position of that input
    made      the index among what the program makes; a number is one of its elements
    view      sizes, strides, and the start in the memory of what it is a view of, if it is one
    """

    constant: Any = None
    given: int | None = None
    made: int | None = None
    is_number: bool = False
    view: View | None = None

    def __call__(self, values: Sequence[Any], made: Sequence[Any], place: Placement | None) -> Any:
        if self.given is None and self.made is None:
            return self.constant
        held = values[self.given] if self.given is not None else made[self.made or 0]
        if self.is_number:
            return held.item()
        if place is None:
            return held
        sizes, strides, start = place
        return held.as_strided(sizes, strides, held.storage_offset() + start)


def _results(
    outputs: Sequence[Any], placeholders: Sequence[Any], roots: Mapping[int, Any]
) -> tuple[list[_Result], list[_Made]]:
    """The results of a graph, and what its program makes for them; roots lie first in a memory."""
    torch = torch_package()
    known = set(_symbols(placeholders))
    positions = {node: k for k, node in enumerate(placeholders)}
    made: dict[Any, int] = {}
    entries: list[_Made] = []

    def program(node: Any, order: Order | None) -> int:
        if node not in made:
            made[node] = len(entries)
            view = None if order is None else _view(node, node, known)
            entries.append(_Made(node.name, None if view is None else order, view))
        return made[node]

    def result(node: Any) -> _Result:
        if not isinstance(node, torch.fx.Node):
            return _Result(constant=node)
        if node in positions:
            return _Result(given=positions[node])
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return _Result(made=program(node, None), is_number=node.op != "get_attr")
        root = roots.get(_storage(value), node)
        view = _view(node, root, known)
        if root in positions and view is not None:
            return _Result(given=positions[root], view=view)
        order = dense_order(root.meta["val"])
        told = order is not None and _view(root, root, known) is not None
        if root in positions or view is None or not told or root.op != "call_function":
            root, order = node, dense_order(value)
        return _Result(made=program(root, order), view=None if root is node else view)

    return [result(node) for node in outputs], entries


def _view(node: Any, root: Any, known: set[Any]) -> View | None:
    """How a value lies in the memory of another; None where a call does not tell it."""
    value, base = node.meta["val"], root.meta["val"]
    start = value.storage_offset() - base.storage_offset()
    numbers = [*value.shape, *value.stride(), start]
    if value.dtype != base.dtype or value.is_conj() != base.is_conj():
        return None
    held = [expression(n) for n in numbers]
    if any(not isinstance(n, int) and not n.free_symbols <= known for n in held):
        return None
    return value.shape, value.stride(), start


def _roots(module: Any) -> dict[int, Any]:
    """The first value that lies in each memory: the others there are views of it."""
    torch = torch_package()
    made: dict[int, Any] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and node.op in ("placeholder", "call_function"):
            made.setdefault(_storage(value), node)
    return made


def _storage(tensor: Any) -> int:
    """The memory of a tensor as a key, while it lives: PyTorch has one object for each."""
    return id(tensor.untyped_storage())


def _outputs(module: Any) -> Sequence[Any]:
    given = next(node for node in module.graph.nodes if node.op == "output").args[0]
    return given if isinstance(given, list | tuple) else (given,)


def _permute(source: str, order: Order, made: str) -> Node:
    inputs = (("self", Name(source)), ("dims", list(order)))
    return Node(0, "aten.permute.default", inputs, (Whole(made),))
