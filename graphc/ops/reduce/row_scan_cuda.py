"""Running totals along rows that lie whole in memory: a block, or a warp, walks along a row.

    stretch    a b c d   e f g h   ...     four neighbours to a thread, and their running totals
    threads    abcd      abcdefgh          totals pass upwards in a warp, those of warps through
    result     a ab abc abcd . ...         shared memory; what was before the stretch goes first

Few long rows are cut into parts: each part is folded, the folds of a row are made to run in place,
and each part goes on from the fold before it.  The order of additions depends on sizes alone.
Source: Sengupta, Harris, Zhang, Owens, "Scan primitives for GPU computing" (2007).
"""

from __future__ import annotations

import functools
from typing import Any

from graphc.gpu import WARP, cuda, device, from_lane, load4, store4
from graphc.ir.types import DTYPES
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel
from graphc.ops.reduce.cumulative_cuda import FUNCTIONS, carried
from graphc.ops.reduce.scan_launches import COMBINE

Four = tuple[Any, Any, Any, Any]


@functools.cache
def _fours(name: str, element: str) -> tuple[Kernel, Kernel]:
    """Device code that reads four elements of a row, and that writes four; those from `stop` on are
    neutral.  A row whose `last` is not negative is counted from there; `whole` is not 0 where four
    elements are a vector in memory.
    """
    start, kind = carried(name, DTYPES[element])[1], DTYPES[element].numpy.type

    def read(x: Array, base: int, at: int, stop: int, last: int, whole: int) -> Four:
        v0, v1, v2, v3 = kind(start), kind(start), kind(start), kind(start)
        if whole != 0 and at < stop:
            v0, v1, v2, v3 = load4(x, base + at)
        elif at < stop:
            place, step = (base + last - at, -1) if last >= 0 else (base + at, 1)
            v0 = x[place]
            if at + 1 < stop:
                v1 = x[place + step]
            if at + 2 < stop:
                v2 = x[place + 2 * step]
            if at + 3 < stop:
                v3 = x[place + 3 * step]
        return v0, v1, v2, v3

    def write(out: Array, base: int, at: int, stop: int, last: int, whole: int, made: Four) -> None:
        v0, v1, v2, v3 = made
        if whole != 0 and at < stop:
            store4(out, base + at, kind(v0), kind(v1), kind(v2), kind(v3))
        elif at < stop:
            place, step = (base + last - at, -1) if last >= 0 else (base + at, 1)
            out[place] = v0
            if at + 1 < stop:
                out[place + step] = v1
            if at + 2 < stop:
                out[place + 2 * step] = v2
            if at + 3 < stop:
                out[place + 3 * step] = v3

    return device(read), device(write)


@functools.cache
def passing_totals(name: str, kept: str, element: str, lanes: int) -> Kernel:
    """Device code, run by all lanes of a group: (total of the lanes before, of all), going on from
    what was before.  `turn` is 0 and 1 in turns; `held` is shared memory of two elements a warp, of
    the caller: what several kernels of a module share is counted to each of them.
    """
    combine, start = device(FUNCTIONS[COMBINE[name]]), carried(name, DTYPES[element])[1]
    kind, warps = DTYPES[kept].numpy.type, lanes // WARP

    def passing(total: Any, before: Any, turn: int, held: Array) -> tuple[Any, Any]:
        lane = cuda.threadIdx.x % lanes
        inside, warp = lane % WARP, lane // WARP
        step = 1
        while step < WARP:
            other = from_lane(total, max(inside - step, 0))
            if inside >= step:
                total = combine(other, total)
            step *= 2
        below = from_lane(total, max(inside - 1, 0))
        if inside == 0:
            below = kind(start)
        if warps == 1:
            return combine(before, below), combine(before, from_lane(total, WARP - 1))
        if inside == WARP - 1:
            held[turn * warps + warp] = total
        cuda.syncthreads()
        mine, whole = before, before
        for other_warp in range(warps):
            if other_warp == warp:
                mine = whole
            whole = combine(whole, held[turn * warps + other_warp])
        return combine(mine, below), whole

    return device(passing)


@functools.cache
def _walk(name: str, kept: str, element: str, lanes: int) -> Kernel:
    """Device code, run by all lanes of a group: the running totals of the elements first..stop of
    a row, going on from `before`.  Elements of the next two stretches are on their way meanwhile.
    """
    read, write = _fours(name, element)
    combine, passing = device(FUNCTIONS[COMBINE[name]]), passing_totals(name, kept, element, lanes)
    kind, room = DTYPES[kept].numpy.type, 2 * lanes // WARP

    def walk(
        x: Array, out: Array, base: int, first: int, stop: int, last: int, whole: int, before: Any
    ) -> None:
        held = cuda.shared.array(room, kind)
        at, turn, step = first + cuda.threadIdx.x % lanes * 4, 0, 4 * lanes
        coming = read(x, base, at, stop, last, whole)
        later = read(x, base, at + step, stop, last, whole)
        for _ in range(first, stop, step):
            w0, w1, w2, w3 = coming
            coming = later
            later = read(x, base, at + 2 * step, stop, last, whole)
            v0 = kind(w0)
            v1 = combine(v0, kind(w1))
            v2 = combine(v1, kind(w2))
            v3 = combine(v2, kind(w3))
            mine, before = passing(v3, before, turn, held)
            made = combine(mine, v0), combine(mine, v1), combine(mine, v2), combine(mine, v3)
            write(out, base, at, stop, last, whole, made)
            at += step
            turn = 1 - turn
        if lanes > WARP:
            cuda.syncthreads()  # the next row begins with turn 0 again

    return device(walk)


@functools.cache
def row_kernels(name: str, element: str, lanes: int) -> tuple[Kernel, Kernel, Kernel]:
    """Launches that fold the parts of rows, make the folds of each row run, and write the result.

    A part has `part` elements, a row `parts` of them; `totals` has an element for each part, if
    there are several.
    """
    kept_type, start = carried(name, DTYPES[element])
    kept, kind = kept_type.name, kept_type.numpy.type
    read, combine = _fours(name, element)[0], device(FUNCTIONS[COMBINE[name]])
    passing, room = passing_totals(name, kept, element, lanes), 2 * lanes // WARP
    walk, walk_totals = _walk(name, kept, element, lanes), _walk(name, kept, kept, lanes)

    def fold_parts(
        x: Array,
        out: Array,
        totals: Array,
        extent: int,
        part: int,
        parts: int,
        units: int,
        reverse: int,
        whole: int,
        status: Array,
        row: int,
    ) -> None:
        held, last = cuda.shared.array(room, kind), extent - 1 if reverse else -1
        group = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // lanes
        for unit in range(group, units, cuda.gridsize(1) // lanes):
            first = unit % parts * part
            stop = min(first + part, extent)
            total = kind(start)
            for at in range(first + cuda.threadIdx.x % lanes * 4, stop, 16 * lanes):
                several = (
                    read(x, unit // parts * extent, at, stop, last, whole),
                    read(x, unit // parts * extent, at + 4 * lanes, stop, last, whole),
                    read(x, unit // parts * extent, at + 8 * lanes, stop, last, whole),
                    read(x, unit // parts * extent, at + 12 * lanes, stop, last, whole),
                )
                for v0, v1, v2, v3 in several:
                    here = combine(combine(kind(v0), kind(v1)), combine(kind(v2), kind(v3)))
                    total = combine(total, here)
            _, total = passing(total, kind(start), 0, held)
            if cuda.threadIdx.x % lanes == 0:
                totals[unit] = total
            if lanes > WARP:
                cuda.syncthreads()

    def run_totals(
        x: Array, out: Array, totals: Array, parts: int, rows: int, status: Array, row: int
    ) -> None:
        group = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // lanes
        for line in range(group, rows, cuda.gridsize(1) // lanes):
            walk_totals(totals, totals, line * parts, 0, parts, -1, 0, kind(start))

    def run_rows(
        x: Array,
        out: Array,
        totals: Array,
        extent: int,
        part: int,
        parts: int,
        units: int,
        reverse: int,
        whole: int,
        status: Array,
        row: int,
    ) -> None:
        last = extent - 1 if reverse else -1
        group = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // lanes
        for unit in range(group, units, cuda.gridsize(1) // lanes):
            first = unit % parts * part
            before = totals[unit - 1] if first > 0 else kind(start)
            stop = min(first + part, extent)
            walk(x, out, unit // parts * extent, first, stop, last, whole, before)

    return fold_parts, run_totals, run_rows
