"""Fourier transforms of every length, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import EFFORT, slow
from gradient_harness import along, inner, noise
from op_harness import check_samples, same

import graphc as gc
from graphc.ir.op import OPS
from graphc.ops.linalg.fourier_nest import MOST_RADIX, radices, sides

RNG = np.random.default_rng(9)
# Products of all radices, on one side or both; primes with a butterfly and without; ends of routes.
LENGTHS = (1, 2, 3, 8, 13, 16, 17, 169, 256, 1155)
MORE = (4, 5, 6, 9, 24, 49, 64, 77, 97, 128, 2048)
DTYPES = (np.complex128, np.float64, np.complex64, np.float32)


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    made: Any = RNG.standard_normal(shape)
    made = made + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else made
    return made.astype(dtype)


def is_prime(n: int) -> bool:
    return all(n % d for d in range(2, n))


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_samples(name: str) -> None:
    check_samples(OPS[name])


def test_rows_are_matrices_of_transforms_that_are_written_out() -> None:
    for n in range(1, 300):
        a, b = sides(n)
        assert a * b == n and a <= b
        found = radices(n)
        assert found is None or np.prod(found) == n
        assert (found is None) == any(
            n % p == 0 for p in range(MOST_RADIX + 1, n + 1) if all(p % d for d in range(2, p))
        )


@pytest.mark.parametrize(
    "n",
    [
        16 * 17,  # one radix that is a loop
        19 * 23,  # one on either side, with less than two vectors beside it
        slow(61 * 61),
        2 * 503,  # a convolution, as the factors are too unlike
        slow(211 * 3),
    ],
)
def test_long_radices(n: int) -> None:
    wide, narrow = numbers((2, n), np.complex128), numbers((3, n), np.complex64)

    def call(wide: Any, narrow: Any) -> Any:
        return np.fft.fft(wide), np.fft.ifft(narrow), np.fft.rfft(wide.real, 2 * n)

    made, want = gc.compile(call)(wide, narrow), call(wide, narrow)
    same(made[0], want[0], 60 * n**0.5 * 2.0**-52)
    same(made[1], want[1], 60 * n**0.5 * 2.0**-23)
    same(made[2], want[2], 60 * n**0.5 * 2.0**-52)


def test_long_radices_of_columns() -> None:
    x = numbers((3, 34, 10), np.complex128)
    made = gc.compile(lambda x: np.fft.fft(x, axis=1))(x)
    same(made, np.fft.fft(x, axis=1), 1e-13)


def every(x: Any) -> Any:
    n = x.shape[-1]
    made = [np.fft.fft(x), np.fft.ifft(x, norm="ortho"), np.fft.irfft(x, 2 * n - 1)]
    if np.dtype(x.dtype).kind == "f":
        made += [np.fft.rfft(x), np.fft.rfft(x, n + 1, norm="forward"), np.fft.irfft(x, 2 * n)]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(4))
def test_every_length(turn: int) -> None:
    """All kinds of numbers take turns."""
    lengths = LENGTHS + MORE * (EFFORT > 1)
    given = [(n, DTYPES[(k + turn) % 4]) for k, n in enumerate(lengths)][turn::4]
    arrays = [numbers((2, n), dtype) for n, dtype in given]
    made = gc.compile(lambda arrays: [every(x) for x in arrays])(arrays)
    for (n, dtype), x, got in zip(given, arrays, made, strict=True):
        same(got, every(x), 60 * n**0.5 * float(np.finfo(dtype).eps))


@pytest.mark.slow
def test_several_axes_and_threads() -> None:
    x = numbers((3, 20, 18), np.complex128)

    def call(x: Any) -> Any:
        made = [np.fft.fftn(x), np.fft.ifft2(x, (16, 5), (0, 1)), np.fft.irfftn(x), np.fft.hfft(x)]
        return [*made, np.fft.ifft(x, axis=0), np.fft.fft(x, axis=1), np.fft.rfft(abs(x), axis=1)]

    for threads in (1, 2):
        same(gc.compile(call, threads=threads)(x), call(x), 1e-12)
    assert gc.compile(np.fft.fft)(np.zeros((0, 20))).shape == (0, 20)


def test_a_nan_fills_its_row_alone() -> None:
    x = numbers((2, 24), np.complex128)
    x[1, 5] = np.nan
    made = gc.compile(np.fft.fft)(x)
    assert np.isfinite(made[0]).all()
    assert np.isnan(made[1]).all()


def test_gradients_are_transforms() -> None:
    def loss(x: Any) -> Any:
        made = np.fft.ifft(np.fft.fft(x) * np.arange(x.shape[-1]), norm="ortho")
        return (np.abs(made) ** 2).sum() + (np.abs(np.fft.rfft(np.abs(x), 17)) ** 2).sum()

    for n in (12, 17):
        x = numbers((2, n), np.complex128)
        made, way = gc.compile(gc.grad(loss))(x), noise(RNG, x)
        want = along(lambda at: float(loss(at[0])), [x], [way])
        assert abs(inner([made], [way]) - want) < 1e-7 * abs(want)
