"""What a fused node needs to run: a `Spec`.

loop      a loop kernel of its own
contract  the contraction core, with an epilogue or without
library   a hand-written function compiled by Numba
native    the same as LLVM IR, for this machine's vectors
copy      rows of copies
cuda      kernels of a GPU
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.codegen.gpu.launch import Launch, Operand
from graphc.config import Config
from graphc.ir.types import DType
from graphc.loops.nest import Kernel

if TYPE_CHECKING:
    from graphc.runtime.cuda.product import Product


@record(frozen=True)
class Spec:
    """How one region runs.

    `operands` are the kernel's buffers: operand k of the node, result leaf k, or an offset into the
    workspace; each with a byte offset.  `workspace` counts the bytes for all threads together.
    `kernel` is the loop kernel or the epilogue, `prologues` what computes A and B of the core;
    `core` the element type of the contraction core and `parts` what it must be made of;
    `library` the function and buffer types of a hand-written one; `native` the text of one in LLVM.
    `patch` is what to run instead where the result lies in the memory of this operand.
    A kernel that takes long looks every `poll` units whether the run was cancelled; 0 is never.
    On a GPU (kind cuda) `launches` run in order; `operands` are those of the first, the second ...;
    `product` is what they compute where that is a plain product of matrices.
    `then` runs afterwards, in the same workspace: what needs all that the first kernel made.
    """

    kind: str
    operands: tuple[Operand, ...]
    units: int
    grain: int
    params: tuple[int, ...] = ()
    workspace: int = 0
    kernel: Kernel | None = None
    prologues: tuple[Kernel | None, Kernel | None] = (None, None)
    core: str | None = None
    library: tuple[Callable[..., Any], tuple[DType, ...], bool] | None = None
    parts: int = 0
    patch: tuple[int, Spec] | None = None
    launches: tuple[Launch, ...] = ()
    poll: int = 0
    product: Product | None = None
    then: Spec | None = None
    native: str = ""


def rules(config: Config) -> dict[str, bool]:
    """How strictly kernels compute."""
    return {"strict": config.strict, "check_finite": config.check_finite}


def copy_spec(pieces: tuple[tuple[int, int], ...]) -> Spec:
    """The pieces, and after them where each goes in the result."""
    sizes = tuple(size for _, size in pieces)
    starts = (0, *accumulate(sizes[:-1]))
    operands = [("in", number, 0) for number, _ in pieces] + [("out", 0, at) for at in starts]
    return Spec("copy", tuple(operands), 1, 0, sizes)
