"""Nodes of a graph in an order in which they run.

The format asks files for that order; tools that rewrite files append what they insert, and runtimes
sort.  Nodes that stand in order stay as they are; of two that may run, the first of the file does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from graphc.formats.onnx.records import Node, Subgraph


def in_order(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes, each behind those that make what it reads; those of a circle come last."""
    makers: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in node.outputs:
            makers.setdefault(name, k)
    needs = [{makers[name] for name in reads(node) if name in makers} for node in nodes]
    if all(max(found, default=-1) < k for k, found in enumerate(needs)):
        return nodes
    order = _sorted(needs)
    return tuple(nodes[k] for k in (*order, *sorted({*range(len(nodes))} - {*order})))


def _sorted(needs: Sequence[set[int]]) -> list[int]:
    """Numbers of nodes, least first among those whose needs stand before (Kahn's algorithm)."""
    readers: list[list[int]] = [[] for _ in needs]
    for k, found in enumerate(needs):
        for maker in found:
            readers[maker].append(k)
    waits = [len(found) for found in needs]
    ready = [k for k, count in enumerate(waits) if not count]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for k in readers[order[-1]]:
            waits[k] -= 1
            if not waits[k]:
                heapq.heappush(ready, k)
    return order


def reads(node: Node) -> Iterator[str]:
    """Names that a node takes from around it: its inputs, and what its graphs see outside."""
    yield from filter(None, node.inputs)
    for graph in node.graphs():
        yield from _seen_outside(graph)


def _seen_outside(graph: Subgraph) -> set[str]:
    made = {*graph.inputs, *graph.constants}
    made.update(name for node in graph.nodes for name in node.outputs)
    return {*graph.outputs, *(name for node in graph.nodes for name in reads(node))} - made
