"""Mutated dumps of every late stage: is one ever run to harm?

    python -m benchmarks.hostile --count 100000

The stages of many small models are changed by a grammar that knows the syntax of graphs: numbers,
kinds, orders, sizes, places, attributes, types, and whole operands and ops with all types after
them worked out again.  Each is read as a file is, and run in a child process: arguments, results,
constants and the arena end where a page ends that may not be touched, and hold rubbish before.
A mutation must be refused with a GraphError, or give what the reference interpreter makes of the
same graph, whatever the rubbish was.  What does not is printed with the number that makes it again.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.hostile.judge import judge, outcome
from benchmarks.hostile.models import FUNCTIONS, dumps
from benchmarks.hostile.mutations import mutated

BATCH = 2000  # mutations of one child process
MOST_BYTES = 6 << 30  # of a child's address space


def work(first: int, count: int, models: Sequence[str], report: Path) -> None:
    """Judge mutations in this process; what is going on stands in the report."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with report.open("a") as file:
        for seed in range(first, first + count):
            file.write(f"{seed} ")
            file.flush()
            file.write(f"{outcome(seed, models)}\n")
            file.flush()


def batch(first: int, count: int, models: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The outcome of each mutation; a child that dies is followed by another."""
    report = Path(f"/tmp/hostile-{os.getpid()}.txt")
    while count:
        report.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            os.nice(10)
            work(first, count, models, report)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print number --first and judge it")
    parser.add_argument("--models", default=",".join(FUNCTIONS))
    options = parser.parse_args()
    models = options.models.split(",")
    if options.show:
        dump, text = mutated(random.Random(options.first), models)
        print(f"# {dump.model} {dump.stage}\n{text}")
        print(judge(dump, text, options.first))
        return 0
    for model in models:
        dumps(model)
    totals: Counter[str] = Counter()
    started = time.monotonic()
    for first in range(options.first, options.first + options.count, BATCH):
        count = min(BATCH, options.first + options.count - first)
        for seed, text in batch(first, count, models):
            totals[text.split(" ")[0]] += 1
            if is_bad(text):
                print(f"{seed}: {text}", flush=True)
        seconds = time.monotonic() - started
        print(f"{sum(totals.values())} in {seconds:.0f} s: {dict(totals)}", flush=True)
    return 1 if any(map(is_bad, totals)) else 0


if __name__ == "__main__":
    sys.exit(main())
