"""partition: one graph per device; feeds and results belong to the first."""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Program
from graphc.ir.place import parse_device


def partition(graph: Graph, config: Config) -> Program:
    """The program of a placed graph."""
    device = parse_device(config.devices[0])
    return Program(graph.name, (graph.replace(device=device),))
