"""winograd: 3x3 convolutions as transforms around a batched matrix product, where that is faster.

    conv(pad(x), w)  ->  winograd_output(einsum(winograd_weight(w), winograd_input(x)))

The transform of constant weights is a constant.  Sums come out in another order and through
intermediate values several times as large, so a program without fast_math keeps the plain one.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.graph import Node, Rewriter
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.types import F32, Type
from graphc.ops.interpret import evaluate_node
from graphc.ops.winograd_tiles import Strips

LEAST_CHANNELS = 16
LEAST_TILES = 16


def winograd(node: Node, r: Rewriter) -> Node | None:
    """A convolution by Winograd's method, or None where the plain one is right or faster."""
    x, w = node.inputs
    if not suits(node):
        return None
    x, low = without_padding(x)
    assert isinstance(node.type, Type)
    images, outputs, *out = node.type.dims
    groups = node.attrs["groups"]
    tile = tile_of(node)
    points, tiles = (tile + 2) ** 2, Strips(tile, images, *out).tiles
    inputs = w.type.dims[1]  # type: ignore[union-attr]
    near = r.emit(OPS["winograd_input"], (x,), {"tile": tile, "low": low, "out": out})
    far = weights(w, tile, r)
    equation = "xkc,cxt->kxt"
    if groups > 1:
        equation = "xgkc,gcxt->gkxt"
        near = reshaped(near, (groups, inputs, points, tiles), r)
        far = reshaped(far, (points, groups, outputs // groups, inputs), r)
    sums = r.emit(OPS["einsum"], (far, near), {"equation": equation})
    if groups > 1:
        sums = reshaped(sums, (outputs, points, tiles), r)
    attrs = {"tile": tile, "images": images, "out": out}
    return r.emit(OPS["winograd_output"], (sums,), attrs)


def suits(node: Node) -> bool:
    """3x3 windows in steps of one, enough channels and enough tiles."""
    x, w = (n.type for n in node.inputs)
    if not isinstance(x, Type) or not isinstance(w, Type) or not isinstance(node.type, Type):
        return False
    if x.dtype is not F32 or w.shape[2:] != (3, 3) or node.after:
        return False
    if not x.is_static or not w.is_static or not node.type.size:
        return False
    if any(step != 1 for step in (*node.attrs["stride"], *node.attrs["dilation"])):
        return False
    channels = min(w.dims[1], w.dims[0] // node.attrs["groups"])
    tiles = Strips(4, node.type.dims[0], *node.type.dims[2:]).tiles
    return channels >= LEAST_CHANNELS and tiles >= LEAST_TILES


def tile_of(node: Node) -> int:
    """Results per tile side."""
    return 4


def without_padding(x: Node) -> tuple[Node, tuple[int, int]]:
    """What a `pad` node pads with zeros after and before the two spatial axes, and how far."""
    if x.op.name != "pad" or any(x.attrs["interior"]) or x.after:
        return x, (0, 0)
    fill = x.inputs[1]
    zero = fill.op.name == "const" and not fill.attrs["value"].array.any()
    if not zero or any((*x.attrs["low"][:2], *x.attrs["high"][:2])):
        return x, (0, 0)
    return x.inputs[0], x.attrs["low"][2:]


def weights(w: Node, tile: int, r: Rewriter) -> Node:
    """The transformed weights: a constant if they are one."""
    op = OPS["winograd_weight"]
    made = r.emit(op, (w,), {"tile": tile})
    if w.op.name != "const":
        return made
    value: Any = evaluate_node(made, [w.attrs["value"].array])
    return r.emit(OPS["const"], (), {"value": literal(value, F32)})


def reshaped(x: Node, shape: tuple[int, ...], r: Rewriter) -> Node:
    return r.emit(OPS["reshape"], (x,), {"dims": shape})
