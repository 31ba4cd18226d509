"""A plugin of pytest that says which tests take CPU time, in all workers and their processes:

    PYTHONPATH=tests/support python -m pytest -p cpu_seconds -n 3 --dist worksteal

Seconds on the clock depend on what else the machine does, these only a little.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

FILE = "CPU_SECONDS"  # where workers find the name of the file that all write to
ROWS = 30


def used() -> float:
    """CPU seconds of this process so far, and of those it has waited for."""
    return sum(
        found.ru_utime + found.ru_stime
        for found in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def note(name: str, seconds: float) -> None:
    with open(os.environ[FILE], "a", encoding="utf-8") as file:
        file.write(json.dumps([name, seconds]) + "\n")


def pytest_configure() -> None:
    if FILE not in os.environ:
        os.environ[FILE] = str(Path(tempfile.mkdtemp()) / "rows")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    result = yield
    note("(start and collection)", used())
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = used()
    result = yield
    note(item.nodeid, used() - before)
    return result


def tables(rows: list[tuple[str, float]]) -> Iterator[str]:
    """By folder, by file and by test, the longest first."""
    for depth, title in ((2, "folders"), (9, "files"), (0, "tests")):
        sums: dict[str, float] = defaultdict(float)
        for name, seconds in rows:
            path = name.partition("::")[0]
            sums["/".join(path.split("/")[:depth]) if depth else name] += seconds
        yield f"CPU seconds of {title}: {sum(sums.values()):.1f}"
        longest = sorted(sums.items(), key=lambda row: -row[1])[:ROWS]
        yield from (f"{seconds:9.2f}  {name}" for name, seconds in longest)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = Path(os.environ[FILE]).read_text(encoding="utf-8").splitlines()
    for line in tables([tuple(json.loads(line)) for line in lines]):
        terminalreporter.write_line(line)
