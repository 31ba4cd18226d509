"""What networks are made of: convolution, pooling, softmax, norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.onnx.export.rules.elementwise import element_of
from graphc.formats.onnx.export.rules.shapes import shape_of
from graphc.formats.onnx.export.writer import Refused, Writer, rule, static
from graphc.ir.graph import Node
from graphc.ir.types import F32, F64, I32, I64, DType


@rule("conv")
def conv(w: Writer, node: Node, x: str, weight: str) -> Any:
    attributes = {
        "strides": node.attrs["stride"],
        "dilations": node.attrs["dilation"],
        "group": node.attrs["groups"],
        "kernel_shape": static(shape_of(node.inputs[1])[2:]),
    }
    return _of_floats(w, element_of(node), lambda *xs: w.op("Conv", *xs, **attributes), x, weight)


def _of_floats(w: Writer, element: DType, write: Any, *inputs: str) -> Any:
    """An operator of floats on any numbers that fit into f64 exactly."""
    if element.is_float:
        return write(*inputs)
    if element.itemsize == 8:
        raise Refused(f"of {element}: ONNX has it for floats alone")
    return w.cast(write(*(w.cast(x, F64) for x in inputs)), element)


@rule("conv_weights")
def conv_weights(w: Writer, node: Node, y: str, x: str) -> Any:
    """A convolution again: images are its channels, strides its dilations.

    w[o, c, k] = sum over n, p of x[n, c, p s + k d] y[n, o, p]:   x as [c, n, ...], y as [o, n, p]
    """
    groups, window = node.attrs["groups"], node.attrs["window"]
    images, channels, *extents = static(shape_of(node.inputs[1]))
    spatial = range(len(extents))
    apart = w.integers([images, groups, channels // groups, *extents])
    split = w.op("Reshape", x, apart)
    turned = w.op("Transpose", split, perm=[2, 1, 0, *(k + 3 for k in spatial)])
    stacked = w.op("Reshape", turned, w.integers([channels // groups, groups * images, *extents]))
    flipped = w.op("Transpose", y, perm=[1, 0, *(k + 2 for k in spatial)])
    attributes = {"strides": node.attrs["dilation"], "dilations": node.attrs["stride"]}
    made = _of_floats(
        w,
        element_of(node),
        lambda *xs: w.op("Conv", *xs, group=groups, **attributes),
        stacked,
        flipped,
    )
    axes = [k + 2 for k in spatial]
    cut = w.op("Slice", made, w.integers([0 for _ in axes]), w.integers(window), w.integers(axes))
    return w.op("Transpose", cut, perm=[1, 0, *axes])


def _pooled(w: Writer, node: Node, x: str, kind: str, **more: Any) -> Any:
    """A pooling operator over [everything else, 1, *spatial]: its results, of that shape."""
    window = node.attrs["window"]
    if len(window) > 3:
        raise Refused(f"of {len(window)} axes")
    dims = shape_of(node.inputs[0])
    spatial = static(dims[len(dims) - len(window) :])
    images = w.op("Reshape", x, w.integers([-1, 1, *spatial]))
    steps = {"strides": node.attrs["stride"], "dilations": node.attrs["dilation"]}
    return w.op(kind, images, kernel_shape=window, **steps, **more)


@rule("pool")
def pool(w: Writer, node: Node, x: str) -> Any:
    kind, element = node.attrs["kind"], element_of(node)
    dims = shape_of(node)

    def write(x: str) -> Any:
        given = w.op("Neg", x) if kind == "min" else x
        made = _pooled(w, node, given, "AveragePool" if kind == "sum" else "MaxPool")
        if kind == "sum":
            wide = element if element.is_float else F64
            made = w.op("Mul", made, w.number(math.prod(node.attrs["window"]), wide))
            made = made if element.is_float else w.op("Round", made)
        made = w.op("Neg", made) if kind == "min" else made
        return w.op("Reshape", made, w.extents(dims))

    _require_elements(node)
    return _of_floats(w, element, write, x)


def _require_elements(node: Node) -> None:
    if 0 in static(shape_of(node.inputs[0])):
        raise Refused("of an empty array")


@rule("pool_choice")
def pool_choice(w: Writer, node: Node, x: str) -> Any:
    """MaxPool counts places over all images: what is left over counts them in one."""
    if not element_of(node).is_float:
        raise Refused(f"of {element_of(node)}: ONNX has it for floats alone")
    _require_elements(node)
    given = w.op("Neg", x) if node.attrs["kind"] == "min" else x
    places = _pooled(w, node, given, "MaxPool", outputs=2)[1]
    dims, window = shape_of(node.inputs[0]), node.attrs["window"]
    extent = math.prod(static(dims[len(dims) - len(window) :]))
    inside = w.op("Mod", places, w.number(extent, I64))
    return w.op("Reshape", w.cast(inside, I32), w.extents(shape_of(node)))


@rule("softmax", "log_softmax")
def softmax(w: Writer, node: Node, x: str) -> Any:
    kind = "Softmax" if node.op.name == "softmax" else "LogSoftmax"
    return w.op(kind, x, axis=node.attrs["axis"])


@rule("layer_norm")
def layer_norm(w: Writer, node: Node, x: str, *more: str) -> Any:
    """LayerNormalization is over the last axes, and computes in f32."""
    axes, rank = node.attrs["axes"], len(shape_of(node))
    if element_of(node) is not F32 or axes != tuple(range(rank - len(axes), rank)):
        return None
    ones = np.ones([] if more else static(shape_of(node)[rank - len(axes) :]), np.float32)
    scale = more[0] if more else w.constant(ones)
    epsilon = node.attrs["epsilon"]
    return w.op("LayerNormalization", x, scale, *more[1:], axis=axes[0], epsilon=epsilon)
