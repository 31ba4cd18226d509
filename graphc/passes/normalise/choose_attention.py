"""choose_attention: attention as one kernel where only GPUs compute, in whatever order."""

from __future__ import annotations

from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.attention_plan import has_kernel
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.op import OPS
from graphc.ir.place import parse_device
from graphc.ir.regions import map_inside
from graphc.ir.types import Type
from graphc.ops.nn.attention_scores import default_scale
from graphc.passes.normalise.rules import by_op, on_gpus_alone


def choose_attention(graph: Graph, config: Config) -> Graph:
    """The graph with attention as such, where GPUs have a kernel for it.

    Elsewhere it is written out as products and a softmax.
    """
    if config.strict or config.check_finite or not on_gpus_alone(config):
        return graph

    def fused_attention(node: Node, r: Rewriter) -> Node | None:
        kinds = [n.type for n in node.inputs if isinstance(n.type, Type) and n.type.is_static]
        if node.after or len(kinds) < len(node.inputs):
            return None
        own = config.for_device(parse_device(config.devices[0]))
        if not has_kernel(kinds, chip_of(own.target)):
            return None
        scale = node.attrs["scale"]
        scale = default_scale(kinds[0].dims[-1]) if scale is None else scale
        attrs = {"causal": node.attrs["causal"], "scale": scale}
        return r.emit(OPS["fused_attention"], node.inputs, attrs)

    inner = map_inside(graph, lambda region: choose_attention(region, config))
    return by_op(inner, {"attention": (fused_attention,)})
