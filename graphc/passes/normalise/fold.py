"""fold: compute nodes whose operands are constants, within a budget of bytes and flops.

A node that only makes a small constant larger (broadcast, iota, eye) is left alone: its reader
computes it for free, and memory traffic would grow.  Where all that reads a constant picks or moves
its elements, as slices and transposes of weights do, that is done here whatever it holds: loops and
products take constants alone for weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Alias, Composite, Effect, Structural
from graphc.ir.sizes import is_open
from graphc.ir.types import F32, F64, Type, dtype
from graphc.ir.verify import merge_key
from graphc.ops.reference.interpreter import evaluate_node
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned

_FAST = (F32, F64)  # to multiply in NumPy


def fold(graph: Graph, config: Config) -> Graph:
    """The graph with foldable nodes replaced by constants."""
    spent, moved = 0.0, moved_alone(graph)
    made: dict[object, Node] = {}  # of the same constant, once

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        nonlocal spent
        same = merge_key(node)
        if same in made:
            return made[same]
        moves = node.id in moved
        if not node.inputs or not foldable(node, config, moves):
            return None
        flops = 0.0 if moves else work_of(node)
        if spent + flops > config.fold_flops:
            return None
        try:
            operands = [n.attrs["value"].array for n in node.inputs]
            value = evaluate_node(node, operands)
        except GraphError:
            return None  # an index that is out of range stays a run-time error of its own line
        if config.check_finite and not is_finite([value]) and is_finite(operands):
            return None  # so does what is not finite
        spent += flops
        explain(node.id, f"{node.op.name} of constants")
        assert isinstance(node.type, Type)
        made[same] = r.emit(OPS["const"], (), {"value": literal(value, node.type.dtype)})
        return made[same]

    return rebuild(graph, rewrite)


def moved_alone(graph: Graph) -> set[int]:
    """The nodes that move elements of a value which nothing but such nodes reads: they leave no
    second copy of it."""
    kept = set(graph.results)
    for node in graph.nodes:
        if not moves_elements(node):
            kept.update(node.inputs)
    return {n.id for n in graph.nodes if moves_elements(n) and n.inputs[0] not in kept}


def moves_elements(node: Node) -> bool:
    """Are its elements some of those of its operand, each once?"""
    traits = node.op.traits
    return traits.slices or traits.permutes or traits.reshapes


def work_of(node: Node) -> float:
    """What a node costs here, in operations on elements: matrices of floats are multiplied by a
    library that does more of them at once."""
    assert isinstance(node.type, Type)
    flops = node.op.estimate(node)[0]
    if node.op.traits.matrix_product and node.type.dtype in _FAST:
        flops /= tuned.folded_product
    return max(flops, float(node.type.size))


def is_finite(arrays: Sequence[np.ndarray]) -> bool:
    return all(np.isfinite(a).all() for a in arrays if dtype(a.dtype).kind in "fc")


def foldable(node: Node, config: Config, moves: bool) -> bool:
    """Pure, all operands constant, and the result is neither too large nor mere expansion; one that
    moves elements is no larger than what it is made of."""
    if any(not n.op.traits.constant for n in node.inputs) or node.after or node.regions:
        return False
    structural = isinstance(node.op.lower, Structural | Composite) or node.op.traits.opaque
    if structural or node.op.effect is not Effect.PURE or not isinstance(node.type, Type):
        return False
    if not node.type.is_static or is_open(node.type.dims):
        return False
    nbytes = node.type.nbytes
    if moves or nbytes <= tuned.folded_bytes:
        return True
    most = max(n.type.nbytes for n in node.inputs if isinstance(n.type, Type))
    if isinstance(node.op.lower, Alias):
        return nbytes <= config.fold_bytes
    return nbytes <= min(config.fold_bytes, most)
