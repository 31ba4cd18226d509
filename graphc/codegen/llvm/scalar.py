"""LLVM instructions of scalar expressions: one function per expression op.

Every function takes the writer of the enclosing LLVM function, the expression and the names of its
operands, and returns the name (or literal) of the result.  f16 and bf16 travel as `i16`, bool as
`i1`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from graphc.ir.types import BF16, BOOL, F16, F32, F64, DType
from graphc.loops.nest import FLUSHED, Expr

Range = tuple[int, int]


class Writer(Protocol):
    """What an instruction needs from the function being written."""

    contract: str  # " contract" or "", the flag of fusable float operations
    half: bool  # the target converts f16 <-> f32 itself
    zeros: bool  # min and max take -0 for less than +0

    def emit(self, text: str) -> str:
        """Append `%n = text` and return `%n`."""
        ...

    def range(self, expr: Expr) -> Range | None:
        """Bounds of an i64 expression, where they are known to be exact."""
        ...

    def whole_number(self, x: str) -> str | None:
        """f32 within i32 towards zero, and the least one of NaN; None where there is no such
        instruction."""
        ...

    def quads(self, x: str, y: str, z: str) -> str | None:
        """The expression `quads`; None where there is no such instruction."""
        ...

    def brain(self, x: str) -> str | None:
        """f32 to bf16, denormals to zero; None where there is no such instruction."""
        ...


TYPES = {"bool": "i1", "f16": "i16", "bf16": "i16", "f32": "float", "f64": "double"}
TYPES |= {f"{kind}{bits}": f"i{bits}" for kind in "iu" for bits in (8, 16, 32, 64)}
MEMORY = TYPES | {"bool": "i8"}
ROUNDING = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint"}
_SMALL = 2**31  # below this an i64 division is done in 32 bits, which vectorises far better


@lru_cache(maxsize=4096)  # a kernel has the same few over and over
def literal(value: object, dtype: DType) -> str:
    """A constant as LLVM text. Floats arrive in hex form and are rounded to the type once."""
    if dtype is BOOL:
        return "true" if value else "false"
    if dtype.kind == "f":
        number = float.fromhex(str(value))
        if dtype in (F16, BF16):
            return str(int(np.asarray(number, dtype.numpy).view(np.uint16)))
        with np.errstate(over="ignore"):
            wide = float(np.float32(number)) if dtype is F32 else number
        bits = struct.unpack("<Q", struct.pack("<d", wide))[0]
        return "0x7FF8000000000000" if wide != wide else f"0x{bits:016X}"
    bits = dtype.bits
    wrapped = int(str(value)) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def intrinsic(w: Writer, name: str, dtype: DType, args: Sequence[str], flags: str = "") -> str:
    """Call an LLVM intrinsic over one type; every operand and the result have it."""
    kind = TYPES[dtype.name]
    suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
    operands = ", ".join(f"{kind} {a}" for a in args)
    return w.emit(f"call{flags} {kind} @llvm.{name}.{suffix}({operands})")


def _wrap_flags(w: Writer, expr: Expr) -> str:
    return " nsw" if expr.dtype.name == "i64" and w.range(expr) is not None else ""


def _arithmetic(w: Writer, expr: Expr, a: list[str]) -> str:
    kind = TYPES[expr.dtype.name]
    if expr.dtype.kind == "f":
        return w.emit(f"f{expr.op}{w.contract} {kind} {a[0]}, {a[1]}")
    return w.emit(f"{expr.op}{_wrap_flags(w, expr)} {kind} {a[0]}, {a[1]}")


def _div(w: Writer, expr: Expr, a: list[str]) -> str:
    return w.emit(f"fdiv {TYPES[expr.dtype.name]} {a[0]}, {a[1]}")


def _fma(w: Writer, expr: Expr, a: list[str]) -> str:
    return intrinsic(w, "fma", expr.dtype, a)


def _known_positive(w: Writer, expr: Expr) -> str | None:
    """How to divide when both operands are known to be non-negative."""
    if expr.dtype.name != "i64":
        return None
    x, y = w.range(expr.args[0]), w.range(expr.args[1])
    if x is None or y is None or x[0] < 0 or y[0] < 0:
        return None
    if y[0] < 1:
        return "i64 or zero"
    return "i32" if max(x[1], y[1]) < _SMALL else "i64"


def _division(w: Writer, expr: Expr, a: list[str]) -> str:
    """Truncating quotient or remainder: by zero it is 0, the minimum over -1 wraps; no traps."""
    op = "div" if expr.op == "idiv" else "rem"
    width = _known_positive(w, expr)
    if width == "i32":
        narrow = [w.emit(f"trunc i64 {x} to i32") for x in a]
        return w.emit(f"zext i32 {w.emit(f'u{op} i32 {narrow[0]}, {narrow[1]}')} to i64")
    if width == "i64":
        return w.emit(f"u{op} i64 {a[0]}, {a[1]}")
    if width is not None:
        safe = w.emit(f"call i64 @llvm.umax.i64(i64 {a[1]}, i64 1)")
        result = w.emit(f"u{op} i64 {a[0]}, {safe}")
        zero = w.emit(f"icmp eq i64 {a[1]}, 0") if op == "div" else ""
        return w.emit(f"select i1 {zero}, i64 0, i64 {result}") if zero else result
    kind, signed = TYPES[expr.dtype.name], expr.dtype.kind == "i"
    if expr.args[1].op == "const" and a[1] not in ("0", "-1"):
        return w.emit(f"{'s' if signed else 'u'}{op} {kind} {a[0]}, {a[1]}")
    zero = w.emit(f"icmp eq {kind} {a[1]}, 0")
    bad = zero
    if signed:
        minus = w.emit(f"icmp eq {kind} {a[1]}, -1")
        bad = w.emit(f"or i1 {zero}, {minus}")
    safe = w.emit(f"select i1 {bad}, {kind} 1, {kind} {a[1]}")
    result = w.emit(f"{'s' if signed else 'u'}{op} {kind} {a[0]}, {safe}")
    if op == "rem":
        return result  # x rem 1 is the 0 wanted in both special cases
    if signed:
        negated = w.emit(f"sub {kind} 0, {a[0]}")
        result = w.emit(f"select i1 {minus}, {kind} {negated}, {kind} {result}")
    return w.emit(f"select i1 {zero}, {kind} 0, {kind} {result}")


def _neg(w: Writer, expr: Expr, a: list[str]) -> str:
    kind = TYPES[expr.dtype.name]
    return w.emit(f"fneg {kind} {a[0]}" if expr.dtype.kind == "f" else f"sub {kind} 0, {a[0]}")


def _abs(w: Writer, expr: Expr, a: list[str]) -> str:
    if expr.dtype.kind == "f":
        return intrinsic(w, "fabs", expr.dtype, a)
    if expr.dtype.kind != "i":
        return a[0]
    kind = TYPES[expr.dtype.name]
    return w.emit(f"call {kind} @llvm.abs.{kind}({kind} {a[0]}, i1 false)")


def _minmax(w: Writer, expr: Expr, a: list[str]) -> str:
    if expr.dtype.name == "i64":
        # A block that is always full has a constant extent: that spares its loop a remainder.
        x, y = (w.range(e) for e in expr.args)
        if x is not None and y is not None and (x[1] <= y[0] or y[1] <= x[0]):
            return a[(x[1] <= y[0]) == (expr.op == "max")]
    return minmax(w, expr.op, expr.dtype, a, expr.args)


def minmax(w: Writer, op: str, dtype: DType, a: Sequence[str], args: Sequence[Expr] = ()) -> str:
    """The smaller or larger operand, NaN if either is.

    x86's instruction returns its second operand when one is NaN, so with a constant in first place
    it already is the operation wanted; otherwise a compare and a blend put a first NaN back. LLVM
    makes these of its intrinsic; of a select that says the same it made a second compare.
    """
    kind = TYPES[dtype.name]
    if dtype is BOOL:
        return w.emit(f"{'and' if op == 'min' else 'or'} i1 {a[0]}, {a[1]}")
    if dtype.kind != "f":
        return intrinsic(w, f"{'s' if dtype.kind == 'i' else 'u'}{op}", dtype, a)
    order = "olt" if op == "min" else "ogt"
    x, y = a
    known = [e.op == "const" and e.data != "nan" for e in args]
    if w.zeros or not any(known):
        return intrinsic(w, f"{op}imum", dtype, a, "" if w.zeros else " nsz")
    if known[1:] == [True]:
        x, y = y, x
    better = w.emit(f"fcmp {order} {kind} {x}, {y}")
    return w.emit(f"select i1 {better}, {kind} {x}, {kind} {y}")


def _rounding(w: Writer, expr: Expr, a: list[str]) -> str:
    return intrinsic(w, ROUNDING[expr.op], expr.dtype, a)


def _compare(w: Writer, expr: Expr, a: list[str]) -> str:
    dtype = expr.args[0].dtype
    if dtype.kind == "f":
        order = "une" if expr.op == "ne" else f"o{expr.op}"
        return w.emit(f"fcmp {order} {TYPES[dtype.name]} {a[0]}, {a[1]}")
    sign = "" if expr.op in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
    return w.emit(f"icmp {sign}{expr.op} {TYPES[dtype.name]} {a[0]}, {a[1]}")


def _bitwise(w: Writer, expr: Expr, a: list[str]) -> str:
    return w.emit(f"{expr.op} {TYPES[expr.dtype.name]} {a[0]}, {a[1]}")


def _not(w: Writer, expr: Expr, a: list[str]) -> str:
    ones = "true" if expr.dtype is BOOL else "-1"
    return w.emit(f"xor {TYPES[expr.dtype.name]} {a[0]}, {ones}")


def _shift(w: Writer, expr: Expr, a: list[str]) -> str:
    kind, bits = TYPES[expr.dtype.name], expr.dtype.bits
    fits = w.emit(f"icmp ult {kind} {a[1]}, {bits}")
    if expr.op == "shr" and expr.dtype.kind == "i":
        count = w.emit(f"select i1 {fits}, {kind} {a[1]}, {kind} {bits - 1}")
        return w.emit(f"ashr {kind} {a[0]}, {count}")
    count = w.emit(f"and {kind} {a[1]}, {bits - 1}")
    moved = w.emit(f"{'shl' if expr.op == 'shl' else 'lshr'} {kind} {a[0]}, {count}")
    return w.emit(f"select i1 {fits}, {kind} {moved}, {kind} 0")


def _popcount(w: Writer, expr: Expr, a: list[str]) -> str:
    return intrinsic(w, "ctpop", expr.dtype, a)


def _clz(w: Writer, expr: Expr, a: list[str]) -> str:
    kind = TYPES[expr.dtype.name]
    return w.emit(f"call {kind} @llvm.ctlz.{kind}({kind} {a[0]}, i1 false)")


def _quads(w: Writer, expr: Expr, a: list[str]) -> str:
    made = w.quads(*a)
    if made is not None:
        return made
    x, y, made = a
    for ahead in (24, 16, 8, 0):
        unsigned = w.emit(f"lshr i32 {w.emit(f'shl i32 {x}, {ahead}')}, 24")
        signed = w.emit(f"ashr i32 {w.emit(f'shl i32 {y}, {ahead}')}, 24")
        made = w.emit(f"add i32 {made}, {w.emit(f'mul i32 {unsigned}, {signed}')}")
    return made


def _select(w: Writer, expr: Expr, a: list[str]) -> str:
    kind = TYPES[expr.dtype.name]
    return w.emit(f"select i1 {a[0]}, {kind} {a[1]}, {kind} {a[2]}")


def _bitcast(w: Writer, expr: Expr, a: list[str]) -> str:
    source, result = TYPES[expr.args[0].dtype.name], TYPES[expr.dtype.name]
    return a[0] if source == result else w.emit(f"bitcast {source} {a[0]} to {result}")


# ------------------------------------------------------------------------------------ casts


def _cast(w: Writer, expr: Expr, a: list[str]) -> str:
    (x,) = expr.args
    if x.dtype.kind == "f" and expr.dtype.kind in "iu" and x.dtype not in (F16, BF16):
        return _saturate(w, a[0], x.dtype, expr.dtype, clipped(x))
    flushed = w.brain(a[0]) if (expr.data, x.dtype, expr.dtype) == (FLUSHED, F32, BF16) else None
    return flushed or cast(w, a[0], x.dtype, expr.dtype)


def clipped(x: Expr, left: int = 4) -> tuple[float, float]:
    """Between which literals a number certainly lies, unless it is NaN."""
    if x.op == "const":
        number = float.fromhex(str(x.data))
        return number, number
    if x.op not in ("min", "max") or not left:
        return -math.inf, math.inf
    (low, high), (least, most) = (clipped(a, left - 1) for a in x.args)
    choose = min if x.op == "min" else max
    return choose(low, least), choose(high, most)


def cast(w: Writer, x: str, source: DType, result: DType) -> str:
    """Convert by the rules of the loop IR (see `loops`)."""
    if source is result:
        return x
    if source in (F16, BF16):
        return cast(w, widen(w, x, source), F32, result)
    if result in (F16, BF16):
        if source.kind != "f":
            x, source = cast(w, x, source, F64), F64
        return narrow(w, x, source, result)
    if source.kind == "f":
        return _from_float(w, x, source, result)
    return _from_integer(w, x, source, result)


def _from_float(w: Writer, x: str, source: DType, result: DType) -> str:
    here, there = TYPES[source.name], TYPES[result.name]
    if result is BOOL:
        return w.emit(f"fcmp une {here} {x}, 0.0")
    if result.kind == "f":
        return w.emit(f"{'fpext' if result is F64 else 'fptrunc'} {here} {x} to {there}")
    return _saturate(w, x, source, result)


def _saturate(
    w: Writer,
    x: str,
    source: DType,
    result: DType,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> str:
    """Float to integer, clamped first unless it lies `within` the bounds of the type: LLVM's own
    saturating conversion is scalar code on x86.
    """
    here, there = TYPES[source.name], TYPES[result.name]
    signed = result.kind == "i"
    power = result.bits - 1 if signed else result.bits
    digits = 24 if source is F32 else 53
    least, most = -(2.0**power) if signed else 0.0, 2.0**power - 2 ** max(0, power - digits)
    lowest, highest = (literal(bound.hex(), source) for bound in (least, most))
    number = x
    for order, bound, outside in (
        ("ogt", lowest, within[0] < least),
        ("olt", highest, within[1] > most),
    ):
        if outside:
            beyond = w.emit(f"fcmp {order} {here} {bound}, {number}")
            number = w.emit(f"select i1 {beyond}, {here} {bound}, {here} {number}")
    made = w.whole_number(number) if result.bits < 32 and source is F32 else None
    if made is not None:  # the last bits of what it makes of NaN are zeros
        return w.emit(f"trunc i32 {made} to {there}")
    missing = w.emit(f"fcmp uno {here} {x}, {x}")
    number = w.emit(f"select i1 {missing}, {here} 0.0, {here} {number}")
    if result.bits < 32:
        return w.emit(f"trunc i32 {w.emit(f'fptosi {here} {number} to i32')} to {there}")
    made = w.emit(f"fpto{'s' if signed else 'u'}i {here} {number} to {there}")
    if power <= digits:
        return made
    # The largest float below the bound is less than the largest integer.
    past = w.emit(f"fcmp oge {here} {x}, {literal(float(2**power).hex(), source)}")
    largest = literal(2**power - 1, result)
    return w.emit(f"select i1 {past}, {there} {largest}, {there} {made}")


def _from_integer(w: Writer, x: str, source: DType, result: DType) -> str:
    here, there = TYPES[source.name], TYPES[result.name]
    if result is BOOL:
        return w.emit(f"icmp ne {here} {x}, 0")
    signed = source.kind == "i"
    if result.kind == "f":
        return w.emit(f"{'s' if signed else 'u'}itofp {here} {x} to {there}")
    if source is not BOOL and source.bits == result.bits:
        return x
    if source is not BOOL and source.bits > result.bits:
        return w.emit(f"trunc {here} {x} to {there}")
    return w.emit(f"{'s' if signed else 'z'}ext {here} {x} to {there}")


def widen(w: Writer, x: str, source: DType) -> str:
    """f16 or bf16 to f32, exact."""
    if source is F16 and w.half:
        return w.emit(f"fpext half {w.emit(f'bitcast i16 {x} to half')} to float")
    bits = w.emit(f"zext i16 {x} to i32")
    if source is BF16:
        return w.emit(f"bitcast i32 {w.emit(f'shl i32 {bits}, 16')} to float")
    # Move exponent and fraction to f32's place; multiplying by 2**112 corrects the exponent bias
    # and normalises subnormals. Infinity and NaN keep an all-ones exponent instead.
    placed = w.emit(f"shl i32 {w.emit(f'and i32 {bits}, 32767')}, 13")
    scaled = w.emit(f"fmul float {w.emit(f'bitcast i32 {placed} to float')}, 0x46F0000000000000")
    finite = w.emit(f"bitcast float {scaled} to i32")
    special = w.emit(f"or i32 {placed}, 2139095040")
    huge = w.emit(f"icmp uge i32 {placed}, 260046848")
    magnitude = w.emit(f"select i1 {huge}, i32 {special}, i32 {finite}")
    sign = w.emit(f"shl i32 {w.emit(f'and i32 {bits}, 32768')}, 16")
    return w.emit(f"bitcast i32 {w.emit(f'or i32 {magnitude}, {sign}')} to float")


def narrow(w: Writer, x: str, source: DType, result: DType) -> str:
    """f32 or f64 to f16 or bf16, rounded to nearest even once."""
    if source is F64:
        x = _truncate_to_odd(w, x) if result is F16 else _round_to_odd(w, x)
    if result is BF16:
        return _to_bf16(w, x)
    if w.half:
        return w.emit(f"bitcast half {w.emit(f'fptrunc float {x} to half')} to i16")
    return _to_f16(w, x)


def _round_to_odd(w: Writer, x: str) -> str:
    """f64 to f32 so that a second rounding cannot err: truncate, and set the last bit if inexact.

    Boldo and Melquiond, "When double rounding is odd" (2005): f32 has more than two bits to spare.
    """
    near = w.emit(f"fptrunc double {x} to float")
    back = w.emit(f"fpext float {near} to double")
    inexact = w.emit(f"fcmp one double {back}, {x}")
    size, wanted = (intrinsic(w, "fabs", F64, [v]) for v in (back, x))
    above = w.emit(f"fcmp ogt double {size}, {wanted}")
    bits = w.emit(f"bitcast float {near} to i32")
    down = w.emit(f"sub i32 {bits}, {w.emit(f'zext i1 {above} to i32')}")
    odd = w.emit(f"or i32 {down}, {w.emit(f'zext i1 {inexact} to i32')}")
    return w.emit(f"bitcast i32 {odd} to float")


def _truncate_to_odd(w: Writer, x: str) -> str:
    """The same where what f32 has no normal number for is 0 or infinite in the end, as in f16: the
    bits that f32 lacks are cleared, and the last that it has is set if one of them was.
    """
    bits = w.emit(f"bitcast double {x} to i64")
    lost = (1 << 29) - 1
    carried = w.emit(f"add i64 {w.emit(f'and i64 {bits}, {lost}')}, {lost}")
    odd = w.emit(f"and i64 {w.emit(f'or i64 {bits}, {carried}')}, {~lost}")
    return w.emit(f"fptrunc double {w.emit(f'bitcast i64 {odd} to double')} to float")


def _to_bf16(w: Writer, x: str) -> str:
    bits = w.emit(f"bitcast float {x} to i32")
    high = w.emit(f"lshr i32 {bits}, 16")
    bias = w.emit(f"add i32 {w.emit(f'and i32 {high}, 1')}, 32767")
    rounded = w.emit(f"lshr i32 {w.emit(f'add i32 {bits}, {bias}')}, 16")
    quiet = w.emit(f"or i32 {high}, 64")
    nan = w.emit(f"fcmp uno float {x}, {x}")
    picked = w.emit(f"select i1 {nan}, i32 {quiet}, i32 {rounded}")
    return w.emit(f"trunc i32 {picked} to i16")


def _to_f16(w: Writer, x: str) -> str:
    """Integer rounding for CPUs without the instruction, after Giesen's float_to_half_fast3."""
    bits = w.emit(f"bitcast float {x} to i32")
    size = w.emit(f"and i32 {bits}, 2147483647")
    # Normal results: rebias the exponent and add half of the last place, minus one if it is even.
    even = w.emit(f"and i32 {w.emit(f'lshr i32 {size}, 13')}, 1")
    sum_ = w.emit(f"add i32 {w.emit(f'add i32 {size}, -939520001')}, {even}")
    normal = w.emit(f"lshr i32 {sum_}, 13")
    # Subnormal results: adding 0.5 lets the float adder align and round the fraction.
    aligned = w.emit(f"fadd float {w.emit(f'bitcast i32 {size} to float')}, 0.5")
    small = w.emit(f"sub i32 {w.emit(f'bitcast float {aligned} to i32')}, 1056964608")
    nan = w.emit(f"icmp ugt i32 {size}, 2139095040")
    special = w.emit(f"select i1 {nan}, i32 32256, i32 31744")
    is_small = w.emit(f"icmp ult i32 {size}, 947912704")
    is_special = w.emit(f"icmp uge i32 {size}, 1199570944")
    finite = w.emit(f"select i1 {is_small}, i32 {small}, i32 {normal}")
    picked = w.emit(f"select i1 {is_special}, i32 {special}, i32 {finite}")
    sign = w.emit(f"and i32 {w.emit(f'lshr i32 {bits}, 16')}, 32768")
    return w.emit(f"trunc i32 {w.emit(f'or i32 {picked}, {sign}')} to i16")


Instruction = Callable[[Writer, Expr, list[str]], str]
INSTRUCTIONS: dict[str, Instruction] = {
    **dict.fromkeys(("add", "sub", "mul"), _arithmetic),
    **dict.fromkeys(("idiv", "irem"), _division),
    **dict.fromkeys(("min", "max"), _minmax),
    **dict.fromkeys(ROUNDING, _rounding),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compare),
    **dict.fromkeys(("and", "or", "xor"), _bitwise),
    **dict.fromkeys(("shl", "shr"), _shift),
    "div": _div,
    "fma": _fma,
    "neg": _neg,
    "abs": _abs,
    "not": _not,
    "popcount": _popcount,
    "clz": _clz,
    "quads": _quads,
    "select": _select,
    "bitcast": _bitcast,
    "cast": _cast,
}
