"""What every GPU must do with hand-made tables: run by a simulated one and by a stand-in.

A case takes the name of the chip that images are for ("simulator" or "sm_90").
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_programs import (
    ALONE,
    COUNT,
    DOUBLE,
    FAIL,
    INCREMENT,
    LESS,
    NBYTES,
    STORE,
    WHOLE,
    X,
    check,
    counter,
    image,
    pair,
    vector,
)
from runtime_kernels import INCREMENT as CPU_INCREMENT
from runtime_kernels import image as cpu_image

from graphc.errors import RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.variable import container
from graphc.runtime.load.program import Origin
from graphc.runtime.load.table import ABSENT, ARENA, TableBuilder
from graphc.runtime.observe.profile import profile
from graphc.runtime.observe.trace import trace

# ------------------------------------------------------------------------------ one device


def straight_tables(chip: str) -> None:
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (ARENA, 0)], **WHOLE)
    table.call(INCREMENT, [(ARENA, 0), (ARENA, 64)], **WHOLE)
    table.copy(NBYTES, (3, 0), (ARENA, 64))
    table.end()
    executable = Executable(image(chip, table))
    check(executable, 2 * X + 1)
    np.testing.assert_array_equal(executable(X + 5), 2 * X + 11)


def constants_and_words(chip: str) -> None:
    table = TableBuilder()
    table.call(INCREMENT, [(1, 64), (3, 0)], **WHOLE)
    table.call(STORE, [(3, 4)], params=1, **ALONE)
    table.end()
    constants = np.zeros(32, np.float32)
    constants[16:20] = X
    made = image(chip, table, [7, 9], constants=constants.view(np.uint8))
    check(Executable(made), [2, 9, 4, 5])


def loops(chip: str) -> None:
    """A body that runs five times, whose registers move and change places."""
    table = TableBuilder()
    table.set(4, (2, 0))
    table.set(5, (ARENA, 0))
    table.set(6, (ARENA, 64))
    table.set(7, (ABSENT, 5))
    table.set(8, (3, 0))
    top = table.position
    table.call(DOUBLE, [(4, 0), (5, 0)], **WHOLE)
    table.copy(4, (8, 0), (5, 0))
    table.rotate(4, 5, 6)
    table.bump(8, 4)
    table.loop(7, top)
    table.end()
    made = image(chip, table, registers=5, results=(vector("y", 5),))
    check(Executable(made), [2, 4, 8, 16, 32])


def branches(chip: str) -> None:
    """Double while the first element is less than 100."""
    table = TableBuilder()
    table.set(4, (2, 0))
    table.set(5, (ARENA, 0))
    table.set(6, (ARENA, 64))
    top = table.position
    table.call(LESS, [(4, 0), (ARENA, 128)], **ALONE)
    leave = table.branch((ARENA, 128))
    table.call(DOUBLE, [(4, 0), (5, 0)], **WHOLE)
    table.rotate(4, 5, 6)
    table.jump(top)
    table.patch(leave, table.position)
    table.copy(NBYTES, (3, 0), (4, 0))
    table.end()
    executable = Executable(image(chip, table, [100], registers=3))
    check(executable, 128 * X)
    np.testing.assert_array_equal(executable(40 * X), 160 * X)


def same_places(chip: str) -> None:
    table = TableBuilder()
    table.set(4, (2, 0))
    for first, kernel in (((2, 0), INCREMENT), ((ARENA, 0), DOUBLE)):
        other = table.same((4, 0), first)
        table.call(kernel, [(4, 0), (ARENA, 0)], **WHOLE)
        end = table.jump()
        table.patch(other, table.position)
        table.call(DOUBLE, [(ARENA, 0), (3, 0)], **WHOLE)
        table.patch(end, table.position)
    table.end()
    check(Executable(image(chip, table, registers=1)), 2 * (X + 1))


def stacks(chip: str) -> None:
    """Push what a loop makes, more than a first block holds; pop it in the other order."""
    size, rounds = 1 << 15, 5
    table = TableBuilder()
    table.stack(0, (ARENA, 512))
    table.copy(8, (ARENA, 520), (ARENA, 512))  # the handle travels
    table.copy(NBYTES, (ARENA, 0), (2, 0))
    table.set(4, (ABSENT, rounds))
    top = table.position
    table.push(size, (ARENA, 520), (ARENA, 0))
    table.call(INCREMENT, [(ARENA, 0), (ARENA, 0)], **WHOLE)
    table.loop(4, top)
    table.set(4, (ABSENT, rounds))
    table.set(5, (3, 0))
    top = table.position
    table.pop(size, (ARENA, 520), 6)
    table.copy(4, (5, 0), (6, 0))
    table.bump(5, 4)
    table.loop(4, top)
    table.end()
    results = (vector("y", rounds),)
    executable = Executable(image(chip, table, results=results, registers=3, arena_bytes=size + 64))
    check(executable, [5, 4, 3, 2, 1])
    assert executable.stack_bytes >= size * rounds


def pops_of_empty_stacks(chip: str) -> None:
    table = TableBuilder()
    table.stack(0, (ARENA, 512))
    row = table.pop(NBYTES, (ARENA, 512), 4)
    table.end()
    made = image(chip, table, registers=1, origins={row: Origin("%4 = pop(%1)", "model.py", 3)})
    with pytest.raises(RunError, match="pop from an empty stack") as found:
        Executable(made)(X)
    assert found.value.location == ("model.py", 3)


def failures(chip: str) -> None:
    table = TableBuilder()
    table.call(INCREMENT, [(2, 0), (3, 0)], **WHOLE)
    row = table.call(FAIL, [], params=0, **ALONE)
    later = table.call(FAIL, [], params=1, **ALONE)
    table.end()
    origins = {
        row: Origin("%7 = gather(%1, %2) : f32[1]", "model.py", 12),
        later: Origin("%8 = log(%7) : f32[1]", "model.py", 13),
    }
    executable = Executable(image(chip, table, [1, 2], origins=origins))
    for _ in range(3):
        with pytest.raises(RunError, match="out of range") as found:
            executable(X)
        assert found.value.location == ("model.py", 12) and "gather" in found.value.details[0]


def donations(chip: str) -> None:
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (2, 0)], **WHOLE)
    table.end()
    executable = Executable(image(chip, table, donated=(0,)))
    for _ in range(3):
        given = X.copy()
        made = executable(given)
        assert made is given
        np.testing.assert_array_equal(made, 2 * X)


def nothing_to_do(chip: str) -> None:
    """Empty arrays, launches of no blocks."""
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)], units=0, grain=1)
    table.end()
    none = image(chip, table, params=(vector("x", 0),), results=(vector("y", 0),), arena_bytes=0)
    check(Executable(none), np.zeros(0, np.float32), X[:0])


def several_threads(chip: str) -> None:
    table = TableBuilder()
    for _ in range(3):
        table.call(DOUBLE, [(2, 0), (ARENA, 0)], **WHOLE)
        table.call(INCREMENT, [(ARENA, 0), (3, 0)], **WHOLE)
    table.end()
    executable = Executable(image(chip, table))
    wrong: list[Any] = []

    def work(number: int) -> None:
        made = [executable(X + number) for _ in range(5)]
        wrong.extend(y for y in made if (y != 2 * (X + number) + 1).any())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def times_of_rows(chip: str) -> None:
    table = TableBuilder()
    first = table.call(DOUBLE, [(2, 0), (ARENA, 0)], **WHOLE)
    table.set(4, (ABSENT, 3))
    top = table.position
    again = table.call(INCREMENT, [(ARENA, 0), (ARENA, 0)], **WHOLE)
    table.loop(4, top)
    last = table.copy(NBYTES, (3, 0), (ARENA, 0))
    table.end()
    executable = Executable(image(chip, table, registers=1))
    executable(X)
    rows = profile(executable, [X])
    assert [(row.row, row.kernel, row.count) for row in rows] == [
        (first, "double", 1),
        (again, "increment", 3),
        (last, "copy", 1),
    ]
    assert all(row.seconds > 0 for row in rows)
    (result,), _ = trace(executable, [X])
    np.testing.assert_array_equal(result, 2 * X + 3)
    check(executable, 2 * X + 3)


# ------------------------------------------------------------------------------ variables


def variables(chip: str, home: Any) -> None:
    """Base 3 is the variable where there is one param and no result."""
    slot = counter(home)
    table = TableBuilder()
    table.call(INCREMENT, [(4, 0), (ARENA, 0)], **WHOLE)
    table.copy(NBYTES, (4, 0), (ARENA, 0))
    table.call(DOUBLE, [(4, 0), (3, 0)], **WHOLE)
    table.end()
    executable = Executable(image(chip, table, variables=(slot,)))
    cell = container(home.name).find("count")
    for k in range(1, 4):
        np.testing.assert_array_equal(executable(X), np.full(COUNT, 2 * k))
    np.testing.assert_array_equal(cell.value(), np.full(COUNT, 3))
    cell.assign(np.full(COUNT, 10, np.float32))
    np.testing.assert_array_equal(executable(X), np.full(COUNT, 22))
    cell.update(lambda memory: memory.__iadd__(100))
    np.testing.assert_array_equal(executable(X), np.full(COUNT, 224))

    table = TableBuilder()
    table.call(CPU_INCREMENT, [(4, 0), (4, 0)], units=COUNT)
    table.copy(NBYTES, (3, 0), (4, 0))
    table.end()
    options = {"params": [vector("x")], "results": [vector("y")]}
    beside = Executable(cpu_image(table, **options, variables=(slot,)))
    for k in range(5):  # often enough that native code runs it without Python
        np.testing.assert_array_equal(beside(X), np.full(COUNT, 113 + k))
    np.testing.assert_array_equal(executable(X), np.full(COUNT, 236))
    np.testing.assert_array_equal(beside(X), np.full(COUNT, 119))
    np.testing.assert_array_equal(executable(X), np.full(COUNT, 240))
    home.reset()
    with pytest.raises(RunError, match="was reset"):
        executable(X)


def guarded_variables(chip: str, home: Any) -> None:
    """With check_finite nothing is written when a kernel has failed."""
    slot = counter(home)
    table = TableBuilder()
    table.call(INCREMENT, [(4, 0), (ARENA, 0)], **WHOLE)
    table.call(FAIL, [], **ALONE)
    table.copy(NBYTES, (4, 0), (ARENA, 0))
    table.end()
    executable = Executable(image(chip, table, [2], variables=(slot,), guarded=True))
    for _ in range(3):
        with pytest.raises(RunError, match="non-finite"):
            executable(X)
        np.testing.assert_array_equal(container(home.name).find("count").value(), np.zeros(COUNT))


# ------------------------------------------------------------------------------ several devices


PLACES = [("cpu:0", "gpu:0"), ("gpu:0", "cpu:0"), ("gpu:0", "gpu:1")]


def messages(chip: str) -> None:
    for places in PLACES:
        check(pair(chip, places), 2 * X + 1)


def messages_in_loops(chip: str) -> None:
    expected = X
    for _ in range(7):
        expected = 2 * expected + 1
    for places in PLACES:
        check(pair(chip, places, rounds=7), expected)


def failures_of_others(chip: str) -> None:
    for places in PLACES:
        for rounds in (0, 3):
            cluster = pair(chip, places, rounds=rounds, status=1)
            for _ in range(3):
                with pytest.raises(RunError, match="out of range.*on " + places[1]):
                    cluster(X)


def traced_messages(chip: str) -> None:
    for places in PLACES:
        cluster = pair(chip, places)
        (result,), found = trace(cluster, [X])
        np.testing.assert_array_equal(result, 2 * X + 1)
        kinds = {(event.device, event.kind, event.name) for event in found.events}
        assert {(0, "send", "there"), (1, "transfer", "there"), (0, "transfer", "back")} <= kinds


CASES: list[Callable[[str], None]] = [
    straight_tables, constants_and_words, loops, branches, same_places, stacks,
    pops_of_empty_stacks, failures, donations, nothing_to_do, several_threads, times_of_rows,
    messages, messages_in_loops, failures_of_others, traced_messages,
]  # fmt: skip
STATE_CASES: list[Callable[[str, Any], None]] = [variables, guarded_variables]
