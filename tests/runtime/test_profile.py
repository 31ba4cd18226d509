"""Times of single rows."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_kernels import DOUBLE, LESS_THAN, doubler, failing, image, vector

from graphc.errors import RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.load.table import ABSENT, TableBuilder
from graphc.runtime.observe.profile import profile


def test_profile_times_every_row():
    times = profile(doubler(1000, repeat=3), [np.ones(1000, "f4")])
    assert [time.kernel for time in times] == ["double", "increment"] * 3
    assert all(time.count == 1 and time.seconds > 0 for time in times)


def test_profile_follows_loops():
    table = TableBuilder()
    table.set(4, (2, 0))
    table.set(5, (ABSENT, 5))
    body = table.call(DOUBLE, [(4, 0), (3, 0)])
    table.bump(4, 4)
    table.loop(5, body)
    table.copy(4, (0, 64), (3, 0))
    top = table.call(LESS_THAN, [(0, 64), (0, 0)])
    test = table.branch((0, 0))
    table.call(DOUBLE, [(0, 64), (0, 128)])
    table.copy(4, (0, 64), (0, 128))
    table.jump(top)
    table.patch(test, table.end())
    plan = image(
        table, [vector("x", 5)], [vector("y", 1)], registers=2, words=[100], arena_bytes=192
    )
    times = profile(Executable(plan), [np.float32([0, 0, 0, 0, 3])])
    assert [(time.kernel, time.count) for time in times] == [
        ("double", 5),
        ("copy", 1),
        ("less", 6),
        ("double", 5),
        ("copy", 5),
    ]


def test_profile_reports_failures():
    executable = failing(3)
    with pytest.raises(RunError, match=r"model.py:12"):
        profile(executable, [np.float32([1])])
    assert executable._frames[0].words[8] == 0
