"""What the contraction core needs to know of a machine: the vector shape and the cache sizes.

They only size things: a core built for one cache size is right on any other.
"""

import functools
from pathlib import Path
from typing import NamedTuple

from graphc.codegen.llvm.target import Target, host

CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
CACHE_FALLBACK = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}


class Hardware(NamedTuple):
    """Vector bytes, vector registers, cheap masked access, f16 conversions, cache bytes.

    `brain`: products of pairs of bf16 added to f32 in one instruction; `quads`: products of four
    u8 with four i8 added to i32 (VNNI).  `pairs`: two pairs of i16 multiplied and added to
    i32 in one instruction.  `ordered`: every sum is
    made term by term in the order of k, by fused multiply-adds, as any machine can.
    """

    vector: int
    registers: int
    masked: bool
    half: bool
    l1: int
    l2: int
    l3: int
    brain: bool = False
    ordered: bool = False
    quads: bool = False
    pairs: bool = False

    @property
    def fast_bytes(self) -> bool:
        """Whether products of bytes have tiles of their own."""
        return self.quads or self.pairs

    @property
    def attributes(self) -> str:
        """Function attributes that keep LLVM from halving the vectors we ask for."""
        width = self.vector * 8
        return f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'


@functools.cache
def hardware_of(target: Target) -> Hardware:
    """The vector unit of a compilation target, with this machine's cache sizes."""
    l1, l2, l3 = (cache_size(level) for level in (1, 2, 3))
    # Engines of WebAssembly mostly run on x86, which has 16 for its vectors of 128 bits, too.
    few = target.triple.startswith(("x86", "i686", "wasm"))
    masked = target.vector_bits == 512
    registers = 16 if few and not masked else 32
    return Hardware(
        target.vector_bytes,
        registers,
        masked,
        target.half,
        l1,
        l2,
        l3,
        target.brain,
        quads=target.quads,
        pairs=target.triple.startswith("x86") and target.vector_bits >= 256,
    )


@functools.cache
def host_target() -> Hardware:
    """The machine we run on."""
    return hardware_of(host())


@functools.cache
def cache_size(level: int) -> int:
    """Bytes of the data cache of a level as the kernel reports it, or else a common size."""
    for folder in sorted(CACHE_FOLDER.glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            if int((folder / "level").read_text()) != level:
                continue
            text = (folder / "size").read_text().strip()
            return int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
        except (OSError, ValueError):
            continue
    return CACHE_FALLBACK[level]
