"""Python spellings of scalar expressions, typed so that Numba and NumPy compute the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from graphc.codegen.python.helpers import storage
from graphc.ir.types import BF16, BOOL, F16, F32, F64, DType
from graphc.loops.nest import Expr

Text = tuple[str, int]  # source and how tightly its outermost operator binds
ATOM, MULTIPLY, ADD, LOOSE = 3, 2, 1, 0


class Helpers(Protocol):
    def helper(self, name: str) -> str: ...


class Speller(Protocol):
    """What a spelling needs from the function being written."""

    @property
    def library(self) -> Helpers: ...

    def atom(self, expr: Expr, tight: int = ATOM) -> str: ...

    def at_least(self, expr: Expr) -> int | None: ...


_SIGN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_SIGN |= {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LEVEL = {"add": ADD, "sub": ADD, "mul": MULTIPLY, "div": MULTIPLY}


def spell(w: Speller, expr: Expr) -> Text:
    """The expression as source; its operands are written already."""
    return _SPELLINGS[expr.op](w, expr)


def _typed(expr: Expr, text: str, level: int) -> Text:
    """Numba widens integers to 64 bits: narrow the result back to its type."""
    if expr.dtype.is_integer and expr.dtype.bits < 64:
        return f"{storage(expr.dtype)}({text})", ATOM
    return text, level


def _binary(w: Speller, expr: Expr) -> Text:
    level = _LEVEL.get(expr.op, LOOSE)
    x, y = expr.args
    left = w.atom(x, level if level else ATOM)
    right = w.atom(y, level + 1 if level else ATOM)
    return _typed(expr, f"{left} {_SIGN[expr.op]} {right}", level)


def _call(w: Speller, name: str, *args: Expr) -> Text:
    return f"{name}({', '.join(w.atom(a, LOOSE) for a in args)})", ATOM


def _helper(w: Speller, kind: str, expr: Expr) -> Text:
    return _call(w, w.library.helper(f"{kind}_{expr.dtype}"), *expr.args)


def _division(w: Speller, expr: Expr) -> Text:
    x, y = expr.args
    low, divisor = w.at_least(x), w.at_least(y)
    if low is not None and divisor is not None and low >= 0 and divisor > 0:
        sign = "//" if expr.op == "idiv" else "%"
        return f"{w.atom(x, MULTIPLY)} {sign} {w.atom(y)}", MULTIPLY
    return _helper(w, expr.op, expr)


def _minmax(w: Speller, expr: Expr) -> Text:
    if expr.dtype.kind == "f":
        return _helper(w, f"{expr.op}imum", expr)
    if expr.dtype is BOOL:
        sign = "&" if expr.op == "min" else "|"
        return f"{w.atom(expr.args[0])} {sign} {w.atom(expr.args[1])}", LOOSE
    return _call(w, expr.op, *expr.args)


def _neg(w: Speller, expr: Expr) -> Text:
    x = w.atom(expr.args[0])
    if expr.dtype.kind == "u":
        return _typed(expr, f"{storage(expr.dtype)}(0) - {x}", ADD)
    return _typed(expr, f"-{x}", MULTIPLY)


def _abs(w: Speller, expr: Expr) -> Text:
    if expr.dtype.kind == "u":
        return w.atom(expr.args[0], LOOSE), LOOSE
    return _typed(expr, f"abs({w.atom(expr.args[0], LOOSE)})", ATOM)


def _numpy(w: Speller, expr: Expr) -> Text:
    return _call(w, f"np.{expr.op}", expr.args[0])


def _fma(w: Speller, expr: Expr) -> Text:
    return _call(w, "fma", *expr.args)


def _not(w: Speller, expr: Expr) -> Text:
    x = w.atom(expr.args[0])
    return (f"not {x}", LOOSE) if expr.dtype is BOOL else _typed(expr, f"~{x}", MULTIPLY)


def _shift(w: Speller, expr: Expr) -> Text:
    count = expr.args[1]
    if count.op == "const" and 0 <= count.data < expr.dtype.bits:
        sign = "<<" if expr.op == "shl" else ">>"
        return _typed(expr, f"{w.atom(expr.args[0])} {sign} {w.atom(count)}", LOOSE)
    return _helper(w, expr.op, expr)


def _bits(w: Speller, expr: Expr) -> Text:
    return _helper(w, expr.op, expr)


def _quads(w: Speller, expr: Expr) -> Text:
    return _call(w, w.library.helper("quads_i32"), *expr.args)


def _select(w: Speller, expr: Expr) -> Text:
    condition, x, y = expr.args
    # Brackets at all three places: a condition may itself be a choice or a `not`.
    return f"{w.atom(x)} if {w.atom(condition)} else {w.atom(y)}", LOOSE


def _bitcast(w: Speller, expr: Expr) -> Text:
    source, result = (storage(d) for d in (expr.args[0].dtype, expr.dtype))
    x = w.atom(expr.args[0], LOOSE)
    made = x if source == result else f"{source}({x}).view({result})"
    # Numba widens the integer that a view yields.
    return (f"{result}({made})" if expr.dtype.is_integer else made), ATOM


def _cast(w: Speller, expr: Expr) -> Text:
    return cast(w, w.atom(expr.args[0], LOOSE), expr.args[0].dtype, expr.dtype)


def cast(w: Speller, x: str, source: DType, result: DType) -> Text:
    """Convert by the rules of the loop IR (see `loops`)."""
    if source is result:
        return x, LOOSE
    if source in (F16, BF16):
        wide = f"{w.library.helper(f'cast_{source}_f32')}({x})"
        return cast(w, wide, F32, result) if result is not F32 else (wide, ATOM)
    if result in (F16, BF16) and source.kind != "f":
        x, source = f"np.float64({x})", F64
    if result is BOOL:
        zero = "0" if source.name == "i64" else f"{storage(source)}(0)"
        return f"({x}) != {zero}", LOOSE
    if result in (F16, BF16) or (source.kind == "f" and result.is_integer):
        return f"{w.library.helper(f'cast_{source}_{result}')}({x})", ATOM
    return f"{storage(result)}({x})", ATOM


_SPELLINGS: dict[str, Callable[[Speller, Expr], Text]] = {
    **dict.fromkeys(_SIGN, _binary),
    **dict.fromkeys(("idiv", "irem"), _division),
    **dict.fromkeys(("min", "max"), _minmax),
    **dict.fromkeys(("sqrt", "floor", "ceil", "trunc", "rint"), _numpy),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("popcount", "clz"), _bits),
    "quads": _quads,
    "neg": _neg,
    "abs": _abs,
    "fma": _fma,
    "not": _not,
    "select": _select,
    "bitcast": _bitcast,
    "cast": _cast,
}
