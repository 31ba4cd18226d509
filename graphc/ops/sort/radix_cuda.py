"""Long rows of keys sorted on a GPU by their digits, from the lowest: three launches for each.

    keys      31 12 22 | 32 11 21           a block counts the digits of its tile,
    counts    1: 1, 2: 2 | 1: 2, 2: 1       the counts of each digit are made to run over the tiles
    starts    1: 0, 2: 3 | 1: 1, 2: 5       (and over the digits), and a block moves its tile, which
    moved     31 11 21 12 22 32             it has put in order before, so that neighbours stay so

Equal digits keep their order: a warp has consecutive keys, ranks of equal digits in it are those of
lanes, and a counter of the warp for each digit goes on from round to round.
Sources: Merrill, Grimshaw, "High performance and scalable radix sorting" (2011); Adinets, Merrill,
"Onesweep" (2022), for the ranks in a warp.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphc.gpu import WARP, ballot, cuda, device, from_lane
from graphc.ir.types import DTYPES
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel
from graphc.ops.reduce.row_scan_cuda import passing_totals

INT = np.int64


@functools.cache
def _counter(key: str, bits: int, threads: int, tile: int) -> Kernel:
    """Device code: how often each digit is there in each tile of rows; counts[row, digit, tile]."""
    kind, digits = DTYPES[key].numpy.type, 1 << bits

    def count(keys: Array, counts: Array, shift: int, extent: int, tiles: int, rows: int) -> None:
        held = cuda.shared.array(digits, np.int32)
        for unit in range(cuda.blockIdx.x, rows * tiles, cuda.gridDim.x):
            row, number = unit // tiles, unit % tiles
            for digit in range(cuda.threadIdx.x, digits, threads):
                held[digit] = 0
            cuda.syncthreads()
            first = number * tile
            for at in range(first + cuda.threadIdx.x, min(first + tile, extent), threads):
                found = INT(keys[row * extent + at] >> kind(shift)) & (digits - 1)
                cuda.atomic.add(held, found, np.int32(1))
            cuda.syncthreads()
            for digit in range(cuda.threadIdx.x, digits, threads):
                counts[(row * digits + digit) * tiles + number] = held[digit]
            cuda.syncthreads()

    return device(count)


@functools.cache
def running_counts(bits: int, threads: int) -> Kernel:
    """Device code: counts become those of the tiles before; `totals` has those of whole rows."""
    digits, passing = 1 << bits, passing_totals("cumsum", "i64", "i64", threads)

    room = 2 * threads // WARP

    def start(counts: Array, totals: Array, tiles: int, rows: int) -> None:
        held = cuda.shared.array(room, INT)
        for unit in range(cuda.blockIdx.x, rows * digits, cuda.gridDim.x):
            before, turn = INT(0), 0
            for first in range(0, tiles, threads):
                at = unit * tiles + first + cuda.threadIdx.x
                inside = first + cuda.threadIdx.x < tiles
                mine, before = passing(INT(counts[at]) if inside else INT(0), before, turn, held)
                if inside:
                    counts[at] = mine
                turn = 1 - turn
            if cuda.threadIdx.x == 0:
                totals[unit] = before
            cuda.syncthreads()

    return device(start)


@functools.cache
def ranker(bits: int) -> Kernel:
    """Device code, run by whole warps: the number of equal digits that the warp has met before, and
    in lanes before; `seen` has a counter of each warp for each digit.

    Lanes with equal digits are found bit by bit: `match.any` takes a step for each digit there is.
    """
    digits = 1 << bits

    def rank(seen: Array, warp: int, digit: int) -> Any:
        lane, same = cuda.threadIdx.x % WARP, ballot(True)
        for place in range(bits):
            bit = np.uint32(digit >> place & 1)
            # Those whose bit is 1 if this one is, else the others.
            same = np.uint32(same & (ballot(bit != 0) ^ np.uint32(bit - np.uint32(1))))
        leader, before = cuda.ffs(same) - 1, np.int32(0)
        if lane == leader:
            before = cuda.atomic.add(seen, warp * digits + digit, np.int32(cuda.popc(same)))
        return from_lane(before, leader) + cuda.popc(same & ((1 << lane) - 1))

    return device(rank)


@functools.cache
def _beginner(bits: int, threads: int) -> Kernel:
    """Device code that turns what warps have seen of each digit into what those before have, and
    finds where the digit starts in the tile, and where its first key goes, less that.
    """
    digits, counters = 1 << bits, (threads // WARP) << bits
    each = (digits + threads - 1) // threads  # digits of a thread
    passing = passing_totals("cumsum", "i64", "i64", threads)

    def begin(
        seen: Array,
        starts: Array,
        goals: Array,
        counts: Array,
        totals: Array,
        row: int,
        number: int,
        tiles: int,
        held: Array,
    ) -> None:
        start, goal = INT(0), INT(0)
        for k in range(each):
            digit = k * threads + cuda.threadIdx.x
            total, there = INT(0), INT(0)
            if digit < digits:
                there = INT(totals[row * digits + digit])
                for spot in range(digit, counters, digits):
                    before = seen[spot]
                    seen[spot] = total
                    total += before
            here, start = passing(total, start, 0, held)
            cuda.syncthreads()
            there, goal = passing(there, goal, 1, held)
            if digit < digits:
                starts[digit] = here
                there += INT(counts[(row * digits + digit) * tiles + number])
                goals[digit] = there - here

    return device(begin)


@functools.cache
def _mover(key: str, named: bool, bits: int, threads: int, rounds: int) -> Kernel:
    """Device code that moves the keys of tiles to where their digits belong.

    If `named`, positions travel along: read from `places` if `listed`, else counted.
    """
    kind, digits, warps, tile = DTYPES[key].numpy.type, 1 << bits, threads // WARP, threads * rounds
    counters, names_room, room = warps * digits, tile if named else 1, 2 * warps
    begin, rank = _beginner(bits, threads), ranker(bits)
    greatest = kind(np.iinfo(kind).max)  # pads the last tile, behind its keys

    def move(
        keys: Array,
        places: Array,
        listed: bool,
        to_keys: Array,
        to_places: Array,
        keyed: bool,
        counts: Array,
        totals: Array,
        shift: int,
        extent: int,
        tiles: int,
        rows: int,
    ) -> None:
        held = cuda.shared.array(tile, kind)
        names = cuda.shared.array(names_room, np.uint32)
        seen = cuda.shared.array(counters, np.int32)  # of each digit by each warp
        starts = cuda.shared.array(digits, np.int32)  # of each digit in the tile
        goals = cuda.shared.array(digits, INT)  # where its first key goes, less that
        passed = cuda.shared.array(room, INT)
        mine = cuda.local.array(rounds, kind)
        ranks = cuda.local.array(rounds, np.int32)
        thread = cuda.threadIdx.x
        lane, warp = thread % WARP, thread // WARP
        for unit in range(cuda.blockIdx.x, rows * tiles, cuda.gridDim.x):
            row, number = unit // tiles, unit % tiles
            base, first = row * extent, number * tile
            count = min(tile, extent - first)
            for spot in range(thread, counters, threads):
                seen[spot] = 0
            for turn in range(rounds):
                spot = (warp * rounds + turn) * WARP + lane
                mine[turn] = keys[base + first + spot] if spot < count else greatest
            cuda.syncthreads()
            for turn in range(rounds):
                digit = INT(mine[turn] >> kind(shift)) & (digits - 1)
                ranks[turn] = rank(seen, warp, digit)
            cuda.syncthreads()
            begin(seen, starts, goals, counts, totals, row, number, tiles, passed)
            cuda.syncthreads()
            for turn in range(rounds):
                digit = INT(mine[turn] >> kind(shift)) & (digits - 1)
                spot = starts[digit] + seen[warp * digits + digit] + ranks[turn]
                held[spot] = mine[turn]
                if named:
                    at = (warp * rounds + turn) * WARP + lane
                    inside = listed and at < count
                    names[spot] = places[base + first + at] if inside else np.uint32(first + at)
            cuda.syncthreads()
            for spot in range(thread, count, threads):
                digit = INT(held[spot] >> kind(shift)) & (digits - 1)
                place = base + goals[digit] + spot
                if keyed:
                    to_keys[place] = held[spot]
                if named:
                    to_places[place] = names[spot]
            cuda.syncthreads()

    return device(move)


@functools.cache
def sort_kernels(key: str, bits: int, threads: int, rounds: int) -> tuple[Kernel, Kernel, Kernel]:
    """Launches that count digits, make counts run, and move keys. `level` counts the digits that
    follow; it says which buffers to read and write, in turns. The first one reads the keys."""
    count, start = _counter(key, bits, threads, threads * rounds), running_counts(bits, threads)
    move = _mover(key, False, bits, threads, rounds)

    def count_digits(
        keys: Array,
        out: Array,
        work: Array,
        counts: Array,
        totals: Array,
        shift: int,
        extent: int,
        tiles: int,
        rows: int,
        first: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source = out if level % 2 else work
        if first:
            source = keys
        count(source, counts, shift, extent, tiles, rows)

    def run_counts(
        keys: Array,
        out: Array,
        work: Array,
        counts: Array,
        totals: Array,
        tiles: int,
        rows: int,
        status: Array,
        row: int,
    ) -> None:
        start(counts, totals, tiles, rows)

    def move_keys(
        keys: Array,
        out: Array,
        work: Array,
        counts: Array,
        totals: Array,
        shift: int,
        extent: int,
        tiles: int,
        rows: int,
        first: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, to = (out, work) if level % 2 else (work, out)
        if first:
            source = keys
        move(source, counts, False, to, counts, True, counts, totals, shift, extent, tiles, rows)

    return count_digits, run_counts, move_keys


@functools.cache
def argsort_kernels(
    key: str, bits: int, threads: int, rounds: int
) -> tuple[Kernel, Kernel, Kernel, Kernel]:
    """The same for positions; the last launch writes them alone."""
    count, start = _counter(key, bits, threads, threads * rounds), running_counts(bits, threads)
    move = _mover(key, True, bits, threads, rounds)

    def count_digits(
        keys: Array,
        out: Array,
        odd: Array,
        even: Array,
        odd_places: Array,
        even_places: Array,
        counts: Array,
        totals: Array,
        shift: int,
        extent: int,
        tiles: int,
        rows: int,
        first: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source = even if level % 2 else odd
        if first:
            source = keys
        count(source, counts, shift, extent, tiles, rows)

    def run_counts(
        keys: Array,
        out: Array,
        odd: Array,
        even: Array,
        odd_places: Array,
        even_places: Array,
        counts: Array,
        totals: Array,
        tiles: int,
        rows: int,
        status: Array,
        row: int,
    ) -> None:
        start(counts, totals, tiles, rows)

    def move_places(
        keys: Array,
        out: Array,
        odd: Array,
        even: Array,
        odd_places: Array,
        even_places: Array,
        counts: Array,
        totals: Array,
        shift: int,
        extent: int,
        tiles: int,
        rows: int,
        first: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, to = (even, odd) if level % 2 else (odd, even)
        listed, named = (even_places, odd_places) if level % 2 else (odd_places, even_places)
        if first:
            source = keys
        move(
            source, listed, first == 0, to, named, True, counts, totals, shift, extent, tiles, rows
        )

    def move_last(
        keys: Array,
        out: Array,
        odd: Array,
        even: Array,
        odd_places: Array,
        even_places: Array,
        counts: Array,
        totals: Array,
        shift: int,
        extent: int,
        tiles: int,
        rows: int,
        status: Array,
        row: int,
    ) -> None:
        move(odd, odd_places, True, odd, out, False, counts, totals, shift, extent, tiles, rows)

    return count_digits, run_counts, move_places, move_last
