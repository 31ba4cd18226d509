"""Floats of 4 and 8 bits, as weights are stored in them: a sign, an exponent, a mantissa.

    e2m1    4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
    e4m3    8 bits: up to 448, 2**-9 apart where they are least
    e5m2    8 bits: up to 57344, 2**-16 apart

Formats are those of the "OCP 8-bit Floating Point Specification" and of the "OCP Microscaling
Formats (MX) Specification", 2023, but for one thing: codes that stand for infinities and NaN there
are the numbers that follow on the largest here.  Rounding makes none of them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.types import F32, I32
from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, where
from graphc.ops.record.arguments import Array
from graphc.ops.record.value import functions

FRACTION = 23  # bits of the mantissa of f32
BIAS = 127  # of its exponent
MANY_EXPONENTS = 4  # bits of an exponent: hardly a number has the least one


class Form(NamedTuple):
    """A float of `bits` bits, `exponent` of them for the exponent; finite up to `most`."""

    bits: int
    exponent: int
    most: float

    @property
    def mantissa(self) -> int:
        return self.bits - 1 - self.exponent

    @property
    def bias(self) -> int:
        return int(2 ** (self.exponent - 1)) - 1


FORMS = {"e2m1": Form(4, 2, 6.0), "e4m3": Form(8, 4, 448.0), "e5m2": Form(8, 5, 57344.0)}


@cache
def values(bits: int, exponent: int) -> Array:
    """The number of every code, f32[2**bits]."""
    form = Form(bits, exponent, np.inf)
    code = np.arange(2 ** (bits - 1))
    power, part = code >> form.mantissa, code & (2**form.mantissa - 1)
    whole = np.where(power > 0, part + 2**form.mantissa, part)
    made = np.ldexp(whole, np.maximum(power, 1) - form.bias - form.mantissa).astype(np.float32)
    return np.concatenate([made, -made])


def codes(x: Array, form: Form) -> Any:
    """The codes of numbers that have one, i64."""
    numbers = values(form.bits, form.exponent)[: 2 ** (form.bits - 1)]
    return np.searchsorted(numbers, np.abs(x)) + (x < 0) * len(numbers)


def rounded(x: Any, form: Form) -> Any:
    """The nearest number of the format, of two the even one; beyond its largest that."""
    f = functions
    _, power = f.frexp(f.astype(x, "f32"))
    last = f.maximum(power - 1, 1 - form.bias) - form.mantissa
    step = f.ldexp(np.float32(1), last)
    return f.clip(f.rint(x / step) * step, np.float32(-form.most), np.float32(form.most))


def unit_of(bits: int, exponent: int) -> float:
    """What `decoded` counts in: a power of two that makes numbers less than 2, so that sums of
    products are no larger than those of the matrix itself."""
    most = {form[:2]: form.most for form in FORMS.values()}
    return 2.0 ** math.floor(math.log2(most[bits, exponent])) if exponent else 1.0


def decoded(word: Expr, ahead: int, bits: int, exponent: int) -> Expr:
    """The f32 of the code that has `ahead` bits before it in a word, an i32, by its unit.

    Its bits are put where those of an f32 are; a power of two makes up for the bias, and for the
    hidden bit, which subnormal numbers of either format lack.  CPUs that are slow with subnormal
    operands meet few in formats of many exponents.  With few exponents they are common: there the
    bias is added, and n, which has a hidden bit then, is 2 n less what that added, whichever is
    smaller.
    """
    form = Form(bits, exponent, np.inf)
    place = FRACTION - form.mantissa
    bias = BIAS - form.bias - int(math.log2(unit_of(bits, exponent)))
    size, sign = (1 << bits - 1) - 1 << place, -(1 << 31)
    code = word << ahead >> 8 - exponent
    if exponent >= MANY_EXPONENTS:
        return (code & (sign | size)).bitcast(F32) * 2.0**bias
    normal = ((code & size) + (bias << FRACTION)).bitcast(F32)
    other = fma(normal, 2.0, -(2.0 ** (1 - BIAS + bias)))
    number = where(other < normal, other, normal)
    return (number.bitcast(I32) | (code & sign)).bitcast(F32)
