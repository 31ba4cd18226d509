"""Microseconds per node of every stage, on graphs from 1,200 to 1,000,000 nodes.

    python -m benchmarks.scale                  chain and wide graphs, 1,200 36,000 100,000 nodes
    python -m benchmarks.scale --nodes 1000000  opt in to more

Each graph is built, compiled and run in a fresh process with an empty cache. A stage that is
linear shows one figure along its whole row; a row that grows is a bug.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
SIZES = (1_200, 36_000, 100_000)
WIDTH = 8
TIMINGS = ("print", "parse", "compile and first run", "second run")


def chain(nodes: int) -> Callable[..., Any]:
    """One long dependence: cells of matmul, add, tanh, mul, sub, max."""

    def function(x, w, b, s):
        for _ in range(nodes // 6):
            x = np.maximum(np.tanh(x @ w[0] + b[0]) * s - b[1], b[2])
        return x

    return function


def wide(nodes: int) -> Callable[..., Any]:
    """Inception-like modules of 29 nodes: four branches of depth 1, 2, 3, 2, sliced and joined."""

    def function(x, w, b, s):
        for _ in range(nodes // 29):
            branches = []
            for k, depth in enumerate((1, 2, 3, 2)):
                h = x
                for _ in range(depth):
                    h = np.maximum(h @ w[k] + b[k], s)
                branches.append(h[:, 2 * k : 2 * k + 2])
            x = np.concatenate(branches, axis=1)
        return x

    return function


GRAPHS = {"chain": chain, "wide": wide}


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) * 0.3 for _ in range(4)]
    shifts = [rng.standard_normal(WIDTH).astype(np.float32) for _ in range(4)]
    x = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    return x, weights, shifts, np.full(WIDTH, 0.5, np.float32)


def timed(function: Callable[..., Any], *values: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*values)
    return result, time.perf_counter() - start


def measure(kind: str, nodes: int) -> dict[str, Any]:
    """Seconds of each stage, of printing and parsing the traced graph, and of running it."""
    import graphc as gc

    function, values = GRAPHS[kind](nodes), arguments()
    stages = gc.compile(function).stages(*values)
    seconds: dict[str, float] = {}
    for name, _, spent, _ in stages:
        seconds[name] = seconds.get(name, 0.0) + spent
    graph = stages[0][1]
    text, seconds["print"] = timed(gc.show, graph)
    _, seconds["parse"] = timed(gc.parse, text)
    compiled = gc.compile(function)
    result, seconds["compile and first run"] = timed(compiled, *values)
    _, seconds["second run"] = timed(compiled, *values)
    expected = function(*values)
    error = float(np.abs(result - expected).max())
    return {"nodes": len(graph.nodes), "seconds": seconds, "error": error}


def in_fresh_process(kind: str, nodes: int, timeout: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale", "--one", kind, "--nodes", str(nodes)]
    with tempfile.TemporaryDirectory() as cache:
        variables = os.environ | {"GRAPHC_CACHE_DIR": cache}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, env=variables, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no result after {timeout:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(kind: str, reports: list[dict[str, Any]]) -> Table:
    """Stages down, sizes across: microseconds per traced node, totals in seconds."""
    result = Table(title=f"{kind}: us per node", box=SIMPLE_HEAD)
    result.add_column("stage")
    for report in reports:
        result.add_column(f"{report['nodes']:,}", justify="right")
    names = list(dict.fromkeys(name for report in reports for name in report["seconds"]))
    for name in names:
        cells = [1e6 * r["seconds"].get(name, 0) / r["nodes"] for r in reports]
        result.add_row(name, *(f"{cell:.2f}" for cell in cells))
    totals = [sum(v for k, v in r["seconds"].items() if k not in TIMINGS) for r in reports]
    result.add_row("all stages, s", *(f"{total:.2f}" for total in totals))
    for name in TIMINGS[2:]:
        result.add_row(f"{name}, s", *(f"{r['seconds'][name]:.3f}" for r in reports))
    result.add_row("largest error", *(f"{r['error']:.0e}" for r in reports))
    return result


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--graph", "kinds", multiple=True, type=click.Choice(list(GRAPHS)), help="Repeatable."
)
@click.option("--nodes", "sizes", multiple=True, type=int, help=f"Repeatable. [default: {SIZES}]")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for one graph.")
@click.option("--one", type=click.Choice(list(GRAPHS)), help="Measure in this process, print JSON.")
def main(kinds, sizes, timeout, one) -> None:
    """Print microseconds per node for trace, every pass, print, parse, compile and run."""
    if one:
        click.echo(json.dumps(measure(one, sizes[0])))
        return
    console = Console()
    for kind in kinds or GRAPHS:
        reports = []
        for nodes in sizes or SIZES:
            console.print(f"{kind}, about {nodes:,} nodes ...", style="dim")
            report = in_fresh_process(kind, nodes, timeout)
            if "failed" in report:
                console.print(f"failed: {report['failed']}", style="red", markup=False)
            else:
                reports.append(report)
        if reports:
            console.print(table(kind, reports))


if __name__ == "__main__":
    main()
