"""lu and cholesky on a GPU: panels of columns one after another, and the rest updated by all.

    +--+--------+      panel    one block per matrix eliminates the columns of the panel, with
    |  | right  |               row exchanges (lu), and scales what lies below
    |p +--------+      right    the exchanges in the other columns; the rows of the panel (lu)
    |a |        |      update   what is left, minus below times right: tiles of all blocks
    |n | update |
    |el|        |      then the same with what is left
    +--+--------+

Stacks of matrices are taken in every launch at once.  Source: Dongarra, Duff, Sorensen, van der
Vorst, "Numerical Linear Algebra for High-Performance Computers" (1998), right-looking algorithms.
"""

from __future__ import annotations

import functools

from graphc.errors import INDEFINITE
from graphc.gpu import cuda, device, sqrt
from graphc.ir.types import DTYPES, I64
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel, fail

INT = I64.numpy.type


# ------------------------------------------------------------------------------------ lu


def lu_begin(
    x: Array,
    packed: Array,
    perm: Array,
    sign: Array,
    swaps: Array,
    total: int,
    n: int,
    units: int,
    status: Array,
    row: int,
) -> None:
    """A copy of the matrices, the rows in order."""
    for i in range(cuda.grid(1), total, cuda.gridsize(1)):
        packed[i] = x[i]
    for i in range(cuda.grid(1), units * n, cuda.gridsize(1)):
        perm[i] = i % n
    for i in range(cuda.grid(1), units, cuda.gridsize(1)):
        sign[i] = 1


@functools.cache
def lu_panel_kernel(element: str, threads: int, panel: int) -> Kernel:
    kind = DTYPES[element].numpy.type

    def lu_panel(
        x: Array,
        packed: Array,
        perm: Array,
        sign: Array,
        swaps: Array,
        n: int,
        first: int,
        status: Array,
        row: int,
    ) -> None:
        sizes = cuda.shared.array(threads, kind)
        rows = cuda.shared.array(threads, INT)
        thread, unit = cuda.threadIdx.x, cuda.blockIdx.x
        base, stop = unit * n * n, min(first + panel, n)
        for k in range(first, stop):
            size, best = kind(-1), k
            for r in range(k + thread, n, threads):
                other = abs(packed[base + r * n + k])
                if other > size:
                    size, best = other, r
            sizes[thread], rows[thread] = size, best
            cuda.syncthreads()
            step = threads // 2
            while step > 0:
                if thread < step:
                    size, best = sizes[thread + step], rows[thread + step]
                    tied = size == sizes[thread] and best < rows[thread]
                    if size > sizes[thread] or tied:
                        sizes[thread], rows[thread] = size, best
                cuda.syncthreads()
                step //= 2
            best = rows[0]
            if best != k:
                for c in range(first + thread, stop, threads):
                    here, there = base + k * n + c, base + best * n + c
                    held = packed[here]
                    packed[here] = packed[there]
                    packed[there] = held
            if thread == 0:
                swaps[unit * n + k] = best
                if best != k:
                    place = perm[unit * n + k]
                    perm[unit * n + k] = perm[unit * n + best]
                    perm[unit * n + best] = place
                    sign[unit] = -sign[unit]
            cuda.syncthreads()
            pivot = packed[base + k * n + k]
            if pivot != 0:
                for r in range(k + 1 + thread, n, threads):
                    factor = packed[base + r * n + k] / pivot
                    packed[base + r * n + k] = factor
                    for c in range(k + 1, stop):
                        packed[base + r * n + c] -= factor * packed[base + k * n + c]
            cuda.syncthreads()

    return lu_panel


@functools.cache
def lu_right_kernel(panel: int) -> Kernel:
    def lu_right(
        x: Array,
        packed: Array,
        perm: Array,
        sign: Array,
        swaps: Array,
        n: int,
        first: int,
        units: int,
        status: Array,
        row: int,
    ) -> None:
        stop = min(first + panel, n)
        for i in range(cuda.grid(1), units * n, cuda.gridsize(1)):
            unit, c = i // n, i % n
            base = unit * n * n
            if c < first or c >= stop:
                for k in range(first, stop):
                    other = swaps[unit * n + k]
                    if other != k:
                        held = packed[base + k * n + c]
                        packed[base + k * n + c] = packed[base + other * n + c]
                        packed[base + other * n + c] = held
            if c >= stop:
                for k in range(first, stop):
                    held = packed[base + k * n + c]
                    for r in range(k + 1, stop):
                        packed[base + r * n + c] -= packed[base + r * n + k] * held

    return lu_right


# ------------------------------------------------------------------------------------ cholesky


def cholesky_begin(x: Array, out: Array, n: int, total: int, status: Array, row: int) -> None:
    """A copy of the lower triangles."""
    for i in range(cuda.grid(1), total, cuda.gridsize(1)):
        out[i] = x[i] if i % n <= i // n % n else 0


@functools.cache
def cholesky_panel_kernel(threads: int, panel: int) -> Kernel:
    def cholesky_panel(x: Array, out: Array, n: int, first: int, status: Array, row: int) -> None:
        thread, base, stop = cuda.threadIdx.x, cuda.blockIdx.x * n * n, min(first + panel, n)
        for k in range(first, stop):
            pivot = out[base + k * n + k]
            cuda.syncthreads()
            if not pivot > 0:
                fail(status, row, INDEFINITE)
                return
            root = sqrt(pivot)
            if thread == 0:
                out[base + k * n + k] = root
            for r in range(k + 1 + thread, n, threads):
                out[base + r * n + k] /= root
            cuda.syncthreads()
            for r in range(k + 1 + thread, n, threads):
                factor = out[base + r * n + k]
                for c in range(k + 1, min(stop, r + 1)):
                    out[base + r * n + c] -= factor * out[base + c * n + k]
            cuda.syncthreads()

    return cholesky_panel


# ------------------------------------------------------------------------------------ the rest


@functools.cache
def update_kernels(element: str, threads: int, tile: int) -> dict[str, Kernel]:
    """Kernels of a tile per block. On the right of cholesky is what is below it, mirrored."""
    kind, padded = DTYPES[element].numpy.type, tile + 1  # no two rows in one bank

    def subtract(matrix: Array, n: int, first: int, rest: int, mirrored: bool) -> None:
        below = cuda.shared.array((tile, padded), kind)
        right = cuda.shared.array((tile, padded), kind)
        unit, place = cuda.blockIdx.x // (rest * rest), cuda.blockIdx.x % (rest * rest)
        base, stop = unit * n * n, first + tile
        top, left = stop + place // rest * tile, stop + place % rest * tile
        if mirrored and left > top:
            return
        for i in range(cuda.threadIdx.x, tile * tile, threads):
            r, c = i // tile, i % tile
            if top + r < n:
                below[r, c] = matrix[base + (top + r) * n + first + c]
            if mirrored and left + r < n:
                right[c, r] = matrix[base + (left + r) * n + first + c]
            if not mirrored and left + c < n:
                right[r, c] = matrix[base + (first + r) * n + left + c]
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, tile * tile, threads):
            r, c = i // tile, i % tile
            if top + r < n and left + c < (top + r + 1 if mirrored else n):
                total = matrix[base + (top + r) * n + left + c]
                for k in range(tile):
                    total -= below[r, k] * right[k, c]
                matrix[base + (top + r) * n + left + c] = total

    subtract = device(subtract)

    def lu_update(
        x: Array,
        packed: Array,
        perm: Array,
        sign: Array,
        swaps: Array,
        n: int,
        first: int,
        rest: int,
        status: Array,
        row: int,
    ) -> None:
        subtract(packed, n, first, rest, False)

    def cholesky_update(
        x: Array, out: Array, n: int, first: int, rest: int, status: Array, row: int
    ) -> None:
        subtract(out, n, first, rest, True)

    return {"lu": lu_update, "cholesky": cholesky_update}
