"""Which nodes leave the first device, where rewrites are counted: each move is one of them.

    %2 = tanh(%0)   @cpu:1              the first move is permitted, the second is not
    %3 = exp(%2)    @cpu:1      ->      %3 = exp(%2)    @cpu:0

What cannot be apart moves as one: all that uses a variable or a stack, and an op with its regions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from graphc.ir.graph import Graph, Node, Reads, map_nodes, map_regions
from graphc.ir.op import STATE
from graphc.ir.place import Device, device_of
from graphc.ir.rewrites import permitted
from graphc.passes.devices.region_devices import on_device, stack_origins


def permitted_moves(graph: Graph, first: Device) -> Graph:
    """The placed graph, with what may not move on the first device."""
    staying: set[Node] = set()
    for nodes in _together(graph):
        moving = next((n for n in nodes if any(_leaves(m, first) for m in _within(n))), None)
        if moving is not None and not permitted(moving):
            staying.update(nodes)
    if not staying:
        return graph

    def placed(node: Node, reads: Reads) -> Node:
        made = node.replace(inputs=reads[0], after=reads[1])
        if node not in staying:
            return made
        return map_regions(made, lambda region: on_device(region, first)).replace(place=first)

    return map_nodes(graph, placed)


def _leaves(node: Node, first: Device) -> bool:
    return node.place is not None and device_of(node.place) != first


def _within(node: Node) -> Iterator[Node]:
    """The node and those of its regions."""
    yield node
    for region in node.regions:
        for inner in region.nodes:
            yield from _within(inner)


def _together(graph: Graph) -> list[list[Node]]:
    """The nodes that must be on one device together, in the order of the first of each group."""
    stacks = stack_origins(graph)
    groups: dict[int, list[Node]] = {}
    group_of: dict[Hashable, int] = {}
    for number, node in enumerate(graph.nodes):
        shared = set(_shared(node, stacks))
        group, *others = sorted({group_of[key] for key in shared if key in group_of}) or [number]
        groups.setdefault(group, []).append(node)
        for other in others:
            groups[group] += groups.pop(other)
            shared.update(key for key, at in group_of.items() if at == other)
        group_of.update(dict.fromkeys(shared, group))
    return list(groups.values())


def _shared(node: Node, stacks: dict[Node, Node]) -> Iterator[Hashable]:
    """The variables and the stacks that an op uses, in its regions, too."""
    for each in _within(node):
        if each.op.effect in STATE:
            yield each.attrs["container"], each.attrs["name"]
        yield from (stacks[n] for n in (each, *each.inputs) if n in stacks)
