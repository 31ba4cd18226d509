"""`make sweep`: hundreds of cases beside every peer that is installed, the worst first on one page.

Every participant is a process that lives through the run; for each case all prepare it and their
results are compared, then they take turns in short blocks, and a ratio is the median over rounds.
Who is not on turn is stopped: threads that wait for work by spinning would take a processor.
On one thread the clock is the time that a process computes, so that other work on the machine
counts less; on several it is the wall's. Results are kept after every case: a run that was stopped
goes on where it was, unless `--fresh`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import sweep_report
from benchmarks.__main__ import ROOT, environment, machine, selected
from benchmarks.sweep_cases import Swept
from benchmarks.sweep_peers import MODULES
from benchmarks.sweep_table import CASES, QUICK
from benchmarks.worker import difference

PATIENCE = 90.0  # seconds for an answer; torch.compile takes some ten of them
PRODUCTS = ("product/", "linalg/", "model/")  # where that makes a difference
PREFIX = "numpy."  # NumPy with the products of another processor: numpy.Haswell has AVX2


class Participant:
    """A peer's process, started when it is first asked and again after it has died."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        plain, variables = self.peer, environment(self.threads)
        if plain.startswith(PREFIX):
            plain, variables["OPENBLAS_CORETYPE"] = plain.split(".")
        command = [sys.executable, "-m", "benchmarks.sweep_worker", plain, str(self.threads)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=variables,
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """The answer to an order; all threads of the process are stopped before and after."""
        self.process = self.process or self.start()
        self.process.send_signal(signal.SIGCONT)
        answer = self.answer(order)
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return answer

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(json.dumps(order), file=self.process.stdin, flush=True)
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line, ready = "", [0]
        if line:
            return json.loads(line)  # type: ignore[no-any-return]
        self.close()  # a process that is stopped can be killed
        return {"failed": "its process died" if ready else f"no answer within {PATIENCE:.0f} s"}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@contextlib.contextmanager
def participants(names: list[str], threads: int) -> Iterator[dict[str, Participant]]:
    team = {name: Participant(name, threads) for name in names}
    try:
        yield team
    finally:
        for member in team.values():
            member.close()


def agree(found: Path, expected: Path, tolerance: float, judge: str) -> float | None:
    """How far two samples lie apart, or None where that is more than the case allows."""
    a, b = np.load(found), np.load(expected)
    limit = 0.05 if judge == "moments" else max(tolerance, 1e-12)
    numbers = np.result_type(b.dtype, np.float64 if b.dtype.kind != "c" else np.complex128)
    error = difference(a, b.astype(numbers)) if b.dtype.kind != "c" else complex_difference(a, b)
    return error if error <= limit else None


def complex_difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max()) if a.shape == b.shape else float("inf")


def prepare(case: Swept, team: dict[str, Participant], folder: Path) -> dict[str, dict[str, Any]]:
    """What each participant answered; NumPy's result, or the first peer's, is the judge."""
    answers: dict[str, dict[str, Any]] = {}
    judge: Path | None = None
    able = [n for n in team if not n.startswith(PREFIX) or case.name.startswith(PRODUCTS)]
    for name in sorted(able, key=lambda name: (name != "numpy", name == "graphc")):
        file = folder / f"{name}.npy"
        answer = team[name].ask(do="prepare", case=case.name, file=str(file))
        answers[name] = answer
        if "absent" in answer or "failed" in answer:
            continue
        judge = judge or file
        error = agree(file, judge, case.tolerance, case.judge)
        if error is None:
            answer["failed"] = f"differs from {judge.stem}"
        else:
            answer["error"] = error
    return answers


def measure(case: Swept, team: dict[str, Participant], rounds: int, block: float) -> dict[str, Any]:
    """The result of a case: per participant its median and best time and its ratio to graphc."""
    with tempfile.TemporaryDirectory() as folder:
        answers = prepare(case, team, Path(folder))
    able = [name for name in team if "error" in answers.get(name, {})]
    samples: dict[str, list[float]] = {name: [] for name in able}
    for turn in range(rounds if "graphc" in able else 0):
        for name in able if turn % 2 else reversed(able):
            answer = team[name].ask(do="time", seconds=block)
            samples[name].append(answer.get("seconds", float("nan")))
    for name, values in samples.items():
        if values and not np.isnan(values).any():
            ratios = [other / own for other, own in zip(values, samples["graphc"])]
            answers[name] |= {"median": statistics.median(values), "best": min(values)}
            answers[name]["ratio"] = statistics.median(ratios)
    return answers


def stored(path: Path, fresh: bool) -> list[dict[str, Any]]:
    return [] if fresh or not path.exists() else json.loads(path.read_text())["results"]


def installed(wanted: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The peers that can run here, and a line for each that cannot."""
    known = [*list(MODULES)[1:], f"{PREFIX}Haswell"]
    here, absent = [], []
    for name in selected(wanted, known, "peer"):
        needs = MODULES.get(name, ("numpy",))
        lacking = next((module for module in needs if find_spec(module) is None), None)
        here += [] if lacking else [name]
        absent += [f"left out: {name} ({lacking} is not installed)"] if lacking else []
    return here, absent


def chosen(only: tuple[str, ...], quick: bool) -> list[str]:
    """The cases whose name holds one of the words, or fits one as a pattern."""
    names = [n for n in CASES if not only or any(o in n or fnmatch.fnmatch(n, o) for o in only)]
    if not names:
        raise click.UsageError(f"no case is called {' or '.join(only)}")
    return [name for name in QUICK if name in CASES] if quick and not only else names


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", "-o", multiple=True, help="Cases with this in their name (repeatable).")
@click.option("--peer", "-p", "names", multiple=True, help="Only this peer (repeatable).")
@click.option("--threads", "-t", multiple=True, type=int, help="Thread counts. [default: 1 2]")
@click.option("--rounds", default=7, show_default=True, help="Turns of every participant.")
@click.option("--block", default=0.005, show_default=True, help="Seconds of a turn.")
@click.option("--quick", is_flag=True, help="Two cases in two turns: does it run?")
@click.option("--fresh", is_flag=True, help="Measure again what an earlier run has measured.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=ROOT / "benchmarks" / "results" / "sweep.json",
    help="Where the JSON goes, and the page beside it. [default: benchmarks/results/sweep.json]",
)
def main(only, names, threads, rounds, block, quick, fresh, as_json, output) -> None:
    """Time graphc beside every peer that is installed, over the whole table; write one page."""
    console = Console(stderr=as_json, width=None if sys.stdout.isatty() else 140)
    here, absent = installed(names or (("numpy",) if quick else ()))
    for line in absent:
        console.print(line)
    counts = list(threads) or ([1] if quick else [1, 2])
    results = stored(output, fresh)
    for count in counts:
        wanted = chosen(only, quick)
        if fresh or only:
            again = {(name, count) for name in wanted}
            results = [r for r in results if (r["case"], r["threads"]) not in again]
        known = {(r["case"], r["threads"]) for r in results}
        planned = [name for name in wanted if (name, count) not in known]
        roof = sweep_report.rates(count) if planned and not quick else None
        with participants(["graphc", *here], count) as team:
            for name in progress(planned, count):
                answers = measure(CASES[name], team, 2 if quick else rounds, block)
                limit = sweep_report.limit(CASES[name], answers, roof)
                results.append({"case": name, "threads": count, "limit": limit, "peers": answers})
                write(output, results)
    write(output, results)
    output.with_suffix(".md").write_text(sweep_report.page(results, machine(), absent))
    if as_json:
        click.echo(json.dumps(results))
        return
    console.print(*sweep_report.summary(results), sep="\n", markup=False)
    console.print(f"written: {output} and .md", highlight=False, soft_wrap=True)


def write(path: Path, results: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps({"machine": machine(), "results": results}) + "\n")
    partial.replace(path)


def progress(names: list[str], threads: int) -> Iterator[str]:
    columns = (TextColumn("{task.description:48}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=len(names))
        for name in names:
            bar.update(task, description=f"{name} x{threads}")
            yield name
            bar.advance(task)


if __name__ == "__main__":
    main()
