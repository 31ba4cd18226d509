"""Native functions of LLVM IR, called as kernels are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from graphc.codegen.llvm.target import Target, optimise_and_object
from graphc.runtime.load import load

# buffers, parameters, the first row and the end, the thread
CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)


def linked(text: str, target: Target) -> Callable[..., int]:
    """The function `kernel` of a text, compiled for a target that this machine runs."""
    code = load.link(optimise_and_object([text], target), ["kernel"])
    call = CALL(code["kernel"])
    return lambda *given: call(*given) if code else 0  # the code lives as long as this
