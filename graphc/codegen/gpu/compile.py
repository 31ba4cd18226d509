"""From the functions of kernels to PTX text through Numba's CUDA target and NVVM; without a GPU.

source text -> function -> typed and lowered by numba-cuda -> LLVM IR, all kernels -> NVVM -> PTX

One of the files that import `numba.cuda`; the others are `quick`, which makes it faster, and
`graphc.gpu`, which kernels use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.gpu.numba_patches import quickly
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
    multiply-adds wherever that is possible.  Raises GraphError for what Numba or NVVM refuses.
    """
    toolkit.check()
    from graphc.gpu import compiling_for

    (exact,) = {launch.exact for launch in launches.values()}
    modules: dict[int, Any] = {}  # a device function that several kernels call is there once
    names = {}
    with compiling_for(chip.capability), quickly():
        for symbol, launch in launches.items():
            name, parts = _lowered(symbol, launch, chip)
            names[name] = symbol
            modules.update((id(part), part) for part in parts)
    texts = dict.fromkeys(str(module) for module in modules.values())
    ptx = _through_nvvm(texts, chip, fused=not exact)
    for name, symbol in names.items():
        ptx = ptx.replace(name, symbol)
    return ptx


def _lowered(symbol: str, launch: Launch, chip: Chip) -> tuple[str, list[Any]]:
    """The mangled name of a kernel, and the LLVM modules it consists of."""
    from numba import from_dtype
    from numba.core.errors import NumbaError
    from numba.cuda import compiler, types
    from numba.cuda.cudadrv import nvvm

    pointer: Any = types.CPointer
    buffers = [pointer(from_dtype(pointed_dtype(dtype))) for dtype, _ in launch.buffers]
    words = [types.int64] * len(launch.params)
    signature = (*buffers, *words, pointer(types.int64), types.int64)
    try:
        made = compiler.compile_cuda(
            launch.make(),
            types.void,
            signature,
            cc=chip.capability,
            nvvm_options={"opt": 3, "fastmath": False},
        )
    except NumbaError as error:
        raise _refused(symbol, str(error)) from error
    name = made.fndesc.llvm_func_name
    entry = made.library.get_function(name)
    compiler.kernel_fixup(entry, False)
    nvvm.set_launch_bounds(entry, (launch.threads, launch.resident))
    return name, list(made.library.modules)


def _refused(symbol: str, reason: str) -> GraphError:
    lines = tuple(line for line in reason.strip().split("\n") if line)
    return GraphError(f"Numba cannot compile {symbol} for a GPU", details=lines[:8])


def _through_nvvm(modules: Iterable[str], chip: Chip, fused: bool) -> str:
    from numba.cuda.cudadrv import nvvm

    major, minor = chip.capability
    try:
        ptx = nvvm.compile_ir(list(modules), arch=f"compute_{major}{minor}", opt=3, fma=fused)
    except (nvvm.nvvmError, nvvm.NvvmSupportError, RuntimeError) as error:
        raise GraphError(
            f"NVVM cannot compile kernels for {chip.name}",
            details=(*str(error).strip().split("\n")[:6], toolkit.versions()),
            hint=f"where the packages do not fit together: {toolkit.INSTALL}",
        ) from error
    text: str = ptx.decode().rstrip("\0")
    return _ENVIRONMENT.sub("", text).strip() + "\n"
