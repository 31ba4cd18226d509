"""Launches of device code, planned without importing it: that would import Numba.

A kernel is named by a text of two lines, a short module that is executed where it is compiled:

    from graphc.ops.sort.sort_cuda import key_kernels

    kernel = key_kernels('u32', 2048, 512)[0]
"""

from __future__ import annotations

from graphc.base.record import record
from graphc.ir.op import CudaCall


@record(frozen=True)
class Machine:
    """What launches are shaped for.

    threads, blocks    of a launch over elements; kernels stride over more of them than that
    tile, sorters      keys that a block keeps in shared memory (a power of two), and its threads
    panel, eliminators columns of a matrix that one block eliminates, and its threads at most
    run                neighbours that a thread looks at to find true elements
    chunk, chunk_above elements that a thread adds up, and totals of such further up
    many_rows          rows that need no more threads than one for each
    few                positions among which equal ones are found by looking at all
    warp, scanners     threads that pass values to each other, and those that walk along a row
    digit, rounds      bits of a digit that long rows are sorted by, and keys of a thread meanwhile
    """

    threads: int = 256
    blocks: int = 2048
    tile: int = 2048
    sorters: int = 512
    panel: int = 32
    eliminators: int = 512
    run: int = 16
    chunk: int = 16
    chunk_above: int = 64
    many_rows: int = 1 << 17
    few: int = 64
    warp: int = 32
    scanners: int = 256
    digit: int = 8
    rounds: int = 8


GPU = Machine()
# Every simulated thread is run by Python.
SIMULATOR = Machine(4, 2, 8, 4, 2, 4, 2, 3, 2, 6, 4, 4, 8, 4, 2)


def kernel(module: str, name: str, *arguments: object, part: object = None) -> str:
    """The text of a kernel: a function of a module, or what it returns, or a part of that."""
    made = f"{name}({', '.join(map(repr, arguments))})" if arguments else name
    made += "" if part is None else f"[{part!r}]"
    return f"from graphc.ops.{module} import {name}\n\nkernel = {made}\n"


def over(machine: Machine, source: str, elements: int, params: tuple[int, ...]) -> CudaCall:
    """A launch of a kernel that strides over elements."""
    blocks = max(1, min(machine.blocks, -(-elements // machine.threads)))
    return CudaCall(source, blocks, machine.threads, params)


def is_narrow(elements: int) -> bool:
    """Whether 32 bits count the elements."""
    return elements < 1 << 32
