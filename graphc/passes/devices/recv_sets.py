"""recv_sets: the messages that each node cannot do without.

A device runs what is ready, so a message that is late holds only what needs it.  Two nodes that
need the same messages may run as one kernel; a kernel of nodes that do not would keep the one
waiting for what only the other needs, as a product would for a value of another device that is
added to it afterwards.  For the same reason `plan` uses the memory of what needed a message again
for what needs it, too.
"""

from __future__ import annotations

from graphc.ir.graph import Graph
from graphc.ir.regions import talks


def recv_sets(graph: Graph) -> list[int]:
    """By node id: a bit for each message that the node needs.

    The part of an op that spans devices waits for all that comes before it (see
    `graphc.codegen.table.segments`), and what reads it for it.  A workspace is part of its reader.
    """
    found = [0] * graph.next_id
    if not any(map(talks, graph.nodes)):
        return found
    messages = 0
    for node in graph.nodes:
        needs = 0
        for source in (*node.inputs, *node.after):
            needs |= found[source.id]
        if not node.op.traits.send and talks(node):
            needs |= 1 << messages if node.op.traits.recv else (2 << messages) - 1
            messages += 1
        found[node.id] = needs
        for source in node.inputs:
            if source.op.traits.workspace:
                found[source.id] = needs
    return found
