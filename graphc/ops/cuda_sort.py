"""Sorting on a GPU: tiles by a bitonic network in shared memory, then runs merged two by two.

    rows     7 3 9 1 | 8 2 5 0 | 6 4          tiles, each sorted by a block
    runs     1 3 7 9 | 0 2 5 8 | 4 6
    merged   0 1 2 3 . 5 7 8 9 | 4 6          a launch per doubling; each block makes one tile of
    merged   0 1 2 3 . 4 5 6 7 . 8 9          the result and finds by itself what it is made of

Keys are unsigned (see `sorting.py`).  Where positions are wanted they break ties, which makes the
network stable; merging is stable by itself.  The k least are the first k of every tile, and again
of what that leaves.  Sources: Batcher, "Sorting networks and their applications" (1968); Green,
McColl, Bader, "GPU merge path" (2012).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.gpu import SIMULATED, cuda, device
from graphc.ir.op import CudaCall, CudaCode
from graphc.ir.types import DTYPES, I64
from graphc.record import record

Kernel = Callable[..., Any]
LAST = np.uint32(0xFFFFFFFF)  # the position of what pads a tile; rows are shorter than this


@record(frozen=True)
class Shape:
    """Elements that a block keeps in shared memory (a power of two), and its threads."""

    tile: int
    threads: int


SHAPE = Shape(32, 4) if SIMULATED else Shape(2048, 512)


# ------------------------------------------------------------------------------------ tiles


@functools.cache
def _network(named: bool, shape: Shape) -> Kernel:
    """Device code that sorts the tiles in shared memory, positions breaking ties."""
    pairs, threads = shape.tile // 2, shape.threads

    def network(held: Any, names: Any, tile: int) -> None:
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
def tile_sorter(key: str, named: bool, shape: Shape = SHAPE) -> Kernel:
    """Device code that sorts tiles of rows and keeps the first `keep` of each.

    Rows of `extent` keys become rows of `target`.  A tile has 2 ** `bits` elements: as many as a
    block, or fewer that hold a whole row.  If `named`, positions travel along, read from
    `places` if `listed`, else counted; then keys are written only if `keyed`.
    """
    kind, held_here, threads = DTYPES[key].numpy.type, shape.tile, shape.threads
    greatest = kind(np.iinfo(kind).max)
    names_here = held_here if named else 1
    network = _network(named, shape)

    def sort_tiles(
        keys: Any, places: Any, listed: bool, to_keys: Any, to_places: Any, keyed: bool,
        extent: int, bits: int, keep: int, target: int, rows: int,
    ) -> None:  # fmt: skip
        held = cuda.shared.array(held_here, kind)
        names = cuda.shared.array(names_here, np.uint32)
        tile = 1 << bits
        per_row = (extent + tile - 1) >> bits  # 1 if the block has several tiles
        first = cuda.blockIdx.x * (held_here >> bits)
        row, start = first // per_row, (first % per_row) * tile
        for spot in range(cuda.threadIdx.x, held_here, threads):
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
        for spot in range(cuda.threadIdx.x, held_here, threads):
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
def splitter(shape: Shape = SHAPE) -> Kernel:
    """Device code, run by a whole block: how many of the first `wanted` of two merged runs come
    from the first of them; its equals come first.  Every thread probes, so a step divides the
    range by the number of threads.
    """
    threads = shape.threads

    def split(keys: Any, a: int, a_count: int, b: int, b_count: int, wanted: int) -> int:
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
def merger(key: str, named: bool, shape: Shape = SHAPE) -> Kernel:
    """Device code that merges pairs of sorted runs of `run` keys (a multiple of the tile) in rows
    of `extent`: one block per tile of the result.
    """
    kind, tile, threads = DTYPES[key].numpy.type, shape.tile, shape.threads
    split = splitter(shape)

    def merge(
        keys: Any, places: Any, to_keys: Any, to_places: Any, keyed: bool, extent: int, run: int
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


# ------------------------------------------------------------------------------------ launches


@record(frozen=True)
class Pass:
    """One launch: it sorts tiles, or merges runs. `level` counts the launches that follow; it says
    which buffers to read and write, in turns.
    """

    merges: bool
    blocks: int
    params: tuple[int, ...]
    level: int


def tile_pass(rows: int, extent: int, keep: int, shape: Shape, level: int = 0) -> Pass:
    """Sort the tiles of rows and keep the first `keep` of each, or all where that is more."""
    bits = min(shape.tile - 1, extent - 1).bit_length()
    keep = min(keep, 1 << bits)
    whole = (extent - 1) >> bits
    target = whole * keep + min(keep, extent - (whole << bits))
    blocks = -(-rows * (whole + 1) // (shape.tile >> bits))
    return Pass(False, blocks, (extent, bits, keep, target, rows), level)


def passes(rows: int, extent: int, shape: Shape = SHAPE, level: int = 0) -> list[Pass]:
    """The launches that sort rows, the last of them at `level`."""
    per_row = -(-extent // shape.tile)
    merges = (per_row - 1).bit_length()
    made = [tile_pass(rows, extent, shape.tile, shape, level + merges)]
    for number in range(merges):
        params = extent, shape.tile << number
        made.append(Pass(True, rows * per_row, params, level + merges - 1 - number))
    return made


def pass_calls(
    made: list[Pass], tiles: Kernel, merge: Kernel, shape: Shape = SHAPE
) -> tuple[CudaCall, ...]:
    """The passes as launches of two kernels, which take the level as their last param."""
    return tuple(
        CudaCall(merge if p.merges else tiles, p.blocks, shape.threads, (*p.params, p.level))
        for p in made
    )


def _rows(node: Any) -> tuple[int, int]:
    dims = node.inputs[0].type.dims
    return math.prod(dims[:-1]), dims[-1]


def _spare(node: Any, made: list[Pass]) -> int:
    """The elements of a buffer between launches."""
    return node.inputs[0].type.size if len(made) > 1 else 0


# ------------------------------------------------------------------------------------ sort_keys


@functools.cache
def _key_kernels(key: str, shape: Shape) -> tuple[Kernel, Kernel]:
    tiles, merge = tile_sorter(key, False, shape), merger(key, False, shape)

    def sort_keys(
        keys: Any, out: Any, work: Any, extent: int, bits: int, keep: int, target: int, rows: int,
        level: int, status: Any, row: int,
    ) -> None:  # fmt: skip
        to = work if level % 2 else out
        tiles(keys, keys, False, to, to, True, extent, bits, keep, target, rows)

    def merge_keys(
        keys: Any, out: Any, work: Any, extent: int, run: int, level: int, status: Any, row: int
    ) -> None:
        source, to = (out, work) if level % 2 else (work, out)
        merge(source, source, to, to, True, extent, run)

    return sort_keys, merge_keys


def sort_code(node: Any, strict: bool, shape: Shape = SHAPE) -> CudaCode:
    """Device code of sort_keys."""
    if not node.type.size:
        return CudaCode(())
    element, made = node.type.dtype, passes(*_rows(node), shape)
    calls = pass_calls(made, *_key_kernels(element.name, shape), shape)
    return CudaCode(calls, ((element, _spare(node, made)),))


# ------------------------------------------------------------------------------------ argsort_keys


@functools.cache
def _place_kernels(key: str, shape: Shape) -> tuple[Kernel, Kernel]:
    tiles, merge = tile_sorter(key, True, shape), merger(key, True, shape)

    def argsort_keys(
        keys: Any, out: Any, odd: Any, even: Any, work: Any, extent: int, bits: int, keep: int,
        target: int, rows: int, level: int, status: Any, row: int,
    ) -> None:  # fmt: skip
        to, places = (odd, work) if level % 2 else (even, out)
        tiles(keys, out, False, to, places, level > 0, extent, bits, keep, target, rows)

    def merge_places(
        keys: Any, out: Any, odd: Any, even: Any, work: Any, extent: int, run: int, level: int,
        status: Any, row: int,
    ) -> None:  # fmt: skip
        source, places = (even, out) if level % 2 else (odd, work)
        to, to_places = (odd, work) if level % 2 else (even, out)
        merge(source, places, to, to_places, level > 0, extent, run)

    return argsort_keys, merge_places


def argsort_code(node: Any, strict: bool, shape: Shape = SHAPE) -> CudaCode:
    """Device code of argsort_keys."""
    if not node.type.size:
        return CudaCode(())
    element, made = node.inputs[0].type.dtype, passes(*_rows(node), shape)
    calls = pass_calls(made, *_place_kernels(element.name, shape), shape)
    count = _spare(node, made)
    return CudaCode(calls, ((element, count), (element, count), (I64, count)))


# ------------------------------------------------------------------------------------ topk_keys


@functools.cache
def _topk_kernels(key: str, shape: Shape) -> tuple[Kernel, Kernel, Kernel]:
    """Launches that sort tiles, merge, and take the head of sorted rows. Level 0 is the result, the
    first launch reads the keys, all else lies in the buffers of odd and even levels.
    """
    tiles, merge = tile_sorter(key, True, shape), merger(key, True, shape)

    def topk_tiles(
        keys: Any, best: Any, places: Any, odd: Any, odd_places: Any, even: Any, even_places: Any,
        first: int, extent: int, bits: int, keep: int, target: int, rows: int, level: int,
        status: Any, row: int,
    ) -> None:  # fmt: skip
        source, listed = (even, even_places) if level % 2 else (odd, odd_places)
        to, to_places = (odd, odd_places) if level % 2 else (even, even_places)
        if first:
            source = keys
        if level == 0:
            to, to_places = best, places
        tiles(source, listed, first == 0, to, to_places, True, extent, bits, keep, target, rows)

    def topk_merge(
        keys: Any, best: Any, places: Any, odd: Any, odd_places: Any, even: Any, even_places: Any,
        extent: int, run: int, level: int, status: Any, row: int,
    ) -> None:  # fmt: skip
        source, listed = (even, even_places) if level % 2 else (odd, odd_places)
        to, to_places = (odd, odd_places) if level % 2 else (even, even_places)
        merge(source, listed, to, to_places, True, extent, run)

    def topk_head(
        keys: Any, best: Any, places: Any, odd: Any, odd_places: Any, even: Any, even_places: Any,
        extent: int, wanted: int, total: int, status: Any, row: int,
    ) -> None:  # fmt: skip
        for place in range(cuda.grid(1), total, cuda.gridsize(1)):
            source = place // wanted * extent + place % wanted
            best[place] = odd[source]
            places[place] = odd_places[source]

    return topk_tiles, topk_merge, topk_head


def topk_code(node: Any, strict: bool, shape: Shape = SHAPE) -> CudaCode:
    """Device code of topk_keys."""
    if not node.inputs[0].type.size:
        return CudaCode(())
    element, wanted = node.inputs[0].type.dtype, node.attrs["k"]
    rows, extent = _rows(node)
    tiles, merge, head = _topk_kernels(element.name, shape)
    if 2 * wanted > shape.tile and extent > shape.tile:  # a tile would not leave much less
        sorts, *rest = passes(rows, extent, shape, level=1)
        first = CudaCall(tiles, sorts.blocks, shape.threads, (1, *sorts.params, sorts.level))
        blocks = -(-rows * wanted // shape.threads)
        last = CudaCall(head, blocks, shape.threads, (extent, wanted, rows * wanted))
        calls = (first, *pass_calls(rest, tiles, merge, shape), last)
        return CudaCode(calls, _places_beside(element, rows * extent, rows * extent))
    made = [tile_pass(rows, extent, wanted, shape)]
    while made[-1].params[3] > wanted:
        made.append(tile_pass(rows, made[-1].params[3], wanted, shape))
    levels = range(len(made) - 1, -1, -1)
    odd, even = (
        max((rows * p.params[3] for p, n in zip(made, levels) if n and n % 2 == turn), default=0)
        for turn in (1, 0)
    )
    calls = tuple(
        CudaCall(tiles, p.blocks, shape.threads, (int(p is made[0]), *p.params, level))
        for p, level in zip(made, levels)
    )
    return CudaCode(calls, _places_beside(element, odd, even))


def _places_beside(element: Any, odd: int, even: int) -> tuple[tuple[Any, int], ...]:
    return (element, odd), (I64, odd), (element, even), (I64, even)
