"""Counters of the processor: those that are there count, and for the others it is said why not."""

from __future__ import annotations

import json
import os
import struct
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_programs import X, made, there_and_back

import graphc as gc
from graphc.cli.commands import main
from graphc.runtime.observe import counters
from graphc.runtime.observe.counters import Counters, counted


class Pipe:
    """Counters that count how often they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        monkeypatch.setattr(counters, "_opened", lambda kind, number: os.open(os.devnull, 0))
        monkeypatch.setattr(os, "read", self.read)

    def read(self, file: int, count: int) -> bytes:
        self.reads += 1
        return struct.pack("QQQ", 50 * self.reads, 2000, 1000)


def test_kernels_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(there_and_back, X)
    wanted = run.run([X])
    Pipe(monkeypatch)
    with Counters({"cycles": (0, 0)}) as found:
        assert found.own == {"cycles": 100.0}  # of half the time
        assert found.since(found.read()) == {"cycles": 0.0}
        counts = counted(run, [X], found)
    assert {device for device, _ in counts} == {"cpu:0", "cpu:1"}
    assert all(each == {"cycles": 0.0} for each in counts.values())
    assert all(map(np.array_equal, run.run([X]), wanted))


def test_what_is_not_permitted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: int, number: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(counters, "_opened", refused)
    with Counters() as found:
        assert not found.files
        assert set(found.missing.values()) == {"Permission denied"}


def test_the_system_counts_what_it_can() -> None:
    with Counters({"page faults": (1, 2), "nothing": (99, 0)}) as found:
        assert "nothing" in found.missing
        if "page faults" not in found.files:
            pytest.skip(f"no counters here: {found.missing}")
        before = found.read()
        with mmap(-1, 1 << 22) as fresh:
            fresh[::1024] = bytes(1 << 12)  # no page was there before
        assert found.since(before)["page faults"] > 0


@pytest.mark.parametrize("permitted", [True, False])
def test_profile_says_what_was_counted(
    permitted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refused(kind: int, number: int) -> int:
        raise PermissionError(13, "Permission denied")

    if permitted:
        Pipe(monkeypatch)
    else:
        monkeypatch.setattr(counters, "_opened", refused)
    gc.compile(lambda x: np.tanh(x @ x)).save(tmp_path / "m.gir", X)
    main(["profile", str(tmp_path / "m.gir"), "--runs", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    told = {name for row in found["kernels"] for name in row["counters"]}
    assert told == (set(counters.EVENTS) if permitted else set())
    assert ("counted in one run" in found["counters"]) == permitted
    assert ("Permission denied" in found["counters"]) != permitted
