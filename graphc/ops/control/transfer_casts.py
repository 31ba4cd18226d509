"""Half the bytes for transfers between devices: the upper 16 bits of an f32, and back.

    f32   s eeeeeeee mmmmmmm | mmmmmmmmmmmmmmmm        sign, exponent and 7 of 23 bits are kept,
    u16   s eeeeeeee mmmmmmm |                         the others read as zero on arrival

Abadi et al., "TensorFlow: Large-Scale Machine Learning on Heterogeneous Distributed Systems"
(2015), section 5.5, cut the rest off; that loses up to 2**-7 of a value, always towards zero.
Rounding to the nearest loses 2**-8 without a bias, but the largest finite values become infinite
unless they saturate.  A NaN stays a NaN (cut off, one whose payload is in the lower half would
be an infinity), zeros and infinities keep their sign, and what is 16 bits wide already stays exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import Alias, Attr, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import DTYPES, F32, AnyType
from graphc.loops.nest import Expr
from graphc.loops.scalars import is_nan, where
from graphc.ops.record.arguments import Array, ArrayLike
from graphc.ops.record.batching import leading
from graphc.ops.record.families import (
    ALL,
    define,
    elementwise,
    require_tensor,
    sample_array,
    special_values,
)
from graphc.ops.record.value import emit, functions, public

MODES = ("truncate", "nearest", "saturate")
WORST = {"truncate": 2.0**-7, "nearest": 2.0**-8, "saturate": 2.0**-8}  # of a normal number
U16, U32 = DTYPES["u16"], DTYPES["u32"]
_QUIET = 0x40  # the bit that keeps a NaN a NaN
_INFINITE = 0x7F80


def _expression(x: Expr, *, mode: str) -> Any:
    bits = x.bitcast(U32)
    high = bits >> 16
    kept = high
    if mode != "truncate":
        half = high.like(0x7FFF) + (high & 1)
        kept = (bits + half) >> 16
    if mode == "saturate":
        infinite = high.like(_INFINITE)
        over = (kept & 0x7FFF) == infinite
        was = (high & 0x7FFF) == infinite
        kept = where(over, where(was, kept, kept - 1), kept)
    quiet = high | _QUIET
    return where(is_nan(x), quiet, kept).cast(U16)


def _reference(x: Array, mode: str) -> Any:
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    high = bits >> 16
    kept = high if mode == "truncate" else (bits + (0x7FFF + (high & 1))) >> 16
    if mode == "saturate":
        kept = np.where(np.isfinite(x) & (kept & 0x7FFF == _INFINITE), kept - 1, kept)
    return np.where(np.isnan(x), high | _QUIET, kept).astype(np.uint16)


def _samples() -> list[Sample]:
    patterns = [0x7F800001, 0xFF80FFFF, 0x7FC00000, 0x7F7FFFFF, 0xFF7F8000, 0x7F7F7FFF, 0x0000FFFF]
    patterns += [0x00010000, 0x80000001, 0x3F808000, 0x3F818000, 0x3F808001]
    odd = np.array(patterns, np.uint32).view(np.float32)
    values = np.concatenate(
        [sample_array("f32", (40,), (-300, 300), 0), special_values("f32"), odd]
    )
    good = [Sample((values,), {"mode": mode}) for mode in MODES]
    good.append(Sample((np.float32(257),)))
    bad = [Sample((np.ones(3),), good=False), Sample((np.float32(1),), {"mode": "up"}, good=False)]
    return good + bad


def _widened() -> list[Sample]:
    values = np.array([0, 0x8000, 0x3F80, 0x7F80, 0xFF80, 0x7F7F, 0x0001, 0x4380], np.uint16)
    return [Sample((values,)), Sample((np.ones(1, np.int16),), good=False)]


TRUNCATE = elementwise(
    "truncate16",
    _expression,
    _reference,
    dtypes=("f32",),
    result=lambda _: U16,
    attrs=(Attr("mode", "str", "truncate", choices=MODES),),
    differentiable=False,
    samples=_samples,
    public_name="",
    flops=3,
    doc="The upper 16 bits of a float: cut off, or rounded to the nearest (which may give an "
    "infinity, unless it saturates).",
)

WIDEN = elementwise(
    "widen16",
    lambda x: (x.cast(U32) << 16).bitcast(F32),
    lambda x: (np.asarray(x, np.uint32) << 16).view(np.float32),
    dtypes=("u16",),
    result=lambda _: F32,
    differentiable=False,
    samples=_widened,
    public_name="",
    doc="The float with these upper 16 bits, and zeros below.",
)


@public()
def truncate16(x: ArrayLike, mode: str = "truncate") -> Any:
    """The upper 16 bits of f32 values as u16: half the bytes, 8 significant bits.

    mode   "truncate" cuts the rest off, "nearest" rounds halves to even, "saturate" does so but
           keeps finite values finite
    """
    return emit("truncate16", x, mode=mode)


@public()
def widen16(x: ArrayLike) -> Any:
    """The f32 values whose upper 16 bits these u16 are (see `truncate16`)."""
    return emit("widen16", x)


# ---------------------------------------------------------------------------------- exact transfers


def _infer_exact(x: AnyType) -> AnyType:
    require_tensor("exact", x)
    return x


define(
    "exact",
    batch=leading,
    infer=_infer_exact,
    reference=lambda x: x,
    lower=Alias(),
    dtypes=ALL,
    gradient=lambda ct, result, x: (functions.exact(ct),),
    samples=lambda: [Sample((sample_array(n, (3, 4), (-4.0, 4.0), 0),)) for n in ALL],
    doc="Its operand, which crosses between devices and enters products in full, and so does its "
    "gradient.",
    traits=Traits(exact=True, wide=True),
)


@public()
def exact(x: ArrayLike) -> Any:
    """x itself, except that `compress` never shortens its transfers, nor those of its gradient, and
    products read it in full whatever the `precision`."""
    return emit("exact", x)
