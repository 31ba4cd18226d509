"""Element types narrower than graphs have: how numbers are rounded to them.

Only what makes such values (Cast, QuantizeLinear) has to know.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from graphc.formats.encoded_values import CARRIED
from graphc.ops.record.value import functions as f


def limits_of(element: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    if element in CARRIED:
        bits = int(element.removeprefix("u").removeprefix("int"))
        return (0, 2**bits - 1) if element[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    info = np.iinfo(element)
    return int(info.min), int(info.max)


def rounded(x: Any, element: str, saturate: bool) -> Any:
    """x as elements of a narrow type, in the type that carries them."""
    if "float" not in element:
        bits = int(element.removeprefix("u").removeprefix("int"))
        whole = x if np.dtype(x.dtype).kind in "iu" else f.astype(f.astype(x, np.float32), np.int64)
        low = f.bitwise_and(f.astype(whole, np.int64), 2**bits - 1)
        if element[0] != "u":
            low = f.subtract(f.bitwise_xor(low, 2 ** (bits - 1)), 2 ** (bits - 1))
        return f.astype(low, CARRIED[element])
    return _rounded_float(f.astype(x, np.float32), element, saturate)


def _power_of_two(x: Any) -> Any:
    """The power of two at or above |x|, within what eight bits of exponent hold."""
    part, exponent = f.frexp(f.abs(x))
    exact = f.equal(part, np.float32(0.5))
    up = f.where(exact, f.subtract(exponent, 1), exponent)
    up = f.where(f.equal(part, 0), -127, up)
    made = f.exp2(f.astype(f.clip(up, -127, 127), np.float32))
    return f.where(f.isfinite(x), made, np.float32(np.nan))


def _rounded_float(x: Any, element: str, saturate: bool) -> Any:
    """The nearest number of a narrow float type, ties to the even one.

    Adding and taking away a power of two that leaves as many digits as the type has rounds, for
    the exponent of each number or the smallest one of the type.
    """
    info: Any = ml_dtypes.finfo(getattr(ml_dtypes, element))  # type: ignore[no-untyped-call]
    digits = int(info.nmant)
    top, least = float(info.max), float(info.smallest_normal)
    if element == "float8_e8m0fnu":
        return _power_of_two(x)
    _, exponent = f.frexp(f.maximum(f.abs(x), np.float32(least)))
    step = f.exp2(f.astype(f.subtract(exponent, 1 + digits), np.float32))
    near = f.multiply(f.rint(f.divide(x, step)), step)
    over = f.greater(f.abs(near), np.float32(top))
    has_infinity, has_nan = "fn" not in element, not element.startswith("float4")
    limit = f.copysign(np.float32(top), x)
    beyond: Any = limit
    if not saturate and has_nan:
        beyond = f.copysign(np.float32(np.inf), x) if has_infinity else np.float32(np.nan)
    made = f.where(over, beyond, near)
    if element.endswith("uz"):
        made = f.add(made, np.float32(0))
        made = f.where(f.equal(made, 0), np.float32(0), made)
    infinite = f.isinf(x)
    if saturate or not has_nan:
        at_infinity: Any = limit
    else:
        at_infinity = f.copysign(np.float32(np.inf), x) if has_infinity else np.float32(np.nan)
    made = f.where(infinite, at_infinity, made)
    return f.where(f.isnan(x), np.float32(np.nan if has_nan else -0.0), made)
