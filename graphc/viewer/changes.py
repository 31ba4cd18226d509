"""What a stage did to the nodes of a graph, beyond new and changed rows.

merged     a node that is gone, and the one that its readers read instead
taken      a node that is gone, and the kernel that computes it now
moved      nodes that are issued in another order: the least number that explains it
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from graphc.ir.graph import Graph, Node, Program
from graphc.viewer.rows import graphs_of

Nodes = dict[int, Node]


def changes(before: Graph | Program, after: Graph | Program) -> list[dict[str, Any]]:
    """For each device the pairs and lists of ids; nothing for one that is as it was."""
    old, new = graphs_of(before), graphs_of(after)
    if len(old) != len(new):
        old = old[:1] * len(new)
    return [_changes(a, b, len(new) == 1) if a is not b else {} for a, b in zip(old, new)]


def _changes(before: Graph, after: Graph, alone: bool) -> dict[str, Any]:
    old = {node.id: node for node in before.nodes}
    new = {node.id: node for node in (*after.params, *after.nodes)}
    gone = old.keys() - new.keys() if alone or before.device is not None else set[int]()
    taken = dict(_taken(old, new, gone)) if gone else {}
    merged = dict(_merged(old, new, gone - taken.keys())) if gone else {}
    moved = _moved([n.id for n in before.nodes], [n.id for n in after.nodes])
    found = {"merged": sorted(merged.items()), "taken": sorted(taken.items()), "moved": moved}
    return {name: pairs for name, pairs in found.items() if pairs}


def _merged(old: Nodes, new: Nodes, gone: set[int]) -> Iterator[tuple[int, int]]:
    """What was read, and what stands in its place now."""
    for id, node in new.items():
        before = old.get(id)
        if before is None or before is node or len(before.inputs) != len(node.inputs):
            continue
        for was, now in zip(before.inputs, node.inputs):
            if was.id in gone and now.id in new:
                yield was.id, now.id


def _taken(old: Nodes, new: Nodes, gone: set[int]) -> Iterator[tuple[int, int]]:
    """Walk a kernel and the nodes it was made of side by side, from its results upwards."""
    for kernel, pairs in _roots(old, new):
        seen = set[int]()
        while pairs:
            inside, outside = pairs.pop()
            if outside.id in seen or inside.op.traits.parameter or inside.op is not outside.op:
                continue
            seen.add(outside.id)
            if outside.id in gone:
                yield outside.id, kernel.id
            pairs += zip(inside.inputs, outside.inputs)


def _roots(old: Nodes, new: Nodes) -> Iterator[tuple[Node, list[tuple[Node, Node]]]]:
    """Every new kernel, and its results beside the nodes that they were."""
    found: dict[Node, list[tuple[Node, Node]]] = {}
    for id, node in new.items():
        before = old.get(id)
        if before is None or before is node:
            continue
        if node.op.traits.kernel and not before.op.traits.kernel:
            found[node] = [(node.regions[0].results[0], before)]
        elif node.op.traits.item and node.inputs[0].op.traits.kernel:
            kernel, index = node.inputs[0], node.attrs["index"]
            found.setdefault(kernel, []).append((kernel.regions[0].results[index], before))
    yield from found.items()


def _moved(before: list[int], after: list[int]) -> list[int]:
    """The ids outside of the longest run that kept its order."""
    positions = {id: position for position, id in enumerate(before)}
    common = [id for id in after if id in positions]
    order = [positions[id] for id in common]
    if order == sorted(order):
        return []
    tops: list[int] = []  # the least last position of an increasing run of each length
    ends: list[int] = []  # and where in `order` it ends
    previous = [-1] * len(order)
    for k, position in enumerate(order):
        length = bisect_left(tops, position)
        previous[k] = ends[length - 1] if length else -1
        if length == len(tops):
            tops.append(position)
            ends.append(k)
        else:
            tops[length], ends[length] = position, k
    kept, k = set[int](), ends[-1]
    while k >= 0:
        kept.add(k)
        k = previous[k]
    return [id for k, id in enumerate(common) if k not in kept]
