"""Sorting on a GPU: tiles by a bitonic network in shared memory, then runs merged two by two; rows
that would take many merges are sorted by digits (`radix_cuda.py`).

    rows     7 3 9 1 | 8 2 5 0 | 6 4          tiles, each sorted by a block
    runs     1 3 7 9 | 0 2 5 8 | 4 6
    merged   0 1 2 3 . 5 7 8 9 | 4 6          a launch per doubling; each block makes one tile of
    merged   0 1 2 3 . 4 5 6 7 . 8 9          the result and finds by itself what it is made of

Keys are unsigned (see `sorting.py`).  Where positions are wanted they break ties, which makes the
network stable; merging is stable by itself.  The k least are the first k of every
tile, and again of what that leaves.  Sources: Batcher, "Sorting networks and their applications"
(1968); Green, McColl, Bader, "GPU merge path" (2012).
"""

from __future__ import annotations

import functools

import numpy as np

from graphc.gpu import cuda, device
from graphc.ir.types import DTYPES
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel

LAST = np.uint32(0xFFFFFFFF)  # the position of what pads a tile; rows are shorter than this


# ------------------------------------------------------------------------------------ tiles


@functools.cache
def _network(named: bool, tile: int, threads: int) -> Kernel:
    """Device code that sorts the tiles in shared memory, positions breaking ties."""
    pairs = tile // 2

    def network(held: Array, names: Array, tile: int) -> None:
        size = 2
        while size <= tile:
            step = size // 2
            while step > 0:
                # The first step of a size compares mirror images, so every order is ascending.
                other = size - 1 if 2 * step == size else step
                for pair in range(cuda.threadIdx.x, pairs, threads):
                    low = 2 * pair - (pair & (step - 1))
                    high = low ^ other
                    x, y = held[low], held[high]
                    swap = y < x
                    if named:
                        swap = swap or (y == x and names[high] < names[low])
                    if swap:
                        held[low], held[high] = y, x
                        if named:
                            name = names[low]
                            names[low] = names[high]
                            names[high] = name
                cuda.syncthreads()
                step //= 2
            size *= 2

    return device(network)


@functools.cache
def tile_sorter(key: str, named: bool, room: int, threads: int) -> Kernel:
    """Device code that sorts tiles of rows and keeps the first `keep` of each.

    Rows of `extent` keys become rows of `target`.  A tile has 2 ** `bits` elements: as many as a
    block, or fewer that hold a whole row.  If `named`, positions travel along, read from
    `places` if `listed`, else counted; then keys are written only if `keyed`.
    """
    kind, names_room = DTYPES[key].numpy.type, room if named else 1
    greatest = kind(np.iinfo(kind).max)
    network = _network(named, room, threads)

    def sort_tiles(
        keys: Array,
        places: Array,
        listed: bool,
        to_keys: Array,
        to_places: Array,
        keyed: bool,
        extent: int,
        bits: int,
        keep: int,
        target: int,
        rows: int,
    ) -> None:
        held = cuda.shared.array(room, kind)
        names = cuda.shared.array(names_room, np.uint32)
        tile = 1 << bits
        per_row = (extent + tile - 1) >> bits  # 1 if the block has several tiles
        first = cuda.blockIdx.x * (room >> bits)
        row, start = first // per_row, (first % per_row) * tile
        for spot in range(cuda.threadIdx.x, room, threads):
            mine, at = row + (spot >> bits), start + (spot & (tile - 1))
            if mine < rows and at < extent:
                held[spot] = keys[mine * extent + at]
                if named:
                    names[spot] = np.uint32(places[mine * extent + at] if listed else at)
            else:
                held[spot] = greatest
                if named:
                    names[spot] = LAST
        cuda.syncthreads()
        network(held, names, tile)
        made = (start >> bits) * keep
        for spot in range(cuda.threadIdx.x, room, threads):
            mine, local = row + (spot >> bits), spot & (tile - 1)
            if mine < rows and local < min(keep, extent - start):
                place = mine * target + made + local
                if keyed:
                    to_keys[place] = held[spot]
                if named:
                    to_places[place] = names[spot]

    return device(sort_tiles)


# ------------------------------------------------------------------------------------ merging


@functools.cache
def splitter(threads: int) -> Kernel:
    """Device code, run by a whole block: how many of the first `wanted` of two merged runs come
    from the first of them; its equals come first.  Every thread probes, so a step divides the
    range by the number of threads.
    """

    def split(keys: Array, a: int, a_count: int, b: int, b_count: int, wanted: int) -> int:
        low, high = max(0, wanted - b_count), min(wanted, a_count)
        while low < high:
            stride = (high - low + threads - 1) // threads
            probe = low + cuda.threadIdx.x * stride
            earlier = 0
            if probe < high and keys[a + probe] <= keys[b + wanted - 1 - probe]:
                earlier = 1
            passed = cuda.syncthreads_count(earlier)
            if passed == 0:
                high = low
            else:
                high = min(high, low + passed * stride)
                low += (passed - 1) * stride + 1
        return low

    return device(split)


@functools.cache
def merger(key: str, named: bool, tile: int, threads: int) -> Kernel:
    """Device code that merges pairs of sorted runs of `run` keys (a multiple of the tile) in rows
    of `extent`: one block per tile of the result.
    """
    kind, split = DTYPES[key].numpy.type, splitter(threads)

    def merge(
        keys: Array,
        places: Array,
        to_keys: Array,
        to_places: Array,
        keyed: bool,
        extent: int,
        run: int,
    ) -> None:
        held = cuda.shared.array(tile, kind)
        per_row = (extent + tile - 1) // tile
        row = (cuda.blockIdx.x // per_row) * extent
        start = (cuda.blockIdx.x % per_row) * tile
        pair = start - start % (2 * run)
        a, b = row + pair, row + min(pair + run, extent)
        a_count, b_count = b - a, min(run, row + extent - b)
        wanted = start - pair
        end = min(wanted + tile, a_count + b_count)
        a_low = split(keys, a, a_count, b, b_count, wanted)
        a_high = split(keys, a, a_count, b, b_count, end)
        mine, count = a_high - a_low, end - wanted
        a, b = a + a_low, b + wanted - a_low
        for spot in range(cuda.threadIdx.x, count, threads):
            held[spot] = keys[a + spot if spot < mine else b + spot - mine]
        cuda.syncthreads()
        for spot in range(cuda.threadIdx.x, count, threads):
            # The place of a key is its own and the number of those before it in the other run.
            x, first = held[spot], spot < mine
            low, high = (mine, count) if first else (0, mine)
            while low < high:
                middle = (low + high) // 2
                y = held[middle]
                if y < x or (y == x and not first):
                    low = middle + 1
                else:
                    high = middle
            place = row + start + (spot + low - mine)
            if keyed:
                to_keys[place] = x
            if named:
                to_places[place] = places[a + spot if first else b + spot - mine]

    return device(merge)


# ------------------------------------------------------------------------------------ kernels


@functools.cache
def key_kernels(key: str, tile: int, threads: int) -> tuple[Kernel, Kernel]:
    tiles = tile_sorter(key, False, tile, threads)
    merge = merger(key, False, tile, threads)

    def sort_keys(
        keys: Array,
        out: Array,
        work: Array,
        extent: int,
        bits: int,
        keep: int,
        target: int,
        rows: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        to = work if level % 2 else out
        tiles(keys, keys, False, to, to, True, extent, bits, keep, target, rows)

    def merge_keys(
        keys: Array,
        out: Array,
        work: Array,
        extent: int,
        run: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, to = (out, work) if level % 2 else (work, out)
        merge(source, source, to, to, True, extent, run)

    return sort_keys, merge_keys


@functools.cache
def place_kernels(key: str, tile: int, threads: int) -> tuple[Kernel, Kernel]:
    tiles = tile_sorter(key, True, tile, threads)
    merge = merger(key, True, tile, threads)

    def argsort_keys(
        keys: Array,
        out: Array,
        odd: Array,
        even: Array,
        work: Array,
        extent: int,
        bits: int,
        keep: int,
        target: int,
        rows: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        to, places = (odd, work) if level % 2 else (even, out)
        tiles(keys, out, False, to, places, level > 0, extent, bits, keep, target, rows)

    def merge_places(
        keys: Array,
        out: Array,
        odd: Array,
        even: Array,
        work: Array,
        extent: int,
        run: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, places = (even, out) if level % 2 else (odd, work)
        to, to_places = (odd, work) if level % 2 else (even, out)
        merge(source, places, to, to_places, level > 0, extent, run)

    return argsort_keys, merge_places


@functools.cache
def topk_kernels(key: str, tile: int, threads: int) -> tuple[Kernel, Kernel, Kernel]:
    """Launches that sort tiles, merge, and take the head of sorted rows. Level 0 is the result, the
    first launch reads the keys, all else lies in the buffers of odd and even levels.
    """
    tiles = tile_sorter(key, True, tile, threads)
    merge = merger(key, True, tile, threads)

    def topk_tiles(
        keys: Array,
        best: Array,
        places: Array,
        odd: Array,
        odd_places: Array,
        even: Array,
        even_places: Array,
        first: int,
        extent: int,
        bits: int,
        keep: int,
        target: int,
        rows: int,
        level: int,
        status: Array,
        row: int,
    ) -> None:
        source, listed = (even, even_places) if level % 2 else (odd, odd_places)
        to, to_places = (odd, odd_places) if level % 2 else (even, even_places)
        if first:
            source = keys
        if level == 0:
            to, to_places = best, places
        tiles(source, listed, first == 0, to, to_places, True, extent, bits, keep, target, rows)

    def topk_merge(
        keys: Array,
        best: Array,
        places: Array,
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
        source, listed = (even, even_places) if level % 2 else (odd, odd_places)
        to, to_places = (odd, odd_places) if level % 2 else (even, even_places)
        merge(source, listed, to, to_places, True, extent, run)

    def topk_head(
        keys: Array,
        best: Array,
        places: Array,
        odd: Array,
        odd_places: Array,
        even: Array,
        even_places: Array,
        extent: int,
        wanted: int,
        total: int,
        status: Array,
        row: int,
    ) -> None:
        for place in range(cuda.grid(1), total, cuda.gridsize(1)):
            source = place // wanted * extent + place % wanted
            best[place] = odd[source]
            places[place] = odd_places[source]

    return topk_tiles, topk_merge, topk_head
