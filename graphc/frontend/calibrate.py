"""Measuring for the cost model: the devices of this machine, and the kernels of a graph.

The devices by small programs, run and timed:

    flops      a product of square matrices               launch     a row of tiny kernels, each
    bytes      a sum of arrays beyond all caches                     waiting for the one before
    latency    a tiny value handed to and fro by two devices
    bandwidth  a large one

Every device gets one thread.  A time is the least of many runs: what disturbs only makes it longer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.frontend.decorator import compile
from graphc.frontend.engine import Built
from graphc.frontend.placement import device
from graphc.ir.graph import Node
from graphc.ir.op import Alias, Structural
from graphc.ir.place import parse_device
from graphc.ir.verify import with_blocks
from graphc.ops.value import functions
from graphc.passes.cost import key_of
from graphc.passes.measured import Measured
from graphc.runtime.devices import Kind, Link, Rates
from graphc.runtime.profile import profile

PAIR = ("cpu:0", "cpu:1")
SIDE = 512  # of the matrices
LARGE = 1 << 24  # elements of the large arrays
TINY = 8
STEPS = 64  # kernels in a row
HOPS = 8  # between two devices
MOVED = 1 << 22  # elements of the value whose transfer is timed
_SECONDS = 0.2  # for each measurement, at least


def calibrate() -> Measured:
    """What the CPU of this machine does per second, and the seconds of the kernels tried."""
    square, tiny = np.ones((SIDE, SIDE), np.float32), np.ones(TINY, np.float32)
    large = np.ones(LARGE, np.float32)
    product = _time(lambda a: a @ a, [square])
    added = _time(lambda a: a + 1, [large])
    launch = (_time(_chain, [tiny]) - _time(lambda a: a + 1, [tiny])) / (STEPS - 1)
    launch = max(launch, 1e-9)
    rates = Rates(2.0 * SIDE**3 / max(product - launch, 1e-9), 8.0 * LARGE / added, launch)
    link = _link(tiny, np.ones(MOVED, np.float32))
    return Measured({"cpu": Kind("cpu", rates, link)}, {})


def observe(built: Built, arrays: Sequence[np.ndarray[Any, Any]], rounds: int = 9) -> Measured:
    """The median seconds of every kernel of a compiled graph, and of the op in it if it is one."""
    kernels = {
        (graph.device.short, node.summary()): node
        for graph in with_blocks(built.program)
        for node in graph.nodes
        if node.op.name == "fused"
    }
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for row in profile(built.executable, list(arrays)):
            where, text = parse_device(row.device), row.origin.node if row.origin else ""
            node = kernels.get((where.short, text))
            for key in keys_of(node) if node is not None else ():
                kind = where.type
                times.setdefault((key, kind), []).append(row.seconds / row.count)
    table: dict[str, dict[str, float]] = {}
    for (key, kind), found in times.items():
        table.setdefault(key, {})[kind] = float(np.median(found))
    return Measured({}, table)


def keys_of(kernel: Node) -> list[str]:
    """The entries of a kernel in a table of costs: its own, and that of the only op in it."""
    inside = [n for n in kernel.regions[0].nodes if not isinstance(n.op.lower, Structural | Alias)]
    return [key_of(kernel), *([key_of(inside[0])] if len(inside) == 1 else [])]


def _chain(a: Any) -> Any:
    """Kernels that do not become one: each folds what the next one reads."""
    for _ in range(STEPS // 2):
        a = functions.sort(a + functions.sum(a))
    return a


def _link(tiny: np.ndarray[Any, Any], moved: np.ndarray[Any, Any]) -> Link:
    """Seconds of a hop beyond those of the kernel in it: of an empty one, and per byte."""
    latency, whole = (
        (_time(_hops, [array], PAIR) - HOPS * _time(_hop, [array])) / HOPS
        for array in (tiny, moved)
    )
    latency = max(latency, 1e-9)
    return Link(latency, moved.nbytes / max(whole - latency, 1e-9))


def _hops(a: Any) -> Any:
    for hop in range(HOPS):
        with device(PAIR[(hop + 1) % 2]):
            a = _hop(a)
    return a


def _hop(a: Any) -> Any:
    return 1 - a


def _time(function: Any, arrays: list[Any], devices: Sequence[str] = PAIR[:1]) -> float:
    """The least seconds of a compiled run."""
    run = compile(function, devices=tuple(devices), threads=1)
    run(*arrays)
    best, end = float("inf"), time.perf_counter() + _SECONDS
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        run(*arrays)
        best = min(best, time.perf_counter() - started)
        rounds += 1
    return best
