"""Mutations are judged in child processes: one that dies is reported, and followed by another."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

BATCH = 2000  # mutations of one child process
MOST_BYTES = 6 << 30  # of a child's address space
Outcome = Callable[[int], str]


def work(first: int, count: int, outcome: Outcome, report: Path) -> None:
    """Judge mutations in this process; what is going on stands in the report."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with report.open("a") as file:
        for seed in range(first, first + count):
            file.write(f"{seed} ")
            file.flush()
            file.write(f"{outcome(seed)}\n")
            file.flush()


def batch(first: int, count: int, outcome: Outcome) -> Iterator[tuple[int, str]]:
    """The outcome of each mutation; a child that dies is followed by another."""
    report = Path(f"/tmp/hostile-{os.getpid()}.txt")
    while count:
        report.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            os.nice(10)
            work(first, count, outcome, report)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = [row.partition(" ") for row in report.read_text().splitlines()]
        for seed, _, text in found:
            yield int(seed), text or f"DEATH by signal {os.waitstatus_to_exitcode(status)}"
        done = len(found)
        first, count = first + done, count - done
    report.unlink(missing_ok=True)


def is_bad(text: str) -> bool:
    return text.split(" ")[0].isupper()


def campaign(first: int, count: int, outcome: Outcome) -> bool:
    """Judge so many mutations, print what is bad and totals; whether nothing was."""
    totals: Counter[str] = Counter()
    started = time.monotonic()
    for start in range(first, first + count, BATCH):
        for seed, text in batch(start, min(BATCH, first + count - start), outcome):
            totals[text.split(" ")[0]] += 1
            if is_bad(text):
                print(f"{seed}: {text}", flush=True)
        seconds = time.monotonic() - started
        print(f"{sum(totals.values())} in {seconds:.0f} s: {dict(totals)}", flush=True)
    return not any(map(is_bad, totals))
