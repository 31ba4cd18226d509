"""Variables: order of reads and writes, memory that is written in place, containers, threads."""

from __future__ import annotations

import copy
import gc as collector
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from state_harness import X, agree

import graphc as gc
from graphc.errors import GraphError, RunError, TraceError, TypeRuleError
from graphc.ops.reference.interpreter import interpret
from graphc.runtime.call import variable as runtime

# ------------------------------------------------------------------------------------ outside


def test_it_reads_as_an_array(home):
    v = gc.Variable(X, name="v")
    np.testing.assert_array_equal(v + 1, X + 1)
    np.testing.assert_array_equal(2 - v, 2 - X)
    np.testing.assert_array_equal(X.T @ v, X.T @ X)
    np.testing.assert_array_equal(np.exp(v), np.exp(X))
    np.testing.assert_array_equal(np.stack([v, v]), np.stack([X, X]))
    np.testing.assert_array_equal(gc.sum(v, axis=0), X.sum(0))
    np.testing.assert_array_equal(v[1], X[1])
    np.testing.assert_array_equal(np.asarray(v, np.float64), X)
    assert v.mean() == X.mean() and len(v) == 2 and v.shape == (2, 3) and v.dtype == np.float32
    assert (v == X).all() and {v: 1}[v] == 1
    v.value[:] = 0
    np.testing.assert_array_equal(v, X)  # a value is a copy


def test_writes_outside_of_traces(home):
    v = gc.Variable(np.zeros((3, 2)), name="v")
    v.assign(1)
    v.assign_add([1, 2])
    v.assign_sub(np.float32(0.5))
    v += 1
    v *= 2
    np.testing.assert_array_equal(v, np.full((3, 2), (5.0, 7.0)))
    v.scatter_add([0, 0, -1], 1.0)
    v.scatter_set(1, [9, 9])
    v.scatter_max([0], 8)
    v.scatter_min([2], [[7.5, 7.5]])
    v.scatter_mul([1], 2)
    v.scatter_sub([1, 1], 1)
    v[2, 1] = -1
    np.testing.assert_array_equal(v, [[8, 9], [16, 16], [6, -1]])
    v.value = v - 1
    np.add(v, 2, out=v)
    np.testing.assert_array_equal(v, [[9, 10], [17, 17], [7, 0]])


@pytest.mark.parametrize("value", [np.zeros(4), np.zeros((3, 2, 3)), 1j, np.zeros((2, 3), "c8")])
def test_what_does_not_fit_is_refused(home, value):
    v = gc.Variable(X, name="v")
    with pytest.raises(TypeRuleError, match=r"'v' f32\[2,3\]") as caught:
        v.assign(value)
    assert caught.value.location[0].endswith("test_state.py")
    with pytest.raises(TypeRuleError, match=r"'v' f32\[2,3\]"):
        gc.compile(lambda: v.assign(value))()
    np.testing.assert_array_equal(v, X)


def test_numbers_adapt_to_the_variable(home):
    v = gc.Variable(np.zeros(2), name="v", dtype="u8")
    step = gc.compile(lambda: v.assign_add(3))
    v.assign_add(2)
    for k in range(4):
        assert step()[0] == 5 + 3 * k
    for value in (300, -1, 0.5):
        with pytest.raises(GraphError):
            v.assign(value)
        with pytest.raises(GraphError):
            gc.compile(lambda value=value: v.assign(value))()
    assert v.value.tolist() == [14, 14]


def test_what_is_no_array_is_refused(home):
    v = gc.Variable(X, name="v")
    for value in (None, "text", [[1, 2, 3], [4]], {"a": 1}):
        with pytest.raises(GraphError):
            v.assign(value)
        with pytest.raises(GraphError):
            gc.Variable(value)
    with pytest.raises(GraphError, match="cannot be copied"):
        copy.deepcopy({"v": v})


def test_bad_indices_are_refused(home):
    v = gc.Variable(X, name="v")
    with pytest.raises(RunError, match="out of bounds"):
        v.scatter_add([2], 1.0)
    with pytest.raises(TypeRuleError):
        v.scatter_set([0], np.zeros(5))
    write = gc.compile(lambda i: v.scatter_set(i, 0.0))
    for _ in range(4):
        with pytest.raises(RunError, match="out of range"):
            write(np.array([7]))
    np.testing.assert_array_equal(v, X)


def test_initial_values(home):
    made = []
    lazy = gc.Variable(lambda: made.append(1) or X, name="lazy", dtype="f64")
    number = gc.Variable(3)
    copied = gc.Variable(number)
    assert not made and not lazy.initialized
    doubled = gc.compile(lambda: lazy * 2)
    np.testing.assert_array_equal(doubled(), X * 2)
    assert made == [1] and lazy.dtype == np.float64 and copied.value == 3
    assert number.name != copied.name and number.dtype == np.int64
    with pytest.raises(TraceError, match="traced array"):
        gc.compile(lambda x: gc.Variable(x) + 1)(X)
    with pytest.raises(GraphError):
        gc.Variable(["a", None])


# ------------------------------------------------------------------------------------ containers


def test_read_before_a_value_names_the_line(home):
    v = gc.Variable(gc.spec((2, 3), "f32"), name="early")
    line = test_read_before_a_value_names_the_line.__code__.co_firstlineno + 1
    read = gc.compile(lambda: v + 1)
    for use in (lambda: v.value, lambda: v.assign_add(1), read, read):
        with pytest.raises(RunError, match="'early' is read before it has a value") as caught:
            use()
        assert caught.value.location[1] == line
    gc.compile(lambda x: v.assign(x))(X)
    np.testing.assert_array_equal(read(), X + 1)


def test_names_are_unique_in_a_container(home):
    gc.Variable(1.0, name="v")
    with pytest.raises(GraphError, match="has a variable 'v' already") as caught:
        gc.Variable(2.0, name="v")
    assert "reset_container" in str(caught.value)
    other = gc.Variable(2.0, name="v", container=f"{home.name}_other")
    assert other.container == f"{home.name}_other" and other.value == 2


def test_two_functions_share_a_container(home):
    v = gc.Variable(np.zeros(3), name="v")
    step, read = gc.compile(lambda: v.assign_add(1)), gc.compile(lambda x: v * x)
    for k in range(5):
        np.testing.assert_array_equal(read(2.0), np.full(3, 2.0 * k))
        step()
    v.assign(7)
    np.testing.assert_array_equal(read(1.0), np.full(3, 7.0))


def test_two_sessions_see_one_counter(home):
    counter = gc.Variable(0, name="counter")
    count = gc.compile(lambda: gc.name(counter.assign_add(1), "step"))
    sessions = [gc.Session(), gc.Session()]
    for session in sessions:
        session.extend(count.graph())
    for k in range(10):
        assert sessions[k % 2].run("step") == k + 1
    assert count() == 11 and home.nbytes == 8
    gc.reset_container(home.name)
    assert home.nbytes == 0
    for session in sessions:
        with pytest.raises(RunError, match="was reset"):
            session.run("step")
    counter.assign(40)
    assert [session.run("step") for session in sessions] == [41, 42]


def test_reset_frees_and_names_are_free_again(home):
    v = gc.Variable(np.zeros(1000), name="v")
    step = gc.compile(lambda: v.assign_add(1))
    for _ in range(4):
        step()
    assert home.nbytes == 8000
    gc.reset_container(home.name)
    assert home.nbytes == 0
    for use in (lambda: v.value, step):
        with pytest.raises(RunError, match="was reset"):
            use()
    v.assign(5)
    assert step()[0] == 6
    gc.reset_container(home.name)
    again = gc.Variable(np.full(1000, 2.0), name="v")
    with pytest.raises(RunError, match="was made anew"):
        v.assign(0)
    for k in range(4):
        assert step()[0] == 3 + k
    assert again.value[0] == 6
    gc.reset_container(home.name)
    gc.Variable(np.zeros(3), name="v")
    with pytest.raises(RunError, match=r"is used as f64\[1000\]"):
        step()


def test_the_variables_of_a_container_by_name(home):
    v, w = gc.Variable(X, name="v"), gc.Variable(gc.spec((), "f32"), name="w")
    found = gc.variables(home.name)
    assert list(found) == ["v", "w"] and not found["w"].initialized
    found["v"].assign_add(1)
    np.testing.assert_array_equal(v, X + 1)
    assert w.container == home.name == found["w"].container
    gc.reset_container(home.name)
    assert gc.variables(home.name) == {}


@pytest.mark.usefixtures("frozen")
def test_a_native_entry_never_points_to_what_was_reset(home):
    v = gc.Variable(np.ones(1000), name="v")
    step = gc.compile(lambda: v.assign_add(1))
    for _ in range(4):
        step()
    entry = step.executable().entry
    assert entry()[0] == 6
    del step
    collector.collect()
    gc.reset_container(home.name)
    assert entry() is None


# ------------------------------------------------------------------------------------ order


def test_a_thousand_additions(home):
    v = gc.Variable(0, name="v")
    step = gc.compile(lambda: v.assign_add(1))
    for k in range(1000):
        assert step() == k + 1
    assert v.value == 1000


def test_reads_and_writes_keep_their_order(home):
    v = gc.Variable(np.ones(3), name="v")

    def f(x):
        a = v + x
        v.assign(a * 2)
        b = v.sum()
        v.assign_add(1)
        c = v[0]
        v[1] = c * 10
        return a, b, c, v.value, v[1:]

    agree(f, [v], (np.arange(3.0),))


def test_swap_and_rotation(home):
    a, b, c = (gc.Variable(X * k, name=n) for k, n in enumerate("abc"))

    def swap():
        held = a.value
        a.assign(b)
        b.assign(held)

    def rotate():
        x, y, z = a.value, b.value, c.value
        a.assign(y), b.assign(z), c.assign(x)
        return x

    def spread():
        b.assign(a), c.assign(a), a.assign(c + 1)

    for function in (swap, rotate, spread):
        agree(function, [a, b, c])


def test_results_that_are_values_of_variables(home):
    v, w = gc.Variable(X, name="v"), gc.Variable(X * 2, name="w")

    def f(x):
        old = v.value
        new = old * 2 + x
        v.assign(new)
        w.assign(new)
        return old, new, old, w.value, v.reshape(3, 2), x

    agree(f, [v, w], (X,))
    before = gc.compile(lambda: (v.value, v.assign_add(1)))
    old, new = before()
    v.assign(0)
    np.testing.assert_array_equal(old + 1, new)


def test_a_variable_stored_in_itself_changed_in_shape(home):
    v = gc.Variable(np.arange(9.0).reshape(3, 3), name="v")

    def f():
        v.assign(v.T)
        v.assign(v - v[::-1])
        v.assign(v @ v + v.sum(0))
        v.assign(v / 100 + v.mean(1, keepdims=True))

    agree(f, [v])


def test_calls_of_compiled_functions_inside(home):
    v, w = gc.Variable(np.ones(2), name="v"), gc.Variable(gc.spec((2,), "f64"), name="w")
    add = gc.compile(lambda x: v.assign_add(x) * 2)
    store = gc.compile(lambda x: w.assign(x))

    def f(x):
        a = add(x)
        b = add(a)
        store(v + b)
        return a, b, w + v

    compiled = gc.compile(f)
    state = {(home.name, "v"): np.ones(2)}
    wanted = interpret(compiled.graph(np.ones(2)), [np.ones(2)], state=state)
    for got, want in zip(compiled(np.ones(2)), wanted):  # w has no value before
        np.testing.assert_array_equal(got, want)
    agree(f, [v, w], (np.ones(2),))


@pytest.mark.parametrize("options", [{"opt": 0}, {"backend": "numba"}, {"check_finite": True}])
def test_every_way_of_compiling(home, options):
    v, w = gc.Variable(X, name="v"), gc.Variable(X.T, name="w")

    def f(x):
        v.assign(v * 0.5 + x @ w @ x)
        w.assign(v.T - w)
        return v.sum()

    agree(f, [v, w], (X,), **options)


# ------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize("size", [1, 100_000])
def test_threads_lose_nothing(home, size):
    v = gc.Variable(np.zeros(size), name="v")
    step = gc.compile(lambda: (v.assign_add(1), None)[1])
    plain = 200

    def work(number):
        for _ in range(plain):
            v.assign_add(1) if number == 0 else step()

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(work, range(8)))
    np.testing.assert_array_equal(v, np.full(size, 8.0 * plain))


def test_readers_see_whole_values(home):
    v, w = gc.Variable(np.zeros(200_000), name="v"), gc.Variable(np.zeros(200_000), name="w")

    def both():
        v.assign_add(1)
        w.assign_sub(1)

    step, read = gc.compile(both), gc.compile(lambda: (np.abs(v + w).max(), np.ptp(v.value)))
    stop = threading.Event()

    def write():
        while not stop.is_set():
            step()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert read() == (0, 0)
            assert np.ptp(v.value) == 0
    finally:
        stop.set()
        writer.join()
    assert not home.words.any() and not home.lock.locked()


def test_locks_of_several_containers_are_taken_in_one_order(home):
    a = gc.Variable(np.zeros(50_000), name="a", container=f"{home.name}_a")
    b = gc.Variable(np.zeros(50_000), name="b", container=f"{home.name}_b")

    def one():
        a.assign_add(1)
        b.assign_add(a * 0 + 1)

    def two():
        b.assign_add(1)
        a.assign_add(b * 0 + 1)

    steps = [gc.compile(one), gc.compile(two)]
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(lambda k: [steps[k % 2]() for _ in range(100)], range(4)))
    assert a.value[0] == b.value[0] == 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_can_write(home):
    v = gc.Variable(np.zeros(3), name="v")
    step = gc.compile(lambda: (v.assign_add(1), None)[1])
    step()
    found = runtime.container(home.name)
    with found.writing():
        child = os.fork()
        if child == 0:
            step()
            os._exit(int(v.value[0]) if v.value[0] == 2 else 99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert v.value[0] == 1
