"""Gates of speed: ratios that must not grow, each measured in pairs within one process.

    python -m benchmarks.gates                 every gate, a table, exit status 1 where one fails
    python -m benchmarks.gates -g call --json  gates with "call" in their names, for programs

A gate times two things in turn and looks at the median of their ratios, so that neither the
machine nor its other work decides. One beyond its bound is measured again, up to `--tries` times,
and fails when it stays there: noise passes, a regression does not. CPU time of the calling thread
is counted, without the garbage collector.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import graphc as gc
from benchmarks.scale import chain, wide
from graphc.base.garbage_collection import collector_paused
from graphc.codegen.cache import Cache
from graphc.config import Config
from graphc.ir.graph import Graph, Program
from graphc.passes import pipeline

PAIRS = 7
Action = Callable[[], object]
F4 = np.float32


class Pair(NamedTuple):
    """What is timed, beside what; `scale` multiplies the ratio (sizes, numbers of calls)."""

    ours: Action
    yardstick: Action
    scale: float = 1.0


class Gate(NamedTuple):
    """A ratio and the most it may be."""

    name: str
    about: str
    most: float
    make: Callable[[], Pair] | None = None  # timed in turn
    measured: Callable[[], float] | None = None  # or the ratio as such

    def ready(self) -> Callable[[], float]:
        """What measures the ratio once; what it needs is made here."""
        if self.measured is not None:
            return self.measured
        assert self.make is not None
        return partial(ratio, self.make())


def seconds(action: Action) -> float:
    with collector_paused():
        began = time.thread_time()
        action()
        return time.thread_time() - began


def ratio(pair: Pair) -> float:
    """The median ratio of runs in turn, after one of each that is not counted."""
    pair.ours(), pair.yardstick()
    return pair.scale * statistics.median(
        seconds(pair.ours) / max(seconds(pair.yardstick), 1e-9) for _ in range(PAIRS)
    )


# --------------------------------------------------------------------------------- yardsticks


def python_calls(count: int) -> Action:
    """So many calls of a Python function with three arguments, one by its name."""

    def called(a: int, b: int, *, c: int) -> int:
        return a + b + c

    return lambda: [called(1, 2, c=3) for _ in range(count)]


def repeated(action: Action, count: int) -> Action:
    return lambda: [action() for _ in range(count)]


def warm(function: Callable[..., Any], *arguments: Any, **options: Any) -> Action:
    compiled = gc.compile(function, **options)
    for _ in range(4):
        compiled(*arguments)
    return lambda: compiled(*arguments)


# ------------------------------------------------------------------------------------- calls


def layers() -> dict[str, dict[str, np.ndarray]]:
    return {f"layer{k}": {"w": np.full(4, k, F4), "b": np.full(4, -k, F4)} for k in range(10)}


def nested_argument() -> Pair:
    def model(p: Any, x: Any) -> Any:
        return p["layer3"]["w"] + p["layer4"]["b"] + x

    return Pair(repeated(warm(model, layers(), np.ones(4, F4)), 2000), python_calls(2000))


def nested_result() -> Pair:
    def model(p: Any, x: Any) -> Any:
        return {k: {n: v * F4(0.5) + x for n, v in leaves.items()} for k, leaves in p.items()}

    return Pair(repeated(warm(model, layers(), np.ones(4, F4)), 2000), python_calls(2000))


def four_arrays() -> Pair:
    x = np.ones(4, F4)
    call = warm(lambda a, b, c, d: a * b + c * d, x, x, x, x)
    return Pair(repeated(call, 2000), python_calls(2000))


def session_run() -> Pair:
    session = gc.Session()
    text = "graph @g(%0 x: f32[4]) {\n  %1 = exp(%0) : f32[4]\n  return y: %1\n}"
    session.extend(gc.parse(text))
    feeds = {"x": np.ones(4, F4)}
    return Pair(repeated(lambda: session.run("y", feeds), 2000), python_calls(2000))


# -------------------------------------------------------------------------------------- loops


def loop(body: Callable[[Any, Any], Any], count: int) -> Pair:
    """So many steps of a loop over a carry of 4 MB, beside one: a copy a step is seen."""
    compiled = gc.compile(lambda x, n: gc.fori(0, n, body, x), threads=1)
    x = np.arange(1 << 20, dtype=F4)
    return Pair(lambda: compiled(x, np.int64(count)), lambda: compiled(x, np.int64(1)))


def exchange(i: Any, x: Any) -> Any:
    x = x.copy()
    x[i], x[i + 1] = x[i + 1], x[i]
    return x


def fill(i: Any, x: Any) -> Any:
    x[i + 1] = x[i] + x[i]
    return x


# ----------------------------------------------------------------------------- linear passes


def per_node(make: Callable[[int], Action], small: int, large: int) -> Pair:
    """Time per node of a large graph over that of a small one: 1 where a pass is linear."""
    return Pair(make(large), make(small), small / large)


def traced(function: Callable[..., Any]) -> Graph:
    x, w, b = gc.spec((8, 8), "f32"), gc.spec((4, 8, 8), "f32"), gc.spec((4, 8), "f32")
    return gc.compile(function).graph(x, w, b, gc.spec((), "f32"))


def across(nodes: int) -> Callable[..., Any]:
    """A chain whose cells lie on four devices in turn."""

    def function(x: Any, w: Any, b: Any, s: Any) -> Any:
        for k in range(nodes // 3):
            with gc.device(f"cpu:{k % 4}"):
                x = np.tanh(np.sin(x) * s)
        return x

    return function


def stage(
    name: str, function: Callable[[int], Callable[..., Any]], count: int
) -> Callable[[int], Action]:
    """What runs one stage on the graph that the stages before it leave."""

    def make(nodes: int) -> Action:
        config = Config.create(
            devices=[f"cpu:{k}" for k in range(count)], place_seconds=0.0, verify=0
        )
        records = pipeline.run(traced(function(nodes)), config)
        position = next(k for k, record in enumerate(records) if record.name == name)
        before: Graph | Program = records[position - 1].value
        found = pipeline.STAGES[pipeline.stage_named(name)]
        return lambda: pipeline.step(found, before, config)

    return make


def extending(count: int) -> Action:
    lines = [f"  %{k + 1} = neg(%{k}) : f32[4]" for k in range(count)]
    text = "graph @g(%0 x: f32[4]) {\n" + "\n".join(lines) + f"\n  return y: %{count}\n}}"
    graph = gc.parse(text)

    def grow() -> None:
        session = gc.Session()
        for k in range(4):
            session.extend(graph, scope=f"s{k}")
        session.graph("s3/y", ["s3/x"])

    return grow


# ------------------------------------------------------------------------------- other programs


def call_beside_another_program() -> float:
    """Median wall time of calls on two devices while a program keeps a core busy, over alone.

    A thread that gave way to the other program would lose its core for a time slice of some 4 ms.
    """

    def model(x: Any) -> Any:
        with gc.device("cpu:1"):
            y = np.tanh(x)
        with gc.device("cpu:0"):
            return y * 2

    call = warm(model, np.ones(8, F4), devices=["cpu:0", "cpu:1"], threads=1)
    core = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
    alone = statistics.median(wall_seconds(call) for _ in range(2000))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            beside = statistics.median(wall_seconds(call) for _ in range(2000))
        finally:
            busy.kill()
    return beside / alone


def cancelled_product() -> float:
    """Time from a cancel to the end of a long product, over the time of the product."""
    x, y = np.full((3000, 9000), 1e-3, F4), np.full((9000, 3000), 1e-3, F4)
    found = gc.compile(lambda x, y: (x @ y).sum(), threads=1).executable(x, y)
    whole = wall_seconds(lambda: found.run([x, y]))
    asked: list[float] = []

    def cancel() -> None:
        asked.append(time.perf_counter())
        found.cancel()

    threading.Timer(whole / 4, cancel).start()
    with contextlib.suppress(gc.RunError):
        found.run([x, y])
    return (time.perf_counter() - asked[0]) / whole if asked else 1.0


def wall_seconds(action: Action) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


# -------------------------------------------------------------------------------------- files


def cache_lookup() -> Pair:
    folder = tempfile.TemporaryDirectory()
    keys = [f"{k:064x}" for k in range(40)]
    store = Cache(Path(folder.name))
    for k, key in enumerate(keys):
        store.put(b"%d" % k * 4000, {key: f"k{k}"})

    def look_up(folder: Any = folder) -> None:
        assert len(Cache(Path(folder.name)).get(keys)) == len(keys)

    return Pair(look_up, python_calls(2000))


GATES = (
    Gate("call-four", "a call with four arrays, in Python calls", 6, four_arrays),
    Gate("call-nested", "a call with a nested dict of twenty", 25, nested_argument),
    Gate("call-nested-result", "the same, with twenty results", 200, nested_result),
    Gate("call-session", "a warm run of a session", 19, session_run),
    Gate("loop-fill", "2,000 writes of one element over one", 10, lambda: loop(fill, 2000)),
    Gate("loop-exchange", "1,000 exchanges over one", 10, lambda: loop(exchange, 1000)),
    Gate("linear-place", "per node, 14,500 over 1,450", 3,
         lambda: per_node(stage("place", wide, 4), 1450, 14500)),
    Gate("linear-partition", "per node, 14,500 over 1,450", 3,
         lambda: per_node(stage("partition", across, 4), 1450, 14500)),
    Gate("linear-schedule", "per node, 14,500 over 1,450", 3,
         lambda: per_node(stage("schedule", across, 4), 1450, 14500)),
    Gate("linear-hoist", "per node, 12,000 over 1,200", 3,
         lambda: per_node(stage("hoist", chain, 1), 1200, 12000)),
    Gate("linear-fuse", "per node, 12,000 over 1,200", 3,
         lambda: per_node(stage("fuse", chain, 1), 1200, 12000)),
    Gate("linear-extend", "a session's graph, per node, 20,000 over 4,000", 3,
         lambda: per_node(extending, 4_000, 20_000)),
    Gate("call-beside", "calls on two devices beside a busy program, over alone", 20,
         measured=call_beside_another_program),
    Gate("cancel", "from a cancel to the end, over a product of 160 GFLOP", 0.3,
         measured=cancelled_product),
    Gate("cache-lookup", "40 objects of the cache, in Python calls", 40, cache_lookup),
)  # fmt: skip


class Outcome(NamedTuple):
    gate: Gate
    ratios: list[float]

    @property
    def passed(self) -> bool:
        return min(self.ratios) <= self.gate.most


def judged(gate: Gate, tries: int) -> Outcome:
    """Measured until the ratio is within its bound, `tries` times at most."""
    measure, ratios = gate.ready(), list[float]()
    while len(ratios) < tries and not (ratios and ratios[-1] <= gate.most):
        ratios.append(measure())
    return Outcome(gate, ratios)


def table(outcomes: Sequence[Outcome]) -> Table:
    made = Table("gate", "ratio", "at most", "tries", "what", box=None, pad_edge=False)
    for gate, ratios in outcomes:
        mark = "" if min(ratios) <= gate.most else "[red]FAILED "
        row = f"{min(ratios):.2f}", f"{gate.most:g}", str(len(ratios)), mark + gate.about
        made.add_row(gate.name, *row)
    return made


@click.command()
@click.option("-g", "--gate", "names", multiple=True, help="Gates whose names hold this text.")
@click.option("--tries", default=5, show_default=True, help="Measurements before a gate fails.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(names: tuple[str, ...], tries: int, as_json: bool) -> None:
    """Measure the gates and fail where one is beyond its bound."""
    console = Console(stderr=True)
    warnings.simplefilter("ignore", gc.GraphHint)  # the graphs are unrolled on purpose
    outcomes = []
    for gate in GATES:
        if not names or any(name in gate.name for name in names):
            with console.status(gate.name):
                outcomes.append(judged(gate, tries))
    if as_json:
        rows = [
            {"gate": o.gate.name, "ratio": min(o.ratios), "most": o.gate.most, "passed": o.passed}
            for o in outcomes
        ]
        click.echo(json.dumps(rows, indent=1))
    else:
        Console().print(table(outcomes))
    sys.exit(not all(o.passed for o in outcomes))


if __name__ == "__main__":
    main()
