"""trace: the first stage, whose output is what all others begin with."""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph


def trace(graph: Graph, config: Config) -> Graph:
    """The graph as it was traced or read."""
    return graph
