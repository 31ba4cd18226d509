"""Measuring for the cost model: the devices of this machine, and the kernels of a graph.

The devices by small programs, run and timed:

    flops      a product of square matrices               launch     a row of tiny kernels, each
    bytes      a sum of arrays beyond all caches                     waiting for the one before
    latency    a tiny value handed to and fro by two devices
    bandwidth  a large one

Every device gets one thread.  A time is the least of many runs: what disturbs only makes it longer.
Kernels are timed in ordinary runs, by `profile` and by every traced run; what counts is the median.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.frontend.compile.build import Built
from graphc.frontend.compile.decorator import CompiledFunction, compile
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.trace.placement import device
from graphc.ir.graph import Node
from graphc.ir.place import device_of, parse_device
from graphc.ir.user_lines import locate
from graphc.ir.verify import with_blocks
from graphc.ops.record.value import functions
from graphc.passes.placement.cost import key_of, key_of_all
from graphc.passes.placement.measured import LEAST_LATENCY, MOST_BANDWIDTH, Measured, of_runs, store
from graphc.runtime.devices.registry import Kind, Link, Rates, kind_of, simulated
from graphc.runtime.files.gcx_function import Loaded
from graphc.runtime.observe.trace import Trace, trace

if TYPE_CHECKING:
    from graphc.runtime.cluster.local_workers import LocalCluster

PAIR = ("cpu:0", "cpu:1")
SIDE = 512  # of the matrices
LARGE = 1 << 24  # elements of the large arrays
TINY = 8
STEPS = 64  # kernels in a row
HOPS = 8  # between two devices
MOVED = 1 << 22  # elements of the value whose transfer is timed
Kernels = Mapping[tuple[str, str], Sequence[str]]
_SECONDS = 0.2  # for each measurement, at least
_TRIES = 5  # at a link, beside other work


def calibrate() -> Measured:
    """What the CPU of this machine does per second, and the seconds of the kernels tried."""
    square, tiny = np.ones((SIDE, SIDE), np.float32), np.ones(TINY, np.float32)
    large = np.ones(LARGE, np.float32)
    product = _time(lambda a: a @ a, [square])
    added = _time(lambda a: a + 1, [large])
    launch = (_time(_chain, [tiny]) - _time(lambda a: a + 1, [tiny])) / (STEPS - 1)
    launch = max(launch, 1e-9)
    rates = Rates(2.0 * SIDE**3 / max(product - launch, 1e-9), 8.0 * LARGE / added, launch)
    link = _link(tiny, np.ones(MOVED, np.float32)) or kind_of("cpu").link
    return Measured({"cpu": Kind("cpu", rates, link)}, {})


@refusing
def measure_links(cluster: LocalCluster) -> Link:
    """Measure the link between the first two workers of a cluster: latency and bytes per second.

    What is placed, scheduled or summed over the job of these workers goes by it from now on, in
    this process and later ones.  Raises GraphError for what is no cluster, one of a single worker,
    and a link that other work of the machine hides; RunError for a cluster that is closed.
    """
    from graphc.runtime.cluster.local_workers import (
        LocalCluster,  # starts nothing, but is not for all
    )

    if not isinstance(cluster, LocalCluster):
        raise GraphError(
            f"measure_links takes a cluster, got {type(cluster).__name__}",
            location=locate(),
            hint="gc.cluster.local(workers=2) opens one",
        )
    pair = tuple(cluster.devices[:2])
    if len(pair) < 2:
        raise GraphError("a link is measured between two workers, and there is one")
    cluster.require()
    link = _link(np.ones(TINY, np.float32), np.ones(MOVED, np.float32), pair)
    cluster.require()  # its devices would have been threads of this process from then on
    if link is None:
        raise GraphError(
            f"the link between {' and '.join(pair)} could not be measured",
            hint="other work hides it; measure on a machine that has nothing else to do",
        )
    store(Measured({}, {}, links={cluster.job: link}))
    return link


@refusing
def profile(model: Any, *args: Any, runs: int = 9, **kwargs: Any) -> Measured:
    """Run a compiled function or a loaded graph so often, and keep what its kernels cost.

    `costs="measured"` places by these costs from then on.  Every run counts: variables change.
    Returns what was measured; raises what a call raises.
    """
    model = model.whole if isinstance(model, Loaded) else model
    if not isinstance(model, CompiledFunction | LoadedGraph):
        raise GraphError(
            f"profile takes a compiled function or a loaded graph, got {type(model).__name__}",
            location=locate(),
            hint="gc.compile(function) makes one",
        )
    if not isinstance(runs, int) or runs < 1:
        raise GraphError(f"runs must be a number from 1, got {runs!r}", location=locate())
    built, arrays = model.prepared(args, kwargs)
    found = observe(built, arrays, runs)
    store(found)
    return found


def observe(built: Built, arrays: Sequence[np.ndarray[Any, Any]], rounds: int = 9) -> Measured:
    """The seconds of every kernel of a compiled graph in so many runs."""
    kernels = kernels_of(built)
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        _, found = trace(built.executable, list(arrays))
        for key, seconds in seconds_of(kernels, found).items():
            times.setdefault(key, []).append(seconds)
    return of_runs(times)


def observed(built: Built, found: Trace) -> Measured:
    """What one traced run says."""
    return of_runs({k: [s] for k, s in seconds_of(kernels_of(built), found).items()})


def kernels_of(built: Built) -> Kernels:
    """The keys of every kernel, by its device and the text of its node.

    What the simulator of GPUs takes says nothing of a GPU.
    """
    found = {}
    for graph in with_blocks(built.program):
        for node in graph.nodes:
            device = device_of(node.place)
            if device is not None and kind_of(device.type).runs_on == "cuda" and simulated():
                continue
            if node.op.traits.kernel and device is not None:
                found[device.short, node.summary()] = keys_of(node)
    return found


def seconds_of(kernels: Kernels, found: Trace) -> dict[tuple[str, str], float]:
    """The mean seconds of each kernel in one run, by key and type of device; of several kernels of
    one key the median."""
    rows: dict[tuple[int, int], list[float]] = {}
    origins = {}
    for event in found.events:
        if event.kind == "kernel" and event.origin is not None:
            rows.setdefault((event.device, event.row), []).append(event.seconds)
            origins[event.device, event.row] = event.origin.node
    times: dict[tuple[str, str], list[float]] = {}
    for place, seconds in rows.items():
        device = parse_device(found.devices[place[0]])
        for key in kernels.get((device.short, origins[place]), ()):
            times.setdefault((key, device.type), []).append(fmean(seconds))
    return {key: median(means) for key, means in times.items()}


def keys_of(kernel: Node) -> list[str]:
    """The entries of a kernel in a table of costs: its own, and that of the ops in it."""
    return [key for key in (key_of(kernel), key_of_all(kernel.regions[0].nodes)) if key]


def _chain(a: Any) -> Any:
    """Kernels that do not become one: each folds what the next one reads."""
    for _ in range(STEPS // 2):
        a = functions.sort(a + functions.sum(a))
    return a


def _link(
    tiny: np.ndarray[Any, Any], moved: np.ndarray[Any, Any], pair: Sequence[str] = PAIR
) -> Link | None:
    """Seconds of a hop beyond those of the kernel in it: of an empty one, and per byte. Nothing
    where each difference that was found is less than any machine needs.

    What a call costs beside its hops is in the time of one without any.
    """

    def hops(a: Any) -> Any:
        for hop in range(HOPS):
            with device(pair[(hop + 1) % 2]):
                a = _hop(a)
        return a

    for _ in range(_TRIES):
        latency, whole = (
            (
                _time(hops, [array], pair)
                - _time(_hop, [array], pair[:1])
                - (HOPS - 1) * _time(_hop, [array])
            )
            / HOPS
            for array in (tiny, moved)
        )
        if latency >= LEAST_LATENCY and whole - latency >= moved.nbytes / MOST_BANDWIDTH:
            return Link(latency, moved.nbytes / (whole - latency))
    return None


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
