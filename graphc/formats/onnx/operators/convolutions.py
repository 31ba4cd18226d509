"""Convolutions: Conv, ConvTranspose, DeformConv, and what undoes their windows."""

from __future__ import annotations

from typing import Any

from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.table import operator
from graphc.formats.regions import deformable_convolution
from graphc.formats.windows import add_windows, windows_of
from graphc.ops.record.value import functions as f


def add_bias(x: Any, bias: Any) -> Any:
    return x if bias is None else f.add(x, f.reshape(bias, (-1, *[1] * (x.ndim - 2))))


@operator("Conv")
def conv(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    refuse(x.ndim == w.ndim and x.ndim >= 3, f"takes arrays of one rank, got {x.ndim}, {w.ndim}")
    window = tuple(w.shape[2:])
    refuse(kernel_shape is None or tuple(kernel_shape) == window, "weights of another window")
    step, spread, pairs = windows_of(x.shape[2:], window, strides, dilations, pads, auto_pad)
    return add_bias(f.conv(x, w, step, pairs, spread, group), bias)


@operator("ConvTranspose")
def conv_transpose(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    rank = x.ndim - 2
    window = tuple(w.shape[2:])
    step, spread, pairs = windows_of((1,) * rank, window, strides, dilations, pads, "NOTSET")
    extra = tuple(output_padding) if output_padding else (0,) * rank
    whole = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[2:], step, window, spread, extra)
    ]
    wanted = output_shape
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], step)]
    if wanted is not None:
        pairs = []
        for n, target in zip(whole, wanted[-rank:]):
            total = max(n - target, 0)
            small, large = total // 2, total - total // 2
            # the format's own reference puts the odd one first unless SAME_UPPER says otherwise
            pairs.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
        extra = tuple(e + max(target - n, 0) for n, target, e in zip(whole, wanted[-rank:], extra))
    made = f.conv_transpose(x, w, step, pairs, extra, spread, group)
    return add_bias(made, bias)


@operator("DeformConv")
def deform_conv(
    x: Any,
    w: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A convolution that reads x between its elements, where the offsets point."""
    refuse(x.ndim == 4, "only images are supported")
    window = tuple(w.shape[2:])
    step, spread, pairs = windows_of(x.shape[2:], window, strides, dilations, pads, "NOTSET")
    before = tuple(low for low, _ in pairs)
    made = deformable_convolution(x, w, offset, mask, step, before, spread, group, offset_group)
    return add_bias(made, bias)


@operator("CausalConvWithState")
def causal_conv(
    x: Any,
    w: Any,
    bias: Any = None,
    past: Any = None,
    *,
    activation: str = "none",
    call: Any = None,
    ndim: int = 1,
) -> Any:
    """A convolution along the last axis that sees no later element, and what it keeps for the
    next call."""
    refuse(x.ndim == 3 and ndim == 1, "only one axis is supported")
    before = w.shape[-1] - 1
    lead = f.zeros((*x.shape[:2], before), x.dtype) if past is None else past
    whole = f.concatenate([lead, x], 2)
    made = add_bias(f.conv(whole, w, 1, 0, 1, x.shape[1]), bias)
    refuse(activation in ("none", "silu", "swish", "relu", "sigmoid"), f"activation {activation!r}")
    if activation != "none":
        made = getattr(f, "silu" if activation == "swish" else activation)(made)
    kept = f.getitem(whole, (slice(None), slice(None), slice(whole.shape[2] - before, None)))
    return made, kept


@operator("Col2Im")
def col_to_im(
    x: Any, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Any:
    """Columns of windows added up where they came from: the adjoint of cutting them out."""
    from graphc.formats.deciding_values import ints

    extents, window = ints(image), ints(block)
    step, spread, pairs = windows_of(extents, window, strides, dilations, pads, "NOTSET")
    return add_windows(x, extents, window, step, spread, pairs)
