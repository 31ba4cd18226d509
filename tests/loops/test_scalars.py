"""Operators on scalar expressions: the same expressions as the builder's own words make."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable
from typing import Any

import pytest

from graphc.ir.types import BOOL, F32, I64, U32
from graphc.loops import scalars as words
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import Pair, fma, is_nan, where

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "idiv": operator.floordiv, "irem": operator.mod, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "min": words.minimum, "max": words.maximum,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "abs": abs,
    "not": operator.invert,
    "sqrt": words.sqrt,
    "floor": words.floor,
    "ceil": words.ceil,
    "trunc": words.trunc,
    "rint": words.rint,
    "popcount": words.popcount,
}
REFLECTED = ("add", "sub", "mul", "div", "idiv", "irem")


def leaves(b: Scalars, op: str) -> tuple[Expr, Expr]:
    """Two values of a type that the op takes."""
    dtype = F32 if op == "div" else U32
    x, y = (b.make("arg", dtype, (), k) for k in range(2))
    return x, y


@pytest.mark.parametrize("op", BINARY)
def test_an_operator_is_the_op_of_the_builder_and_a_number_a_literal_of_the_type(op: str) -> None:
    b = Scalars()
    x, y = leaves(b, op)
    apply = BINARY[op]
    assert apply(x, y) is b.op(op, x, y)
    assert apply(x, 3) is b.op(op, x, b.const(3, x.dtype))
    if op in REFLECTED:
        assert apply(3, x) is b.op(op, b.const(3, x.dtype), x)


@pytest.mark.parametrize("op", UNARY)
def test_a_function_of_one_operand_is_the_op_of_the_builder(op: str) -> None:
    b = Scalars()
    x, _ = leaves(b, op)
    assert UNARY[op](x) is b.op(op, x)


def test_words() -> None:
    b = Scalars()
    x, y = leaves(b, "div")
    assert fma(x, 2, y) is b.fma(x, b.const(2, F32), y)
    assert words.quads(x, y, x) is b.op("quads", x, y, x)
    assert where(x < y, x, 0) is b.select(b.compare("lt", x, y), x, b.const(0, F32))
    assert where(x < y, 0, x) is b.select(b.compare("lt", x, y), b.const(0, F32), x)
    assert where(x < y, x, x) is x
    assert is_nan(x) is b.compare("ne", x, x)
    assert x.cast(I64) is b.cast(x, I64) and x.bitcast(U32) is b.bitcast(x, U32)
    assert words.not_zero(x) is b.cast(x, BOOL)
    assert x.like(y) is y and x.like(1.5) is b.const(1.5, F32)


def test_pairs_add_and_multiply_as_complex_numbers() -> None:
    b = Scalars()
    x, y = leaves(b, "div")
    first, second = Pair(x, y), Pair(y, x)
    assert (first + second).re is x + y and (first - second).im is y - x and (-first).im is -y
    product = first * second
    assert product.re is x * y - y * x and product.im is x * x + y * y
    chosen = where(x < y, first, second)
    assert chosen.re is where(x < y, x, y) and chosen.im is where(x < y, y, x)


def test_an_expression_has_no_truth_value() -> None:
    b = Scalars()
    x, y = leaves(b, "div")
    with pytest.raises(TypeError, match="known when the kernel runs"):
        bool(x < y)
    with pytest.raises(TypeError, match="known when the kernel runs"):
        _ = x in [y]
    assert {x: 1, y: 2}[y] == 2 and x in {x, y}


def test_a_literal_of_an_integer_type_is_whole() -> None:
    b = Scalars()
    x, _ = leaves(b, "add")
    with pytest.raises(ValueError, match=r"0\.5"):
        x + 0.5


def test_expressions_outlive_their_builder_and_do_not_hold_it() -> None:
    enabled = gc.isenabled()
    gc.disable()
    try:
        b = Scalars()
        made = b.param(0) + 1
        itself = b.itself
        del b
        assert itself() is None
    finally:
        if enabled:
            gc.enable()
    assert made.op == "add"
    with pytest.raises(AssertionError, match="builder"):
        made + 1
