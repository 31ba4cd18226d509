"""Python text of the helper functions that generated source calls: what Python has no operator for.

A helper's name is its kind and its types (`idiv_i32`, `cast_f32_u8`).  `helper_text` returns its
source and the helpers it calls itself.
"""

from __future__ import annotations

import numpy as np

from graphc.codegen.llvm.scalar import literal
from graphc.errors import GraphError
from graphc.ir.types import DTYPES, F64, U64, DType

Helper = tuple[str, tuple[str, ...]]

MINIMUM = """
def {op}_{t}(x, y):
    # A NaN operand gives NaN; -0 is less than +0.
    if x == y:
        left, right = {np}(x).view({uint}), {np}(y).view({uint})
        return {uint}(left {zeros} right).view({np})
    return x if x {sign} y or x != x else y
"""
IDIV_SIGNED = """
def idiv_{t}(x, y):
    # Truncates; by zero it is 0, and the minimum over -1 wraps.
    if y == 0:
        return {np}(0)
    if y == -1:
        return {np}(-x)
    quotient = x // y
    return {np}(quotient + (quotient < 0 and quotient * y != x))
"""
IREM_SIGNED = """
def irem_{t}(x, y):
    # The remainder has the sign of x; by zero it is 0.
    if y == 0 or y == -1:
        return {np}(0)
    rest = x % y
    return {np}(rest - y if rest != 0 and (rest < 0) != (x < 0) else rest)
"""
DIVISION_UNSIGNED = """
def {op}_{t}(x, y):
    return {np}(0) if y == {np}(0) else {np}(x {sign} y)
"""
SHIFT = """
def {op}_{t}(x, count):
    # A count outside 0..{last} shifts everything out.
    return {np}(x {sign} count) if count >= {np}(0) and count <= {np}({last}) else {np}({rest})
"""
POPCOUNT = """
def popcount_u64(x):
    # Counts of 2, 4 and 8 bits side by side, then their sum in the top byte.
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    pairs = x & np.uint64(0x3333333333333333)
    x = pairs + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)
"""
POPCOUNT_OF = """
def popcount_{t}(x):
    return {np}(popcount_u64(np.uint64(x){mask}))
"""
QUADS = """
def quads_i32(x, y, z):
    # Products of u8 with i8 at the same places, and a sum that wraps.
    made = np.int64(z)
    for place in (24, 16, 8, 0):
        unsigned = (np.int64(x) >> place) & 255
        made += unsigned * (((np.int64(y) >> place) & 255 ^ 128) - 128)
    return np.int32(((made + 2147483648) & 4294967295) - 2147483648)
"""
CLZ = """
def clz_{t}(x):
    # Smear the highest set bit to the right; the zeros that are left are the leading ones.
    y = np.uint64(x){mask}
    y = y | (y >> np.uint64(1))
    y = y | (y >> np.uint64(2))
    y = y | (y >> np.uint64(4))
    y = y | (y >> np.uint64(8))
    y = y | (y >> np.uint64(16))
    y = y | (y >> np.uint64(32))
    return {np}(np.uint64({bits}) - popcount_u64(y))
"""
SATURATE = """
def cast_{s}_{t}(x):
    # Truncates and saturates; NaN gives 0.
    if x != x:
        return {np}(0)
    if x <= {low}:
        return {np}({least})
    if x >= {high}:
        return {np}({most})
    return {np}(x)
"""
FROM_BF16 = """
def cast_bf16_f32(x):
    return np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)
"""
FROM_F16 = """
def cast_f16_f32(x):
    # Exponent and fraction move to their places; multiplying by 2**112 corrects the bias.
    placed = np.uint32((np.uint32(x) & np.uint32(0x7FFF)) << np.uint32(13))
    scaled = placed.view(np.float32) * np.float32(5.192296858534828e33)
    special = np.uint32(placed | np.uint32(0x7F800000))
    size = special if placed >= np.uint32(0x0F800000) else np.float32(scaled).view(np.uint32)
    sign = np.uint32((np.uint32(x) & np.uint32(0x8000)) << np.uint32(16))
    return np.uint32(size | sign).view(np.float32)
"""
TO_BF16 = """
def cast_f32_bf16(x):
    # Rounds to nearest even; NaN stays NaN.
    bits = np.float32(x).view(np.uint32)
    if x != x:
        return np.uint16((bits >> np.uint32(16)) | np.uint32(64))
    even = np.uint32((bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + even) >> np.uint32(16))
"""
TO_F16 = """
def cast_f32_f16(x):
    # Rounds to nearest even; NaN stays NaN.
    bits = np.float32(x).view(np.uint32)
    sign = np.uint16((bits >> np.uint32(16)) & np.uint32(0x8000))
    size = np.uint32(bits & np.uint32(0x7FFFFFFF))
    if size > np.uint32(0x7F800000):
        return np.uint16(sign | np.uint16(0x7E00))
    if size >= np.uint32(0x47800000):
        return np.uint16(sign | np.uint16(0x7C00))
    if size < np.uint32(0x38800000):
        # Subnormal: the float adder aligns and rounds the fraction.
        aligned = np.float32(abs(x) + np.float32(0.5)).view(np.uint32)
        return np.uint16(sign | np.uint16(aligned - np.uint32(0x3F000000)))
    even = np.uint32((size >> np.uint32(13)) & np.uint32(1))
    rounded = np.uint32(size - np.uint32(0x37FFF001) + even)
    return np.uint16(sign | np.uint16(rounded >> np.uint32(13)))
"""
ROUND_TO_ODD = """
def round_to_odd(x):
    # f64 to f32 so that rounding once more cannot err: truncate, and set the last bit if inexact.
    near = np.float32(x)
    if np.float64(near) == x or x != x:
        return near
    bits = near.view(np.uint32)
    above = np.uint32(1) if abs(np.float64(near)) > abs(x) else np.uint32(0)
    return np.uint32(np.uint32(bits - above) | np.uint32(1)).view(np.float32)
"""
FROM_F64 = """
def cast_f64_{t}(x):
    return cast_f32_{t}(round_to_odd(x))
"""


def storage(dtype: DType) -> str:
    """The NumPy scalar type that holds a value: 16-bit floats travel as their bits."""
    if dtype.name in ("f16", "bf16"):
        return "np.uint16"
    return "np.bool_" if dtype.kind == "b" else f"np.{dtype.numpy.name}"


def storage_dtype(dtype: DType) -> np.dtype:
    """The NumPy type of the arrays that generated source is called with."""
    return np.dtype(np.uint16) if dtype.name in ("f16", "bf16") else dtype.numpy


def number(value: object, dtype: DType) -> str:
    """A typed literal."""
    if dtype.kind == "b":
        return "True" if value else "False"
    if dtype.name in ("f16", "bf16"):
        return f"np.uint16({literal(value, dtype)})"
    if dtype.kind == "f":
        return _float(float.fromhex(str(value)), dtype)
    text = literal(value, dtype)  # signed form, as LLVM writes it
    if dtype.kind == "u" and text.startswith("-"):
        text = str(int(text) + (1 << dtype.bits))
    return text if dtype.name == "i64" else f"{storage(dtype)}({text})"


def _float(value: float, dtype: DType) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        text = "np.nan" if value != value else "np.inf" if value > 0 else "-np.inf"
    elif dtype is F64:
        text = repr(value)
    else:
        # The short form if reading it as f64 and rounding once more gives the same number.
        single = dtype.numpy.type(value)
        short, exact = str(single), repr(float(single))
        same = dtype.numpy.type(float(short)) == single and len(short) < len(exact)
        text = short if same else exact
    return text if dtype is F64 else f"{storage(dtype)}({text})"


def _cast(source: DType, result: DType) -> Helper:
    fields = {"s": source.name, "t": result.name, "np": storage(result)}
    fixed = {
        ("bf16", "f32"): FROM_BF16,
        ("f16", "f32"): FROM_F16,
        ("f32", "bf16"): TO_BF16,
        ("f32", "f16"): TO_F16,
    }
    if (source.name, result.name) in fixed:
        return fixed[source.name, result.name], ()
    if source is F64 and result.name in ("f16", "bf16"):
        return FROM_F64.format(**fields), (f"cast_f32_{result.name}", "round_to_odd")
    signed = result.kind == "i"
    power = result.bits - 1 if signed else result.bits
    return SATURATE.format(
        **fields,
        low=_float(float(-(2**power) if signed else 0), source),
        high=_float(float(2**power), source),
        least=-(2**power) if signed else 0,
        most=2**power - 1,
    ), ()


def helper_text(name: str) -> Helper:
    """Source of a helper function and the names of the helpers it needs."""
    if name == "popcount_u64":
        return POPCOUNT, ()
    if name == "round_to_odd":
        return ROUND_TO_ODD, ()
    op, *types = name.split("_")
    first = DTYPES[types[0]]
    fields = {"op": op, "t": first.name, "np": storage(first), "bits": first.bits}
    fields["mask"] = f" & np.uint64({2**first.bits - 1})" if first is not U64 else ""
    match op:
        case "cast":
            return _cast(first, DTYPES[types[1]])
        case "minimum" | "maximum":
            sign, zeros = ("<", "|") if op == "minimum" else (">", "&")
            return MINIMUM.format(**fields, sign=sign, zeros=zeros, uint=f"np.uint{first.bits}"), ()
        case "idiv" | "irem":
            if first.kind == "u":
                return DIVISION_UNSIGNED.format(**fields, sign="//" if op == "idiv" else "%"), ()
            return (IDIV_SIGNED if op == "idiv" else IREM_SIGNED).format(**fields), ()
        case "shl" | "shr":
            rest = "-1 if x < 0 else 0" if op == "shr" and first.kind == "i" else "0"
            sign = "<<" if op == "shl" else ">>"
            return SHIFT.format(**fields, sign=sign, last=first.bits - 1, rest=rest), ()
        case "popcount":
            return POPCOUNT_OF.format(**fields), ("popcount_u64",)
        case "quads":
            return QUADS, ()
        case "clz":
            return CLZ.format(**fields), ("popcount_u64",)
    raise GraphError(f"no helper function named {name}")
