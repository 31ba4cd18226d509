"""Passes of Numba's compilers that functions of ours do not need."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def unneeded(typed: ModuleType, untyped: ModuleType) -> set[Any]:
    """Those that serve Python that generated functions do not contain.

    `typed` and `untyped` are the modules of passes of one compiler: those for CPUs and for GPUs are
    not the same classes.
    """
    return {
        typed.InlineOverloads,
        typed.NopythonRewrites,
        untyped.FindLiterallyCalls,
        untyped.InlineClosureLikes,
        untyped.InlineInlinables,
        untyped.LiteralPropagationSubPipelinePass,
        untyped.LiteralUnroll,
        untyped.MakeFunctionToJitFunction,
        untyped.RewriteDynamicRaises,
        untyped.WithLifting,
    }
