"""Two processes beside one, and beside Gloo, in turns: python -m benchmarks.two_processes

    data parallel   steps of training on two workers of one thread each, over those on one worker,
                    with batches of two sizes: what is exchanged (4 MB) is the same
    nothing shared  two processes train, each alone and with half of the rows, over one that has
                    all: what cores and memory allow, were there no exchange
    all-reduce      100 MB of each of two workers, over `torch.distributed` with Gloo

Both sides of a pair run one right after the other, in changing order; what is told is the median
ratio of the pairs and where it lies with 95 % confidence (by the bootstrap).  Each needs a core of
its own for each process: on a machine that others use, the ratios say little.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np

import graphc as gc
from benchmarks.collectives import summing
from graphc import nn, optim, parallel

WIDTH, STEPS = 512, 20
ROWS, MORE_ROWS = 256, 1024
NBYTES, ROUNDS = 100_000_000, 2

GLOO = """
import sys, time, torch, torch.distributed as dist
rank, nbytes, rounds, port = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
x = torch.ones(nbytes // 4)
dist.all_reduce(x)
for _ in sys.stdin:
    begin = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(x)
        x /= 2
    print((time.perf_counter() - begin) / rounds, flush=True)
"""

ALONE = """
import sys
from benchmarks.two_processes import training
step = training(["cpu:0"], int(sys.argv[1]))
for _ in sys.stdin:
    print(step(), flush=True)
"""


class Ranks:
    """Processes that do something, and say how long it took, when they are told to."""

    def __init__(self, commands: Sequence[Sequence[str]], clean: bool = False) -> None:
        pipe, said = subprocess.PIPE, dict(os.environ)
        if clean:
            said.pop("PYTHONPATH", None)
        self.ranks = [
            subprocess.Popen(each, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=said)
            for each in commands
        ]

    def seconds(self) -> float:
        """Of the slowest. Raises FileNotFoundError where they have ended."""
        for rank in self.ranks:
            rank.stdin.write("go\n")  # type: ignore[union-attr]
            rank.stdin.flush()  # type: ignore[union-attr]
        told = [rank.stdout.readline() for rank in self.ranks]  # type: ignore[union-attr]
        if not all(told):
            raise FileNotFoundError(self.ranks[0].args)
        return max(map(float, told))

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exception: object) -> None:
        for rank in self.ranks:
            rank.communicate()


def gloo(python: str) -> Ranks:
    """Two processes that sum. `seconds` raises FileNotFoundError without PyTorch."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [[python, "-c", GLOO, *map(str, (k, NBYTES, ROUNDS, port))] for k in range(2)]
    return Ranks(words, clean=True)


def ratios(ours: Callable[[], float], other: Callable[[], float], pairs: int) -> dict[str, float]:
    """The median of `other` over `ours`, and the ends of its interval of 95 %."""
    found = []
    for turn in range(pairs):
        sides = (ours, other) if turn % 2 else (other, ours)
        seconds = {side: side() for side in sides}
        found.append(seconds[other] / seconds[ours])
    drawn = np.random.default_rng(0).choice(found, (10_000, pairs))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return {"ratio": float(np.median(found)), "low": float(low), "high": float(high)}


# ------------------------------------------------------------------------------- data parallel


def training(devices: list[str], rows: int = ROWS) -> Callable[[], float]:
    """Seconds of a step of an MLP: the rows are shared by the devices."""
    net = nn.Sequential(*(nn.Dense(WIDTH, WIDTH) for _ in range(4)))
    rng = np.random.default_rng(0)
    batch = tuple(rng.standard_normal((rows, WIDTH)).astype("f4") for _ in range(2))
    start = net.init(gc.random.key(0))

    def loss(params: Any, batch: Any) -> Any:
        return nn.mse(net(params, batch[0]), batch[1])

    step = parallel.Synchronous(loss, start, optim.sgd(0.01), devices, threads=1)

    def seconds() -> float:
        begin = time.perf_counter()
        for _ in range(STEPS):
            step(batch)
        return (time.perf_counter() - begin) / STEPS

    seconds()
    return seconds


def data_parallel(pairs: int, rows: int) -> dict[str, float]:
    with (
        gc.cluster.local(workers=2, threads=1, job="two") as two,
        gc.cluster.local(workers=1, threads=1, job="one") as one,
    ):
        return ratios(training(two.devices, rows), training(one.devices, rows), pairs)


def nothing_shared(pairs: int) -> dict[str, float]:
    with (
        Ranks([[sys.executable, "-c", ALONE, str(ROWS // 2)] for _ in range(2)]) as halves,
        Ranks([[sys.executable, "-c", ALONE, str(ROWS)]]) as whole,
    ):
        return ratios(halves.seconds, whole.seconds, pairs)


# ------------------------------------------------------------------------------- all-reduce


def all_reduce(pairs: int, python: str) -> dict[str, float]:
    with gloo(python) as other, gc.cluster.local(workers=2, threads=1) as cluster:
        step = summing(cluster, NBYTES, ROUNDS)

        def seconds() -> float:
            begin = time.perf_counter()
            step(np.float32(1))
            return (time.perf_counter() - begin) / ROUNDS

        seconds()
        return ratios(seconds, other.seconds, pairs)


@click.command()
@click.option("--pairs", default=21, help="of each comparison")
@click.option("--python", default=sys.executable, help="an interpreter that has PyTorch")
@click.option("--json", "as_json", is_flag=True)
def main(pairs: int, python: str, as_json: bool) -> None:
    """Print how many times as fast two processes are as one, and as Gloo."""
    found = {
        f"data parallel, {rows} rows": data_parallel(pairs, rows) for rows in (ROWS, MORE_ROWS)
    }
    found["nothing shared"] = nothing_shared(pairs)
    try:
        found["all-reduce of 100 MB"] = all_reduce(pairs, python)
    except (BrokenPipeError, FileNotFoundError):
        click.echo(f"Gloo: {python} has no PyTorch", err=True)
    if as_json:
        click.echo(json.dumps(found))
        return
    for title, row in found.items():
        span = f"{row['low']:.2f} to {row['high']:.2f}"
        other = "Gloo" if "reduce" in title else "one process"
        click.echo(f"{title:26} {row['ratio']:.2f} times as fast as {other} ({span})")
    load = os.getloadavg()[0]
    click.echo(f"load {load:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
