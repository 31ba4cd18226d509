"""Writes through `.real`, `.imag`, `.view(dtype)` and casts that copy nothing reach the array, as
NumPy's do, and windows are read again after writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))
X = RNG.standard_normal(6).astype("f4")


def assign_part(z: Any) -> Any:
    z.imag[1:] = 1
    return z


def set_part(z: Any) -> Any:
    z.real = z.imag
    z.imag = 0.5
    return z


def update_part(z: Any) -> Any:
    z.real *= 2
    z.T.imag[1] -= 3
    z[1].real[z[1].real > 0] = 0
    return z


def part_then_array(z: Any) -> Any:
    part = np.real(z)
    z[0] = 9 + 9j
    part[2] = 5
    return part, z


def copies_of_parts(z: Any) -> Any:
    """A part has gaps: ravel copies, a reshape of all of it may not."""
    flat, folded = z.real.ravel(), z.real.reshape(2, 6)
    flat[0] = 99
    folded[1] = 98
    return z, flat


def known_parts(z: Any) -> Any:
    made = np.zeros((3, 4), complex)
    made.real = z.imag
    made.imag[1] = z.real[0]
    whole = np.ones(3, complex)
    whole.imag = 2
    return made, whole


def fill_by_ufunc(z: Any) -> Any:
    np.add(z.real, 1, out=z.imag)
    return z


def bits(x: Any) -> Any:
    as_int = x.view(np.int32)
    as_int[:] = 0x5F3759DF - (as_int >> 1)
    return x


def bits_behind(x: Any) -> Any:
    as_int = x.view("i4")
    x[0] = 1
    own = x.copy().view("i4")
    own += 1
    return as_int, x


def real_of_real(x: Any) -> Any:
    x.real[:2] = 0
    x.real.view("i4")[3] = 7
    return x


def casts(x: Any) -> Any:
    same, other = x.astype("f4", copy=False), x.astype("f8", copy=False)
    same[1] = 7
    other[2] = 8
    return x, other


def power_of_one(x: Any) -> Any:
    own = x**1
    own[0] = 5
    return x, own


def windows(x: Any) -> Any:
    view = np.lib.stride_tricks.sliding_window_view(x, 3)
    folded = view.reshape(-1)
    x[0] = 9
    return view, folded


@pytest.mark.parametrize(
    ("function", "array"),
    [
        *((f, Z) for f in (assign_part, set_part, update_part, part_then_array, copies_of_parts)),
        *((f, Z.astype("F")) for f in (set_part, update_part)),
        *((f, Z) for f in (known_parts, fill_by_ufunc)),
        (set_part, np.array(2 + 3j)),
        *((f, X) for f in (bits, bits_behind, real_of_real, casts, power_of_one, windows)),
    ],
)
def test_writes_through_parts_and_bits(function: Callable[..., Any], array: Any) -> None:
    wanted, made = function(array.copy()), gc.compile(function)(array.copy())
    if not isinstance(wanted, tuple):
        wanted, made = (wanted,), (made,)
    for one, other in zip(made, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_real_arrays_have_no_imaginary_part_to_set() -> None:
    def f(x: Any) -> Any:
        x.imag = 3
        return x

    with pytest.raises(TypeError, match="imaginary"):
        gc.compile(f)(X)
