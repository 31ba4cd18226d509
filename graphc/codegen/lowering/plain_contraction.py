"""A fused contraction as plain loops, for back ends without the contraction core.

for every element of the result:  total = sum over k of a * b;  the element-wise rest;  stores
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.lowering.contraction import axes_along, form_of, result_axes
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.lowering.space import Space
from graphc.ir.graph import Graph
from graphc.loops.nest import Expr, Kernel, Register
from graphc.loops.scalars import fma

Terms = list[tuple[Expr, int]]


class Direct(Nest):
    """Lowers one contraction with its epilogue."""

    def body(self) -> None:
        b = self.b
        form = form_of(self.region)
        self.form = form
        dims = tensor_type(form.node).dims
        wide = [(k, extent) for k, extent in enumerate(dims) if extent != 1]
        with ExitStack() as stack:
            values = self.nest(wide, stack)
            self.sum_products(values)
            index = tuple(values.get(k, b.integer(0)) for k in range(len(dims)))
            for result in self.region.results:
                self.store(result, tuple(index[axis] for axis in form.shown))

    def nest(self, wide: list[tuple[int, int]], stack: ExitStack) -> dict[int, Expr]:
        """Open the loops over the result; the variable of each axis."""
        self.units = wide[0][1] if wide else 1
        self.elements_per_unit = math.prod(extent for _, extent in wide[1:])
        kinds = ["parallel", *["serial"] * len(wide)]
        pairs = zip(wide, kinds, strict=False)
        return {axis: stack.enter_context(self.b.loop(n, kind)) for (axis, n), kind in pairs}

    def sum_products(self, values: dict[int, Expr]) -> None:
        """Bind the contraction's node to its sum at these result indices."""
        b, form = self.b, self.form
        total = b.register(b.const(0, form.accumulator))
        with ExitStack() as stack:
            steps = {k: stack.enter_context(b.loop(form.dims[k][1])) for k in self.summed()}
            self.add_product(total, *self.factors(values, steps))
        made = b.read(total).cast(tensor_type(form.node).dtype)
        self.elements.bind_value(form.node, made)

    def factors(self, values: dict[int, Expr], steps: dict[int, Expr]) -> tuple[Expr, Expr]:
        """The operands at these result indices and, by number of the dim, steps of the sum."""
        form = self.form
        dims, places = tensor_type(form.node).dims, result_axes(form)
        terms: tuple[Terms, Terms] = ([], [])
        variables: dict[tuple[str, int], Expr] = {}
        counts: dict[str, int] = {}
        for number, (role, extent, stride_a, stride_b, _) in enumerate(form.dims):
            position = counts.get(role, 0)
            counts[role] = position + 1
            variable = steps.get(number)
            if variable is None and (role, position) in places:
                axis, step = places[role, position]
                variable = values[axis] // step
                if step * extent != dims[axis]:
                    variable = variable % extent
            if variable is not None:
                variables[role, position] = variable
                terms[0].append((variable, stride_a))
                terms[1].append((variable, stride_b))
        x, y = (
            self.computed(k, variables) if form.computed[k] else self.factor(k, terms[k])
            for k in (0, 1)
        )
        return x, y

    def summed(self) -> list[int]:
        """The dims that are summed over, outermost first, by number."""
        return [number for number, dim in enumerate(self.form.dims) if dim[0] == "k"]

    def add_product(self, total: Register, x: Expr, y: Expr) -> None:
        self.b.update(total, "add", x * y)

    def factor(self, position: int, terms: Terms) -> Expr:
        b, read = self.b, self.form.reads[position]
        buffer = self.elements.buffers[read.source.id]
        return b.load(buffer, b.affine(terms, read.offset)).cast(self.form.accumulator)

    def computed(self, position: int, variables: dict[tuple[str, int], Expr]) -> Expr:
        """An operand that is not stored, at these places of the dims."""
        b, operand = self.b, self.form.node.inputs[position]
        index = [b.integer(0)] * tensor_type(operand).rank
        for dim, (axis, step) in axes_along(self.form, position).items():
            index[axis] = index[axis] + variables[dim] * step
        made: Expr = self.elements.at(operand, tuple(index))
        return made.cast(self.form.accumulator)


class ElementUnits(Direct):
    """Every element of the result is a unit of its own, as the many threads of a GPU want it."""

    def nest(self, wide: list[tuple[int, int]], stack: ExitStack) -> dict[int, Expr]:
        self.units = math.prod(extent for _, extent in wide)
        if not wide:
            return {}
        unit = stack.enter_context(self.b.loop(self.units, "parallel"))
        parts = split_index(self.b, unit, tuple(extent for _, extent in wide))
        return {axis: part for (axis, _), part in zip(wide, parts, strict=True)}


class OrderedDirect(ElementUnits):
    """Sums as the ordered contraction core does: term by term, each by a fused multiply-add."""

    def summed(self) -> list[int]:
        """In the order that `contract.normalise` gives them."""
        dims = self.form.dims
        return sorted(super().summed(), key=lambda k: -abs(dims[k][2]) - abs(dims[k][3]))

    def add_product(self, total: Register, x: Expr, y: Expr) -> None:
        b = self.b
        if total.dtype.is_float:
            b.assign(total, fma(x, y, b.read(total)))
        else:
            super().add_product(total, x, y)


def direct(
    region: Graph,
    name: str,
    strict: bool,
    check_finite: bool = False,
    parity: bool = False,
    many_threads: bool = False,
) -> Kernel:
    """The region as one loop kernel, of a unit for every element if there are threads for them."""
    dims = tensor_type(form_of(region).node).dims
    shape = OrderedDirect if parity else ElementUnits if many_threads else Direct
    return shape(region, Space(dims, frozenset(), ()), name, strict, check_finite).lower()
