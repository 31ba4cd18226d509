"""A NumPy evaluator of scalar expressions: what every emitter must agree with, and the quickest way
to compare an op's expression with its reference without generating code."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from graphc.ir.types import BOOL, DType
from graphc.loops.nest import Expr, Scalars, postorder
from graphc.loops.scalars import Pair
from graphc.ops.math import transcendental
from graphc.ops.math.casts import cast_reference
from graphc.ops.math.transcendental import in_f64


class Operands(Scalars):
    """A builder whose operands are arrays: `operand(array)` is an expression or a Pair."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Expr, np.ndarray] = {}

    def operand(self, array: np.ndarray, element: DType, stored: bool = False) -> Expr | Pair:
        if element.is_complex:
            return Pair(*(self.real(a, element.real) for a in (array.real, array.imag)))
        return self.real(array, element, stored)

    def real(self, array: np.ndarray, element: DType, stored: bool = False) -> Expr:
        element = element if stored else element.compute
        made = self.make("load", element, (), len(self.values))
        self.values[made] = np.asarray(array).astype(element.numpy)
        return made


CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh",
        "cosh", "tanh", "cbrt")},
    **{name: getattr(np, "arc" + name[1:]) for name in (
        "asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "pow": np.power,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "sinc": np.sinc,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "softplus": lambda x: np.logaddexp(x, x.dtype.type(0)),
    "log_sigmoid": lambda x: -np.logaddexp(-x, x.dtype.type(0)),
    "erf": in_f64(math.erf),
    "erfc": in_f64(math.erfc),
    "erfinv": in_f64(transcendental._erfinv),
    "lgamma": in_f64(transcendental._lgamma),
    "digamma": in_f64(transcendental._digamma),
    "sigmoid": in_f64(transcendental._sigmoid),
}  # fmt: skip


def _truncating(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    zero = y == 0
    safe = np.where(zero, 1, y)
    remainder = np.fmod(x, safe)
    quotient = np.floor_divide(x - remainder, safe)
    return np.where(zero, 0, quotient), np.where(zero, 0, remainder)


def _shift(op: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = 8 * x.dtype.itemsize
    inside = (y >= 0) & (y < bits)
    count = np.where(inside, y, 0).astype(x.dtype)
    if op == "shl":
        return np.where(inside, x << count, 0)
    return np.where(inside, x >> count, (x < 0) * -1 if x.dtype.kind == "i" else 0)


def _fma_one(x: float, y: float, z: float) -> float:
    """x*y + z rounded once; not-finite operands and exact zeros as the plain formula gives them."""
    plain = x * y + z
    if not math.isfinite(plain):
        return plain
    return float(Fraction(x) * Fraction(y) + Fraction(z)) or plain


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    if x.dtype == np.float32:
        return np.asarray(x.astype(np.float64) * y + z, np.float32)
    return np.asarray(np.frompyfunc(_fma_one, 3, 1)(x, y, z), np.float64)


def _quads(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    places = np.array([0, 8, 16, 24], np.int32)
    unsigned, signed = ((v[..., None] >> places) & 255 for v in (x, y))
    made = (unsigned.astype(np.int64) * ((signed ^ 128) - 128)).sum(axis=-1) + z
    return np.asarray(made, np.int64).astype(np.int32)


BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fma": _fma,
    "idiv": lambda x, y: _truncating(x, y)[0], "irem": lambda x, y: _truncating(x, y)[1],
    "neg": np.negative, "abs": np.absolute, "min": np.minimum, "max": np.maximum, "sqrt": np.sqrt,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "shl": lambda x, y: _shift("shl", x, y),
    "shr": lambda x, y: _shift("shr", x, y),
    "select": np.where, "rare": np.where, "quads": _quads,
}  # fmt: skip


def _popcount(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.bitwise_count(x.view(f"u{x.dtype.itemsize}")), x.dtype)


def _evaluate(expr: Expr, args: list[np.ndarray]) -> np.ndarray:
    if expr.op == "const":
        value = expr.data if expr.dtype.kind != "f" else float.fromhex(expr.data)
        return np.asarray(value).astype(expr.dtype.numpy)
    if expr.op == "cast":
        return np.asarray(cast_reference(args[0], expr.dtype))
    if expr.op == "bitcast":
        return args[0].view(expr.dtype.numpy)
    if expr.op == "call":
        return np.asarray(CALLS[expr.data](*args))
    if expr.op == "popcount":
        return _popcount(args[0])
    return np.asarray(BINARY[expr.op](*args))


def evaluate(builder: Operands, made: Expr | Pair) -> np.ndarray:
    """The value of an expression over the builder's operands, as one array."""
    if isinstance(made, Pair):
        re, im = evaluate(builder, made.re), evaluate(builder, made.im)
        return _join(re, im)
    table: dict[Expr, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for expr in postorder([made]):
            if expr in builder.values:
                table[expr] = builder.values[expr]
                continue
            value = np.asarray(_evaluate(expr, [table[a] for a in expr.args]))
            assert expr.dtype is BOOL or value.dtype.kind != "b" or expr.op in ("not", "cast"), expr
            table[expr] = value.astype(expr.dtype.numpy)
    return table[made]


def _join(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    made = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
    made.real, made.imag = re, im
    return made
