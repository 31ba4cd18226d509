"""choose_attention: attention and its gradient as such, where only GPUs compute, in any order."""

from __future__ import annotations

from typing import Any

from graphc.codegen.gpu.arch import Chip, chip_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.op import OPS
from graphc.ir.place import parse_device
from graphc.ir.regions import map_inside
from graphc.ir.types import Type
from graphc.ops.nn.attention_gradient import fitting
from graphc.ops.nn.attention_scores import default_scale
from graphc.ops.record.value import Trace, tracing
from graphc.passes.normalise.expand import gather
from graphc.passes.normalise.rules import Rules, by_op, on_gpus_alone

# Whether gradients have kernels of their own, too: those have run in the simulator alone.
GRADIENTS = False


def choose_attention(graph: Graph, config: Config) -> Graph:
    """The graph with attention as such, where GPUs have a kernel for it.

    Elsewhere it is written out as products and a softmax.
    """
    if config.strict or config.check_finite or not on_gpus_alone(config):
        return graph
    from graphc.codegen.gpu.attention.plan import has_gradient, has_kernel  # GPUs' own

    def fused_attention(node: Node, r: Rewriter) -> Node | None:
        kinds = known(node)
        if kinds is None or not has_kernel(kinds, chip_for(config)):
            return None
        return r.emit(OPS["fused_attention"], node.inputs, scaled(node, kinds[0]))

    def fused_backward(node: Node, r: Rewriter) -> Node | None:
        kinds = known(node)
        if kinds is None or not has_gradient(kinds[2:], chip_for(config)):
            return None
        made = r.emit(OPS["fused_attention_backward"], node.inputs, scaled(node, kinds[2]))
        return shared_out(made, node, r)

    inner = map_inside(graph, lambda region: choose_attention(region, config))
    rules: Rules = {"attention": (fused_attention,)}
    if GRADIENTS:
        rules = {**rules, "attention_backward": (fused_backward,)}
    return by_op(inner, rules)


def chip_for(config: Config) -> Chip:
    """The chip of the first device."""
    return chip_of(config.for_device(parse_device(config.devices[0])).target)


def known(node: Node) -> list[Type] | None:
    """The types of the operands; None where sizes are open or the node waits for others."""
    kinds = [n.type for n in node.inputs if isinstance(n.type, Type) and n.type.is_static]
    return None if node.after or len(kinds) < len(node.inputs) else kinds


def scaled(node: Node, q: Type) -> dict[str, Any]:
    scale = node.attrs["scale"]
    scale = default_scale(q.dims[-1]) if scale is None else scale
    return {"causal": node.attrs["causal"], "scale": scale}


def shared_out(made: Node, node: Node, r: Rewriter) -> Node:
    """The cotangents of a node as it has them: those of heads that share an operand are added."""
    if made.type is node.type:
        return made
    trace = Trace(r)
    with tracing(trace):
        items = [r.emit(OPS["item"], (made,), {"index": k}) for k in range(3)]
        found = [
            fitting(trace.wrap(x), trace.wrap(n))
            for x, n in zip(items, node.inputs[2:5], strict=True)
        ]
    return gather(tuple(found), trace)
