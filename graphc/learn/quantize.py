"""Weights in 8 bits: matrices as integers with a scale for each row or column.

A product by such a matrix reads a quarter of the bytes of f32, which is what it waits for where it
has one or two rows: a language model that writes one token at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.frontend.trace.tree import register_pytree
from graphc.learn.calibrate import calibrated
from graphc.learn.trees import tree_map
from graphc.ops.record.dims import shape_of
from graphc.ops.record.value import Factor, functions

MOST = 127  # the largest integer: -128 is left out, so that both signs reach as far
FEW_ROWS = 2  # as many are multiplied while the integers are read once


class Quantized(Factor):
    """A matrix of f32 as i8 numbers[M, K], times f32 scales[M]: row m is numbers[m] * scales[m].

    x @ q, q[rows], q.T and q.shape are what they are of the matrix; `dense()` is the matrix.  It is
    a pytree: compiled functions take it like an array.  `turned`: it stands for the transpose of
    what it holds, so that the columns have scales.
    """

    __slots__ = ("numbers", "scales", "turned")
    _takes_part = "it takes part in x @ q, q[rows] and q.T; q.dense() is the matrix in f32"

    def __init__(self, numbers: Any, scales: Any, turned: bool = False) -> None:
        self.numbers = numbers
        self.scales = scales
        self.turned = turned

    @property
    def shape(self) -> tuple[Any, ...]:
        held: tuple[Any, ...] = tuple(shape_of(self.numbers))
        return held[::-1] if self.turned else held

    @property
    def ndim(self) -> int:
        return 2

    @property
    def T(self) -> Quantized:
        return Quantized(self.numbers, self.scales, not self.turned)

    def __repr__(self) -> str:
        return f"Quantized{list(self.shape)}"

    def dense(self) -> Any:
        """The matrix, f32."""
        made = functions.astype(self.numbers, np.float32) * self.scales[:, None]
        return made.T if self.turned else made

    def __getitem__(self, rows: Any) -> Any:
        """Rows by their numbers, f32[..., K]. Raises GraphError for a matrix with column scales."""
        if self.turned:
            raise GraphError(
                "a matrix quantized by columns has no rows to take",
                hint="quantize it with axis=1, where rows are looked up",
            )
        return functions.astype(self.numbers[rows], np.float32) * self.scales[rows][..., None]

    def __rmatmul__(self, x: Any) -> Any:
        """x @ q for x[..., K], f32[..., M]. Raises GraphError for an x of another depth."""
        depth = self.shape[0]
        if tuple(shape_of(x))[-1:] != (depth,):
            raise GraphError(f"x @ {self!r} takes x[..., {depth}], got {list(shape_of(x))}")
        if not self.turned:
            return (x * self.scales) @ functions.astype(self.numbers, np.float32)
        wide = functions.astype(self.numbers, np.float32)
        return _times(x, wide) * self.scales


def _times(x: Any, wide: Any) -> Any:
    """x @ wide.T; of few rows as sums over the rows of `wide`, which are read once for all."""
    *lead, depth = shape_of(x)
    rows = prod(d if type(d) is int else FEW_ROWS + 1 for d in lead)
    if not lead or not 2 <= rows <= FEW_ROWS:
        return x @ wide.T
    flat = functions.reshape(x, (rows, depth))
    made = functions.stack([functions.sum(flat[i] * wide, axis=-1) for i in range(rows)])
    return functions.reshape(made, (*lead, -1))


def quantize(
    tree: Any,
    axis: int = 0,
    least: int = 1 << 14,
    *,
    samples: Sequence[Any] | None = None,
    method: str = "minmax",
    percentile: float = 99.99,
    **options: Any,
) -> Any:
    """The tree with every f32 matrix of at least so many elements in 8 bits (see `Quantized`).

    `axis` is the one that products sum over: 0 for weights w of x @ w, 1 for tables of which rows
    are looked up, or that are used as x @ w.T.  A row or column is divided by its largest magnitude
    over 127 and rounded: at most a 254th of that is lost of each number.  Everything else in the
    tree (vectors, integers, f64) stays as it is.  Raises GraphError where numbers are not finite.

    With `samples`, a list of the arguments of calls (a tuple each, or the only one), `tree` is a
    function: it is made anew with its products by constants in 8 bits on both sides (see
    `Calibrated`).  What it multiplies them with is rounded to u8 over its range in the samples:
    all of it ("minmax"), without the last few ("percentile"), or so that the square of the error is
    least ("mse").  `options` are those of `gc.compile`.  Raises GraphError where no product is by a
    constant, or numbers are not finite.
    """
    if samples is not None:
        return calibrated(tree, samples, method, percentile, options)
    if options or callable(tree):
        raise GraphError(
            "a function is quantized on samples", hint="gc.quantize(model, samples=[(x,), ...])"
        )
    if axis not in (0, 1):
        raise GraphError(f"axis must be 0 or 1, got {axis!r}")

    def convert(leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.ndim != 2 or array.dtype != np.float32 or array.size < least:
            return leaf
        return _quantized(array, axis)

    return tree_map(convert, tree)


def _quantized(array: Any, axis: int) -> Quantized:
    held = np.ascontiguousarray(array.T if axis == 0 else array)
    largest = np.abs(held).max(axis=1, initial=0.0)
    if not np.isfinite(largest).all():
        raise GraphError("a matrix with NaN or infinite numbers cannot be quantized")
    scales = largest / np.float32(MOST)
    scales[scales == 0] = 1  # zeros, and numbers whose scale no f32 is small enough for
    numbers = np.rint(held / scales[:, None]).clip(-MOST, MOST).astype(np.int8)
    return Quantized(numbers, scales, turned=axis == 0)


register_pytree(
    Quantized,
    lambda q: ((q.numbers, q.scales), q.turned),
    lambda turned, children: Quantized(children[0], children[1], bool(turned)),
)
