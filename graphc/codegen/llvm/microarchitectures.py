"""What CPUs are good at beyond their instruction sets: one row for a family that LLVM names.

Sources: LLVM's processor definitions (X86.td, AArch64.td) for instruction sets; for Zen 4 AMD's
Software Optimization Guide (57647): vectors of 512 bits pass its units of 256 in two halves, and
gathers are microcode.  Its other Zens gather so, too, but nothing was measured there.
`python -m benchmarks.microarchitecture` measures the facts that are no instruction on this machine.
"""

from __future__ import annotations

from functools import cache

from graphc.base.record import record

_X86 = "x86_64-unknown-linux-gnu"
_ARM = "aarch64-unknown-linux-gnu"


@record(frozen=True)
class Microarchitecture:
    """CPUs whose names in LLVM begin with `prefix`.

    half           converts f16 to and from f32
    brain          multiplies pairs of bf16 and adds them to f32 in one instruction
    quads          multiplies four u8 with four i8 and adds them to i32 in one instruction (VNNI)
    double_pumped  takes vectors of 512 bits in two halves: two instructions wait less
    slow_gathers   is faster with single loads than with gathers, unless these miss the caches
    """

    prefix: str
    triple: str
    vector_bits: int
    half: bool = True
    brain: bool = False
    quads: bool = False
    double_pumped: bool = False
    slow_gathers: bool = False


# The first whose prefix matches is meant.
KNOWN = (
    Microarchitecture("x86-64-v4", _X86, 512),
    Microarchitecture("x86-64-v3", _X86, 256),
    Microarchitecture("x86-64", _X86, 128, half=False),
    Microarchitecture(
        "znver4", _X86, 512, brain=True, quads=True, double_pumped=True, slow_gathers=True
    ),
    Microarchitecture("znver5", _X86, 512, brain=True, quads=True),
    Microarchitecture("znver", _X86, 256),
    Microarchitecture("skylake-avx512", _X86, 512),
    Microarchitecture("icelake", _X86, 512, quads=True),
    Microarchitecture("sapphirerapids", _X86, 512, brain=True, quads=True),
    Microarchitecture("alderlake", _X86, 256, quads=True),
    Microarchitecture("haswell", _X86, 256),
    Microarchitecture("skylake", _X86, 256),
    Microarchitecture("neoverse", _ARM, 128),
    Microarchitecture("cortex-a", _ARM, 128),
    Microarchitecture("apple-m", "arm64-apple-darwin", 128),
)
_OTHER = Microarchitecture("", "", 0)  # whose instructions are asked for (`probe`)


@cache
def microarchitecture(cpu: str) -> Microarchitecture:
    """That of a CPU by its name in LLVM; one that promises nothing where it is not known."""
    return next((each for each in KNOWN if cpu.startswith(each.prefix)), _OTHER)
