"""Spectra by products with tables of cosines: any length, no recursion; fast where it is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import normalise_axis, require
from graphc.ops.record.value import common_element, functions, public


def _tables(count: int, kept: int, inverse: bool, kind: Any) -> tuple[Any, Any]:
    """cos and sin of the angles between element j and frequency k: [count, kept]."""
    turns = np.outer(np.arange(count), np.arange(kept)) % count
    angle = 2 * np.pi * turns / count
    scale = 1 / count if inverse else 1.0
    sign = 1.0 if inverse else -1.0
    return (np.cos(angle) * scale).astype(kind), (np.sin(angle) * sign * scale).astype(kind)


@public(name="dft")
def dft(
    real: ArrayLike,
    imag: ArrayLike | None = None,
    axis: int = -1,
    length: int | None = None,
    inverse: bool = False,
    kept: int | None = None,
) -> tuple[Any, Any]:
    """The discrete Fourier transform along an axis: (real, imaginary), `kept` frequencies of them.

    The axis is cut or filled up with zeros to `length`.
    """
    f = functions
    axis = normalise_axis(axis, rank_of(real), "dft")
    extent = int(shape_of(real)[axis])  # type: ignore[arg-type]
    count = extent if length is None else length
    kept = count if kept is None else kept
    require(count > 0 and 0 <= kept * count <= 1 << 22, f"dft: {kept} of {count} frequencies")
    kind = common_element(real)[0].numpy
    used = min(extent, count)
    cos, sin = _tables(count, kept, inverse, kind)
    cos, sin = cos[:used], sin[:used]

    def rows(x: ArrayLike) -> Any:
        moved = f.moveaxis(x, axis, -1)
        return f.getitem(moved, (..., slice(0, used)))

    parts = rows(real)
    re, im = f.matmul(parts, cos), f.matmul(parts, sin)
    if imag is not None:
        other = rows(imag)
        re = f.subtract(re, f.matmul(other, sin))
        im = f.add(im, f.matmul(other, cos))
    return f.moveaxis(re, -1, axis), f.moveaxis(im, -1, axis)


@public(name="stft")
def stft(
    x: ArrayLike,
    step: int,
    length: int,
    window: int | Sequence[int] | None = None,
    onesided: bool = True,
    imag: ArrayLike | None = None,
) -> tuple[Any, Any]:
    """The Fourier transforms of windows that slide along the last axis of x: [..., frames, kept]
    as (real, imaginary)."""
    f = functions
    extent = int(shape_of(x)[-1])  # type: ignore[arg-type]
    require(0 < length <= extent and step > 0, f"stft: windows of {length} by {step}")

    def frames(v: ArrayLike) -> Any:
        cut = f.sliding_window_view(v, length, axis=-1)
        cut = f.getitem(cut, (..., slice(0, None, step), slice(None)))
        return cut if window is None else f.multiply(cut, window)

    kept = length // 2 + 1 if onesided else length
    return dft(frames(x), None if imag is None else frames(imag), kept=kept)  # type: ignore[no-any-return]
