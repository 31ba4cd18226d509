"""nonzero on a GPU: three launches count the true elements of tiles, add the counts up, and write.

mask     0 1 1 0 | 1 0 0 0 | 1 1 1 0
counts      2    |    1    |    3
starts      0    |    2    |    3       total 6
places    1 2    |    4    |  8 9 10
"""

from __future__ import annotations

import functools
from typing import Any

from graphc.gpu import cuda, device
from graphc.ir.types import I64
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import Kernel

INT = I64.numpy.type


@functools.cache
def block_scan(threads: int) -> Kernel:
    """Device code, run by a whole block: (sum of the values of the threads before, of all).

    Source: Hillis, Steele, "Data parallel algorithms" (1986).
    """

    def scan(value: int) -> tuple[Any, Any]:
        held = cuda.shared.array(threads, INT)
        thread = cuda.threadIdx.x
        cuda.syncthreads()  # a scan before may still be read
        held[thread] = value
        cuda.syncthreads()
        step = 1
        while step < threads:
            other = held[thread - step] if thread >= step else 0
            cuda.syncthreads()
            held[thread] += other
            cuda.syncthreads()
            step *= 2
        return held[thread] - value, held[threads - 1]

    return device(scan)


@functools.cache
def nonzero_kernels(threads: int, run: int) -> tuple[Kernel, Kernel, Kernel]:
    scan = block_scan(threads)

    def count_true(
        mask: Array, places: Array, count: int, starts: Array, extent: int, status: Array, row: int
    ) -> None:
        first = cuda.grid(1) * run
        found = 0
        for k in range(first, min(first + run, extent)):
            if mask[k]:
                found += 1
        _, total = scan(found)
        if cuda.threadIdx.x == 0:
            starts[cuda.blockIdx.x] = total

    def add_counts(
        mask: Array, places: Array, count: Array, starts: Array, tiles: int, status: Array, row: int
    ) -> None:
        start = 0
        for first in range(0, tiles, threads):
            tile = first + cuda.threadIdx.x
            before, total = scan(starts[tile] if tile < tiles else 0)
            if tile < tiles:
                starts[tile] = start + before
            start += total
        if cuda.threadIdx.x == 0:
            count[0] = start

    def write_places(
        mask: Array,
        places: Array,
        count: Array,
        starts: Array,
        extent: int,
        size: int,
        status: Array,
        row: int,
    ) -> None:
        first = cuda.grid(1) * run
        found = 0
        for k in range(first, min(first + run, extent)):
            if mask[k]:
                found += 1
        before, _ = scan(found)
        at = starts[cuda.blockIdx.x] + before
        for k in range(first, min(first + run, extent)):
            if mask[k]:
                if at < size:
                    places[at] = k
                at += 1
        for k in range(min(count[0], size) + cuda.grid(1), size, cuda.gridsize(1)):
            places[k] = 0

    return count_true, add_counts, write_places
