"""Running totals of columns and recurrences on a GPU: chunks are folded, their totals made to run.

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
from typing import Any

from graphc.gpu import cuda, device, offset
from graphc.ir.types import DTYPES, DType
from graphc.ops.record.arguments import Array, Tensor
from graphc.ops.record.grid_cuda import Kernel
from graphc.ops.reduce.reduce import IDENTITY
from graphc.ops.reduce.scan_launches import COMBINE, FOLD, SCAN, carried_type


def _sum(x: float, y: float) -> Any:
    return x + y


def _product(x: float, y: float) -> Any:
    return x * y


def _maximum(x: float, y: float) -> Any:
    return x if x > y or x != x else y


def _minimum(x: float, y: float) -> Any:
    return x if x < y or x != x else y


FUNCTIONS = {"add": _sum, "mul": _product, "max": _maximum, "min": _minimum}


@functools.cache
def _chunks(name: str, kept: str, start: int) -> tuple[Kernel, Kernel]:
    """Device code that folds a chunk into its product and total, and that writes running totals.

    Element k of a row lies at `base + k * stride`, from the end if `reverse`; `a` holds the factors
    of a recurrence.
    """
    kind = DTYPES[kept].numpy.type
    combine, fades = device(FUNCTIONS[COMBINE[name]]), name == "recurrence"

    def fold(
        a: Array, b: Array, base: int, stride: int, first: int, stop: int, last: int
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
        a: Tensor,
        b: Any,
        to: Any,
        base: int,
        stride: int,
        first: int,
        stop: int,
        last: int,
        total: Any,
    ) -> None:
        for k in range(first, stop):
            at = base + (last - k if last >= 0 else k) * stride
            if fades:
                total = kind(a[at]) * total
            total = combine(total, kind(b[at]))
            to[at] = total

    return device(fold), device(scan)


def carried(name: str, element: DType) -> tuple[DType, Any]:
    """What a total is carried in, and what it starts from: -0.0 + x is x for every x."""
    start = IDENTITY[COMBINE[name]](element)
    start = -0.0 if COMBINE[name] == "add" and element.is_float else start
    return carried_type(element), start


@functools.cache
def running_kernel(name: str, element: str) -> Kernel:
    """The kernel of all launches: `phase` says what it does with which level."""
    kept, start = carried(name, DTYPES[element])
    kind, fades = kept.numpy.type, name == "recurrence"
    fold, scan = _chunks(name, kept.name, start)

    def level(
        a: Array,
        b: Array,
        out: Array,
        products: Array,
        totals: Array,
        phase: int,
        source: int,
        other: int,
        extent: int,
        chunk: int,
        chunks: int,
        inner: int,
        units: int,
        reverse: int,
    ) -> None:
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
        a: Array,
        b: Array,
        out: Array,
        products: Array,
        totals: Array,
        phase: int,
        source: int,
        other: int,
        extent: int,
        chunk: int,
        chunks: int,
        inner: int,
        units: int,
        reverse: int,
        status: Array,
        row: int,
    ) -> None:
        level(
            a, b, out, products, totals, phase, source, other, extent, chunk, chunks, inner, units,
            reverse,
        )  # fmt: skip

    def running(
        x: Array,
        out: Array,
        totals: Array,
        phase: int,
        source: int,
        other: int,
        extent: int,
        chunk: int,
        chunks: int,
        inner: int,
        units: int,
        reverse: int,
        status: Array,
        row: int,
    ) -> None:
        level(
            x, x, out, totals, totals, phase, source, other, extent, chunk, chunks, inner, units,
            reverse,
        )  # fmt: skip

    return recurrence if fades else running
