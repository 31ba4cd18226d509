"""schedule: the issue order of every device. With one device it is the order of the nodes."""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph


def schedule(graph: Graph, config: Config) -> Graph:
    """The graph in issue order."""
    return graph
