"""The runtime: step tables walked natively, arguments, failures, threads, fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from graphc.codegen.support import support_object
from graphc.codegen.target import host, optimise_and_object
from graphc.errors import FeedError, GraphError, RunError
from graphc.runtime import load, pool
from graphc.runtime.execute import Executable
from graphc.runtime.image import Image, Origin, Slot
from graphc.runtime.table import ABSENT, TableBuilder

HEAD = """
define i32 @{name}(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {{
entry:
  %a = load ptr, ptr %bufs
  %b.at = getelementptr ptr, ptr %bufs, i64 1
  %b = load ptr, ptr %b.at
  %some = icmp slt i64 %lo, %hi
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ %lo, %entry ], [ %n, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %pa
  {body}
  store float %y, ptr %pb
  %n = add i64 %i, 1
  %m = icmp slt i64 %n, %hi
  br i1 %m, label %loop, label %end
end:
  ret i32 0
}}
"""
LESS = """
define i32 @less(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %a = load ptr, ptr %bufs
  %b.at = getelementptr ptr, ptr %bufs, i64 1
  %b = load ptr, ptr %b.at
  %x = load float, ptr %a
  %limit.word = load i64, ptr %params
  %limit = sitofp i64 %limit.word to float
  %c = fcmp olt float %x, %limit
  %byte = zext i1 %c to i8
  store i8 %byte, ptr %b
  ret i32 0
}
"""
FAIL = """
define i32 @fail(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %word = load i64, ptr %params
  %status = trunc i64 %word to i32
  ret i32 %status
}
"""
WHO = """
define i32 @who(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %a = load ptr, ptr %bufs
  %at = getelementptr i64, ptr %a, i64 %lo
  %mark = add i64 %hi, 1
  store i64 %mark, ptr %at
  ret i32 0
}
"""
KERNELS = ("double", "increment", "less", "fail", "who")
DOUBLE, INCREMENT, LESS_THAN, FAIL_WITH, WHO_RAN = range(5)


@cache
def kernels() -> bytes:
    texts = [
        HEAD.format(name="double", body="%y = fadd float %x, %x"),
        HEAD.format(name="increment", body="%y = fadd float %x, 1.0"),
        LESS,
        FAIL,
        WHO,
    ]
    return optimise_and_object(texts, host())


@cache
def support() -> bytes:
    return support_object(host())


def image(table, params, results, **options) -> Image:
    words = np.array(options.pop("words", [0]), np.int64)
    constants = options.pop("constants", np.zeros(0, np.uint8))
    return Image(
        name="test",
        params=tuple(params),
        results=tuple(results),
        table=table.finish(),
        words=words,
        constants=constants,
        kernels=KERNELS,
        objects=((kernels(), KERNELS),),
        support=support(),
        **options,
    )


def vector(name: str, size: int) -> Slot:
    return Slot(name, "f32", (size,))


def doubler(size: int = 8, grain: int = 0, threads: int = 1, repeat: int = 1) -> Executable:
    table = TableBuilder()
    for _ in range(repeat):
        table.call(DOUBLE, [(2, 0), (0, 0)], units=size, grain=grain)
        table.call(INCREMENT, [(0, 0), (3, 0)], units=size, grain=grain)
    table.end()
    plan = image(
        table, [vector("x", size)], [vector("y", size)], arena_bytes=4 * size, threads=threads
    )
    return Executable(plan, threads=threads)


def test_two_steps_through_the_arena():
    x = np.arange(8, dtype="f4")
    (y,) = doubler().run([x])
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_constants_are_an_operand():
    table = TableBuilder()
    table.call(DOUBLE, [(1, 8), (2, 0)], units=2)
    table.end()
    constants = np.arange(4, dtype="f4").view(np.uint8)
    plan = image(table, [], [vector("y", 2)], constants=constants)
    np.testing.assert_array_equal(Executable(plan).run([])[0], [4.0, 6.0])


def test_arguments_that_need_a_copy():
    expected = 2 * np.arange(8, dtype="f4") + 1
    executable = doubler()
    strided = np.zeros(16, "f4")[::2]
    strided[:] = np.arange(8)
    swapped = np.arange(8, dtype=">f4")
    unaligned = np.zeros(33, np.uint8)[1:].view("f4")
    unaligned[:] = np.arange(8)
    read_only = np.arange(8, dtype="f4")
    read_only.flags.writeable = False
    for x in (strided, swapped, unaligned, read_only):
        np.testing.assert_array_equal(executable.run([x])[0], expected)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([np.zeros(8)], "argument 'x' is f64[8]; f32[8] is expected"),
        ([np.zeros((2, 4), "f4")], "argument 'x' is f32[2,4]; f32[8] is expected"),
        ([np.zeros(8, object)], "argument 'x' is object[8]; f32[8] is expected"),
        ([[1.0] * 8], "argument 'x' is a list; an array f32[8] is expected"),
        ([], "test takes 1 arrays, 0 given"),
    ],
)
def test_arguments_that_do_not_fit(arrays, words):
    with pytest.raises(FeedError) as caught:
        doubler().run(arrays)
    assert words in str(caught.value)


def test_masked_array_is_refused():
    with pytest.raises(FeedError, match="masked"):
        doubler().run([np.ma.masked_array(np.zeros(8, "f4"), np.zeros(8, bool))])


def test_empty_and_scalar_arrays():
    assert doubler(0).run([np.zeros(0, "f4")])[0].shape == (0,)
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)])
    table.end()
    plan = image(table, [Slot("x", "f32", ())], [Slot("y", "f32", ())])
    (y,) = Executable(plan).run([np.float32(3)])
    assert y.shape == () and y == 6


def test_bfloat16_by_name():
    import ml_dtypes

    table = TableBuilder()
    table.copy(6, (3, 0), (2, 0))
    table.end()
    slot = Slot("x", "bf16", (3,))
    x = np.array([1, 2, 3], ml_dtypes.bfloat16)
    (y,) = Executable(image(table, [slot], [slot])).run([x])
    assert y.dtype == x.dtype and (y == x).all()


def test_while_loop_with_branch_and_jump():
    table = TableBuilder()
    table.copy(4, (3, 0), (2, 0))
    top = table.call(LESS_THAN, [(3, 0), (0, 64)], params=0)
    test = table.branch((0, 64))
    table.call(DOUBLE, [(3, 0), (0, 0)])
    table.copy(4, (3, 0), (0, 0))
    table.jump(top)
    table.patch(test, table.end())
    plan = image(table, [vector("x", 1)], [vector("y", 1)], words=[100], arena_bytes=128)
    assert Executable(plan).run([np.float32([3])])[0][0] == 192


def test_counted_loop_with_set_bump_and_loop():
    table = TableBuilder()
    source, target, counter = 4, 5, 6
    table.set(source, (2, 0))
    table.set(target, (3, 0))
    table.set(counter, (ABSENT, 5))
    body = table.call(DOUBLE, [(source, 0), (target, 0)])
    table.bump(source, 4)
    table.bump(target, 4)
    table.loop(counter, body)
    table.end()
    plan = image(table, [vector("x", 5)], [vector("y", 5)], registers=3)
    x = np.arange(5, dtype="f4")
    np.testing.assert_array_equal(Executable(plan).run([x])[0], 2 * x)


def in_place() -> Executable:
    """x += 1 in place and y = 2 * z."""
    table = TableBuilder()
    table.call(INCREMENT, [(2, 0), (4, 0)], units=4)
    table.call(DOUBLE, [(3, 0), (5, 0)], units=4)
    table.end()
    params = [vector("x", 4), vector("z", 4)]
    results = [vector("x", 4), vector("y", 4)]
    return Executable(image(table, params, results, donated=(0, -1)))


def test_donated_argument_becomes_the_result():
    executable = in_place()
    x, z = np.zeros(4, "f4"), np.ones(4, "f4")
    for count in range(1, 5):
        result, y = executable(x, z)
        assert result is x and (x == count).all() and (y == 2).all()


def test_donated_argument_that_cannot_be_overwritten_is_copied():
    executable = in_place()
    x, z = np.zeros(4, "f4"), np.ones(4, "f4")
    x.flags.writeable = False
    result, _ = executable(x, z)
    assert result is not x and (x == 0).all() and (result == 1).all()
    both = np.ones(6, "f4")
    result, y = executable(both[:4], both[2:])
    assert (both == 1).all() and (result == 2).all() and (y == 2).all()


@pytest.mark.parametrize("donated", [(0,), (0, 0), (7, -1), (-1, -1, -1)])
def test_impossible_donations(donated):
    table = TableBuilder()
    table.end()
    slots = [vector("x", 4), vector("z", 5)]
    with pytest.raises(GraphError):
        image(table, slots, slots, donated=donated).check()


def failing(status: int) -> Executable:
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)])
    row = table.call(FAIL_WITH, [], params=0)
    table.end()
    plan = image(
        table,
        [vector("x", 1)],
        [vector("y", 1)],
        words=[status],
        origins={row: Origin("%7 = gather(%1, %2) : f32[1]", "model.py", 12)},
        reasons={3: "an index is out of range"},
    )
    return Executable(plan)


def test_failing_step_names_node_and_line():
    with pytest.raises(RunError) as caught:
        failing(3).run([np.float32([1])])
    assert "an index is out of range" in str(caught.value)
    assert "model.py:12" in str(caught.value) and "%7 = gather" in str(caught.value)
    with pytest.raises(RunError, match="status 9"):
        failing(9).run([np.float32([1])])


def test_failed_run_gives_its_frame_back():
    executable = failing(3)
    for _ in range(20):
        with pytest.raises(RunError):
            executable.run([np.float32([1])])
    assert len(executable._frames) == 1


def test_cancel_stops_an_endless_loop():
    table = TableBuilder()
    top = table.call(DOUBLE, [(2, 0), (3, 0)])
    table.jump(top)
    table.end()
    executable = Executable(image(table, [vector("x", 1)], [vector("y", 1)]))
    with ThreadPoolExecutor(1) as workers:
        run = workers.submit(executable.run, [np.float32([1])])
        while not run.done():
            executable.cancel()
        with pytest.raises(RunError, match="cancelled"):
            run.result()


def test_concurrent_callers_get_their_own_arena():
    executable = doubler(4096, grain=64, threads=2, repeat=20)
    inputs = [np.full(4096, i, "f4") for i in range(12)]
    with ThreadPoolExecutor(12) as workers:
        for _ in range(10):
            for x, result in zip(inputs, workers.map(lambda x: executable.run([x]), inputs)):
                np.testing.assert_array_equal(result[0], 2 * x + 1)
    assert len(executable._frames) <= 8


def test_two_threads_equal_one():
    x = np.random.default_rng(0).standard_normal(100_003).astype("f4")
    one = doubler(x.size, grain=1000, threads=1).run([x])[0]
    two = doubler(x.size, grain=1000, threads=2)
    for _ in range(50):
        np.testing.assert_array_equal(two.run([x])[0], one)


def test_units_are_split_into_a_partition_that_threads_do_not_change():
    table = TableBuilder()
    table.call(WHO_RAN, [(2, 0)], units=1000, grain=10)
    table.end()
    plan = image(table, [], [Slot("marks", "i64", (1001,))], threads=4)
    executable = Executable(plan, threads=4)
    for _ in range(20):
        (marks,) = executable.run([])
        position, parts = 0, 0
        while position < 1000:
            position, parts = int(marks[position]) - 1, parts + 1
        assert position == 1000 and parts == 16


def test_failing_status_from_a_worker():
    table = TableBuilder()
    table.call(FAIL_WITH, [], units=1000, grain=1, params=0)
    table.end()
    executable = Executable(image(table, [], [], words=[3], threads=2), threads=2)
    for _ in range(20):
        with pytest.raises(RunError):
            executable.run([])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pool_works_in_a_forked_child():
    executable = doubler(100_000, grain=100, threads=2)
    x = np.ones(100_000, "f4")
    executable.run([x])
    child = os.fork()
    if child == 0:
        right = bool((executable.run([x])[0] == 3).all())
        os._exit(0 if right and executable.support.threads == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fork_while_another_thread_runs():
    executable = doubler(100_000, grain=100, threads=2, repeat=50)
    x = np.ones(100_000, "f4")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            executable.run([x])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if (executable.run([x])[0] == 3).all() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        worker.join()


EXIT = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_runtime import doubler
doubler(1000, grain=10, threads=2).run([np.zeros(1000, "f4")])
"""


@pytest.mark.parametrize("linker", ["", "llvm"])
def test_process_ends_cleanly_while_workers_spin(linker):
    command = [sys.executable, "-c", EXIT, os.path.dirname(__file__)]
    for _ in range(3):
        done = subprocess.run(command, env={**os.environ, "GRAPHC_LINKER": linker}, check=False)
        assert done.returncode == 0


def test_equal_objects_are_linked_once():
    first = load.link(kernels(), ["double"])
    assert load.link(bytes(bytearray(kernels())), ["double", "less"])["double"] == first["double"]


def test_missing_symbol_is_named():
    text = """
    declare i32 @graphc_no_such_function()
    define i32 @needs() {
      %x = call i32 @graphc_no_such_function()
      ret i32 %x
    }
    """
    code = optimise_and_object([text], host())
    with pytest.raises(GraphError, match="graphc_no_such_function"):
        load.link(code, ["needs"])
    with pytest.raises(GraphError):
        load.link(b"not object code", ["f"])


@pytest.mark.parametrize("word", range(9))
def test_damaged_table_is_refused(word):
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)])
    table.end()
    plan = image(table, [vector("x", 1)], [vector("y", 1)])
    plan.table[word] = 1 << 40
    if word == 3:
        plan.table[word] = -1
    if word == 4:
        plan.table[word] = -5
    with pytest.raises(GraphError):
        Executable(plan)


def test_table_validation_of_other_rows():
    def refuse(fill) -> None:
        table = TableBuilder()
        fill(table)
        table.end()
        plan = image(table, [vector("x", 1)], [vector("y", 1)], arena_bytes=64)
        with pytest.raises(GraphError):
            plan.check()

    refuse(lambda t: t.jump(1))
    refuse(lambda t: t.branch((0, 65), 0))
    refuse(lambda t: t.bump(3, 4))
    refuse(lambda t: t.set(4, (0, 0)))
    refuse(lambda t: t.loop(9, 0))
    refuse(lambda t: t.copy(-1, (0, 0), (0, 0)))
    refuse(lambda t: t.call(99, []))
    refuse(lambda t: t.call(0, [], params=2))


def test_default_threads_reads_the_environment(monkeypatch):
    monkeypatch.setenv("GRAPHC_THREADS", "3")
    assert pool.default_threads() == 3
    monkeypatch.setenv("GRAPHC_THREADS", "many")
    with pytest.raises(GraphError, match="GRAPHC_THREADS"):
        pool.default_threads()
    monkeypatch.setenv("GRAPHC_THREADS", "0")
    assert pool.default_threads() >= 1
