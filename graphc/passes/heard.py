"""heard: the last message that each node cannot do without.

A device waits for messages in the order of its graph.  Two nodes that need the same last message
may run as one kernel; a kernel of nodes that do not would keep the one waiting for what only the
other needs, as a product would for a value of another device that is added to it afterwards.
"""

from __future__ import annotations

from graphc.ir.graph import Graph
from graphc.ir.regions import talks


def heard(graph: Graph) -> list[int]:
    """By node id: the position of the last message that the node needs, or -1."""
    last = [-1] * graph.next_id
    if not any(map(talks, graph.nodes)):
        return last
    for position, node in enumerate(graph.nodes):
        waits = node.op.name != "send" and talks(node)
        before = [last[n.id] for n in (*node.inputs, *node.after)]
        last[node.id] = position if waits else max(before, default=-1)
    return last
