"""Config: the options of `gc.compile` and of the command line, in one immutable record."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from graphc.errors import GraphError
from graphc.runtime.device import default_threads


def _verify_level() -> int:
    text = os.environ.get("GRAPHC_VERIFY", "2")
    if text not in ("0", "1", "2", "3"):
        raise GraphError(f"GRAPHC_VERIFY must be 0, 1, 2 or 3, got {text!r}")
    return int(text)


@dataclass(frozen=True)
class Config:
    """How to compile.

    devices        device names in order; feeds and results live on the first
    donate         names of arguments whose memory results may take over
    threads        worker threads per kernel; 0 takes GRAPHC_THREADS or the number of cores
    opt            0 runs every node as its own kernel, 2 optimises; results agree within rounding
    backend        "llvm" (generated LLVM), or "numba" (readable source through Numba)
    target         "cpu" or "cpu:<llvm cpu name>"
    check_finite   every kernel checks its result; the first node that goes NaN or Inf is named
    dump           folder that receives every stage
    compress       16-bit transfers between devices, with error_budget as the largest error a value
                   may take; one device has no transfers
    memory_limit   most bytes of intermediate values and results; more is a LimitError
    fast_math      sums and products may be reassociated and fused; without it, strict order
    parity         reserved: results equal in every bit on CPU and CUDA
    verify         0 off, 1 new nodes, 2 also stage predicates, 3 also the text round trip
    fold_bytes     largest constant that folding may create; fold_flops likewise for work
    """

    devices: tuple[str, ...] = ("cpu:0",)
    donate: tuple[str, ...] = ()
    threads: int = 0
    opt: int = 2
    backend: str = "llvm"
    target: str = "cpu"
    dump: Path | None = None
    compress: bool = False
    error_budget: float | None = None
    memory_limit: int | None = None
    check_finite: bool = False
    fast_math: bool = True
    parity: bool = False
    verify: int = 2
    fold_bytes: int = 1 << 20
    fold_flops: float = 1e7

    def __post_init__(self) -> None:
        if self.opt not in (0, 1, 2):
            raise GraphError(f"opt must be 0, 1 or 2, got {self.opt!r}")
        if self.backend not in ("llvm", "numba"):
            raise GraphError(f"backend must be llvm or numba, got {self.backend!r}")
        if not isinstance(self.threads, int) or self.threads < 0:
            raise GraphError(f"threads must be a number that is not negative, got {self.threads!r}")
        for name in ("compress", "error_budget", "parity"):
            if getattr(self, name):
                raise GraphError(
                    f"{name} is not available in this version",
                    hint="it concerns several devices, and this version runs on one",
                )
        if not self.devices:
            raise GraphError("devices is empty", hint='give one device, for example ["cpu:0"]')

    @property
    def merges(self) -> bool:
        """Whether kernels hold several nodes; a check for NaN has to name the very first one."""
        return self.opt > 0 and not self.check_finite

    @property
    def thread_count(self) -> int:
        return self.threads or default_threads()

    @staticmethod
    def create(**options: object) -> Config:
        """A Config from keyword options; raises GraphError for one that does not exist."""
        known = Config.__dataclass_fields__
        for name in options:
            if name not in known:
                raise GraphError(
                    f"there is no option {name!r}", hint=f"options are {', '.join(sorted(known))}"
                )
        values = {"verify": _verify_level(), **{k: v for k, v in options.items() if v is not None}}
        if "GRAPHC_DUMP" in os.environ:
            values.setdefault("dump", os.environ["GRAPHC_DUMP"])
        devices = values.get("devices", ())
        if "devices" in values:
            values["devices"] = (devices,) if isinstance(devices, str) else tuple(devices)  # type: ignore[arg-type]
        if values.get("dump"):
            values["dump"] = Path(str(values["dump"]))
        return Config(**values)  # type: ignore[arg-type]
