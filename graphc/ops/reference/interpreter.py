"""The reference interpreter: runs any graph of any stage with NumPy. It is the oracle of all tests.

`wide=True` evaluates every float in f64 (complex in c128), which bounds the rounding error of the
compiled result; casts to narrower floats are then skipped too.  Whoever looks at the bits of a
number gets those of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.errors import UNCOMPUTABLE, FeedError, GraphError, RunError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.types import AnyType, TupleType, Type, type_text
from graphc.ops.reference.interpreter_channels import Mail
from graphc.ops.reference.interruptible import interruptible, is_long

Array = Any
_WIDE = {"f16": np.float64, "bf16": np.float64, "f32": np.float64, "c64": np.complex128}


State = MutableMapping[tuple[str, str], Array]  # the value of each variable (container, name)


def interpret(
    value: Graph | Program,
    arguments: Sequence[Any],
    *,
    wide: bool = False,
    state: State | None = None,
    sent: dict[str, list[Array]] | None = None,
    given: Mapping[str, Sequence[Array]] | None = None,
) -> list[Array]:
    """The results for these argument arrays, in order; `state` is read and written, `sent` receives
    the messages of every channel, and `given` has messages that are delivered instead.

    Raises FeedError for wrong arguments, RunError for a variable without a value and GraphError,
    with the node's line, for what NumPy refuses.
    """
    check_arguments(value.params, arguments)
    interpreter = Interpreter(wide, {} if state is None else state, Mail(sent, given))
    with np.errstate(all="ignore"):
        return interpreter.value(value, list(arguments))


def check_arguments(
    params: Sequence[Node], arguments: Sequence[Any], of: str = "", hint: str = ""
) -> None:
    """Raise FeedError unless number, dtypes and shapes fit the parameters; `of` says whose they
    are."""
    if len(params) != len(arguments):
        raise FeedError(f"expected {len(params)} argument(s){of}, got {len(arguments)}", hint=hint)
    for param, argument in zip(params, arguments, strict=True):
        kind = param.type
        assert isinstance(kind, Type)
        array = np.asarray(argument)
        if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
            raise FeedError(
                f"argument {param.attrs['name']}{of} must be {kind}, got {type_text(array)}",
                hint=hint,
            )


class Interpreter:
    """One evaluation; `node` is what another kind of arithmetic may do otherwise."""

    def __init__(self, wide: bool, state: State, mail: Mail | None = None) -> None:
        self.wide = wide
        self.state = state
        self.mail = mail or Mail()

    def widen(self, array: Array, kind: Type) -> Array:
        target = _WIDE.get(kind.dtype.name, kind.dtype.numpy) if self.wide else kind.dtype.numpy
        return np.asarray(array, target)

    def value(self, value: Graph | Program, arguments: list[Any]) -> list[Array]:
        if isinstance(value, Program):
            return self.program(value, arguments)
        return self.graph(value, arguments)

    def program(self, program: Program, arguments: list[Any]) -> list[Array]:
        """Run the graphs of all devices at once; each waits where a message has not come yet."""

        def run(graph: Graph) -> list[Array]:
            with np.errstate(all="ignore"):  # NumPy keeps it for each thread
                return self.graph(graph, arguments if graph is program.graphs[0] else [])

        made: list[Array] = self.mail.run([partial(run, graph) for graph in program.graphs])[0]
        return made

    def bind(self, graph: Graph, arguments: list[Any]) -> list[Any]:
        values: list[Any] = [None] * graph.next_id
        for param, argument in zip(graph.params, arguments, strict=True):
            kind = param.type
            values[param.id] = self.widen(argument, kind) if isinstance(kind, Type) else argument
        return values

    def graph(self, graph: Graph, arguments: list[Any]) -> list[Array]:
        values = self.bind(graph, arguments)
        last = _last_uses(graph)
        for position, node in enumerate(graph.nodes):
            values[node.id] = self.node(node, [values[n.id] for n in node.inputs])
            for dead in last[position]:
                values[dead] = None
        return [values[r.id] for r in graph.results]

    def node(self, node: Node, inputs: list[Any]) -> Any:
        if node.regions:
            return self.region_node(node, inputs)
        match node.op.name:
            case "send":
                self.mail.put(node.attrs["channel"], inputs[0] if inputs else ())
                return ()
            case "recv":
                return self.mail.take(node.attrs["channel"])
            case "read":
                return self.read(node)
            case "assign":
                self.state[node.attrs["container"], node.attrs["name"]] = inputs[0]
                return inputs[0]
        operands, call = self.operands(node, inputs), node.op.reference
        if is_long(operands, _elements(node.type)):
            call = partial(interruptible, call)
        try:
            made = call(*operands, **self.attributes(node))
        except GraphError as error:
            raise error.at(node.loc, node.describe()) from error.__cause__
        except (*UNCOMPUTABLE, ValueError, IndexError, MemoryError) as error:
            text = f"{node.op.name}: {error}"
            raise GraphError(text, details=node.describe(), location=node.loc) from None
        return self.settle(made, node)

    def read(self, node: Node) -> Array:
        name, kind = node.attrs["name"], node.attrs["type"]
        found = self.state.get((node.attrs["container"], name))
        if found is None or found.shape != kind.shape:
            have = "has no value" if found is None else f"has shape {list(found.shape)}"
            raise RunError(f"variable {name!r} {have}", details=node.describe(), location=node.loc)
        return self.widen(found, kind)

    def operands(self, node: Node, inputs: list[Any]) -> list[Any]:
        kind = node.inputs[0].type if self.wide and node.op.name == "bitcast" else None
        return [inputs[0].astype(kind.dtype.numpy)] if isinstance(kind, Type) else inputs

    def attributes(self, node: Node) -> dict[str, Any]:
        attrs = node.attrs.values_dict
        if self.wide and node.op.traits.casts and attrs["dtype"].kind in "fc":
            wide = "c128" if attrs["dtype"].kind == "c" else "f64"
            return {**attrs, "dtype": node.op.coerce({**attrs, "dtype": wide})["dtype"]}
        return attrs

    def settle(self, made: Any, node: Node) -> Any:
        """The result with exactly the node's type (a reference may compute wider)."""

        def settled(part: Any, kind: AnyType) -> Any:
            if isinstance(kind, TupleType):
                return tuple(map(settled, part, kind.elements))
            if not isinstance(kind, Type):
                return part  # a stack
            array = self.widen(part, kind)
            if array.shape != kind.shape:
                text = f"{node.op.name}: the reference gave shape {list(array.shape)}"
                raise GraphError(text, details=node.describe(), location=node.loc)
            return array

        return settled(made, node.type)

    def region_node(self, node: Node, inputs: list[Any]) -> Any:
        if node.op.name in ("fused", "call"):
            made = self.graph(node.regions[0], inputs)
            return made[0] if len(made) == 1 else tuple(made)
        run: Callable[..., Any] = self.graph
        return node.op.reference(*inputs, regions=node.regions, run=run, **node.attrs.values_dict)


def _elements(kind: AnyType) -> int:
    """The elements of a result, as far as they are known."""
    if isinstance(kind, TupleType):
        return sum(map(_elements, kind.elements))
    size = kind.size if isinstance(kind, Type) else 0
    return size if isinstance(size, int) else 0


def _last_uses(graph: Graph) -> list[list[int]]:
    """For each position the ids whose value is not needed after it."""
    keep = {r.id for r in graph.results}
    last: dict[int, int] = {}
    for position, node in enumerate(graph.nodes):
        last[node.id] = position
        for source in node.inputs:
            last[source.id] = position
    table: list[list[int]] = [[] for _ in graph.nodes]
    for id, position in last.items():
        if id not in keep:
            table[position].append(id)
    return table


def evaluate_node(node: Node, arrays: list[Array], state: State | None = None) -> Array:
    """One node on arrays, with NumPy. Raises GraphError for what NumPy refuses."""
    with np.errstate(all="ignore"):
        return Interpreter(wide=False, state={} if state is None else state).node(node, arrays)


def evaluate_together(
    nodes: Sequence[Node], arrays: Sequence[list[Array]], state: State | None = None
) -> list[Array]:
    """Nodes of several devices that talk to each other in their regions, each on its arrays."""
    interpreter = Interpreter(wide=False, state={} if state is None else state)

    def run(node: Node, inputs: list[Array]) -> Array:
        with np.errstate(all="ignore"):
            return interpreter.node(node, inputs)

    return interpreter.mail.run([partial(run, *pair) for pair in zip(nodes, arrays, strict=True)])
