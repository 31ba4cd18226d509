"""NVIDIA's compilers as Python packages: what there is of them, and from PTX to a cubin.

numba-cuda -> NVVM: LLVM IR to PTX text (see `compile`)   nvJitLink: PTX text to a cubin, here

Neither needs a GPU or a driver.  This module imports `cuda.bindings` when it is first used.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata, util
from typing import Any

from graphc.base.record import record
from graphc.codegen.gpu.arch import Chip
from graphc.errors import GraphError
from graphc.runtime.devices.registry import simulated

INSTALL = "pip install 'graphc[cuda]'"
NUMBA_CUDA = "0.30"  # the series whose names and signatures are counted on; that of the extra
# Their versions decide what is compiled; the order is that of the way from source to cubin.
_PACKAGES = ("numba", "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink")

_PTX_BEFORE_CUDA = 4  # PTX 9.0 came with CUDA 13.0, 8.4 with 12.4
_VERSION = re.compile(r"^\.version (\d+)\.(\d+)", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '([\w$]+)'")
_LINKED = re.compile(r"^info *: Function properties for '([\w$]+)'", re.MULTILINE)
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"used (\d+) registers.*?(\d+) stack(?:, (\d+) bytes smem)?")


@record(frozen=True)
class Report:
    """What a kernel takes of a multiprocessor. `spills` are bytes of registers kept in memory,
    `stack` bytes of local memory per thread, `shared` bytes of shared memory per block.
    """

    registers: int
    spills: int
    stack: int
    shared: int


@cache
def versions() -> str:
    """The versions of all that kernels are compiled by, without importing any of it."""
    return " ".join(f"{name} {_version(name)}" for name in _PACKAGES)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a toolkit may be installed by other means than pip
        return "?"


@cache
def check() -> None:
    """Raise GraphError unless everything that compiles kernels is installed and can be loaded."""
    if simulated():
        raise GraphError(
            "no code is made for chips while NUMBA_ENABLE_CUDASIM is set",
            hint="unset it, or leave the target out: the simulator runs the kernels then",
        )
    # Numba holds an old copy of its CUDA target, which compiles with toolkits of its time only.
    for module, package in (("numba_cuda", "numba-cuda"), ("cuda.bindings", "cuda-bindings")):
        if not _present(module):
            raise GraphError(f"compiling for a GPU needs {package}, which is absent", hint=INSTALL)
    found = _version("numba-cuda")
    if not f"{found}.".startswith(("?", f"{NUMBA_CUDA}.")):
        raise GraphError(
            f"compiling for a GPU needs numba-cuda {NUMBA_CUDA}, not {found}", hint=INSTALL
        )
    for name in ("nvvm", "nvjitlink"):
        library = binding(name)
        try:
            library.version()
        except (RuntimeError, OSError) as error:
            raise GraphError(
                f"the CUDA library {name} cannot be loaded",
                details=_lines(str(error))[:2],
                hint=INSTALL,
            ) from None


def _present(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False


def binding(name: str) -> Any:
    """The module `cuda.bindings.<name>`. Raises GraphError where there is none."""
    from importlib import import_module

    try:
        return import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        reason = _lines(str(error))[:1]
        raise GraphError(f"cuda.bindings has no {name}", details=reason, hint=INSTALL) from None


def assemble(ptx: str, chip: Chip) -> tuple[bytes, dict[str, Report]]:
    """The cubin of a PTX text for a chip at least as new as the text's own, and what each of its
    kernels takes.

    Raises GraphError where nvJitLink refuses it, above all PTX of a newer toolkit than its own.
    """
    check()
    library = binding("nvjitlink")
    _check_version(ptx, library)
    target = chip.own.name if f".target {chip.own.name}" in ptx else chip.name
    options = [f"-arch={target}", "-O3", "-verbose"]
    try:
        handle = library.create(len(options), options)
    except library.nvJitLinkError as error:
        raise GraphError(f"nvJitLink has no code for {chip.name}: {error}") from None
    try:
        return _linked(library, handle, ptx.encode())
    except library.nvJitLinkError as error:
        log = _text(library.get_error_log_size, library.get_error_log, handle)
        raise _refused(log or str(error), chip) from None
    finally:
        library.destroy(handle)


def _linked(library: Any, handle: int, ptx: bytes) -> tuple[bytes, dict[str, Report]]:
    library.add_data(handle, library.InputType.PTX, ptx, len(ptx), "kernels")
    library.complete(handle)
    cubin = bytearray(library.get_linked_cubin_size(handle))
    library.get_linked_cubin(handle, cubin)
    return bytes(cubin), reports(_text(library.get_info_log_size, library.get_info_log, handle))


def _text(size: Any, read: Any, handle: int) -> str:
    log = bytearray(size(handle))
    read(handle, log)
    return log.decode(errors="replace").rstrip("\0").strip()


def _check_version(ptx: str, library: Any) -> None:
    """Raise GraphError for PTX that nvJitLink is too old for.

    It is not asked itself: after such a text it no longer checks how much memory kernels share.
    """
    found = _VERSION.search(ptx)
    if found is None:
        raise GraphError("the PTX has no version")
    toolkit = int(found[1]) + _PTX_BEFORE_CUDA, int(found[2])
    if toolkit > library.version():
        raise GraphError(
            "the PTX is of a newer CUDA toolkit than nvJitLink",
            details=(f"of CUDA {toolkit[0]}.{toolkit[1]}, with {versions()}",),
            hint=f"install packages of one toolkit: {INSTALL}",
        )


def _refused(log: str, chip: Chip) -> GraphError:
    lines = _lines(log)[:6]
    return GraphError(f"nvJitLink cannot assemble kernels for {chip.name}", details=lines)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def reports(log: str) -> dict[str, Report]:
    """What each kernel takes, from the log of nvJitLink; of spills, also those of what it calls."""
    found: dict[str, Report] = {}
    spills: dict[str, int] = {}
    name = ""
    for line in log.splitlines():
        if head := _ENTRY.search(line) or _LINKED.search(line):
            name = head[1]
        elif lost := _SPILLS.search(line):
            spills[name] = spills.get(name, 0) + int(lost[2]) + int(lost[3])
        elif used := _USED.search(line):
            registers, stack, shared = (int(part or 0) for part in used.groups())
            found[name] = Report(registers, spills.get(name, 0), stack, shared)
    return found
