"""A fused contraction as plain loops, for back ends without the contraction core.

for every element of the result:  total = sum over k of a * b;  the element-wise rest;  stores
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.loops import Expr, Kernel
from graphc.codegen.lowering.contraction import form_of, result_axes
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.lowering.space import Space
from graphc.ir.graph import Graph

Terms = list[tuple[Expr, int]]


class Direct(Nest):
    """Lowers one contraction with its epilogue."""

    def body(self) -> None:
        b = self.b
        form = form_of(self.region)
        self.form = form
        dims = tensor_type(form.node).dims
        wide = [(k, extent) for k, extent in enumerate(dims) if extent != 1]
        self.units = wide[0][1] if wide else 1
        self.elements_per_unit = math.prod(extent for _, extent in wide[1:])
        values: dict[int, Expr] = {}
        with ExitStack() as stack:
            for level, (axis, extent) in enumerate(wide):
                kind = "parallel" if level == 0 else "serial"
                values[axis] = stack.enter_context(b.loop(extent, kind))
            self.sum_products(values)
            index = tuple(values.get(k, b.integer(0)) for k in range(len(dims)))
            for result in self.region.results:
                self.store(result, index)

    def sum_products(self, values: dict[int, Expr]) -> None:
        """Bind the contraction's node to its sum at these result indices."""
        b, form = self.b, self.form
        dims = tensor_type(form.node).dims
        total = b.register(b.const(0, form.accumulator))
        places = result_axes(form)
        terms: tuple[Terms, Terms] = ([], [])
        counts: dict[str, int] = {}
        with ExitStack() as stack:
            for role, extent, stride_a, stride_b, _ in form.dims:
                position = counts.get(role, 0)
                counts[role] = position + 1
                variable = None
                if role == "k":
                    variable = stack.enter_context(b.loop(extent))
                elif (role, position) in places:
                    axis, step = places[role, position]
                    variable = b.op("idiv", values[axis], b.integer(step))
                    if step * extent != dims[axis]:
                        variable = b.op("irem", variable, b.integer(extent))
                if variable is not None:
                    terms[0].append((variable, stride_a))
                    terms[1].append((variable, stride_b))
            b.update(total, "add", b.mul(self.factor(0, terms[0]), self.factor(1, terms[1])))
        made = b.cast(b.read(total), tensor_type(form.node).dtype)
        self.elements.bind_value(form.node, made)

    def factor(self, position: int, terms: Terms) -> Expr:
        b, read = self.b, self.form.reads[position]
        buffer = self.elements.buffers[read.source.id]
        return b.cast(b.load(buffer, b.affine(terms, read.offset)), self.form.accumulator)


def direct(region: Graph, name: str, strict: bool, check_finite: bool = False) -> Kernel:
    """The region as one loop kernel."""
    dims = tensor_type(form_of(region).node).dims
    return Direct(region, Space(dims, frozenset(), ()), name, strict, check_finite).lower()
