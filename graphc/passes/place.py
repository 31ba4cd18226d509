"""place: give every node a device of the list that its constraint allows."""

from __future__ import annotations

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, map_regions
from graphc.ir.place import Constraint, Device, parse_device


def place(graph: Graph, config: Config) -> Graph:
    """The graph with a Device as the place of every node. Raises GraphError if none is allowed."""
    devices = tuple(parse_device(d) for d in config.devices)
    if len(devices) != 1:
        raise GraphError(
            "placement over several devices is not available in this version",
            hint='give one device, for example devices=["cpu:0"]',
        )
    device = devices[0]
    if device.type != "cpu":
        raise GraphError(f"there is no device {device}", hint="available: cpu:0")
    return placed(graph, device)


def placed(graph: Graph, device: Device) -> Graph:
    """The graph and its regions on one device."""
    mapped: dict[Node, Node] = {}
    for node in (*graph.params, *graph.nodes):
        mapped[node] = _placed(node, device, mapped)
    return graph.replace(
        params=tuple(mapped[p] for p in graph.params),
        nodes=[mapped[n] for n in graph.nodes],
        results=tuple(mapped[r] for r in graph.results),
    )


def _placed(node: Node, device: Device, mapped: dict[Node, Node]) -> Node:
    constraint = node.place
    spec = constraint.spec if isinstance(constraint, Constraint) else None
    if spec is not None and not spec.matches(device):
        message = f"%{node.id} must run on {spec}, but the device list holds only {device}"
        raise GraphError(message, details=node.describe(), location=node.loc)
    return map_regions(node, lambda region: placed(region, device)).replace(
        inputs=tuple(mapped[n] for n in node.inputs),
        after=tuple(mapped[n] for n in node.after),
        place=device,
    )
