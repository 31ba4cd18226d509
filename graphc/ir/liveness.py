"""Liveness over the issue order: which values are in the arena when, and how many bytes that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import Alias, Effect
from graphc.ir.place import Buffer, Region
from graphc.ir.sizes import greatest, hint_of
from graphc.ir.types import Type, leaves


def memory(node: Node) -> tuple[Node, int]:
    """The node whose memory a value lies in, and which of its leaves it is.

    Aliases and items lead back to it, and so do pushes and pops: they change a stack in place.
    An item of a tuple that was put together is what was put there.
    """
    leaf = 0
    while node.inputs:
        traits = node.op.traits
        if traits.item:
            leaf = node.attrs["index"]
            if node.inputs[0].op.traits.makes_tuple:
                node, leaf = node.inputs[0].inputs[leaf], 0
                continue
        elif traits.pop:
            if leaf:
                break
        elif not traits.push and not isinstance(node.op.lower, Alias):
            break
        node = node.inputs[0]
    return node, leaf


def root(node: Node) -> Node:
    """The node whose memory a value lies in."""
    return memory(node)[0]


def roots(node: Node) -> list[Node]:
    """Like `root`, for a value that may gather several memories (a tuple)."""
    if not node.op.traits.makes_tuple:
        return [root(node)]
    return [r for source in node.inputs for r in roots(source)]


def last_reads(graph: Graph) -> dict[Node, int]:
    """Position of the last node that reads a value's memory.

    Results and what variables are assigned are read after the end, and so may be what is sent: the
    receiver copies it when it needs it.
    """
    last: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        last[node] = position
        for source in node.inputs:
            if source.op.traits.makes_tuple:
                last.update(dict.fromkeys(roots(source), position))
            else:
                last[root(source)] = position
    leaving = (n for n in graph.nodes if n.op.effect is Effect.WRITE or n.op.traits.send)
    stored = (source for node in leaving for source in node.inputs)
    for result in (*graph.results, *stored):
        for memory in roots(result):
            last[memory] = len(graph.nodes)
    return last


def overwritten(
    graph: Graph, last: Mapping[Node, int]
) -> Iterator[tuple[Node, int, tuple[Node, int]]]:
    """(node, leaf, value) of each value of a planned graph whose memory another one takes over
    while that is computed: an array that is updated.  `last` are the last reads of values."""
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.place, Buffer) or node.op.traits.makes_tuple:
            continue
        for leaf, region in enumerate(own_regions(node)):
            for source, part in map(memory, node.inputs if region.nbytes else ()):
                if source is not node and last.get(source) == position:
                    regions = own_regions(source)
                    if region.base == "arena" and part < len(regions) and regions[part] == region:
                        yield node, leaf, (source, part)


def arena_intervals(graph: Graph) -> list[tuple[int, int, int, int, Node]]:
    """(first position, last position, offset, bytes, node) of every arena region, by first
    position.
    """
    last = last_reads(graph)
    passed_on = {value for _, _, value in overwritten(graph, last)}
    intervals: list[tuple[int, int, int, int, Node]] = []
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.place, Buffer) or node.op.traits.makes_tuple:
            continue
        if (scratch := node.place.scratch) is not None:
            end = len(graph.nodes) if node.op.effect is Effect.WRITE else position
            intervals.append((position, end, scratch.offset, scratch.nbytes, node))
        intervals += [
            (position, last[node] - ((node, leaf) in passed_on), region.offset, region.nbytes, node)
            for leaf, region in enumerate(own_regions(node))
            if region.base == "arena" and region.nbytes
        ]
    return intervals


def own_regions(node: Node) -> tuple[Region, ...]:
    """The memory regions of a planned node that are not another node's."""
    assert isinstance(node.place, Buffer)
    if node.op.traits.pop:
        return node.place.regions[1:]
    return node.place.regions if root(node) is node else ()


def live_bytes(graph: Graph) -> list[int]:
    """For every position of a graph that has no memory yet, the bytes that its values take there
    for the sizes at hand.

    Results have memory of their own, and so have constants and variables.
    """
    last, results = last_reads(graph), set(map(memory, graph.results))
    change = [0] * (len(graph.nodes) + 2)
    for position, node in enumerate(graph.nodes):
        if root(node) is node and not (node.op.traits.makes_tuple or node.op.traits.resident):
            sizes = enumerate(hint_of(kind.nbytes) for kind in leaves(node.type))
            nbytes = sum(size for leaf, size in sizes if (node, leaf) not in results)
            change[position] += nbytes
            change[last[node] + 1] -= nbytes
    return list(accumulate(change))


def peak_bytes(graph: Graph) -> int:
    """The arena's size: the end of the highest region."""
    top = 0
    for node in graph.nodes:
        if isinstance(node.place, Buffer):
            regions, scratch = node.place.regions, node.place.scratch
            for region in regions if scratch is None else (*regions, scratch):
                if region.base == "arena" and region.nbytes:
                    top = greatest(top, region.offset + region.nbytes)
    return top


def largest_live(graph: Graph, count: int) -> list[tuple[int, Node]]:
    """The nodes that take most of the arena while it holds most bytes, the largest one first."""
    found = arena_intervals(graph)
    change = [0] * (len(graph.nodes) + 2)
    for first, last, _, nbytes, _ in found:
        change[first] += nbytes
        change[last + 1] -= nbytes
    totals = list(accumulate(change))
    fullest = totals.index(max(totals))
    live: dict[Node, int] = {}
    for first, last, _, nbytes, node in found:
        if first <= fullest <= last:
            live[node] = live.get(node, 0) + nbytes
    return sorted(((n, node) for node, n in live.items()), key=lambda pair: -pair[0])[:count]


def planned_bytes(value: Graph | Program) -> int:
    """What a memory limit counts: the arenas of all devices of a planned program, and results."""
    graphs = value.graphs if isinstance(value, Program) else (value,)
    kinds = (kind for result in value.results for kind in leaves(result.type))
    results = sum(kind.nbytes for kind in kinds if isinstance(kind, Type) and kind.is_static)
    return sum(map(peak_bytes, graphs)) + results
