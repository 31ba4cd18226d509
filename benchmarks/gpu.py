"""`python -m benchmarks.gpu`: graphc on gpu:0 beside PyTorch, JAX and CuPy, where they are there.

Arguments and results stay on the GPU.  A figure is the median over blocks of calls, by the clock of
the host, each block from an idle GPU to an idle GPU.  Every result is compared with NumPy's.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import peers
from benchmarks.cases import CASES, Case, gemm_case
from benchmarks.worker import calls_per_block, difference, fresh_arguments, summary, timed

GPU = ["gpu:0"]
RUNS_ON_ONE = {case.name: case for case in (*CASES.values(), gemm_case(2048), gemm_case(4096))}
COPY_BYTES, COPIES = 1 << 29, 20

Run = Callable[[], Any]  # one call, complete when it returns


def graphc(case: Case, arguments: tuple[Any, ...]) -> Run:
    import graphc as gc

    function = case.native(gc) if case.native else case.function
    there = gc.compile(lambda *values: values, devices=GPU).resident(*arguments)
    return functools.partial(gc.compile(function, devices=GPU).resident, *there)


def routes(run: Run) -> dict[str, int]:
    """How many products of matrices each route makes, in what `graphc` returned."""
    made = run.func.__self__.executable(*run.args)  # type: ignore[attr-defined]
    found = [route.name for part in made.parts for route in part.products.routes.values()]
    return {name: found.count(name) for name in sorted(set(found))}


def torch(case: Case, arguments: tuple[Any, ...], compiled: bool = False) -> Run:
    import torch as library

    from benchmarks import in_torch

    kind = peers.kind(case)
    library.set_grad_enabled(False)
    library.set_default_device("cuda")
    inputs = on_device(in_torch.arguments(kind, arguments), lambda tensor: tensor.to("cuda"))
    function = in_torch.FUNCTIONS[kind]
    if compiled:
        function = library.compile(in_torch.LOOPS.get(kind, function))

    def run() -> Any:
        made = function(*inputs)
        library.cuda.synchronize()
        return made

    return run


def jax(case: Case, arguments: tuple[Any, ...]) -> Run:
    import jax as library

    from benchmarks import in_jax

    if not any(device.platform == "gpu" for device in library.devices()):
        raise peers.Unavailable("this JAX has no GPU")
    inputs = library.device_put(arguments)
    function = library.jit(in_jax.FUNCTIONS[peers.kind(case)])
    return lambda: library.block_until_ready(function(*inputs))


def cupy(case: Case, arguments: tuple[Any, ...]) -> Run:
    import cupy as library

    inputs = on_device(arguments, library.asarray)

    def run() -> Any:
        made = case.function(*inputs)
        library.cuda.get_current_stream().synchronize()
        return made

    return run


PEERS: dict[str, Callable[[Case, tuple[Any, ...]], Run]] = {
    "torch": torch,
    "torch.compile": functools.partial(torch, compiled=True),
    "jax": jax,
    "cupy": cupy,
}


def on_device(value: Any, move: Callable[[Any], Any]) -> Any:
    """The same nesting with every leaf moved."""
    if isinstance(value, dict):
        return {key: on_device(item, move) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(on_device(item, move) for item in value)
    return move(value)


def fetched(result: Any) -> np.ndarray:
    """A result of any of them as an array of the host."""
    found = result.get() if hasattr(result, "get") else result
    return np.asarray(found.cpu() if hasattr(found, "cpu") else found)


def copy_rate() -> float:
    """Bytes per second, read and written, of a copy from the GPU's memory to itself."""
    from graphc.runtime.cuda.interface import COMPUTE, open_driver
    from graphc.runtime.devices.registry import present_chip

    driver = open_driver(present_chip(), GPU[0])
    driver.enter()
    source, target = driver.allocate(COPY_BYTES), driver.allocate(COPY_BYTES)
    seconds = []
    for _ in range(COPIES):
        first, last = driver.event(timed=True), driver.event(timed=True)
        driver.record(first, COMPUTE)
        driver.copy(target, source, COPY_BYTES, COMPUTE)
        driver.record(last, COMPUTE)
        driver.settle(last)
        seconds.append(driver.seconds(first, last))
    driver.free(source)
    driver.free(target)
    return 2 * COPY_BYTES / statistics.median(seconds)


def measured(run: Run, seconds: float) -> dict[str, float]:
    """Quartiles of the seconds of a call."""
    count = calls_per_block(run)
    samples, started = [], time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - started < seconds:
        samples.append(timed(run, count) / count)
    return summary(samples)


def one(case: Case, names: list[str], seconds: float) -> dict[str, Any]:
    """What each of them takes for a case; whatever goes wrong becomes a result that says so."""
    expected = case.function(*fresh_arguments(case))
    report: dict[str, Any] = {}
    for name in names:
        try:
            run = (graphc if name == "graphc" else PEERS[name])(case, fresh_arguments(case))
            error = difference(fetched(run()), expected)
        except Exception as problem:  # noqa: BLE001 - any failure of a peer is a result to report
            report[name] = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
            continue
        report[name] = {"error": error}
        if error > 10 * case.tolerance:  # peers may multiply in TF32
            report[name]["failed"] = f"differs from numpy by {error:.1e}"
        else:
            report[name] |= measured(run, seconds)
            if name == "graphc":
                report[name]["products"] = routes(run)
    return report


def show(console: Console, results: dict[str, Any], names: list[str], copied: float) -> None:
    """Microseconds of each, graphc's rates, and how often graphc's time fits into a peer's."""
    table = Table(title=f"gpu:0, microseconds (a copy moves {copied / 1e9:,.0f} GB/s)")
    for title in ("case", *names, "GFLOP/s", "of a copy", "products by"):
        table.add_column(title, justify="left" if title == "case" else "right")
    for name, report in results.items():
        case, own = RUNS_ON_ONE[name], report["graphc"].get("median")
        cells = [_cell(report[each], own) for each in names]
        flops = f"{case.flops / own / 1e9:,.0f}" if own else ""
        share = f"{case.bytes / own / copied:.0%}" if own else ""
        made = report["graphc"].get("products", {})
        by = ", ".join(f"{count} {route}" for route, count in made.items())
        table.add_row(name, *cells, flops, share, by)
    console.print(table)


def _cell(found: dict[str, Any], own: float | None) -> str:
    if "failed" in found:
        return "failed"
    ratio = f" ({found['median'] / own:.2f}x)" if own else ""
    return f"{found['median'] * 1e6:,.1f}{ratio}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "-c", "chosen", multiple=True, help="Only this case (repeatable).")
@click.option("--seconds", default=1.0, show_default=True, help="Time per case and library.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="JSON to write.")
def main(chosen: tuple[str, ...], seconds: float, output: Path | None) -> None:
    """Time graphc on gpu:0 and the libraries that are installed."""
    console = Console()
    unknown = [name for name in chosen if name not in RUNS_ON_ONE]
    if unknown:
        raise click.UsageError(f"unknown case {unknown[0]!r}; there are: {', '.join(RUNS_ON_ONE)}")
    absent = [name for name in PEERS if find_spec(name.partition(".")[0]) is None]
    for name in absent:
        console.print(f"left out: {name} is not installed")
    names = ["graphc", *(name for name in PEERS if name not in absent)]
    copied = copy_rate()
    results = {name: one(RUNS_ON_ONE[name], names, seconds) for name in chosen or RUNS_ON_ONE}
    show(console, results, names, copied)
    for name, report in results.items():
        for each, found in report.items():
            if "failed" in found:
                console.print(f"{name}, {each}: {found['failed']}", highlight=False)
    if output is not None:
        output.write_text(json.dumps({"copy": copied, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
