"""What a fused node needs to run: a `Spec`; and how often what runs looks whether to stop.

loop      a loop kernel of its own
contract  the contraction core, with an epilogue or without
library   a hand-written function compiled by Numba
native    the same as LLVM IR, for this machine's vectors
copy      rows of copies
cuda      kernels of a GPU
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.codegen.gpu.launch import Launch, Operand
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.op import Contraction, Library
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import DType, Type, leaves
from graphc.loops.facts import bytes_of_threads, unit_work, work_bytes
from graphc.loops.nest import Kernel
from graphc.loops.tuning import tuned as loops_tuned

if TYPE_CHECKING:
    from graphc.codegen.llvm.objects import Piece
    from graphc.runtime.cuda.gemm import Gemm


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
    `ways` says in words between which ways of running it sizes decide.
    `pieces` are the texts in LLVM that were made of it: programs that share it share them.
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
    product: Gemm | None = None
    then: Spec | None = None
    native: str = ""
    ways: tuple[str, ...] = ()
    pieces: dict[Any, Piece] = field(default_factory=dict, compare=False, repr=False)


def poll_of(region: Graph, units: int) -> int:
    """The units of a long kernel between two looks at the cancel flag."""
    busy = sum(
        n.op.estimate(n)[0]
        / (tuned.slow_flops if isinstance(n.op.lower, Contraction) else tuned.slow_steps)
        for n in region.nodes
    )
    kinds = [leaf for n in (*region.params, *region.results) for leaf in leaves(n.type)]
    nbytes = sum(kind.nbytes for kind in kinds if isinstance(kind, Type) and kind.is_static)
    is_told = all(
        n.op.cost is not None or not isinstance(n.op.lower, Library) for n in region.nodes
    )
    passes = 1 if is_told else tuned.untold_passes
    seconds = max(busy, hint_of(nbytes) * passes / tuned.slow_bytes)
    if isinstance(nbytes, Size):
        seconds *= loops_tuned.later_growth
    return (
        max(1, int(hint_of(units) * tuned.poll_seconds / seconds))
        if seconds > tuned.long_kernel
        else 0
    )


def loops_poll(kernel: Kernel) -> int:
    """The same by what the loops of a kernel do."""
    work = unit_work(kernel)
    total = work * kernel.units
    growth = loops_tuned.later_growth if isinstance(total, Size) else 1
    if hint_of(total) * growth <= tuned.long_looks * loops_tuned.look_work:
        return 0
    each: int = hint_of(work)
    return max(1, loops_tuned.look_work // each)


def least_poll(*polls: int) -> int:
    return min((poll for poll in polls if poll), default=0)


def rules(config: Config) -> dict[str, bool]:
    """How strictly kernels compute."""
    return {"strict": config.strict, "check_finite": config.check_finite}


def copy_spec(pieces: tuple[tuple[int, int], ...]) -> Spec:
    """The pieces, and after them where each goes in the result."""
    sizes = tuple(size for _, size in pieces)
    starts = (0, *accumulate(sizes[:-1]))
    operands = [("in", number, 0) for number, _ in pieces] + [("out", 0, at) for at in starts]
    return Spec("copy", tuple(operands), 1, 0, sizes)


def loop_spec(
    kernel: Kernel, grain: int, region: Graph, config: Config, patch: tuple[int, Spec] | None = None
) -> Spec:
    operands: list[Operand] = [("in", k, 0) for k in range(len(region.params))]
    results = sum(len(leaves(result.type)) for result in region.results)
    operands += [("out", k, 0) for k in range(results)]
    workspace = 0
    for buffer in kernel.buffers[len(operands) :]:
        operands.append(("work", workspace, 0))
        own = buffer.mode == "work"
        workspace += bytes_of_threads(buffer, config.thread_count) if own else work_bytes(buffer)
    units, then = kernel.units, None
    if kernel.then is not None:  # it folds what little each unit has made
        many = kernel.then.units
        then = Spec("loop", tuple(operands), many, many, kernel.then.sizes, workspace, kernel.then)
    return Spec(
        "loop",
        tuple(operands),
        units,
        grain,
        kernel.sizes,
        workspace,
        kernel,
        patch=patch,
        poll=least_poll(poll_of(region, units), loops_poll(kernel)),
        then=then,
    )
