"""stage_sums: contractions that overwrite what their epilogues read keep their sums apart.

%0 = %0 - 0.1 * (%1 @ %2)     in the memory of %0: sums are made in scratch memory, and the rest of
                              the kernel reads of %0 what it is about to write
"""

from __future__ import annotations

from graphc.codegen.table.donation import donations, written_in_place
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.liveness import memory
from graphc.passes.reasons import explain


def stage_sums(graph: Graph, config: Config) -> Graph:
    """The graph with contractions staged whose results overwrite what their epilogues read."""
    donated = donations(graph, config.donate, may_stage=True)
    over = [memory(graph.results[k]) for k, param in enumerate(donated) if param >= 0]
    over += written_in_place(graph, may_stage=True)
    kernels = {kernel.id for kernel, _ in over}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.kernel or node.attrs["kind"] != "contract" or node.id not in kernels:
            return None
        made = node.replace(attrs=node.op.coerce({"kind": "staged"}))
        explain(node.id, "sums are kept apart: the result overwrites what the kernel reads")
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)
