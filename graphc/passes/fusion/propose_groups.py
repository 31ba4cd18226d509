"""propose_groups: which nodes would fuse, so that placement and scheduling cost what really runs.

With one device there is nothing to decide, and `fuse` finds the groups by itself.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.passes.fusion.can_fuse import Groups
from graphc.passes.reasons import explain


def propose_groups(graph: Graph, config: Config) -> Graph:
    """The same graph; each group of several nodes is noted as a reason, if there is a choice."""
    if len(config.devices) == 1:
        return graph
    groups = Groups(graph, merge=config.merges)
    for group in groups.all:
        if group.merged is None and len(group.nodes) > 1:
            ids = ", ".join(f"%{n.id}" for n in group.nodes[:8])
            explain(group.nodes[0].id, f"{group.kind} group of {len(group.nodes)}: {ids}")
    return graph
