"""numba-cuda: kernels for a chip that need not be here, in less time.

Numba asks dozens of overloads what an operation on two numbers is, each time it sees one, and runs
two dozen passes over every function, many of them for what generated code has none of: closures,
comprehensions, array expressions, functions that are inlined in Python.  The code that comes out
is the same.

The compiler itself is called by names that are counted on: `codegen/gpu/toolkit.py` asks for the
series of numba-cuda that has them, and says so where there is another one.

Imported only where a kernel for a GPU is made.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

MOST_SIGNATURES = 1 << 16  # that are remembered: a few hundred bytes each
YOUNG = 50_000  # objects between two runs of the collector: Numba makes and drops that many quickly

Replacement = tuple[Any, str, Any]


def struct_value(proxy: Any) -> Any:
    """The value of a struct that Numba's code generation builds. There is no other way to it."""
    return proxy._getvalue()


@contextmanager
def compiling_for(chip: tuple[int, int]) -> Iterator[None]:
    """Let device functions compile for a chip (compute capability) that need not be here.

    Numba asks the current device for what it is; here the chip compiled for stands in for it.
    """
    from numba.cuda import dispatcher
    from numba.cuda.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        before = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=chip)
        try:
            with _quickly():
                yield
        finally:
            dispatcher.get_current_device = before


def lowered(
    function: Callable[..., Any],
    signature: tuple[Any, ...],
    chip: tuple[int, int],
    threads: int,
    resident: int,
) -> tuple[str, list[Any]]:
    """The mangled name of a kernel, and the LLVM modules it consists of. Raises NumbaError."""
    from numba.cuda import compiler, types
    from numba.cuda.cudadrv import nvvm

    options = {"opt": 3, "fastmath": False}
    made = compiler.compile_cuda(function, types.void, signature, cc=chip, nvvm_options=options)
    name = made.fndesc.llvm_func_name
    entry = made.library.get_function(name)
    compiler.kernel_fixup(entry, False)
    nvvm.set_launch_bounds(entry, (threads, resident))
    return name, list(made.library.modules)


def through_nvvm(modules: Iterable[str], chip: str, fused: bool) -> str:
    """PTX text of LLVM modules for a chip ("sm_90"). Raises RuntimeError for what NVVM refuses."""
    from numba.cuda.cudadrv import nvvm

    arch = chip.replace("sm", "compute")
    try:
        ptx = nvvm.compile_ir(list(modules), arch=arch, opt=3, fma=fused)
    except (nvvm.nvvmError, nvvm.NvvmSupportError) as error:
        raise RuntimeError(str(error)) from error
    text: str = ptx.decode().rstrip("\0")
    return text


# ------------------------------------------------------------------------- in less time


@contextmanager
def _quickly() -> Iterator[None]:
    """Compile kernels in less time. Whoever enters holds the lock of Numba's compilers."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements()]
    thresholds = gc.get_threshold()
    _put(replacements())
    gc.set_threshold(max(YOUNG, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _put(before)


def _put(replaced: list[Replacement]) -> None:
    for owner, name, value in replaced:
        setattr(owner, name, value)


@cache
def replacements() -> list[Replacement]:
    """What takes the place of which attribute; made once, so that what they remember stays.

    Numba does by itself what a part is missing for.
    """
    made = []
    for make in (_signatures, _pipelines):
        try:
            made.append(make())
        except (ImportError, AttributeError):
            continue
    return made


def _signatures() -> Replacement:
    """The types of a call of a built-in function or operator: they follow from those it is given.

    Four small models compile in 3.6 s instead of 4.3.  Types of one kind are one object; those
    whose identity is a key are kept with what it is for.
    """
    from numba.core.types.functions import BaseFunction
    from numba.cuda.core.targetconfig import ConfigStack

    original = BaseFunction.get_call_type
    known: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        flags, chosen = ConfigStack.top_or_none(), getattr(self, "_impl_keys", None)
        if kws or flags is None or flags.fastmath or flags.debuginfo or chosen is None:
            return original(self, context, args, kws)
        key = (id(self), id(context), flags.compute_capability, *map(id, args))
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_SIGNATURES:
                known.clear()
            made = original(self, context, args, kws)
            assert made is not None
            found = known[key] = made, chosen[made.args], (self, context, args)
        signature, implementation, _ = found
        chosen[signature.args] = implementation
        return signature

    _ = ConfigStack.top_or_none
    return BaseFunction, "get_call_type", get_call_type


def _pipelines() -> Replacement:
    """For code of ours few passes, then all of them if those do not get through.

    Four small models compile in 3.6 s instead of 4.1.
    """
    from numba.cuda.compiler import CUDACompiler
    from numba.cuda.core import typed_passes, untyped_passes
    from numba.cuda.utils import _dynamic_modname

    original = CUDACompiler.define_pipelines
    dropped = {
        typed_passes.InlineOverloads,
        typed_passes.NopythonRewrites,
        untyped_passes.FindLiterallyCalls,
        untyped_passes.InlineClosureLikes,
        untyped_passes.InlineInlinables,
        untyped_passes.LiteralPropagationSubPipelinePass,
        untyped_passes.LiteralUnroll,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.RewriteDynamicRaises,
        untyped_passes.WithLifting,
    }

    def define_pipelines(self: Any) -> Any:
        (full,) = original(self)
        module = self.state.func_id.modname
        if module != _dynamic_modname and not module.startswith("graphc."):
            return [full]
        short = copy.copy(full)
        short.passes = [item for item in full.passes if item[0] not in dropped]
        short._ENFORCING = False  # does not have every pass leave all that any pass could ask for
        return [short, full]

    return CUDACompiler, "define_pipelines", define_pipelines
