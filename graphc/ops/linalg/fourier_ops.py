"""The ops of Fourier transforms: rows of complex numbers, and of real ones there and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Attr, Loops, Sample
from graphc.ir.types import C64, C128, AnyType, Dim, DType, Type, dtype, tensor
from graphc.loops.nest import Buffer, Scalars
from graphc.ops.linalg.fourier_nest import (
    RADICES,
    OfColumns,
    OfNumbers,
    OfReals,
    ToReals,
    Transform,
    bits_of,
    block_of,
    radices,
    sides,
)
from graphc.ops.record.arguments import Applied, Array, ReadAt, Tensor, Write
from graphc.ops.record.batching import rows_of_first
from graphc.ops.record.dims import shape_of, tensor_type
from graphc.ops.record.families import define, require, require_dtype, sample_array
from graphc.ops.record.value import Value, emit, functions


def roots(exponents: Any, n: int) -> Any:
    """exp(-2 pi i e / n), with whole exponents taken modulo n first.

    A block at a time: Ctrl-C is heard between two of them.
    """
    given = np.asarray(exponents)
    made = np.empty(given.size, np.complex128)
    for first in range(0, given.size, ROOTS_AT_ONCE):
        block = slice(first, first + ROOTS_AT_ONCE)
        made[block] = np.exp(-2j * np.pi * (given.reshape(-1)[block] % n) / n)
    return made.reshape(given.shape)


def extent_of(name: str, x: Tensor | Type, axis: int) -> int:
    extent = shape_of(x)[axis]
    if isinstance(extent, Dim):
        raise TypeRuleError(f"{name}: the extent {extent} is not known")
    return extent


ROOTS_AT_ONCE = 1 << 18
LEAST_COLUMNS = 8  # below, they are turned into rows
LEAST_RUN = 16  # numbers side by side in a pass of a radix that is a loop
MOST_TURNS = 1 << 16  # numbers of a row that a thread has scratch for


def is_row(n: int) -> bool:
    """Is a kernel written for rows of n numbers?  A long radix wants vectors of numbers beside it:
    the other factors."""
    found = radices(n) if 0 < n <= MOST_TURNS else None
    return found is not None and (found[-1:] <= [RADICES[-1]] or found[-1] * LEAST_RUN <= n)


def is_real_row(n: int) -> bool:
    return n % 2 == 0 and is_row(n // 2)


@cache
def turns(n: int, name: str) -> Any:
    """What the op multiplies with, w**k for k < n, then w**(r s) of the matrix that a row is: a
    table [2 n, 2] of the bits of real and imaginary parts, which nothing differentiates."""
    a, b = sides(n)
    between = np.outer(np.arange(a), np.arange(b)).ravel()
    return _bits(name, roots(np.arange(n), n), roots(between, n))


@cache
def real_turns(n: int, name: str) -> Any:
    """The same for rows of n real numbers: `turns` of half as many, then w_n**k up to the half."""
    element = complex_of(dtype(name)).name
    return np.concatenate([turns(n // 2, element), _bits(element, roots(np.arange(n // 2), n))])


def _bits(name: str, *parts: Array) -> Any:
    made = np.concatenate(parts).astype(dtype(name).numpy)
    return made.view(bits_of(dtype(name)).numpy).reshape(-1, 2)


def complex_of(element: DType) -> DType:
    return C64 if element.itemsize == 4 else C128


def is_block(n: int, columns: int) -> bool:
    """Are columns of so many numbers better transformed where they are?"""
    block = block_of(columns) if columns else 0
    return n > 0 and radices(n) is not None and block >= LEAST_COLUMNS and n * block <= MOST_TURNS


def _infer_fft(x: AnyType, table: AnyType, *, inverse: bool, columns: bool) -> Type:
    x, table = tensor_type("fft", x), tensor_type("fft", table)
    require_dtype("fft", x, ("c64", "c128"))
    require(x.rank >= 1 + columns, f"fft of {x}")
    n = extent_of("fft", x, -1 - columns)
    legal = is_block(n, extent_of("fft", x, -1)) if columns else is_row(n)
    require(legal, f"fft of {n} numbers")
    _check_table("fft", n, table, x.dtype, 2 * n)
    return x


def _check_table(name: str, n: int, table: Type, element: DType, count: int) -> None:
    fits = table is tensor(bits_of(element), (count, 2))
    require(fits, f"{name} of {n} numbers with a table of type {table}")


def _fft_reference(x: Array, table: Array, inverse: bool, columns: bool) -> Any:
    axis = -1 - columns
    made = np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis)
    return made.astype(x.dtype)


def _fft_gradient(
    ct: Value, result: Value, x: Value, table: Value, *, inverse: bool, columns: bool
) -> Any:
    """The matrix is symmetric: its adjoint is its conjugate, the transform the other way."""
    return emit("fft", ct, table, inverse=not inverse, columns=columns), None


def _rows_of(node: Applied) -> int:
    return math.prod(node.type.dims[:-1])


def _nest(
    kind: Callable[[Applied], type[Transform]],
    units: Callable[[Applied], int],
    count: Callable[[Applied], int],
) -> Loops:
    """The lowering of a transform whose planes hold so many numbers: real and imaginary parts, and
    those of the pass before."""

    def nest(
        b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        with b.loop(units(node), "parallel") as unit:
            kind(node)(b, node, read, write, scratch).row(unit)

    return Loops(nest, units, lambda node: ((node.type.dtype.real, count(node)),) * 4)


def _fft_units(node: Applied) -> int:
    """Rows, or blocks of columns."""
    dims = node.type.dims
    if not node.attrs["columns"]:
        return math.prod(dims[:-1])
    return math.prod(dims[:-2]) * (dims[-1] // block_of(dims[-1]))


def _fft_count(node: Applied) -> int:
    if not node.attrs["columns"]:
        return int(node.type.dims[-1])
    return int(node.type.dims[-2] * block_of(node.type.dims[-1]))


def _fft_cost(node: Applied) -> tuple[float, float]:
    kind = node.type
    return 5.0 * kind.size * math.log2(max(2, kind.dims[-1])), 2.0 * kind.nbytes


def _fft_samples() -> list[Sample]:
    made = []
    for name in ("c128", "c64"):
        for shape in ((4,), (2, 3, 16), (0, 8), (35,), (3, 48), (2, 77), (1, 1), (13,), (512,)):
            x = sample_array(name, shape, (-1, 1), 3)
            table = turns(shape[-1], name)
            made += [Sample((x, table), {"inverse": k}, tolerance=32) for k in (False, True)]
        for block in ((4, 8), (2, 3, 6, 24), (0, 5, 16), (64, 40)):
            x, table = sample_array(name, block, (-1, 1), 3), turns(block[-2], name)
            attrs = {"columns": True, "inverse": block[0] == 4}
            made.append(Sample((x, table), attrs, tolerance=32))
    x, table = made[0].operands
    return [*made, Sample((x, table[1:]), {}, False), Sample((x.real, table), {}, False)]


fft_op = define(
    "fft",
    batch=rows_of_first,
    infer=_infer_fft,
    reference=_fft_reference,
    lower=_nest(
        lambda node: OfColumns if node.attrs["columns"] else OfNumbers, _fft_units, _fft_count
    ),
    attrs=(Attr("inverse", "bool", False), Attr("columns", "bool", False)),
    dtypes=("c64", "c128"),
    gradient=_fft_gradient,
    cost=_fft_cost,
    samples=_fft_samples,
    doc="The discrete Fourier transform of rows or columns, or the opposite one, not scaled; the "
    "second operand holds the bits of roots of unity.",
)

# ------------------------------------------------------------------------------------ real numbers


def _infer_rfft(x: AnyType, table: AnyType) -> Type:
    x, table = tensor_type("rfft", x), tensor_type("rfft", table)
    require_dtype("rfft", x, ("f32", "f64"))
    require(x.rank >= 1, "rfft of a scalar")
    n, element = extent_of("rfft", x, -1), complex_of(x.dtype)
    require(is_real_row(n), f"rfft of {n} numbers")
    _check_table("rfft", n, table, element, 3 * n // 2)
    return tensor(element, (*x.shape[:-1], n // 2 + 1))


def _infer_irfft(x: AnyType, table: AnyType) -> Type:
    x, table = tensor_type("irfft", x), tensor_type("irfft", table)
    require_dtype("irfft", x, ("c64", "c128"))
    require(x.rank >= 1, "irfft of a scalar")
    n = 2 * (extent_of("irfft", x, -1) - 1)
    require(is_real_row(n), f"irfft to {n} numbers")
    _check_table("irfft", n, table, x.dtype, 3 * n // 2)
    return tensor(x.dtype.real, (*x.shape[:-1], n))


def _counts(x: Value, factor: float) -> Any:
    """x with all but the first and the last of a row times a factor: those stand for two."""
    made = np.full(x.type.dims[-1], factor)
    made[[0, -1]] = 1
    return functions.multiply(x, made.astype(x.element.real.numpy))


def _real_samples(halves: bool) -> Callable[[], list[Sample]]:
    def make() -> list[Sample]:
        made = []
        for name, element in (("f64", "c128"), ("f32", "c64")):
            for n in (2, 4, 16, 26, 48, 70, 512):
                kind, extent = (element, n // 2 + 1) if halves else (name, n)
                x = sample_array(kind, (2, extent), (-1, 1), 3)
                made.append(Sample((x, real_turns(n, name)), tolerance=32))
        x, table = made[1].operands
        return [*made, Sample((x, table[1:]), {}, False), Sample((x[:, :-1], table), {}, False)]

    return make


rfft_op = define(
    "rfft",
    batch=rows_of_first,
    infer=_infer_rfft,
    reference=lambda x, table: np.fft.rfft(x).astype(np.result_type(x, np.complex64)),
    lower=_nest(lambda node: OfReals, _rows_of, lambda node: node.inputs[0].type.dims[-1] // 2),
    dtypes=("f32", "f64"),
    gradient=lambda ct, y, x, table: (emit("irfft", _counts(ct, 0.5), table), None),
    cost=_fft_cost,
    samples=_real_samples(False),
    doc="The first half of the Fourier transform of rows of an even count of real numbers.",
)

irfft_op = define(
    "irfft",
    batch=rows_of_first,
    infer=_infer_irfft,
    reference=lambda x, table: np.fft.irfft(x, norm="forward").astype(x.real.dtype),
    lower=_nest(lambda node: ToReals, _rows_of, lambda node: node.type.dims[-1] // 2),
    dtypes=("c64", "c128"),
    gradient=lambda ct, y, x, table: (_counts(emit("rfft", ct, table), 2.0), None),
    cost=_fft_cost,
    samples=_real_samples(True),
    doc="The rows of real numbers that halves of transforms belong to, times their count.",
)
