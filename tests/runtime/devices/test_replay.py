"""Runs of several devices are recorded and done again with the same bits; orders drawn at random
show planted races, and show them again each time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_programs import X, made, ping_pong, there_and_back

import graphc as gc
from graphc.base.record import replace
from graphc.runtime.devices.multi_device import MultiDeviceExecutable
from graphc.runtime.devices.ready_segments import Agenda
from graphc.runtime.load.table import END, rows
from graphc.runtime.observe import replay
from graphc.runtime.observe.trace import trace


def crossing(x: Any) -> Any:
    """Twelve products, each made of what the other device has made."""
    parts = []
    for k in range(6):
        with gc.device(f"cpu:{k % 2}"):
            y = np.tanh(x * (k + 1))
        with gc.device(f"cpu:{(k + 1) % 2}"):
            parts.append(y @ x)
    with gc.device("cpu:0"):
        return sum(parts)


def learned(x: Any) -> Any:
    """The gradient of a loop on two devices: stacks, registers and messages in loops."""

    def body(c: Any, row: Any) -> Any:
        with gc.device("cpu:1"):
            c = np.tanh(c * row)
        with gc.device("cpu:0"):
            return c + 1, c

    return gc.grad(lambda x: gc.scan(body, x[0], x)[0].sum())(x)


def branching(x: Any) -> Any:
    def yes(x: Any) -> Any:
        with gc.device("cpu:1"):
            return np.exp(x)

    return gc.cond(x.sum() > 0, yes, lambda x: x * 2, x), gc.while_loop(
        lambda s: s[1] < 4, lambda s: (yes(-abs(s[0])), s[1] + 1), (x, np.int64(0))
    )[0]


PROGRAMS = (there_and_back, ping_pong, crossing, learned, branching)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_a_native_run_is_done_again_with_the_same_bits(function: Any, tmp_path: Path) -> None:
    run = made(function, X)
    wanted = run.run([X])
    results, found = replay.recorded(run, [X])
    assert all(map(np.array_equal, results, wanted))
    replay.write(found, tmp_path / "r.json")
    again, _ = replay.read(tmp_path / "r.json")
    assert again.order() == found.order() and again.results == found.results
    assert all(map(np.array_equal, replay.replayed(run, [X], again), wanted))
    assert {r.results for r in replay.explored(run, [X], 30)} == {found.results}
    assert all(map(np.array_equal, run.run([X]), wanted))  # nothing is left behind


def test_the_timeline_is_that_of_the_run() -> None:
    run = made(crossing, X)
    _, found = replay.recorded(run, [X])
    events = replay.timeline(run, found).events
    kinds = {event.kind for event in events}
    assert {"kernel", "send", "transfer"} <= kinds
    _, other = trace(run, [X])
    assert sum(e.kind == "kernel" for e in events) == sum(e.kind == "kernel" for e in other.events)
    (drawn,) = islice(replay.explored(run, [X], 3), 2, 3)
    assert sum(e.kind == "send" for e in replay.timeline(run, drawn).events) == sum(
        e.kind == "send" for e in events
    )


def test_a_recording_is_bounded() -> None:
    run = made(ping_pong, X)
    results, found = replay.recorded(run, [X], room=50)
    assert all(len(marks) == 50 for marks in found.marks) and found.dropped > 100
    assert all(map(np.array_equal, replay.replayed(run, [X], found), results))


def test_variables_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with gc.container("replayed"):
        total = gc.Variable(np.zeros(4, np.float32), name="total")

    def step(x: Any) -> Any:
        with gc.device("cpu:1"):
            y = total.assign_add(x)
        gc.print("{}", y[0])
        return y * 2

    x = np.ones(4, np.float32)
    run = made(step, x)
    _, found = replay.recorded(run, [x])
    assert replay.outcome(run, [x], found) == found.results == replay.outcome(run, [x], found)
    assert np.asarray(total.value).tolist() == [0] * 4
    assert capsys.readouterr().out == "1.0\n" * 3
    gc.reset_container("replayed")


def test_a_failure_is_done_again() -> None:
    def far(x: Any, k: Any) -> Any:
        with gc.device("cpu:1"):
            y = np.tanh(x)[k]
        with gc.device("cpu:0"):
            return y + 1

    k = np.int64(99)
    run = made(far, X, k)
    with pytest.raises(gc.RunError, match="out of range"):
        replay.recorded(run, [X, k])
    for found in replay.explored(run, [X, k], 3):
        assert "out of range" in found.results[0]
        with pytest.raises(IndexError, match=r"out of range.*on cpu:1"):
            replay.replayed(run, [X, k], found)


# ------------------------------------------------------------------------------------ races


def early(run: MultiDeviceExecutable) -> Iterator[Callable[[], None]]:
    """A piece that does not wait for one of those that it comes after."""
    for part in run.parts:
        agenda = part.agenda
        for k, waits in enumerate(agenda.counts if agenda is not None else ()):
            if agenda is not None and waits > 1:
                counts = [count - (j == k) for j, count in enumerate(agenda.counts)]
                made_early = Agenda(agenda.rows, counts, agenda.messages)
                yield lambda part=part, planted=made_early: setattr(part, "agenda", planted)


def uncopied(run: MultiDeviceExecutable) -> Iterator[Callable[[], None]]:
    """Messages of a loop that are read where they were made, when others may lie there."""
    channels = tuple(replace(channel, buffered=False) for channel in run.image.channels)
    yield lambda: setattr(run, "image", replace(run.image, channels=channels))


def overtaking(x: Any) -> Any:
    """A loop that makes what it has sent anew."""

    def body(k: Any, state: Any) -> Any:
        a, b = state
        with gc.device("cpu:0"):
            a = np.tanh(a * 1.5)
        with gc.device("cpu:1"):
            b = b + np.exp(a)
        return a, b

    return gc.fori(0, 6, body, (x, x))[1]


RACES = [("early", early, crossing, 8), ("uncopied", uncopied, overtaking, 1)]


@pytest.mark.parametrize(
    ("name", "plants", "function", "least"), RACES, ids=[race[0] for race in RACES]
)
def test_planted_races_are_found_and_done_again(
    name: str, plants: Any, function: Any, least: int
) -> None:
    count = len([*plants(made(function, X))])
    assert count >= least
    for number in range(count):
        run = made(function, X)
        [*plants(run)][number]()
        first, found = next(replay.explored(run, [X], 1)), None
        for found in replay.explored(run, [X], 500):
            if found.results != first.results:
                break
        else:
            raise AssertionError(f"{name} {number} was not found")
        times = 100 if number == 0 else 3
        assert [replay.outcome(run, [X], found) for _ in range(times)] == [found.results] * times


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-20],
        lambda text: text.replace("graphc recording", "something else"),
        lambda text: text.replace('"graphc recording": 1', '"graphc recording": 2'),
        lambda text: text.replace('"marks": [[', '"marks": [["a", '),
        lambda text: text.replace('"marks": [[', '"marks": [[7, '),
        lambda text: text.replace('"marks": [[', '"marks": [[1e400, '),
        lambda text: text.replace('"dropped": 0', '"dropped": "0"'),
        lambda text: text.replace('"devices": ["cpu:0"', '"devices": [0'),
        lambda text: "[" * 100_000,
        lambda text: "",
        lambda text: "[]",
    ],
)
def test_a_damaged_recording_is_refused(change: Callable[[str], str], tmp_path: Path) -> None:
    run = made(there_and_back, X)
    path = tmp_path / "r.json"
    replay.write(replay.recorded(run, [X])[1], path)
    path.write_text(change(path.read_text()))
    with pytest.raises(gc.GraphError, match="no recording"):
        replay.read(path)


def test_orders_that_cannot_be_and_other_programs_are_refused() -> None:
    run, other = made(there_and_back, X), made(crossing, X)
    _, found = replay.recorded(run, [X])
    with pytest.raises(gc.GraphError, match="another program"):
        replay.replayed(other, [X], found)
    *_, last = rows(run.part.image.table.tolist())
    assert run.part.image.table[last] == END
    for marks in (
        (found.marks[0][::-1], found.marks[1]),
        (found.marks[0] * 0 + [[2 * last, 0]], found.marks[1]),
        (found.marks[0] * 0 - 4, found.marks[1]),
        (found.marks[0] + [[10**15, 0]], found.marks[1]),
        (found.marks[0][:1], found.marks[1]),
    ):
        with pytest.raises(gc.GraphError, match="cannot be"):
            replay.replayed(run, [X], replace(found, marks=marks))
    fewer = replace(found, marks=found.marks[:1])
    with pytest.raises(gc.GraphError, match="cannot be"):
        replay.replayed(run, [X], fewer)
    more = replace(found, marks=(*found.marks, found.marks[0]))
    with pytest.raises(gc.GraphError, match="cannot be"):
        replay.replayed(run, [X], more)


def test_one_device_is_recorded_too() -> None:
    run = gc.compile(lambda x: np.tanh(x @ x).sum()).executable(X)
    results, found = replay.recorded(run, [X])
    assert found.devices == ("cpu:0",)
    assert np.array_equal(replay.replayed(run, [X], found)[0], results[0])


def test_the_file_holds_nothing_but_numbers_and_names(tmp_path: Path) -> None:
    run = made(there_and_back, X)
    replay.write(replay.recorded(run, [X])[1], tmp_path / "r.json", {"model": "</script>"})
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["model"] == "</script>" and found["devices"] == ["cpu:0", "cpu:1"]
