"""choose_pooling: better ways to pool than element by element, as visible nodes.

tiled_pool      windows side by side, planes too narrow for a loop over one row
tiled_choice    the gradient of the largest or smallest of such windows, without stored places
"""

from __future__ import annotations

import math

from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.op import OPS
from graphc.ir.sizes import hint_of
from graphc.ir.types import Type
from graphc.ops.record.families import FLOATS
from graphc.passes.normalise.rules import Rule, Rules, by_op, on_gpus_alone
from graphc.passes.tuning import tuned


def choose_pooling(graph: Graph, config: Config) -> Graph:
    """The graph with pools of windows side by side as such.

    Threads of a GPU are many: where only those compute, pools run best element by element.
    """
    pool: tuple[Rule, ...] = (tiled_extreme,) if config.strict else (tiled_pool,)
    rules: Rules = {"pool": pool, "spread": (tiled_choice,)}
    return by_op(graph, {"spread": (tiled_choice,)} if on_gpus_alone(config) else rules)


def tiled_extreme(node: Node, r: Rewriter) -> Node | None:
    """The largest or smallest of windows that lie side by side, in whatever order."""
    return None if node.attrs["kind"] == "sum" else tiled_pool(node, r)


def tiled_pool(node: Node, r: Rewriter) -> Node | None:
    """A pool over windows that lie side by side."""
    if not suits(node) or node.after:
        return None
    attrs = {k: node.attrs[k] for k in ("kind", "window")}
    return r.emit(OPS["tile_pool"], node.inputs, attrs)


def tiled_choice(node: Node, r: Rewriter) -> Node | None:
    """A spread to the places that such windows chose."""
    index, numbers = node.inputs
    choice = index.inputs[0] if index.op.traits.reshapes else index
    if (
        choice.op.name != "pool_choice"
        or not suits(choice)
        or not is_tiled(choice)
        or node.after
        or choice.after
    ):
        return None
    assert isinstance(choice.type, Type)
    assert isinstance(node.type, Type)
    if node.type.dtype is not tensor_type(choice.inputs[0]).dtype:
        return None
    given = r.emit(OPS["reshape"], (numbers,), {"dims": choice.type.dims})
    attrs = {k: choice.attrs[k] for k in ("kind", "window")}
    made = r.emit(OPS["tile_choose"], (choice.inputs[0], given), attrs)
    return r.emit(OPS["reshape"], (made,), {"dims": node.type.dims})


def is_tiled(choice: Node) -> bool:
    """Does every element lie in a window?"""
    extents = tensor_type(choice.inputs[0]).dims[2:]
    return all(e % size == 0 for e, size in zip(extents, choice.attrs["window"], strict=True))


def suits(node: Node) -> bool:
    """Do the windows of a pool or choice lie side by side in narrow planes of x[N, C, H, W]?"""
    x, window = node.inputs[0].type, node.attrs["window"]
    if not isinstance(x, Type) or not x.is_static or x.rank != 4 or len(window) != 2:
        return False
    apart = window == node.attrs["stride"] and max(node.attrs["dilation"]) == 1
    if not (apart and x.dtype.name in FLOATS and math.prod(window) > 1):
        return False
    narrow = hint_of(x.dims[3]) // window[1] <= tuned.pool_row
    return narrow and math.prod(window) <= tuned.pool_window and x.size > 0
