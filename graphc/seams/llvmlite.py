"""llvmlite: LLVM's long calls without the lock that it holds around every call.

LLVM lets threads compile at once as long as each has a context, a target machine and a pass builder
of its own, and ctypes lets go of the interpreter while it is inside.  Short calls stay locked.
Of the first call of eight layers these are 0.20 of 0.66 s, of that of its gradient 0.21 of 1.11:
two cores save up to half of that, more cores more.  Where llvmlite's wrappers are others
its own functions are called: threads wait for each other.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_PARSE, _RUN = "LLVMPY_ParseAssembly", "LLVMPY_RunNewModulePassManager"
_EMIT, _START, _SIZE = (
    "LLVMPY_TargetMachineEmitToMemory",
    "LLVMPY_GetBufferStart",
    "LLVMPY_GetBufferSize",
)
_DISPOSE = "LLVMPY_DisposeMemoryBuffer"
NAMES = (_PARSE, _RUN, _EMIT, _START, _SIZE, _DISPOSE)


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
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    lock = getattr(getattr(library, "_lock", None), "_lock", None)
    with suppress(RuntimeError):  # it is not this thread's any more
        while lock is not None:
            lock.release()


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Functions of LLVM's library as llvmlite has declared them, without its lock; or none."""
    try:
        from llvmlite.binding import ffi

        assert hasattr(ffi, "OutputString")
        return {name: getattr(ffi.lib, name)._cfn for name in NAMES}
    except (ImportError, AttributeError, AssertionError):
        return {}


def parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    """The module of a text. Raises RuntimeError for one that LLVM refuses."""
    import llvmlite.binding as llvm

    if not functions():
        return llvm.parse_assembly(text, context)
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        parsed = functions()[_PARSE](context, text.encode(), message)
        if not parsed:
            raise RuntimeError(f"LLVM IR parsing error\n{message}")
        return _module_class()(parsed, context)


@cache
def _module_class() -> type[llvm.ModuleRef]:
    from llvmlite.binding import ModuleRef

    class Module(ModuleRef):  # type: ignore[misc]
        """A module that its context may have taken along: a cycle of both is collected in any
        order, and who frees a module after its context frees it twice."""

        def _dispose(self) -> None:
            if not self._context.closed:
                super()._dispose()

    return Module


def run(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Run the passes on the module, in place."""
    if functions():
        functions()[_RUN](passes, module, builder)
    else:
        passes.run(module, builder)


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """Object code of a module. Raises RuntimeError."""
    call = functions()
    if not call:
        made: bytes = machine.emit_object(module)
        return made
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        buffer = call[_EMIT](machine, module, 1, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        return ctypes.string_at(call[_START](buffer), call[_SIZE](buffer))
    finally:
        call[_DISPOSE](buffer)
