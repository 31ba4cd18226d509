"""Who reads a node."""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, node_effect
from graphc.ir.op import Effect


def readers_of(graph: Graph) -> dict[Node, list[Node | None]]:
    """Who reads or waits for each node, each use once, in order; None is the caller."""
    readers: dict[Node, list[Node | None]] = {node: [] for node in (*graph.params, *graph.nodes)}
    for node in graph.nodes:
        for source in (*node.inputs, *node.after):
            readers[source].append(node)
    for result in graph.results:
        readers[result].append(None)
    return readers


def live_readers(graph: Graph) -> list[int]:
    """How often a result or a node that something needs reads each node, by id."""
    counts = [0] * graph.next_id
    for result in graph.results:
        counts[result.id] += 1
    for node in reversed(graph.nodes):
        if counts[node.id] or node_effect(node) > Effect.READ:
            for source in node.inputs:
                counts[source.id] += 1
    return counts
