"""Element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphc.formats.onnx.export.writer import Refused, Writer, rule, traced
from graphc.ir.graph import Node
from graphc.ir.types import BOOL, DTYPES, F64, DType
from graphc.loops.vecmath.special import ERFINV_FAR_64, ERFINV_MIDDLE_64, ERFINV_NEAR_64
from graphc.ops.record.value import functions as f

# The format's name of each op that means exactly the same there.
SAME = {
    "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sigmoid": "Sigmoid",
    "selu": "Selu", "mish": "Mish", "softplus": "Softplus",
    "softsign": "Softsign", "hard_swish": "HardSwish",
    "sqrt": "Sqrt", "floor": "Floor", "ceil": "Ceil", "rint": "Round", "div": "Div",
}  # fmt: skip
_LOGIC = {
    "and": ("And", "BitwiseAnd"),
    "or": ("Or", "BitwiseOr"),
    "xor": ("Xor", "BitwiseXor"),
    "not": ("Not", "BitwiseNot"),
}
_OF_BOOLS = {"add": "Or", "mul": "And", "maximum": "Or", "minimum": "And"}
_ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "maximum": "Max", "minimum": "Min"}
_ORDER = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def element_of(node: Node) -> DType:
    """The element type of the first operand."""
    found: DType = node.inputs[0].type.dtype  # type: ignore[union-attr]
    return found


@rule(*SAME)
def same(w: Writer, node: Node, *inputs: str) -> Any:
    return w.op(SAME[node.op.name], *inputs)


@rule("where", moves=True)
def where(w: Writer, node: Node, condition: str, x: str, y: str) -> Any:
    return chosen(w, condition, x, y, node.type.dtype)  # type: ignore[union-attr]


def chosen(w: Writer, condition: str, x: str, y: str, element: DType) -> str:
    """Runtimes choose among small and unsigned integers as wider ones alone."""
    wide = wider(element)
    if wide is element:
        return str(w.op("Where", condition, x, y))
    return w.cast(str(w.op("Where", condition, w.cast(x, wide), w.cast(y, wide))), element)


@rule("stop_gradient", "barrier", "exact", moves=True)
def identity(w: Writer, node: Node, x: str, *rest: str) -> Any:
    return w.op("Identity", x)


def wider(element: DType) -> DType:
    """A type that runtimes compute integers in: the low bits are the same."""
    if element.is_integer and element.name not in ("i32", "i64"):
        return DTYPES["i64" if element.itemsize >= 4 else "i32"]
    return element


@rule(*_ARITHMETIC)
def arithmetic(w: Writer, node: Node, x: str, y: str) -> Any:
    """Small and unsigned integers are computed in wider ones, and wrap when they come back."""
    name, element = node.op.name, element_of(node)
    if element is BOOL:
        return w.op(_OF_BOOLS[name], x, y) if name in _OF_BOOLS else None
    wide = element if name in ("maximum", "minimum") else wider(element)
    if wide is element:
        return w.op(_ARITHMETIC[name], x, y)
    return w.cast(w.op(_ARITHMETIC[name], w.cast(x, wide), w.cast(y, wide)), element)


@rule(*_LOGIC)
def logic(w: Writer, node: Node, *inputs: str) -> Any:
    return w.op(_LOGIC[node.op.name][element_of(node) is not BOOL], *inputs)


@rule(*_ORDER)
def ordered(w: Writer, node: Node, x: str, y: str) -> Any:
    element = element_of(node)
    small = element.itemsize < 4 and not element.is_float
    operands = (w.cast(x, DTYPES["i32"]), w.cast(y, DTYPES["i32"])) if small else (x, y)
    return w.op(_ORDER[node.op.name], *operands)


@rule("eq")
def equal(w: Writer, node: Node, x: str, y: str) -> Any:
    return w.op("Equal", x, y)


@rule("ne")
def not_equal(w: Writer, node: Node, x: str, y: str) -> Any:
    return w.op("Not", w.op("Equal", x, y))


@rule("cast", moves=True)
def cast(w: Writer, node: Node, x: str) -> Any:
    return w.cast(x, node.attrs["dtype"])


@rule("abs")
def absolute(w: Writer, node: Node, x: str) -> Any:
    return w.op("Identity" if element_of(node) is BOOL else "Abs", x)


@rule("neg")
def negative(w: Writer, node: Node, x: str) -> Any:
    element = element_of(node)
    wide = wider(element)
    return w.op("Neg", x) if wide is element else w.cast(w.op("Neg", w.cast(x, wide)), element)


@rule("relu")
def relu(w: Writer, node: Node, x: str) -> Any:
    element = element_of(node)
    return w.op("Relu", x) if element.is_float else w.op("Max", x, w.number(0, element))


@rule("reciprocal")
def reciprocal(w: Writer, node: Node, x: str) -> Any:
    if not element_of(node).is_float:
        raise Refused(f"of {element_of(node)}: ONNX has it for floats alone")
    return w.op("Reciprocal", x)


@rule("pow")
def power(w: Writer, node: Node, x: str, y: str) -> Any:
    element = element_of(node)
    wide = wider(element)
    if wide is element:
        return w.op("Pow", x, y)
    return w.cast(w.op("Pow", w.cast(x, wide), w.cast(y, wide)), element)


@rule("sign")
def sign(w: Writer, node: Node, x: str) -> Any:
    made = w.op("Sign", x)
    return w.op("Where", w.op("IsNaN", x), x, made) if element_of(node).is_float else made


@rule("rsqrt")
def rsqrt(w: Writer, node: Node, x: str) -> Any:
    return w.op("Reciprocal", w.op("Sqrt", x))


@rule("isnan")
def isnan(w: Writer, node: Node, x: str) -> Any:
    if element_of(node).is_float:
        return w.op("IsNaN", x)
    return w.op("Not", w.op("Equal", x, x))


@rule("isinf")
def isinf(w: Writer, node: Node, x: str) -> Any:
    if element_of(node).is_float:
        return w.op("IsInf", x)
    return w.op("Not", w.op("Equal", x, x))


@rule("isfinite")
def isfinite(w: Writer, node: Node, x: str) -> Any:
    if element_of(node).is_float:
        return w.op("Not", w.op("Or", w.op("IsNaN", x), w.op("IsInf", x)))
    return w.op("Equal", x, x)


@rule("leaky_relu")
def leaky_relu(w: Writer, node: Node, x: str) -> Any:
    return w.op("LeakyRelu", x, alpha=node.attrs["slope"])


@rule("elu")
def elu(w: Writer, node: Node, x: str) -> Any:
    return w.op("Elu", x, alpha=node.attrs["alpha"])


@rule("gelu")
def gelu(w: Writer, node: Node, x: str) -> Any:
    return w.op("Gelu", x, approximate="tanh" if node.attrs["tanh"] else "none")


@rule("relu6")
def relu6(w: Writer, node: Node, x: str) -> Any:
    element = element_of(node)
    return w.op("Clip", x, w.number(0, element), w.number(6, element))


@rule("hard_sigmoid")
def hard_sigmoid(w: Writer, node: Node, x: str) -> Any:
    return w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


# ------------------------------------------------------------------------------------ in other ops


@traced("celu")
def _celu(x: Any, alpha: float) -> Any:
    return f.where(f.greater(x, 0), x, f.multiply(f.expm1(f.divide(x, alpha)), alpha))


@traced("expm1")
def _expm1(x: Any) -> Any:
    """By tanh near 0, where exp(x) - 1 loses digits."""
    t = f.tanh(x * 0.5)
    return f.where(f.abs(x) < 1, (t + t) / (1 - t), f.exp(x) - 1)


@traced("log1p")
def _log1p(x: Any) -> Any:
    """The rounding of 1 + x is made good: log(u) x / (u - 1)."""
    u = 1 + x
    plain = f.logical_or(f.equal(u, 1), f.equal(x, math.inf))
    return f.where(plain, x, f.log(u) * (x / f.where(plain, 1, u - 1)))


@traced("exp2")
def _exp2(x: Any) -> Any:
    return f.exp(x * math.log(2))


@traced("log2")
def _log2(x: Any) -> Any:
    return f.log(x) / math.log(2)


@traced("log10")
def _log10(x: Any) -> Any:
    return f.log(x) / math.log(10)


@traced("cbrt")
def _cbrt(x: Any) -> Any:
    return f.where(f.equal(x, 0), x, f.sign(x) * f.power(f.abs(x), 1 / 3))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 x + c2 x^2 ... by Horner's rule."""
    *others, total = coefficients
    for coefficient in reversed(others):
        total = total * x + coefficient
    return total


@traced("erfinv")
def _erfinv(x: Any) -> Any:
    """x P(w) with w = -log((1 - x) (1 + x)), for large w in sqrt(w): as kernels do, in 64 bits."""
    wide = f.astype(x, F64)
    size = f.abs(wide)
    inside = f.where(size < 1, wide, 0)
    w = -f.log((1 - inside) * (1 + inside))
    root = f.sqrt(w)
    near = _polynomial(w - 3.125, ERFINV_NEAR_64)
    middle = _polynomial(root - 3.25, ERFINV_MIDDLE_64)
    far = _polynomial(root - 5.0, ERFINV_FAR_64)
    made = inside * f.where(w < 6.25, near, f.where(w < 16, middle, far))
    end = f.where(f.equal(size, 1), f.copysign(math.inf, wide), math.nan)
    return f.astype(f.where(size < 1, made, end), x.dtype)


@traced("atan2")
def _atan2(y: Any, x: Any) -> Any:
    """The angle in the right half plane, turned by pi in the left one."""
    infinite = f.logical_and(f.isinf(x), f.isinf(y))
    x, y = (f.where(infinite, f.copysign(f.ones_like(v), v), v) for v in (x, y))
    both_zero = f.logical_and(f.equal(x, 0), f.equal(y, 0))
    right = f.arctan(f.where(both_zero, y, y / x))
    turned = f.where(f.signbit(y), right - math.pi, right + math.pi)
    left = f.where(both_zero, f.copysign(f.full_like(y, math.pi), y), turned)
    return f.where(f.signbit(x), left, right)


@traced("hypot")
def _hypot(x: Any, y: Any) -> Any:
    """Scaled by the larger side, so that no square overflows."""
    x, y = f.abs(x), f.abs(y)
    large, small = f.maximum(x, y), f.minimum(x, y)
    ratio = small / f.where(f.equal(large, 0), 1, large)
    made = large * f.sqrt(1 + ratio * ratio)
    return f.where(f.logical_or(f.isinf(x), f.isinf(y)), math.inf, made)


@traced("logaddexp")
def _logaddexp(x: Any, y: Any) -> Any:
    largest = f.maximum(x, y)
    made = largest + f.log1p(f.exp(-f.abs(x - y)))
    return f.where(f.equal(x, y), x + math.log(2), made)


@traced("logaddexp2")
def _logaddexp2(x: Any, y: Any) -> Any:
    largest = f.maximum(x, y)
    made = largest + f.log1p(f.exp2(-f.abs(x - y))) / math.log(2)
    return f.where(f.equal(x, y), x + 1, made)


@traced("degrees")
def _degrees(x: Any) -> Any:
    return x * (180 / math.pi)


@traced("radians")
def _radians(x: Any) -> Any:
    return x * (math.pi / 180)


@traced("sinc")
def _sinc(x: Any) -> Any:
    zero = f.equal(x, 0)
    angle = f.where(zero, 1, x * math.pi)
    return f.where(zero, 1, f.sin(angle) / angle)


@traced("erfc")
def _erfc(x: Any) -> Any:
    return 1 - f.erf(x)


@traced("silu")
def _silu(x: Any) -> Any:
    return x * f.sigmoid(x)


@traced("log_sigmoid")
def _log_sigmoid(x: Any) -> Any:
    return -f.softplus(-x)


@traced("square")
def _square(x: Any) -> Any:
    return x * x


@traced("progression")
def _progression(k: Any, step: Any, start: Any) -> Any:
    return k * step + start


@traced("signbit")
def _signbit(x: Any) -> Any:
    """That of zero shows in its reciprocal."""
    if x.dtype.kind != "f":
        return f.less(x, 0)
    return f.less(f.where(f.equal(x, 0), f.reciprocal(x), x), 0)


@traced("copysign")
def _copysign(x: Any, y: Any) -> Any:
    size = f.abs(x)
    return f.where(f.signbit(y), -size, size)


@traced("heaviside")
def _heaviside(x: Any, at_zero: Any) -> Any:
    made = f.astype(f.greater(x, 0), x.dtype)
    return f.where(f.isnan(x), x, f.where(f.equal(x, 0), at_zero, made))


@traced("fmax")
def _fmax(x: Any, y: Any) -> Any:
    return f.where(f.isnan(x), y, f.where(f.isnan(y), x, f.maximum(x, y)))


@traced("fmin")
def _fmin(x: Any, y: Any) -> Any:
    return f.where(f.isnan(x), y, f.where(f.isnan(y), x, f.minimum(x, y)))


@traced("trunc")
def _trunc(x: Any) -> Any:
    return f.where(f.less(x, 0), f.ceil(x), f.floor(x))


# ------------------------------------------------------------------------------------ remainders


def _divisor(w: Writer, node: Node, y: str) -> tuple[str, str, str]:
    """The divisor with 1 in the place of 0 and -1, by which machines fail to divide, and where."""
    element = element_of(node)
    zero = w.op("Equal", y, w.number(0, element))
    minus = w.op("Equal", y, w.number(-1, element)) if element.name[0] == "i" else zero
    return w.op("Where", w.op("Or", zero, minus), w.number(1, element), y), zero, minus


@rule("fmod", "rem")
def remainder(w: Writer, node: Node, x: str, y: str) -> Any:
    """fmod has the sign of x, rem that of y."""
    element, truncates = element_of(node), int(node.op.name == "fmod")
    if element.is_float:
        return w.op("Mod", x, y, fmod=1) if truncates else w.written_out(_rem, node, [x, y])
    safe, zero, _ = _divisor(w, node, y)
    made = w.op("Mod", x, safe, fmod=truncates)
    return w.op("Where", zero, w.number(0, element), made)


def _rem(x: Any, y: Any) -> Any:
    rest = f.fmod(x, y)
    beyond = f.logical_and(f.not_equal(rest, 0), f.not_equal(f.less(rest, 0), f.less(y, 0)))
    return f.where(beyond, rest + y, f.where(f.equal(rest, 0), f.copysign(rest, y), rest))


@rule("floordiv")
def floordiv(w: Writer, node: Node, x: str, y: str) -> Any:
    element = element_of(node)
    if element.is_float:
        return w.written_out(_floordiv, node, [x, y])
    safe, zero, minus = _divisor(w, node, y)
    wide, none = wider(element), w.number(0, element)
    if element.name[0] == "u":
        return w.op("Where", zero, none, w.op("Div", x, safe))
    rest = w.op("Mod", x, safe, fmod=1)
    whole = w.op("Sub", w.cast(x, wide), w.cast(rest, wide))
    quotient = w.op("Div", whole, w.cast(safe, wide))
    signs = w.op("Xor", w.op("Less", rest, none), w.op("Less", safe, none))
    over = w.op("And", signs, w.op("Not", w.op("Equal", rest, none)))
    made = w.cast(w.op("Sub", quotient, w.cast(over, wide)), element)
    if minus != zero:
        made = w.op("Where", minus, w.op("Neg", x), made)
    return w.op("Where", zero, none, made)


def _floordiv(x: Any, y: Any) -> Any:
    """What is left over is taken away first, so that the quotient is nearly whole."""
    near = (x - f.remainder(x, y)) / y
    whole = f.where(f.equal(y, 0), x / y, f.rint(near))
    return f.where(f.isfinite(near), whole, f.where(f.equal(y, 0), x / y, near))


# ------------------------------------------------------------------------------------ shifts


@rule("shl", "shr")
def shift(w: Writer, node: Node, x: str, count: str) -> Any:
    """Only unsigned numbers are shifted in the format: negative ones go there inverted."""
    element = element_of(node)
    bits = 8 * element.itemsize
    unsigned = DTYPES[f"u{bits}"]
    left, signed = node.op.name == "shl", element.name.startswith("i")
    negative = w.op("Less", x, w.number(0, element)) if signed and not left else None
    turned = x if negative is None else w.op("Where", negative, w.op("BitwiseNot", x), x)
    many = w.cast(count, unsigned)
    within = w.op("Less", many, w.number(bits, unsigned))
    some = chosen(w, within, many, w.number(0, unsigned), unsigned)
    moved = w.op("BitShift", w.cast(turned, unsigned), some, direction="LEFT" if left else "RIGHT")
    kept = w.cast(chosen(w, within, moved, w.number(0, unsigned), unsigned), element)
    return kept if negative is None else w.op("Where", negative, w.op("BitwiseNot", kept), kept)
