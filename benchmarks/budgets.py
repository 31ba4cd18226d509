"""Every hostile graph under every command: one GraphError or a result, in little time and memory.

    python -m benchmarks.budgets [--size 1000] [--only WORD] [--seconds 20] [--log FILE] [FILE ...]

Each command runs in a process of its own under a limit of 6 GB of address space.  Every run is
printed when it is over: what went wrong (a traceback, a crash, too long, over 400 MB), seconds of
the processor, memory; the worst of each kind come last.  With --log the runs stand in a file of
JSON lines, too, and those that stand there already are not run again.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.hostile_graphs import graphs

MOST_BYTES = 400 << 20
ADDRESS_SPACE = 6 << 30
COMMANDS = {
    "audit": ("audit", "{model}"),
    "show": ("show", "{model}"),
    "compile": ("compile", "{model}", "-o", "{model}.gcx", "--time-limit", "{seconds}"),
    "run": ("run", "{model}", "--seed", "0", "--time-limit", "{seconds}"),
}


class Run(NamedTuple):
    name: str
    command: str
    status: int | None  # None: killed after the time
    seconds: float
    nbytes: int
    last: str

    @property
    def trouble(self) -> str | None:
        if self.status is None:
            return "runs on"
        if self.status not in (0, 1):
            return f"status {self.status}"
        if self.status == 1 and "Traceback" in self.last:
            return "traceback"
        return "memory" if self.nbytes > MOST_BYTES else None

    def __str__(self) -> str:
        spent = f"{self.seconds:6.1f} s {self.nbytes / 2**20:5.0f} MB"
        row = f"{self.trouble or '':12} {spent}  {self.command:8} {self.name}"
        return row if self.trouble is None else f"{row}: {self.last[-160:]!r}"


def run(name: str, command: str, model: Path, seconds: float) -> Run:
    given = [part.format(model=model, seconds=seconds) for part in COMMANDS[command]]
    program = [sys.executable, "-m", "graphc", *given]
    limits = (ADDRESS_SPACE, ADDRESS_SPACE)
    deadline = time.monotonic() + 10 * seconds + 60
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            program,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
        )
        status, used = _wait(process, deadline)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    spent = used.ru_utime + used.ru_stime if used else seconds
    return Run(name, command, status, spent, used.ru_maxrss * 1024 if used else 0, text[-600:])


def _wait(process: subprocess.Popen[Any], deadline: float) -> tuple[int | None, Any]:
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            return None, None
        time.sleep(0.01)


def recorded(log: Path | None) -> dict[tuple[str, str], Run]:
    """The runs of a log, by graph and command."""
    rows = log.read_text().splitlines() if log and log.exists() else []
    found = [Run(*json.loads(row)) for row in rows]
    return {(made.name, made.command): made for made in found}


def worst(runs: list[Run]) -> None:
    """Print the longest and the largest run of each command."""
    bad = sum(found.trouble is not None for found in runs)
    click.echo(
        f"{len(runs)} runs of {len({found.name for found in runs})} graphs, {bad} of them bad"
    )
    for command in COMMANDS:
        mine = [found for found in runs if found.command == command]
        if not mine:
            continue
        slow, big = max(mine, key=lambda r: r.seconds), max(mine, key=lambda r: r.nbytes)
        click.echo(
            f"{command:8} worst time {slow.seconds:.1f} s ({slow.name}), "
            f"worst memory {big.nbytes / 2**20:.0f} MB ({big.name})"
        )


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--size", default=1000, help="How much each graph asks for.")
@click.option("--only", default="", help="Graphs with this in their names.")
@click.option("--seconds", default=20.0, help="The time limit of a command.")
@click.option("--log", type=click.Path(path_type=Path), help="Where runs are kept and found.")
def main(files: tuple[Path, ...], size: int, only: str, seconds: float, log: Path | None) -> None:
    """Run them all."""
    made = [(path.stem, path.read_text()) for path in files] or list(graphs(size))
    known, runs = recorded(log), []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.gir"
        for (name, text), command in itertools.product(made, COMMANDS):
            if only not in name:
                continue
            found = known.get((name, command))
            if found is None:
                model.write_text(text)
                found = run(name, command, model, seconds)
                click.echo(str(found))
                if log:
                    with log.open("a") as file:
                        file.write(json.dumps(found) + "\n")
            runs.append(found)
    worst(runs)


if __name__ == "__main__":
    main()
