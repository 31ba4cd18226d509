"""Object code through Numba: generated kernels, library kernels and users' own functions.

Numba compiles a function over raw pointers; its optimised LLVM module gets one exported symbol with
the kernel ABI and becomes an object that needs neither Numba nor Python to run.  Numba is imported
by the functions here, never by the module.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import weakref
from collections.abc import Callable, Sequence
from itertools import dropwhile, takewhile
from typing import Any

import llvmlite.binding as llvm

from graphc.codegen.llvm import target
from graphc.codegen.llvm.writer import (
    I32,
    I64,
    PTR,
    Extern,
    Module,
    Number,
    Pointer,
    Writer,
    native,
)
from graphc.codegen.numba.function_key import function_text, jitted_within
from graphc.codegen.numba.memory import PROVIDED, memory_ir
from graphc.codegen.python import source
from graphc.errors import CUSTOM, CUSTOM_END, RAISED, GraphError
from graphc.ir.op import looks_itself
from graphc.ir.types import DType
from graphc.loops.facts import looks, work_stride
from graphc.loops.nest import Buffer, Kernel
from graphc.seams.numba_objects import blocks_are_known

CUSTOM_STATUS = f"code if code == 0 or {CUSTOM} < code < {CUSTOM_END} else {CUSTOM}"

CANCEL_FLAG = "carray(bufs[-1], (1,), np.int64)"  # where the walker leaves it

_HEADER = """\
import numpy as np

from graphc.codegen.numba.intrinsics import fma
from graphc.seams.numba import part as helper

at = np.uint64
"""

_frozen: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()

# The C functions that an object may leave to the loader.
_MATHS = """
    sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10
    log1p pow sqrt cbrt hypot floor ceil trunc rint nearbyint round fmod fma erf erfc tgamma lgamma
    ldexp frexp modf copysign nextafter fmin fmax
"""
_MEMORY = ("malloc", "realloc", "free", "memcpy", "memmove", "memset", "memcmp", "abort")
C_LIBRARY = frozenset((*_MEMORY, *_MATHS.split(), *(f"{name}f" for name in _MATHS.split())))

_ENTRY = """
from numba import carray
from graphc.codegen.numba.intrinsics import advance

def entry(bufs, params, lo, hi, thread):
    {body}
"""


def _wrapper(inner: str, name: str, triple: str) -> str:
    """A kernel that calls a compiled function as Numba does."""
    function = Extern(f'"{inner}"', I32, PTR, PTR, PTR, PTR, I64, I64, I64)

    @native(I32, is_public=True, symbol=name)
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        result, raised = f.slot(I64), f.slot(PTR)
        result.store(0)
        raised.store(f.null())
        status = function(f, result, raised, bufs, params, lo, hi, thread)
        f.give((status == 0).choose(result.load(I32), f.half(RAISED)))

    return Module(triple).text([kernel])


# Turns a raised exception's arguments into Python objects: only Numba's own callers run it.
_WITHOUT_PYTHON = re.compile(
    r"^define [^\n]*@(__excinfo_unwrap_args\w+)\(ptr[^\n]*\{\n.*?^\}", re.DOTALL | re.MULTILINE
)


def kernel_module(kernel: Kernel, functions: source.Functions | None = None) -> llvm.ModuleRef:
    """The module that defines `kernel.name` with the kernel ABI, made from the readable source.

    Raises GraphError if the object would need Numba's runtime.
    """
    return _module_of(kernel.name, kernel_text(kernel, functions))


def kernel_text(kernel: Kernel, functions: source.Functions | None = None) -> str:
    """What Numba compiles for a kernel: the readable source and the entry that calls it."""
    arrays = [_array(b) for b in kernel.buffers]
    arrays += [f"carray(params, ({kernel.params},))"] if kernel.params else []
    arrays += ["lo", "hi"] + [CANCEL_FLAG] * bool(looks(kernel))
    body = f"return run({', '.join(arrays)})"
    text = source.emit(kernel, functions, _HEADER) + f"\nrun = helper({kernel.name})\n"
    return text + _ENTRY.format(body=body)


def kernel_files(kernel: Kernel) -> dict[str, str]:
    """What Numba made of a kernel, for dumps: its source, optimised LLVM IR and assembly."""
    text = kernel_text(kernel)
    module = _module_of(kernel.name, text)
    assembly = target.machine(target.host()).emit_assembly(module)
    return {
        f"{kernel.name}.py": text,
        f"{kernel.name}.ll": str(module),
        f"{kernel.name}.s": assembly,
    }


def _module_of(name: str, text: str) -> llvm.ModuleRef:
    namespace = execute(text, name, {})
    # Nothing allocates, but a long body can keep the release of an array that Numba did not prune.
    return _module(namespace["entry"], name, allocates=True)


def library_module(
    function: Callable[..., Any],
    dtypes: Sequence[DType],
    name: str,
    sizes: Sequence[int] | None = None,
    params: int = 0,
    ranged: bool = False,
) -> llvm.ModuleRef:
    """The module of a hand-written function, called as `function(buffers..., params)`.

    With `ranged` it is called as `function(buffers..., params, lo, hi)`: it does those units only.
    One with a parameter `cancelled` is given the cancel flag of the run, one int64, too.
    Every buffer is a contiguous 1-D array (f16 and bf16 as uint16), `params` an int64 array of
    `params` words.  Without `sizes` the element counts of the buffers are the leading words of the
    kernel's parameter array, and the function sees the words after them: one object, any shape.
    The function returns None (ok) or an int status; an exception becomes the status `RAISED`.
    Raises GraphError when Numba refuses the function, or when it calls what no loader provides.
    """
    import numba
    from numba import types

    from graphc.seams.numba import part

    count = len(dtypes)
    custom = getattr(function, "jitted", None)
    users = None
    if custom is not None:  # a function that is cheaper to describe than to make
        _renew(function)
        plain = getattr(function, "plain", None)
        users = getattr(plain, "py_func", plain)
        function = custom()
    dispatcher = function if hasattr(function, "py_func") else part(function)
    skipped = 0 if sizes is not None else count
    lengths = sizes if sizes is not None else [f"params[{k}]" for k in range(count)]
    arguments = [
        f"carray(bufs[{k}], ({n},), {source.storage(d)})"
        for k, (d, n) in enumerate(zip(dtypes, lengths, strict=True))
    ]
    arguments.append(f"carray(advance(params, {skipped}), ({params},))")
    signature = tuple(
        types.Array(numba.from_dtype(source.storage_dtype(d)), 1, "C") for d in dtypes
    )
    words = types.Array(types.int64, 1, "C")
    bounds: tuple[Any, ...] = (types.int64, types.int64) if ranged else ()
    arguments += ["lo", "hi"] if ranged else []
    if looks_itself(dispatcher):
        arguments.append(CANCEL_FLAG)
        bounds = (*bounds, words)
    given = _folded(dispatcher.py_func, (*signature, words, *bounds))
    returned = _compile(dispatcher, given, name, users).signature.return_type
    body = _call_text(f"function({', '.join(arguments)})", returned, custom is not None, name)
    text = "import numpy as np\n" + _ENTRY.format(body=body)
    namespace = execute(text, name, {"function": dispatcher})
    return _module(namespace["entry"], name, allocates=True)


def _call_text(call: str, returned: Any, is_custom: bool, name: str) -> str:
    """What calls a function and returns its status."""
    from numba import types

    if isinstance(returned, types.NoneType):
        return f"{call}\n    return 0"
    if isinstance(returned, types.Integer | types.Boolean):
        return f"code = {call}\n    return {CUSTOM_STATUS}" if is_custom else f"return {call}"
    raise GraphError(f"{name} returns {returned}", hint="return nothing, or an int status")


def _renew(function: Callable[..., Any]) -> None:
    """Have Numba's functions in a function of the user's compiled with the values of now: those
    that they read may have changed since, and the object's key tells the new ones.
    """
    for dispatcher in jitted_within(function):
        text = hashlib.sha256(function_text(dispatcher).encode()).digest()
        if dispatcher.overloads and _frozen.get(dispatcher) != text:
            dispatcher.recompile()
        _frozen[dispatcher] = text


def _folded(function: Callable[..., Any], signature: tuple[Any, ...]) -> tuple[Any, ...]:
    """The signature with what `*args` takes as one tuple type, as Numba wants it."""
    from numba import types

    code = function.__code__
    if not code.co_flags & inspect.CO_VARARGS:
        return signature
    rest = types.StarArgTuple(signature[code.co_argcount :])  # type: ignore[no-untyped-call]
    return (*signature[: code.co_argcount], rest)


def _array(buffer: Buffer) -> str:
    """How the entry sees a buffer; per-thread scratch starts at the slice of this thread."""
    pointer = f"bufs[{buffer.index}]"
    if buffer.mode == "work":
        pointer = f"advance({pointer}, thread * {work_stride(buffer)})"
    return f"carray({pointer}, ({buffer.size},), {source.storage(buffer.dtype)})"


def execute(text: str, name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Define the functions of a generated text. The text is ours: counters and numbers only."""
    exec(compile(text, f"<generated {name}>", "exec"), namespace)
    return namespace


def _compile(dispatcher: Any, signature: Any, name: str, users: Any = None) -> Any:
    """Numba's code for a function of ours, or of the user's, which an error then names."""
    from numba.core.errors import NumbaError

    try:
        dispatcher.compile(signature)
    except NumbaError as error:
        raise refusal(str(error), name, users) from error
    return dispatcher.overloads[tuple(signature)]


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # where colorama is installed, Numba writes in colours
_STEP = re.compile(r"(Failed in |During: |Enable logging|File )")  # of Numba's way to an error


def refusal(text: str, name: str, users: Callable[..., Any] | None) -> GraphError:
    """Numba's error from the cause on: it prints that below the steps that led there."""
    text = _COLOUR.sub("", text)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    rest = dropwhile(_STEP.match, lines)
    causes = list(takewhile(lambda line: not _STEP.match(line), rest)) or lines
    if users is None:
        return GraphError(f"Numba cannot compile {name}", details=tuple(causes[:8]))
    code = users.__code__
    base = re.escape(os.path.basename(code.co_filename))
    found = re.findall(rf'{base}", line (\d+)|{base} \((\d+)\)', text)
    within = [n for n in (int(a or b) for a, b in found) if n >= code.co_firstlineno]
    return GraphError(
        f"Numba refuses the custom op {users.__name__}: {causes[0]}",
        details=tuple(causes[1:4]),
        location=(code.co_filename, within[-1] if within else code.co_firstlineno),
        hint="it must be code that numba.njit compiles",
    )


def _module(entry: Callable[..., Any], name: str, allocates: bool) -> llvm.ModuleRef:
    """The optimised code of a kernel, which defines its symbol."""
    from numba import types

    from graphc.seams.numba import optimised, part

    words = (types.int64, types.int64, types.int64)
    pointer: Any = types.CPointer
    signature = (pointer(types.voidptr), pointer(types.int64), *words)
    compiled = _compile(part(entry), signature, name)
    inner = compiled.fndesc.llvm_func_name
    host = target.host()
    wrapper = _wrapper(inner, name, host.triple)
    empty = r"define internal ptr @\1(ptr) { ret ptr null }"
    text = _WITHOUT_PYTHON.sub(empty, optimised(compiled.library))
    module = target.parse([text, wrapper], host)
    _prune(module, name)
    _require_no_address(module, name)
    needed = undefined(module)
    if needed & PROVIDED and allocates and blocks_are_known():
        module = target.parse([str(module), memory_ir(host.triple)], host)
        _prune(module, name)
        needed = undefined(module)
    missing = sorted(needed - C_LIBRARY)
    if missing:
        raise GraphError(
            f"{name} needs functions of Numba's runtime: {', '.join(missing[:5])}",
            hint="use preallocated arrays and scalar code in it, without parallel=True",
        )
    for number, value in enumerate(_private(module, name)):
        value.name = f"{name}.{number}"  # Numba's names count what the process has compiled
    return module


def emitted(module: llvm.ModuleRef) -> bytes:
    """Object code of a module for this machine."""
    made: bytes = target.machine(target.host()).emit_object(module)
    return made


def _prune(module: llvm.ModuleRef, name: str) -> None:
    """Keep what the kernel needs; everything but its symbol becomes private to the object."""
    for value in _private(module, name):
        value.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(target.machine(target.host()), options)
    manager = llvm.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.add_global_dead_code_eliminate_pass()
    manager.run(module, builder)


def _private(module: llvm.ModuleRef, name: str) -> list[llvm.ValueRef]:
    """What a module defines besides the kernel's symbol."""
    values = (*module.functions, *module.global_variables)
    return [value for value in values if not value.is_declaration and value.name != name]


def _require_no_address(module: llvm.ModuleRef, name: str) -> None:
    """Objects outlive the process: none may hold an address of it."""
    if any("inttoptr" in str(value) for value in module.global_variables):
        raise GraphError(
            f"{name} reads an array from outside that Numba takes by its address: one of more than "
            "a million bytes, one that is not contiguous, or a pointer",
            hint="make it an operand, or a contiguous array of less",
        )


def undefined(module: llvm.ModuleRef) -> set[str]:
    """Names of functions and variables that the module uses and does not define."""
    values = (*module.functions, *module.global_variables)
    return {v.name for v in values if v.is_declaration and not v.name.startswith("llvm.")}
