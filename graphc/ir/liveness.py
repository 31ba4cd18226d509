"""Liveness over the issue order: which values are in the arena when, and how many bytes that is."""

from __future__ import annotations

from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias
from graphc.ir.place import Buffer


def root(node: Node) -> Node:
    """The node whose memory a value lies in: aliases and items lead back to it."""
    while (isinstance(node.op.lower, Alias) or node.op.name == "item") and node.inputs:
        node = node.inputs[0]
    return node


def roots(node: Node) -> list[Node]:
    """Like `root`, for a value that may gather several memories (a tuple)."""
    if node.op.name != "tuple":
        return [root(node)]
    return [r for source in node.inputs for r in roots(source)]


def last_reads(graph: Graph) -> dict[Node, int]:
    """Position of the last node that reads a value's memory; results are read after the end."""
    last: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        last[node] = position
        for source in node.inputs:
            for memory in roots(source):
                last[memory] = position
    for result in graph.results:
        for memory in roots(result):
            last[memory] = len(graph.nodes)
    return last


def arena_intervals(graph: Graph) -> list[tuple[int, int, int, int, Node]]:
    """(first position, last position, offset, bytes, node) of every arena region, by first
    position.
    """
    last = last_reads(graph)
    intervals: list[tuple[int, int, int, int, Node]] = []
    for position, node in enumerate(graph.nodes):
        if root(node) is not node or not isinstance(node.place, Buffer) or node.op.name == "tuple":
            continue
        intervals += [
            (position, last[node], region.offset, region.nbytes, node)
            for region in node.place.regions
            if region.base == "arena" and region.nbytes
        ]
    return intervals


def peak_bytes(graph: Graph) -> int:
    """The arena's size: the end of the highest region."""
    return max((offset + nbytes for _, _, offset, nbytes, _ in arena_intervals(graph)), default=0)
