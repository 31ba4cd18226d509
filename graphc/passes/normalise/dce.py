"""dce: drop nodes that nothing needs. Roots are the results and every WRITE, COMM and IO node.

Control flow keeps the operands, carries and results that something needs; see `prune`.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, map_regions, node_effect
from graphc.ir.op import Effect
from graphc.passes.normalise.prune import prune
from graphc.passes.reasons import record


def dce(graph: Graph, config: Config) -> Graph:
    """The graph without dead nodes: backward sweeps, as long as they make control flow narrower."""
    while True:
        swept = sweep(graph, config)
        graph = prune(swept, lambda region: dce(region, config))
        if graph is swept:
            return graph


def sweep(graph: Graph, config: Config) -> Graph:
    """The graph and its regions without the nodes that nothing needs."""
    live = [False] * graph.next_id
    for result in graph.results:
        live[result.id] = True
    dead: list[Node] = []
    regions_changed: dict[Node, Node] = {}
    for node in reversed(graph.nodes):
        if not live[node.id] and node_effect(node) <= Effect.READ:
            dead.append(node)
            continue
        live[node.id] = True
        for source in node.inputs:
            live[source.id] = True
        for source in node.after:
            # Waiting for a node does not make it needed; a dead one is simply no longer waited for.
            live[source.id] = live[source.id] or node_effect(source) > Effect.READ
        if node.regions:
            made = map_regions(node, lambda region: dce(region, config))
            if made is not node:
                regions_changed[node] = made
    if not dead and not regions_changed:
        return graph
    for node in dead:
        record(node.id, f"{node.op.name} has no reader")
    return _without(graph, live, regions_changed)


def _without(graph: Graph, live: list[bool], changed: dict[Node, Node]) -> Graph:
    mapped: dict[Node, Node] = {p: p for p in graph.params}
    nodes = []
    for node in graph.nodes:
        if not live[node.id]:
            continue
        made = changed.get(node, node)
        if any(mapped[n] is not n for n in node.inputs) or node.after:
            after = tuple(mapped[n] for n in node.after if live[n.id])
            inputs = tuple(mapped[n] for n in node.inputs)
            if inputs != made.inputs or after != made.after:
                made = made.replace(inputs=inputs, after=after)
        mapped[node] = made
        nodes.append(made)
    ids = {n.id for n in (*graph.params, *nodes)}
    names = {name: id for name, id in graph.names.items() if id in ids}
    results = tuple(mapped[r] for r in graph.results)
    return graph.replace(nodes=nodes, results=results, names=names)
