"""Cost models with numbers of their own, and a program whose transfers can wait."""

from __future__ import annotations

import random

from device_graphs import CPUS, parted

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.parse import parse
from graphc.ir.place import Device
from graphc.ir.types import AnyType
from graphc.passes.placement.cost import CostModel

MICRO = 1e-6
HERE, THERE = "@/job:localhost/device:cpu:0", "@/job:localhost/device:cpu:1"


class Fixed(CostModel):
    """Every node of an op takes so many microseconds, every transfer `transfer`."""

    def __init__(self, transfer: float = 5, devices: int = 2, **given: float) -> None:
        super().__init__(CPUS[:devices])
        self.given = given
        self.seconds_per_transfer = transfer * MICRO

    def compute(self, node: Node, device: Device) -> float:
        return self.given.get(node.op.name, 0.0) * MICRO

    def transfer(self, kind: AnyType, source: Device, target: Device) -> float:
        return self.seconds_per_transfer

    def exact(self, node: Node) -> bool:
        return True


class Drawn(Fixed):
    """Costs that depend on nothing but a seed and the node."""

    def __init__(self, seed: int, devices: int) -> None:
        super().__init__(devices=devices)
        self.seed = seed

    def compute(self, node: Node, device: Device) -> float:
        return random.Random(f"{self.seed} {node.op.name} {node.id}").choice((0, 1, 3, 10)) * MICRO

    def transfer(self, kind: AnyType, source: Device, target: Device) -> float:
        if self.seed % 3 == 0:
            return 0.0  # everything may happen at once
        return (1 + kind.nbytes / 16) * MICRO if hasattr(kind, "nbytes") else MICRO


def eight_transfers() -> Program:
    """G4: eight variables of cpu:1, read one by one by a chain on cpu:0."""
    lines = []
    for k in range(8):
        attrs = f'{{name="v{k}", container="main", type=f32[1024]}}'
        lines.append(f"%{k} = read() {attrs} : f32[1024] {THERE}")
    lines += [f"%{k + 8} = add(%{k + 7 if k else 0}, %{k}) : f32[1024] {HERE}" for k in range(8)]
    graph = parse("graph @g() {\n" + "\n".join(lines) + "\nreturn %15\n}\n")
    assert isinstance(graph, Graph)
    return parted(graph)
