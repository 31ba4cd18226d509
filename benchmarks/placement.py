"""How good placements are: the gap to the best on small problems, times of stages on large ones.

python -m benchmarks.placement
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator

import graphc.ops  # noqa: F401  (fills the op table)
from graphc.base.garbage_collection import collector_paused
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Program
from graphc.ir.op import OPS
from graphc.ir.types import F32, tensor
from graphc.ops.control.control import param_node
from graphc.passes import pipeline
from graphc.passes.placement.assignment import Problem, evaluate, lower_bound
from graphc.passes.placement.gap import brute_force
from graphc.passes.placement.greedy import greedy
from graphc.passes.placement.improve import improve, local_search

STAGES = ("place", "partition", "schedule")
SECONDS = 1.0  # of search, at the nominal speed


def random_problem(draw: random.Random, devices: int | None = None) -> Problem:
    """2 to 10 tasks on 2 or 3 devices of different speed, a few of them tied to one."""
    count = draw.randint(2, 10)
    devices = devices or (draw.choice((2, 2, 3)) if count <= 8 else 2)
    speed = [draw.choice((1, 1, 4)) for _ in range(devices)]
    seconds = []
    for _ in range(count):
        work = draw.uniform(1, 20) * 1e-6
        seconds.append(tuple(work / s * draw.uniform(0.5, 2) for s in speed))
    made: dict[int, int] = {}
    reads: list[list[int]] = []
    for task in range(count):
        sources = [k for k in range(max(0, task - 6), task) if draw.random() < 0.3]
        reads.append([made.setdefault(k, len(made)) for k in sources])
    read = {value for values in reads for value in values}
    latency, pace = draw.choice((5e-7, 2e-6, 1e-5)), 1 / draw.choice((1e9, 1e10, 1e11))
    last = made.setdefault(count - 1, len(made))
    return Problem(
        seconds=seconds,
        reads=reads,
        maker=list(made),
        nbytes=[draw.choice((1e3, 1e4, 1e5)) for _ in made],
        results=[last] if last not in read else [],
        group=list(range(count)),
        feasible=[
            tuple(range(devices)) if draw.random() < 0.85 else (draw.randrange(devices),)
            for _ in range(count)
        ],
        latency=_square(devices, latency),
        pace=_square(devices, pace),
    )


def _square(count: int, value: float) -> list[list[float]]:
    return [[0.0 if a == b else value for b in range(count)] for a in range(count)]


def gaps(seed: int, count: int) -> Iterator[tuple[float, ...]]:
    """For each of `count` problems how far from the best are: greedy, local search alone, what
    `place` uses, the lower bound."""
    draw = random.Random(seed)
    for _ in range(count):
        problem = random_problem(draw)
        first = evaluate(problem, greedy(problem)[0])
        best = brute_force(problem).makespan
        searched = local_search(problem, first, SECONDS).makespan
        used = improve(problem, first, SECONDS).makespan
        found = (first.makespan, searched, used, lower_bound(problem))
        yield tuple([seconds / best - 1 for seconds in found])


def wide_graph(count: int, lanes: int = 16) -> Graph:
    """So many small nodes in lanes that now and then read each other."""
    draw = random.Random(3)
    builder = Builder(1)
    x = param_node(0, tensor(F32, (64, 64)), "x")
    lane = [x] * lanes
    while len(builder.nodes) < count - lanes:
        k, kind = draw.randrange(lanes), draw.random()
        other = lane[draw.randrange(lanes)]
        op = "matmul" if kind < 0.3 else "tanh" if kind < 0.7 else "add"
        lane[k] = builder.emit(OPS[op], (lane[k],) if op == "tanh" else (lane[k], other))
    total = lane[0]
    for value in lane[1:]:
        total = builder.emit(OPS["add"], (total, value))
    return Graph("wide", (x,), builder.nodes, (total,))


def stage_seconds(count: int) -> list[float]:
    """What it takes to place, partition and schedule so many nodes on eight simulated devices."""
    config = Config.create(devices=[f"sim:{k}" for k in range(8)])
    value: Graph | Program = wide_graph(count)
    seconds = []
    with collector_paused():  # as in a whole compilation
        for name in STAGES:
            started = time.perf_counter()
            value = pipeline.apply(pipeline.STAGES[pipeline.stage_named(name)], value, config)
            seconds.append(time.perf_counter() - started)
    return seconds


def _row(name: str, values: Iterable[float]) -> str:
    found = sorted(abs(v) for v in values)
    mean = sum(found) / len(found)
    best = sum(v < 1e-9 for v in found) / len(found)
    high = found[int(0.95 * len(found))]
    return f"{name:12} {best:8.1%} {mean:9.3%} {high:9.2%} {found[-1]:9.2%}"


def main() -> None:
    rows = list(gaps(seed=1, count=500))
    print("gap to brute force, 500 random problems of 2 to 10 tasks")
    print(f"{'':12} {'optimal':>8} {'mean':>9} {'95 %':>9} {'largest':>9}")
    for name, values in zip(("greedy", "local search", "place", "lower bound"), zip(*rows)):
        print(_row(name, values))
    print("\nseconds on 8 simulated devices")
    print(f"{'nodes':>7} {''.join(f'{name:>10}' for name in STAGES)} {'all':>9} {'us/node':>9}")
    for count in (9_000, 36_000, 100_000):
        seconds = stage_seconds(count)
        cells = "".join(f"{s:10.2f}" for s in seconds)
        print(f"{count:7} {cells} {sum(seconds):9.2f} {sum(seconds) / count * 1e6:9.1f}")


if __name__ == "__main__":
    main()
