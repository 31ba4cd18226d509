"""choose_convolution: better ways to convolve than the general contraction, as visible nodes.

winograd      3x3 and 5x5, enough channels and tiles: transforms around a batched matrix product
few_channels  depthwise and narrow grouped convolutions, few results: loops over windows
live_taps     windows that lie in the padding for the most part: a product for each tap, of what it
              reads of the image

    conv(pad(x), w)  ->  winograd_output(einsum(winograd_weight(w), winograd_input(x)))

The transform of constant weights is a constant.  Winograd's sums come out in another order and
through intermediate values several times as large, so a program without fast_math does not use it;
nor does it leave out products by the zeros of the padding, which infinite weights make NaN.
One whose products may be of 16 bits does with so many tiles and channels that it saves
more than those.
"""

from __future__ import annotations

import math

from graphc.codegen.gemm.packed import hardware_for
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.sizes import hint_of, is_open
from graphc.ir.types import F32, Type
from graphc.ops.nn.conv_windows import FLOATS, fits_unrolled
from graphc.ops.nn.winograd_tiles import Strips
from graphc.passes.normalise.live_taps import by_live_taps
from graphc.passes.normalise.rules import Rule, by_op, on_gpus_alone
from graphc.passes.tuning import tuned

TILES = {3: 4, 5: 2}  # window -> results per side of a tile
# An open number of tiles is rounded up to so many: else nobody knew that products may read whole
# vectors of them where they lie.
EVEN = 8


def choose_convolution(graph: Graph, config: Config) -> Graph:
    """The graph with each convolution in the way that suits its sizes.

    Where only GPUs compute their threads are many, so windows of few outputs run best element by
    element, and products are too cheap to be saved by transforms through memory.
    """
    narrow = config.precision == "bf16" and hardware_for(config).brain
    tiles = winograd_of_many if narrow else winograd
    ways: tuple[Rule, ...] = (few_channels,) if config.strict else (few_channels, tiles, live_taps)
    if on_gpus_alone(config):
        return graph
    return by_op(graph, {"conv": ways})


# ------------------------------------------------------------------------------------ few channels


def few_channels(node: Node, r: Rewriter) -> Node | None:
    """A convolution whose groups, or whose outputs, are too few for matrix products."""
    x, w = node.inputs
    assert isinstance(w.type, Type)
    if w.type.dtype.name not in FLOATS or not has_few_channels(node):
        return None
    return over_windows(node, *without_padding(x), w, r)


def has_few_channels(node: Node) -> bool:
    """Are the groups of a convolution, or its outputs, too few for matrix products?"""
    w = node.inputs[1].type
    assert isinstance(w, Type)
    if not is_static(node) or node.after or w.rank > 4:
        return False
    groups, terms = node.attrs["groups"], math.prod(w.dims[1:])
    few = w.dims[0] // groups <= tuned.window_outputs
    plain_product = math.prod(w.dims[2:]) == 1
    if groups == 1 and (plain_product or not few):
        return False
    return terms <= (tuned.window_terms_of_few if few else tuned.window_terms)


def over_windows(
    node: Node, x: Node, low: tuple[int, ...], w: Node, r: Rewriter, zero: int = 0
) -> Node | None:
    """A convolution as loops over windows of an x without padding; None for windows too large."""
    assert isinstance(node.type, Type)
    assert isinstance(w.type, Type)
    dims, attrs = node.type.dims, dict(node.attrs)
    attrs |= {"low": low, "out": dims[2:], "zero": zero}
    if w.type.rank == 3:
        x, w = with_rows(x, r), with_rows(w, r)
        attrs = {k: (1, *v) if k in ("stride", "dilation", "out") else v for k, v in attrs.items()}
        attrs["low"] = (0, *low)
    assert isinstance(w.type, Type)
    if not fits_unrolled(w.type.dims, attrs["stride"]):
        return None
    made = r.emit(OPS["conv_windows"], (x, w), attrs)
    assert isinstance(made.type, Type)
    return made if made.type.dims == dims else reshaped(made, dims, r)


def with_rows(x: Node, r: Rewriter) -> Node:
    """One spatial axis as two."""
    assert isinstance(x.type, Type)
    return reshaped(x, (*x.type.dims[:2], 1, *x.type.dims[2:]), r)


# ------------------------------------------------------------------------------------ Winograd


def winograd(node: Node, r: Rewriter) -> Node | None:
    """A convolution by Winograd's method, or None where the plain one is right or faster."""
    x, w = node.inputs
    if not suits(node):
        return None
    x, low = without_padding(x)
    assert isinstance(node.type, Type)
    assert isinstance(w.type, Type)
    images, outputs, *out = node.type.dims
    groups, inputs, window = node.attrs["groups"], w.type.dims[1], w.type.dims[3]
    tile = TILES[window]
    even = EVEN if is_open((images, *out)) else 1
    strips = Strips(tile, window, images, out[0], out[1], even)
    points, tiles = strips.reach**2, strips.stored
    shape = {"tile": tile, "window": window, "out": out, "even": even}
    near = r.emit(OPS["winograd_input"], (x,), {**shape, "low": low})
    far = weights(w, tile, r)
    equation = "xkc,cxt->kxt"
    if groups > 1:
        equation = "xgkc,gcxt->gkxt"
        near = reshaped(near, (groups, inputs, points, tiles), r)
        far = reshaped(far, (points, groups, outputs // groups, inputs), r)
    sums = r.emit(OPS["einsum"], (far, near), {"equation": equation})
    if groups > 1:
        sums = reshaped(sums, (outputs, points, tiles), r)
    return r.emit(OPS["winograd_output"], (sums,), {**shape, "images": images})


def winograd_of_many(node: Node, r: Rewriter) -> Node | None:
    """The same where it saves more than products of 16 bits."""
    many = suits(node, tuned.winograd_tiles_if_narrow) and saves_more_than_narrow(node)
    return winograd(node, r) if many else None


def saves_more_than_narrow(node: Node) -> bool:
    """Do Winograd's products, and what is transformed before and behind, take less time than the
    products of 16 bits of all windows?  Tiles may reach over the ends of an image.
    """
    w = node.inputs[1].type
    assert isinstance(node.type, Type)
    assert isinstance(w, Type)
    images, outputs, *out = map(hint_of, node.type.dims)
    inputs, window = w.dims[1], w.dims[3]
    own = outputs // node.attrs["groups"]
    tile = TILES[window]
    tiles = images * math.prod(-(-extent // tile) for extent in out)
    points = tiles * (tile + window - 1) ** 2
    narrow = images * math.prod(out) * window**2 * own * inputs
    products = points * own * inputs * tuned.winograd_product_if_narrow
    transforms = points * (own + inputs) * tuned.winograd_point_if_narrow
    return bool(narrow > products + transforms)


def suits(node: Node, least: int = 0) -> bool:
    """Square windows in steps of one, enough channels and enough tiles."""
    if not is_static(node) or node.after:
        return False
    w = node.inputs[1].type
    assert isinstance(w, Type)
    assert isinstance(node.type, Type)
    if w.dtype is not F32 or w.rank != 4 or w.dims[2] != w.dims[3] or w.dims[3] not in TILES:
        return False
    if any(step != 1 for step in (*node.attrs["stride"], *node.attrs["dilation"])):
        return False
    images, outputs, height, width = node.type.dims
    constant = node.inputs[1].op.traits.constant
    least = max(least, tuned.winograd_tiles_if_constant if constant else tuned.winograd_tiles)
    groups, inputs = node.attrs["groups"], w.dims[1]
    enough = inputs >= tuned.winograd_inputs and outputs // groups >= tuned.winograd_outputs
    if groups > 1 and inputs * outputs // groups <= tuned.winograd_group:
        return False
    return enough and hint_of(images * height * width) >= 16 * least


def weights(w: Node, tile: int, r: Rewriter) -> Node:
    """The transformed weights: a constant if they are one."""
    op = OPS["winograd_weight"]
    if not w.op.traits.constant:
        return r.emit(op, (w,), {"tile": tile})
    value = op.reference(w.attrs["value"].array, tile=tile)
    return r.emit(OPS["const"], (), {"value": literal(value, F32)})


# ------------------------------------------------------------------------------------ live taps


def live_taps(node: Node, r: Rewriter) -> Node | None:
    """A convolution of which most products are by zeros around the image, of known sizes."""
    if not is_static(node) or node.after:
        return None
    x, w = node.inputs
    image, low = without_padding(x)
    assert isinstance(image.type, Type)
    assert isinstance(w.type, Type)
    if image is x or w.type.dtype.name not in FLOATS:
        return None
    if is_open((*image.type.dims, *w.type.dims)):
        return None
    return by_live_taps(node, image, low, r)


# ------------------------------------------------------------------------------------ all


def is_static(node: Node) -> bool:
    types = [n.type for n in (node, *node.inputs)]
    return all(isinstance(kind, Type) and kind.is_static and kind.size for kind in types)


def without_padding(x: Node, zero: int = 0) -> tuple[Node, tuple[int, ...]]:
    """What a `pad` node surrounds with a zero on its spatial axes, and how often it comes first."""
    assert isinstance(x.type, Type)
    none = (x, (0,) * (x.type.rank - 2))
    if not x.op.traits.pads or any(x.attrs["interior"]) or x.after:
        return none
    fill = x.inputs[1]
    known = fill.op.traits.constant and fill.attrs["value"].array == zero
    if not known or any((*x.attrs["low"][:2], *x.attrs["high"][:2])):
        return none
    return x.inputs[0], x.attrs["low"][2:]


def reshaped(x: Node, dims: tuple[int, ...], r: Rewriter) -> Node:
    return r.emit(OPS["reshape"], (x,), {"dims": dims})
