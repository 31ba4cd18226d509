"""Sorting kernels over rows of unsigned keys: radix sort, insertion sort for short rows.

Every type is mapped to unsigned keys of its width whose order is the wanted one (see `sorting.py`),
so the kernels know one comparison only and are stable. The radix sort takes a byte at a time from
the lowest: count the digits, turn counts into first places, move the row to or from scratch.

    keys    0x0102 0x0001 0x0101        digit of pass 0    2 1 1
    pass 0  0x0001 0x0101 0x0102        digit of pass 1    0 1 1
    pass 1  0x0001 0x0101 0x0102

A byte in which all keys of a row agree costs no pass.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphc.ops.record.arguments import Array

Kernel = Callable[..., int | None]
CANCELLED = -1  # the status of a run that was cancelled
BLOCK = 1 << 20  # elements between two looks at the cancel flag
TURNS = 1 << 12  # the same where one may move as many as are wanted


def insertion_kernel(result: str) -> Kernel:
    """Sorts "keys" or finds the "positions"; Numba drops the branches the constant rules out."""

    def kernel(keys: Array, out: Array, params: Array, lo: int, hi: int) -> None:
        extent = params[0]
        for row in range(lo, hi):
            base = row * extent
            for k in range(extent):
                key = keys[base + k]
                spot = k
                while spot > 0:
                    if result == "keys":
                        other = out[base + spot - 1]
                    else:
                        other = keys[base + out[base + spot - 1]]
                    if other <= key:
                        break
                    out[base + spot] = out[base + spot - 1]
                    spot -= 1
                if result == "keys":
                    out[base + spot] = key
                else:
                    out[base + spot] = k

    return kernel


def radix_kernel(result: str) -> Kernel:
    """Sorts "keys" or finds the "positions"; Numba drops the branches the constant rules out.

    A cancelled run stops between two blocks of a row.
    """

    def kernel(
        keys: Array,
        out: Array,
        work: Array,
        count: Array,
        params: Array,
        lo: int,
        hi: int,
        cancelled: Array | None = None,
    ) -> int:
        extent, passes = params[0], params[1]
        low_byte = np.uint64(255)
        for row in range(lo, hi):
            base = row * extent
            count[: 256 * passes] = 0
            for start in range(0, extent, BLOCK):
                if cancelled is not None and cancelled[0] != 0:
                    return CANCELLED
                for k in range(start, min(start + BLOCK, extent)):
                    rest = np.uint64(keys[base + k])
                    if result == "keys":
                        out[base + k] = keys[base + k]
                    else:
                        out[base + k] = k
                    for place in range(passes):
                        count[256 * place + np.int64(rest & low_byte)] += 1
                        rest = rest >> np.uint64(8)
            in_work = False
            for place in range(passes):
                shift = np.uint64(8 * place)
                first = np.int64((np.uint64(keys[base]) >> shift) & low_byte)
                if count[256 * place + first] == extent:
                    continue
                total = 0
                for digit in range(256 * place, 256 * place + 256):
                    count[digit], total = total, total + count[digit]
                for start in range(0, extent, BLOCK):
                    if cancelled is not None and cancelled[0] != 0:
                        return CANCELLED
                    for k in range(start, min(start + BLOCK, extent)):
                        held = work[k] if in_work else out[base + k]
                        if result == "keys":
                            key = np.uint64(held)
                        else:
                            key = np.uint64(keys[base + held])
                        bucket = 256 * place + np.int64((key >> shift) & low_byte)
                        spot = count[bucket]
                        count[bucket] = spot + 1
                        if in_work:
                            out[base + spot] = held
                        else:
                            work[spot] = held
                in_work = not in_work
            if in_work:
                for start in range(0, extent, BLOCK):
                    if cancelled is not None and cancelled[0] != 0:
                        return CANCELLED
                    for k in range(start, min(start + BLOCK, extent)):
                        out[base + k] = work[k]
        return 0

    return kernel


def topk_kernel(
    keys: Array,
    best: Array,
    places: Array,
    params: Array,
    lo: int,
    hi: int,
    cancelled: Array | None = None,
) -> int:
    """The least k keys of a row by insertion: most lose to the k-th at the first comparison."""
    extent, wanted = params[0], params[1]
    for row in range(lo, hi):
        base, made = row * extent, row * wanted
        for k in range(extent):
            if k & (TURNS - 1) == 0 and cancelled is not None and cancelled[0] != 0:
                return CANCELLED
            key = keys[base + k]
            spot = min(k, wanted)
            while spot > 0 and key < best[made + spot - 1]:
                spot -= 1
            if spot == wanted:
                continue
            for place in range(made + min(k, wanted - 1), made + spot, -1):
                best[place] = best[place - 1]
                places[place] = places[place - 1]
            best[made + spot] = key
            places[made + spot] = k
    return 0


INSERTION = {result: insertion_kernel(result) for result in ("keys", "positions")}
RADIX = {result: radix_kernel(result) for result in ("keys", "positions")}
