"""sink: constants move into the regions of control flow that read them.

There they are numbers of the kernels, take part in other rewrites, and are packed ahead of time.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.regions import choosers, first_invariant, is_control_flow
from graphc.passes.reasons import explain


def sink(graph: Graph, config: Config) -> Graph:
    """The graph with constants inside the branches and loops that read them, however deep."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = with_own_constants(node) if (node.op.traits.branch or node.op.traits.loop) else node
        if is_control_flow(made):
            made = map_regions(made, lambda region: sink(region, config))
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite) if any(map(is_control_flow, graph.nodes)) else graph


def with_own_constants(node: Node) -> Node:
    """A branch or loop whose regions hold the constants among its invariant operands."""
    invariants = range(first_invariant(node), len(node.inputs))
    gone = [k for k in invariants if node.inputs[k].op.traits.constant]
    if not gone:
        return node
    explain(node.id, f"holds {len(gone)} constant{'s' * (len(gone) > 1)} itself")
    constants = {k - choosers(node): node.inputs[k] for k in gone}
    return node.replace(
        inputs=tuple(n for k, n in enumerate(node.inputs) if k not in gone),
        regions=tuple(with_constants(region, constants) for region in node.regions),
    )


def with_constants(region: Graph, constants: dict[int, Node]) -> Graph:
    """The region with constants in place of the parameters of these numbers."""
    r = Rewriter(region)
    for k, constant in constants.items():
        made = constant.replace(id=r.next_id, after=())
        r.next_id += 1
        r.nodes.append(made)
        r.mapped[region.params[k].id] = made
    for node in region.nodes:
        copied = r.copy(node)
        r.nodes.append(copied)
        r.mapped[node.id] = copied
    params = tuple(p for k, p in enumerate(region.params) if k not in constants)
    return r.finish().replace(params=params)
