"""expand_pipelines: a function in stages and chunks becomes the nodes of its schedule.

    pipeline(w, x0, x1) { loss }        cpu:0   h0 = F(x0)   h1 = F(x1) ...
                                   ->   cpu:1                y0 = F(h0)   ...

    regions ── cut ──> stages ── cells ──> forward, backward ── assemble ──> nodes

What it makes is plain nodes with constraints of place, so all later stages are as for any program
of several devices.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild


def expand_pipelines(graph: Graph, config: Config) -> Graph:
    """The graph without `pipeline` nodes.

    Raises GraphError, with the user's line, for a function that cannot be cut as it is asked for,
    and for a schedule that nobody could run.
    """

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.in_stages:
            return None
        from graphc.passes.pipelining.expansion import expanded  # which most programs do not need

        return expanded(node, r, config)

    return rebuild(graph, rewrite)
