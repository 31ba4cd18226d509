"""Loops around routines of LAPACK, a matrix of a stack at a time, in scratch memory of the thread.

    x[unit]  ──by columns──>  a   ──routine(a, work ...)──>  a, s, u ...  ──by rows──>  results

What NumPy calls is called, with matrices as it lays them out, so that signs and orders are NumPy's.
Integers and letters lie in cells, one for each argument: Fortran takes addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import UNCONVERGED, GraphError
from graphc.ir.op import CudaCode, Library, Loops
from graphc.ir.sizes import greatest
from graphc.ir.types import I64, Dimension, DType, leaves
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import Element, Pair
from graphc.ops.linalg.lane_nests import Lanes, in_lanes
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.reduce.cumulative import unravel
from graphc.ops.tuning import tuned
from graphc.seams.lapack import ALONE

PREFIX = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
CELLS = 16  # more than any routine has arguments
BLOCK = 64  # columns that a routine works on at a time, where it has the memory

Need = tuple[DType, int]  # scratch: its element type and their count
Rows = dict[str, Need]


def is_alone(m: Dimension, n: Dimension) -> bool:
    """Does OpenBLAS compute on the thread that calls it, whatever is done to an m x n matrix?  Its
    products of a matrix and a vector do below 9,216 elements, those of two up to 2**18
    multiply-adds."""
    if not isinstance(m, int) or not isinstance(n, int):
        return False
    return m * n <= tuned.alone_elements and m * n * min(m, n) <= 1 << 18


class Routines:
    """What a kernel around LAPACK is written with: scratch by name, matrices by columns."""

    def __init__(
        self,
        b: Scalars,
        node: Applied,
        read: ReadAt,
        write: Write,
        scratch: Sequence[Buffer],
        needs: Rows,
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.cells = scratch[0]
        self.scratch = dict(zip(needs, scratch[1:], strict=True))
        self.element: DType = node.inputs[0].type.dtype
        self.m, self.n = node.inputs[0].type.dims[-2:]

    def call(self, name: str, *arguments: int | str) -> None:
        """Call a routine: a number, a letter, or the name of scratch; `info` comes last.

        What does not converge, or finds a NaN, stops the run.
        """
        b, places = self.b, []
        for cell, argument in enumerate((*arguments, 0)):
            if isinstance(argument, str) and argument in self.scratch:
                places.append((self.scratch[argument], b.integer(0)))
                continue
            number = ord(argument) if isinstance(argument, str) else argument
            b.store(self.cells, cell, b.integer(number))
            places.append((self.cells, b.integer(cell)))
        alone = ALONE if is_alone(self.m, self.n) else ""
        b.routine(f"{alone}{PREFIX[self.element.name]}{name}", places)
        b.fail(b.load(self.cells, len(arguments)) != 0, UNCONVERGED)

    def get(self, name: str, position: Expr) -> Any:
        """An element of scratch, a pair if it is complex."""
        b, buffer = self.b, self.scratch[name]
        if not self.is_complex(name):
            return b.load(buffer, position)
        return Pair(b.load(buffer, position * 2), b.load(buffer, position * 2 + 1))

    def put(self, name: str, position: Expr, value: Element) -> None:
        b, buffer = self.b, self.scratch[name]
        if isinstance(value, Pair):
            b.store(buffer, position * 2, value.re)
            b.store(buffer, position * 2 + 1, value.im)
        else:
            b.store(buffer, position, value)

    def is_complex(self, name: str) -> bool:
        return self.element.is_complex and name not in ("s", "w", "rwork", "iwork")

    def zero(self) -> Any:
        zero = self.b.const(0.0, self.element.real)
        return Pair(zero, zero) if self.element.is_complex else zero

    def fill(self, unit: Expr) -> None:
        """Operand 0 as scratch `a`, by columns."""
        b, m, n = self.b, self.m, self.n
        with b.loop(m) as row, b.loop(n) as column:
            value = self.read(0, b.affine([(unit, m * n), (row, n)], column))
            self.put("a", b.affine([(column, m)], row), value)

    def give(
        self, unit: Expr, name: str, rows: int, columns: int, pitch: int, number: int | None
    ) -> None:
        """A matrix of scratch, `pitch` elements from column to column, as a result."""
        b = self.b
        with b.loop(rows) as row, b.loop(columns) as column:
            value = self.get(name, b.affine([(column, pitch)], row))
            self.result(self.index(unit, row, column), value, number)

    def give_row(self, unit: Expr, name: str, count: int, number: int | None) -> None:
        with self.b.loop(count) as k:
            self.result(self.index(unit, k), self.get(name, k), number)

    def result(self, index: tuple[Any, ...], value: Element, number: int | None) -> None:
        self.write(index, value) if number is None else self.write(index, value, number)

    def index(self, unit: Expr, *inside: Expr) -> tuple[Any, ...]:
        return (*unravel(unit, self.node.inputs[0].type.dims[:-2]), *inside)


Nest = Callable[[Routines, Expr], None]


def parts(node: Applied) -> list[Any]:
    """The types of the results."""
    return list(leaves(node.type))


def matrices(node: Applied) -> int:
    empty = all(kind.size == 0 for kind in parts(node))
    return 0 if empty else math.prod(node.inputs[0].type.dims[:-2])


def lapack(
    nest: Nest, needs: Callable[[Applied], Rows], lanes: type[Lanes] | None = None
) -> Library:
    """The lowering of an op that routines of LAPACK compute: `nest(routines, unit)` writes what
    happens to one matrix, `needs(node)` names its scratch; small ones are computed in `lanes`."""

    def whole(
        b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        with b.loop(matrices(node), "parallel") as unit:
            nest(Routines(b, node, read, write, scratch, needs(node)), unit)

    def workspace(node: Applied) -> tuple[Need, ...]:
        wanted = ((kind, greatest(1, count)) for kind, count in needs(node).values())
        return ((I64, CELLS), *wanted)

    loops = Loops(whole, matrices, workspace)
    return Library(None, cuda=_no_gpu, loops=in_lanes(lanes, loops))


def _no_gpu(node: Any, strict: bool, simulated: bool) -> CudaCode:
    raise GraphError(
        f"{node.op.name} is computed by LAPACK, which a GPU does not run",
        details=node.describe(),
        location=node.loc,
        hint='add "cpu:0" to the devices: it runs there',
    )
