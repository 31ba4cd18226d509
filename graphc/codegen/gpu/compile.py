"""From the functions of kernels to PTX text through Numba's CUDA target and NVVM; without a GPU.

source text -> function -> typed and lowered by numba-cuda -> LLVM IR, all kernels -> NVVM -> PTX

What it takes of numba-cuda is in `graphc.seams.numba_cuda`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.python.helpers import storage_dtype
from graphc.errors import GraphError
from graphc.ir.types import DType

# A variable for Python's globals, which no kernel reads.
_ENVIRONMENT = re.compile(r"^\.common [^\n]*NumbaEnv[^\n]*;\n", re.MULTILINE)


def pointed_dtype(dtype: DType) -> np.dtype[Any]:
    """What a kernel sees behind a pointer; a bool is a byte: Numba cannot store through bool*."""
    return np.dtype(np.uint8) if dtype.kind == "b" else storage_dtype(dtype)


def compile_ptx(launches: Mapping[str, Launch], chip: Chip) -> str:
    """PTX text with an entry for the kernel of each launch, for a chip and those after it.

    Entries are called as the mapping says.  A kernel takes a pointer per buffer, its int64 params,
    the pointer to the status and the row; it always runs with as many threads as its launch says.
    All launches are exact or none is: where none is, products that are added become fused
    multiply-adds wherever that is possible.  All have twins or none has: where they have, the text
    is for that chip alone.  Raises GraphError for what Numba or NVVM refuses.
    """
    toolkit.check()
    from graphc.seams.numba_cuda import compiling_for

    (exact,) = {launch.exact for launch in launches.values()}
    (own,) = {launch.twin is not None for launch in launches.values()}
    modules: dict[int, Any] = {}  # a device function that several kernels call is there once
    names = {}
    with compiling_for(chip.capability):
        for symbol, launch in launches.items():
            name, parts = _lowered(symbol, launch, chip)
            names[name] = symbol
            modules.update((id(part), part) for part in parts)
    texts = dict.fromkeys(str(module) for module in modules.values())
    ptx = _through_nvvm(texts, chip.own if own else chip, fused=not exact)
    for name, symbol in names.items():
        ptx = ptx.replace(name, symbol)
    return ptx


def _lowered(symbol: str, launch: Launch, chip: Chip) -> tuple[str, list[Any]]:
    """The mangled name of a kernel, and the LLVM modules it consists of."""
    from numba import from_dtype, types
    from numba.core.errors import NumbaError

    from graphc.seams import numba_cuda

    pointer: Any = types.CPointer
    buffers = [pointer(from_dtype(pointed_dtype(dtype))) for dtype, _ in launch.buffers]
    words = [types.int64] * len(launch.params)
    signature = (*buffers, *words, pointer(types.int64), types.int64)
    shape = launch.threads, launch.resident
    try:
        return numba_cuda.lowered(launch.make(), signature, chip.capability, *shape)
    except NumbaError as error:
        raise _refused(symbol, str(error)) from error


def _refused(symbol: str, reason: str) -> GraphError:
    lines = tuple(line for line in reason.strip().split("\n") if line)
    return GraphError(f"Numba cannot compile {symbol} for a GPU", details=lines[:8])


def _through_nvvm(modules: Iterable[str], chip: Chip, fused: bool) -> str:
    from graphc.seams import numba_cuda

    try:
        text = numba_cuda.through_nvvm(modules, chip.name, fused)
    except RuntimeError as error:
        raise GraphError(
            f"NVVM cannot compile kernels for {chip.name}",
            details=(*str(error).strip().split("\n")[:6], toolkit.versions()),
            hint=f"where the packages do not fit together: {toolkit.INSTALL}",
        ) from error
    return _ENVIRONMENT.sub("", text).strip() + "\n"
