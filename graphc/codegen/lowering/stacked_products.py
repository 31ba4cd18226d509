"""Stacks of small products: a vector holds columns of a row of the result.

    parallel for block of products:
        for each of them, for a few rows at once:    1000 products of 8 x 8 by 8 x 8
            vector for j:  c[i, j] = a[i, 0] * b[0, j] + a[i, 1] * b[1, j] + ..   for these rows i

The contraction core walks its blocks and panels anew for every product of a stack.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.base.record import record
from graphc.codegen.lowering.contraction import Form, form_of, result_axes
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.nest import unique
from graphc.codegen.lowering.row_products import RowProducts, is_plain
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph
from graphc.ir.sizes import hint_of
from graphc.loops.nest import Expr
from graphc.loops.scalars import minimum


@record(frozen=True)
class Small:
    """The extents of one product of a stack; a tile of `tile_rows` rows is computed together."""

    rows: int
    columns: int
    tile_rows: int


def small_product(region: Graph, lanes: int) -> Small | None:
    """One product of a stack of small ones; None where the contraction core is better.

    Columns fit one vector: wider rows are worth panels.  The last two axes of the result are rows
    and columns, which lie side by side, in the operand that has them, too.
    """
    form = form_of(region)
    dims = tensor_type(form.node).dims
    if not is_plain(region, form) or len(dims) < 3 or form.shown != tuple(range(len(dims))):
        return None
    *stack, rows, columns = dims
    steps = math.prod(extent for role, extent, *_ in form.dims if role == "k")
    limits = (rows, tuned.small_rows), (columns, lanes), (steps, tuned.small_steps)
    if not all(isinstance(n, int) and 0 < n <= most for n, most in limits):
        return None
    many = hint_of(math.prod(stack)) >= tuned.row_products and 0 not in stack
    if not many or columns == 1 or rows * columns * steps <= tuned.short_product:
        return None
    if not lies_in_rows(form, rows, columns):
        return None
    most = max(1, tuned.small_terms // steps)
    return Small(rows, columns, -(-rows // -(-rows // most)))


def lies_in_rows(form: Form, rows: int, columns: int) -> bool:
    """Are rows and columns of the result one dim of an operand each, columns side by side?"""
    last = len(tensor_type(form.node).dims) - 1
    places = result_axes(form)
    for across, beside in (("m", "n"), ("n", "m")):
        down, along = form.role(across), form.role(beside)
        if len(down) != 1 or len(along) != 1:
            return False
        at = places.get((across, 0)), places.get((beside, 0))
        if at == ((last - 1, 1), (last, 1)):
            step = along[0].b if beside == "n" else along[0].a
            return (down[0].extent, along[0].extent, step) == (rows, columns, 1)
    return False


class StackedProducts(RowProducts):
    """Lowers one contraction with its epilogue, some rows of a product at a time."""

    small: Small

    def body(self) -> None:
        b, form, small = self.b, form_of(self.region), self.small
        self.form = form
        *outer, count = tensor_type(form.node).dims[:-2]
        each = small.rows * small.columns
        block = max(1, tuned.row_block // each)
        extents = (*outer, -(-count // block))
        self.units, self.elements_per_unit = math.prod(extents), block * each
        with ExitStack() as stack:
            unit = stack.enter_context(b.loop(self.units, "parallel"))
            *parts, number = split_index(b, unit, extents)
            start = number * block
            stop = minimum(start + block, count)
            self.product((*parts, stack.enter_context(b.loop(stop, "serial", start))))

    def product(self, index: tuple[Expr, ...]) -> None:
        """All rows of one product."""
        b, rows, tile_rows = self.b, self.small.rows, self.small.tile_rows
        whole = rows // tile_rows
        if whole > 1:
            with b.loop(whole) as number:
                self.some_rows(index, number * tile_rows, tile_rows)
        elif whole:
            self.some_rows(index, b.integer(0), tile_rows)
        if rows % tile_rows:
            self.some_rows(index, b.integer(whole * tile_rows), rows % tile_rows)

    def some_rows(self, index: tuple[Expr, ...], first: Expr, count: int) -> None:
        """Rows of one product: their sums before any is stored, which share what they load."""
        with self.b.loop(self.small.columns, "vector") as column:
            places = [(*index, first + row, column) for row in range(count)]
            sums = [self.total(dict(enumerate(place))) for place in places]
            for place, made in zip(places, sums, strict=True):
                self.elements.bind_value(self.form.node, made)
                for result in unique(self.region.results):
                    self.store(result, place)
