"""scatter on a GPU. Every route gives what the sequential pass of the CPU gives, in every bit:

    few       up to 64 positions: the thread of the first of equal positions applies them in order
    claimed   set: the last of equal positions claims the row, then it alone writes
    atomic    sums and bounds of 32- and 64-bit integers: no order shows in the result
    sorted    all else: positions are sorted, stably, and one thread applies a run of equal ones

    positions  2 0 2 1    sorted  0 1 2 2    runs  0: u1   1: u3   2: u0, then u2
                                  1 3 0 2

Sums of f32 and f64 are atomic, too, unless they must be strict: then their order, and with it
their last bits, may differ from run to run.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphc.gpu import as_array, cuda, device, same
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel, fail, splitter
from graphc.ops.sort.sort_cuda import merger, tile_sorter

OUT_OF_RANGE = 1


def _added(old: float, value: float) -> Any:
    return old + value


def _multiplied(old: float, value: float) -> Any:
    return old * value


def _least(old: float, value: float) -> Any:
    return value if value < old or value != value else old


def _greatest(old: float, value: float) -> Any:
    return value if value > old or value != value else old


def _last(old: float, value: float) -> Any:
    return value


_COMBINE = {"set": _last, "add": _added, "mul": _multiplied, "min": _least, "max": _greatest}


@functools.cache
def _combine(mode: str) -> Kernel:
    return device(_COMBINE[mode])


def _row_of(position: int, rows: int) -> Any:
    row = np.int64(position)
    return row + rows if row < 0 else row


row_of = device(_row_of)


def _begin(
    x: Array,
    index: Array,
    out: Array,
    rows: int,
    width: int,
    count: int,
    drop: int,
    status: Array,
    row: int,
) -> None:
    """Check the positions and copy x, unless out is x itself: then a bad one changes nothing."""
    if drop == 0:
        for k in range(cuda.grid(1), count, cuda.gridsize(1)):
            place = row_of(index[k], rows)
            if place < 0 or place >= rows:
                fail(status, row, OUT_OF_RANGE)
    if not same(x, out):
        for i in range(cuda.grid(1), rows * width, cuda.gridsize(1)):
            out[i] = x[i]


begin = device(_begin)


def begin_kernel(
    x: Array,
    index: Array,
    updates: Array,
    out: Array,
    rows: int,
    width: int,
    count: int,
    drop: int,
    status: Array,
    row: int,
) -> None:
    """The first launch of the routes without scratch."""
    begin(x, index, out, rows, width, count, drop, status, row)


# ------------------------------------------------------------------------------------ few


@functools.cache
def few_kernel(mode: str, narrow: bool) -> Kernel:
    combine, split = _combine(mode), splitter(narrow)

    def scatter_few(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        rows: int,
        width: int,
        count: int,
        status: Array,
        row: int,
    ) -> None:
        if status[0] != 0:
            return
        for i in range(cuda.grid(1), count * width, cuda.gridsize(1)):
            k, column = split(i, width)
            place = row_of(index[k], rows)
            first = place >= 0 and place < rows
            for j in range(k):
                first = first and row_of(index[j], rows) != place
            if first:
                at = place * width + column
                value = combine(out[at], updates[i])
                for j in range(k + 1, count):
                    if row_of(index[j], rows) == place:
                        value = combine(value, updates[j * width + column])
                out[at] = value

    return scatter_few


# ------------------------------------------------------------------------------------ claimed


def begin_claims(
    x: Array,
    index: Array,
    updates: Array,
    out: Array,
    claims: Array,
    rows: int,
    width: int,
    count: int,
    drop: int,
    status: Array,
    row: int,
) -> None:
    """The first launch of the claimed route."""
    begin(x, index, out, rows, width, count, drop, status, row)
    for i in range(cuda.grid(1), rows, cuda.gridsize(1)):
        claims[i] = -1


def claim_kernel(
    x: Array,
    index: Array,
    updates: Array,
    out: Array,
    claims: Array,
    rows: int,
    count: int,
    status: Array,
    row: int,
) -> None:
    """The last of equal positions claims its row."""
    for k in range(cuda.grid(1), count, cuda.gridsize(1)):
        place = row_of(index[k], rows)
        if place >= 0 and place < rows:
            cuda.atomic.max(as_array(claims, rows), place, k)


@functools.cache
def claimed_kernel(narrow: bool) -> Kernel:
    split = splitter(narrow)

    def scatter_claimed(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        claims: Array,
        rows: int,
        width: int,
        count: int,
        status: Array,
        row: int,
    ) -> None:
        if status[0] != 0:
            return
        for i in range(cuda.grid(1), count * width, cuda.gridsize(1)):
            k, column = split(i, width)
            place = row_of(index[k], rows)
            if place >= 0 and place < rows and claims[place] == k:
                out[place * width + column] = updates[i]

    return scatter_claimed


# ------------------------------------------------------------------------------------ atomic


def _add_atomic(array: Array, place: int, value: float) -> None:
    cuda.atomic.add(array, place, value)


def _min_atomic(array: Array, place: int, value: float) -> None:
    cuda.atomic.min(array, place, value)


def _max_atomic(array: Array, place: int, value: float) -> None:
    cuda.atomic.max(array, place, value)


_ATOMIC = {"add": _add_atomic, "min": _min_atomic, "max": _max_atomic}


@functools.cache
def atomic_kernel(mode: str, narrow: bool) -> Kernel:
    combine, split = device(_ATOMIC[mode]), splitter(narrow)

    def scatter_atomic(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        rows: int,
        width: int,
        count: int,
        status: Array,
        row: int,
    ) -> None:
        if status[0] != 0:
            return
        array = as_array(out, rows * width)
        for i in range(cuda.grid(1), count * width, cuda.gridsize(1)):
            k, column = split(i, width)
            place = row_of(index[k], rows)
            if place >= 0 and place < rows:
                combine(array, place * width + column, updates[i])

    return scatter_atomic


# ------------------------------------------------------------------------------------ sorted


@functools.cache
def sorted_kernels(
    mode: str, key: str, narrow: bool, tile: int, threads: int
) -> tuple[Kernel, Kernel, Kernel, Kernel]:
    """Launches that check positions and turn them into keys, sort tiles, merge, and apply runs.

    Positions that are dropped become the greatest keys.  What a launch reads lies in the buffers
    of the level before, in turns; the sorted keys lie in the even ones.
    """
    combine, split = _combine(mode), splitter(narrow)
    tiles, merge = (tile_sorter(key, True, tile, threads), merger(key, True, tile, threads))

    def begin_keys(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        odd: Array,
        odd_places: Array,
        even: Array,
        even_places: Array,
        rows: int,
        width: int,
        count: int,
        drop: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        begin(x, index, out, rows, width, count, drop, status, row)
        keys = odd if level % 2 else even
        for k in range(cuda.grid(1), count, cuda.gridsize(1)):
            place = row_of(index[k], rows)
            keys[k] = place if place >= 0 and place < rows else rows

    def sort_positions(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        odd: Array,
        odd_places: Array,
        even: Array,
        even_places: Array,
        extent: int,
        bits: int,
        keep: int,
        target: int,
        one: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, places = (even, even_places) if level % 2 else (odd, odd_places)
        to, to_places = (odd, odd_places) if level % 2 else (even, even_places)
        tiles(source, places, False, to, to_places, True, extent, bits, keep, target, one)

    def merge_positions(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        odd: Array,
        odd_places: Array,
        even: Array,
        even_places: Array,
        extent: int,
        run: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, places = (even, even_places) if level % 2 else (odd, odd_places)
        to, to_places = (odd, odd_places) if level % 2 else (even, even_places)
        merge(source, places, to, to_places, True, extent, run)

    def scatter_sorted(
        x: Array,
        index: Array,
        updates: Array,
        out: Array,
        odd: Array,
        odd_places: Array,
        even: Array,
        even_places: Array,
        rows: int,
        width: int,
        count: int,
        status: Array,
        row: int,
    ) -> None:
        if status[0] != 0:
            return
        for i in range(cuda.grid(1), count * width, cuda.gridsize(1)):
            k, column = split(i, width)
            place = np.int64(even[k])
            if place < rows and (k == 0 or np.int64(even[k - 1]) != place):
                at = place * width + column
                value = out[at]
                while k < count and np.int64(even[k]) == place:
                    value = combine(value, updates[even_places[k] * width + column])
                    k += 1
                out[at] = value

    return begin_keys, sort_positions, merge_positions, scatter_sorted


# ------------------------------------------------------------------------------------ spread


def spread_zeros(index: Array, x: Array, out: Array, total: int, status: Array, row: int) -> None:
    """The first launch of spread."""
    for i in range(cuda.grid(1), total, cuda.gridsize(1)):
        out[i] = 0


@functools.cache
def spread_kernel(narrow: bool) -> Kernel:
    split = splitter(narrow)

    def spread(
        index: Array,
        x: Array,
        out: Array,
        count: int,
        extent: int,
        work: int,
        total: int,
        status: Array,
        row: int,
    ) -> None:
        array = as_array(out, total)
        for i in range(cuda.grid(1), work, cuda.gridsize(1)):
            line, _ = split(i, count)
            place = min(max(np.int64(index[i]), 0), extent - 1)
            cuda.atomic.add(array, line * extent + place, x[i])

    return spread
