"""sparse_adjoint as LLVM IR: each number of the matrix times a row of y, in vectors.

clear columns lo..hi of the result
for each row, for each of its blocks:        a bad row or block ends the run
    result[column of the block] += number * y[row]
"""

from __future__ import annotations

from functools import cache

from graphc.base.record import record
from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I32,
    Module,
    Number,
    Operand,
    Pointer,
    Value,
    Writer,
    clear_bytes,
    native,
)
from graphc.codegen.positions import parts, position
from graphc.codegen.sorting.looks import watched
from graphc.ir.types import DType
from graphc.ops.index.scatter import STRIDE

WRONG = 1


@record(frozen=True)
class Adjoint:
    """What a kernel is written for: the types of the numbers, of columns and of ends of rows."""

    element: DType
    column: DType
    end: DType

    @property
    def scalar(self) -> str:
        return {"f32": "float", "f64": "double"}[self.element.name]

    def add(self, f: Writer, count: int, target: Value, factor: Value, source: Value) -> None:
        """target += factor * source, of so many elements."""
        scalar, align = self.scalar, self.element.itemsize
        kind = f"<{count} x {scalar}>"
        x, old = (
            f.new(kind, f"load {kind}, ptr {at.text}, align {align}") for at in (source, target)
        )
        first = f.new(kind, f"insertelement {kind} poison, {scalar} {factor.text}, i64 0")
        zeros = f"<{count} x i32> zeroinitializer"
        spread = f.new(kind, f"shufflevector {kind} {first.text}, {kind} poison, {zeros}")
        product = f.new(kind, f"fmul {kind} {spread.text}, {x.text}")
        total = f.new(kind, f"fadd {kind} {old.text}, {product.text}")
        f.do(f"store {kind} {total.text}, ptr {target.text}, align {align}")

    def add_row(
        self, f: Writer, machine: Target, count: Value, target: Value, number: Value, source: Value
    ) -> None:
        """Add a row times the number at an address."""
        factor = number.load(self.scalar)
        lanes = machine.lanes(self.element.itemsize)
        nbytes = lanes * self.element.itemsize
        whole = count // lanes
        with f.loop(0, whole) as vector:
            self.add(f, lanes, target + vector * nbytes, factor, source + vector * nbytes)
        rest = f.local(whole * nbytes)
        while lanes > 1:  # of what is left, halves of a vector, quarters ...
            lanes, nbytes = lanes // 2, nbytes // 2
            with f.when((count & lanes) != 0):
                self.add(f, lanes, target + rest, factor, source + rest)
                rest += nbytes


@cache
def adjoint_text(machine: Target, kind: Adjoint) -> str:
    """The kernel of columns lo..hi; its params are rows and columns in blocks, rows and columns of
    a block, columns of y, and how many blocks there are.
    """
    size = kind.element.itemsize

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        rows, columns, p, q, width, blocks = (params[k] for k in range(6))
        data, indices, indptr, y, out, flag = (bufs.pointer(k) for k in (0, 1, 2, 3, 4, -1))
        count, line = hi - lo, width * size
        y, out = y + lo * size, out + lo * size

        def end(row: Operand) -> Value:
            return position(f, kind.end, indptr, row)

        with f.when((end(rows) != blocks) | (end(0) != 0)):
            f.give(WRONG)
        step = Value(f, "i64", str(STRIDE)) // count.most(1) + 1
        with parts(f, flag, 0, columns * q, step) as (first, last), f.loop(first, last) as k:
            clear_bytes(f, out + k * line, count * size)
        with f.loop(0, rows) as row:
            first, last = end(row), end(row + 1)
            with f.when((first < 0) | (first > last) | (last > blocks)):
                f.give(WRONG)
            with watched(f, flag, first, last) as k:
                column = position(f, kind.column, indices, k)
                with f.when(column.below(columns) ^ 1):
                    f.give(WRONG)
                with f.loop(0, p) as a, f.loop(0, q) as c:
                    number = data + ((k * p + a) * q + c) * size
                    source, target = y + (row * p + a) * line, out + (column * q + c) * line
                    kind.add_row(f, machine, count, target, number, source)
        f.give(0)

    return Module(machine.triple).text([kernel])
