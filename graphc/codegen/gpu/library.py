"""Library ops on a GPU: device code of their own, or the CPU's function run by single threads.

    def kernel(a0, a1, n0, n1, p0, units, status, row):
        params = cuda.local.array(1, np.int64)
        params[0] = p0
        for unit in range(cuda.grid(1), units, cuda.gridsize(1)):
            code = status_of(function(as_array(a0, n0), as_array(a1, n1), params, unit, unit + 1))
            if code != 0:
                fail(status, row, code)

That is the adapter for a function with units; one without, or with scratch, is run by one thread.
A user's own op gets arrays of its operands' shapes; with a function for GPUs, a thread per element.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.emit import maker
from graphc.codegen.gpu.launch import Launch, Operand, Scratch
from graphc.codegen.numba.function_key import function_text
from graphc.codegen.numba.route import CUSTOM_STATUS, execute
from graphc.codegen.spec import Spec
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import CudaCall, CudaCode, Library
from graphc.ir.types import BOOL, DType, Type, leaves
from graphc.ops.record.launches import GPU, SIMULATOR, over

HEADER = """\
import numpy as np

from graphc.gpu import as_array, as_bools, cuda, status_of
from graphc.ops.record.grid_cuda import fail

"""
_DEVICE_IMPORTS = re.compile(
    r"^from graphc\.(?:gpu|ops\.\w+\.\w+_cuda) import (?:\([^)]*\)|[^(\n]*)", re.MULTILINE
)
Maker = Callable[[], Callable[..., None]]


def library_spec(region: Graph, config: Config) -> Spec:
    """The launches of a region whose last node is a library op."""
    node = region.nodes[-1]
    position = {p.id: k for k, p in enumerate(region.params)}
    places: list[Operand] = [("in", position[n.id], 0) for n in node.inputs]
    places += [("out", k, 0) for k in range(len(leaves(node.type)))]
    scratch = Scratch()
    simulated = chip_of(config.target).simulated
    launches = library_launches(node, places, scratch, config.strict, simulated)
    operands = tuple(operand for launch in launches for operand in launch.operands)
    return Spec("cuda", operands, 1, 0, (), scratch.nbytes, launches=launches)


def library_launches(
    node: Node,
    places: list[Operand],
    scratch: Scratch,
    strict: bool = False,
    simulated: bool = False,
) -> tuple[Launch, ...]:
    """The launches of a node whose op lowers to a Library.

    `places` are the memory of its operands and results.
    """
    lower = node.op.lower
    assert isinstance(lower, Library)
    if lower.cuda is not None:
        code = lower.cuda(node, strict, simulated)
        return code_launches(node, code, places, scratch, strict)
    return adapter_launches(node, places, scratch, strict, simulated)


def adapter_launches(
    node: Node,
    places: list[Operand],
    scratch: Scratch,
    strict: bool = False,
    simulated: bool = False,
) -> tuple[Launch, ...]:
    """The launch of the CPU's function, or of a user's."""
    lower = node.op.lower
    assert isinstance(lower, Library)
    text, function, units, params = adapter(lower, node, _buffers(node))
    machine = SIMULATOR if simulated else GPU
    call = over(machine, f"{text}\n{described(function)}", units, params)
    makers = [_maker(text, function)]
    return _launches(node, [call], makers, lower.workspace(node), places, scratch, strict)


def code_launches(
    node: Node, code: CudaCode, places: list[Operand], scratch: Scratch, strict: bool = False
) -> tuple[Launch, ...]:
    """The launches of device code that an op brings."""
    makers = [maker(call.source) for call in code.calls]
    return _launches(node, code.calls, makers, code.workspace, places, scratch, strict)


def _launches(
    node: Node,
    calls: Iterable[CudaCall],
    makers: list[Maker],
    workspace: tuple[tuple[DType, int], ...],
    places: list[Operand],
    scratch: Scratch,
    strict: bool,
) -> tuple[Launch, ...]:
    work = [scratch.take(count * element.itemsize) for element, count in workspace]
    buffers, operands = (*_buffers(node), *workspace), (*places, *work)
    return tuple(
        Launch(call.source, make, buffers, operands, call.blocks, call.threads, call.params, strict)
        for call, make in zip(calls, makers)
    )


def _buffers(node: Node) -> list[tuple[DType, int]]:
    """Element types and counts of the operands and results."""
    types = [n.type for n in node.inputs] + list(leaves(node.type))
    return [(t.dtype, t.size) for t in types if isinstance(t, Type)]


def _maker(text: str, function: Callable[..., Any]) -> Maker:
    """What defines the adapter around a function, which becomes a device function then."""

    def make() -> Callable[..., None]:
        from graphc.gpu import device

        plain = getattr(function, "py_func", function)
        made: Callable[..., None] = execute(text, "adapter", {"function": device(plain)})["kernel"]
        return made

    return make


def described(function: Callable[..., Any]) -> str:
    """The source of a function as far as there is one, with the imports of device functions, and a
    digest of all that it reads.
    """
    digest = hashlib.sha256(function_text(function).encode()).hexdigest()
    return f"{_source(getattr(function, 'py_func', function))}# {digest}\n"


@functools.lru_cache(maxsize=1024)
def _source(plain: Callable[..., Any]) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(plain))
        imports = _DEVICE_IMPORTS.findall(inspect.getsource(sys.modules[plain.__module__]))
    except (OSError, TypeError, KeyError):
        source, imports = f"def {plain.__name__}(): ...\n", []
    return "\n".join([*imports, "", source])


# ------------------------------------------------------------------------------------ the adapter


# The text of a kernel, the function in it, how many units it is run for, and the params.
Adapter = tuple[str, Callable[..., Any], int, tuple[int, ...]]


def adapter(lower: Library, node: Node, buffers: list[tuple[DType, int]]) -> Adapter:
    """A kernel around the CPU's function."""
    assert lower.kernel is not None
    function = lower.kernel(node)
    shapes = getattr(function, "shapes", None)
    if shapes is not None:
        return _shaped(function, shapes, node, buffers)
    scratch, words = lower.workspace(node), lower.params(node)
    units = 1 if lower.units is None else lower.units(node)
    single = lower.units is None or bool(scratch)
    given = [*buffers, *scratch]
    sizes = [f"n{k}" for k in range(len(given))]
    names = [*sizes, *(f"p{k}" for k in range(len(words)))]
    params = (*(size for _, size in given), *words)
    bounds = [] if lower.units is None else ["unit", "unit + 1"]
    if bounds and single:
        names, params, bounds = [*names, "total"], (*params, units), ["0", "total"]
    lines = [f"params = cuda.local.array({max(1, len(words))}, np.int64)"]
    lines += [f"params[{k}] = p{k}" for k in range(len(words))]
    arguments = [_array(k, dtype, sizes[k]) for k, (dtype, _) in enumerate(given)]
    text = _text(len(given), names, lines, [*arguments, "params", *bounds])
    units = 1 if single else units
    return text, function, units, (*params, units)


def _shaped(
    function: Any, shapes: tuple[tuple[int, ...], ...], node: Node, buffers: Any
) -> Adapter:
    """A user's function over arrays of these shapes: once, or for each element of the result."""
    arguments = [_array(k, d, repr(s)) for k, ((d, _), s) in enumerate(zip(buffers, shapes))]
    if function.each is None:
        text = _text(len(buffers), [], [], arguments, CUSTOM_STATUS)
        return text, function.plain, 1, (1,)
    elements = buffers[len(node.inputs)][1]
    text = _text(len(buffers), [], [], ["unit", *arguments], CUSTOM_STATUS)
    return text, function.each, elements, (elements,)


def _array(number: int, dtype: DType, shape: str) -> str:
    return f"{'as_bools' if dtype is BOOL else 'as_array'}(a{number}, {shape})"


def _text(
    buffers: int, params: list[str], lines: list[str], arguments: list[str], failed: str = "code"
) -> str:
    names = [*(f"a{k}" for k in range(buffers)), *params, "units", "status", "row"]
    body = [
        f"def kernel({', '.join(names)}):",
        *(f"    {line}" for line in lines),
        "    for unit in range(cuda.grid(1), units, cuda.gridsize(1)):",
        f"        code = status_of(function({', '.join(arguments)}))",
        "        if code != 0:",
        f"            fail(status, row, {failed})",
        "",
    ]
    return HEADER + "\n".join(body)
