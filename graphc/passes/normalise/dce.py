"""dce: drop nodes that nothing needs. Roots are the results and every WRITE, COMM and IO node.

Control flow keeps the operands, carries and results that something needs; see `prune`.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, unread, without
from graphc.ir.rewrites import permitted
from graphc.passes.reasons import explain


def dce(graph: Graph, config: Config) -> Graph:
    """The graph without dead nodes."""
    dead = [node for node in unread(graph) if permitted(node)]
    for node in dead:
        explain(node.id, f"{node.op.name} has no reader")
    return without(graph, dead)
