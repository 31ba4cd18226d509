"""Convolutions as products of Fourier transforms: n log n terms, not n m (Stockham, 1966)."""

from __future__ import annotations

from typing import Any

from graphc.ops.linalg.fourier import fftn, ifftn, irfftn, rfftn
from graphc.ops.record.arguments import ArrayLike, Axes
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import normalise_axis, require, require_mode
from graphc.ops.record.value import as_value, common_element, functions, public
from graphc.ops.shape.slicing import slice_axis


def fast_length(n: int) -> int:
    """The least even product of 2, 3 and 5 that is n or more: lengths with fast transforms."""
    found = 1 << max(1, (n - 1).bit_length())
    fives = 1
    while fives < found:
        odd = fives
        while odd < found:
            found = min(found, odd << max(1, (-(-n // odd) - 1).bit_length()))
            odd *= 3
        fives *= 5
    return found


@public()
def fftconvolve(x: ArrayLike, y: ArrayLike, mode: str = "full", axes: Axes = None) -> Any:
    """The convolution of x and y along axes, all by default, by fast Fourier transforms.

    Arrays have one rank; along other axes they have one size, or 1.  `mode` is "full"; "same", the
    middle of that, of the size of x; or "valid", where the smaller one lies within the larger one.
    Integers become f64.  Errors are relative to the largest sums, not to each: where x and y are of
    like size everywhere they are as small as those of `convolve`; an infinity or NaN makes all NaN.
    Raises GraphError for other modes, arrays that do not meet, open sizes and axes of no elements.
    """
    x, y = as_value(x), as_value(y)
    along = _axes(x, y, axes)
    require_mode("fftconvolve", mode, ("full", "same", "valid"))
    sizes = [(_length(x, axis), _length(y, axis)) for axis in along]
    element = common_element(x, y)[0]
    forward, back = (fftn, ifftn) if element.is_complex else (rfftn, irfftn)
    lengths: Any = [fast_length(n + m - 1) for n, m in sizes]
    made = back(forward(x, lengths, along) * forward(y, lengths, along), lengths, along)
    larger = {n - m >= 0 for n, m in sizes if n != m}
    require(mode != "valid" or len(larger) < 2, "fftconvolve: neither array lies in the other one")
    for axis, (n, m) in zip(along, sizes, strict=True):
        count = {"full": n + m - 1, "same": n, "valid": abs(n - m) + 1}[mode]
        first = (n + m - 1 - count) // 2
        made = slice_axis(made, axis, first, first + count)
    return functions.astype(made, element) if element.kind in "fc" else made


def _length(x: Any, axis: int) -> int:
    n = shape_of(x)[axis]
    require(isinstance(n, int) and n > 0, f"fftconvolve takes axes of known lengths, got {n}")
    assert isinstance(n, int)
    return n


def _axes(x: Any, y: Any, axes: Axes) -> list[int]:
    """The axes, which both arrays have. Raises GraphError."""
    rank = rank_of(x)
    require(rank == rank_of(y), f"fftconvolve takes arrays of one rank, got {rank}, {rank_of(y)}")
    given = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    along = [normalise_axis(axis, rank, "fftconvolve") for axis in given]
    require(0 < len(set(along)) == len(along), f"fftconvolve: axes are {axes!r} of {rank}")
    return along
