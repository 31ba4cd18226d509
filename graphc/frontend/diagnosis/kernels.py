"""What is compiled, run as a whole and kernel by kernel beside the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.base.record import replace
from graphc.errors import LimitError
from graphc.frontend.compile.build import build
from graphc.ir.graph import Builder, Graph, Node, Program, node_effect
from graphc.ir.op import OPS, Alias, Effect, Structural
from graphc.ir.place import Buffer
from graphc.ir.types import TupleType, Type, leaves
from graphc.ir.verify import graphs_of
from graphc.passes.compare import Difference, difference
from graphc.passes.pipeline import FIRST_OF_MEMORY, STAGES, stage_named
from graphc.passes.rounding import roundings
from graphc.passes.trial import Stages, Trial
from graphc.runtime.call.variable import container

LAST_WITHOUT_MEMORY = STAGES[stage_named(FIRST_OF_MEMORY) - 1].name


def run_compiled(trial: Trial) -> dict[str, Any]:
    """The results of a trial, compiled, and the variables then; these are put back afterwards."""
    built = build(trial.value, replace(trial.config, dump=None), stage=trial.stage)
    cells = {key: container(key[0]).cells[key[1]] for key in trial.state}
    for key, cell in cells.items():
        cell.assign(trial.state[key])
    try:
        results = [np.array(r) for r in built.executable.run(list(trial.arrays))]
        state = {key: np.array(cell.value()) for key, cell in cells.items()}
    finally:
        for key, cell in cells.items():
            cell.assign(trial.state[key])
    return trial.named(results, state)


def wrong_kernels(
    trial: Trial, value: Stages
) -> Iterator[tuple[int, Node, Difference | str | None]]:
    """The kernels of a planned program (and its loops and branches), numbered from 1, each with how
    its results differ from the interpreter's: a message if it crashes, None if they do not."""
    known = trial.values_of_nodes(value)
    known |= dict(zip(value.params, trial.arrays, strict=True))
    number = 0
    for graph in graphs_of(value):
        for node in graph.nodes:
            if isinstance(node.op.lower, Alias | Structural) and not node.regions:
                continue
            if node_effect(node) is not Effect.PURE or node.op.traits.stored:
                continue
            number += 1
            yield number, node, _wrong(trial, graph, node, known)


def _wrong(
    trial: Trial, graph: Graph, node: Node, known: dict[Node, Any]
) -> Difference | str | None:
    """How one kernel on its own differs."""
    made, arrays = alone(graph, node, known)
    if made is None:
        return None
    try:
        built = build(made, replace(trial.config, dump=None), stage=LAST_WITHOUT_MEMORY)
        results: Any = [np.array(r) for r in built.executable.run(arrays)]
    except LimitError:
        return None
    except Exception as error:  # noqa: BLE001  that is what is looked for
        return f"{type(error).__name__}: {error}"
    single = isinstance(node.type, Type)
    own = max(map(roundings(made)[0].__getitem__, made.results), default=0.0)
    return difference(f"%{node.id}", results[0] if single else tuple(results), known[node], own)


def alone(
    graph: Graph, node: Node, known: dict[Node, Any]
) -> tuple[Program | None, list[np.ndarray[Any, Any]]]:
    """A program of one kernel, and its arguments; None for one that takes or makes no arrays."""
    kinds = [k for n in (node, *node.inputs) for k in leaves(n.type)]
    if not all(isinstance(kind, Type) for kind in kinds):
        return None, []
    builder = Builder(graph.next_id)
    params: list[Node] = []
    arrays: list[np.ndarray[Any, Any]] = []
    became: dict[Node, Node] = {}

    def param(source: Node, kind: Any, value: Any) -> Node:
        attrs = OPS["param"].coerce({"name": f"p{len(params)}"})
        made = Node(builder.next_id, OPS["param"], (), attrs, kind, place=_device(source.place))
        builder.next_id += 1
        params.append(made)
        arrays.append(np.asarray(value))
        return made

    for source in node.inputs:
        if source in became:
            continue
        if source.op.traits.stored or source.op.traits.workspace:
            made = source.replace(place=_device(source.place), after=())
            builder.nodes.append(made)
        elif isinstance(source.type, TupleType):
            parts = [param(source, k, v) for k, v in zip(source.type.elements, known[source])]
            made = builder.emit(OPS["tuple"], parts, place=_device(source.place))
        else:
            made = param(source, source.type, known[source])
        became[source] = made
    inputs = tuple(became[n] for n in node.inputs)
    only = node.replace(inputs=inputs, after=(), place=_device(node.place))
    builder.nodes.append(only)
    results: tuple[Node, ...] = (only,)
    if isinstance(node.type, TupleType):
        ports = range(len(node.type.elements))
        results = tuple(
            builder.emit(OPS["item"], (only,), {"index": k}, place=only.place) for k in ports
        )
    made_graph = Graph(
        graph.name,
        tuple(params),
        builder.nodes,
        results,
        next_id=builder.next_id,
        device=graph.device,
    )
    return Program(graph.name, (made_graph,)), arrays


def _device(place: Any) -> Any:
    return place.device if isinstance(place, Buffer) else place
