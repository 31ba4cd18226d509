"""Launches that find true elements, that count and that make running totals, see
`nonzero_cuda.py`, `counting_cuda.py` and `cumulative_cuda.py`.
"""

from __future__ import annotations

import math

from graphc.ir.op import CudaCall, CudaCode
from graphc.ir.types import F32, F64, I64, DType
from graphc.ops.record.arguments import Applied
from graphc.ops.record.launches import Machine, kernel, over

COMBINE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min", "recurrence": "add"}
FOLD_FIRST, FOLD, SCAN, SCAN_FIRST = range(4)  # what a launch of a running total does


def nonzero_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of nonzero."""
    extent, size, threads = node.inputs[0].type.size, node.attrs["size"], machine.threads
    tiles = max(1, -(-extent // (threads * machine.run)))
    shape = threads, machine.run
    kernels = (kernel("reduce.nonzero_cuda", "nonzero_kernels", *shape, part=k) for k in range(3))
    count, add, write = kernels
    calls = (
        CudaCall(count, tiles, threads, (extent,)),
        CudaCall(add, 1, threads, (tiles,)),
        CudaCall(write, tiles, threads, (extent, size)),
    )
    return CudaCode(calls, ((I64, tiles),))


def occurrences_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of occurrences."""
    size, count, code = node.type.dims[0], node.inputs[0].type.size, "reduce.counting_cuda"
    clear = over(machine, kernel(code, "clear_counters"), size, (size,))
    sizes = size, count, int(node.attrs["drop"])
    return CudaCode((clear, over(machine, kernel(code, "add_occurrences"), count, sizes)))


# ------------------------------------------------------------------------------------ running


def carried_type(element: DType) -> DType:
    """What a running total is carried in."""
    return F64 if element is F32 else element


def _levels(extent: int, machine: Machine) -> list[tuple[int, int, int]]:
    """(extent, chunk, chunks) of each level; the last has one chunk."""
    made = [(extent, machine.chunk, -(-extent // machine.chunk))]
    while made[-1][2] > machine.chunk_above:
        count = made[-1][2]
        made.append((count, machine.chunk_above, -(-count // machine.chunk_above)))
    return [*made, (made[-1][2], made[-1][2], 1)]


def cumulative_code(node: Applied, strict: bool, machine: Machine) -> CudaCode | None:
    """Device code of a running total, or None where its loops are as good."""
    name, element, axis = node.op.name, node.type.dtype, node.attrs["axis"]
    dims = node.type.dims
    outer, extent, inner = math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])
    orderless = element.is_integer or COMBINE[name] in ("max", "min")
    if extent <= 2 * machine.chunk or not outer * inner or (strict and not orderless):
        return None
    if inner == 1 and name != "recurrence":
        return _row_code(name, element, outer, extent, int(node.attrs["reverse"]), machine)
    if outer * inner >= machine.many_rows:
        return None
    source = kernel("reduce.cumulative_cuda", "running_kernel", name, element.name)
    levels = _levels(extent, machine)
    offsets = [0, 0]
    for _, _, chunks in levels[:-1]:
        offsets.append(offsets[-1] + outer * chunks * inner)

    def call(phase: int, level: int, other: int) -> CudaCall:
        extent, chunk, chunks = levels[level]
        units, reverse = outer * chunks * inner, int(node.attrs["reverse"])
        sizes = (extent, chunk, chunks, inner, units, reverse)
        return over(machine, source, units, (phase, offsets[level], offsets[other], *sizes))

    top = len(levels) - 1
    calls = [call(FOLD if k else FOLD_FIRST, k, k + 1) for k in range(top)]
    calls += [call(SCAN if k else SCAN_FIRST, k, min(k + 1, top)) for k in range(top, -1, -1)]
    work = ((carried_type(element), offsets[-1]),)
    return CudaCode(tuple(calls), work * 2 if name == "recurrence" else work)


def _row_code(
    name: str, element: DType, rows: int, extent: int, reverse: int, machine: Machine
) -> CudaCode:
    """Launches of `row_scan_cuda`: a warp for a short row, a block for a long one or a part."""
    stretch = 4 * machine.scanners
    lanes = machine.scanners if 2 * extent > stretch else machine.warp
    per_block = machine.scanners // lanes
    parts = max(1, min(machine.blocks // rows, extent // (4 * stretch)))
    part = -(-extent // (parts * stretch)) * stretch  # whole stretches
    parts = -(-extent // part)
    whole = int(not reverse and extent % 4 == 0 and element.itemsize <= 4)  # of 16 bytes
    shape = name, element.name, lanes
    fold, totals, run = (
        kernel("reduce.row_scan_cuda", "row_kernels", *shape, part=k) for k in range(3)
    )
    sizes, units = (extent, part, parts, rows * parts, reverse, whole), rows * parts
    blocks = min(machine.blocks, -(-units // per_block))
    calls = [CudaCall(run, blocks, machine.scanners, sizes)]
    if parts > 1:
        lines = min(machine.blocks, -(-rows // per_block))
        first = CudaCall(fold, blocks, machine.scanners, sizes)
        calls = [first, CudaCall(totals, lines, machine.scanners, (parts, rows)), *calls]
    return CudaCode(tuple(calls), ((carried_type(element), units if parts > 1 else 1),))
