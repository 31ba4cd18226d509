"""Loops and branches that the device decides: the graphs of a stand-in, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import CHIP, FakeCuda, fake, shape
from gpu_programs import ALONE, DOUBLE, FAIL, INCREMENT, LESS, NBYTES, STORE, WHOLE, X, image

from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import chip_of
from graphc.errors import RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.cuda import device_code, drivers
from graphc.runtime.load.program import Origin
from graphc.runtime.load.table import ABSENT, ARENA, TableBuilder

__all__ = ["fake"]

VERDICT, OTHER = (ARENA, 512), (ARENA, 576)
Y = (3, 0)  # the result


def doubled(table: TableBuilder, limit: int = 0, verdict: Any = VERDICT) -> None:
    """Double the result while its first element is less than a limit (the word of that number)."""
    top = table.call(LESS, [Y, verdict], params=limit, **ALONE)
    leave = table.branch(verdict)
    table.call(DOUBLE, [Y, (ARENA, 0)], **WHOLE)
    table.copy(NBYTES, Y, (ARENA, 0))
    table.jump(top)
    table.patch(leave, table.position)


def made(table: TableBuilder, words: Any, **options: Any) -> Executable:
    table.end()
    return Executable(image(CHIP, table, words, **options))


def start() -> TableBuilder:
    table = TableBuilder()
    table.copy(NBYTES, Y, (2, 0))
    return table


def test_a_loop_is_a_node(fake: FakeCuda) -> None:
    table = start()
    doubled(table)
    table.call(INCREMENT, [Y, Y], **WHOLE)
    executable = made(table, [100])
    for _ in range(3):
        np.testing.assert_array_equal(executable(X), 128 * X + 1)
    np.testing.assert_array_equal(executable(X + 99), X + 100)
    body = ["double", "copy", "less", "decide"]
    (graph,) = fake.graphs
    assert shape(graph)[-5:] == ["copy", "less", "decide", ("while", body), "increment"]
    fake.calls.clear()
    executable(X)
    assert fake.count("cuGraphLaunch") == fake.count("cuStreamSynchronize") == 1


def test_copies_of_a_round_are_one_kernel(fake: FakeCuda) -> None:
    """Those that do not meet: the third one reads what the first one writes."""
    table = start()
    top = table.call(LESS, [Y, VERDICT], params=0, **ALONE)
    leave = table.branch(VERDICT)
    table.call(DOUBLE, [Y, (ARENA, 0)], **WHOLE)
    table.call(INCREMENT, [Y, (ARENA, 64)], **WHOLE)
    table.copy(NBYTES, Y, (ARENA, 0))
    table.copy(NBYTES, (ARENA, 128), (ARENA, 64))
    table.copy(NBYTES, (ARENA, 192), Y)
    table.jump(top)
    table.patch(leave, table.position)
    table.copy(4, Y, (ARENA, 132))
    table.copy(4, (3, 4), (ARENA, 196))
    executable = made(table, [100])
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), [64 * 2 + 1, 256, *(128 * X)[2:]])
    (graph,) = fake.graphs
    body = ["double", "increment", "move", "copy", "less", "decide"]
    assert ("while", body) in shape(graph)


def test_a_branch_is_a_node(fake: FakeCuda) -> None:
    """One of three ways, each of which leaves another register behind."""
    table = start()
    ends = []
    for word, kernel in enumerate((DOUBLE, INCREMENT)):
        table.call(LESS, [Y, VERDICT], params=word, **ALONE)
        skip = table.branch(VERDICT)
        table.set(4, (ARENA, 64 * word))
        table.call(kernel, [Y, (4, 0)], **WHOLE)
        table.copy(NBYTES, Y, (4, 0))
        ends.append(table.jump())
        table.patch(skip, table.position)
    table.call(STORE, [Y], params=2, **ALONE)
    for end in ends:
        table.patch(end, table.position)
    table.call(INCREMENT, [Y, Y], **WHOLE)
    executable = made(table, [2, 10, 77], registers=1)
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), 2 * X + 1)
        np.testing.assert_array_equal(executable(X + 5), X + 7)
        np.testing.assert_array_equal(executable(X + 10), [78, *(X + 11)[1:]])
    (graph,) = fake.graphs
    *_, choice, last = shape(graph)
    inner = ("if", ["increment", "copy"], ["store"])
    assert last == "increment"
    assert choice == ("if", ["double", "copy"], ["less", "decide", inner])


def test_loops_in_loops(fake: FakeCuda) -> None:
    """Double to 10 or more, add one, until there are 50 or more; a branch in the inner one."""
    table = start()
    top = table.call(LESS, [Y, VERDICT], params=1, **ALONE)
    leave = table.branch(VERDICT)
    doubled(table, 0, OTHER)
    table.set(4, (ABSENT, 3))
    again = table.call(INCREMENT, [Y, Y], **WHOLE)
    table.loop(4, again)
    table.jump(top)
    table.patch(leave, table.position)
    executable = made(table, [10, 50], registers=1)
    wanted, first = X.copy(), X[0]
    while wanted[0] < 50:
        while wanted[0] < 10:
            wanted = 2 * wanted
        wanted = wanted + 3
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), wanted)
    (graph,) = fake.graphs
    inner = ("while", ["double", "copy", "less", "decide"])
    body = ["less", "decide", inner, *["increment"] * 3, "less", "decide"]
    assert shape(graph)[-1] == ("while", body) and first == X[0]


def test_a_failure_ends_a_loop(fake: FakeCuda) -> None:
    table = start()
    top = table.call(LESS, [(2, 0), VERDICT], params=0, **ALONE)
    leave = table.branch(VERDICT)
    row = table.call(FAIL, [], params=1, **ALONE)
    table.jump(top)
    table.patch(leave, table.position)
    executable = made(table, [100, 1], origins={row: Origin("%7 = gather(%1, %2)", "model.py", 12)})
    for _ in range(3):
        with pytest.raises(RunError, match="out of range") as found:
            executable(X)
        assert found.value.location == ("model.py", 12)
    assert fake.rounds == 3
    np.testing.assert_array_equal(executable(X + 100), X + 100)


def test_what_needs_the_host_is_left_to_it(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers that change from round to round, a driver that is too old, launches that wait."""
    table = start()
    table.set(4, (ARENA, 0))
    top = table.call(LESS, [Y, VERDICT], params=0, **ALONE)
    leave = table.branch(VERDICT)
    table.call(DOUBLE, [Y, (4, 0)], **WHOLE)
    table.copy(NBYTES, Y, (4, 0))
    table.bump(4, 16)
    table.jump(top)
    table.patch(leave, table.position)
    moving = made(table, [100], registers=1)
    np.testing.assert_array_equal(moving(X), 128 * X)
    for change in (
        lambda: monkeypatch.setattr(fake, "cuDriverGetVersion", lambda: (0, 12070)),
        lambda: monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1"),
    ):
        change()
        monkeypatch.setattr(drivers, "_opened", {})
        table = start()
        doubled(table)
        np.testing.assert_array_equal(made(table, [100])(X), 128 * X)
    assert fake.rounds == 0


def test_the_kernels_are_code_for_every_chip() -> None:
    """The function it calls is the driver's own; a function that does nothing stands in for it."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    head, end = device_code.CODE.split(";\n\n.visible", 1)
    text = f"{head.replace('.extern', '.visible')} {{ ret; }}\n.visible{end}"
    for chip in ("sm_75", "sm_80", "sm_90"):
        reports = toolkit.assemble(text, chip_of(f"cuda:{chip}"))[1]
        assert set(reports) == {"decide", "begin", "advance", "move"}
        assert not any(report.spills for report in reports.values())
