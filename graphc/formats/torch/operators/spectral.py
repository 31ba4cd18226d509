"""Decompositions of matrices and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.promotion import DEFAULT, cast, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]


def _linalg(name: str) -> Any:
    return getattr(f, f"linalg.{name}")


for _name in ("eig", "eigvals", "pinv"):
    aten(f"linalg_{_name}")(lambda x, _name=_name: _linalg(_name)(x))
aten("linalg_matrix_exp", "matrix_exp")(lambda x: _linalg("expm")(x))
aten("linalg_cond")(lambda x, p=None: _linalg("cond")(x, p))


@aten("logdet")
def logdet(x: Any) -> Any:
    """NaN where the determinant is negative."""
    sign, size = _linalg("slogdet")(x)
    return f.where(f.less(sign, 0), cast(np.nan, dtype_of(size)), size)


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
    return np.where(len(at) > 1, made, 1).astype(element_of(dtype, DEFAULT))


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
    return made.astype(element_of(dtype, DEFAULT))


@aten("kaiser_window")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, dtype: Element | None = None
) -> Array:
    at = 2 * _turns(window_length, periodic) - 1
    made = np.i0(beta * np.sqrt(np.maximum(1 - at * at, 0))) / np.i0(beta)
    return np.where(len(at) > 1, made, 1).astype(element_of(dtype, DEFAULT))


# Along one axis; along several.
for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    aten(f"fft_{_name}")(
        lambda x, n=None, dim=-1, norm=None, _name=_name: getattr(f, f"fft.{_name}")(
            x, n, dim, norm
        )
    )
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    aten(f"fft_{_name}")(
        lambda x, s=None, dim=None, norm=None, _name=_name: getattr(f, f"fft.{_name}")(
            x, s, dim, norm
        )
    )
for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    aten(f"fft_{_name}")(
        lambda x, s=None, dim=(-2, -1), norm=None, _name=_name: getattr(f, f"fft.{_name}")(
            x, s, dim, norm
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
