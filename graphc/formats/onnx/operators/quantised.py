"""Quantised arithmetic: integers with scales and zero points, exact in 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, refuse
from graphc.formats.encoded_values import Narrow
from graphc.formats.narrow_types import limits_of, rounded
from graphc.formats.onnx.operators.convolutions import conv as float_conv
from graphc.formats.onnx.operators.layers import average_pool
from graphc.formats.onnx.reader import element_name
from graphc.formats.onnx.table import MICROSOFT, Function, operator
from graphc.formats.windows import windows_of
from graphc.ops.record.value import functions as f


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Narrow) else x


def _element(x: Any) -> str:
    return x.element if isinstance(x, Narrow) else str(x.dtype)


def _spread(parameter: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point in the rank of x: one, one per slice of an axis, or one per block."""
    if parameter.ndim == 0 or parameter.shape == (1,):
        return f.reshape(parameter, ())
    (axis,) = axes_of([axis], x.ndim)
    if parameter.ndim == 1 and not block:
        return f.reshape(parameter, [-1 if k == axis else 1 for k in range(x.ndim)])
    refuse(block > 0 and parameter.ndim == x.ndim, "scales of another rank")
    block = min(block, max(x.shape[axis], 1))
    wide = f.repeat(parameter, block, axis=axis)
    return f.getitem(wide, tuple(slice(0, n) for n in x.shape))


def _wide(x: Any) -> Any:
    return f.astype(_value(x), np.int32)


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    element = _element(zero) if zero is not None else element_name(output_dtype) or "uint8"
    kind = np.float32 if np.dtype(x.dtype).kind in "iu" else x.dtype
    if precision:
        kind = element_name(precision)
    steps = f.astype(_spread(scale, x, axis, block_size), kind)
    units = f.divide(f.astype(x, kind), steps)
    if "float" in element:
        return Narrow(rounded(units, element, bool(saturate)), element)
    low, high = limits_of(element)
    wide = f.rint(f.astype(units, np.float32))
    if zero is not None:
        wide = f.add(wide, f.astype(_spread(_value(zero), x, axis, block_size), np.float32))
    made = f.clip(wide, np.float32(low), np.float32(high))
    carrier = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
    result = f.astype(made, np.dtype(carrier.get(element, element)))
    return Narrow(result, element) if element in carrier else result


@operator("DequantizeLinear", folds=False)  # a product may want the integers
@operator("DequantizeLinear", domain=MICROSOFT, folds=False)
def dequantize(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    value = _value(x)
    kind = element_name(output_dtype) if output_dtype else str(scale.dtype)
    element = np.dtype(kind) if kind != "bfloat16" else kind
    units = value
    if np.dtype(value.dtype).kind in "iu":
        units = f.astype(value, np.int32)
        if zero is not None:
            units = f.subtract(units, _wide(_spread(_value(zero), value, axis, block_size)))
    steps = f.astype(_spread(scale, value, axis, block_size), np.float32)
    return f.astype(f.multiply(f.astype(units, np.float32), steps), element)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: Any) -> Any:
    low = f.minimum(f.min(x), np.float32(0))
    high = f.maximum(f.max(x), np.float32(0))
    scale = f.divide(f.subtract(high, low), np.float32(255))
    safe = f.where(f.equal(scale, 0), np.float32(1), scale)
    zero = f.clip(f.rint(f.divide(f.negative(low), safe)), np.float32(0), np.float32(255))
    units = f.add(f.rint(f.divide(x, safe)), zero)
    made = f.clip(units, np.float32(0), np.float32(255))
    return f.astype(made, np.uint8), scale, f.astype(zero, np.uint8)


# ------------------------------------------------------------------------------------ products


def _rows(parameter: Any) -> Any:
    """A parameter of each row of a matrix as a column."""
    return f.expand_dims(parameter, -1) if parameter.ndim == 1 else parameter


def _centred(x: Any, zero: Any) -> Any:
    return _wide(x) if zero is None else f.subtract(_wide(x), _wide(zero))


@operator("MatMulInteger")
def mat_mul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    left = _centred(a, None if a_zero is None else _rows(a_zero))
    return f.matmul(left, _centred(b, b_zero))


def _requantised(product: Any, scale: Any, y_scale: Any, y_zero: Any) -> Any:
    """An exact integer product in the steps of the result."""
    units = f.multiply(f.astype(product, np.float32), f.astype(scale, np.float32))
    units = f.rint(f.divide(units, f.astype(y_scale, np.float32)))
    low, high = limits_of(_element(y_zero))
    wide = f.add(units, f.astype(_value(y_zero), np.float32))
    made = f.clip(wide, np.float32(low), np.float32(high))
    return f.astype(made, np.dtype(str(_value(y_zero).dtype)))


@operator("QLinearMatMul")
def q_linear_mat_mul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    product = mat_mul_integer(a, b, a_zero, b_zero)
    scale = f.multiply(_rows(f.astype(a_scale, np.float32)), f.astype(b_scale, np.float32))
    return _requantised(product, scale, y_scale, y_zero)


def _channelled(parameter: Any, rank: int) -> Any:
    """A parameter of each output channel in the shape of weights."""
    return f.reshape(parameter, (-1, *[1] * (rank - 1))) if parameter.ndim == 1 else parameter


def _integer_conv(x: Any, w: Any, x_zero: Any, w_zero: Any, **windows: Any) -> Any:
    left = _centred(x, None if x_zero is None else f.reshape(x_zero, ()))
    right = _centred(w, None if w_zero is None else _channelled(w_zero, w.ndim))
    return float_conv(left, right, **windows)


@operator("ConvInteger")
def conv_integer(
    x: Any,
    w: Any,
    x_zero: Any = None,
    w_zero: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    return _integer_conv(
        x,
        w,
        x_zero,
        w_zero,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@operator("QLinearConv")
def q_linear_conv(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    product = _integer_conv(
        x,
        w,
        x_zero,
        w_zero,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    column = (-1, *[1] * (x.ndim - 2))
    if bias is not None:
        product = f.add(product, f.reshape(bias, column))
    steps = f.reshape(w_scale, column) if w_scale.ndim == 1 else w_scale
    return _requantised(product, f.multiply(x_scale, steps), y_scale, y_zero)


# ------------------------------------------------------------------------------------ com.microsoft


def _real(x: Any, scale: Any, zero: Any) -> Any:
    return f.multiply(f.astype(_centred(x, zero), np.float32), scale)


def _whole(x: Any, scale: Any, zero: Any, element: Any) -> Any:
    low, high = limits_of(str(element))
    offset = np.float32(0) if zero is None else f.astype(zero, np.float32)
    units = f.add(f.rint(f.divide(x, scale)), offset)
    return f.astype(f.clip(units, np.float32(low), np.float32(high)), element)


def _of_real(function: Function) -> Function:
    """A function of real numbers as one of integers with a scale and a zero point."""

    def apply(
        x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None, **attributes: Any
    ) -> Any:
        return _whole(function(_real(x, x_scale, x_zero), **attributes), scale, zero, x.dtype)

    return apply


def _of_two_reals(function: Function) -> Function:
    """The same of two operands."""

    def apply(
        a: Any,
        a_scale: Any,
        a_zero: Any,
        b: Any,
        b_scale: Any,
        b_zero: Any,
        scale: Any,
        zero: Any = None,
    ) -> Any:
        made = function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
        return _whole(made, scale, zero, a.dtype)

    return apply


def _leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return f.where(f.less(x, 0), f.multiply(x, alpha), x)


def _average(x: Any, *, channels_last: int = 0) -> Any:
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return f.mean(x, axis=axes, keepdims=True)


def _average_pool(x: Any, *, channels_last: int = 0, **windows: Any) -> Any:
    refuse(not channels_last, "channels last")
    return average_pool(x, **windows)


def _softmax(x: Any, *, axis: int = -1, opset: int) -> Any:
    refuse(opset >= 13, "the softmax of rows of several axes")
    return f.softmax(x, axis)


for _name, _function in (
    ("QLinearAdd", _of_two_reals(f.add)),
    ("QLinearMul", _of_two_reals(f.multiply)),
    ("QLinearSigmoid", _of_real(f.sigmoid)),
    ("QLinearLeakyRelu", _of_real(_leaky_relu)),
    ("QLinearGlobalAveragePool", _of_real(_average)),
    ("QLinearAveragePool", _of_real(_average_pool)),
    ("QLinearSoftmax", _of_real(_softmax)),
):
    operator(_name, domain=MICROSOFT)(_function)


@operator("QLinearWhere", domain=MICROSOFT)
def q_linear_where(condition: Any, *operands: Any) -> Any:
    return _of_two_reals(lambda a, b: f.where(condition, a, b))(*operands)


@operator("QLinearConcat", domain=MICROSOFT)
def q_linear_concat(scale: Any, zero: Any, *parts: Any, axis: int) -> Any:
    reals = [_real(*parts[k : k + 3]) for k in range(0, len(parts), 3)]
    return _whole(f.concatenate(reals, axis), scale, zero, parts[0].dtype)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def mat_mul_integer_to_float(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
) -> Any:
    product = f.astype(mat_mul_integer(a, b, a_zero, b_zero), np.float32)
    made = f.multiply(product, f.multiply(a_scale, b_scale))
    return made if bias is None else f.add(made, bias)


@operator("QGemm", domain=MICROSOFT)
def q_gemm(
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    bias: Any = None,
    y_scale: Any = None,
    y_zero: Any = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    left = _centred(a, a_zero)
    right = _centred(f.transpose(b, (1, 0)), b_zero) if transB else _centred(b, b_zero)
    product = f.matmul(f.transpose(left, (1, 0)) if transA else left, right)
    if bias is not None:
        product = f.add(product, bias)
    scale = f.multiply(f.multiply(a_scale, b_scale), np.float32(alpha))
    if y_scale is not None:
        return _requantised(product, scale, y_scale, y_zero)
    return f.multiply(f.astype(product, np.float32), scale)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_mat_mul(
    a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None
) -> Any:
    left, scale, zero = dynamic_quantize(a)
    return mat_mul_integer_to_float(left, b, scale, b_scale, zero, b_zero, bias)


__all__ = ["windows_of"]
