"""The k least keys of long rows on a GPU, without sorting the rows.

    count     how often each digit occurs among the keys that begin like the k-th least, as far as
    pick      that is known; then its next digit is: with the highest first, the key is found
    mark      how many keys of each tile are less, and how many are equal
    gather    those go to a short row, in the order of their positions: all that are less, then
              equal ones until there are k
    finish    that row is sorted in a tile

Source: Alabi and others, "Fast k-selection algorithms for graphics processing units" (2012).
"""

from __future__ import annotations

import functools

import numpy as np

from graphc.gpu import WARP, as_array, cuda, device, from_lane, offset
from graphc.ir.types import DTYPES
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel, splitter
from graphc.ops.sort.radix_cuda import running_counts
from graphc.ops.sort.sort_cuda import tile_sorter


@functools.cache
def _digit_of(key: str, bits: int) -> Kernel:
    """Device code for the digit of a key that begins `shift` bits from its right."""
    kind = DTYPES[key].numpy.type
    mask = kind((1 << bits) - 1)

    def digit(key: int, shift: int) -> int:
        return np.int64((key >> kind(shift)) & mask)  # type: ignore[return-value]

    return device(digit)


@functools.cache
def _starter(count: int, threads: int) -> Kernel:
    """Device code, run by a whole block, that makes an array of `count` exclusive running totals.

    A thread adds up neighbours, the lanes of a warp pass their totals on, then warps do, through
    `totals`, which has room for one of each warp.
    """
    share = -(-count // threads)

    def starts(sums: Array, totals: Array) -> None:
        thread = cuda.threadIdx.x
        lane, warp, first = thread % WARP, thread // WARP, thread * share
        own = np.uint32(0)
        for spot in range(first, min(count, first + share)):
            own = np.uint32(own + sums[spot])
        upto, step = own, 1
        while step < WARP:
            other = from_lane(upto, max(lane - step, 0))
            if lane >= step:
                upto = np.uint32(upto + other)
            step *= 2
        if lane == WARP - 1:
            totals[warp] = upto
        cuda.syncthreads()
        before = np.uint32(upto - own)
        for other_warp in range(warp):
            before = np.uint32(before + totals[other_warp])
        for spot in range(first, min(count, first + share)):
            here = sums[spot]
            sums[spot] = before
            before = np.uint32(before + here)
        cuda.syncthreads()

    return device(starts)


@functools.cache
def search_kernels(key: str, bits: int, items: int, threads: int) -> tuple[Kernel, Kernel, Kernel]:
    """The launches that find the k-th least key. `words` holds the counts of digits, then how many
    of the k least are still sought in each row, then the counts of tiles; `found` is the k-th least
    key of each row."""
    kind, digit, digits = DTYPES[key].numpy.type, _digit_of(key, bits), 1 << bits
    split, tile, warps = splitter(True), items * threads, threads // WARP
    starts = _starter(digits, threads)

    def clear(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        total: int,
        status: Array,
        row: int,
    ) -> None:
        for at in range(cuda.grid(1), total, cuda.gridsize(1)):
            words[at] = np.uint32(0)

    def count(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        extent: int,
        tiles: int,
        shift: int,
        above: int,
        status: Array,
        row: int,
    ) -> None:
        here = cuda.shared.array(digits, np.uint32)
        for spot in range(cuda.threadIdx.x, digits, threads):
            here[spot] = np.uint32(0)
        cuda.syncthreads()
        mine, number = split(cuda.blockIdx.x, tiles)
        base, start = mine * extent, number * tile
        known = kind(0)
        if above:
            known = found[mine] >> kind(shift + bits)
        for at in range(start + cuda.threadIdx.x, min(extent, start + tile), threads):
            value = keys[base + at]
            if above == 0 or value >> kind(shift + bits) == known:
                cuda.atomic.add(here, digit(value, shift), np.uint32(1))
        cuda.syncthreads()
        all_counts = as_array(words, (mine + 1) * digits)
        for spot in range(cuda.threadIdx.x, digits, threads):
            if here[spot]:
                cuda.atomic.add(all_counts, mine * digits + spot, here[spot])

    def pick(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        rows: int,
        wanted: int,
        shift: int,
        above: int,
        status: Array,
        row: int,
    ) -> None:
        sums = cuda.shared.array(digits, np.uint32)
        passed = cuda.shared.array(warps, np.uint32)
        mine = cuda.blockIdx.x
        left, known = np.uint32(wanted), kind(0)
        if above:
            left, known = words[rows * digits + mine], found[mine]
        for spot in range(cuda.threadIdx.x, digits, threads):
            sums[spot] = words[mine * digits + spot]
        cuda.syncthreads()
        starts(sums, passed)
        for spot in range(cuda.threadIdx.x, digits, threads):
            before, own = sums[spot], words[mine * digits + spot]
            words[mine * digits + spot] = np.uint32(0)
            if before < left and left <= before + own:
                found[mine] = known | (kind(spot) << kind(shift))
                words[rows * digits + mine] = left - before

    return clear, count, pick


@functools.cache
def gather_kernels(items: int, threads: int) -> tuple[Kernel, Kernel, Kernel]:
    """The launches that gather the keys up to the k-th least."""
    split, tile, warps = splitter(True), items * threads, threads // WARP
    sums_of, run = _starter(threads, threads), running_counts(1, threads)

    def mark(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        extent: int,
        tiles: int,
        counts: int,
        status: Array,
        row: int,
    ) -> None:
        here = cuda.shared.array(2, np.uint32)
        if cuda.threadIdx.x < 2:
            here[cuda.threadIdx.x] = np.uint32(0)
        cuda.syncthreads()
        mine, number = split(cuda.blockIdx.x, tiles)
        base, start, limit = mine * extent, number * tile, found[mine]
        for at in range(start + cuda.threadIdx.x, min(extent, start + tile), threads):
            value = keys[base + at]
            if value <= limit:
                cuda.atomic.add(here, 1 if value == limit else 0, np.uint32(1))
        cuda.syncthreads()
        if cuda.threadIdx.x < 2:
            which = 2 * mine + cuda.threadIdx.x
            words[counts + which * tiles + number] = here[cuda.threadIdx.x]

    def total(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        counts: int,
        totals: int,
        tiles: int,
        rows: int,
        status: Array,
        row: int,
    ) -> None:
        run(offset(words, counts), offset(words, totals), tiles, rows)

    def gather(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        extent: int,
        tiles: int,
        wanted: int,
        counts: int,
        totals: int,
        status: Array,
        row: int,
    ) -> None:
        fewer = cuda.shared.array(threads, np.uint32)
        equal = cuda.shared.array(threads, np.uint32)
        passed = cuda.shared.array(warps, np.uint32)
        thread = cuda.threadIdx.x
        mine, number = split(cuda.blockIdx.x, tiles)
        base, limit = mine * extent, found[mine]
        lists = counts + 2 * mine * tiles + number
        sure = words[totals + 2 * mine]
        first = number * tile + thread * items
        last = min(extent, first + items)
        less, same = np.uint32(0), np.uint32(0)
        for at in range(first, last):
            value = keys[base + at]
            less += np.uint32(value < limit)
            same += np.uint32(value == limit)
        fewer[thread], equal[thread] = less, same
        cuda.syncthreads()
        sums_of(fewer, passed)
        sums_of(equal, passed)
        next_less = words[lists] + fewer[thread]
        next_same = sure + words[lists + tiles] + equal[thread]
        for at in range(first, last):
            value = keys[base + at]
            place = np.uint32(wanted)
            if value < limit:
                place = next_less
                next_less += np.uint32(1)
            elif value == limit:
                place = next_same
                next_same += np.uint32(1)
            if place < np.uint32(wanted):
                least[mine * wanted + place] = value
                names[mine * wanted + place] = at

    return mark, total, gather


@functools.cache
def finish_kernel(key: str, room: int, sorters: int) -> Kernel:
    """The launch that sorts what was gathered, in tiles."""
    sort = tile_sorter(key, True, room, sorters)

    def finish(
        keys: Array,
        best: Array,
        places: Array,
        words: Array,
        found: Array,
        least: Array,
        names: Array,
        wanted: int,
        bits: int,
        rows: int,
        status: Array,
        row: int,
    ) -> None:
        sort(least, names, True, best, places, True, wanted, bits, wanted, wanted, rows)

    return finish
