"""Schedules of pipelines: the tables of the papers, their bubbles, what they hold, their text."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from graphc.errors import GraphError
from graphc.ops.control.pipelined import CHECKPOINTS
from graphc.passes.pipelining.predict import Prediction, predict
from graphc.passes.pipelining.timetable import (
    MAKERS,
    Action,
    Timetable,
    check_timetable,
    clocks,
    needs,
    parse_timetable,
    timetable,
)

HOMES = [[0], [0, 1], [0, 1, 2, 3], [0, 1, 0, 1], [0, 1, 0], [1, 0, 1, 0, 2], [0, 0, 0]]
CASES = [
    timetable(name, len(home), chunks, home)
    for name, home, chunks in product(MAKERS, HOMES, (1, 2, 3, 8))
]


def one(action: Action) -> float:
    return 1.0


def test_clock_tables() -> None:
    """(chunk, stage) of every clock cycle, for 3 chunks of 3 stages and 4 chunks of 2."""
    assert clocks(3, 3) == [
        [(0, 0)],
        [(1, 0), (0, 1)],
        [(2, 0), (1, 1), (0, 2)],
        [(2, 1), (1, 2)],
        [(2, 2)],
    ]
    assert clocks(2, 4) == [
        [(0, 0)],
        [(1, 0), (0, 1)],
        [(2, 0), (1, 1)],
        [(3, 0), (2, 1)],
        [(3, 1)],
    ]


@pytest.mark.parametrize(
    ("stages", "chunks", "bubble"), [(2, 4, 0.2), (4, 4, 0.4286), (4, 32, 0.0857), (8, 32, 0.1795)]
)
def test_bubbles(stages: int, chunks: int, bubble: float) -> None:
    """(K - 1) / (M + K - 1), whatever a backward pass takes; ZB-H1 fills two thirds of it."""
    for name in ("gpipe", "1f1b"):
        found = predict(timetable(name, stages, chunks))
        assert round(found.bubble, 4) == bubble
        assert predict(timetable(name, stages, chunks), one).bubble == pytest.approx(found.bubble)
    idle = predict(timetable("zb-h1", stages, chunks)).makespan - 3 * chunks
    assert idle == stages - 1  # (K - 1) (F + I - W); of 1F1B it is (K - 1) (F + I + W)
    assert predict(timetable("1f1b", stages, chunks)).makespan - 3 * chunks == 3 * (stages - 1)


def test_stages_of_one_device_shrink_the_bubble() -> None:
    home = [0, 1, 2, 3] * 2
    found = predict(timetable("interleaved", 8, 8, home), lambda action: 0.5)
    assert found.makespan == 8 * 2 + (4 - 1) * 2 / 2  # (K - 1) (F + B) / V
    assert predict(timetable("1f1b", 4, 8), one).makespan == 8 * 2 + (4 - 1) * 2


def test_a_hundred_images() -> None:
    """Two devices of 10 s each: in ten chunks the second begins after 1 s, and all takes 11 s."""
    piped = predict(timetable("gpipe", 2, 10, trains=False), one)
    assert piped.makespan == 11
    assert piped.start[Action("F", 1, 0)] == 1
    assert predict(timetable("gpipe", 2, 1, trains=False), lambda action: 10.0).makespan == 20


def test_the_sum_of_the_stages_and_the_slowest_again_for_every_further_chunk() -> None:
    """3 + 5 + 4 and seven times 5, for eight chunks."""
    seconds = [3.0, 5.0, 4.0]
    table = timetable("gpipe", 3, 8, trains=False)
    assert predict(table, lambda action: seconds[action.stage]).makespan == 12 + 7 * 5


def test_what_is_held() -> None:
    for stages, chunks in product((1, 2, 4, 8), (1, 4, 16)):
        gpipe, eager = (timetable(name, stages, chunks) for name in ("gpipe", "1f1b"))
        late = timetable("zb-h1", stages, chunks)
        for stage in range(stages):
            assert gpipe.held(stage) == chunks
            assert eager.held(stage) == min(chunks, stages - stage)
            assert late.held(stage) == min(chunks, stages)
            assert gpipe.checkpointed("always").held(stage) == 1


def test_recompute_counts() -> None:
    for name, chunks in product(MAKERS, (1, 4)):
        table = timetable(name, 3, chunks)
        counts = [table.checkpointed(mode).recomputed(1) for mode in CHECKPOINTS]
        assert counts == [chunks, chunks - 1, 0]
    assert timetable("gpipe", 3, 4, trains=False).checkpointed("always").recomputed(0) == 0
    with pytest.raises(GraphError, match="always, except_last, never"):
        table.checkpointed("sometimes")


def test_what_is_run_again_waits_for_no_gradient() -> None:
    """It overlaps the backward pass of the next stage."""
    found = predict(timetable("gpipe", 2, 4).checkpointed("always"))
    assert found.start[Action("R", 0, 2)] < found.end[Action("B", 1, 2)]
    assert found.end[Action("R", 0, 2)] > found.start[Action("B", 1, 2)]
    four_thirds = predict(timetable("gpipe", 1, 4).checkpointed("always")).makespan
    assert four_thirds / predict(timetable("gpipe", 1, 4)).makespan == pytest.approx(4 / 3)


@pytest.mark.parametrize("table", CASES, ids=lambda t: f"{t.name}-{t.home}-{t.chunks}")
def test_every_schedule_can_be_run_and_read(table: Timetable) -> None:
    for mode in CHECKPOINTS:
        made = check_timetable(table.checkpointed(mode))
        text = str(made)
        assert parse_timetable(text) == made
        assert str(parse_timetable(text)) == text
        check_times(predict(made))


def check_times(found: Prediction) -> None:
    """Nothing starts before what it needs, and a device does one thing at a time."""
    for action, start in found.start.items():
        assert all(found.end[other] <= start for other in needs(found.table, action))
    for row in found.table.rows:
        for before, action in pairwise(row):
            assert found.end[before] <= found.start[action]


def test_transfers_take_time_on_their_links() -> None:
    table = timetable("gpipe", 2, 3, trains=False)
    found = predict(table, one, lambda source, target: 2.0)
    assert found.start[Action("F", 1, 0)] == 3
    assert found.start[Action("F", 1, 2)] == 7  # the link carries one chunk after the other
    late = predict(table, one, lambda source, target: 0.25, lockstep=True)
    assert late.start[Action("F", 1, 0)] == 1.25


def test_copies_in_lockstep_make_no_later_chunk_wait_longer() -> None:
    """All stages of a clock cycle have done their part before anything is copied for the next."""
    stages, chunks = 4, 8
    table = timetable("gpipe", stages, chunks, trains=False)
    found = predict(table, one, lambda source, target: 0.5, lockstep=True)
    cycles = clocks(stages, chunks)
    for before, cycle in pairwise(cycles):
        done = max(found.end[Action("F", s, j)] for j, s in before)
        assert all(found.start[Action("F", s, j)] >= done + 0.5 for j, s in cycle if s)
    last = [Action("F", stages - 1, j) for j in range(chunks)]
    assert {found.start[b] - found.end[a] for a, b in pairwise(last)} == {0.5}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0F0 0B0 0B0", "does 0B0 twice"),
        ("0F0 0B0\n1F0", "does F for stage 1 of chunk 0"),
        ("0F0 0I0", "does F, I for stage 0"),
        ("0B0 0F0", "never gets to 0B0: it comes after 0F0"),
        ("0F0 0B0 0F1 0B1 | 1F1", "'|' in .* is no action"),
        ("0F0 2F0", "no stage 1"),
        ("0F0 0F1\n1F1 1F0 0F2", "stage 0 on device 0 and on device 1"),
        ("0F0 1B", "'1B' in '0F0 1B' is no action"),
        ("", "'' is no schedule"),
        ("1F0 1B0\n0F0 0B0\n", None),
    ],
)
def test_what_is_no_schedule(text: str, problem: str | None) -> None:
    if problem is None:
        assert parse_timetable(text).home == (1, 0)
        return
    with pytest.raises(GraphError, match=problem):
        parse_timetable(text)


def test_bad_names_and_numbers() -> None:
    with pytest.raises(GraphError, match="schedules are gpipe, 1f1b, interleaved, zb-h1"):
        timetable("gpip", 2, 2)
    for stages, chunks in ((0, 1), (1, 0)):
        with pytest.raises(GraphError, match="one stage or more"):
            timetable("gpipe", stages, chunks)
    with pytest.raises(GraphError, match="are more than"):
        timetable("gpipe", 1000, 1000)
