"""Signals: Fourier transforms, windows, mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, number, refuse
from graphc.formats.onnx.reader import element_name
from graphc.formats.onnx.table import operator
from graphc.ops.record.value import functions as f


def _parts(x: Any) -> tuple[Any, Any]:
    refuse(x.shape[-1] in (1, 2), "the last axis holds real and imaginary parts")
    imag = f.getitem(x, (..., 1)) if x.shape[-1] == 2 else None
    return f.getitem(x, (..., 0)), imag


def _transform(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    (axis,) = axes_of([axis], x.ndim)
    refuse(axis < x.ndim - 1, f"axis {axis}")
    real, imag = _parts(x)
    count = x.shape[axis] if length is None else number(length)
    if inverse and onesided:
        count = 2 * (x.shape[axis] - 1) if length is None else count
        real, imag = _mirrored(real, imag, axis, count)
        return f.expand_dims(f.dft(real, imag, axis, count, True)[0], -1)
    kept = count // 2 + 1 if onesided else count
    return f.stack(list(f.dft(real, imag, axis, count, bool(inverse), kept)), -1)


def _mirrored(real: Any, imag: Any, axis: int, count: int) -> tuple[Any, Any]:
    """The other half of a spectrum whose signal is real."""
    half = count // 2 + 1
    at = np.arange(count)
    at = np.where(at < half, at, count - at)
    refuse(real.shape[axis] >= half, f"{real.shape[axis]} frequencies of {count}")
    sign = np.where(np.arange(count) < half, 1, -1).astype(real.dtype)
    column = [-1 if k == axis else 1 for k in range(real.ndim)]
    whole = f.take(real, at, axis=axis)
    other = None if imag is None else f.multiply(f.take(imag, at, axis=axis), sign.reshape(column))
    return whole, other


@operator("DFT", since=20)
def dft(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    return _transform(x, length, -2 if axis is None else number(axis), inverse, onesided)


@operator("DFT")
def dft_attribute(
    x: Any, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Any:
    return _transform(x, length, axis, inverse, onesided)


@operator("STFT")
def stft(x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1) -> Any:
    real, imag = _parts(x) if x.ndim == 3 else (x, None)
    size = number(length) if length is not None else window.shape[0]
    made = f.stft(real, number(step), size, window, bool(onesided), imag)
    return f.stack(list(made), -1)


@operator("MelWeightMatrix")
def mel_weights(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1
) -> Any:
    """Triangles over frequencies, evenly spaced on the mel scale."""
    filters, size, sampled = number(bins), number(length), number(rate)
    refuse(0 < filters <= 1 << 12 and 0 < size <= 1 << 20 and sampled > 0, "sizes of filters")
    kept = size // 2 + 1
    refuse(filters * kept <= 1 << 22, f"{filters} filters of {kept} frequencies")
    ends = [2595 * np.log10(1 + number(v) / 700) for v in (low, high)]
    mels = ends[0] + np.arange(filters + 2) * ((ends[1] - ends[0]) / (filters + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    at = (hertz * (size + 1) // sampled).astype(np.int64)
    made = np.zeros((kept, filters))
    for k in range(filters):
        left, centre, right = at[k : k + 3]
        rise = centre - left
        if rise == 0:
            made[centre : centre + 1, k] = 1
        else:
            steps = np.arange(max(left, 0), min(centre + 1, kept))
            made[steps, k] = (steps - left) / rise
        steps = np.arange(max(centre, 0), min(right, kept))
        if right > centre:
            made[steps, k] = (right - steps) / (right - centre)
    return made.astype(np.dtype(element_name(output_datatype)))
