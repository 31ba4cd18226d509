"""Weights in few bits: matrices as integers of 8 or 4 bits, and what the integers count in.

A product by such a matrix reads a quarter or a sixth of the bytes of f32, which is what it waits
for where it has few rows: a language model that writes one token at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.frontend.trace.tree import register_pytree
from graphc.ir.types import F32
from graphc.learn.calibrate import calibrated
from graphc.learn.trees import tree_map
from graphc.ops.linalg.few_bits import LANES, WORD, packed, unpacked
from graphc.ops.record.dims import shape_of
from graphc.ops.record.value import Factor, Value, common_element, emit, functions

MANY_ROWS = 256  # a matrix that so many rows are multiplied with is widened first
GROUP = 32  # weights of 4 bits that share a scale


class Quantized(Factor):
    """A matrix of f32 as integers of few bits in `words`, times `scales`.

    x @ q, q[rows], q.T and q.shape are what they are of the matrix; `dense()` is the matrix.  It is
    a pytree: compiled functions take it like an array.  How words and scales are laid out, sixteen
    rows side by side, `ops/linalg/few_bits.py` says; `rows` and `width` are the sizes of what they
    hold, and `turned`: it stands for the transpose of that, so that its columns have scales.
    """

    __slots__ = ("bits", "rows", "scales", "turned", "width", "words")
    _takes_part = "it takes part in x @ q, q[rows] and q.T; q.dense() is the matrix in f32"

    def __init__(
        self, words: Any, scales: Any, bits: int, rows: int, width: int, turned: bool = False
    ) -> None:
        self.words = words
        self.scales = scales
        self.bits = bits
        self.rows = rows
        self.width = width
        self.turned = turned

    @property
    def shape(self) -> tuple[int, int]:
        return (self.width, self.rows) if self.turned else (self.rows, self.width)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def nbytes(self) -> int:
        """Bytes of words and scales."""
        return int(self.words.nbytes + self.scales.nbytes)

    @property
    def T(self) -> Quantized:
        kept = self.bits, self.rows, self.width
        return Quantized(self.words, self.scales, *kept, turned=not self.turned)

    def __repr__(self) -> str:
        return f"Quantized{list(self.shape)}"

    def dense(self) -> Any:
        """The matrix, f32."""
        made = unpacked(self.words, self.scales, self.bits)[: self.width, : self.rows]
        return made if self.turned else made.T

    def __getitem__(self, rows: Any) -> Any:
        """Rows by their numbers, f32[..., K]. Raises GraphError for a matrix with column scales."""
        if self.turned:
            raise GraphError(
                "a matrix quantized by columns has no rows to take",
                hint="quantize it with axis=1, where rows are looked up",
            )
        places = self._places(rows)
        block, lane = functions.floor_divide(places, LANES), functions.remainder(places, LANES)
        lines, scales = (
            functions.reshape(part[block, :, lane], (-1, shape_of(part)[1], 1))
            for part in (self.words, self.scales)
        )
        made = unpacked(lines, scales, self.bits)[: self.width].T
        return functions.reshape(made, (*shape_of(places), self.width))

    def _places(self, rows: Any) -> Any:
        """Rows counted from the first one; those that are none are sent beyond the last block."""
        if not isinstance(rows, Value):
            return np.arange(self.rows)[rows]
        places = functions.where(rows < 0, rows + self.rows, rows)
        beyond = LANES * shape_of(self.words)[0]
        return functions.where((places < 0) | (places >= self.rows), beyond, places)

    def __rmatmul__(self, x: Any) -> Any:
        """x @ q for x[..., K], f32[..., M]. Raises GraphError for an x of another depth."""
        depth, columns = self.shape
        *lead, given = shape_of(x) or (None,)
        if given != depth:
            raise GraphError(f"x @ {self!r} takes x[..., {depth}], got {list(shape_of(x))}")
        count = prod(d if isinstance(d, int) else 1 for d in lead)
        if count >= MANY_ROWS or not self.turned or common_element(x)[0] is not F32:
            return x @ self.dense()
        flat = functions.reshape(x, (-1, depth)) if depth else functions.zeros((count, 0), F32)
        spare = shape_of(self.words)[1] * (WORD // self.bits) - depth
        full = functions.pad(flat, ((0, 0), (0, spare))) if spare else flat
        made = emit("packed_matmul", full, self.words, self.scales, bits=self.bits, columns=columns)
        return functions.reshape(made, (*lead, columns))


def quantize(
    tree: Any,
    axis: int = 0,
    least: int = 1 << 14,
    *,
    bits: int = 8,
    group: int | None = None,
    samples: Sequence[Any] | None = None,
    method: str = "minmax",
    percentile: float = 99.99,
    **options: Any,
) -> Any:
    """The tree with every f32 matrix of at least so many elements in few bits (see `Quantized`).

    `axis` is the one that products sum over: 0 for weights w of x @ w, 1 for tables of which rows
    are looked up, or that are used as x @ w.T.  In 8 bits a row or column is divided by its largest
    magnitude over 127 and rounded: at most a 254th of that is lost of each number.  In 4 `bits` 32
    neighbours along `axis` share what they are divided by, or `group` of them (a multiple of 8; in
    8 bits of 4); their largest becomes -8.  Everything else in the tree (vectors, integers, f64)
    stays as it is.  Raises GraphError where numbers are not finite.

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
    if bits not in (4, 8):
        raise GraphError(f"bits must be 8 or 4, got {bits!r}")
    group = GROUP if group is None and bits == 4 else group
    if group is not None and (group <= 0 or group % (WORD // bits)):
        raise GraphError(f"group must be a multiple of {WORD // bits}, got {group!r}")

    def convert(leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.ndim != 2 or array.dtype != np.float32 or array.size < least:
            return leaf
        return _quantized(array, axis, bits, group)

    return tree_map(convert, tree)


def _quantized(array: Any, axis: int, bits: int, group: int | None) -> Quantized:
    held = array.T if axis == 0 else array
    rows, width = held.shape
    if not np.isfinite(held).all():
        raise GraphError("a matrix with NaN or infinite numbers cannot be quantized")
    run = group or -(-max(width, 1) // (WORD // bits)) * (WORD // bits)
    full = np.zeros((-(-rows // LANES) * LANES, -(-max(width, 1) // run) * run), np.float32)
    full[:rows, :width] = held
    parts = full.reshape(len(full), -1, run)
    scales = _scales(parts, bits)
    most = 2 ** (bits - 1)
    lowest = 1 - most if bits == 8 else -most
    integers = np.rint(parts / scales[..., None]).clip(lowest, most - 1).astype(np.int32)
    words = packed(integers.reshape(full.shape), bits)
    lanes = scales.reshape(-1, LANES, scales.shape[1]).swapaxes(1, 2)
    return Quantized(words, np.ascontiguousarray(lanes), bits, rows, width, turned=axis == 0)


def _scales(parts: Any, bits: int) -> Any:
    """What the integers of each group count in: the largest magnitude becomes 127, or -8."""
    if bits == 8:
        scales = np.abs(parts).max(axis=2) / np.float32(127)
    else:
        low, high = parts.min(axis=2), parts.max(axis=2)
        scales = np.where(high > -low, high, low) / np.float32(-8)
    return np.where(scales == 0, np.float32(1), scales)  # too small for f32, or zeros


def _again(kept: Any, children: Sequence[Any]) -> Quantized:
    words, scales = children
    return Quantized(words, scales, *kept)


register_pytree(
    Quantized, lambda q: ((q.words, q.scales), (q.bits, q.rows, q.width, q.turned)), _again
)
