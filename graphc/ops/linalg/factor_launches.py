"""Launches that factorise matrices and solve, see `factor_cuda.py` and `solve_cuda.py`."""

from __future__ import annotations

import math

from graphc.ir.op import CudaCall, CudaCode
from graphc.ir.types import I64
from graphc.ops.record.arguments import Applied
from graphc.ops.record.launches import Machine, kernel, over

CODE = "linalg.factor_cuda"


def lu_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of lu."""
    dims, element = node.inputs[0].type.dims, node.inputs[0].type.dtype.name
    n, units, threads = dims[-1], math.prod(dims[:-2]), threads_for(dims[-1], machine)
    calls = [over(machine, kernel(CODE, "lu_begin"), units * n * n, (units * n * n, n, units))]
    panel = kernel(CODE, "lu_panel_kernel", element, threads, machine.panel)
    right = kernel(CODE, "lu_right_kernel", machine.panel)
    for first in range(0, n, machine.panel):
        calls.append(CudaCall(panel, units, threads, (n, first)))
        if n > machine.panel:
            calls.append(over(machine, right, units * n, (n, first, units)))
        calls += update_calls("lu", element, units, n, first, machine)
    return CudaCode(tuple(calls), ((I64, units * n),))


def cholesky_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of cholesky."""
    dims, element = node.type.dims, node.type.dtype.name
    n, units, threads = dims[-1], math.prod(dims[:-2]), threads_for(dims[-1], machine)
    calls = [over(machine, kernel(CODE, "cholesky_begin"), units * n * n, (n, units * n * n))]
    panel = kernel(CODE, "cholesky_panel_kernel", threads, machine.panel)
    for first in range(0, n, machine.panel):
        calls.append(CudaCall(panel, units, threads, (n, first)))
        calls += update_calls("cholesky", element, units, n, first, machine)
    return CudaCode(tuple(calls))


def solve_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of lu_solve."""
    *stack, n, columns = node.type.dims
    if not node.type.size:
        return CudaCode(())
    element, tile = node.type.dtype.name, machine.panel
    width = min(max(1, machine.eliminators // tile), 8, 1 << (columns - 1).bit_length())
    groups = -(-columns // width)
    shape = element, node.attrs["transposed"], tile, width
    made = kernel("linalg.solve_cuda", "solve_kernel", *shape)
    blocks = math.prod(stack) * groups
    return CudaCode((CudaCall(made, blocks, tile * width, (n, columns, groups)),))


def threads_for(n: int, machine: Machine) -> int:
    """Threads of a block that has a matrix for itself."""
    return min(machine.eliminators, 1 << max(n - 1, 0).bit_length())


def update_calls(
    name: str, element: str, units: int, n: int, first: int, machine: Machine
) -> list[CudaCall]:
    """What is left minus the product of below and right, if anything is left."""
    rest = -(-(n - first - machine.panel) // machine.panel)
    if rest <= 0:
        return []
    threads = min(machine.eliminators, machine.panel**2, 256)
    made = kernel(CODE, "update_kernels", element, threads, machine.panel, part=name)
    return [CudaCall(made, units * rest * rest, threads, (n, first, rest))]
