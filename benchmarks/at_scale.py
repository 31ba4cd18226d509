"""Training by 8, 64 and 512 workers, simulated with measured costs: python -m benchmarks.at_scale

    a layer     a transformer layer's forward and backward pass, timed here for 1, 2, 4 and 8 rows
    a link      timed here between two workers, in memory and over encrypted TCP; others by their
                data sheets
    a step      data x pipeline parallel: every way to share a batch out to replicas, stages and
                chunks; stages run as `graphc.passes.pipelining.predict` says, and each sums its
                gradients over the replicas once its last backward pass is done, as
                `route_collectives` would: by a ring or a tree

The batch stays the same, so the time of one worker over that of n is a speed-up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from functools import cache
from math import ceil, log2
from statistics import median
from typing import Any

import numpy as np

import graphc as gc
from benchmarks.cluster import message
from graphc.base.record import record
from graphc.passes.pipelining.predict import predict
from graphc.passes.pipelining.timetable import timetable
from graphc.runtime.devices.registry import Link

LAYERS, WIDTH, HEADS, WORDS, ROWS = 48, 512, 8, 128, 1024
WORKERS = (1, 8, 64, 512)
PARAMETERS = 12 * WIDTH * WIDTH * 4  # bytes of a layer
CHUNK_ROWS = (1, 2, 4, 8)
BY_DATA_SHEET = {"Ethernet, 10 Gb/s": Link(30e-6, 1.1e9), "RDMA, 100 Gb/s": Link(3e-6, 11e9)}


@record(frozen=True)
class Costs:
    """Seconds of a layer's passes by the rows of a chunk, and the links between workers."""

    forward: dict[int, float]
    backward: dict[int, float]
    links: dict[str, Link]

    def faster(self, times: float) -> Costs:
        """The same with processors that are so many times as fast."""
        passes = (
            {rows: took / times for rows, took in each.items()}
            for each in (self.forward, self.backward)
        )
        return Costs(*passes, self.links)


def layer(params: Any, x: Any) -> Any:
    """Attention and two products, for rows of words."""
    rows = x.shape[0]
    q, k, v = (
        (x @ params[name]).reshape(rows, WORDS, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
        for name in "qkv"
    )
    found = gc.softmax(q @ k.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5, axis=-1) @ v
    x = x + found.transpose(0, 2, 1, 3).reshape(x.shape) @ params["o"]
    return x + gc.relu(x @ params["up"]) @ params["down"]


def cpu_seconds(call: Any) -> float:
    """Of this thread, of a call in the median."""
    call()
    found = []
    for _ in range(7):
        begin = time.thread_time()
        call()
        found.append(time.thread_time() - begin)
    return median(found)


def measured() -> Costs:
    """The costs on one core of this machine."""
    rng = np.random.default_rng(0)
    shapes = {**dict.fromkeys("qkvo", (WIDTH, WIDTH)), "up": (WIDTH, 4 * WIDTH)}
    shapes["down"] = 4 * WIDTH, WIDTH
    params = {n: rng.standard_normal(s).astype("f4") / 32 for n, s in shapes.items()}
    ahead = gc.compile(layer, threads=1)
    both = gc.compile(
        gc.value_and_grad(lambda p, x: (layer(p, x) ** 2).sum(), wrt=(0, 1)), threads=1
    )
    forward, backward = {}, {}
    for rows in CHUNK_ROWS:
        x = rng.standard_normal((rows, WORDS, WIDTH)).astype("f4")
        forward[rows] = cpu_seconds(lambda x=x: ahead(params, x))
        backward[rows] = cpu_seconds(lambda x=x: both(params, x)) - forward[rows]
    links = {}
    for title, kind in (("memory of one machine", "memory"), ("TCP, encrypted", "tcp")):
        with gc.cluster.local(workers=2, threads=1, links=kind) as cluster:
            short, long = (message(cluster.devices, n, 5)["message"] for n in (4, 4 << 20))
        links[title] = Link(short * 1e-6, (4 << 20) / (long - short) * 1e6)
    return Costs(forward, backward, links | BY_DATA_SHEET)


@record(frozen=True)
class Way:
    """A way to share a step out, and what it takes in seconds."""

    replicas: int
    stages: int
    chunks: int
    rows: int
    seconds: float
    work: float  # of the slowest worker
    bubble: float  # until its last backward pass is done, without work
    summing: float  # after that

    def __str__(self) -> str:
        parts = f"{self.replicas} x {self.stages}, {self.chunks} chunks of {self.rows}"
        names = {"work": self.work, "bubble": self.bubble, "summing": self.summing}
        shares = ", ".join(f"{k} {v / self.seconds:.0%}" for k, v in names.items())
        return f"{parts}: {self.seconds:.4g} s ({shares})"


def summing(nbytes: float, replicas: int, link: Link) -> float:
    """A sum over replicas, as `route_collectives` times it."""
    if replicas == 1:
        return 0.0
    ring = 2 * (replicas - 1) * (link.seconds(nbytes / replicas) + link.latency)
    return min(ring, 2 * ceil(log2(replicas)) * link.seconds(nbytes))


@cache
def table_of(stages: int, chunks: int) -> Any:
    return timetable("1f1b", stages, chunks)


def ways(workers: int, costs: Costs, link: Link) -> Iterator[Way]:
    """All ways to run a step."""
    for stages in (1, 2, 4, 8, 16):
        replicas = workers // stages
        if replicas * stages != workers or ROWS % replicas:
            continue
        for rows in CHUNK_ROWS:
            chunks = ROWS // replicas // rows
            if not chunks or chunks * rows * replicas != ROWS:
                continue
            yield _way(replicas, stages, chunks, rows, costs, link)


def _way(replicas: int, stages: int, chunks: int, rows: int, costs: Costs, link: Link) -> Way:
    layers = LAYERS // stages
    passes = {"F": layers * costs.forward[rows], "B": layers * costs.backward[rows]}
    crossing = link.seconds(4.0 * rows * WORDS * WIDTH)
    work = chunks * (passes["F"] + passes["B"])
    ends = [work]
    if stages > 1:
        table = table_of(stages, min(chunks, 4 * stages))
        found = predict(table, lambda action: passes[action.kind], lambda a, b: crossing)
        left = max(0, chunks - 4 * stages) * max(passes["F"] + passes["B"], 2 * crossing)
        ends = [left + max(map(found.end.__getitem__, row)) for row in table.rows]
    after = summing(layers * PARAMETERS, replicas, link)
    last = max(ends)
    return Way(replicas, stages, chunks, rows, last + after, work, last - work, after)


def results(costs: Costs) -> dict[str, dict[int, Way]]:
    """The fastest way for each link and number of workers."""
    return {
        title: {n: min(ways(n, costs, link), key=lambda way: way.seconds) for n in WORKERS}
        for title, link in costs.links.items()
    }


def main() -> None:
    """Measure, simulate, and print."""
    costs = measured()
    if "--json" in sys.argv:
        print(json.dumps({"forward": costs.forward, "backward": costs.backward}))
    print("seconds of a layer:", costs.forward, costs.backward)
    for title, link in costs.links.items():
        print(f"{title}: {link.latency * 1e6:.3g} us, {link.bandwidth / 1e9:.3g} GB/s")
    for times in (1, 100):
        print(f"\nprocessors {times} times as fast as one core here")
        for title, found in results(costs.faster(times)).items():
            alone = found[1].seconds
            for n, way in found.items():
                print(f"{title:22} {n:4} {alone / way.seconds:7.1f}x  {way}")


if __name__ == "__main__":
    main()
