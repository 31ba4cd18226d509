"""conditioning: how often a relative error of a value counts in the results, to first order.

    %3 = mul(%1, %2)     |d%3 / %3| <= |d%1 / %1| + |d%2 / %2|           1 and 1
    %4 = sqrt(%3)        |d%4 / %4| <= |d%3 / %3| / 2                    a half
    %5 = add(%4, %0)     unbounded: the sum may be nearly zero

Products, quotients, roots, signs, largest values and whatever only moves elements keep relative
errors in bounds whatever the values are; sums and everything made of them do not.  No list of ops
says so: the bound of an element-wise op or of an index lambda is read off its scalar expression.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf

from graphc.codegen.lowering.evaluate import Elements, Index
from graphc.ir.channels import ends, one_order
from graphc.ir.graph import Node, Program
from graphc.ir.op import Alias, Compute, Effect, Reduction, Scalar
from graphc.ir.types import I64, Type
from graphc.loops.nest import Assign, Declare, Expr, Fail, If, Scalars, Statement

Factors = dict[int, float]  # operand -> what its relative error is multiplied by
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def weights(program: Program) -> dict[str, float]:
    """For each channel outside regions how often a relative error of what it carries counts in the
    results and in what variables are assigned, added up; `inf` where nothing bounds it."""
    sends, _ = ends(program.graphs, deep=False)
    weight: dict[Node, float] = defaultdict(float)
    for result in program.results:
        weight[result] += 1
    memo: dict[object, list[float]] = {}
    found = {}
    for node in reversed(one_order(program)):
        own = weight[node] + (node.op.effect is Effect.WRITE)
        if node.op.traits.recv:
            channel = node.attrs["channel"]
            found[channel] = own
            for source in sends[channel].inputs:
                weight[source] += own
        elif own:
            same = tuple([node.inputs.index(n) for n in node.inputs])
            key = node.op, node.attrs, node.type, same, tuple([n.type for n in node.inputs])
            known = memo[key] = memo.get(key) or factors(node)
            for source, factor in zip(node.inputs, known, strict=True):
                weight[source] += own * factor if factor else 0.0
    return found


def factors(node: Node) -> list[float]:
    """What the relative error of each operand is multiplied by in the result of a node."""
    lower = node.op.lower
    if isinstance(lower, Alias) or node.op.traits.idle or node.op.effect is Effect.COMM:
        return [1.0] * len(node.inputs)
    if isinstance(lower, Reduction) and lower.combine in ("min", "max") and not lower.finish:
        return [1.0] * len(node.inputs)
    if isinstance(lower, Scalar | Compute) and all(map(_is_plain, (node, *node.inputs))):
        found = _of_expression(node)
        return [found.get(k, 0.0) for k in range(len(node.inputs))]
    return [inf] * len(node.inputs)


def _is_plain(node: Node) -> bool:
    kind = node.type
    return isinstance(kind, Type) and kind.is_static and not kind.dtype.is_complex


def _of_expression(node: Node) -> Factors:
    """The factors of one element of the result, from the expression that computes it."""
    b = Scalars()
    elements = Elements(b)
    for operand in set(node.inputs):
        _bind(elements, operand, node.inputs.index(operand))
    assert isinstance(node.type, Type)
    index = tuple([b.make("var", I64, (), k) for k in range(len(node.type.shape))])
    made = elements.at(node, index)
    written = _Written(b.body)
    if written.loops:
        return dict.fromkeys(range(len(node.inputs)), inf)
    known: dict[int, Factors] = {}
    for expr in sorted(b.table.values(), key=lambda e: e.number):
        parts = [known[a.number] for a in expr.args]
        if expr.op == "reg":
            parts = written.factors(expr.data[0], known)
        known[expr.number] = _largest(parts) if expr.op == "reg" else _combined(expr, parts)
    return known[made.number]


class _Written:
    """What the statements of an expression give its registers, under which conditions; `loops` if
    some do more than choose."""

    def __init__(self, body: list[Statement]) -> None:
        self.loops = False
        self.values: dict[int, list[Expr]] = defaultdict(list)
        self.conditions: list[Expr] = []
        self.visit(body)

    def visit(self, body: list[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Declare | Assign):
                self.values[statement.register.index].append(statement.value)
            elif isinstance(statement, If):
                self.conditions.append(statement.condition)
                self.visit(statement.body)
            elif not isinstance(statement, Fail):
                self.loops = True

    def factors(self, register: int, known: dict[int, Factors]) -> list[Factors]:
        """The factors of everything a register may hold by now."""
        choices = [known[c.number] for c in self.conditions if c.number in known]
        values = [known[v.number] for v in self.values[register] if v.number in known]
        return [_unbounded(choices), *values]


def _bind(elements: Elements, operand: Node, number: int) -> None:
    b, kind = elements.b, operand.type
    assert isinstance(kind, Type)

    def read(index: Index) -> Expr:
        return b.make("load", kind.dtype, index, ("operand", number))

    elements.bind(operand, read)


def _combined(expr: Expr, parts: list[Factors]) -> Factors:
    """The factors of an expression from those of its operands."""
    name = expr.op
    if name == "load":
        return _added([{expr.data[1]: 1.0}, _unbounded(parts)])
    if name in ("neg", "abs") or (name == "cast" and expr.dtype.kind == "f"):
        return parts[0]
    if name in ("mul", "div"):
        return _added(parts)
    if name == "sqrt":
        return {k: factor / 2 for k, factor in parts[0].items()}
    if name in ("min", "max"):
        return _largest(parts)
    if name in ("select", "rare"):
        return _largest([_unbounded(parts[:1]), *parts[1:]])
    if name in _COMPARISONS and any(_is_zero(a) for a in expr.args):
        return {}  # a relative error changes no sign
    return _unbounded(parts)


def _is_zero(expr: Expr) -> bool:
    return expr.op == "const" and expr.data in (0, (0.0).hex(), (-0.0).hex())


def _added(parts: list[Factors]) -> Factors:
    total: Factors = defaultdict(float)
    for part in parts:
        for k, factor in part.items():
            total[k] += factor
    return dict(total)


def _largest(parts: list[Factors]) -> Factors:
    keys = {k for part in parts for k in part}
    return {k: max(part.get(k, 0.0) for part in parts) for k in keys}


def _unbounded(parts: list[Factors]) -> Factors:
    return {k: inf for part in parts for k, factor in part.items() if factor}
