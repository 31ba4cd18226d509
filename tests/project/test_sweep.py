"""The sweep: its table, a quick run, and what its page says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from effort import few

from benchmarks import sweep, sweep_peers, sweep_report
from benchmarks.__main__ import machine
from benchmarks.sweep_table import CASES
from benchmarks.worker import difference

SMALL = [n for n in CASES if not any(word in n for word in ("memory", "L3", "model", "000"))]


def test_the_table_has_every_family() -> None:
    assert len(CASES) >= 300
    families = {name.split("/")[0] for name in CASES}
    assert {"elementwise", "reduce", "layout", "product", "linalg", "sort", "random"} <= families
    assert {"fft", "image", "layer", "model", "gather", "search", "move"} <= families


@pytest.mark.parametrize("name", few(SMALL, 8))
def test_cases_run_and_agree_with_numpy(name: str) -> None:
    case = CASES[name]
    arguments = case.arguments(np.random.default_rng(0))
    found = sweep_peers.fetch(sweep_peers.prepare("graphc", case, arguments, 1)())
    if case.function is not None and case.judge == "values":
        assert difference(found, case.function(*arguments)) <= max(case.tolerance, 1e-6)


def test_a_quick_run_writes_its_page_and_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    for _ in range(2):
        done = CliRunner().invoke(sweep.main, ["--quick", "--json", "--output", str(path)])
        assert done.exit_code == 0, done.output
        results = json.loads(done.stdout)
        assert [r["peers"]["numpy"]["error"] < 1e-5 for r in results] == [True, True]
    assert "| elementwise/add-tiny-f32 |" in path.with_suffix(".md").read_text()


def test_a_participant_that_dies_fails_its_case_and_is_started_again() -> None:
    with sweep.participants(["numpy"], 1) as team:
        assert "failed" in team["numpy"].ask(do="nothing")
        assert team["numpy"].process is not None
        team["numpy"].process.kill()
        assert team["numpy"].ask(do="time", seconds=0)["failed"] == "its process died"
        assert "seconds" in team["numpy"].ask(do="time", seconds=0)


def test_who_is_not_on_turn_is_stopped() -> None:
    with sweep.participants(["numpy", "graphc"], 2) as team:
        for member in team.values():
            member.ask(do="prepare", case="elementwise/add-tiny-f32", file="/dev/null")
        for member in team.values():
            assert member.process is not None
            tasks = Path(f"/proc/{member.process.pid}/task")
            states = {(task / "stat").read_text().rpartition(")")[2][1] for task in tasks.iterdir()}
            assert states == {"T"}


def test_unknown_cases_and_peers_are_refused() -> None:
    for arguments in (["--only", "nothing-like-it"], ["--peer", "nobody"]):
        assert CliRunner().invoke(sweep.main, arguments).exit_code == 2


def test_the_page_has_the_worst_first_and_says_what_failed() -> None:
    def row(case: str, ratio: float) -> dict[str, object]:
        peers = {"graphc": {"median": 1e-3}, "numpy": {"ratio": ratio}, "jax": {"failed": "no"}}
        return {"case": case, "threads": 1, "limit": 5e-4, "peers": peers}

    page = sweep_report.page([row("good", 2.0), row("bad", 0.5)], machine(), ["left out: x"])
    assert page.index("| bad |") < page.index("| good |")
    assert "- good, jax: no" in page
    assert "left out: x" in page
    assert "50% at or above the best peer" in page
