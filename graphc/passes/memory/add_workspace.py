"""add_workspace: scratch memory of kernels becomes a node whose memory is planned as any.

%9 = workspace() {nbytes=65536} : u8[65536]
%5 = fused(%2, %3, %9) ...
"""

from __future__ import annotations

from graphc.codegen.kernels import spec_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.liveness import peak_bytes
from graphc.ir.op import OPS
from graphc.ir.place import device_of
from graphc.ir.regions import has_workspace, is_kernel
from graphc.passes.memory.plan import plan_block


def add_workspace(graph: Graph, config: Config) -> Graph:
    """The graph with a workspace operand on every kernel that needs scratch memory."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not is_kernel(node) or has_workspace(node):
            return None
        if node.op.traits.kernel:
            nbytes = spec_of(node, config).workspace
        else:
            node = map_regions(node, lambda region: add_workspace(region, config))
            nbytes = peak_bytes(plan_block(node, device_of(node.place)))
        if not nbytes:
            return None
        room = r.emit(OPS["workspace"], (), {"nbytes": nbytes}, place=node.place)
        made = with_workspace(node, room)
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)


def with_workspace(node: Node, room: Node) -> Node:
    """The kernel with scratch memory as its last operand."""
    region = node.regions[0]
    op = OPS["param"]
    param = Node(region.next_id, op, (), op.coerce({"name": "workspace"}), room.type)
    grown = region.replace(params=(*region.params, param), next_id=region.next_id + 1)
    attrs = node.attrs
    if node.op.traits.blocks:
        still = (0,) * len(attrs["counts"])
        attrs = node.op.coerce({**attrs, "steps": (*attrs["steps"], *still)})
    return node.replace(inputs=(*node.inputs, room), attrs=attrs, regions=(grown,))
