"""Running totals along few long rows on a GPU: chunks are folded, their totals made to run, too.

    row        a b c | d e f | g h i           a thread per chunk and column
    folds      abc     def     ghi             the total of each chunk
    running    abc     abcdef  ...             the same again, until one thread can do the rest
    result     a ab abc | abcd ...             each chunk goes on from the total before it

Where rows are many, a thread per row does less work: those, and strict sums, keep their loops.
A chunk of a recurrence s = a * s + b is a recurrence again: its a is the product of all a, its b
what it makes of 0.  Source: Blelloch, "Prefix sums and their applications" (1990).
"""

from __future__ import annotations

import functools
import math
from typing import Any

from graphc.gpu import SIMULATED, cuda, device, offset
from graphc.ir.op import CudaCall, CudaCode
from graphc.ir.types import DTYPES, F32, F64
from graphc.ops.cuda_grid import Kernel, over
from graphc.ops.reduce import IDENTITY
from graphc.record import record

COMBINE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min", "recurrence": "add"}
FOLD_FIRST, FOLD, SCAN, SCAN_FIRST = range(4)


@record(frozen=True)
class Shape:
    """Elements of a chunk at the first level, and further up; rows that are many."""

    chunk: int
    chunk_above: int
    many: int


SHAPE = Shape(3, 2, 6) if SIMULATED else Shape(16, 64, 1 << 17)


def _sum(x: Any, y: Any) -> Any:
    return x + y


def _product(x: Any, y: Any) -> Any:
    return x * y


def _maximum(x: Any, y: Any) -> Any:
    return x if x > y or x != x else y


def _minimum(x: Any, y: Any) -> Any:
    return x if x < y or x != x else y


_FUNCTIONS = {"add": _sum, "mul": _product, "max": _maximum, "min": _minimum}


@functools.cache
def _chunks(name: str, carried: str, start: Any) -> tuple[Kernel, Kernel]:
    """Device code that folds a chunk into its product and total, and that writes running totals.

    Element k of a row lies at `base + k * stride`, from the end if `reverse`; `a` holds the factors
    of a recurrence.
    """
    kind = DTYPES[carried].numpy.type
    combine, fades = device(_FUNCTIONS[COMBINE[name]]), name == "recurrence"

    def fold(
        a: Any, b: Any, base: int, stride: int, first: int, stop: int, last: int
    ) -> tuple[Any, Any]:
        product, total = kind(1), kind(start)
        for k in range(first, stop):
            at = base + (last - k if last >= 0 else k) * stride
            if fades:
                product = kind(a[at]) * product
                total = kind(a[at]) * total
            total = combine(total, kind(b[at]))
        return product, total

    def scan(
        a: Any, b: Any, to: Any, base: int, stride: int, first: int, stop: int, last: int,
        total: Any,
    ) -> None:  # fmt: skip
        for k in range(first, stop):
            at = base + (last - k if last >= 0 else k) * stride
            if fades:
                total = kind(a[at]) * total
            total = combine(total, kind(b[at]))
            to[at] = total

    return device(fold), device(scan)


@functools.cache
def _kernel(name: str, carried: str, start: Any) -> Kernel:
    """The kernel of all launches: `phase` says what it does with which level."""
    kind, fades = DTYPES[carried].numpy.type, name == "recurrence"
    fold, scan = _chunks(name, carried, start)

    def level(
        a: Any, b: Any, out: Any, products: Any, totals: Any, phase: int, source: int, other: int,
        extent: int, chunk: int, chunks: int, inner: int, units: int, reverse: int,
    ) -> None:  # fmt: skip
        for unit in range(cuda.grid(1), units, cuda.gridsize(1)):
            number = unit // inner % chunks
            base = unit // inner // chunks * extent * inner + unit % inner
            first, stop = number * chunk, min(number * chunk + chunk, extent)
            last = extent - 1 if reverse else -1
            p, q = offset(products, source), offset(totals, source)
            if phase <= FOLD:
                if phase == FOLD:
                    product, total = fold(p, q, base, inner, first, stop, -1)
                else:
                    product, total = fold(a, b, base, inner, first, stop, last)
                if fades:
                    products[other + unit] = product
                totals[other + unit] = total
            else:
                total = kind(start)
                if number > 0:
                    total = totals[other + unit - inner]
                if phase == SCAN:
                    scan(p, q, q, base, inner, first, stop, -1, total)
                else:
                    scan(a, b, out, base, inner, first, stop, last, total)

    level = device(level)

    def recurrence(
        a: Any, b: Any, out: Any, products: Any, totals: Any, phase: int, source: int, other: int,
        extent: int, chunk: int, chunks: int, inner: int, units: int, reverse: int, status: Any,
        row: int,
    ) -> None:  # fmt: skip
        level(
            a, b, out, products, totals, phase, source, other, extent, chunk, chunks, inner, units,
            reverse,
        )  # fmt: skip

    def running(
        x: Any, out: Any, totals: Any, phase: int, source: int, other: int, extent: int,
        chunk: int, chunks: int, inner: int, units: int, reverse: int, status: Any, row: int,
    ) -> None:  # fmt: skip
        level(
            x, x, out, totals, totals, phase, source, other, extent, chunk, chunks, inner, units,
            reverse,
        )  # fmt: skip

    return recurrence if fades else running


def _levels(extent: int, shape: Shape) -> list[tuple[int, int, int]]:
    """(extent, chunk, chunks) of each level; the last has one chunk."""
    made = [(extent, shape.chunk, -(-extent // shape.chunk))]
    while made[-1][2] > shape.chunk_above:
        count = made[-1][2]
        made.append((count, shape.chunk_above, -(-count // shape.chunk_above)))
    return [*made, (made[-1][2], made[-1][2], 1)]


def cumulative_code(node: Any, strict: bool, shape: Shape = SHAPE) -> CudaCode | None:
    """Device code of a running total, or None where its loops are as good."""
    name, element, axis = node.op.name, node.type.dtype, node.attrs["axis"]
    dims = node.type.dims
    outer, extent, inner = math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])
    orderless = element.is_integer or COMBINE[name] in ("max", "min")
    few = 0 < outer * inner < shape.many and extent > 2 * shape.chunk
    if not few or (strict and not orderless):
        return None
    carried = F64 if element is F32 else element
    start = IDENTITY[COMBINE[name]](element)
    start = -0.0 if COMBINE[name] == "add" and element.is_float else start
    kernel = _kernel(name, carried.name, start)
    levels = _levels(extent, shape)
    offsets = [0, 0]
    for _, _, chunks in levels[:-1]:
        offsets.append(offsets[-1] + outer * chunks * inner)

    def call(phase: int, level: int, other: int) -> CudaCall:
        extent, chunk, chunks = levels[level]
        units, reverse = outer * chunks * inner, int(node.attrs["reverse"])
        sizes = (extent, chunk, chunks, inner, units, reverse)
        return over(kernel, units, (phase, offsets[level], offsets[other], *sizes))

    top = len(levels) - 1
    calls = [call(FOLD if k else FOLD_FIRST, k, k + 1) for k in range(top)]
    calls += [call(SCAN if k else SCAN_FIRST, k, min(k + 1, top)) for k in range(top, -1, -1)]
    work = ((carried, offsets[-1]),)
    return CudaCode(tuple(calls), work * 2 if name == "recurrence" else work)
