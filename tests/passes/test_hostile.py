"""Hostile graphs: each ends in a GraphError or in what the reference makes of it, within bounds.

The suite takes small ones, a few of each kind; GRAPHC_FUZZ=12 takes all of them, and
`python -m benchmarks.budgets` runs large ones under every command.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from effort import EFFORT
from project import ROOT

from benchmarks.hostile_graphs import SOURCES, graphs

SHARE = max(1, round(12 / EFFORT))
CHILD = """
import re, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import numpy as np
from benchmarks.hostile_graphs import graphs
from graphc import limits
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.files.gir_files import parse, show
from graphc.ops.reference.interpreter import interpret

def peak():
    # In megabytes; where Linux tells them, without those of the process that started this one.
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\\s+(\\d+)", status.read_text() if status.exists() else "")
    most = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024

first, share = map(int, sys.argv[1:])
config = Config.create(stack_bytes=1 << 20, threads=1)

def run(name, text):
    graph = parse(text)
    assert parse(show(graph)) is not None
    loaded = LoadedGraph(graph, config)
    if sum(kind.nbytes for kind in loaded.types) > 1 << 28:
        loaded.build()
        return
    values = [np.ones(kind.dims, kind.dtype.numpy) for kind in loaded.types]
    built = loaded.build(*(v.shape for v in values))
    if "scan" in name and name.endswith(("483648", "710656")) or "huge" in name:
        return  # they would run for hours, until they are stopped
    got = loaded.run(values)
    with np.errstate(all="ignore"):
        wanted = interpret(graph, values)
    for one, other in zip(got, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=name)

refused = 0
for number, (name, text) in enumerate(graphs(1)):
    if number % share != first:
        continue
    try:
        run(name, text)
    except GraphError as error:
        refused += 1
        assert len(str(error)) < 6000, name
    except BaseException as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
print(refused, peak())
"""


def test_there_are_enough_of_them() -> None:
    names = [name for name, _ in graphs(1)]
    assert len(set(names)) == len(names) >= 249
    assert {name.split(":")[0] for name in names} == {source.__name__ for source in SOURCES}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1))
def test_hostile_graphs_are_right_or_refused(first: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(first), str(SHARE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    *wrong, last = done.stdout.strip().split("\n") or ["nothing"]
    assert not wrong, wrong
    assert done.returncode == 0, done.stderr[-2000:]
    refused, megabytes = map(int, last.split())
    assert refused > 0
    assert megabytes < 400
