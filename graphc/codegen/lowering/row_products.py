"""Products of many rows by a matrix of a few elements: a vector holds a row in each lane.

    parallel for block of rows:                    100000 x 4 times 4 x 4, or 1000 small products:
        vector for i in block:                     every element of a row is a value of its own
            for n, for k, one copy each:  c[i, n] = a[i, 0] * b[0, n] + a[i, 1] * b[1, n] + ..

The contraction core copies both operands into panels, of which such products use little.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, nullcontext
from itertools import product

from graphc.codegen.lowering.contraction import Form, form_of, reduces
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.nest import unique
from graphc.codegen.lowering.plain_contraction import Direct
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph
from graphc.ir.sizes import hint_of
from graphc.ir.types import F32, F64
from graphc.loops.nest import Expr
from graphc.loops.scalars import minimum

WIDE = 16  # columns that fill vectors by themselves


def inner_axes(region: Graph) -> tuple[int, ...] | None:
    """The last axes of a product, of which an iteration computes all elements; None where the
    contraction core is better.
    """
    form = form_of(region)
    dims = tensor_type(form.node).dims
    steps = math.prod(extent for role, extent, *_ in form.dims if role == "k")
    if not is_plain(region, form) or not isinstance(steps, int):
        return None
    if not dims:  # a sum of all products has no rows
        return None
    axes, work = len(dims), steps
    if work > tuned.short_dot and sum(extent != 1 for extent in dims) == 1:
        return None  # by a vector: one sum of a long text for each row
    while axes > 1 and isinstance(dims[axes - 1], int):
        work *= dims[axes - 1]
        if work > tuned.short_product:
            break
        axes -= 1
    few = hint_of(dims[axes - 1]) < tuned.row_products
    return None if few or 0 in (steps, *dims) else tuple(range(axes, len(dims))) or None


def is_plain(region: Graph, form: Form) -> bool:
    """Does a product read stored floats, and do its sums have their type and are not reduced?"""
    plain = form.element is tensor_type(form.node).dtype and form.element in (F32, F64)
    unpacks = any(read.source.op.traits.unpacks for read in form.reads)
    return plain and not (reduces(region) or any(form.computed) or unpacks)


class RowProducts(Direct):
    """Lowers one contraction with its epilogue, a vector of rows at a time."""

    def body(self) -> None:
        b, form = self.b, form_of(self.region)
        self.form = form
        dims = tensor_type(form.node).dims
        inner = inner_axes(self.region) or ()
        *outer, row = range(len(dims) - len(inner))
        each = math.prod(dims[axis] for axis in inner)
        block = max(64, tuned.row_block // each // 64 * 64)
        extents = (*(dims[axis] for axis in outer), -(-dims[row] // block))
        self.units, self.elements_per_unit = math.prod(extents), block * each
        with ExitStack() as stack:
            unit = stack.enter_context(b.loop(self.units, "parallel"))
            *parts, number = split_index(b, unit, extents)
            start = number * block
            stop = minimum(start + block, dims[row])
            wide = dims[-1] % WIDE == 0
            at = stack.enter_context(b.loop(stop, "serial" if wide else "vector", start))
            for places in product(*(range(dims[axis]) for axis in inner[: len(inner) - wide])):
                with b.loop(dims[-1], "vector") if wide else nullcontext() as last:
                    tail = () if last is None else (last,)
                    self.element((*parts, at, *map(b.integer, places), *tail))

    def element(self, index: tuple[Expr, ...]) -> None:
        """One element of every result."""
        self.sum_products(dict(enumerate(index)))
        for result in unique(self.region.results):
            self.store(result, tuple(index[axis] for axis in self.form.shown))

    def sum_products(self, values: dict[int, Expr]) -> None:
        self.elements.bind_value(self.form.node, self.total(values))

    def total(self, values: dict[int, Expr]) -> Expr:
        """All terms one after another."""
        b, form = self.b, self.form
        total: Expr | None = None
        summed = self.summed()
        for steps in product(*(range(form.dims[k][1]) for k in summed)):
            known = dict(zip(summed, map(b.integer, steps), strict=True))
            x, y = self.factors(values, known)
            total = x * y if total is None else total + x * y
        assert total is not None
        return total.cast(tensor_type(form.node).dtype)
