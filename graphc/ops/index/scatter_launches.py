"""Launches that scatter, see `scatter_cuda.py`."""

from __future__ import annotations

import math

from graphc.ir.op import CudaCode
from graphc.ir.types import DTYPES, I64
from graphc.ops.record.arguments import Applied
from graphc.ops.record.launches import Machine, is_narrow, kernel, over
from graphc.ops.sort.sort_launches import pass_calls, passes

CODE = "index.scatter_cuda"


def route_of(node: Applied, strict: bool, machine: Machine) -> str:
    """Which of the routes of `scatter_cuda.py` a scatter takes."""
    element, mode = node.type.dtype, node.attrs["mode"]
    if node.inputs[1].type.size <= machine.few:
        return "few"
    if mode == "set":
        return "claimed"
    wide = element.bits >= 32 and not element.is_complex
    orderless = element.is_integer or (mode == "add" and not strict)
    return "atomic" if wide and orderless and mode != "mul" else "sorted"


def scatter_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of scatter."""
    rows, width = node.type.dims[0], math.prod(node.type.dims[1:])
    count, mode, drop = node.inputs[1].type.size, node.attrs["mode"], int(node.attrs["drop"])
    work = count * width
    narrow, sizes = is_narrow(work), (rows, width, count)
    route, most = route_of(node, strict, machine), max(rows * width, count)
    if route == "sorted":
        return _sorted_code(mode, sizes, drop, machine)
    if route == "claimed":
        begin, claim = kernel(CODE, "begin_claims"), kernel(CODE, "claim_kernel")
        first = over(machine, begin, max(most, rows), (*sizes, drop))
        claims = over(machine, claim, count, (rows, count))
        last = over(machine, kernel(CODE, "claimed_kernel", narrow), work, sizes)
        return CudaCode((first, claims, last), ((I64, rows),))
    first = over(machine, kernel(CODE, "begin_kernel"), most, (*sizes, drop))
    last = over(machine, kernel(CODE, f"{route}_kernel", mode, narrow), work, sizes)
    return CudaCode((first, last))


def _sorted_code(mode: str, sizes: tuple[int, int, int], drop: int, machine: Machine) -> CudaCode:
    rows, width, count = sizes
    key = DTYPES["u32" if rows < 1 << 32 else "u64"]
    shape = (mode, key.name, is_narrow(count * width), machine.tile, machine.sorters)
    begin, tiles, merge, apply = (kernel(CODE, "sorted_kernels", *shape, part=k) for k in range(4))
    made = passes(1, count, machine)
    first = over(machine, begin, max(rows * width, count), (*sizes, drop, made[0].level + 1))
    last = over(machine, apply, count * width, sizes)
    sorts = pass_calls(made, machine, tiles, merge)
    return CudaCode((first, *sorts, last), ((key, count), (I64, count)) * 2)


def spread_code(node: Applied, strict: bool, machine: Machine) -> CudaCode | None:
    """Device code of spread: atomic sums of f32 and f64. Strict ones, and those of narrower floats,
    keep their loops, a thread per row.
    """
    work, total = node.inputs[1].type.size, node.type.size
    if strict or node.type.dtype.bits < 32 or not work:
        return None
    sizes = (node.inputs[1].type.dims[1], node.attrs["extent"], work, total)
    zeros = over(machine, kernel(CODE, "spread_zeros"), total, (total,))
    add = kernel(CODE, "spread_kernel", is_narrow(work))
    return CudaCode((zeros, over(machine, add, work, sizes)))
