"""Discrete Fourier transforms, as products of small matrices (Cooley and Tukey, 1965).

With n = a b, position j = b p + q and frequency k = r + a s:

    X[r + a s] = sum over q of  w_n**(q r)  w_b**(q s)  sum over p of  w_a**(p r)  x[b p + q]

    x[.., p, q]  --F_a-->  [.., r, q]  --w_n**(q r)-->  [.., r, q]  --F_b-->  [.., r, s]

Rows of up to 65,536 numbers are one kernel each (`fourier_nest`); longer ones are composed of those
of a and of b.  A length with a prime factor that has no butterfly is a convolution with a chirp, of
a power of two (Bluestein, 1970).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.sizes import is_open
from graphc.ir.types import C64, C128, F32, F64, DType
from graphc.ops.linalg.fourier_ops import (
    extent_of,
    is_block,
    is_real_row,
    is_row,
    real_turns,
    roots,
    turns,
)
from graphc.ops.record.arguments import ArrayLike, Axes, DTypeLike, Tensor
from graphc.ops.record.dims import rank_of, shape_of, size_of
from graphc.ops.record.families import normalise_axis, require
from graphc.ops.record.value import as_value, common_element, element_of, emit, functions, public
from graphc.ops.shape.manipulation import moveaxis
from graphc.ops.shape.shape import reshape
from graphc.ops.tuning import tuned

_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _matrix(n: int) -> Any:
    return roots(np.outer(np.arange(n), np.arange(n)), n)


def _factor(n: int) -> int:
    """The greatest divisor of n that a matrix is small enough for; 1 if there is none."""
    return max(d for d in range(1, min(n, tuned.root_factor) + 1) if n % d == 0)


def _forward(x: Tensor, n: int, element: DType, inverse: bool = False) -> Any:
    """The transform of rows of n complex numbers, or with the opposite turns, not scaled."""
    f = functions
    if tuned.root_matrix < n and is_row(n):
        return emit("fft", x, turns(n, element.name), inverse=inverse)
    if inverse:
        return f.conj(_forward(f.conj(x), n, element))
    if n <= tuned.root_matrix:
        return f.matmul(x, _matrix(n).astype(element.numpy)) if n else x
    a = _factor(n)
    if a == 1 or (tuned.root_factor < n and is_row(_chirp_size(n))):
        return _chirped(x, n, element)
    lead, b = tuple(shape_of(x)[:-1]), n // a
    y = f.matmul(_matrix(a).astype(element.numpy), reshape(x, (*lead, a, b)))
    between = roots(np.outer(np.arange(a), np.arange(b)), n).astype(element.numpy)
    y = _forward(f.multiply(y, between), b, element)
    return reshape(f.swapaxes(y, -1, -2), (*lead, n))


def _chirp_size(n: int) -> int:
    """The least 1, 3, 5 or 9 times a power of two that holds 2 n - 1 numbers."""
    return min(odd << max(0, -(-(2 * n - 1) // odd) - 1).bit_length() for odd in (1, 3, 5, 9))


def _chirped(x: Tensor, n: int, element: DType) -> Any:
    """2 j k = j**2 + k**2 - (k - j)**2 makes the transform a convolution."""
    f, squares = functions, np.arange(n) ** 2
    chirp, size = roots(squares, 2 * n), _chirp_size(n)
    kernel = np.zeros(size, complex)
    kernel[:n] = np.conj(chirp)
    kernel[size - n + 1 :] = np.conj(chirp[:0:-1])
    given = f.multiply(x, chirp.astype(element.numpy))
    given = f.pad(given, [(0, 0)] * (rank_of(x) - 1) + [(0, size - n)])
    made = f.multiply(_forward(given, size, element), np.fft.fft(kernel).astype(element.numpy))
    made = _forward(made, size, element, True)[..., :n]
    return f.multiply(made, (chirp / size).astype(element.numpy))


def _scale(n: int, norm: str | None, inverse: bool) -> float:
    require(norm in _SWAPPED, f"fft: norm is 'backward', 'ortho' or 'forward', got {norm!r}")
    divided = inverse if norm in (None, "backward") else not inverse
    return 1 / math.sqrt(n) if norm == "ortho" else 1 / n if divided else 1.0


def _fitted(x: Tensor, n: int) -> Any:
    """The first n of each row, or zeros behind it."""
    have = extent_of("fft", x, -1)
    x = x[..., :n] if n < have else x
    return functions.pad(x, [(0, 0)] * (rank_of(x) - 1) + [(0, n - have)]) if n > have else x


def _complex(x: Tensor) -> tuple[Any, DType]:
    element = common_element(x)[0]
    narrow = element in (F32, C64) or (element.is_float and element.itemsize == 2)
    return functions.astype(x, C64 if narrow else C128), C64 if narrow else C128


def _length(name: str, n: Any, default: int) -> int:
    count = default if n is None else operator.index(n)
    require(count > 0, f"{name} of {count} elements")
    return count


def _along(name: str, a: Any, n: Any, axis: int, norm: Any, inverse: bool) -> Any:
    x = as_value(a)
    axis = normalise_axis(axis, rank_of(x), name)
    here, columns = shape_of(x)[axis], size_of(shape_of(x)[axis + 1 :])
    inner = n is None and axis < rank_of(x) - 1
    if inner and isinstance(here, int) and isinstance(columns, int) and is_block(here, columns):
        return _scaled(_down(x, here, axis, inverse), here, norm, inverse)
    x, element = _complex(moveaxis(x, axis, -1))
    count = _length(name, n, extent_of(name, x, -1))
    x = _fitted(x, count)
    made = _forward(x, count, element, inverse)
    return moveaxis(_scaled(made, count, norm, inverse), -1, axis)


def _down(x: Tensor, n: int, axis: int, inverse: bool) -> Any:
    """The transform along an axis with others behind it, which stay where they are."""
    x, element = _complex(x)
    dims = shape_of(x)
    matrix = reshape(x, (*dims[: axis + 1], size_of(dims[axis + 1 :])))
    table = turns(n, element.name)
    return reshape(emit("fft", matrix, table, inverse=inverse, columns=True), dims)


def _scaled(x: Tensor, n: int, norm: str | None, inverse: bool) -> Any:
    scale = _scale(n, norm, inverse)
    return x if scale == 1 else functions.multiply(x, scale)


@public(np.fft.fft, name="fft.fft")
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The discrete Fourier transform along an axis, of n elements: cut, or zeros behind."""
    return _along("fft", a, n, axis, norm, False)


@public(np.fft.ifft, name="fft.ifft")
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of fft."""
    return _along("ifft", a, n, axis, norm, True)


@public(np.fft.rfft, name="fft.rfft")
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The first half of the transform of real numbers: n // 2 + 1 frequencies."""
    require(not common_element(a)[0].is_complex, "rfft takes real numbers")
    x = moveaxis(as_value(a), axis, -1)
    count = _length("rfft", n, extent_of("rfft", x, -1))
    if is_real_row(count):
        real = _complex(x)[1].real
        made = emit("rfft", functions.astype(_fitted(x, count), real), real_turns(count, real.name))
        return moveaxis(_scaled(made, count, norm, False), -1, axis)
    return moveaxis(_along("rfft", x, count, -1, norm, False)[..., : count // 2 + 1], -1, axis)


@public(np.fft.irfft, name="fft.irfft")
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The n real numbers (an even count by default) whose rfft this is."""
    f, x = functions, moveaxis(as_value(a), axis, -1)
    count = _length("irfft", n, 2 * (extent_of("irfft", x, -1) - 1))
    x = _fitted(_complex(x)[0], count // 2 + 1)
    if is_real_row(count):
        made = emit("irfft", x, real_turns(count, element_of(x)[0].real.name))
        return moveaxis(_as_narrow(_scaled(made, count, norm, True), a), -1, axis)
    rest = f.conj(f.flip(x[..., 1 : (count + 1) // 2], -1))
    whole = f.concatenate([x, rest], -1)[..., :count]
    made = f.real(_along("irfft", whole, count, -1, norm, True))
    return moveaxis(_as_narrow(made, a), -1, axis)


def _as_narrow(made: Tensor, a: ArrayLike) -> Any:
    """f16 and bf16 for arguments of such."""
    element = common_element(a)[0]
    return functions.astype(made, element) if element.is_float and element.itemsize == 2 else made


@public(np.fft.hfft, name="fft.hfft")
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real transform of a signal that is its own conjugate reversed, from its first half."""
    require(norm in _SWAPPED, f"hfft: norm is 'backward', 'ortho' or 'forward', got {norm!r}")
    return irfft(functions.conj(a), n, axis, _SWAPPED[norm])


@public(np.fft.ihfft, name="fft.ihfft")
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of hfft: the first half of a signal."""
    require(norm in _SWAPPED, f"ihfft: norm is 'backward', 'ortho' or 'forward', got {norm!r}")
    return functions.conj(rfft(a, n, axis, _SWAPPED[norm]))


# ------------------------------------------------------------------------------------ several axes


def _axes(name: str, x: Tensor, s: Any, axes: Any) -> list[tuple[Any, int]]:
    """The (length or None, axis) of each transform."""
    rank = rank_of(x)
    if axes is None:
        axes = range(rank) if s is None else range(-len(s), 0)
    lengths = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
    require(len(lengths) == len(axes), f"{name}: {len(lengths)} lengths for {len(axes)} axes")
    return [(n, normalise_axis(axis, rank, name)) for n, axis in zip(lengths, axes)]


@public(np.fft.fftn, name="fft.fftn")
def fftn(
    a: ArrayLike, s: ArrayLike | None = None, axes: Axes = None, norm: str | None = None
) -> Any:
    """fft along several axes, all by default."""
    made = as_value(a)
    for n, axis in reversed(_axes("fftn", made, s, axes)):
        made = fft(made, n, axis, norm)
    return made


@public(np.fft.ifftn, name="fft.ifftn")
def ifftn(
    a: ArrayLike, s: ArrayLike | None = None, axes: Axes = None, norm: str | None = None
) -> Any:
    """The inverse of fftn."""
    made = as_value(a)
    for n, axis in reversed(_axes("ifftn", made, s, axes)):
        made = ifft(made, n, axis, norm)
    return made


@public(np.fft.rfftn, name="fft.rfftn")
def rfftn(
    a: ArrayLike, s: ArrayLike | None = None, axes: Axes = None, norm: str | None = None
) -> Any:
    """rfft along the last of several axes, fft along the others."""
    *rest, (n, last) = _axes("rfftn", as_value(a), s, axes)
    made = rfft(a, n, last, norm)
    for n, axis in reversed(rest):
        made = fft(made, n, axis, norm)
    return made


@public(np.fft.irfftn, name="fft.irfftn")
def irfftn(
    a: ArrayLike, s: ArrayLike | None = None, axes: Axes = None, norm: str | None = None
) -> Any:
    """The inverse of rfftn."""
    made = as_value(a)
    *rest, (n, last) = _axes("irfftn", made, s, axes)
    for count, axis in rest:
        made = ifft(made, count, axis, norm)
    return irfft(made, n, last, norm)


def _publish_plane(name: str, numpy_function: Callable[..., Any], of_axes: Any) -> None:
    def function(
        a: ArrayLike, s: Any = None, axes: Axes = (-2, -1), norm: str | None = None
    ) -> Any:
        return of_axes(a, s, axes, norm)

    function.__doc__ = f"{name}: over two axes, the last ones by default."
    public(numpy_function, name=f"fft.{name}")(function)


_publish_plane("fft2", np.fft.fft2, fftn)
_publish_plane("ifft2", np.fft.ifft2, ifftn)
_publish_plane("rfft2", np.fft.rfft2, rfftn)
_publish_plane("irfft2", np.fft.irfft2, irfftn)


# ------------------------------------------------------------------------------------ order


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    x = as_value(x)
    given = (
        range(rank_of(x)) if axes is None else axes if isinstance(axes, tuple | list) else (axes,)
    )
    for axis in given:
        half = extent_of("fftshift", x, axis) // 2
        x = functions.roll(x, half if sign > 0 else -half, axis)
    return x


@public(np.fft.fftshift, name="fft.fftshift")
def fftshift(x: ArrayLike, axes: Axes = None) -> Any:
    """Frequency 0 moved to the middle of each axis."""
    return _shifted(x, axes, 1)


@public(np.fft.ifftshift, name="fft.ifftshift")
def ifftshift(x: ArrayLike, axes: Axes = None) -> Any:
    """The inverse of fftshift."""
    return _shifted(x, axes, -1)


# ------------------------------------------------------------------------------------ frequencies


@public(np.fft.fftfreq, name="fft.fftfreq")
def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None) -> Any:
    """The frequencies of fft for samples d apart: 0, 1, ... -2, -1 over n d."""
    if is_open((n,)):
        f, places = functions, functions.arange(n, dtype=F64)
        made = f.divide(f.divide(f.where(f.less(places, (n + 1) // 2), places, places - n), n), d)
    else:
        made = functions.divide(np.fft.fftfreq(operator.index(n), 1.0), d)
    return made if dtype is None else functions.astype(made, dtype)


@public(np.fft.rfftfreq, name="fft.rfftfreq")
def rfftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None) -> Any:
    """The frequencies of rfft for samples d apart: 0, 1, ... n // 2 over n d."""
    if is_open((n,)):
        made = functions.divide(functions.divide(functions.arange(n // 2 + 1, dtype=F64), n), d)
    else:
        made = functions.divide(np.fft.rfftfreq(operator.index(n), 1.0), d)
    return made if dtype is None else functions.astype(made, dtype)
