"""Who is silent, by a clock that is set here."""

from __future__ import annotations

import pytest

from graphc.runtime.cluster import heartbeats
from graphc.runtime.cluster.heartbeats import Heartbeats


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(heartbeats, "time", made)
    return made


def passed(found: Heartbeats, clock: Clock, seconds: float, heard: tuple[int, ...] = ()) -> None:
    """Seconds in which somebody looks ten times each, and some workers are heard."""
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        found.look()
        for task in heard:
            found.hear(task)


def test_who_is_silent_for_longer_than_the_patience_is_missing(clock: Clock) -> None:
    found = Heartbeats(0.1)
    found.hear(0)
    found.hear(1)
    passed(found, clock, 2.4, heard=(1,))
    assert not found.missing(0, 2.5)
    passed(found, clock, 0.2, heard=(1,))
    assert found.missing(0, 2.5) == "nothing was heard of it for 2.60 s"
    assert not found.missing(1, 2.5)
    assert not found.missing(7, 2.5)  # it was never there


def test_time_in_which_nobody_looked_is_not_silence(clock: Clock) -> None:
    found = Heartbeats(0.1)
    found.hear(0)
    clock.now += 60.0
    found.look()
    assert not found.missing(0, 2.5) and found.missing(0, 0.1)
    passed(found, clock, 2.5)
    assert found.missing(0, 2.5)


def test_the_end_of_a_connection_is_that_of_who_is_not_heard_behind_it(clock: Clock) -> None:
    found = Heartbeats(0.1)
    found.hear(0)
    found.hear(1)
    found.hear_end()
    passed(found, clock, 0.8, heard=(1,))
    assert not found.missing(0, 2.5)
    passed(found, clock, 0.3, heard=(1,))
    assert found.missing(0, 2.5) and not found.missing(1, 2.5)
