"""The compiler of a partition's kernels: specs become pieces, and pieces object code.

fused node -> Spec -> kernel text -> key -> object code (cache, or one LLVM module for all misses)
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from graphc.base.record import record
from graphc.codegen import cache
from graphc.codegen import gemm as contract
from graphc.codegen.gemm.packed import hardware_for
from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm.objects import Piece, objects_of
from graphc.codegen.llvm.target import Target, key_of, target_of
from graphc.codegen.numba.function_key import ONE_OF_A_KIND, function_text
from graphc.codegen.spec import Spec
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.limits import check_within
from graphc.loops.facts import calls_routines
from graphc.loops.nest import Kernel

if TYPE_CHECKING:
    import llvmlite.binding as llvmlite

    from graphc.codegen.gpu.build import CudaCompiled

PLACEHOLDER = "kernel"  # what a kernel is called until its text is complete
HOOKS = ("epilogue", "prologue_a", "prologue_b")
_HOOKS = re.compile(rf"@({'|'.join(HOOKS)})\b")
_DECLARED = re.compile(rf"declare i32 {_HOOKS.pattern}.*\n")


@record
class Compiled:
    """What compiling found out: symbols by spec, object code, and how much was new."""

    objects: dict[bytes, list[str]] = field(default_factory=dict)
    support: bytes = b""
    texts: dict[str, str] = field(default_factory=dict)  # symbol -> LLVM IR or library name
    kernels: dict[str, Kernel] = field(default_factory=dict)
    by_numba: set[str] = field(default_factory=set)  # the kernels that Numba compiled
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict)  # symbol -> `Spec.ways`
    compiled: int = 0
    cached: int = 0
    seconds: float = 0.0
    gpu: CudaCompiled | None = None


class Compiler:
    """Collects the pieces of all specs, then gets their object code from the cache or LLVM."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.target = target_of(config)
        self.pieces: dict[str, Piece] = {}
        self.result = Compiled()
        self.parts: dict[str, int] = {}
        # By identity, which is a spec's own only while it lives: hence the spec beside its symbol.
        self.symbols: dict[int, tuple[Spec, str]] = {}

    def need(self, specs: Iterable[Spec]) -> None:
        """Note what the contraction cores must be made of; call it before any `add`."""
        for spec in specs:
            if spec.core is not None:
                self.parts[spec.core] = self.parts.get(spec.core, 0) | spec.parts

    def add(self, spec: Spec) -> str:
        """The symbol that runs a spec."""
        if id(spec) not in self.symbols:
            self.symbols[id(spec)] = spec, self.symbol_of(spec)
            if spec.ways:
                self.result.ways[self.symbols[id(spec)][1]] = spec.ways
        return self.symbols[id(spec)][1]

    def symbol_of(self, spec: Spec) -> str:
        if spec.kind == "library":
            return self.library(spec)
        if spec.kind == "native":
            return self.written(spec, lambda: spec.native)
        if spec.kind == "loop":
            return self.kernel(spec)
        assert spec.core is not None
        symbol, element = self.core(spec.core), spec.core
        hooks = [(n, k) for n, k in zip(HOOKS, (spec.kernel, *spec.prologues)) if k is not None]
        if not hooks:
            return symbol
        symbol = self.written(spec, lambda: self.with_hooks(element, hooks))
        for name, kernel in hooks:
            shown = symbol if name == HOOKS[0] else f"{symbol}_{name}"
            self.result.kernels.setdefault(shown, kernel)
        return symbol

    def with_hooks(self, element: str, hooks: list[tuple[str, Kernel]]) -> str:
        """One text for an epilogue, prologues and the call of the core that runs them."""
        given = [name for name, _ in hooks]
        first, *others = (name if name in given else "" for name in HOOKS)
        wrapper = contract.emit_fused(PLACEHOLDER, element, first, *others)
        kernels = [renamed(kernel, name) for name, kernel in hooks]
        return llvm.emit_module(kernels, self.target) + _DECLARED.sub("", wrapper)

    def kernel(self, spec: Spec) -> str:
        kernel = spec.kernel
        assert kernel is not None
        if self.config.backend == "numba" and not calls_routines(kernel):
            from graphc.codegen.numba import route as numba_route
            from graphc.codegen.python import source

            text = source.emit(kernel)
            symbol = self.by_numba(
                text, lambda name: numba_route.kernel_module(renamed(kernel, name))
            )
            self.result.by_numba.add(symbol)
        else:
            symbol = self.written(spec, lambda: llvm.emit(kernel, self.target))
        self.result.kernels.setdefault(symbol, kernel)
        return symbol

    def written(self, spec: Spec, write: Callable[[], str]) -> str:
        """The symbol of LLVM IR, which is written once for all programs that run the Spec."""
        options = self.config.opt, tuned.machine_level
        key = (self.target, *options)
        piece = spec.pieces.get(key)
        if piece is None:
            text = write()
            symbol = symbol_of(text)
            ir = _HOOKS.sub(rf"@{symbol}_\1", text.replace(f"@{PLACEHOLDER}(", f"@{symbol}("))
            piece = Piece(symbol, key_of(text, self.target, *options), ir)
            spec.pieces[key] = piece
        self.pieces[piece.symbol] = piece
        self.result.texts[piece.symbol] = piece.text
        return piece.symbol

    def by_numba(self, text: str, make: Callable[[str], llvmlite.ModuleRef]) -> str:
        """The symbol of a function for Numba, which compiles in one way only."""
        symbol = symbol_of(text)
        if symbol not in self.pieces:
            key = key_of(text, self.target)
            is_kept = ONE_OF_A_KIND not in text
            self.pieces[symbol] = Piece(symbol, key, "", lambda: make(symbol), is_kept=is_kept)
            self.result.texts[symbol] = text
        return symbol

    def core(self, element: str) -> str:
        """The contraction core of an element type, made of what this program needs."""
        parts = self.parts[element]
        symbol = contract.contract_symbol(element)
        if symbol not in self.pieces:
            for module in contract.core_of(element, hardware_for(self.config), parts):
                key = core_key(module, self.target)
                self.pieces[module.symbol] = Piece(module.symbol, key, module.text, core=module)
                self.result.texts[module.symbol] = module.text
        return symbol

    def library(self, spec: Spec) -> str:
        from graphc.codegen.numba import route as numba_route

        assert spec.library is not None
        function, kinds, ranged = spec.library
        words = len(spec.params) - len(kinds)
        text = f"{function_text(function)} {[k.name for k in kinds]} {words} {ranged}"

        def make(name: str) -> llvmlite.ModuleRef:
            return numba_route.library_module(function, kinds, name, params=words, ranged=ranged)

        return self.by_numba(text, make)

    # -- object code

    def finish(self) -> Compiled:
        started = time.perf_counter()
        store = cache.default()
        found = store.get(p.key for p in self.pieces.values())
        codes = {key: entry.code for key, entry in found.items()}
        missing = [p for p in self.pieces.values() if p.key not in codes]
        check_within("kernels", len(missing), f"{len(missing)} different kernels")
        self.result.support, made = objects_of(
            missing, self.target, self.config.opt, self.config.thread_count
        )
        for code, group in made:
            kept = {p.key: p.symbol for p in group if p.is_kept}
            if kept:
                store.put(code, kept)
            codes.update((p.key, code) for p in group)
        for piece in self.pieces.values():
            self.define(codes[piece.key], piece)
        self.result.compiled, self.result.cached = len(missing), len(found)
        self.result.seconds = time.perf_counter() - started
        return self.result

    def define(self, code: bytes, piece: Piece) -> None:
        """Note a symbol that an object is linked for; fused kernels call a core by another."""
        symbols = self.result.objects.setdefault(code, [])
        symbols.append(piece.symbol)
        if piece.core is not None and piece.core.is_entry:
            symbols.append(f"{piece.symbol}_fused")


@functools.cache
def core_key(module: contract.Module, target: Target) -> str:
    """The key of a part of a contraction core: 100 KB of text, the same for many programs."""
    return key_of(module.text, target, module.inner)


def symbol_of(text: str) -> str:
    """What a kernel of this text is called."""
    return f"k{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def renamed(kernel: Kernel, name: str) -> Kernel:
    return Kernel(
        name,
        kernel.buffers,
        kernel.params,
        kernel.body,
        kernel.units,
        kernel.strict,
        kernel.notes,
        kernel.exact,
        kernel.sizes,
        kernel.sizes_at,
    )
