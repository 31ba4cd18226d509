"""The runtime: step tables walked natively, arguments, failures, linking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from runtime_kernels import DOUBLE, INCREMENT, LESS_THAN, doubler, failing, image, kernels, vector

from graphc.codegen.llvm.target import host, optimise_and_object
from graphc.errors import FeedError, GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.load import load
from graphc.runtime.load.program import Slot
from graphc.runtime.load.table import ABSENT, TableBuilder


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


def test_matrix_is_refused():
    with pytest.raises(FeedError, match="matrix"):
        doubler().run([np.zeros((1, 8), "f4").view(np.matrix)])


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
