"""Arrays whose innermost axis is a few elements long: points, colours, small states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed, few

import graphc as gc

RNG = np.random.default_rng(41)
DTYPES = ("f4", "f8", "i4", "i2", "u1", "bool", "f2", "c8")


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 9).astype(dtype)


def check(function: Any, *arguments: Any) -> None:
    """Equal to NumPy, but for the rounding of products that are added at once."""
    want = np.asarray(function(*arguments))
    exact = want.dtype.kind in "biu"
    near = 0.0 if exact else 50 * float(np.finfo(want.dtype).eps)
    scale = 0.0 if exact else near * float(np.nan_to_num(np.abs(want)).max(initial=0.0))
    for threads in (1, 3):
        made = gc.compile(function, threads=threads)(*arguments)
        assert (made.shape, made.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(made, want, rtol=near, atol=scale)


@pytest.mark.parametrize(("line", "turn"), crossed((1, 2, 3, 5, 7, 8, 9, 3), range(8)))
def test_rows_that_one_operand_repeats(line: int, turn: int) -> None:
    """Each turn takes another type, and sizes around those of vectors and of blocks."""
    dtype, n = DTYPES[turn], (16, 17, 33, 64)[turn % 4]
    x, y = drawn(dtype, n, line), drawn(dtype, 40 + turn, line)
    check(lambda x, y: x[:, None] + y, x, y)
    check(lambda x, y: y[:, None] * 2 == x, x, y)
    w = drawn(dtype, n, len(y))
    check(lambda x, y, w: np.where(w[..., None] != 0, y, x[:, None]), x, y, w)


def test_more_short_rows_than_a_block_holds() -> None:
    x, y = drawn("f4", 2, 1, 3), drawn("f4", 3000, 3)
    check(lambda x, y: x - y, x, y)
    check(lambda x, y: (x - y).astype("f8"), x, y)


def test_short_rows_in_a_loop_and_its_gradient() -> None:
    x, v = drawn("f4", 20, 3), drawn("f4", 20, 3)

    def energy(x: Any) -> Any:
        apart = x[:, None] - x
        return np.sum(np.sqrt(np.sum(apart * apart, -1) + 0.1))

    def step(x: Any, v: Any) -> Any:
        return gc.fori(0, 5, lambda _, s: (s[0] + 0.1 * s[1], s[1] - gc.grad(energy)(s[0])), (x, v))

    for made, want in zip(gc.compile(step)(x, v), gc.compile(step, opt=0)(x, v), strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)


def cut(rng: np.random.Generator, extent: int) -> slice:
    """A slice of an axis: all of it, a part, every second or third, or backwards."""
    start, stop = sorted(int(k) for k in rng.integers(0, extent + 1, 2))
    return (
        slice(None),
        slice(start, stop),
        slice(start, None, int(rng.integers(1, 4))),
        slice(None, None, -1),
    )[rng.choice(4, p=(0.4, 0.35, 0.15, 0.1))]


@pytest.mark.parametrize("seed", few(range(200), 12, 0))
def test_slices_of_what_is_stored_and_of_what_is_computed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.integers(1, 8, rng.integers(1, 5)))
    x = rng.standard_normal(shape).astype("f4")
    cuts = tuple(cut(rng, extent) for extent in shape)
    part = x[cuts]
    scale, row = rng.standard_normal(part.shape[-1:]).astype("f4"), np.float32(2)
    check(lambda x: x[cuts] * row, x)
    check(lambda x, s: x[cuts] * s + x[cuts], x, scale)
    check(lambda x, s: (x * row)[cuts] - s, x, scale)
    check(lambda x, y: x[cuts] + y, x, np.ascontiguousarray(part))
    w = rng.standard_normal((shape[0], *[1] * (len(shape) - 1))).astype("f4")
    check(lambda x, w: (x * w)[cuts] * row, x, w)


@pytest.mark.parametrize(
    ("line", "dtype"), crossed((1, 2, 3, 6, 7, 9, 15, 17, 31), ("f4", "f8", "i4", "u1", "f2", "c8"))
)
def test_folds_of_few_columns(line: int, dtype: str) -> None:
    for rows in (1, 11, 70):
        x = drawn(dtype, 4, rows, line)
        check(lambda x: np.sum(x, 1), x)
        if dtype != "c8":
            check(lambda x: np.max(x * x, 1), x)
            check(lambda x: np.argmin(x, 1), x)
    x[1, 5] = np.nan if dtype in ("f4", "f8", "f2", "c8") else 0
    check(lambda x: np.prod(x, 1, dtype=x.dtype), x[:, 3:6])


@pytest.mark.parametrize("line", [2, 3, 4, 7, 8])
def test_rows_that_are_moved(line: int) -> None:
    x = drawn("f4", 6, 11, 5, line)
    check(lambda x: x[:, ::-1] * 2, x)
    check(lambda x: np.swapaxes(x, 0, 1) + 1, x)
    check(lambda x: np.transpose(x, (2, 0, 1, 3)) * 2, x)
    check(lambda x: np.tile(x, (1, 2, 1, 1)), x)
    check(lambda x: np.repeat(x, 3, 1), x)
    check(lambda x: np.roll(x, 2, 1) - x, x)
    check(lambda x: np.pad(x, ((0, 0), (1, 2), (0, 0), (0, 0))) * 2, x)
    check(lambda x, i: x[:, i] * 2, x, RNG.integers(0, 11, (3, 2)))
