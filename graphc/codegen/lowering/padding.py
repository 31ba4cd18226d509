"""Lowering of a stored `pad`: whole rows are filled or copied, so no element asks where it lies.

rows outside the operand     ........
rows inside                  ..xxxx..     low, operand, high: three loops without conditions
"""

from __future__ import annotations

import math

from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.ir.graph import Graph, Node
from graphc.loops.nest import Expr


def pads_rows(region: Graph) -> bool:
    """The region stores padding, without elements between neighbours, and nothing else."""
    last = region.results[0]
    return (
        len(region.results) == 1
        and last.op.traits.pads
        and not any(last.attrs["interior"])
        and tensor_type(last).rank > 1
        and all(tensor_type(last.inputs[0]).dims)
    )


class Padding(Nest):
    """Lowers a region that `pads_rows`."""

    def body(self) -> None:
        node, b = self.region.results[0], self.b
        *outer, rows, width = tensor_type(node).dims
        self.units, self.elements_per_unit = math.prod(outer), rows * width
        low, extent = node.attrs["low"][-1], tensor_type(node.inputs[0]).dims[-1]
        with b.loop(self.units, "parallel") as unit, b.loop(rows) as row:
            above = (*split_index(b, unit, tuple(outer)), row)
            source, inside = self.source(node, above)
            if inside is None:
                self.line(node, above, source, (0, low, low + extent, width))
                return
            with b.when(inside):
                self.line(node, above, source, (0, low, low + extent, width))
            with b.when(~inside):
                self.fill(node, above, 0, width)

    def source(self, node: Node, above: tuple[Expr, ...]) -> tuple[list[Expr], Expr | None]:
        """The operand's row for a row of the result, and whether there is one (None: always)."""
        dims = tensor_type(node.inputs[0]).dims
        places: list[Expr] = []
        inside: Expr | None = None
        wide = tensor_type(node).dims
        for axis, index in enumerate(above):
            place = index - node.attrs["low"][axis]
            places.append(place)
            if wide[axis] != dims[axis]:
                legal = (place >= 0) & (place < dims[axis])
                inside = legal if inside is None else inside & legal
        return places, inside

    def line(
        self, node: Node, above: tuple[Expr, ...], source: list[Expr], ends: tuple[int, ...]
    ) -> None:
        """A row that holds a row of the operand."""
        start, low, high, width = ends
        self.fill(node, above, start, low)
        with self.b.loop(high, "vector", low) as column:
            place = column - low
            value = self.elements.at(node.inputs[0], (*source, place))
            self.elements.bind(node, lambda _: value)
            self.store(node, (*above, column))
        self.fill(node, above, high, width)

    def fill(self, node: Node, above: tuple[Expr, ...], start: int, stop: int) -> None:
        if start == stop:
            return
        with self.b.loop(stop, "vector", start) as column:
            value = self.elements.at(node.inputs[1], ())
            self.elements.bind(node, lambda _: value)
            self.store(node, (*above, column))
