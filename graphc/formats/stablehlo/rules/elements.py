"""Element by element: the expression that kernels are made of, as operations on whole arrays.

The loop IR and StableHLO have nearly the same words, so an op's own expression is all that is
needed: an index is an iota, a load is a gather from the flat operand.  Where StableHLO has a word
for a whole function, it is taken; other functions are written as the polynomials that they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.codegen.lowering.evaluate import flat_index, to_compute, to_storage
from graphc.formats.exporting import Refused
from graphc.formats.stablehlo.writer import Value, Writer, rule, type_of
from graphc.ir.graph import Node
from graphc.ir.op import OPS, Compute, Scalar
from graphc.ir.types import BOOL, I64, DType, Type, tensor
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import Pair
from graphc.loops.vecmath import FUNCTIONS

_WORDS = {
    "add": "add", "mul": "multiply", "div": "divide", "neg": "negate",
    "min": "minimum", "max": "maximum", "sqrt": "sqrt", "floor": "floor",
    "ceil": "ceil", "rint": "round_nearest_even", "and": "and", "or": "or", "xor": "xor",
    "not": "not", "popcount": "popcnt", "clz": "count_leading_zeros",
}  # fmt: skip
_CALLS = {
    "exp": "exponential",
    "exp_below_zero": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "tanh": "tanh",
    "sigmoid": "logistic",
    "rsqrt": "rsqrt",
    "cbrt": "cbrt",
    "atan2": "atan2",
    "pow": "power",
}
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
PARTS = ("real", "imag")


class Elementwise:
    """Writes expressions as operations on arrays of one shape."""

    def __init__(self, w: Writer, dims: tuple[int, ...], operands: list[Value]) -> None:
        self.w, self.dims, self.operands = w, dims, operands
        self.made: dict[int, Value] = {}

    def value(self, root: Expr) -> Value:
        """An expression; what it is made of comes first, without recursion."""
        waiting = [root]
        while waiting:
            expr = waiting[-1]
            if expr.number in self.made:
                waiting.pop()
                continue
            missing = [a for a in expr.args if a.number not in self.made]
            if missing:
                waiting.extend(missing)
                continue
            self.made[expr.number] = self.written(expr, [self.made[a.number] for a in expr.args])
            waiting.pop()
        return self.made[root.number]

    def written(self, expr: Expr, args: list[Value]) -> Value:
        op, w = expr.op, self.w
        kind = tensor(expr.dtype, self.dims)
        if op == "const":
            number = float.fromhex(expr.data) if isinstance(expr.data, str) else expr.data
            return w.full(number, kind)
        if op == "var":
            return w.op("iota", to=kind, iota_dimension=expr.data)  # type: ignore[no-any-return]
        if op == "arg":
            return self.w.spread(self.part(*expr.data), self.dims)
        if op == "load":
            return self.gathered(self.part(*expr.data), args[0])
        if op == "call":
            return self.called(expr, args)
        if op in _WORDS:
            return w.op(_WORDS[op], *args, to=kind)  # type: ignore[no-any-return]
        if op in _COMPARE:
            way = f"#stablehlo<comparison_direction {op.upper()}>"
            return w.op("compare", *args, to=kind, comparison_direction=way)  # type: ignore[no-any-return]
        special = getattr(self, f"of_{op}", None)
        if special is None:
            raise Refused(f"StableHLO has no operator for {op} of elements")
        return special(expr, args, kind)  # type: ignore[no-any-return]

    def part(self, number: int, part: str) -> Value:
        """An operand, or a part of a complex one."""
        x = self.operands[number]
        if not part:
            return x
        return self.w.op(part, x, to=tensor(x.dtype.real, x.type.shape))  # type: ignore[no-any-return]

    def gathered(self, x: Value, places: Value) -> Value:
        """Elements by their places in row-major order."""
        flat = self.w.reshaped(x, (x.type.size,))
        if 0 in self.dims or not x.type.size:
            return self.w.full(0, tensor(x.dtype, self.dims))
        axis = len(self.dims)
        numbers = (
            "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
            f"index_vector_dim = {axis}>"
        )
        return self.w.op(  # type: ignore[no-any-return]
            "gather",
            flat,
            places,
            to=tensor(x.dtype, self.dims),
            dimension_numbers=numbers,
            slice_sizes=(1,),
            indices_are_sorted=False,
        )

    def called(self, expr: Expr, args: list[Value]) -> Value:
        """A function: StableHLO's own, or the expression that it is."""
        name = str(expr.data)
        if name in _CALLS:
            return self.w.op(_CALLS[name], *args, to=args[0].type)  # type: ignore[no-any-return]
        b = Scalars()
        params = [b.make("arg", a.dtype, (), (k, "")) for k, a in enumerate(args)]
        return Elementwise(self.w, self.dims, args).value(FUNCTIONS[name](*params))

    # -- what takes more than a word

    def of_sub(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        """(x y + shift) - shift rounds to an integer; XLA takes it for x y."""
        first, shift = expr.args
        if first.op == "fma" and first.args[2] is shift and shift.op == "const":
            product = self.w.op("multiply", *(self.made[a.number] for a in first.args[:2]), to=kind)
            return self.w.op("round_nearest_even", product, to=kind)  # type: ignore[no-any-return]
        return self.w.op("subtract", *args, to=kind)  # type: ignore[no-any-return]

    def of_abs(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        signed = kind.dtype.is_float or kind.dtype.name[0] == "i"
        return self.w.op("abs", *args, to=kind) if signed else args[0]

    def of_cast(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        (x,), w, to = args, self.w, kind.dtype
        if to is BOOL and x.dtype is not BOOL:
            return self.compared("NE", x, w.full(0, x.type))
        if x.dtype.is_float and to.is_integer:
            return self.saturated(x, to)
        return w.cast(x, to)

    def compared(self, way: str, x: Value, y: Value) -> Value:
        to = tensor(BOOL, x.type.shape)
        direction = f"#stablehlo<comparison_direction {way}>"
        return self.w.op("compare", x, y, to=to, comparison_direction=direction)  # type: ignore[no-any-return]

    def chosen(self, condition: Value, x: Value, y: Value) -> Value:
        return self.w.op("select", condition, x, y, to=x.type)  # type: ignore[no-any-return]

    def saturated(self, x: Value, to: DType) -> Value:
        """A float as an integer: what is beyond becomes the nearest, NaN 0."""
        info, w = np.iinfo(to.numpy), self.w
        made = w.cast(x, to)
        top = float(info.max) + 1
        over = self.compared("GE", x, w.full(top, x.type))
        under = self.compared("LE", x, w.full(float(info.min), x.type))
        made = self.chosen(over, w.full(info.max, made.type), made)
        made = self.chosen(under, w.full(info.min, made.type), made)
        return self.chosen(self.compared("NE", x, x), w.full(0, made.type), made)

    def of_bitcast(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        if args[0].dtype is BOOL or kind.dtype is BOOL:
            return self.w.cast(args[0], kind.dtype)
        return self.w.op("bitcast_convert", *args, to=kind)  # type: ignore[no-any-return]

    def of_select(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        return self.w.op("select", *args, to=kind)  # type: ignore[no-any-return]

    of_rare = of_select

    def of_fma(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        product = self.w.op("multiply", *args[:2], to=kind)
        return self.w.op("add", product, args[2], to=kind)  # type: ignore[no-any-return]

    def of_trunc(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        size = self.w.op("floor", self.w.op("abs", *args, to=kind), to=kind)
        sign = self.w.op("sign", *args, to=kind)
        made = self.w.op("multiply", size, sign, to=kind)
        return self.chosen(self.compared("EQ", made, args[0]), args[0], made)

    def of_shl(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        return self.w.op("shift_left", *args, to=kind)  # type: ignore[no-any-return]

    def of_shr(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        signed = kind.dtype.name[0] == "i"
        word = "shift_right_arithmetic" if signed else "shift_right_logical"
        return self.w.op(word, *args, to=kind)  # type: ignore[no-any-return]

    def of_idiv(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        """Division by 0 gives 0, which is nobody's there."""
        return self._safely("divide", args, kind)

    def of_irem(self, expr: Expr, args: list[Value], kind: Type) -> Value:
        return self._safely("remainder", args, kind)

    def _safely(self, word: str, args: list[Value], kind: Type) -> Value:
        x, y = args
        none = self.w.full(0, kind)
        nought = self.compared("EQ", y, none)
        made = self.w.op(word, x, self.chosen(nought, self.w.full(1, kind), y), to=kind)
        return self.chosen(nought, none, made)


def leaf(b: Scalars, number: int, element: DType) -> Any:
    """Operand `number` at the index of the result."""
    if not element.is_complex:
        return b.make("arg", element, (), (number, ""))
    return Pair(*(b.make("arg", element.real, (), (number, part)) for part in PARTS))


def result(e: Elementwise, value: Any, kind: Type) -> Value:
    """What an element stands for, as an array."""
    if not isinstance(value, Pair):
        return e.value(value)
    parts = e.value(value.re), e.value(value.im)
    return e.w.op("complex", *parts, to=kind)  # type: ignore[no-any-return]


@rule(*(name for name, op in OPS.items() if isinstance(op.lower, Scalar)))
def scalar(w: Writer, node: Node, *operands: Value) -> Value:
    """An element-wise op, by its expression."""
    lower, kind, b = node.op.lower, type_of(node), Scalars()
    assert isinstance(lower, Scalar)
    leaves = [leaf(b, k, x.dtype) for k, x in enumerate(operands)]
    if not lower.stored:
        leaves = [to_compute(b, v, x.dtype) for v, x in zip(leaves, operands)]
    made = lower.expression(*leaves, **node.attrs.values_dict)
    e = Elementwise(w, kind.dims, list(operands))
    return result(e, to_storage(b, made, kind.dtype), kind)


@rule(*(name for name, op in OPS.items() if isinstance(op.lower, Compute)))
def computed(w: Writer, node: Node, *operands: Value) -> Value:
    """An op that says which element goes where; indices out of range are clamped as its rule says,
    where a kernel stops."""
    lower, kind, b = node.op.lower, type_of(node), Scalars()
    assert isinstance(lower, Compute)

    def read(k: int, index: Any) -> Any:
        element = operands[k].dtype
        place = (flat_index(b, tuple(index), operands[k].dims),)
        if not element.is_complex:
            return b.make("load", element, place, (k, ""))
        return Pair(*(b.make("load", element.real, place, (k, part)) for part in PARTS))

    index = tuple(b.make("var", I64, (), axis) for axis in range(len(kind.dims)))
    made = to_storage(b, lower.element(b, node, read, index), kind.dtype)
    return result(Elementwise(w, kind.dims, list(operands)), made, kind)
