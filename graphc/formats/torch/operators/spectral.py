"""Decompositions of matrices and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.operators.shapes import pad_, unfold
from graphc.formats.torch.promotion import as_float, cast, category, default_float, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.formats.windows import add_windows
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]


def _linalg(name: str) -> Any:
    return getattr(f, f"linalg.{name}")


for _name in ("eig", "eigvals"):
    aten(f"linalg_{_name}")(lambda x, _name=_name: _linalg(_name)(x))


@aten("linalg_pinv", "pinverse")
def pinv(
    x: Any, rcond: Any = None, hermitian: bool = False, atol: Any = None, rtol: Any = None
) -> Any:
    """Singular values count above the larger of atol and rtol times the largest one."""
    if hermitian:  # what lies above the diagonal is not read, nor imaginary parts on it
        low = f.tril(x, -1)
        whole = low + f.conj(f.swapaxes(low, -1, -2))
        x = f.where(np.eye(x.shape[-1], dtype=bool), cast(f.real(x), dtype_of(x)), whole)
    size = max(x.shape[-2:], default=0)
    share = next((v for v in (rtol, rcond) if v is not None), None)
    if share is None:
        share = _least_share(size * float(np.finfo(dtype_of(x)).eps), atol)
    if atol is None or not size or not min(x.shape[-2:]):
        return _linalg("pinv")(x, share, hermitian)
    u, s, vh = _linalg("svd")(x, full_matrices=False)
    top = f.max(s, axis=-1, keepdims=True)
    bound = f.maximum(f.multiply(top, _column(share)), _column(atol))
    turned = f.where(f.greater(s, bound), f.reciprocal(s), cast(0, dtype_of(s)))
    left = f.multiply(f.conj(f.swapaxes(vh, -1, -2)), f.expand_dims(turned, -2))
    return f.matmul(left, f.conj(f.swapaxes(u, -1, -2)))


def _least_share(least: float, atol: Any) -> Any:
    """What rtol is unless it is given: none of a matrix that has an atol above 0."""
    if atol is None or isinstance(atol, int | float):
        return 0.0 if atol is not None and atol > 0 else least
    return f.where(f.greater(atol, 0), cast(0, dtype_of(atol)), cast(least, dtype_of(atol)))


def _column(value: Any) -> Any:
    """A number, or one for each matrix, beside rows of singular values."""
    return value if isinstance(value, int | float) else f.expand_dims(value, -1)


aten("linalg_matrix_exp", "matrix_exp")(lambda x: cast(_linalg("expm")(x), dtype_of(x)))
aten("linalg_cond")(lambda x, p=None: _linalg("cond")(x, p))


@aten("logdet")
def logdet(x: Any) -> Any:
    """NaN where the determinant is negative."""
    sign, size = _linalg("slogdet")(x)
    return f.where(f.less(sign, 0), cast(np.nan, dtype_of(size)), size)


@aten("linalg_slogdet", "slogdet")
def linalg_slogdet(x: Any) -> Any:
    return _linalg("slogdet")(x)


@aten("_linalg_slogdet")
def _linalg_slogdet(x: Any) -> Any:
    """Its factors, which gradients alone read, are left out."""
    return (*_linalg("slogdet")(x), None, None)


@aten("linalg_qr")
def linalg_qr(x: Any, mode: str = "reduced") -> Any:
    return _linalg("qr")(x, mode)


@aten("linalg_svd")
def linalg_svd(x: Any, full_matrices: bool = True, *, driver: Any = None) -> Any:
    return _linalg("svd")(x, full_matrices)


@aten("_linalg_svd")
def _linalg_svd(
    x: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None
) -> Any:
    return _linalg("svd")(x, full_matrices)


@aten("qr")
def qr(x: Any, some: bool = True) -> Any:
    return linalg_qr(x, "reduced" if some else "complete")


@aten("svd")
def svd(x: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S and V, which is not turned; zeros for U and V that are not asked for."""
    u, s, vh = _linalg("svd")(x, not some or not compute_uv)
    v = f.conj(f.swapaxes(vh, -1, -2))
    return (u, s, v) if compute_uv else (f.zeros(u.shape, u.dtype), s, f.zeros(v.shape, v.dtype))


@aten("linalg_matrix_rank")
def linalg_matrix_rank(
    x: Any, tol: Any = None, hermitian: bool = False, atol: Any = None, rtol: Any = None
) -> Any:
    """How many singular values are above atol and above rtol times the largest one."""
    values = f.abs(_linalg("eigvalsh")(x)) if hermitian else _linalg("svdvals")(x)
    if tol is not None:
        return f.sum(f.greater(values, _column(tol)), axis=-1)
    size = max(x.shape[-2:], default=0)
    share = _least_share(size * float(np.finfo(dtype_of(x)).eps), atol) if rtol is None else rtol
    top = f.max(values, axis=-1, keepdims=True, initial=0)
    bound = f.maximum(f.multiply(top, _column(share)), _column(0 if atol is None else atol))
    return f.sum(f.greater(values, bound), axis=-1)


@aten("linalg_svdvals")
def linalg_svdvals(x: Any, *, driver: Any = None) -> Any:
    return _linalg("svdvals")(x)


@aten("linalg_eigh")
def linalg_eigh(x: Any, UPLO: str = "L") -> Any:
    return _linalg("eigh")(x, UPLO)


@aten("_linalg_eigh")
def _linalg_eigh(x: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    return _linalg("eigh")(x, UPLO)


@aten("linalg_eigvalsh")
def linalg_eigvalsh(x: Any, UPLO: str = "L") -> Any:
    return _linalg("eigvalsh")(x, UPLO)


@aten("linalg_matrix_norm")
def linalg_matrix_norm(
    x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = x if dtype is None else f.astype(x, dtype)
    return f.norm(x, ord, tuple(dim), keepdim)


# Windows of a signal.


def _turns(length: int, periodic: bool) -> Array:
    """Where each element lies between 0 and 1."""
    refuse(isinstance(length, int), "a window of open length")
    check_within("folded_elements", length, f"a window of {length}")
    return np.arange(length) / max(length if periodic else length - 1, 1)


def _cosines(at: Array, terms: Sequence[float], dtype: Element | None) -> Array:
    made = sum(t * np.cos(2 * np.pi * k * at) for k, t in enumerate(terms))
    return np.where(len(at) > 1, made, 1).astype(element_of(dtype, default_float()))


@aten("hann_window")
def hann_window(window_length: int, periodic: bool = True, dtype: Element | None = None) -> Array:
    return _cosines(_turns(window_length, periodic), (0.5, -0.5), dtype)


@aten("hamming_window")
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    dtype: Element | None = None,
) -> Array:
    return _cosines(_turns(window_length, periodic), (alpha, -beta), dtype)


@aten("blackman_window")
def blackman_window(
    window_length: int, periodic: bool = True, dtype: Element | None = None
) -> Array:
    return _cosines(_turns(window_length, periodic), (0.42, -0.5, 0.08), dtype)


@aten("bartlett_window")
def bartlett_window(
    window_length: int, periodic: bool = True, dtype: Element | None = None
) -> Array:
    at = _turns(window_length, periodic)
    made = np.where(len(at) > 1, 1 - np.abs(2 * at - 1), 1)
    return made.astype(element_of(dtype, default_float()))


@aten("kaiser_window")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, dtype: Element | None = None
) -> Array:
    at = 2 * _turns(window_length, periodic) - 1
    made = np.i0(beta * np.sqrt(np.maximum(1 - at * at, 0))) / np.i0(beta)
    return np.where(len(at) > 1, made, 1).astype(element_of(dtype, default_float()))


# Along one axis; along several.  Whole numbers are transformed as floats of the default type.
for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    aten(f"fft_{_name}")(
        lambda x, n=None, dim=-1, norm=None, _name=_name: getattr(f, f"fft.{_name}")(
            as_float(x), n, dim, norm
        )
    )
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    aten(f"fft_{_name}")(
        lambda x, s=None, dim=None, norm=None, _name=_name: getattr(f, f"fft.{_name}")(
            as_float(x), s, dim, norm
        )
    )
for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    aten(f"fft_{_name}")(
        lambda x, s=None, dim=(-2, -1), norm=None, _name=_name: getattr(f, f"fft.{_name}")(
            as_float(x), s, dim, norm
        )
    )


def _swapped_norm(norm: str | None) -> str:
    return {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm or "backward"]


@aten("fft_hfftn")
def fft_hfftn(x: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """The real signal of half a spectrum, or of half a signal the real spectrum."""
    return getattr(f, "fft.irfftn")(f.conj(as_float(x)), s, dim, _swapped_norm(norm))


@aten("fft_ihfftn")
def fft_ihfftn(x: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    return f.conj(getattr(f, "fft.rfftn")(as_float(x), s, dim, _swapped_norm(norm)))


for _name, _made in (("hfft2", fft_hfftn), ("ihfft2", fft_ihfftn)):
    aten(f"fft_{_name}")(
        lambda x, s=None, dim=(-2, -1), norm=None, _made=_made: _made(x, s, dim, norm)
    )


for _name in ("fftfreq", "rfftfreq"):
    aten(f"fft_{_name}")(
        lambda n, d=1.0, dtype=None, _name=_name, **rest: getattr(np.fft, _name)(n, d).astype(
            element_of(dtype, default_float())
        )
    )
for _name in ("fftshift", "ifftshift"):
    aten(f"fft_{_name}")(lambda x, dim=None, _name=_name: getattr(f, f"fft.{_name}")(x, dim))


# What those are made of: how they are scaled is a number, whichever way they go.


def _norm(normalization: int, forward: bool) -> str:
    if normalization == 1:
        return "ortho"
    return "forward" if forward == (normalization == 2) else "backward"


@aten("_fft_c2c")
def _fft_c2c(x: Any, dim: Any, normalization: int, forward: bool) -> Any:
    made = getattr(f, "fft.fftn" if forward else "fft.ifftn")
    return made(x, None, tuple(dim), _norm(normalization, forward))


@aten("_fft_r2c")
def _fft_r2c(x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    made = getattr(f, "fft.rfftn" if onesided else "fft.fftn")
    return made(x, None, tuple(dim), _norm(normalization, True))


@aten("_fft_c2r")
def _fft_c2r(x: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    sizes = (*(-1 for _ in dim[1:]), last_dim_size)
    return getattr(f, "fft.irfftn")(x, sizes, tuple(dim), _norm(normalization, False))


# The same without a scale.
aten("fft_c2c", space="prims")(lambda x, dim, forward: _fft_c2c(x, dim, 0, forward))
aten("fft_r2c", space="prims")(lambda x, dim, onesided: _fft_r2c(x, dim, 0, onesided))
aten("fft_c2r", space="prims")(lambda x, dim, last_dim_size: _fft_c2r(x, dim, 0, last_dim_size))


# ------------------------------------------------------------------------------------ frames


def _framed(window: Any, length: int, frame: int, kind: Any) -> Any:
    """A window in the middle of a frame; ones where there is none."""
    held = np.ones(length, kind) if window is None else window
    refuse(0 < length <= frame and tuple(held.shape) == (length,), f"a window of {length}")
    low = (frame - length) // 2
    return f.pad(held, [(low, frame - length - low)])


@aten("stft", "stft.center")
def stft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = False,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Spectra of frames: [..., frequencies, frames], or with real and imaginary parts behind."""
    step = n_fft // 4 if hop_length is None else hop_length
    refuse(not align_to_window and n_fft > 0 and step > 0, "frames aligned to windows")
    held = pad_(x, [n_fft // 2] * 2, pad_mode) if center else x
    real = category(dtype_of(x)) < 3
    frames = unfold(held, -1, n_fft, step)
    length = n_fft if win_length is None else win_length
    frames = f.multiply(frames, _framed(window, length, n_fft, np.zeros(0, dtype_of(x)).real.dtype))
    half = real if onesided is None else onesided
    made = getattr(f, "fft.rfft" if half else "fft.fft")(
        frames, None, -1, "ortho" if normalized else "backward"
    )
    made = f.swapaxes(made, -1, -2)
    return made if return_complex else f.stack([f.real(made), f.imag(made)], -1)


@aten("istft")
def istft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signal whose spectra these are: frames added up, by the sum of squared windows."""
    refuse(not return_complex, "signals of complex numbers")
    step = n_fft // 4 if hop_length is None else hop_length
    spectra = f.swapaxes(x if x.ndim == 3 else f.expand_dims(x, 0), -1, -2)
    norm = "ortho" if normalized else "backward"
    half = x.shape[-2] == n_fft // 2 + 1 if onesided is None else onesided
    frames = (
        getattr(f, "fft.irfft")(spectra, n_fft, -1, norm)
        if half
        else f.real(getattr(f, "fft.ifft")(spectra, n_fft, -1, norm))
    )
    size = n_fft if win_length is None else win_length
    shape = _framed(window, size, n_fft, dtype_of(frames))
    whole = n_fft + step * (frames.shape[1] - 1)

    def added(parts: Any) -> Any:
        columns = f.swapaxes(parts, 1, 2)
        made = add_windows(columns, (whole,), (n_fft,), (step,), (1,), [(0, 0)])
        return f.reshape(made, (parts.shape[0], whole))

    weights = f.broadcast_to(f.square(shape), (1, frames.shape[1], n_fft))
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    cut = (slice(None), slice(start, min(end, whole)))
    made = f.divide(
        f.getitem(added(f.multiply(frames, shape)), cut), f.getitem(added(weights), cut)
    )
    if end > whole:
        made = f.pad(made, [(0, 0), (0, end - whole)])
    return made if x.ndim == 3 else f.squeeze(made, 0)
