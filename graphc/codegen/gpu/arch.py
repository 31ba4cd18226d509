"""The chips that kernels are shaped for."""

from __future__ import annotations

from graphc.base.record import record, replace
from graphc.errors import GraphError

SIMULATOR = "simulator"
HOPPER, OWN = "sm_90", "a"
ARCHITECTURES = (
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_87",
    "sm_89",
    "sm_90",
    "sm_100",
    "sm_103",
    "sm_110",
    "sm_120",
    "sm_121",
)


@record(frozen=True)
class Chip:
    """A chip by the name of its code ("sm_90"), and the shapes of launches on it.

    `threads` per block, `blocks` at most per launch (kernels stride over more work than that), and
    the bytes of shared memory that a kernel may declare.
    """

    name: str
    threads: int = 256
    blocks: int = 2048
    shared: int = 48 << 10

    warp: int = 32

    @property
    def simulated(self) -> bool:
        return self.name == SIMULATOR

    @property
    def own(self) -> Chip:
        """The chip with what it alone has: PTX with `wgmma` of sm_90 is for no chip after it."""
        return replace(self, name=f"{self.name}{OWN}") if self.name == HOPPER else self

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, as (major, minor)."""
        digits = self.name.removeprefix("sm_").removesuffix(OWN)
        return int(digits[:-1]), int(digits[-1])


# Every simulated thread is run by Python, so launches are as small as they can be.
SIMULATED = Chip(SIMULATOR, threads=8, blocks=12, warp=4)


def chip_of(target: str) -> Chip:
    """The chip of a target such as cuda:sm_90 or cuda:simulator. Raises GraphError."""
    family, _, name = target.partition(":")
    if family == "cuda" and name == SIMULATOR:
        return SIMULATED
    if family != "cuda" or name not in ARCHITECTURES:
        raise GraphError(
            f"there is no CUDA target {target!r}", hint=f"use cuda: and {', '.join(ARCHITECTURES)}"
        )
    return Chip(name)
