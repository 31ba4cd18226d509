"""A region op of the tests' own: `case` runs the first function in whose range a number lies.

This file is all there is of it.  What it had to say: its type, what NumPy makes of it, that it is a
branch, and that it is differentiated as branches are.  Every pass, the reader, the interpreter and
the code generator know the rest from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.frontend.transforms.control import emit_branch, is_traced
from graphc.ir.op import OPS, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType
from graphc.ops.autodiff.region_gradients import branch_needs, branched
from graphc.ops.autodiff.vjp import PULLBACKS, STACK_NEEDS, pullback_of
from graphc.ops.control.control import FLAG, Regions, Run, infer_branches, results_of
from graphc.ops.record.families import define, require

Range = tuple[float, float]


def _infer_case(*types: AnyType, regions: Regions) -> AnyType:
    flags = len(regions) - 1
    require(flags > 0 and len(types) >= flags, "case needs a flag for every region but the last")
    require(set(types[:flags]) == {FLAG}, "the flags of case must be bool[]")
    return infer_branches("case", regions, types[flags:])


def _run_case(*arrays: Any, regions: Regions, run: Run) -> Any:
    flags = len(regions) - 1
    chosen = next((k for k in range(flags) if arrays[k]), flags)
    return results_of(run(regions[chosen], list(arrays[flags:])))


@contextmanager
def registered() -> Iterator[None]:
    """The op is in the table meanwhile."""
    define(
        "case",
        infer=_infer_case,
        reference=_run_case,
        lower=Structural(),
        dtypes=("bool",),
        variadic=True,
        regions=-1,
        traits=Traits(branch=True),
        doc="Run the first region whose flag holds on the last operands; the last region has none.",
    )
    pullback_of("case", needs=branch_needs)(branched)
    yield
    for table in (OPS, PULLBACKS, STACK_NEEDS):
        del table["case"]


def case(
    number: Any,
    ranges: Sequence[Range],
    functions: Sequence[Callable[..., Any]],
    otherwise: Callable[..., Any],
    *operands: Any,
) -> Any:
    """The first of the functions whose range [low, high) holds the number, applied to operands."""
    flags = [np.logical_and(number >= low, number < high) for low, high in ranges]
    if is_traced():
        return emit_branch("case", flags, (*functions, otherwise), operands)
    chosen = next((f for flag, f in zip(flags, functions, strict=True) if flag), otherwise)
    return chosen(*operands)
