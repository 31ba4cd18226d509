"""What the functions of `device` compute, in plain Python, for the simulator.

Tuples are vectors in registers; pointers and shared memory are one-dimensional arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphc.gpu import fma

Vector = tuple[Any, ...]


def repeat(value: Any, count: int) -> Vector:
    return (value,) * count


def is_aligned(pointer: Any) -> bool:
    return True


def load(pointer: Any, index: int, width: int, aligned: bool) -> Vector:
    return tuple(pointer[int(index) : int(index) + width])


def fixed(pointer: Any, index: int) -> Any:
    return pointer[index]


def keep(inside: bool, values: Vector) -> Vector:
    return values if inside else tuple(type(x)(0) for x in values)


def widen(values: Vector, zero: Any) -> Vector:
    return tuple(type(zero)(x) for x in values)


def widen_f16(values: Vector) -> Vector:
    return tuple(np.float32(np.uint16(x).view(np.float16)) for x in values)


def widen_bf16(values: Vector) -> Vector:
    return tuple((np.uint32(x) << np.uint32(16)).view(np.float32) for x in values)


def read(array: Any, start: int, groups: int, step: int, width: int) -> Vector:
    starts = range(start, start + groups * step, step)
    return tuple(x for first in starts for x in array[first : first + width])


def write(array: Any, start: int, values: Vector) -> None:
    array[start : start + len(values)] = values


def write_column(array: Any, start: int, step: int, values: Vector) -> None:
    for k, x in enumerate(values):
        array[start + k * step] = x


def multiply_add(x: Any, y: Any, total: Any) -> Any:
    """total + x * y: fused for floats, wrapping for integers."""
    if isinstance(total, np.floating):
        return fma(x, y, total)
    with np.errstate(over="ignore"):
        return type(total)(total + x * y)


def outer(total: Vector, x: Vector, y: Vector) -> Vector:
    return tuple(multiply_add(x[k // len(y)], y[k % len(y)], part) for k, part in enumerate(total))


def dots(total: Vector, x: Vector, y: Vector, run: int) -> Vector:
    columns = len(y) // run
    made = list(total)
    for k in range(len(total)):
        left, right = k // columns * run, k % columns * run
        for step in range(run):
            made[k] = multiply_add(x[left + step], y[right + step], made[k])
    return tuple(made)


def plus(x: Vector, y: Vector) -> Vector:
    with np.errstate(over="ignore"):
        return tuple(type(a)(a + b) for a, b in zip(x, y, strict=True))


def copy(
    memory: Any, start: int, pointer: Any, index: int, width: int, aligned: bool, inside: bool
) -> None:
    memory[start : start + width] = pointer[int(index) : int(index) + width] if inside else 0


def wait_for_copies() -> None:
    pass


def commit_copies() -> None:
    pass


def wait_for_groups(left: int) -> None:
    pass


def wait_for_products(left: int) -> None:
    pass


def show_copies() -> None:
    pass


def settled(total: Vector) -> Vector:
    return total


def first_atom(memory: Any) -> int:
    return 0


def products(
    widened: Any,
    total: Vector,
    memory: Any,
    a: int,
    b: int,
    lane: int,
    down: int,
    across: int,
    lead_a: int,
    upright_a: int,
    lead_b: int,
    upright_b: int,
) -> Vector:
    """See `mma`: four sums of each fragment, from 16 products each."""

    def line(start: int, outer: int, lead: int, upright: int) -> np.ndarray:
        first, step = (outer * lead, 1) if upright else (outer, lead)
        found = memory[start + first : start + first + 15 * step + 1 : step]
        return np.array(widened(tuple(found)))

    made = []
    for number, part in enumerate(total):
        fragment, which = divmod(number, 4)
        row = fragment // across * 16 + lane // 4 + which // 2 * 8
        column = fragment % across * 8 + lane % 4 * 2 + which % 2
        left = line(a, row, lead_a, upright_a)
        right = line(b, column, lead_b, upright_b)
        made.append(np.float32(part + (left * right).sum()))
    return tuple(made)


products_bf16 = partial(products, widen_bf16)
products_f16 = partial(products, widen_f16)


def group_products(
    widened: Callable[[np.ndarray], np.ndarray],
    total: Vector,
    memory: Any,
    a: int,
    b: int,
    thread: int,
    upright_a: int,
    upright_b: int,
) -> Vector:
    """See `wgmma` and `swizzle`: a line of products for each sum."""
    count = 128 // memory.dtype.itemsize
    k, width = np.arange(count), count // 8

    def lines(start: int, outer: np.ndarray, upright: int) -> np.ndarray:
        outer = outer[:, None]
        if upright:
            where = outer * count + (k // width ^ outer % 8) * width + k % width
        else:
            place = (outer // 8 % 8 ^ k % 8) * 8 + outer % 8
            where = outer // 64 * 64 * 64 + k * 64 + place
        return widened(np.asarray(memory[start + where]))

    number = np.arange(len(total))
    rows = thread % 128 // 32 * 16 + thread % 32 // 4 + number % 4 // 2 * 8
    columns = number // 4 * 8 + thread % 4 * 2 + number % 2
    products = lines(a, rows, upright_a) * lines(b, columns, upright_b)
    return tuple(np.array(total, np.float32) + products.sum(axis=1, dtype=np.float32))


def first_bits(values: np.ndarray) -> np.ndarray:
    """f32 as tf32 has it."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


group_products_tf32 = partial(group_products, first_bits)
group_products_bf16 = partial(
    group_products, lambda x: (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
)
group_products_f16 = partial(group_products, lambda x: x.view(np.float16).astype(np.float32))
