"""occurrences on a GPU: counters are cleared, then all threads add to them."""

from __future__ import annotations

import numpy as np

from graphc.gpu import as_array, cuda
from graphc.ops.record.arguments import Array
from graphc.ops.record.grid_cuda import fail

OUT_OF_RANGE = 1


def clear_counters(x: Array, out: Array, size: int, status: Array, row: int) -> None:
    for place in range(cuda.grid(1), size, cuda.gridsize(1)):
        out[place] = 0


def add_occurrences(
    x: Array, out: Array, size: int, count: int, drop: int, status: Array, row: int
) -> None:
    counters = as_array(out, size)
    for k in range(cuda.grid(1), count, cuda.gridsize(1)):
        place = np.int64(x[k])
        if place >= 0 and place < size:
            cuda.atomic.add(counters, place, 1)
        elif drop == 0:
            fail(status, row, OUT_OF_RANGE)
