"""A direct evaluator of the loop IR: slow, obvious, the oracle of the emitter tests.

Integers are Python ints wrapped to their type; floats are NumPy scalars; fma and narrowing casts
are computed with fractions and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from graphc.ir.types import BF16, BOOL, F16, F32, F64, DType
from graphc.loops.nest import (
    Assign,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Scalars,
    Statement,
    Store,
    Update,
    postorder,
)


def wrap(value: int, dtype: DType) -> int:
    """An integer reduced to its type."""
    if dtype is BOOL:
        return int(bool(value))
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value


def bits_of(value: Any, dtype: DType) -> int:
    return int(np.asarray(value, dtype.numpy).view(f"u{dtype.itemsize}"))


def of_bits(bits: int, dtype: DType) -> Any:
    return np.asarray(bits, f"u{dtype.itemsize}").view(dtype.numpy)[()]


def rounded(exact: Fraction, dtype: DType) -> Any:
    """The nearest value of a float type, ties to even: the best of the neighbours of a guess."""
    with np.errstate(all="ignore"):
        try:
            guess = dtype.numpy.type(float(exact))
        except OverflowError:
            guess = dtype.numpy.type(math.inf if exact > 0 else -math.inf)
    if not math.isfinite(float(guess)):
        digits = {F16: 11, BF16: 8, F32: 24, F64: 53}[dtype]
        largest = Fraction(float(np.finfo(np.float32).max if dtype is F32 else 0)) or Fraction(
            {F16: 65504.0, BF16: 3.3895313892515355e38}.get(dtype, float(np.finfo(np.float64).max))
        )
        limit = largest * (1 + Fraction(1, 2 * (2**digits - 1)))
        if abs(exact) >= limit:
            return guess
        guess = dtype.numpy.type(math.copysign(float(largest), float(exact)))
    bits = bits_of(guess, dtype)
    near = [of_bits(b, dtype) for b in (bits - 1, bits, bits + 1) if 0 <= b < 2**dtype.bits]
    near = [v for v in near if math.isfinite(float(v))]
    best = min(near, key=lambda v: (abs(Fraction(float(v)) - exact), bits_of(v, dtype) & 1))
    return best


def to_float(value: Any, dtype: DType) -> Any:
    number = float(value) if not isinstance(value, int) else value
    if isinstance(number, float) and (not math.isfinite(number) or number == 0):
        return dtype.numpy.type(number)
    return rounded(Fraction(number), dtype)


def cast(value: Any, source: DType, result: DType) -> Any:
    if result is BOOL:
        return int(value != 0)
    if result.kind == "f":
        return to_float(value, result)
    if source.kind != "f":
        return wrap(int(value), result)
    if np.isnan(value):
        return 0
    low, high = (
        (0, 2**result.bits - 1)
        if result.kind == "u"
        else (-(2 ** (result.bits - 1)), 2 ** (result.bits - 1) - 1)
    )
    if np.isinf(value):
        return high if value > 0 else low
    return min(max(int(float(value)), low), high)


def fma(x: Any, y: Any, z: Any, dtype: DType) -> Any:
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(z):
        return z  # the product of finite numbers never overflows before it is added
    if not all(math.isfinite(float(v)) for v in (x, y, z)):
        return dtype.numpy.type(x * y + z)
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    return rounded(exact, dtype) if exact else dtype.numpy.type(x * y + z)


def divide(op: str, x: int, y: int, dtype: DType) -> int:
    if y == 0:
        return 0
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return wrap(quotient if op == "idiv" else x - quotient * y, dtype)


def shift(op: str, x: int, count: int, dtype: DType) -> int:
    inside = 0 <= count < dtype.bits
    if op == "shl":
        return wrap(x << count, dtype) if inside else 0
    if dtype.kind == "i":
        return x >> (count if inside else dtype.bits - 1)
    return x >> count if inside else 0


def extreme(op: str, x: Any, y: Any) -> Any:
    if x != x or y != y:
        return x if x != x else y
    return (min if op == "min" else max)(x, y)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "popcount": lambda x: x.bit_count(),
}


def _byte(x: int) -> int:
    """The last bits as an i8."""
    return (x & 255 ^ 128) - 128


class Failed(Exception):
    """Carries the status code of a Fail statement."""


class Evaluator:
    """Runs kernels over NumPy arrays, one per buffer."""

    def __init__(
        self,
        kernel: Kernel,
        arrays: Sequence[np.ndarray],
        params: Sequence[int] = (),
        functions: Mapping[str, Callable[..., Expr]] | None = None,
    ) -> None:
        self.kernel, self.arrays, self.params = kernel, arrays, params
        self.functions = functions or {}
        self.variables: dict[Expr, int] = {}
        self.registers: dict[int, Any] = {}

    def run(self, lo: int, hi: int) -> int:
        """The status the kernel returns."""
        self.bounds = (lo, hi)
        try:
            with np.errstate(all="ignore"):
                self.block(self.kernel.body)
        except Failed as failure:
            return int(failure.args[0])
        return 0

    def block(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Declare(register=register, value=value) | Assign(register=register, value=value):
                self.registers[register.index] = self.value(value)
            case Update(register=register, combine=combine, value=value):
                now = self.registers[register.index]
                made = self.binary(combine, now, self.value(value), register.dtype)
                self.registers[register.index] = made
            case Store(buffer=buffer, index=index, value=value):
                self.arrays[buffer.index][self.value(index)] = self.value(value)
            case Fail(condition=condition, code=code):
                if self.value(condition):
                    raise Failed(code)
            case If(condition=condition, body=body):
                if self.value(condition):
                    self.block(body)
            case For():
                start, stop = self.value(statement.start), self.value(statement.stop)
                if statement.kind == "parallel":
                    start, stop = start + self.bounds[0], start + self.bounds[1]
                for i in range(start, stop):
                    self.variables[statement.variable] = i
                    self.block(statement.body)

    def value(self, root: Expr) -> Any:
        done: dict[Expr, Any] = {}
        for expr in postorder([root]):
            done[expr] = self.one(expr, [done[a] for a in expr.args])
        return done[root]

    def one(self, expr: Expr, a: list[Any]) -> Any:
        dtype = expr.dtype
        match expr.op:
            case "const":
                return (
                    to_float(float.fromhex(expr.data), dtype)
                    if dtype.kind == "f"
                    else wrap(int(expr.data), dtype)
                )
            case "var" | "arg":
                return self.variables[expr]
            case "param":
                return int(self.params[expr.data])
            case "reg":
                return self.registers[expr.data[0]]
            case "load":
                found = self.arrays[expr.data[0]][a[0]]
                return found if dtype.kind == "f" else int(found)
            case "cast":
                return cast(a[0], expr.args[0].dtype, dtype)
            case "bitcast":
                found = of_bits(bits_of(a[0], expr.args[0].dtype), dtype)
                return found if dtype.kind == "f" else int(found)
            case "select" | "rare":
                return a[1] if a[0] else a[2]
            case "quads":
                made = sum((a[0] >> n & 255) * _byte(a[1] >> n) for n in (0, 8, 16, 24))
                return wrap(made + a[2], dtype)
            case "fma":
                return fma(a[0], a[1], a[2], dtype)
            case "call":
                return self.call(expr, a)
            case "not":
                return wrap(~a[0], dtype) if dtype is not BOOL else 1 - a[0]
            case "clz":
                return dtype.bits - (a[0] & ((1 << dtype.bits) - 1)).bit_length()
            case "popcount":
                return (a[0] & ((1 << dtype.bits) - 1)).bit_count()
        if expr.op in UNARY:
            made = UNARY[expr.op](a[0])
            return made if dtype.kind == "f" else wrap(made, dtype)
        if expr.op in COMPARE:
            return int(COMPARE[expr.op](*a))
        return self.binary(expr.op, a[0], a[1], dtype)

    def binary(self, op: str, x: Any, y: Any, dtype: DType) -> Any:
        if op in ("min", "max"):
            return extreme(op, x, y)
        if op in ("idiv", "irem"):
            return divide(op, x, y, dtype)
        if op in ("shl", "shr"):
            return shift(op, x, y, dtype)
        made = ARITHMETIC[op](x, y)
        return made if dtype.kind == "f" else wrap(made, dtype)

    def call(self, expr: Expr, a: list[Any]) -> Any:
        scalars = Scalars()
        arguments = [scalars.make("arg", expr.dtype, (), i) for i in range(len(a))]
        inner = Evaluator(self.kernel, self.arrays, self.params, self.functions)
        inner.variables.update(zip(arguments, a, strict=True))
        return inner.value(self.functions[expr.data](*arguments))
