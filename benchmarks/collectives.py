"""What sums over workers cost, beside Gloo: python -m benchmarks.collectives [--json]

Each of three processes has a vector and gets the mean of all three, ROUNDS times; Gloo does so with
`torch.distributed.all_reduce` in three processes of its own, after ours.  CPU seconds of all
processes are told beside wall time, as they share the cores.  Then a training step: what the
workers send, and the CPU it takes, with parameters on the first device and with copies on all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

import numpy as np

import graphc as gc
from graphc import nn, optim, parallel

COUNT, ROUNDS, TIMES = 3, 4, 5
SIZES = (1 << 12, 1 << 20, 100_000_000)
TICK = os.sysconf("SC_CLK_TCK")

GLOO = """
import sys, time, torch, torch.distributed as dist
rank, count, nbytes, rounds, times, port = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=count)
x = torch.ones(nbytes // 4)
found = []
for _ in range(times + 1):
    dist.barrier()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        dist.all_reduce(x)
        x /= count
    found.append((time.perf_counter() - begin, time.process_time() - cpu))
for wall, cpu in found[1:]:
    print(wall / rounds, cpu / rounds)
"""


def cpu_seconds(pids: list[int]) -> float:
    """The CPU time that processes have used so far."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def summing(cluster: Any, nbytes: int, rounds: int) -> Any:
    """A step in which the workers sum what each of them has, so often."""

    @gc.compile(devices=cluster.devices, threads=1)
    def step(seed: Any) -> Any:
        held = []
        for name in cluster.devices:
            with gc.device(name):
                held.append(np.zeros(nbytes // 4, np.float32) + seed)

        def body(k: Any, held: Any) -> Any:
            return parallel.all_reduce(held, cluster.devices, "mean")

        made = gc.fori(0, rounds, body, held)
        firsts = []
        for name, value in zip(cluster.devices, made, strict=True):
            with gc.device(name):
                firsts.append(value[:1])
        return firsts

    return step


def ours(cluster: Any, nbytes: int) -> dict[str, float]:
    """Seconds and CPU seconds of a sum, and the bytes that a worker sends for it."""
    step = summing(cluster, nbytes, ROUNDS)
    step(np.float32(1))
    sent = [worker["sent"] for worker in cluster.status()["workers"]]
    walls, begin = [], cpu_seconds(cluster.pids)
    for _ in range(TIMES):
        start = time.perf_counter()
        step(np.float32(1))
        walls.append((time.perf_counter() - start) / ROUNDS)
    cpu = (cpu_seconds(cluster.pids) - begin) / TIMES / ROUNDS
    after = [worker["sent"] for worker in cluster.status()["workers"]]
    most = max(b - a for a, b in zip(sent, after, strict=True)) / TIMES / ROUNDS
    return {"seconds": median(walls), "cpu": cpu, "sent": most}


def gloo(nbytes: int, port: int) -> dict[str, float]:
    """The same of Gloo. Raises FileNotFoundError without PyTorch."""
    numbers = [COUNT, nbytes, ROUNDS, TIMES, port]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", GLOO, *map(str, (rank, *numbers))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(COUNT)
    ]
    rows = [[line.split() for line in each.communicate()[0].splitlines()] for each in started]
    if not all(rows):
        raise FileNotFoundError("torch.distributed")
    walls = [max(float(row[k][0]) for row in rows) for k in range(TIMES)]
    return {
        "seconds": median(walls),
        "cpu": sum(float(cpu) for row in rows for _, cpu in row) / TIMES,
    }


def training(cluster: Any) -> dict[str, dict[str, float]]:
    """Bytes sent by the workers, and CPU seconds, of a step of Adam on three layers."""
    net = nn.Sequential(*(nn.Dense(512, 512) for _ in range(3)))
    start, rng = net.init(gc.random.key(0)), np.random.default_rng(0)
    batch = tuple(rng.standard_normal((96, 512)).astype("f4") for _ in range(2))
    rule = optim.adam()

    def loss(params: Any, batch: Any) -> Any:
        return nn.mse(net(params, batch[0]), batch[1])

    slopes = parallel.replicate(gc.value_and_grad(loss), cluster.devices)
    held = [gc.Variable(x) for x in _leaves(start)]
    kept = [gc.Variable(x) for x in _leaves(rule.init(start))]

    @gc.compile(devices=cluster.devices, threads=1)
    def replicated(batch: Any) -> Any:
        params = _like(start, [v.value for v in held])
        value, gradients = slopes(params, batch)
        with gc.device(cluster.devices[0]):
            state = _like(rule.init(start), [v.value for v in kept])
            new, state = rule.update(gradients, state, params)
            for v, x in zip([*held, *kept], [*_leaves(new), *_leaves(state)], strict=True):
                v.assign(x)
        return value

    copies, shared = (
        parallel.Synchronous(loss, start, rule, cluster.devices, shard, threads=1)
        for shard in (False, True)
    )
    found = {}
    for name, step in (("replicate", replicated), ("copies", copies), ("shared out", shared)):
        step(batch)
        sent, begin = [w["sent"] for w in cluster.status()["workers"]], cpu_seconds(cluster.pids)
        for _ in range(100):
            step(batch)
        cpu = (cpu_seconds(cluster.pids) - begin) / 100
        now = [w["sent"] for w in cluster.status()["workers"]]
        each = [(b - a) / 100 for a, b in zip(sent, now, strict=True)]
        found[name] = {"cpu": cpu, "most": max(each), "all": sum(each)}
    return found


def _leaves(tree: Any) -> list[Any]:
    from graphc.frontend.trace.tree import flatten

    return flatten(tree, keep_order=True)[0]


def _like(tree: Any, leaves: list[Any]) -> Any:
    from graphc.frontend.trace.tree import flatten, unflatten

    return unflatten(flatten(tree, keep_order=True)[1], leaves)


def main() -> None:
    found: dict[str, Any] = {}
    for number, nbytes in enumerate(SIZES):
        with gc.cluster.local(workers=COUNT, threads=1) as cluster:
            row = found[f"{nbytes} bytes"] = {"graphc": ours(cluster, nbytes)}
        try:
            row["gloo"] = gloo(nbytes, 29500 + number)
        except FileNotFoundError:
            print("Gloo: PyTorch is not installed", file=sys.stderr)
    with gc.cluster.local(workers=COUNT, threads=1) as cluster:
        found["step"] = training(cluster)
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for title, rows in found.items():
        for name, row in rows.items():
            print(f"{title:18} {name:10}", *(f"{key} {value:.6g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
