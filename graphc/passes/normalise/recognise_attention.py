"""recognise_attention: attention that is written out, as such where GPUs have a kernel for it.

    %8 = div(%6, %7)         e = exp(x - max(x)), over its sum
    %9 = matmul(%8, %2)                                 ->      %9 = fused_attention(%0, %10, %2)

x are products of queries with keys, times a number, with something added.  Nothing else reads what
lies between: a backward pass that does has it from memory.
"""

from __future__ import annotations

from typing import NamedTuple

from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.errors import TypeRuleError
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.op import OPS
from graphc.ir.regions import map_inside
from graphc.ir.types import Type
from graphc.passes.normalise.choose_attention import chip_for
from graphc.passes.normalise.rules import by_op, on_gpus_alone


def recognise_attention(graph: Graph, config: Config) -> Graph:
    """The graph with softmax(q k^T factor + bias) v as one node, where only GPUs compute."""
    if config.strict or config.check_finite or not on_gpus_alone(config):
        return graph
    from graphc.codegen.gpu.attention.plan import has_kernel  # GPUs' own

    readers: dict[int, int] = {}
    for node in (*graph.results, *(n for m in graph.nodes for n in (*m.inputs, *m.after))):
        readers[node.id] = readers.get(node.id, 0) + 1

    def fused_attention(node: Node, r: Rewriter) -> Node | None:
        scores = softmax_of(node.inputs[0], readers)
        found = scores and scores_of(scores, readers)
        if not found or node.after:
            return None
        q, turned, v, bias = found.q, found.keys, node.inputs[1], found.bias
        kinds = [tensor_type(n) for n in (q, turned, v, *bias)]
        if not all(kind.is_static and kind.dtype is kinds[0].dtype for kind in kinds):
            return None
        rank = kinds[1].rank
        perm = (*range(rank - 2), rank - 1, rank - 2)
        turn, attend = OPS["transpose"], OPS["fused_attention"]
        kinds[1] = turn.infer(kinds[1], perm=perm)  # type: ignore[assignment]
        attrs = attend.coerce({"causal": False, "scale": found.scale})
        try:
            made = attend.infer(*kinds, **attrs.values_dict)
        except TypeRuleError:
            return None
        if made is not node.type or not has_kernel(kinds, chip_for(config)):
            return None
        k = r.emit(turn, (turned,), {"perm": perm})
        return r.emit(attend, (q, k, v, *bias), attrs)

    inner = map_inside(graph, lambda region: recognise_attention(region, config))
    return by_op(inner, {"matmul": (fused_attention,)})


class Scores(NamedTuple):
    """Queries and keys whose products are scores, with `keys` as they are multiplied."""

    q: Node
    keys: Node
    scale: float
    bias: tuple[Node, ...]


def softmax_of(weights: Node, readers: dict[int, int]) -> Node | None:
    """What a node is the softmax of, along its last axis; None if it is no softmax, or something
    else reads what it is made of."""
    if not is_op(weights, "div") or readers[weights.id] > 1:
        return None
    powers, total = weights.inputs
    if not is_op(powers, "exp") or not folds_rows(total, "sum", powers) or readers[powers.id] > 2:
        return None
    less = powers.inputs[0]
    if not is_op(less, "sub") or readers[less.id] > 1 or readers[total.id] > 1:
        return None
    scores, top = less.inputs
    if not folds_rows(top, "max", scores) or readers[top.id] > 1 or readers[scores.id] > 2:
        return None
    return scores


def folds_rows(node: Node, name: str, source: Node) -> bool:
    """Is a node the fold of another along its last axis, which is kept?"""
    if not is_op(node, name) or node.inputs != (source,):
        return False
    return node.attrs["axes"] == (tensor_type(source).rank - 1,) and bool(node.attrs["keepdims"])


def scores_of(node: Node, readers: dict[int, int]) -> Scores | None:
    """What scores are made of; None for any that are not made so."""
    kind, scale = node.type, 1.0
    bias: tuple[Node, ...] = ()
    if is_op(node, "add"):
        first, second = node.inputs
        node, other = (first, second) if first.type is kind else (second, first)
        bias = (other,)
        if readers[node.id] > 1:
            return None
    if is_op(node, "mul", "div"):
        first, second = node.inputs
        factor, other = number(second), first
        if factor is None and is_op(node, "mul"):
            factor, other = number(first), second
        if not factor or readers[other.id] > 1:
            return None
        scale, node = factor if is_op(node, "mul") else 1 / factor, other
    if not is_op(node, "matmul") or node.type is not kind or not isinstance(kind, Type):
        return None
    q, keys = node.inputs
    return Scores(q, keys, scale, bias) if kind.rank >= 2 else None


def is_op(node: Node, *names: str) -> bool:
    return node.op in [OPS[name] for name in names] and not node.after


def number(node: Node) -> float | None:
    """The value of a constant of one element."""
    if not node.op.traits.constant or tensor_type(node).size != 1:
        return None
    return float(node.attrs["value"].array.reshape(()))
