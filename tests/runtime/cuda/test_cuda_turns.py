"""Loops of a known length that the device goes through: their graphs, and what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import CHIP, FakeCuda, fake, shape
from gpu_programs import ALONE, FAIL, INCREMENT, LESS, NBYTES, WHOLE, X, image, vector

from graphc.base.record import replace
from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.load.program import Image, Origin
from graphc.runtime.load.table import ABSENT, ARENA, TableBuilder
from graphc.runtime.tuning import tuned

__all__ = ["fake"]

READS, WRITES = (NBYTES, False), (NBYTES, True)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four launches in a turn, and loops of so few rounds that they are seen in full."""
    monkeypatch.setattr(tuned, "turn_acts", 6)
    monkeypatch.setattr(tuned, "straight_acts", 8)


def stacked(count: int, *, reverse: bool = False, **options: Any) -> Image:
    """y[k] = x + 1 + k, in order or the other way round: a carry that changes places, and slices
    of a result."""
    table, extents = TableBuilder(), {}
    table.set(4, (2, 0))
    table.set(5, (ARENA, 0))
    table.set(6, (ARENA, 64))
    table.set(7, (ABSENT, count))
    table.set(8, (3, NBYTES * (count - 1) if reverse else 0))
    top = table.call(INCREMENT, [(4, 0), (5, 0)], **WHOLE)
    extents[top] = READS, WRITES
    table.copy(NBYTES, (8, 0), (5, 0))
    table.rotate(4, 5, 6)
    table.bump(8, -NBYTES if reverse else NBYTES)
    table.loop(7, top)
    table.end()
    given = {"registers": 5, "results": (vector("y", 4 * count),), "extents": extents, **options}
    return image(CHIP, table, **given)


def wanted(count: int, reverse: bool) -> np.ndarray:
    rows = [X + 1 + k for k in range(count)]
    return np.concatenate(rows[::-1] if reverse else rows)


def nodes(graph: Any) -> int:
    """How many there are in all."""
    return sum(1 if isinstance(each, str) else sum(map(nodes, each[1:])) for each in graph)


@pytest.mark.parametrize("reverse", [False, True])
def test_any_length(fake: FakeCuda, reverse: bool) -> None:
    for count in (1, 2, 3, 7, 8, 9, 12, 30, 31, 200):
        executable = Executable(stacked(count, reverse=reverse))
        for _ in range(3):
            np.testing.assert_array_equal(executable(X), wanted(count, reverse))


def test_a_turn_is_a_body(fake: FakeCuda) -> None:
    """The graph of 400 rounds is that of 40, and a first run launches no more."""
    sizes = []
    for count in (40, 400):
        fake.graphs.clear()
        fake.calls.clear()
        executable = Executable(stacked(count))
        np.testing.assert_array_equal(executable(X), wanted(count, False))
        (graph,) = fake.graphs
        sizes.append((nodes(shape(graph)), fake.count("cuLaunchKernel")))
    assert sizes[0] == sizes[1]
    *_, begin, decide, loop = shape(graph)
    turn = ["increment", "copy"] * 2
    assert (begin, decide) == ("begin", "decide")
    assert loop == ("while", ["move", *turn, "move", "advance", "decide"])


def test_loops_in_turns(fake: FakeCuda) -> None:
    """Rows of columns: the inner slices move in both loops."""
    rows, columns = 30, 20
    table, extents = TableBuilder(), {}
    table.copy(NBYTES, (ARENA, 0), (2, 0))
    table.set(4, (ABSENT, rows))
    table.set(5, (3, 0))
    outer = table.set(6, (5, 0))
    table.set(7, (ABSENT, columns))
    inner = table.call(INCREMENT, [(ARENA, 0), (ARENA, 0)], **WHOLE)
    extents[inner] = READS, WRITES
    table.copy(NBYTES, (6, 0), (ARENA, 0))
    table.bump(6, NBYTES)
    table.loop(7, inner)
    table.bump(5, NBYTES * columns)
    table.loop(4, outer)
    table.end()
    results = (vector("y", 4 * rows * columns),)
    executable = Executable(image(CHIP, table, registers=4, results=results, extents=extents))
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), wanted(rows * columns, False))
    (graph,) = fake.graphs
    body = shape(graph)[-1][1]
    assert body[0] == "move" and any(each[0] == "while" for each in body)


def test_large_slices_make_short_turns(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rounds would need more memory than there is for them, two have it."""
    monkeypatch.setattr(tuned, "turn_acts", 12)
    monkeypatch.setattr(tuned, "near_most", 4 * NBYTES)
    executable = Executable(stacked(60))
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), wanted(60, False))
    assert shape(fake.graphs[0])[-1][1].count("increment") == 2


@pytest.mark.parametrize("change", ["extents", "memory", "driver"])
def test_rounds_one_by_one(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Where sizes are not known, slices are large, or the driver is old."""
    made = stacked(50)
    if change == "extents":
        made = replace(made, extents={})
    elif change == "memory":
        monkeypatch.setattr(tuned, "near_most", NBYTES)
    else:
        monkeypatch.setattr(fake, "cuDriverGetVersion", lambda: (0, 12070))
    executable = Executable(made)
    for _ in range(3):
        np.testing.assert_array_equal(executable(X), wanted(50, False))
    assert fake.rounds == 0


def test_slices_that_meet_what_stays(fake: FakeCuda) -> None:
    """A round writes a slice of the result and reads its last one: no copy may stand for that."""
    count = 40
    table, extents = TableBuilder(), {}
    table.copy(NBYTES, (3, NBYTES * (count - 1)), (2, 0))
    table.set(4, (ABSENT, count))
    table.set(5, (3, 0))
    top = table.call(INCREMENT, [(3, NBYTES * (count - 1)), (5, 0)], **WHOLE)
    extents[top] = READS, WRITES
    table.bump(5, NBYTES)
    table.loop(4, top)
    table.end()
    results = (vector("y", 4 * count),)
    executable = Executable(image(CHIP, table, registers=2, results=results, extents=extents))
    np.testing.assert_array_equal(executable(X), np.tile(X + 1, count))
    assert fake.rounds == 0


def test_a_choice_by_addresses_changes_once(fake: FakeCuda) -> None:
    """Rounds that go another way when a register has come to some address are no turns."""
    count = 40
    table, extents = TableBuilder(), {}
    table.set(4, (ABSENT, count))
    table.set(5, (3, 0))
    top = table.same((5, 0), (3, NBYTES * (count - 2)))
    row = table.call(INCREMENT, [(2, 0), (5, 0)], **WHOLE)
    end = table.jump()
    table.patch(top, table.position)
    table.copy(NBYTES, (5, 0), (2, 0))
    table.patch(end, table.position)
    table.bump(5, NBYTES)
    table.loop(4, top)
    table.end()
    extents[row] = READS, WRITES
    results = (vector("y", 4 * count),)
    executable = Executable(image(CHIP, table, registers=2, results=results, extents=extents))
    rows = np.tile(X, (count, 1))
    rows[count - 2] += 1
    np.testing.assert_array_equal(executable(X), rows.ravel())
    assert fake.rounds == 0


def test_branches_in_turns(fake: FakeCuda) -> None:
    """Add one to a carry while it is below 20, for 50 rounds."""
    table, extents = TableBuilder(), {}
    table.copy(NBYTES, (3, 0), (2, 0))
    table.set(4, (ABSENT, 50))
    top = table.call(LESS, [(3, 0), (ARENA, 0)], params=0, **ALONE)
    skip = table.branch((ARENA, 0))
    row = table.call(INCREMENT, [(3, 0), (3, 0)], **WHOLE)
    end = table.jump()
    table.patch(skip, table.position)
    table.patch(end, table.position)
    table.loop(4, top)
    table.end()
    extents |= {top: (READS, (1, True)), row: (READS, WRITES)}
    executable = Executable(image(CHIP, table, [20], registers=1, extents=extents))
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), X + 19)
    assert fake.rounds > 0


def test_a_failure_ends_the_turns(fake: FakeCuda) -> None:
    table = TableBuilder()
    table.set(4, (ABSENT, 1000))
    top = table.call(FAIL, [], params=0, **ALONE)
    table.loop(4, top)
    table.end()
    origins = {top: Origin("%7 = gather(%1, %2)", "model.py", 12)}
    made = image(CHIP, table, [1], registers=1, origins=origins, extents={top: ()})
    with pytest.raises(RunError, match="out of range") as found:
        Executable(made)(X)
    assert found.value.location == ("model.py", 12) and fake.rounds == 0


def test_extents_that_cannot_be(fake: FakeCuda) -> None:
    made = stacked(10)
    (row,) = made.extents
    for wrong in ({row: (READS,)}, {row + 1: (READS, WRITES)}, {row: (READS, (-1, True))}):
        with pytest.raises(GraphError, match="operands"):
            replace(made, extents=wrong).check()


def test_extents_are_kept_in_files(fake: FakeCuda, tmp_path: Path) -> None:
    made = stacked(10)
    gcx_writer.save(made, tmp_path / "f.gcx")
    assert dict(gcx_files.read(tmp_path / "f.gcx").extents) == dict(made.extents)
