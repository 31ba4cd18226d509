"""`graphc launch` and `graphc top`, run as users run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphc as gc
from graphc.cli.cluster import COLUMNS, LINK_COLUMNS, link_rows, row

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers need Linux")

SCRIPT = """
import json, subprocess, sys
import numpy as np, graphc as gc
with gc.cluster.from_environment(threads=1) as cluster:
    total = gc.compile(lambda x: x.sum(), devices=cluster.devices)(np.ones(4))
    top = [sys.executable, "-m", "graphc", "top", "--times", "1", "--seconds", "0.01", "--json"]
    seen = json.loads(subprocess.run(top, capture_output=True, check=True).stdout)
    seen = [each["state"] for each in seen["workers"] if each["pid"] in cluster.pids]
    print(json.dumps([len(cluster.pids), float(total), sys.argv[1:], seen]))
sys.exit(7)
"""


def launch(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphc", "launch", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_a_script_gets_workers_arguments_and_its_own_status(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = launch("--json", "-n", 2, script, "--rate", "0.1", "-n", "5")
    first, _, rest = done.stdout.partition("\n")
    said, told = json.loads(first), json.loads(rest)
    assert said == [2, 4.0, ["--rate", "0.1", "-n", "5"], ["waits", "waits"]], done.stderr
    assert told["status"] == done.returncode == 7


def test_without_the_environment_it_says_what_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "three", "-1", "\u0663"):
        monkeypatch.setenv("GRAPHC_WORKERS", text)
        with pytest.raises(gc.GraphError, match="GRAPHC_WORKERS") as error:
            gc.cluster.from_environment()
        assert "graphc launch" in str(error.value)


def test_rates_are_of_what_happened_between_two_looks() -> None:
    first = {"client": 1, "pid": 2, "asked": 5, "done": 5, "step": 5, "sent": 0, "memory": 3e6}
    later = {**first, "asked": 26, "done": 25, "sent": 4_000_000, "step": 26}
    assert row(first, later, 2.0) == dict(zip(COLUMNS, (1, 2, 10.0, 2.0, 3.0, "in step 26")))
    assert row(None, first, 2.0)["steps_per_second"] == 0


def test_links_are_told_between_two_looks() -> None:
    link = {"source": 0, "target": -1, "bytes": 5, "sender_waited": 0, "taker_waited": 10**9}
    later = {**link, "bytes": 4_000_005, "taker_waited": 2 * 10**9}
    new = {**link, "source": 1}
    before, now = ({7: {"client": 3, "links": links}} for links in ([link], [later, new]))
    told = (3, 0, -1, 2.0, "0 %", "50 %"), (3, 1, -1, 0.0, "0 %", "0 %")
    assert link_rows(before, now, 2.0) == [dict(zip(LINK_COLUMNS, each)) for each in told]
    assert link_rows({}, now, 2.0)[0]["mb_per_second"] == 0
