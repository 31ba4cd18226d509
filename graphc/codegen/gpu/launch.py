"""What a fused node becomes on a GPU: launches of kernels, one after another."""

from __future__ import annotations

from collections.abc import Callable

from graphc.base.record import record
from graphc.ir.types import DType

Operand = tuple[str, int, int]  # ("in" | "out" | "work", index or byte offset, byte offset)
Buffers = tuple[tuple[DType, int], ...]


@record(frozen=True)
class Launch:
    """One kernel on `blocks` blocks of `threads` threads.

    `text` is the source: it identifies the kernel and is what a dump shows.  `make` returns the
    function `k(buffers..., params..., status, row)`; `buffers` are the element type and count
    behind each pointer, `operands` where in the node's memory they lie, `params` int64 arguments.
    `exact` forbids the fusion of products with sums; `resident` is the number of blocks that a
    processor must have registers for; `shared` are bytes of shared memory that it asks for when it
    is launched, beside what it declares.  What a chip alone has (`Chip.own`) can be in kernels that
    have a `twin`, which does the same on other chips, as launched here.
    """

    text: str
    make: Callable[[], Callable[..., None]]
    buffers: Buffers
    operands: tuple[Operand, ...]
    blocks: int
    threads: int
    params: tuple[int, ...] = ()
    exact: bool = False
    resident: int = 1
    shared: int = 0
    twin: Launch | None = None


class Scratch:
    """Hands out the scratch memory of a node."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> Operand:
        start = self.nbytes
        self.nbytes += -(-nbytes // 64) * 64
        return "work", start, 0
