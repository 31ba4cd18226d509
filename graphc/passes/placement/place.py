"""place: give every node a device of the list that its constraint allows.

With several devices (`spread`) the greedy placement by simulated execution comes first (`greedy`),
then a search for a better one (`improve`); what was rejected is kept as a reason.

A region op is placed as a whole, unless constraints put nodes of its regions on different devices:
then it has no place of its own, and its regions are placed one by one.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.place import parse_device
from graphc.passes.placement.one_device import placed
from graphc.runtime.devices.registry import check_device


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
