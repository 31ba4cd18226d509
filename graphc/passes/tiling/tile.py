"""tile: fix the shape of every kernel and make its scratch memory visible as a node.

%9 = workspace() {nbytes=65536} : u8[65536]
%5 = fused(%2, %3, %9) ...
"""

from __future__ import annotations

from graphc.codegen.kernels import spec_of
from graphc.codegen.table.donation import donations, written_in_place
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.liveness import memory, peak_bytes
from graphc.ir.op import OPS
from graphc.ir.place import device_of
from graphc.ir.regions import map_inside
from graphc.passes.memory.plan import plan_block
from graphc.passes.reasons import record
from graphc.passes.tiling.block import block
from graphc.passes.tiling.image_blocks import images
from graphc.passes.tiling.output_transpose import turned


def tile(graph: Graph, config: Config) -> Graph:
    """The graph with long chains in blocks, and scratch memory for every kernel that needs it."""
    config = config.for_device(graph.device)
    graph = map_inside(graph, lambda region: tile(region, config))
    graph = stage(turned(images(block(graph, config), config), config), config)
    return with_scratch(graph, config)


def scratched(graph: Graph, config: Config) -> Graph:
    """The graph, which is tiled, with scratch memory for these threads."""
    config = config.for_device(graph.device)
    graph = map_inside(graph, lambda region: scratched(region, config))
    return with_scratch(graph, config)


def stage(graph: Graph, config: Config) -> Graph:
    """The graph with contractions staged whose results overwrite what their epilogues read."""
    donated = donations(graph, config.donate, may_stage=True)
    over = [memory(graph.results[k]) for k, param in enumerate(donated) if param >= 0]
    over += written_in_place(graph, may_stage=True)
    kernels = {kernel.id for kernel, _ in over}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.name != "fused" or node.attrs["kind"] != "contract" or node.id not in kernels:
            return None
        made = node.replace(attrs=node.op.coerce({"kind": "staged"}))
        record(node.id, "sums are kept apart: the result overwrites what the kernel reads")
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)


def with_scratch(graph: Graph, config: Config) -> Graph:
    """The graph with a workspace operand on every node that needs scratch memory."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.name not in ("fused", "blocked") or has_workspace(node):
            return None
        if node.op.name == "fused":
            nbytes = spec_of(node, config).workspace
        else:
            node = map_regions(node, lambda region: with_scratch(region, config))
            nbytes = peak_bytes(plan_block(node, device_of(node.place)))
        if not nbytes:
            return None
        scratch = r.emit(OPS["workspace"], (), {"nbytes": nbytes}, place=node.place)
        made = with_workspace(node, scratch)
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)


def has_workspace(node: Node) -> bool:
    return bool(node.inputs) and node.inputs[-1].op.name == "workspace"


def with_workspace(node: Node, scratch: Node) -> Node:
    """The kernel with scratch memory as its last operand."""
    region = node.regions[0]
    op = OPS["param"]
    param = Node(region.next_id, op, (), op.coerce({"name": "workspace"}), scratch.type)
    grown = region.replace(params=(*region.params, param), next_id=region.next_id + 1)
    attrs = node.attrs
    if node.op.name == "blocked":
        still = (0,) * len(attrs["counts"])
        attrs = node.op.coerce({**attrs, "steps": (*attrs["steps"], *still)})
    return node.replace(inputs=(*node.inputs, scratch), attrs=attrs, regions=(grown,))
