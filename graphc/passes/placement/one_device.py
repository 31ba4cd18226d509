"""Placement on the only device there is, and the error of a node that none may run."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Reads, map_nodes, map_regions
from graphc.ir.place import Constraint, Device, Spec
from graphc.passes.reasons import explain
from graphc.runtime.devices.registry import meant_type


def placed(graph: Graph, device: Device, soft: bool = False) -> Graph:
    """The graph and its regions on one device."""
    return map_nodes(graph, lambda node, reads: _placed(node, reads, device, soft))


def _placed(node: Node, reads: Reads, device: Device, soft: bool) -> Node:
    constraint = node.place
    spec = constraint.spec if isinstance(constraint, Constraint) else None
    if spec is not None and not spec.matches(device):
        if not soft:
            raise unavailable(node, spec, (device,))
        explain(node.id, f"soft placement: on {device.short}, as no device matches {spec}")
    inputs, after = reads
    made = map_regions(node, lambda region: placed(region, device, soft))
    return made.replace(inputs=inputs, after=after, place=device)


def unavailable(node: Node, spec: Spec, devices: Iterable[Device]) -> GraphError:
    """The error for a constraint that no device of the list satisfies."""
    devices = tuple(devices)
    listed = ", ".join(map(str, devices))
    hint = "add such a device to devices=, or let soft_placement=True choose another"
    if spec.type is not None and all(spec.type != device.type for device in devices):
        hint = meant_type(spec.type) or hint
    return GraphError(
        f"%{node.id} must run on {spec}, but the device list holds only {listed}",
        details=node.describe(),
        location=node.loc,
        hint=hint,
    )
