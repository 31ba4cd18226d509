"""Config: the options of `gc.compile` and of the command line, in one immutable record."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

from graphc.base.hints import meant
from graphc.base.record import record, replace
from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.runtime.devices.device import default_threads
from graphc.runtime.devices.registry import LARGEST, kind_of, present_chip

_SHORT = (True, False, "truncate", "nearest", "saturate")
_COSTS = ("static", "measured")
OF_FUNCTIONS = ("max_compiles", "sizes", "static", "tiered")  # what gc.compile takes besides
_PRECISIONS = ("f32", "bf16", "tf32")
SYSTEMS = ("x86_64-linux", "aarch64-linux", "wasm32")  # that code can be made for by name
_AMOUNT = "a number that is not negative"


def _verify_level() -> int:
    text = os.environ.get("GRAPHC_VERIFY", "2")
    if text not in ("0", "1", "2", "3", "4"):
        raise GraphError(f"GRAPHC_VERIFY must be 0, 1, 2, 3 or 4, got {text!r}")
    return int(text)


@record(frozen=True)
class Config:
    """How to compile.

    devices        device names in order; feeds and results live on the first
    donate         names of arguments whose memory results may take over
    threads        worker threads per kernel; 0 takes GRAPHC_THREADS or the number of cores
    opt            0 runs every node as its own kernel, 2 optimises; results agree within rounding
    backend        "llvm" (generated LLVM), or "numba" (readable source through Numba); graphs of
                   GPUs have "cuda" whatever is given
    target         "cpu" (this one), "cpu:<llvm cpu name>", a system ("aarch64-linux", "wasm32") or
                   "cuda:<sm_75 ...>": what code is made for
    check_finite   every kernel checks its result; the first node that goes NaN or Inf is named
    dump           folder that receives every stage
    compress       16-bit transfers of f32 values between devices: True or "truncate" cuts off the
                   lower half, "nearest" rounds, "saturate" rounds and keeps finite values finite
    precision      "f32", or "bf16": products and convolutions of f32 read operands in bf16 and sum
                   in f32, where the CPU or GPU multiplies those faster and that pays; or "tf32":
                   GPUs with sm_90 multiply f32 by the first 10 bits of fractions and sum in f32
    error_budget   most that short transfers may change a result, relative to its largest magnitude;
                   implies compress and chooses the transfers, by measuring if there is a sample.
                   With a precision it chooses the products, and no transfer is short unless asked;
                   of one device without a precision nothing is short, and gc.compile refuses it
    sample         arguments to measure such errors with: one array per parameter of the graph
    constraints    "NAME=SPEC": the value that was given this name, or "%12", runs on such a device
    soft_placement a constraint that no device satisfies is dropped (and noted) instead of an error
    place_seconds  time to search for a better placement, at a nominal speed: results do not depend
                   on the machine
    costs          "static" (from flops and bytes), "measured" (where `graphc devices --calibrate`
                   or a profiled run has stored seconds), or a file of such costs
    memory_limit   most bytes of intermediate values, results and stacks of loops; more is a
                   LimitError
    stack_bytes    most bytes that stacks of loops may grow to, where there is no memory_limit
    fast_math      sums and products may be reassociated and fused; without it, strict order
    parity         results are equal in every bit on CPU and CUDA, for any number of threads: one
                   order of sums and nothing fused that is not written so, whatever fast_math says
                   (see docs/parity.md for what it covers and costs)
    watch          which elements of arrays that a function has captured later calls compare with
                   what was traced: "some" (all up to 32 KiB, else one in each of up to 512 rows),
                   "all", or "none": what was captured is constant, whatever becomes of it
    verify         0 off, 1 new nodes, 2 also stage predicates and what a stage must keep, 3 also
                   the text round trip, 4 also every stage run by the reference interpreter
    fold_bytes     largest constant that folding may create, unless it takes the place of another;
                   fold_flops likewise for work, of which a product of matrices counts as a part
    """

    devices: tuple[str, ...] = ("cpu:0",)
    donate: tuple[str, ...] = ()
    threads: int = 0
    opt: int = 2
    backend: str = "llvm"
    target: str = "cpu"
    dump: Path | None = None
    compress: bool | str = False
    precision: str = "f32"
    error_budget: float | None = None
    sample: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)
    constraints: tuple[str, ...] = ()
    soft_placement: bool = False
    place_seconds: float = 0.5
    costs: str = "static"
    memory_limit: int | None = None
    stack_bytes: int | None = None
    check_finite: bool = False
    fast_math: bool = True
    parity: bool = False
    watch: str = "some"
    verify: int = 2
    fold_bytes: int = 1 << 20
    fold_flops: float = 1e7

    def __post_init__(self) -> None:
        self._check("opt", type(self.opt) is int and self.opt in (0, 1, 2), "0, 1 or 2")
        self._check("backend", self.backend in ("llvm", "numba", "cuda"), "llvm or numba")
        for name in ("threads", "fold_bytes", "verify"):
            value = getattr(self, name)
            self._check(name, type(value) is int and value >= 0, _AMOUNT)
        self._check("verify", self.verify <= 4, "0, 1, 2, 3 or 4")
        if self.target in SYSTEMS:
            object.__setattr__(self, "target", f"cpu:{self.target}")
        if not isinstance(self.target, str) or self.target.partition(":")[0] not in ("cpu", "cuda"):
            raise GraphError(
                f"target must be cpu, cpu:<LLVM's name>, cuda:<chip> or a system, "
                f"got {self.target!r}",
                hint=f"for example cpu:x86-64-v3, cuda:sm_90, {', '.join(SYSTEMS)}",
            )
        limit = self.memory_limit
        bounded = limit is None or (type(limit) is int and limit >= 0)
        self._check("memory_limit", bounded, "a number of bytes")
        short = self.compress if isinstance(self.compress, bool | str) else "?"
        listed = ", ".join(map(repr, _SHORT))
        self._check("compress", short in _SHORT, f"one of {listed}")
        amount = self.error_budget is None or _is_amount(self.error_budget)
        self._check("error_budget", amount, _AMOUNT)
        self._check("precision", self.precision in _PRECISIONS, '"f32", "bf16" or "tf32"')
        if self.precision == "tf32" and self.error_budget is not None:
            raise GraphError(
                "an error_budget cannot choose products in tf32",
                hint='precision="bf16" can; gc.exact(x) keeps the products of x in f32',
            )
        measured = self.shortens or self.precision == "bf16"
        if self.sample is not None and not measured:
            raise GraphError(
                "sample is given, but no error is measured", hint="give error_budget=, too"
            )
        if self.precision != "f32" and self.error_budget is not None and self.sample is None:
            raise GraphError(
                "an error_budget for products needs arguments to measure with",
                hint="give sample=(x, ...), too",
            )
        self._check("watch", self.watch in ("some", "all", "none"), '"some", "all" or "none"')
        self._check("place_seconds", _is_amount(self.place_seconds), "seconds, and not negative")
        self._check("fold_flops", _is_amount(self.fold_flops), _AMOUNT)
        self._check_costs()
        for name in ("soft_placement", "check_finite", "fast_math", "parity"):
            self._check(name, isinstance(getattr(self, name), bool), "True or False")
        if not self.devices:
            raise GraphError("devices is empty", hint='give one device, for example ["cpu:0"]')

    def _check(self, option: str, good: bool, wanted: str) -> None:
        if not good:
            raise GraphError(f"{option} must be {wanted}, got {getattr(self, option)!r}")

    def _check_costs(self) -> None:
        self._check(
            "costs", isinstance(self.costs, str | os.PathLike), "static, measured or a file"
        )
        if self.costs not in _COSTS and not Path(self.costs).exists():
            raise GraphError(
                f"cannot read measured costs from {self.costs}: there is no such file",
                hint=meant(str(self.costs), _COSTS)
                or "graphc devices --calibrate writes such a file",
            )

    def require_use_of_budget(self) -> None:
        """Raise GraphError for an error_budget where nothing may be short.

        Files of placed graphs say their devices later than options are read.
        """
        if self.error_budget is not None and self.precision == "f32" and len(self.devices) < 2:
            raise GraphError(
                "an error_budget has no use: products are in f32, and one device sends nothing",
                hint='precision="bf16" makes products short, several devices= transfers',
            )

    def for_device(self, device: Any) -> Config:
        """The options that the graph of a device is compiled with."""
        runs_on = kind_of(device.type).runs_on if device is not None else "cpu"
        cuda = self.target.startswith("cuda")
        if runs_on == "cuda":
            target = self.target if cuda else f"cuda:{present_chip()}"
            return replace(self, backend="cuda", target=target)
        return replace(self, target="cpu") if cuda and self.backend != "cuda" else self

    @property
    def merges(self) -> bool:
        """Whether kernels hold several nodes; a check for NaN has to name the very first one."""
        return self.opt > 0 and not self.check_finite

    @property
    def shortens(self) -> bool:
        """Whether transfers between devices may lose precision."""
        budget = self.error_budget is not None and self.precision == "f32"
        return self.compress is not False or budget

    @property
    def strict(self) -> bool:
        """Whether products and sums are made as they are written, one by one."""
        return self.parity or not self.fast_math

    @property
    def thread_count(self) -> int:
        return self.threads or default_threads()

    @staticmethod
    @refusing
    def create(**options: object) -> Config:
        """A Config from keyword options; raises GraphError for one that does not exist."""
        known = Config.__match_args__
        for name in options:
            if name not in known:
                named = sorted({*known, *OF_FUNCTIONS})
                hint = meant(name, named) or f"options are {', '.join(named)}"
                raise GraphError(f"there is no option {name!r}", hint=hint)
        values = {"verify": _verify_level(), **{k: v for k, v in options.items() if v is not None}}
        if "GRAPHC_DUMP" in os.environ:
            values.setdefault("dump", os.environ["GRAPHC_DUMP"])
        for name in ("devices", "constraints"):
            given = values.get(name)
            if given is not None:
                values[name] = _names(name, given)
        gpu = str(values.get("target")).startswith("cuda") or values.get("backend") == "cuda"
        if gpu and not values.get("devices"):
            values["devices"] = ("gpu:0",)
        if "sample" in values:
            if not isinstance(values["sample"], Iterable):
                raise GraphError(f"sample must be arguments, got {values['sample']!r}")
            values["sample"] = tuple(values["sample"])
        if "dump" in values:
            if not isinstance(values["dump"], str | os.PathLike) or not str(values["dump"]):
                raise GraphError(f"dump must be a folder, got {values['dump']!r}")
            values["dump"] = Path(values["dump"])
        return Config(**values)  # type: ignore[arg-type]


def _is_amount(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= LARGEST  # type: ignore[operator]


def _names(option: str, given: object) -> tuple[str, ...]:
    """One name or several. Raises GraphError for what is neither, or has no order."""
    if isinstance(given, str):
        if "," in given:
            listed = ", ".join(f'"{name.strip()}"' for name in given.split(","))
            raise GraphError(f"{option} must be a list, got {given!r}", hint=f"write [{listed}]")
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, set | frozenset):
        raise GraphError(f"{option} must be a list of names, got {given!r}")
    names = tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise GraphError(f"{option} must be a list of names, got {given!r}")
    return names
