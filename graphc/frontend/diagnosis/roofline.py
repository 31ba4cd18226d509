"""How fast a kernel could be: beside a copy of as many bytes, a product of matrices, and an empty
kernel, all measured in the same process with the same threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.frontend.compile.decorator import compile
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute
from graphc.ir.place import device_of
from graphc.ir.sizes import hint_of
from graphc.ir.types import leaves
from graphc.passes.placement.cost import CostModel, nbytes_of
from graphc.runtime.observe.profile import profile

RUNS = 9
SIDE = 512  # of the matrices
LEAST, MOST = 1 << 12, 1 << 28  # bytes of a copy
SHARE = 0.4  # of a limit from which on it is that which bounds


@record(frozen=True, eq=False)
class Load:
    """A kernel, the arithmetic and the bytes of one call of it, and its calls and seconds in a
    run."""

    node: Node
    flops: float
    bytes: float
    calls: int
    seconds: float


Times = Mapping[tuple[str, str], tuple[float, int]]  # of kernels, by device and node: in a run


def load_of(node: Node, graph: Graph, costs: CostModel, times: Times | None, calls: int) -> Load:
    """What a kernel of a planned graph does that is called so often; if it was not measured, it
    takes what the cost model says."""
    device = device_of(node.place) or graph.device
    flops = sum(costs.work(n).flops for n in node.regions[0].nodes if not n.regions)
    seconds = costs.compute(node, device) * calls
    if times is not None:
        seconds, calls = times.get((device.short, node.summary()), (0.0, 1))
    work = float(hint_of(flops)), float(hint_of(_touched(node)))
    return Load(node, *work, calls, float(hint_of(seconds)))


def _touched(kernel: Node) -> int:
    """The bytes that a kernel writes, and reads: of what it reads a part of, that part."""
    region, total = kernel.regions[0], nbytes_of(kernel.type)
    for param in region.params:
        readers = [n for n in region.nodes if param in n.inputs]
        views = bool(readers) and all(isinstance(n.op.lower, Alias | Compute) for n in readers)
        shown = sum(nbytes_of(n.type) for n in readers)
        total += min(nbytes_of(param.type), shown) if views else nbytes_of(param.type)
    return total


class Limits:
    """The rates of this machine with the threads of a configuration, each measured when asked."""

    def __init__(self, config: Config) -> None:
        self.threads = config.threads
        self.copies: dict[int, float] = {}

    @cached_property
    def flops(self) -> float:
        """Of a product of f32 matrices, per second."""
        a = np.ones((SIDE, SIDE), np.float32)
        return 2.0 * SIDE**3 / self._seconds(lambda a: a @ a, a)

    @cached_property
    def launch(self) -> float:
        """Seconds of a kernel of one element."""
        return self._seconds(lambda a: a + 1, np.ones(1, np.float32))

    def copy(self, nbytes: float) -> float:
        """Seconds of a loop that reads and writes so many bytes in all."""
        size = 1 << round(math.log2(min(max(nbytes, LEAST), MOST)))
        if size not in self.copies:
            a = np.ones(size // 8, np.float32)
            self.copies[size] = self._seconds(lambda a: a + 1, a)
        return self.copies[size] * max(nbytes, LEAST) / size

    def _seconds(self, function: Any, array: Any) -> float:
        """The least that the kernel of a function takes."""
        run = compile(function, threads=self.threads)
        executable = run.executable(array)
        times = [sum(r.seconds for r in profile(executable, [array])) for _ in range(RUNS)]
        return max(min(times), 1e-9)


def verdict(load: Load, limits: Limits | None) -> str:
    """What bounds a kernel, and how near it is to that."""
    work = f"{load.flops:,.0f} flops, {load.bytes:,.0f} bytes"
    if limits is None or not load.seconds:
        intensity = load.flops / max(load.bytes, 1.0)
        return f"{work} ({intensity:.2g} flops a byte)"
    floats = [k for k in leaves(load.node.type) if getattr(k, "dtype", None) is not None]
    wide = any(getattr(k.dtype, "itemsize", 4) == 8 for k in floats)  # type: ignore[union-attr]
    took = load.seconds / load.calls
    memory = limits.copy(load.bytes) / took
    compute = load.flops / limits.flops * (2 if wide else 1) / took
    launch = limits.launch / took
    name, share = max(
        (("memory", memory), ("compute", compute), ("latency", launch)), key=lambda pair: pair[1]
    )
    part = f"{100 * min(share, 1):.0f} % of its time"
    beside = {
        "memory": f"a copy of as many bytes takes {part}",
        "compute": f"a product of matrices does as many flops in {part}",
        "latency": f"a kernel of one element takes {part}",
    }
    if share < SHARE:
        ops = ", ".join(dict.fromkeys(n.op.name for n in load.node.regions[0].nodes[:40]))
        return f"bound by its own instructions ({ops[:80]}): {beside[name]}; {work}"
    return f"bound by {name}: {beside[name]}; {work}"
