"""LLVM's long calls without the lock that llvmlite holds around every call.

LLVM lets threads compile at once as long as each has a context, a target machine and a pass builder
of its own, and ctypes lets go of the interpreter while it is inside.  Short calls stay locked.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import llvmlite.binding as llvm


def _lock() -> Any:
    """llvmlite's lock; None while nobody has imported llvmlite, or if it has none."""
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    return getattr(library, "_lock", None)


@contextmanager
def settled() -> Iterator[None]:
    """Before and after, this thread is in no call of llvmlite, and gives up its lock: an interrupt
    may have come between taking it and the call, and other threads would wait for ever.
    """
    _give_up()
    try:
        yield
    finally:
        _give_up()


def _give_up() -> None:
    lock = getattr(_lock(), "_lock", None)
    while lock is not None and lock._is_owned():
        lock.release()


@cache
def _call(name: str) -> Any:
    """A function of LLVM's library, as llvmlite has declared it."""
    from llvmlite.binding import ffi

    wrapped = getattr(ffi.lib, name)
    return getattr(wrapped, "_cfn", wrapped)


def parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    """The module of a text. Raises RuntimeError for one that LLVM refuses."""
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        parsed = _call("LLVMPY_ParseAssembly")(context, text.encode(), message)
        if not parsed:
            raise RuntimeError(f"LLVM IR parsing error\n{message}")
        return llvm.ModuleRef(parsed, context)


def run(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Run the passes on the module, in place."""
    _call("LLVMPY_RunNewModulePassManager")(passes, module, builder)


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """Object code of a module. Raises RuntimeError."""
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        buffer = _call("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        start = _call("LLVMPY_GetBufferStart")(buffer)
        return ctypes.string_at(start, _call("LLVMPY_GetBufferSize")(buffer))
    finally:
        _call("LLVMPY_DisposeMemoryBuffer")(buffer)
