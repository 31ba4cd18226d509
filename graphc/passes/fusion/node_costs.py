"""What each node costs as a part of the kernel that it will be in.

    matmul 40 us   add 4 us   tanh 6 us        one by one: every value goes through memory
    [ 40/50 ][ 4/50 ][ 6/50 ]  of 42 us        one kernel of 42 us, shared out

So placement, which takes kernels as a whole, and scheduling, which orders nodes, speak of one time.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import Device, device_of
from graphc.ir.types import AnyType
from graphc.passes.fusion.can_fuse import Group, Groups
from graphc.passes.placement.cost import CostModel, Work, nbytes_of


class Shares:
    """The costs of a program whose nodes become kernels as `fuse` would make them."""

    def __init__(self, program: Program, cost: CostModel) -> None:
        self.cost = cost
        self.devices = cost.devices
        self.factor: dict[tuple[object, ...], float] = {}
        for graph in program.graphs:
            device = device_of(graph.device)
            assert device is not None
            self.add(graph, device)

    def compute(self, node: Node, device: Device) -> float:
        return self.cost.compute(node, device) * self.factor.get(_key(node), 1.0)

    def transfer(self, kind: AnyType, source: Device, target: Device) -> float:
        return self.cost.transfer(kind, source, target)

    def exact(self, node: Node) -> bool:
        return self.cost.exact(node)

    def add(self, graph: Graph, device: Device) -> None:
        groups = Groups(graph, merge=True)
        read: dict[Group | None, set[Node]] = {None: set(graph.results)}  # what others read
        found = {node: groups.of(node) for node in graph.nodes}
        for node in graph.nodes:
            for source in node.inputs:
                if found.get(source) is not found[node]:
                    read.setdefault(found.get(source), set()).add(source)
        for group in dict.fromkeys(g for g in found.values() if g is not None):
            if len(group.nodes) > 1:
                stored = read.get(group, set()) | read[None].intersection(group.nodes)
                self.share(group.nodes, stored, device)

    def share(self, nodes: Sequence[Node], stored: set[Node], device: Device) -> None:
        alone = sum(self.cost.compute(node, device) for node in nodes)
        if not alone:
            return
        together = self.cost.together(nodes, device)
        if together is None:
            works = [self.cost.work(node) for node in nodes]
            inside = set(nodes)
            operands = {n for node in nodes for n in node.inputs if n not in inside}
            nbytes = sum(nbytes_of(n.type) for n in operands | stored)
            calls = max(work.calls for work in works)
            work = Work(sum(work.flops for work in works), nbytes, calls)
            together = self.cost.seconds(work, device)
        self.factor |= dict.fromkeys(map(_key, nodes), together / alone)


def _key(node: Node) -> tuple[object, ...]:
    """What stays of a node when its operands are rewritten; nodes of regions have ids of theirs."""
    return node.id, node.op, node.attrs, node.type
