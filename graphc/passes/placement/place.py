"""place: give every node a device of the list that its constraint allows.

With several devices (`spread`) the greedy placement by simulated execution comes first (`greedy`),
then a search for a better one (`improve`); what was rejected is kept as a reason.

A region op is placed as a whole, unless constraints put nodes of its regions on different devices:
then it has no place of its own, and its regions are placed one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Reads, map_nodes, map_regions
from graphc.ir.place import Constraint, Device, Spec, parse_device
from graphc.passes.reasons import record as explain
from graphc.runtime.devices.registry import check_device, meant_type


def place(graph: Graph, config: Config) -> Graph:
    """The graph with a Device as the place of every node. Raises GraphError if none is allowed."""
    devices = tuple(parse_device(d) for d in config.devices)
    for number, device in enumerate(devices):
        check_device(device.type, device.index)
        if device in devices[:number]:
            raise GraphError(f"{device} is twice in the device list")
    if len(devices) == 1:
        return placed(graph, devices[0], config.soft_placement)
    from graphc.passes.placement.spread import spread  # only programs of several devices pay for it

    return spread(graph, devices, config)


# ------------------------------------------------------------------------------------ one device


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
