"""What the functions of `device` compute, in plain Python, for the simulator; and which
row and column an element of a tuple is of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.codegen.gpu.attention.plan import FRAGMENTS
from graphc.gpu import exchange, fma

Vector = tuple[Any, ...]


def squares_of(shape: int) -> int:
    """Fragments below each other; 0 where there are none."""
    return max(shape, 0) // FRAGMENTS


def row_of(e: int, size: int, shape: int) -> int:
    """Which of the lane's rows."""
    squares = squares_of(shape)
    if not squares:
        return e % shape if shape > 0 else e // (size // -shape)
    if size == 2 * squares:
        return e
    return e // (size // squares) * 2 + e % 4 // 2


def rows_apart(shape: int) -> int:
    """How far below each other the lane's rows are."""
    return 8 if squares_of(shape) else 1


def column_of(e: int, size: int, shape: int, lanes: int) -> int:
    """How far beyond the lane's first column."""
    squares = squares_of(shape)
    if squares:
        return 0 if size == 2 * squares else e % (size // squares) // 4 * 8 + e % 2
    if shape > 0:
        return lanes * (e // shape)
    inside = e % (size // -shape)
    return inside // 4 * 4 * lanes + inside % 4


def absent(*_: Any) -> Any:
    """The simulator has no tensor cores, and is not asked for narrow floats."""
    raise NotImplementedError


def as_it_is(x: Any) -> Any:
    return x


def times(scores: Vector, factor: Any) -> Vector:
    return tuple(x * factor for x in scores)


def up_to(scores: Vector, last: int, further: int, hidden: Any, shape: int, lanes: int) -> Vector:
    made = []
    for e, x in enumerate(scores):
        row = rows_apart(shape) * row_of(e, len(scores), shape)
        column = column_of(e, len(scores), shape, lanes)
        made.append(x if column - further * row <= last else hidden)
    return tuple(made)


def _masked(
    scores: Vector,
    pointer: Any,
    start: int,
    rows: int,
    down: int,
    columns: int,
    step: int,
    hidden: Any,
    shape: int,
    lanes: int,
) -> list[Any]:
    """The element of the mask for each score."""
    made = []
    for e in range(len(scores)):
        row = min(rows_apart(shape) * row_of(e, len(scores), shape), rows)
        column = min(column_of(e, len(scores), shape, lanes), columns)
        made.append(pointer[int(start + row * down + column * step)])
    return made


def mask_bool(scores: Vector, *given: Any) -> Vector:
    hidden = given[6]
    found = _masked(scores, *given)
    return tuple(x if seen else hidden for x, seen in zip(scores, found, strict=True))


def mask_f32(scores: Vector, *given: Any) -> Vector:
    return tuple(x + bias for x, bias in zip(scores, _masked(scores, *given), strict=True))


def _larger(x: Any, y: Any) -> Any:
    return np.fmax(x, y)


def row_maxima(scores: Vector, tops: Vector, factor: Any, shape: int, lanes: int) -> Vector:
    found = [np.float32(-np.inf)] * len(tops)
    for e, x in enumerate(scores):
        row = row_of(e, len(scores), shape)
        found[row] = _larger(found[row], x)
    step = 1
    while step < lanes:
        found = [_larger(x, exchange(x, step, lanes)) for x in found]
        step *= 2
    if factor is not None:
        found = [x * factor for x in found]
    return tuple(_larger(x, top) for x, top in zip(found, tops, strict=True))


def row_sums(sums: Vector, lanes: int) -> Vector:
    step = 1
    while step < lanes:
        sums = tuple(x + exchange(x, step, lanes) for x in sums)
        step *= 2
    return sums


def or_zero(tops: Vector) -> Vector:
    return tuple(np.float32(0) if x == -np.inf else x for x in tops)


def power(x: Any) -> Any:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp2(np.float32(x))


def powers(scores: Vector, tops: Vector, factor: Any, shape: int) -> Vector:
    made = []
    with np.errstate(invalid="ignore", over="ignore"):
        for e, x in enumerate(scores):
            less = x - tops[row_of(e, len(scores), shape)]
            made.append(power(less if factor is None else less * factor))
    return tuple(made)


def scaled_powers(scores: Vector, tops: Vector, factor: Any, shape: int) -> Vector:
    made = []
    with np.errstate(invalid="ignore", over="ignore"):
        for e, x in enumerate(scores):
            made.append(power(fma(x, factor, -tops[row_of(e, len(scores), shape)])))
    return tuple(made)


def added(sums: Vector, weights: Vector, shape: int) -> Vector:
    found = list(sums)
    for e, x in enumerate(weights):
        found[row_of(e, len(weights), shape)] += x
    return tuple(found)


def rescaled(values: Vector, factors: Vector, shape: int) -> Vector:
    with np.errstate(invalid="ignore"):
        return tuple(x * factors[row_of(e, len(values), shape)] for e, x in enumerate(values))


def shares(sums: Vector) -> Vector:
    with np.errstate(divide="ignore"):
        return tuple(np.float32(1) / x for x in sums)


def store_f32(
    pointer: Any,
    start: int,
    down: int,
    values: Vector,
    first: int,
    rows: int,
    width: int,
    shape: int,
    lanes: int,
) -> None:
    for e, x in enumerate(values):
        row = rows_apart(shape) * row_of(e, len(values), shape)
        column = first + column_of(e, len(values), shape, lanes)
        if row < rows and column < width:
            pointer[int(start + row * down + column)] = x


def zero_lines(
    memory: Any, begin: int, first: int, end: int, lines: int, lead: int, start: int, step: int
) -> None:
    for line in range(start, lines, step):
        for column in range(first, end):
            memory[begin + line * lead + column] = 0
