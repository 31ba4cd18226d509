"""Clocks of devices that each have a core for themselves: `benchmarks.two_cpus`."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import graphc as gc
from benchmarks import two_cpus
from graphc.runtime.load.table import CALL


def calls(executable: object) -> list[int]:
    """How many kernels each device calls."""
    images = executable.image.images  # type: ignore[attr-defined]
    return [sum(opcode == CALL for opcode in rows(image.table.tolist())) for image in images]


def rows(table: list[int]) -> list[int]:
    found, at = [], 0
    while at < len(table):
        found.append(table[at])
        at += table[at + 1]
    return found


def test_messages_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels of a second each: a chain of devices takes the sum, and two ways at once the
    longer one."""
    ticks = count()
    monkeypatch.setattr(two_cpus, "time", SimpleNamespace(thread_time=lambda: float(next(ticks))))
    w = np.ones((4, 4))

    def chain(x: np.ndarray, both: bool) -> object:
        with gc.device("cpu:1"):
            y = (x if both else x @ w @ w) @ w
        return (x @ w @ w @ w, y) if both else y @ w

    for both, makespan in ((False, 4), (True, 3)):
        made = gc.compile(chain, devices=two_cpus.TWO, static="both", threads=1)
        executable = made.executable(w, both=both)
        found = two_cpus.clocked(executable, [w])
        assert [each.clock - each.idle for each in found] == calls(executable)
        assert max(each.clock for each in found) == makespan
