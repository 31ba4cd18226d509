"""simplify: local identities.

Rules are plain functions `rule(node, rewriter) -> Node | None` in a table by op name.  None of
them may change a result beyond rounding: no x*0, no x-x, NaN and infinities and signed zeros
survive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.codegen.table.copies import is_copied
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Reduction, Scalar
from graphc.ir.readers import live_readers
from graphc.ir.types import BF16, F16, F32, F64, DType, TupleType, Type
from graphc.passes.normalise.rules import Rule, by_rules, on_gpus_alone

MOST_ROUNDS = 50


def simplify(graph: Graph, config: Config) -> Graph:
    """The graph without needless nodes."""
    rules = RULES | GPU_RULES if on_gpus_alone(config) else RULES
    readers: list[int] = []

    def read_once(rule: Rule) -> Rule:
        """The rule where nothing else reads the first operand, which would be computed twice."""

        def checked(node: Node, r: Rewriter) -> Node | None:
            first = node.inputs[0].id
            return rule(node, r) if readers[first : first + 1] == [1] else None

        return checked

    of_reshape, of_erf = read_once(product_of_reshaped), read_once(multiplied_argument)

    def rules_of(node: Node) -> tuple[Rule, ...]:
        found = rules.get(node.op.name, ())
        if node.op is OPS["pow"] and not config.strict:
            found = (*found, longer_power)
        if isinstance(node.op.lower, Scalar) and len(node.inputs) > 1:
            return (*found, implicit_broadcast)
        if isinstance(node.op.lower, Reduction):
            return (*found, fold_over_nothing)
        if node.op.traits.matrix_product:
            return (*found, turned_after_casts)
        if node.op.traits.reshapes:
            return (*found, of_reshape)
        if node.op is OPS["erf"] and not config.strict:
            return (*found, of_erf)
        return found

    for _ in range(MOST_ROUNDS):
        readers[:] = live_readers(graph)
        made = by_rules(graph, rules_of)
        if made is graph:
            return graph
        graph = made
    raise GraphError(f"the rules for @{graph.name} undo each other")


# ------------------------------------------------------------------------------------ rules


def same_type(node: Node, r: Rewriter) -> Node | None:
    """A reshape, transpose, cast or broadcast to what its operand is already."""
    source = node.inputs[0]
    if node.type is not source.type or node.after:
        return None
    if node.op.traits.permutes and list(node.attrs["perm"]) != sorted(node.attrs["perm"]):
        return None
    return source


def reshape_of_reshape(node: Node, r: Rewriter) -> Node | None:
    source = node.inputs[0]
    if not source.op.traits.reshapes:
        return None
    return r.emit(node.op, source.inputs, node.attrs)


def reshape_restores_reduced_axes(node: Node, r: Rewriter) -> Node | None:
    """mean(x)[:, None] is mean with keepdims, which fuses with what it broadcasts against."""
    source = node.inputs[0]
    if not isinstance(source.op.lower, Reduction) or source.attrs.get("keepdims", True):
        return None
    attrs = {**source.attrs, "keepdims": True}
    operand = source.inputs[0].type
    assert isinstance(operand, Type)
    kept = tuple(1 if k in source.attrs["axes"] else d for k, d in enumerate(operand.shape))
    assert isinstance(node.type, Type)
    if node.type.shape != kept:
        return None
    return r.emit(source.op, source.inputs, attrs)


def product_of_reshaped(node: Node, r: Rewriter) -> Node | None:
    """reshape(x @ w) is reshape(x) @ w, if only the rows of a matrix get other axes: what
    follows is then computed with the product, which reads its operand by any shape.
    """
    product, kind = node.inputs[0], node.type
    if product.op is not OPS["matmul"] or product.after or node.after:
        return None
    if product.place != node.place:  # the product stays where it was put
        return None
    x, w = product.inputs
    assert isinstance(x.type, Type)
    assert isinstance(w.type, Type)
    assert isinstance(kind, Type)
    if (x.type.rank, w.type.rank) != (2, 2) or x.type.dims[0] == 1 or kind.rank < 3:
        return None
    *rows, columns = kind.dims
    if columns != w.type.dims[1]:
        return None
    turned = r.emit(node.op, (x,), {"dims": (*rows, x.type.dims[1])})
    return r.emit(product.op, (turned, w), product.attrs)


def transpose_of_transpose(node: Node, r: Rewriter) -> Node | None:
    source = node.inputs[0]
    if not source.op.traits.permutes:
        return None
    inner = source.attrs["perm"]
    perm = tuple(inner[a] for a in node.attrs["perm"])
    return r.emit(node.op, source.inputs, {"perm": perm})


def negation_twice(node: Node, r: Rewriter) -> Node | None:
    source = node.inputs[0]
    return source.inputs[0] if source.op is node.op else None


def scalar_of(node: Node) -> Any:
    """The value of a one-element constant, else None."""
    if not node.op.traits.constant or not node.attrs["value"].is_small:
        return None
    array = node.attrs["value"].array
    return array.reshape(-1)[0] if array.size == 1 else None


def unit_operand(node: Node, r: Rewriter) -> Node | None:
    """x*1, x/1, x-0, and x+0 for integers. A complex x*1 is no x where x is infinite."""
    x, y = node.inputs
    if node.op.name in ("mul", "add") and scalar_of(x) is not None:
        x, y = y, x
    number = scalar_of(y)
    if number is None or x.type is not node.type:
        return None
    is_integer = isinstance(number, np.integer)
    parts = np.array([number], np.complex128).view(np.float64)
    plus_zero = number == 0 and not np.signbit(parts).any()
    is_one = number == 1 and not isinstance(number, np.complexfloating)
    unit = {"mul": is_one, "div": is_one, "sub": plus_zero, "add": is_integer and number == 0}[
        node.op.name
    ]
    return x if unit else None


def forgotten_sign(node: Node, r: Rewriter) -> Node | None:
    """x + 0, limited or not, as an integer: that -0 became 0 makes no difference there."""
    assert isinstance(node.type, Type)
    if node.type.dtype.kind not in "iu":
        return None
    found = without_zero(node.inputs[0], r)
    return None if found is None else r.emit(node.op, (found,), node.attrs)


def without_zero(node: Node, r: Rewriter, limits: int = 2) -> Node | None:
    """x for x + 0 below at most so many limits; None for all else."""
    if node.op is OPS["add"]:
        x, zero = node.inputs
        return x if scalar_of(zero) == 0 and x.type is node.type else None
    if node.op.name not in ("maximum", "minimum") or not limits:
        return None
    x, limit = node.inputs
    found = without_zero(x, r, limits - 1) if x.type is node.type else None
    return None if found is None else r.emit(node.op, (found, limit))


def known_choice(node: Node, r: Rewriter) -> Node | None:
    """where with a constant condition."""
    condition, x, y = node.inputs
    known = scalar_of(condition)
    if known is None:
        return None
    chosen = x if known else y
    if chosen.type is node.type:
        return chosen
    assert isinstance(node.type, Type)
    return r.emit(OPS["broadcast"], (chosen,), {"dims": node.type.shape})


def small_power(node: Node, r: Rewriter) -> Node | None:
    """x**2 and x**3 as products; of integers, whose products are exact, all whole powers."""
    x, exponent = node.inputs[0], whole_exponent(node)
    if exponent is None or exponent < 1:
        return None
    if dtype_of(node).kind in "iu":
        return whole_power(x, exponent, r)
    return rounded_power(x, exponent, r) if exponent <= 3 else None


# Each product rounds: the eighth power is that of seven roundings, as XLA makes it.
ROUNDED_POWERS = range(-4, 9)


def longer_power(node: Node, r: Rewriter) -> Node | None:
    """Other powers of few products, which round more often than a power does."""
    exponent = whole_exponent(node)
    if exponent not in ROUNDED_POWERS or not exponent or dtype_of(node).kind != "f":
        return None
    return rounded_power(node.inputs[0], exponent, r)


def dtype_of(node: Node) -> DType:
    assert isinstance(node.type, Type)
    return node.type.dtype


def whole_exponent(node: Node) -> int | None:
    """The exponent of a real power, if it is a known whole number that changes no type."""
    x, exponent = node.inputs
    number = scalar_of(exponent)
    if number is None or x.type is not node.type or dtype_of(node).kind not in "fiu":
        return None
    return int(number) if np.isfinite(number) and int(number) == number else None


def rounded_power(x: Node, exponent: int, r: Rewriter) -> Node:
    """A power of floats. Those of 16 bits round once, at the end: their products are f32.

    The reciprocal comes first: all that follows lies between it and the result, where a product
    might be infinite or 0 although its reciprocal is neither.
    """
    dtype = dtype_of(x)
    narrow = dtype in (F16, BF16) and exponent not in (-1, 1, 2)
    made = r.emit(OPS["cast"], (x,), {"dtype": F32}) if narrow else x
    made = r.emit(OPS["reciprocal"], (made,)) if exponent < 0 else made
    made = whole_power(made, abs(exponent), r)
    return r.emit(OPS["cast"], (made,), {"dtype": dtype}) if narrow else made


def whole_power(x: Node, exponent: int, r: Rewriter) -> Node:
    """Squares of squares, times x where the exponent is odd."""
    made = x
    for bit in f"{exponent:b}"[1:]:
        made = r.emit(OPS["mul"], (made, made))
        made = r.emit(OPS["mul"], (made, x)) if bit == "1" else made
    return made


def implicit_broadcast(node: Node, r: Rewriter) -> Node | None:
    """An element-wise op broadcasts by itself: it reads the operand of an explicit broadcast."""
    for position, source in enumerate(node.inputs):
        if not source.op.traits.broadcasts or len(source.inputs) != 1:
            continue
        inputs = list(node.inputs)
        inputs[position] = source.inputs[0]
        kinds = tuple(n.type for n in inputs)
        if (
            not isinstance(source.type, TupleType)
            and node.op.result_type(kinds, node.attrs) is node.type
        ):
            return r.emit(node.op, inputs, node.attrs)
    return None


def multiplied_argument(node: Node, r: Rewriter) -> Node | None:
    """erf(x / c) as erf(x * (1 / c)), as GELU may be written: a division takes as long as a third
    of erf. What it moves the argument by, a last place of that, moves erf by less than its own.
    """
    quotient = node.inputs[0]
    if quotient.op is not OPS["div"] or quotient.after or quotient.type is not node.type:
        return None
    x, divisor = quotient.inputs
    number = scalar_of(divisor)
    dtype = getattr(node.type, "dtype", None)
    if number is None or x.type is not node.type or dtype not in (F32, F64):
        return None
    with np.errstate(all="ignore"):
        factor = number.dtype.type(1) / number
    if not np.isfinite(factor) or abs(factor) < np.finfo(factor.dtype).tiny:
        return None
    value = literal(factor, dtype)
    times = r.emit(OPS["const"], (), {"value": value})
    return r.emit(node.op, (r.emit(OPS["mul"], (x, times)),), node.attrs)


def fold_over_nothing(node: Node, r: Rewriter) -> Node | None:
    """A fold over no axes is its operand; a sum is not, as it turns -0 into 0."""
    source, lower = node.inputs[0], node.op.lower
    assert isinstance(lower, Reduction)
    plain = not node.attrs["axes"] and source.type is node.type and lower.combine != "add"
    return source if plain else None


def turned_after_casts(node: Node, r: Rewriter) -> Node | None:
    """cast(transpose(x)) as an operand is transpose(cast(x)): a product reads through views."""

    def swapped(operand: Node) -> Node:
        view = operand.inputs[0] if operand.op.traits.casts and not operand.after else None
        if view is None or not (view.op.traits.permutes or view.op.traits.reshapes) or view.after:
            return operand
        made = swapped(r.emit(operand.op, view.inputs, operand.attrs))
        return r.emit(view.op, (made,), view.attrs)

    operands = tuple(map(swapped, node.inputs))
    if node.after or all(a is b for a, b in zip(operands, node.inputs)):
        return None
    return r.emit(node.op, operands, node.attrs)


def pool_of_single_elements(node: Node, r: Rewriter) -> Node | None:
    """A pool of windows of one element is its operand, or every so many elements of that."""
    x, steps = node.inputs[0], node.attrs["stride"]
    if set(node.attrs["window"]) != {1} or node.after or not isinstance(x.type, Type):
        return None
    if node.type is x.type:
        return x
    lead = x.type.rank - len(steps)
    attrs = {"starts": (0,) * x.type.rank, "stops": x.type.shape, "steps": (1,) * lead + steps}
    return r.emit(OPS["slice"], (x,), attrs)


def concat_in_stages(node: Node, r: Rewriter) -> Node | None:
    """A concat of very many operands is one of concats: kernels stay small."""
    if len(node.inputs) <= tuned.concat_pieces:
        return None
    parts = [
        node.inputs[k : k + tuned.concat_pieces]
        for k in range(0, len(node.inputs), tuned.concat_pieces)
    ]
    joined = [r.emit(node.op, part, node.attrs) if len(part) > 1 else part[0] for part in parts]
    return r.emit(node.op, joined, node.attrs)


def concat_of_computed_in_stages(node: Node, r: Rewriter) -> Node | None:
    """Arrays that only follow each other in memory are copied there without a kernel."""
    return None if is_copied(node) else concat_in_stages(node, r)


RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (same_type, reshape_of_reshape, reshape_restores_reduced_axes),
    "stop_gradient": (same_type,),
    "transpose": (same_type, transpose_of_transpose),
    "broadcast": (same_type,),
    "pool": (pool_of_single_elements,),
    "concat": (concat_of_computed_in_stages,),
    "cast": (same_type, forgotten_sign),
    "neg": (negation_twice,),
    "mul": (unit_operand,),
    "add": (unit_operand,),
    "sub": (unit_operand,),
    "div": (unit_operand,),
    "pow": (small_power,),
    "where": (known_choice,),
}


def least_of_sorted(node: Node, r: Rewriter) -> Node | None:
    """The first positions of sorted rows are found without sorting the rest."""
    order = node.inputs[0]
    if order.op is not OPS["argsort_keys"] or not isinstance(order.type, Type):
        return None
    *rows, extent = order.type.dims
    starts, stops, steps = (node.attrs[name] for name in ("starts", "stops", "steps"))
    if any(starts) or set(steps) != {1} or [*stops[:-1]] != rows or not stops[-1] < extent:
        return None
    made = r.emit(OPS["topk_keys"], order.inputs, {"k": stops[-1]})
    return r.emit(OPS["item"], (made,), {"index": 1})


GPU_RULES: dict[str, tuple[Rule, ...]] = {
    "concat": (concat_in_stages,),
    "slice": (least_of_sorted,),
}
