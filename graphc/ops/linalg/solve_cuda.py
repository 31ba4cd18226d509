"""lu_solve on a GPU: a block solves some columns of one right side, a few rows after the other.

                 what is solved
    rows  ->  [  m  m  m  m  |\\   ]     rows minus the product of m and what is solved, in tiles;
                               \\        then the triangle, one row after the other

Forwards through the lower triangle, then backwards through the upper one; for the transposed
system the triangles change places.  Row r of the solution has its home in row perm[r] then.
"""

from __future__ import annotations

import functools
from typing import Any

from graphc.errors import SINGULAR
from graphc.gpu import cuda, device
from graphc.ir.types import DTYPES
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel, fail

OUT_OF_RANGE = 1


def _legal(
    packed: Array, perm: Array, base: int, first: int, n: int, once: bool, status: Array, row: int
) -> Any:
    """Whether a matrix is not singular and its rows are rows, each `once` if so asked; the whole
    block takes part."""
    bad = 0
    for r in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        again = 0
        for other in range(r if once else 0):
            again += perm[first + other] == perm[first + r]
        if perm[first + r] < 0 or perm[first + r] >= n or again:
            bad = 1
            fail(status, row, OUT_OF_RANGE)
        if packed[base + r * n + r] == 0:
            bad = 1
            fail(status, row, SINGULAR)
    return cuda.syncthreads_count(bad) == 0


@functools.cache
def _tile_loader(element: str, transposed: bool, tile: int, threads: int) -> Kernel:
    """Device code that copies a tile of the system's matrix, zeros beyond the end."""
    kind = DTYPES[element].numpy.type

    def load(packed: Array, base: int, n: int, top: int, left: int, matrix: Array) -> None:
        for i in range(cuda.threadIdx.x, tile * tile, threads):
            down, along = i // tile, i % tile
            at, to = (left + down, top + along) if transposed else (top + down, left + along)
            value = packed[base + at * n + to] if at < n and to < n else kind(0)
            if transposed:
                matrix[along, down] = value
            else:
                matrix[down, along] = value

    return device(load)


@functools.cache
def _substitution(element: str, transposed: bool, tile: int) -> Kernel:
    """Device code that solves the triangle of a tile, one row after the other."""
    kind = DTYPES[element].numpy.type

    def substitute(
        matrix: Array, solved: Array, r: int, c: int, total: float, forwards: bool, present: bool
    ) -> Any:
        cuda.syncthreads()
        for place in range(tile):
            k = place if forwards else tile - 1 - place
            if r == k:
                if forwards == transposed:  # the upper triangle; the lower has ones
                    total = total / matrix[k, k] if present else kind(0)
                solved[k, c] = total
            cuda.syncthreads()
            if (r > k) if forwards else (r < k):
                total -= matrix[r, k] * solved[k, c]
        return total

    return device(substitute)


@functools.cache
def solve_kernel(element: str, transposed: bool, tile: int, width: int) -> Kernel:
    """`tile` rows and `width` columns of the solution at a time, a thread for each element."""
    kind, padded, threads = DTYPES[element].numpy.type, tile + 1, tile * width
    legal, load = device(_legal), _tile_loader(element, transposed, tile, threads)
    substitute = _substitution(element, transposed, tile)

    def forwards_and_backwards(
        packed: Array,
        perm: Array,
        b: Array,
        out: Array,
        n: int,
        columns: int,
        groups: int,
        status: Array,
        row: int,
    ) -> None:
        matrix = cuda.shared.array((tile, padded), kind)
        solved = cuda.shared.array((tile, width), kind)
        unit = cuda.blockIdx.x // groups
        base, rows, made = unit * n * n, unit * n, unit * n * columns
        if not legal(packed, perm, base, rows, n, transposed, status, row):
            return
        r, c = cuda.threadIdx.x // width, cuda.threadIdx.x % width
        column = cuda.blockIdx.x % groups * width + c
        tiles = (n + tile - 1) // tile
        for turn in range(2 * tiles):
            forwards = turn < tiles
            number = turn if forwards else 2 * tiles - 1 - turn
            mine = number * tile + r
            present = mine < n and column < columns
            total = kind(0)
            if present:
                other = perm[rows + mine]
                if forwards:
                    total = b[made + (mine if transposed else other) * columns + column]
                else:
                    total = out[made + (other if transposed else mine) * columns + column]
            for step in range(number + 1 if forwards else tiles - number):
                # The tiles that are solved, then the triangle.
                across = step if forwards else tiles - 1 - step
                cuda.syncthreads()
                load(packed, base, n, number * tile, across * tile, matrix)
                if across != number:
                    known = across * tile + r
                    value = kind(0)
                    if known < n and column < columns:
                        home = perm[rows + known] if transposed else known
                        value = out[made + home * columns + column]
                    solved[r, c] = value
                    cuda.syncthreads()
                    for k in range(tile):
                        total -= matrix[r, k] * solved[k, c]
            total = substitute(matrix, solved, r, c, total, forwards, present)
            if present:
                home = perm[rows + mine] if transposed else mine
                out[made + home * columns + column] = total
            cuda.syncthreads()

    return forwards_and_backwards
