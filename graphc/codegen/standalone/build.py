"""One object file of a planned program: entry, kernels and constants, with nothing left to find.

Every function but the entry is local to the file, so that many such files fit into one program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import record, replace
from graphc.codegen.build import dims_of, image_of, written
from graphc.codegen.gemm import compiled_core
from graphc.codegen.gemm.core import closed
from graphc.codegen.llvm.objects import Piece
from graphc.codegen.llvm.target import Target, compiled, machine
from graphc.codegen.llvm.writer import Module
from graphc.codegen.standalone.entry import RUNTIME_ONLY, entries_of, entry_text, state_of
from graphc.codegen.standalone.missing_instructions import WIDE_PRODUCT, wide_product, without_fused
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Program
from graphc.ir.sizes import scope_of
from graphc.runtime.load import table
from graphc.runtime.load.program import Image
from graphc.seams import lapack
from graphc.seams import llvmlite as unlocked

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_MARK = 32  # bytes
MOST_BYTES = (1 << 31) - (1 << 20)  # of constants and state: code reaches what lies 2 GiB away
Values = Mapping[tuple[str, str], np.ndarray[Any, Any]]  # of variables, by container and name


@record(frozen=True)
class Standalone:
    """A program for a machine: what it takes and gives, and its object code."""

    name: str
    image: Image
    target: Target
    code: bytes


def settings(config: Config) -> Config:
    """What a program without Python is planned and compiled with: one thread, and each result in
    the memory that the caller gives for it."""
    return replace(config, threads=1, donate=())


def standalone(
    program: Graph | Program, config: Config, name: str, values: Values | None = None
) -> Standalone:
    """The object code of a planned program for the target of its config (of `settings`).

    `name` begins its symbols and is a C identifier; `values` are the first ones of its variables.
    Raises GraphError for what needs Python, several devices or many sizes, and for what is too
    large.
    """
    compilers, (writer, *others), _ = written(program, config)
    if others or compilers.gpu is not None:
        raise GraphError(f"{program.name} spans devices", hint="an object file is for one CPU")
    slots = (*writer.graph.params, *writer.graph.results)
    if scope_of(extent for dims in dims_of(slots) for extent in dims) is not None:
        raise GraphError(f"{program.name} is for many sizes", hint="an object file is for one")
    target, pieces = compilers.cpu.target, compilers.cpu.pieces
    image = image_of(writer, target, (), b"")
    _refuse(image, pieces, values or {})
    text = entry_text(image, name, target.triple)
    blobs = {"constants": image.constants, "first": _first_values(image, values or {})}
    marks = {key: _Blob(f"{name}_{key}", blob) for key, blob in blobs.items()}
    texts = [text, *(mark.text() for mark in marks.values())]
    code = _object(texts, pieces.values(), target, config.opt, entries_of(image, name))
    for mark in marks.values():
        code = mark.put_into(code)
    return Standalone(name, image, target, code)


def _refuse(image: Image, pieces: Mapping[str, Piece], values: Values) -> None:
    """Raise GraphError, with the node if it is one, for what an object file cannot hold."""
    hint = "compile to a .gcx file, which Python runs"
    words = image.table.tolist()
    for row in table.rows(words):
        piece = pieces.get(image.kernels[words[row + 2]]) if words[row] == table.CALL else None
        reason = RUNTIME_ONLY.get(words[row])
        if words[row] == table.CALL and piece is None:
            reason = "it calls Python"
        elif piece is not None and f"@{lapack.PREFIX}" in piece.text:
            reason = "it calls LAPACK"
        if reason is not None:
            error = GraphError(f"no object file can hold this: {reason}", hint=hint)
            raise image.blamed(error, row)
    for variable in image.variables:
        if variable.read and (variable.container, variable.slot.name) not in values:
            raise GraphError(
                f"the variable {variable.slot.name!r} is read before it has a value",
                hint="run the program that gives it one before it is saved",
            )
    needed = image.constants.nbytes + state_of(image).nbytes
    if needed > MOST_BYTES:
        raise GraphError(
            f"{needed} bytes of constants and variables are too many for an object file",
            hint="pass large ones as arguments",
        )


def _first_values(image: Image, values: Values) -> np.ndarray[Any, Any]:
    """What the variables begin with: zeros for those that the program assigns before it reads."""
    state = state_of(image)
    made = np.zeros(state.nbytes, np.uint8)
    for variable, start in zip(image.variables, state.offsets, strict=True):
        value = values.get((variable.container, variable.slot.name))
        if value is not None:
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            made[start : start + raw.size] = raw
    return made


class _Blob:
    """Bytes that an object holds: where they are many, LLVM gets a mark as long as they are, which
    they then replace.

    As text for LLVM they would take four times their room, and seconds for each hundred megabytes.
    Nobody can know the mark before: what a model holds is never taken for one.
    """

    def __init__(self, symbol: str, data: np.ndarray[Any, Any]) -> None:
        self.symbol, self.data = symbol, data
        self.is_marked = data.size > _MARK
        self.start = os.urandom(_MARK) if self.is_marked else data.tobytes()

    def text(self) -> str:
        first, rest = len(self.start), self.data.size - len(self.start)
        start = "".join(f"\\{byte:02x}" for byte in self.start)
        kind = f"<{{ [{first} x i8], [{rest} x i8] }}>"
        value = f'<{{ [{first} x i8] c"{start}", [{rest} x i8] zeroinitializer }}>'
        # LLVM may not count on values that are not there yet.
        return f"@{self.symbol} = externally_initialized constant {kind} {value}, align 64"

    def put_into(self, code: bytes) -> bytes:
        """The object with the bytes in the place of their mark, which is there if they are used."""
        at = code.find(self.start) if self.is_marked else -1
        if at < 0:
            return code
        return b"".join((code[:at], self.data.data, code[at + self.data.size :]))


def _object(
    texts: Iterable[str],
    pieces: Collection[Piece],
    target: Target,
    opt: int,
    entries: Collection[str],
) -> bytes:
    import llvmlite.binding as llvm

    context = llvm.create_context()
    builder = machine(target, min(opt, tuned.machine_level))
    plain, cores = [*texts], list[str]()
    if _is_web(target):
        plain.append(Module(target.triple).text([wide_product]))
    there = {piece.symbol for piece in pieces}
    for piece in pieces:
        text = _text_for(piece, target)
        (plain if piece.core is None else cores).append(closed(text, there))
    module = compiled(plain, target, opt, context=context)
    if cores:
        module.link_in(compiled_core(cores, target, builder, context))
    _hide(module, entries, builder)
    return unlocked.emit_object(builder, module)


# What Numba's modules say of the machine that they were made on.
_MACHINE = re.compile(
    r'^target (?:datalayout|triple) = .*$|"target-(?:cpu|features)"="[^"]*"', re.MULTILINE
)


def _text_for(piece: Piece, target: Target) -> str:
    """The text of a kernel for a target, whatever machine it was written on."""
    text = piece.text if piece.make is None else _MACHINE.sub("", str(piece.make()))
    return without_fused(text) if _is_web(target) else text


def _is_web(target: Target) -> bool:
    return target.triple.startswith("wasm")


def _hide(module: llvm.ModuleRef, entries: Collection[str], builder: llvm.TargetMachine) -> None:
    """Keep all symbols but the entries to the file, and drop what nothing uses then."""
    import llvmlite.binding as llvm

    for each in (*module.functions, *module.global_variables):
        is_entry = each.name in entries
        if each.name == WIDE_PRODUCT:  # code that is made later calls it; each object has one
            each.linkage = llvm.Linkage.weak_any
        elif not (each.is_declaration or is_entry):
            each.linkage = llvm.Linkage.internal
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    unlocked.run(
        passes, module, llvm.create_pass_builder(builder, llvm.create_pipeline_tuning_options())
    )
