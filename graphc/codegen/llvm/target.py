"""What machine code is made for, and the way from LLVM IR text to an object file.

A `Target` is plain data: CPU name, feature string, triple and vector width.  `host()` is this
machine, `named()` any other that the LLVM build knows: cross-compilation needs no toolchain.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from graphc.base.record import record
from graphc.codegen.cache import digest
from graphc.codegen.llvm.microarchitectures import KNOWN, microarchitecture
from graphc.codegen.llvm.probe import probe
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.errors import GraphError
from graphc.seams import llvmlite as unlocked

if TYPE_CHECKING:
    import llvmlite.binding as llvm

LEFT = "!llvm.loop"  # marks a loop that LLVM's vectoriser is to look at


@record(frozen=True)
class Target:
    """A CPU to compile for. `half`: it converts f16 to and from f32 in hardware."""

    cpu: str
    features: str
    triple: str
    vector_bits: int
    half: bool

    @property
    def brain(self) -> bool:
        """It multiplies pairs of bf16 and adds them to f32 in one instruction, 512 bits wide."""
        known = "+avx512bf16" in self.features.split(",") or microarchitecture(self.cpu).brain
        return known and self.vector_bits == 512

    @property
    def quads(self) -> bool:
        """It multiplies four u8 with four i8 and adds them to i32 in one instruction (VNNI)."""
        feature = {512: "+avx512vnni", 256: "+avxvnni"}.get(self.vector_bits)
        known = feature in self.features.split(",") or microarchitecture(self.cpu).quads
        return known and feature is not None

    @property
    def double_pumped(self) -> bool:
        """It takes vectors of 512 bits in two halves: two instructions wait less."""
        return microarchitecture(self.cpu).double_pumped and self.vector_bits == 512

    @property
    def slow_gathers(self) -> bool:
        """Its gathers are slower than single loads, unless these miss the caches."""
        return microarchitecture(self.cpu).slow_gathers and self.vector_bits == 512

    @property
    def vector_bytes(self) -> int:
        return self.vector_bits // 8

    def lanes(self, itemsize: int) -> int:
        """Elements of one vector register."""
        return max(1, self.vector_bytes // itemsize)


def key_of(text: str, target: Target, *options: object) -> str:
    """The key of a kernel: its canonical text, the target, `options` and the compiler's version."""
    return digest(text, target.cpu, target.features, target.triple, probe().compiler, *options)


# By the system alone: what the least of its CPUs can do, and browsers since 2021.
_WASM = "+simd128,+bulk-memory,+nontrapping-fptoint,+sign-ext,+mutable-globals"
_SYSTEMS = {
    "x86_64-linux": Target("x86-64", "", "x86_64-unknown-linux-gnu", 128, False),
    "aarch64-linux": Target("generic", "", "aarch64-unknown-linux-gnu", 128, True),
    "wasm32": Target("generic", _WASM, "wasm32-unknown-unknown", 128, False),
}


@cache
def _initialise(native: bool) -> None:
    import llvmlite.binding as llvm

    if native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


@cache
def host() -> Target:
    """The machine this process runs on, with every feature the operating system lets it use."""
    found = probe()
    has = {word[1:] for word in found.features.split(",") if word.startswith("+")}
    bits, half = 128, True
    if found.triple.startswith(("x86", "i686")):
        bits = 512 if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= has else 256
        bits, half = bits if "avx2" in has else 128, "f16c" in has
    return Target(found.cpu, found.features, found.triple, bits, half)


def named(cpu: str) -> Target:
    """A target by LLVM CPU name ("x86-64-v3", "znver4", "neoverse-n1" ...) or by system
    ("aarch64-linux", "wasm32" ...); "host" is this machine.

    Raises `GraphError` for a name that is not known.
    """
    if cpu == "host":
        return host()
    if cpu in _SYSTEMS:
        return _SYSTEMS[cpu]
    known = microarchitecture(cpu)
    if known not in KNOWN:
        listed = ", ".join([*_SYSTEMS, *(each.prefix for each in KNOWN)])
        raise GraphError(f"unknown CPU target {cpu!r}", hint=f"use host, or {listed}")
    return Target(cpu, "", known.triple, known.vector_bits, known.half)


def target_of(config: Config) -> Target:
    """The machine a config compiles for."""
    _, _, cpu = config.target.partition(":")
    return named(cpu) if cpu else host()


_Key = tuple[int, Target, int]  # the process, what is generated for, and how well


class _Machines:
    """The code generators of one thread: LLVM's are not for two at once.

    The first object that one makes takes it 2 ms more, so a thread that ends leaves them to others
    of its process: a fork may come while they are at work.
    """

    spare: ClassVar[dict[_Key, list[llvm.TargetMachine]]] = {}

    def __init__(self) -> None:
        self.made: dict[_Key, llvm.TargetMachine] = {}

    def __del__(self) -> None:
        for key, made in self.made.items():
            self.spare.setdefault(key, []).append(made)

    def get(self, target: Target, opt: int) -> llvm.TargetMachine:
        key = os.getpid(), target, opt
        if key not in self.made:
            try:
                self.made[key] = self.spare[key].pop()
            except LookupError:
                self.made[key] = _machine(target, opt)
        return self.made[key]


class _Thread(threading.local):
    def __init__(self) -> None:
        self.machines = _Machines()


_thread = _Thread()


def machine(target: Target, opt: int = 2) -> llvm.TargetMachine:
    """This thread's code generator for a target."""
    return _thread.machines.get(target, opt)


def _machine(target: Target, opt: int) -> llvm.TargetMachine:
    """A code generator; position independent so that objects load anywhere."""
    import llvmlite.binding as llvm

    _initialise(target.triple == host().triple)
    try:
        triple = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise GraphError(f"this LLVM build has no code generator for {target.triple}") from error
    return triple.create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="small"
    )


def parse(
    texts: Sequence[str], target: Target, context: llvm.ContextRef | None = None
) -> llvm.ModuleRef:
    """One verified module of all the texts. A text that LLVM refuses is a bug of an emitter."""
    import llvmlite.binding as llvm

    _initialise(target.triple == host().triple)
    context = context or llvm.create_context()
    module: llvm.ModuleRef | None = None
    for text in texts:
        part = unlocked.parse(text, context)
        if module is None:
            module = part
        else:
            module.link_in(part)
    if module is None:
        module = unlocked.parse("", context)
    module.triple = target.triple
    module.data_layout = str(machine(target).target_data)
    module.verify()
    return module


def optimise(module: llvm.ModuleRef, target: Target, opt: int = 2, slp: bool = False) -> None:
    """Run LLVM's pipeline in place.

    Unrolling is off: it trebles the code of scalar remainders, and the vectoriser interleaves
    anyway.
    """
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=min(opt, 2))
    options.loop_vectorization = opt > 0
    options.loop_interleaving = opt > 0
    options.slp_vectorization = slp and opt > 0
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine(target), options)
    unlocked.run(builder.getModulePassManager(), module, builder)


def compiled(
    texts: Sequence[str],
    target: Target,
    opt: int = 2,
    slp: bool = False,
    context: llvm.ContextRef | None = None,
) -> Any:
    """The optimised module of all texts, in a context of its own if none is given.

    A text without a loop that is left to LLVM is nearly final code: it gets no more than `finish`.
    """
    import llvmlite.binding as llvm

    left = [text for text in texts if LEFT in text]
    context = context or llvm.create_context()
    module = parse([text for text in texts if LEFT not in text], target, context)
    if opt:
        finish(module, target)
    if left:
        others = parse(left, target, context)
        optimise(others, target, opt, slp)
        module.link_in(others)
    return module


def finish(module: llvm.ModuleRef, target: Target) -> None:
    """The passes that turn registers into values and put calls in place."""
    import llvmlite.binding as llvm

    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    unlocked.run(passes, module, llvm.create_pass_builder(machine(target), options))


def optimise_and_object(
    texts: Sequence[str], target: Target, opt: int = 2, slp: bool = False
) -> bytes:
    """Object code of LLVM IR texts, linked as one module. opt 0 still runs, only slower."""
    return unlocked.emit_object(_emitter(target, opt), compiled(texts, target, opt, slp))


def assembly(texts: Sequence[str], target: Target, opt: int = 2, slp: bool = False) -> str:
    """The same code as assembly text, for dumps."""
    made: str = _emitter(target, opt).emit_assembly(compiled(texts, target, opt, slp))
    return made


def _emitter(target: Target, opt: int) -> llvm.TargetMachine:
    return machine(target, min(opt, tuned.machine_level))
