"""`python -m benchmarks`: time graphc beside every peer that is installed."""

from __future__ import annotations

import compileall
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import llvmlite.binding as llvm
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import peers, report
from benchmarks.suite import CASES

ROOT = Path(__file__).parents[1]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GRAPHC_THREADS")
CACHE_VARIABLES = ("GRAPHC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR")
PACKAGES = ("graphc", "numpy", "torch", "jax", "onnxruntime", "openvino", "numexpr", "llvmlite")


def environment(threads: int, cache: str | None = None) -> dict[str, str]:
    """Variables of a worker: as many threads for every library, and a cache of its own if given."""
    variables = os.environ | {name: str(threads) for name in THREAD_VARIABLES}
    if cache is not None:
        variables |= {name: str(Path(cache, name.lower())) for name in CACHE_VARIABLES}
        variables |= {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    return variables


def worker(arguments: list[Any], variables: dict[str, str], timeout: float) -> dict[str, Any]:
    """Run one measurement; whatever goes wrong becomes a result that says so."""
    command = [sys.executable, "-m", "benchmarks.worker", *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=variables, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no result after {timeout:.0f} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": f"exit {done.returncode}: {lines[-1][:300]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_pair(job: dict[str, Any], seconds: float) -> dict[str, Any]:
    arguments = ["pair", job["case"], job["peer"], job["threads"], seconds]
    return worker(arguments, environment(job["threads"]), timeout=240)


def measure_first(job: dict[str, Any]) -> dict[str, Any]:
    """Two fresh processes that share one cache, empty at first."""
    arguments = ["first", job["case"], job["peer"], job["threads"]]
    with tempfile.TemporaryDirectory() as cache:
        variables = environment(job["threads"], cache)
        cold = worker(arguments, variables, timeout=240)
        warm = cold if "failed" in cold else worker(arguments, variables, timeout=240)
    return warm if "failed" in warm else {"cold": cold, "warm": warm}


def jobs(
    cases: list[str], names: list[str], threads: list[int], first: bool
) -> list[dict[str, Any]]:
    """Every measurement of a run, case by case."""
    planned = [
        {"action": "pair", "case": case, "peer": name, "threads": count}
        for case in cases
        for count in threads
        for name in names
    ]
    if first:
        planned += [
            {"action": "first", "case": case, "peer": name, "threads": max(threads)}
            for case in cases
            for name in ["graphc", *names]
        ]
    return planned


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures; nothing that identifies the host."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "processor": llvm.get_host_cpu_name(),
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": versions,
    }


def selected(wanted: tuple[str, ...], known: list[str], what: str) -> list[str]:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise click.UsageError(f"unknown {what} {unknown[0]!r}; there are: {', '.join(known)}")
    return [name for name in known if name in wanted] if wanted else known


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "-c", "cases", multiple=True, help="Only this case (repeatable).")
@click.option("--peer", "-p", "names", multiple=True, help="Only this peer (repeatable).")
@click.option("--threads", "-t", multiple=True, type=int, help="Thread counts. [default: 1 2]")
@click.option("--seconds", default=1.0, show_default=True, help="Time per pair, once warm.")
@click.option("--first/--no-first", default=True, help="Also first calls and memory.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=ROOT / "benchmarks" / "results" / "latest.json",
    help="Where the JSON goes. [default: benchmarks/results/latest.json]",
)
def main(cases, names, threads, seconds, first, output) -> None:
    """Time graphc and its peers in turn, each pair in a process of its own, and print tables."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    chosen = selected(names, list(peers.PEERS), "peer")
    absent = {name: reason for name in chosen if (reason := peers.missing(name))}
    for name, reason in absent.items():
        console.print(f"left out: {name} ({reason})")
    chosen = [name for name in chosen if name not in absent]
    counts = list(threads) or [1, 2]
    # Installers compile what they copy; a checkout that is used in place has to catch up.
    compileall.compile_dir(ROOT / "graphc", quiet=1)
    planned = jobs(selected(cases, list(CASES), "case"), chosen, counts, first)
    results = run_all(planned, seconds)
    report.show(console, results, chosen)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
    console.print(f"written: {output}", highlight=False, soft_wrap=True)


def run_all(planned: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """One job after another: two at once would time each other."""
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn())
    results = []
    progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    with progress:
        task = progress.add_task("", total=len(planned))
        for job in planned:
            label = f"{job['action']} {job['case']} {job['peer']} x{job['threads']}"
            progress.update(task, description=label)
            found = measure_pair(job, seconds) if job["action"] == "pair" else measure_first(job)
            results.append(job | {"report": found})
            progress.advance(task)
    return results


if __name__ == "__main__":
    main()
