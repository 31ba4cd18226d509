"""Weights in few bits: matrices as numbers of 8 or 4 bits, and what those count in.

A product by such a matrix reads a quarter or a sixth of the bytes of f32, which is what it waits
for where it has few rows: a language model that writes one token at a time.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from math import frexp, prod
from typing import Any, NamedTuple

import numpy as np

from graphc.base.hints import meant
from graphc.base.refusing import refusing
from graphc.config import OF_FUNCTIONS, Config
from graphc.errors import GraphError, GraphHint
from graphc.frontend.trace.tree import register_pytree
from graphc.frontend.transforms.markers import stop_gradient
from graphc.ir.types import F32
from graphc.ir.user_lines import locate
from graphc.learn.calibrate import affine, calibrated
from graphc.learn.trees import tree_map
from graphc.ops.linalg.few_bits import LANES, WORD, packed, steps_of, unpacked
from graphc.ops.linalg.small_floats import BIAS, FORMS, Form, codes, rounded
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import require
from graphc.ops.record.value import Factor, Value, common_element, emit, functions, lift

MANY_ROWS = 256  # a matrix that so many rows are multiplied with is widened first
GROUP = 32  # weights of 4 bits that share a scale, and of the formats of MX
_OPTIONS = ("axis", "least", "bits", "group", "format", "samples", "method", "percentile")
FORMATS = {"e4m3": "e4m3", "e5m2": "e5m2", "mxfp8": "e4m3", "mxfp4": "e2m1"}


class Layout(NamedTuple):
    """How numbers are held: integers of `bits`, or floats of that `form`, with one scale for each
    `group` of them (None: for all that a product adds), which may be a power of two."""

    bits: int
    form: Form | None
    powers: bool
    group: int | None


class Quantized(Factor):
    """A matrix of f32 as numbers of few bits in `words`, times `scales`.

    x @ q, q[rows], q.T and q.shape are what they are of the matrix; `dense()` is the matrix.  It is
    a pytree: compiled functions take it like an array.  How words and scales are laid out, sixteen
    rows side by side, `ops/linalg/few_bits.py` says; `rows` and `width` are the sizes of what they
    hold, and `turned`: it stands for the transpose of that, so that its columns have scales.  Of
    floats `exponent` is how many of the bits are the exponent's; integers have none.
    """

    __slots__ = ("bits", "exponent", "rows", "scales", "turned", "width", "words")
    _takes_part = "it takes part in x @ q, q[rows] and q.T; q.dense() is the matrix in f32"

    def __init__(
        self,
        words: Any,
        scales: Any,
        bits: int,
        rows: int,
        width: int,
        turned: bool = False,
        exponent: int = 0,
    ) -> None:
        self.words = words
        self.scales = scales
        self.bits = bits
        self.exponent = exponent
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
        return Quantized(self.words, self.scales, *kept, not self.turned, self.exponent)

    def __repr__(self) -> str:
        return f"Quantized{list(self.shape)}"

    def dense(self) -> Any:
        """The matrix, f32."""
        made = unpacked(self.words, self.scales, self.bits, self.exponent)
        made = made[: self.width, : self.rows]
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
        parts = [self.words, self.scales]
        if isinstance(places, Value):  # an array of a closure takes no traced index
            parts = [lift(part, places.owner) for part in parts]
        lines, scales = (
            functions.reshape(part[block, :, lane], (-1, shape_of(part)[1], 1)) for part in parts
        )
        made = unpacked(lines, scales, self.bits, self.exponent)[: self.width].T
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
        dense = count >= MANY_ROWS or not self.turned or not columns
        if dense or common_element(x)[0] is not F32:
            return x @ self.dense()
        flat = functions.reshape(x, (-1, depth)) if depth else functions.zeros((count, 0), F32)
        spare = shape_of(self.words)[1] * (WORD // self.bits) - depth
        full = functions.pad(flat, ((0, 0), (0, spare))) if spare else flat
        form = {"bits": self.bits, "exponent": self.exponent}
        made = emit("packed_matmul", full, self.words, self.scales, **form, columns=columns)
        return functions.reshape(made, (*lead, columns))


def _refuse_settings_of_samples(method: str | None, percentile: float | None) -> None:
    for name, said in (("method", method), ("percentile", percentile)):
        if said is not None:
            raise GraphError(
                f"{name}={said!r} says what of samples is taken, and there are none",
                hint="gc.quantize(model, samples=[(x,), ...]) quantizes a function on them",
            )


@refusing
def quantize(
    tree: Any,
    axis: int = 0,
    least: int = 1 << 14,
    *,
    bits: int | None = None,
    group: int | None = None,
    format: str | None = None,
    samples: Sequence[Any] | None = None,
    method: str | None = None,
    percentile: float | None = None,
    **options: Any,
) -> Any:
    """The tree with every f32 matrix of at least so many elements in few bits (see `Quantized`).

    `axis` is the one that products sum over: 0 for weights w of x @ w, 1 for tables of which rows
    are looked up, or that are used as x @ w.T.  In 8 bits a row or column is divided by its largest
    magnitude over 127 and rounded: at most a 254th of that is lost of each number.  In 4 `bits` 32
    neighbours along `axis` share what they are divided by, or `group` of them (a multiple of 8; in
    8 bits of 4); their largest becomes -8.  Everything else in the tree (vectors, integers, f64)
    stays as it is; where that is all of it, a GraphHint says why.  Raises GraphError where numbers
    are not finite.

    With a `format` numbers are floats: "e4m3" and "e5m2" have 8 bits and a scale for each row or
    column, which makes the largest the format's; in "mxfp8" (e4m3) and "mxfp4" (e2m1, 4 bits) 32
    neighbours share a power of two in one byte, as the microscaling specification has it.

    With `samples`, a list of the arguments of calls (a tuple each, or the only one), `tree` is a
    function: it is made anew with its products by constants in 8 bits on both sides (see
    `Calibrated`).  What it multiplies them with is rounded to u8 over its range in the samples:
    all of it ("minmax", the default), without the last few ("percentile", 99.99 of them by
    default), or so that the square of the error is least ("mse").  `options` are those of
    `gc.compile`.  Raises GraphError where no product is by a constant, or numbers are not finite.
    """
    _require_options(options)
    if samples is not None:
        for name, given in (("bits", bits), ("group", group), ("format", format)):
            if given is not None and (name, given) != ("bits", 8):
                raise GraphError(f"a function is quantized to bytes, not to {name}={given!r}")
        kept = 99.99 if percentile is None else percentile
        return calibrated(tree, samples, method or "minmax", kept, options)
    _refuse_settings_of_samples(method, percentile)
    if options or callable(tree):
        raise GraphError(
            "a function is quantized on samples", hint="gc.quantize(model, samples=[(x,), ...])"
        )
    layout = _layout(axis, bits, group, format)
    reasons: list[str] = []  # why leaves stay; "" for one that does not

    def convert(leaf: Any) -> Any:
        array = np.asarray(leaf)
        reasons.append(reason := _reason_to_stay(array, least))
        return leaf if reason else _quantized(array, axis, layout)

    made = tree_map(convert, tree)
    if all(reasons):
        _hint_unchanged(reasons)
    return made


def _require_options(options: dict[str, Any]) -> None:
    """Raise GraphError for an option that neither `quantize` nor `gc.compile` has."""
    known = {*_OPTIONS, *Config.__match_args__, *OF_FUNCTIONS}
    for name in options.keys() - known:
        hint = meant(name, known) or f"options of quantize are {', '.join(_OPTIONS)}"
        raise GraphError(f"there is no option {name!r}", hint=hint)


def _reason_to_stay(array: Any, least: int) -> str:
    """What keeps an array from being quantized; "" where nothing does."""
    if array.dtype != np.float32:
        return f"of {array.dtype} and not float32"
    if array.ndim != 2:
        return f"of rank {array.ndim} and no matrix"
    return f"of fewer than least={least} numbers" if array.size < least else ""


def _hint_unchanged(reasons: Sequence[str]) -> None:
    """Warn that a tree came back as it went in."""
    counts = Counter(reasons).most_common(4)
    told = ", ".join(f"{count} {'is' if count == 1 else 'are'} {why}" for why, count in counts)
    text = f"nothing was quantized: {told or 'the tree holds no array'}"
    warnings.warn_explicit(text, GraphHint, *(locate() or ("<unknown>", 1)))


@refusing
def fake_quantize(
    x: Any,
    bits: int | None = None,
    axis: int = 0,
    group: int | None = None,
    *,
    format: str | None = None,
    limits: tuple[float, float] | None = None,
) -> Any:
    """x as it is after it was quantized, with the gradient of x itself (straight through).

    A matrix f32[K, N] becomes what `quantize(x, axis, ...).dense()` with the same `bits`, `group`
    and `format` is, so that training sees what rounding will do and ends with weights that stand
    it.  With `limits`, numbers
    of any shape are rounded to u8 over that range, as `quantize(model, samples=...)` rounds what is
    multiplied: those outside become its ends, and get no gradient.  Raises GraphError for what is
    no matrix of f32 without limits, and for limits that are no range.
    """
    if limits is not None:
        if format is not None or group is not None:
            raise GraphError("numbers are rounded to bytes over limits: no format, no group")
        return _in_limits(x, 8 if bits is None else bits, limits)
    layout = _layout(axis, bits, group, format)
    if rank_of(x) != 2 or common_element(x)[0] is not F32:
        raise GraphError(
            f"fake_quantize takes a matrix of f32, got {common_element(x)[0]}{list(shape_of(x))}",
            hint="give limits=(low, high) to round numbers of another shape",
        )
    held = stop_gradient(x.T if axis == 0 else x)
    rows, width = shape_of(held)
    parts = _parts(held, layout)
    numbers, scales = _rounded(parts, layout)
    steps = steps_of(scales)
    made = functions.reshape(numbers * steps[..., None], (rows, prod(shape_of(parts)[1:])))
    made = made[:, :width]
    return _straight(x, made.T if axis == 0 else made)


def _in_limits(x: Any, bits: int, limits: tuple[float, float]) -> Any:
    low, high = limits
    width, known = max(high, 0.0) - min(low, 0.0), np.finfo(np.float32)
    if bits != 8 or not (low < high and 255 * float(known.tiny) <= width <= float(known.max)):
        raise GraphError(
            f"limits are two finite numbers of f32 for 8 bits, got {limits} for {bits}"
        )
    kind = affine((float(low), float(high)))
    first, last = (kind.scale * np.float32(end - kind.zero) for end in (0, 255))
    inside = functions.clip(functions.astype(x, "f32"), first, last)
    held = stop_gradient(inside)
    return _straight(inside, functions.rint(held / kind.scale) * kind.scale)


def _straight(x: Any, made: Any) -> Any:
    """Exactly `made`, with the gradient of x."""
    return made + (x - stop_gradient(x))


def _layout(axis: int, bits: int | None, group: int | None, format: str | None) -> Layout:
    """How a matrix is held. Raises GraphError."""
    if axis not in (0, 1):
        raise GraphError(f"axis must be 0 or 1, got {axis!r}")
    if format is not None and format not in FORMATS:
        raise GraphError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    form = FORMS[FORMATS[format]] if format is not None else None
    width = form.bits if form is not None else bits if bits is not None else 8
    if width not in (4, 8) or bits not in (None, width) or type(width) is not int:
        held = f"{width} in {format}" if form is not None else "8 or 4"
        raise GraphError(f"bits must be {held}, got {bits!r}")
    powers = format is not None and format.startswith("mx")
    if group is None:
        group = GROUP if width == 4 or powers else None
    elif group <= 0 or group % (WORD // width):
        raise GraphError(f"group must be a multiple of {WORD // width}, got {group!r}")
    return Layout(width, form, powers, group)


def _quantized(array: Any, axis: int, layout: Layout) -> Quantized:
    held = array.T if axis == 0 else array
    rows, width = held.shape
    if not np.isfinite(held).all():
        raise GraphError("a matrix with NaN or infinite numbers cannot be quantized")
    full = np.zeros((-(-rows // LANES) * LANES, width), np.float32)
    full[:rows] = held
    numbers, scales = _rounded(_parts(full, layout), layout)
    form = layout.form
    integers = numbers if form is None else codes(numbers, form)
    words = packed(integers.reshape(len(full), prod(integers.shape[1:])), layout.bits)
    lanes = np.ascontiguousarray(scales.reshape(-1, LANES, scales.shape[1]).swapaxes(1, 2))
    exponent = form.exponent if form is not None else 0
    return Quantized(words, lanes, layout.bits, rows, width, axis == 0, exponent)


def _parts(held: Any, layout: Layout) -> Any:
    """Rows as [rows, groups, numbers], filled up with zeros to whole groups of whole words."""
    rows, width = shape_of(held)
    require(isinstance(width, int), "the rows of a matrix of few bits have a known length")
    assert isinstance(width, int)
    word, least = WORD // layout.bits, max(width, 1)
    run = layout.group or -(-least // word) * word
    spare = -(-least // run) * run - width
    full = functions.pad(held, ((0, 0), (0, spare))) if spare else held
    return functions.reshape(full, (rows, (width + spare) // run, run))


def _rounded(parts: Any, layout: Layout) -> tuple[Any, Any]:
    """The numbers of [rows, groups, numbers], f32, and what those of each group count in: f32, or
    for powers of two their exponents, u8."""
    if layout.form is None:
        return _integers(parts, layout.bits)
    f, form, largest = functions, layout.form, functions.max(functions.abs(parts), axis=2)
    if layout.powers:
        _, power = f.frexp(largest)
        last = frexp(form.most)[1]
        scales = f.astype(f.clip(power - last + BIAS, 1, 2 * BIAS), "u8")
    else:
        scales = largest / np.float32(form.most)
        scales = f.where(scales == 0, np.float32(1), scales)  # too small for f32, or zeros
    return rounded(parts / steps_of(scales)[..., None], form), scales


def _integers(parts: Any, bits: int) -> tuple[Any, Any]:
    """Integers as f32, and scales: the largest magnitude becomes 127, or -8."""
    f, most = functions, 2 ** (bits - 1)
    if bits == 8:
        scales = f.max(f.abs(parts), axis=2) / np.float32(most - 1)
    else:
        low, high = f.min(parts, axis=2), f.max(parts, axis=2)
        scales = f.where(high > -low, high, low) / np.float32(-most)
    scales = f.where(scales == 0, np.float32(1), scales)  # too small for f32, or zeros
    units = f.rint(parts / scales[..., None])
    return f.clip(units, np.float32(1 - most if bits == 8 else -most), np.float32(most - 1)), scales


def _apart(q: Quantized) -> tuple[Sequence[Any], Any]:
    """Floats are named by their format: files of integers, or of others, are not read as them."""
    held = (q.words, q.scales)
    kept = (q.bits, q.rows, q.width, q.turned, q.exponent)
    return (held if not q.exponent else ({_format(kept): q.words, "scales": q.scales},)), kept


def _again(kept: Any, children: Sequence[Any]) -> Quantized:
    if kept[-1]:
        (named,) = children
        children = named[_format(kept)], named["scales"]
    words, scales = children
    return Quantized(words, scales, *kept)


def _format(kept: Any) -> str:
    bits, *_, exponent = kept
    return next(name for name, form in FORMS.items() if form[:2] == (bits, exponent))


register_pytree(Quantized, _apart, _again)
