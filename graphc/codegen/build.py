"""From a planned graph to something that runs: compile what is new, then write the step table.

fused node -> Spec -> kernel text -> key -> object code (cache, or one LLVM module for all misses)
node order -> rows of the step table, constants -> one blob, all of it -> Image -> Executable
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.codegen import cache, contract, llvm, numba_route, source
from graphc.codegen.donation import donations
from graphc.codegen.kernels import Spec, data_params, spec_of
from graphc.codegen.loops import Kernel
from graphc.codegen.support import support_object
from graphc.codegen.target import Target, assembly, host, named, optimise_and_object
from graphc.config import Config
from graphc.errors import STATUS, GraphError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import peak_bytes
from graphc.ir.op import STORED
from graphc.ir.place import Buffer, Region
from graphc.ir.types import Type
from graphc.runtime.device import needed_features
from graphc.runtime.execute import Executable
from graphc.runtime.image import Image, Origin, Slot
from graphc.runtime.table import ARENA, CONSTANTS, FIRST_PARAM, Operand, TableBuilder

PLACEHOLDER = "kernel"  # what a kernel is called until its text is complete
EPILOGUE = "epilogue"
_CORES = re.compile(r"@(graphc_contract_\w+)\(")


@dataclass
class Compiled:
    """What `compile_kernels` found out: symbols by spec, object code, and how much was new."""

    symbols: dict[int, str] = field(default_factory=dict)
    objects: dict[bytes, list[str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # symbol -> LLVM IR or library name
    kernels: dict[str, Kernel] = field(default_factory=dict)
    compiled: int = 0
    cached: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Piece:
    """One thing to compile: its symbol, its cache key and how to make object code of it."""

    symbol: str
    key: str
    text: str  # LLVM IR, or "" when `make` compiles it
    make: Callable[[], bytes] | None = None


def target_of(config: Config) -> Target:
    """The machine a config compiles for."""
    _, _, cpu = config.target.partition(":")
    return named(cpu) if cpu else host()


# ------------------------------------------------------------------------------------ pieces


class Compiler:
    """Collects the pieces of all specs, then gets their object code from the cache or LLVM."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.target = target_of(config)
        self.pieces: dict[str, Piece] = {}
        self.result = Compiled()
        self.parts: dict[str, int] = {}

    def need(self, specs: Iterable[Spec]) -> None:
        """Note what the contraction cores must be made of; call it before any `add`."""
        for spec in specs:
            if spec.core is not None:
                self.parts[spec.core] = self.parts.get(spec.core, 0) | spec.parts

    def add(self, spec: Spec) -> str:
        """The symbol that runs a spec."""
        found = self.result.symbols.get(id(spec))
        if found is None:
            found = self.result.symbols[id(spec)] = self.symbol_of(spec)
        return found

    def symbol_of(self, spec: Spec) -> str:
        if spec.kind == "library":
            return self.library(spec)
        if spec.kind == "loop":
            assert spec.kernel is not None
            return self.kernel(spec.kernel)
        assert spec.core is not None
        symbol = self.core(spec.core)
        if spec.kernel is None:
            return symbol
        symbol = self.piece(self.with_epilogue(spec.core, spec.kernel))
        self.result.kernels.setdefault(symbol, spec.kernel)
        return symbol

    def with_epilogue(self, core: str, kernel: Kernel) -> str:
        """One text for the epilogue and the call of the core that runs it: they are never apart."""
        wrapper = contract.emit_fused(PLACEHOLDER, core, EPILOGUE, self.parts[core])
        lines = [
            line for line in wrapper.split("\n") if not line.startswith(f"declare i32 @{EPILOGUE}")
        ]
        return llvm.emit(renamed(kernel, EPILOGUE), self.target) + "\n".join(lines)

    def kernel(self, kernel: Kernel) -> str:
        if self.config.backend == "numba":
            text = source.emit(kernel)
            symbol = self.piece(
                text, lambda name: numba_route.compile_kernel(renamed(kernel, name))
            )
        else:
            symbol = self.piece(llvm.emit(kernel, self.target))
        self.result.kernels.setdefault(symbol, kernel)
        return symbol

    def piece(self, text: str, make: Callable[[str], bytes] | None = None) -> str:
        """Register a text under a symbol made of its digest."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:24]
        symbol = f"k{digest}"
        if symbol not in self.pieces:
            key = cache.key_of(text, self.target, self.config.opt)
            ir = text.replace(f"@{PLACEHOLDER}(", f"@{symbol}(")
            ir = "" if make else ir.replace(f"@{EPILOGUE}", f"@{symbol}_{EPILOGUE}")
            thunk = (lambda: make(symbol)) if make else None
            self.pieces[symbol] = Piece(symbol, key, ir, thunk)
            self.result.texts[symbol] = ir or text
        return symbol

    def core(self, element: str) -> str:
        """The contraction core of an element type, made of what this program needs."""
        parts = self.parts[element]
        symbol = contract.contract_symbol(element, "", parts)
        if symbol not in self.pieces:
            text = contract.core_ir(element, contract.host_target(), parts)
            self.pieces[symbol] = Piece(symbol, cache.key_of(text, self.target), text)
            self.result.texts[symbol] = text
        return symbol

    def library(self, spec: Spec) -> str:
        assert spec.library is not None
        function, kinds, ranged = spec.library
        words = len(spec.params) - len(kinds)
        text = f"{numba_route.function_text(function)} {[k.name for k in kinds]} {words} {ranged}"

        def make(name: str) -> bytes:
            return numba_route.compile_library(function, kinds, name, params=words, ranged=ranged)

        return self.piece(text, make)

    # -- object code

    def finish(self) -> Compiled:
        started = time.perf_counter()
        store = cache.default()
        found = store.get(p.key for p in self.pieces.values())
        missing = [p for p in self.pieces.values() if p.key not in found]
        for code, group in self.compile(missing):
            store.put(code, {p.key: p.symbol for p in group})
            self.define(code, group)
        for piece in self.pieces.values():
            if piece.key in found:
                self.define(found[piece.key].code, [piece])
        self.result.compiled, self.result.cached = len(missing), len(self.pieces) - len(missing)
        self.result.seconds = time.perf_counter() - started
        return self.result

    def define(self, code: bytes, pieces: list[Piece]) -> None:
        """Note which symbols an object is linked for; a core also has an entry for fused
        kernels.
        """
        symbols = self.result.objects.setdefault(code, [])
        for piece in pieces:
            symbols.append(piece.symbol)
            if piece.symbol.startswith("graphc_"):
                symbols.append(f"{piece.symbol}_fused")

    def compile(self, missing: list[Piece]) -> Iterable[tuple[bytes, list[Piece]]]:
        """Object code for the pieces: LLVM texts together, cores and Numba kernels each alone."""
        cores = [p for p in missing if p.symbol.startswith("graphc_")]
        plain = [p for p in missing if p.make is None and p not in cores]
        for piece in cores:
            yield contract.compile_core(piece.text, self.target), [piece]
        # A later process may want one kernel of an object: all of them must need the same cores.
        groups: dict[frozenset[str], list[Piece]] = {}
        for piece in plain:
            groups.setdefault(frozenset(_CORES.findall(piece.text)), []).append(piece)
        for group in groups.values():
            texts = [p.text for p in group]
            yield optimise_and_object(texts, self.target, self.config.opt), group
        for piece in missing:
            if piece.make is not None:
                yield piece.make(), [piece]


def renamed(kernel: Kernel, name: str) -> Kernel:
    return Kernel(
        name, kernel.buffers, kernel.params, kernel.body, kernel.units, kernel.strict, kernel.notes
    )


# ----------------------------------------------------------------------------------- the step table


class TableWriter:
    """Writes the rows of one graph. Base registers follow runtime/table.py."""

    def __init__(self, graph: Graph, config: Config, compiler: Compiler) -> None:
        self.graph = graph
        self.config = config
        self.compiler = compiler
        self.table = TableBuilder()
        self.words: list[int] = []
        self.word_offsets: dict[tuple[int, ...], int] = {}
        self.kernels: dict[str, int] = {}
        self.origins: dict[int, Origin] = {}

    def write(self) -> None:
        nodes = [node for node in self.graph.nodes if node.op.name == "fused"]
        specs = [spec_of(node, self.config) for node in nodes]
        self.compiler.need(specs)
        for node, spec in zip(nodes, specs, strict=True):
            self.kernel_row(node, spec)
        for number, result in enumerate(self.graph.results):
            self.result_row(number, result)
        self.table.end()

    def base(self, region: Region, extra: int = 0) -> tuple[int, int]:
        offset = region.offset + extra
        if region.base == "arena":
            return ARENA, offset
        if region.base == "c":
            return CONSTANTS, offset
        number = int(region.base[1:])
        first = 0 if region.base[0] == "p" else len(self.graph.params)
        return FIRST_PARAM + first + number, offset

    def kernel_row(self, node: Node, spec: Spec) -> None:
        inputs = data_params(node)
        regions = {
            "in": [buffer_of(n).regions[0] for n in node.inputs[: len(inputs)]],
            "out": list(buffer_of(node).regions),
        }
        operands = []
        if spec.workspace > workspace_bytes(node):
            raise GraphError(
                f"%{node.id} needs {spec.workspace} bytes of workspace", details=node.describe()
            )
        for kind, index, extra in spec.operands:
            if kind == "work":
                scratch = node.inputs[-1] if spec.workspace else node
                operands.append(self.base(buffer_of(scratch).regions[0], index))
            else:
                operands.append(self.base(regions[kind][index], extra))
        if all(r.nbytes == 0 for r in regions["out"]):
            return
        file, line = node.loc or ("", 0)
        for row in self.rows_of(spec, operands):
            self.origins[row] = Origin(repr(node), file, line)

    def rows_of(self, spec: Spec, operands: list[Operand]) -> list[int]:
        if spec.kind == "copy":
            sources, targets = operands[: len(spec.params)], operands[len(spec.params) :]
            return list(map(self.table.copy, spec.params, targets, sources))
        symbol = self.compiler.add(spec)
        row = self.table.call(
            self.kernels.setdefault(symbol, len(self.kernels)), operands,
            units=spec.units, grain=spec.grain, params=self.params(spec.params),
        )  # fmt: skip
        return [row]

    def params(self, values: tuple[int, ...]) -> int:
        if not values:
            return 0
        found = self.word_offsets.get(values)
        if found is None:
            found = self.word_offsets[values] = len(self.words)
            self.words.extend(values)
        return found

    def result_row(self, number: int, result: Node) -> None:
        """Copy a result that lies elsewhere (an argument, a constant, or an earlier result)."""
        region = buffer_of(result).regions[0]
        if region.base == f"r{number}" or region.nbytes == 0:
            return
        target = FIRST_PARAM + len(self.graph.params) + number
        self.table.copy(region.nbytes, (target, 0), self.base(region))

    def constants(self) -> np.ndarray[Any, Any]:
        """All constants at their offsets, 64-byte aligned."""
        nodes = [n for n in self.graph.nodes if n.op.name in STORED]
        size = max((end_of(n) for n in nodes), default=0)
        blob = np.empty(size + 64, np.uint8)
        start = -blob.__array_interface__["data"][0] % 64
        blob = blob[start : start + size]
        for node in nodes:
            region = buffer_of(node).regions[0]
            if region.nbytes:
                made = node.op.reference(**node.attrs.values_dict)
                data = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
                blob[region.offset : region.offset + region.nbytes] = data
        return blob


def workspace_bytes(node: Node) -> int:
    """The scratch memory a kernel was given."""
    last = node.inputs[-1] if node.inputs else None
    if last is None or last.op.name != "workspace" or not isinstance(last.type, Type):
        return 0
    return last.type.nbytes


def buffer_of(node: Node) -> Buffer:
    assert isinstance(node.place, Buffer), f"{node!r} has no buffer"
    return node.place


def end_of(node: Node) -> int:
    region = buffer_of(node).regions[0]
    return region.offset + region.nbytes


def slots(nodes: Iterable[Node], names: Iterable[str]) -> tuple[Slot, ...]:
    made = []
    for node, name in zip(nodes, names, strict=True):
        assert isinstance(node.type, Type)
        made.append(Slot(name, node.type.dtype.name, node.type.dims))
    return tuple(made)


def build(program: Graph | Program, config: Config) -> tuple[Executable, Compiled]:
    """Compile a planned program of one device and make it runnable."""
    image, compiled = build_image(program, config)
    return Executable(image, threads=config.thread_count), compiled


def build_image(program: Graph | Program, config: Config) -> tuple[Image, Compiled]:
    """The image of a planned program: everything a process needs to run it, as data."""
    graphs = program.graphs if isinstance(program, Program) else (program,)
    if len(graphs) != 1:
        raise GraphError("this build runs programs of one device", hint="give one device")
    graph = graphs[0]
    compiler = Compiler(config)
    writer = TableWriter(graph, config, compiler)
    writer.write()
    compiled = compiler.finish()
    target = compiler.target
    objects = sorted(compiled.objects.items(), key=lambda o: not o[1][0].startswith("graphc_"))
    image = Image(
        name=graph.name,
        params=slots(graph.params, [p.attrs["name"] for p in graph.params]),
        results=slots(graph.results, graph.result_names),
        table=writer.table.finish(),
        words=np.array(writer.words or [0], np.int64),
        constants=writer.constants(),
        kernels=tuple(writer.kernels),
        objects=tuple((code, tuple(symbols)) for code, symbols in objects),
        support=support_object(target),
        arena_bytes=peak_bytes(graph),
        threads=config.thread_count,
        donated=donations(graph, config.donate),
        origins=writer.origins,
        reasons=STATUS,
        cpu=target.cpu,
        features=needed_features(target.features, target.vector_bits, target.triple),
        triple=target.triple,
    )
    return image, compiled


def kernel_texts(compiled: Compiled, config: Config) -> dict[str, str]:
    """Files of a dump: readable source, LLVM IR and assembly of every kernel."""
    target = target_of(config)
    files: dict[str, str] = {}
    for symbol, kernel in compiled.kernels.items():
        files[f"{symbol}.py"] = source.emit(renamed(kernel, symbol))
        text = llvm.emit(renamed(kernel, symbol), target)
        files[f"{symbol}.ll"] = text
        files[f"{symbol}.s"] = assembly([text], target, config.opt)
    return files
