"""cells: the forward and the backward graph of every stage of a loss.

    region      x ──> [ h = stage 0 ] ──> [ y = stage 1 ] ──> loss         w0, w1: parameters
    stage 1     forward   h, w1 -> loss          backward   loss', values of forward -> h', w1'

A stage reads parameters of the region and values of earlier stages.  What does not depend on the
batch (a transposed weight) is computed by every stage that reads it, once for all chunks: only a
small value of that kind, such as a sum of squared weights, is sent.  The two halves of a backward
pass are the gradients that earlier stages wait for, and the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node, Reads, map_nodes, map_regions, node_effect
from graphc.ir.op import OPS, Effect
from graphc.ir.types import Type
from graphc.ops.autodiff.vjp import Sweep, has_gradient, prepared
from graphc.ops.control.control import param_node
from graphc.ops.record.effects import accesses
from graphc.ops.record.value import Trace, Value, tracing

SMALL = 4  # a value that does not depend on the batch is sent if its parameters are larger by this


@record(frozen=True, eq=False)
class Loss:
    """A region that is piped, ready to be cut.

    wrt        numbers of the parameters that gradients are asked for
    varying    by id: does the value depend on the chunk?
    """

    graph: Graph
    wrt: frozenset[int]
    varying: frozenset[int]

    def varies(self, node: Node) -> bool:
        return node.id in self.varying


def prepare(region: Graph, wrt: Iterable[int], chunked: Iterable[int]) -> Loss:
    """The region with calls written out; `chunked` are the numbers of what every chunk has its own
    of.  Raises GraphError for a region that assigns variables."""
    wrt = frozenset(wrt)
    for node in region.nodes:
        touched = accesses(node.op, node.attrs, node.regions)
        if any(key[0] and effect is Effect.WRITE for key, effect in touched.items()):
            raise GraphError(
                "a pipelined function assigns a variable",
                location=node.loc,
                details=node.describe(),
                hint="return the new value with has_aux=True and assign it to the variable outside",
            )
    made = _without_places(prepared(_computed(region), set(wrt), None))
    varying = {made.params[k].id for k in chunked}
    for node in made.nodes:
        if any(n.id in varying for n in node.inputs) or node_effect(node) is Effect.IO:
            varying.add(node.id)
    return Loss(made, wrt, frozenset(varying))


def _computed(region: Graph) -> Graph:
    """The region with nodes for all results: one that is a parameter becomes an alias of it."""
    builder = Builder(region.next_id)
    results = [
        builder.emit(OPS["barrier"], (r,)) if r in region.params else r for r in region.results
    ]
    nodes = [*region.nodes, *builder.nodes]
    return region.replace(nodes=nodes, results=tuple(results), next_id=builder.next_id)


def _without_places(region: Graph) -> Graph:
    """The regions inside a region run where their node does."""

    def bare(graph: Graph) -> Graph:
        return map_nodes(graph, lambda node, reads: read(node, reads).replace(place=None))

    def read(node: Node, reads: Reads) -> Node:
        made = map_regions(node, bare)
        return made.replace(inputs=reads[0], after=reads[1]) if any(reads) else made

    return map_nodes(region, read)


# ------------------------------------------------------------------------------------ stages


@record(frozen=True, eq=False)
class Part:
    """The nodes of one stage: what it reads (parameters of the region and values of other stages),
    its nodes in order, and its values that others read."""

    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]


def parts_of(loss: Loss, stage: Mapping[Node, int], count: int) -> list[Part]:
    """The region in parts; `stage` is of every node that varies, and grows along every edge.

    Raises GraphError where it does not grow.
    """
    stage = {**stage, **fixed_stages(loss, stage)}
    params = set(loss.graph.params)
    own: list[set[Node]] = [set() for _ in range(count)]
    for node, number in stage.items():
        own[number].add(node)
    for number in range(count):
        pending = list(own[number])
        if number == count - 1:
            pending += [r for r in loss.graph.results if r not in stage]
        while pending:
            for source in (found := pending.pop()).inputs:
                at = stage.get(source)
                if at is not None and at > number and loss.varies(source):
                    raise GraphError(
                        f"stage {number} reads a value of stage {at}, which comes later",
                        location=found.loc,
                        details=found.describe(),
                        hint="a model goes through its stages in one direction",
                    )
                if source in params or source in own[number] or (at is not None and at < number):
                    continue
                own[number].add(source)
                pending.append(source)
            if found not in stage:
                own[number].add(found)
    return [_part(loss, own, number) for number in range(count)]


def _part(loss: Loss, own: Sequence[set[Node]], number: int) -> Part:
    nodes = tuple(node for node in loss.graph.nodes if node in own[number])
    read = dict.fromkeys(n for node in nodes for n in node.inputs if n not in own[number])
    order = {node: k for k, node in enumerate((*loss.graph.params, *loss.graph.nodes))}
    elsewhere: set[Node] = set(loss.graph.results)
    for later, group in enumerate(own):
        if later != number:
            elsewhere.update(n for node in group for n in node.inputs if n not in group)
    outputs = tuple(node for node in nodes if node in elsewhere)
    return Part(tuple(sorted(read, key=order.__getitem__)), nodes, outputs)


def fixed_stages(loss: Loss, stage: Mapping[Node, int]) -> dict[Node, int]:
    """The stages of small values that do not depend on the batch: where all that they are made of
    is used first."""
    home: dict[Node, int] = {}
    for node, number in stage.items():
        for source in node.inputs:
            if source.op.traits.parameter:
                home[source] = min(home.get(source, number), number)
    made_of: dict[Node, frozenset[Node]] = {p: frozenset([p]) for p in loss.graph.params}
    found = {}
    for node in loss.graph.nodes:
        if node in stage:
            continue
        made_of[node] = frozenset().union(*(made_of[n] for n in node.inputs if n in made_of))
        params = made_of[node]
        small = isinstance(node.type, Type) and SMALL * node.nbytes <= sum(p.nbytes for p in params)
        if small and params and all(p in home for p in params):
            found[node] = max(home[p] for p in params)
    return found


# ------------------------------------------------------------------------------------ cells


@record(frozen=True, eq=False)
class Cells:
    """What one stage does for one chunk.

    inputs      what the forward pass reads: nodes of the region; `params` stand for them
    outputs     values that others read: node of the region -> node of the forward pass
    seeds       their cotangents: node of the region -> the parameter that stands for it
    gradients   what the backward pass makes: node of the region -> its cotangent
    weights     nodes of the backward pass that only gradients of weights need
    again       nodes of the forward pass that the backward pass needs
    fixed       nodes that are the same for all chunks, parameters among them
    """

    inputs: tuple[Node, ...]
    params: tuple[Node, ...]
    forward: tuple[Node, ...]
    outputs: dict[Node, Node]
    backward: tuple[Node, ...]
    seeds: dict[Node, Node]
    gradients: dict[Node, Node]
    weights: frozenset[Node]
    again: frozenset[Node]
    fixed: frozenset[Node]


def cells_of(loss: Loss, parts: Sequence[Part], trains: bool = True) -> list[Cells]:
    """The cells of all stages; the first result of the region is what gradients are of."""
    wanted: set[Node] = set(loss.graph.results[:1]) if trains else set()
    made = []
    for part in reversed(parts):
        made.append(_cells(loss, part, wanted))
        wanted.update(made[-1].gradients)
    return made[::-1]


def _cells(loss: Loss, part: Part, wanted: set[Node]) -> Cells:
    graph = _closed(part, loss.graph.next_id)
    wrt = {k for k, node in enumerate(part.inputs) if _is_active(loss, node)}
    seeded = {k for k, node in enumerate(part.outputs) if node in wanted}
    kinds = [node.type for node in part.inputs]
    trace = Trace(Builder())
    params = tuple(param_node(k, kind, f"in{k}") for k, kind in enumerate(kinds))
    trace.builder.next_id = len(params)
    with tracing(trace):
        sweep = Sweep(trace, graph, wrt if seeded else set(), seeded)
        results = sweep.forward([trace.wrap(p) for p in params])
        forward = tuple(trace.builder.nodes)
        seeds = {}
        for number in sorted(seeded):
            node = part.outputs[number]
            seeds[node] = param_node(trace.builder.next_id, node.type, f"seed{number}")
            trace.builder.next_id += 1
        given = [trace.wrap(seeds[n]) if n in seeds else None for n in part.outputs]
        found = sweep.backward(given) if seeded else {}
    backward = tuple(trace.builder.nodes[len(forward) :])
    gradients = {part.inputs[k]: value.node for k, value in sorted(found.items())}
    params_of_region = set(loss.graph.params)
    crossing = [made for node, made in gradients.items() if node not in params_of_region]
    early = needed_by(crossing, backward)
    varying = {p for node, p in zip(part.inputs, params) if loss.varies(node)}
    return Cells(
        part.inputs,
        params,
        forward,
        {node: _single(value) for node, value in zip(part.outputs, results)},
        backward,
        seeds,
        gradients,
        frozenset(n for n in backward if n not in early),
        frozenset(needed_by([n for node in backward for n in node.inputs], forward)),
        _fixed((*params, *forward, *backward), varying.union(seeds.values())),
    )


def _single(value: Value) -> Node:
    return value.node


def _is_active(loss: Loss, node: Node) -> bool:
    """May a gradient be asked for what a stage reads?"""
    if node.op.traits.parameter:
        return any(loss.graph.params[k] is node for k in loss.wrt)
    return has_gradient(node.type) and depends(loss, node)


def depends(loss: Loss, node: Node) -> bool:
    """Does a value depend on what gradients are asked for?"""
    seen, pending = {node}, [node]
    wrt = {loss.graph.params[k] for k in loss.wrt}
    while pending:
        found = pending.pop()
        if found in wrt:
            return True
        new = [n for n in found.inputs if n not in seen]
        seen.update(new)
        pending += new
    return False


def _closed(part: Part, next_id: int) -> Graph:
    """The nodes of a part as a graph of their own; each keeps its id."""
    mapped = {n: param_node(n.id, n.type, f"v{n.id}") for n in part.inputs}
    params = tuple(mapped.values())
    nodes = []
    for node in part.nodes:
        after = tuple(mapped[n] for n in node.after if n in mapped)
        made = node.replace(inputs=tuple(mapped[n] for n in node.inputs), after=after, place=None)
        mapped[node] = made
        nodes.append(made)
    results = tuple(mapped[n] for n in part.outputs)
    return Graph("stage", params, nodes, results, next_id=next_id)


def needed_by(values: Iterable[Node], among: Sequence[Node]) -> set[Node]:
    """Those nodes that some values are made of, themselves included."""
    members, needed, pending = set(among), set(), list(values)
    while pending:
        node = pending.pop()
        if node in members and node not in needed:
            needed.add(node)
            pending.extend(node.inputs)
    return needed


def _fixed(nodes: Sequence[Node], varying: set[Node]) -> frozenset[Node]:
    """The nodes that depend on nothing that varies, and call nothing outside."""
    for node in nodes:
        if node_effect(node) is Effect.IO or any(n in varying for n in node.inputs):
            varying.add(node)
    return frozenset(node for node in nodes if node not in varying)
