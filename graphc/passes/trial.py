"""A graph with arguments and variables, and what the interpreter makes of it at any stage.

What waits for nothing may run in any order, so a graph whose nodes have effects is tried in more
than one: a lost `after` edge changes what comes out of one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Program, map_regions, rebuild
from graphc.ir.op import Effect
from graphc.ir.regions import is_control_flow
from graphc.ir.verify import graphs_of
from graphc.ops.record.effects import Key
from graphc.ops.reference.interpreter import Interpreter, interpret
from graphc.ops.reference.interpreter_channels import Mail
from graphc.passes.compare import Difference, distance, first_difference
from graphc.passes.rounding import roundings, rounds

State = dict[Key, Any]
Stages = Graph | Program
MOST_MOVES = 100  # of one rounding: what differs by more is no sum of many
ORDERS = 3  # in which a graph with effects is tried


@record
class Trial:
    """What is compiled (the output of `stage`, if that is named), with which options, and run on
    what: one array per parameter, and the values of the variables before it."""

    value: Stages
    arrays: list[Any]
    state: State
    config: Config
    stage: str | None = None
    wide: bool = False  # every float in f64

    def interpret(self, value: Stages) -> dict[str, Any]:
        """What a stage of it computes, in the order of its nodes: results and variables by name."""
        state = dict(self.state)
        return self.named(interpret(value, self.arrays, state=state, wide=self.wide), state)

    @property
    def tolerances(self) -> dict[str, float]:
        """What rounding may move each result and variable by, by name."""
        values, kept = roundings(self.value)
        state = {key: kept.get(key, 0.0) for key in self.state}
        return self.named([values[node] for node in self.value.results], state)

    def named(self, results: Sequence[Any], state: State) -> dict[str, Any]:
        """Results and the variables that are there now by what messages call them."""
        names = (f"result {name!r}" for name in graphs_of(self.value)[0].result_names)
        kept = {f"variable {name!r}": state[home, name] for home, name in sorted(state)}
        return {**dict(zip(names, results)), **kept}

    def values(self, value: Stages) -> dict[int, Any]:
        """What each node outside of regions computes, by id."""
        return {node.id: made for node, made in self.values_of_nodes(value).items()}

    def values_of_nodes(self, value: Stages) -> dict[Node, Any]:
        """The same by node: the graphs of several devices may give one id twice."""
        wanted = {node for graph in graphs_of(value) for node in graph.nodes}
        recorder = _Recorder(wanted, dict(self.state))
        with np.errstate(all="ignore"):
            recorder.value(value, list(self.arrays))
        return recorder.found


def disagreement(
    trial: Trial, value: Stages, wanted: dict[str, Any], orders: int = ORDERS
) -> Difference | None:
    """How a stage of a trial differs from what it should compute, in some order of its nodes.

    Raises whatever interpreting it does.
    """
    tolerances = trial.tolerances
    for ordered in (value, *other_orders(value, orders - 1)):
        made = trial.interpret(ordered)
        if (found := first_difference(made, wanted, tolerances)) is not None:
            return found
    return None


def require_settled(trial: Trial, made: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise GraphError where what differs of some results is what rounding makes of the arguments.

    The interpreter rounds every value up or down at random, as in Vignes, "A stochastic arithmetic
    for reliable scientific computation" (1993); what that moves, no result can be held to.
    """
    state = dict(trial.state)
    nudged = _Nudged(state).value(trial.value, list(trial.arrays))
    moved, right = trial.named(nudged, state), trial.interpret(trial.value)
    tolerances = trial.tolerances
    most = 0.0
    for name in wanted.keys() & made.keys():
        error, allowed = distance(made[name], wanted[name], tolerances[name])
        if error <= allowed:
            continue
        by_rounding, least = distance(moved[name], right[name], tolerances[name])
        if not least < by_rounding or error > MOST_MOVES * by_rounding:
            return
        most = max(most, by_rounding)
    if most:
        raise GraphError(
            f"these arguments are ill-conditioned: rounding alone moves a result by {most:.3g}",
            hint="give arguments that make sense, with --feed; no stage is told from rounding here",
        )


class _Nudged(Interpreter):
    """Moves what is rounded to a neighbour at random; whole numbers are exact."""

    def __init__(self, state: State) -> None:
        super().__init__(wide=False, state=state, mail=Mail())
        self.rng = np.random.default_rng(0)

    def node(self, node: Node, inputs: list[Any]) -> Any:
        made = super().node(node, inputs)
        if node.regions or not rounds(node) or not isinstance(made, np.ndarray):
            return made
        if made.dtype.kind != "f":
            return made
        ends = np.where(self.rng.random(made.shape) < 0.5, -np.inf, np.inf).astype(made.dtype)
        with np.errstate(all="ignore"):
            return np.where(made == np.round(made), made, np.nextafter(made, ends))


class _Recorder(Interpreter):
    """Keeps the values of some nodes."""

    def __init__(self, wanted: set[Node], state: State) -> None:
        super().__init__(wide=False, state=state, mail=Mail())
        self.wanted = wanted
        self.found: dict[Node, Any] = {}

    def node(self, node: Node, inputs: list[Any]) -> Any:
        made = super().node(node, inputs)
        if node in self.wanted:
            self.found[node] = made
        return made


# ------------------------------------------------------------------------------------ orders


def other_orders(value: Stages, count: int) -> Iterator[Stages]:
    """The graph in other orders that its edges allow: what may be late last, then at random.

    A program of several devices and a graph without effects have none that matter.
    """
    if isinstance(value, Program):
        if len(value.graphs) > 1:
            return
        (graph,) = value.graphs
    else:
        graph = value
    if graph.effect not in (Effect.READ, Effect.WRITE):
        return
    for number in range(count):
        yield reordered(graph, random.Random(number) if number else None)


def reordered(graph: Graph, draw: random.Random | None) -> Graph:
    """The graph, and the regions of its control flow, in an order that its edges allow: backwards
    where they do, or drawn."""

    def rewrite(node: Node, r: Any) -> Node | None:
        made = map_regions(node, lambda region: reordered(region, draw))
        if made is node:
            return None
        r.nodes.append(made)
        return made

    if any(map(is_control_flow, graph.nodes)):
        graph = rebuild(graph, rewrite, each=False)
    turns = {n: -k if draw is None else draw.random() for k, n in enumerate(graph.nodes)}
    return graph.replace(nodes=list(_sorted(graph, turns)))


def _sorted(graph: Graph, turns: dict[Node, float]) -> Iterable[Node]:
    """The nodes in topological order; of those that are ready the one with the smallest turn."""
    waits = {node: len({*node.inputs, *node.after} & turns.keys()) for node in graph.nodes}
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for source in {*node.inputs, *node.after}:
            readers.setdefault(source, []).append(node)
    ready = [(turns[node], node.id, node) for node, count in waits.items() if not count]
    heapify(ready)
    while ready:
        node = heappop(ready)[2]
        yield node
        for reader in readers.get(node, ()):
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, (turns[reader], reader.id, reader))
