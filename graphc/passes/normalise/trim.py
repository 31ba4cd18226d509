"""trim: a convolution over a padded image computes only the part that is read of it.

    slice(conv(pad(x), w))  ->  conv(pad(x) with less around, w)

The gradient of a padded convolution is a convolution over the padded image, of which padding takes
the inside back.  What lay around it costs most on small images: 10x10 results for 8x8.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.readers import live_readers
from graphc.ir.types import Type
from graphc.passes.reasons import explain


def trim(graph: Graph, config: Config) -> Graph:
    """The graph with smaller convolutions where nothing else reads what is cut off."""
    if not any(map(_cuts_convolution, graph.nodes)):
        return graph
    readers = live_readers(graph)
    alone = {n.id for n in graph.nodes if n.op.traits.convolution and readers[n.id] == 1}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not _cuts_convolution(node) or node.inputs[0].id not in alone:
            return None
        made = _smaller(node, r)
        if made is not None:
            explain(node.id, "what is cut off is not computed")
        return made

    return rebuild(graph, rewrite)


def _cuts_convolution(node: Node) -> bool:
    """Whether a node is a slice of neighbours, over space only, of a convolution of a pad."""
    if not node.op.traits.slices or node.after or not node.inputs[0].op.traits.convolution:
        return False
    conv = node.inputs[0]
    if conv.after or not conv.inputs[0].op.traits.pads or conv.inputs[0].after:
        return False
    before, after = conv.type, node.type
    assert isinstance(before, Type)
    assert isinstance(after, Type)
    if not before.is_static or before.shape[:2] != after.shape[:2] or 0 in after.dims:
        return False
    return set(node.attrs["steps"]) == {1}


def _smaller(node: Node, r: Rewriter) -> Node | None:
    """The convolution with less padding; None where the slice reaches into the image."""
    conv = node.inputs[0]
    (pad, weights), attrs = conv.inputs, dict(conv.inputs[0].attrs)
    assert isinstance(weights.type, Type)
    assert isinstance(pad.type, Type)
    low, high = list(attrs["low"]), list(attrs["high"])
    for k, (stride, gap) in enumerate(zip(conv.attrs["stride"], conv.attrs["dilation"]), 2):
        first, last = node.attrs["starts"][k], node.attrs["stops"][k] - 1
        end = last * stride + (weights.type.dims[k] - 1) * gap + 1
        low[k] -= first * stride
        high[k] -= pad.type.dims[k] - end
    if min(*low, *high) < 0:
        return None
    attrs |= {"low": tuple(low), "high": tuple(high)}
    return r.emit(conv.op, (r.emit(pad.op, pad.inputs, attrs), weights), conv.attrs)
