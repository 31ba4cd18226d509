"""Variables in branches and loops, and memory that is written where it lies."""

from __future__ import annotations

import numpy as np
import pytest
from state_harness import X, agree, homes_of

import graphc as gc
from graphc.codegen.table.check_memory_plan import every_value_is_found
from graphc.errors import GraphError, RunError, VerifyError

# ------------------------------------------------------------------------------------ regions


def test_branches(home):
    v = gc.Variable(X, name="v")

    def f(x):
        def then(y):
            v.assign_add(y)
            return y + v.sum()

        y = gc.cond(x.sum() > 0, then, lambda y: y * 2, x)
        return y, v.value

    for sign in (1, -1):
        agree(f, [v], (X * sign,))


def test_loops(home):
    v, w = gc.Variable(np.ones(3), name="v"), gc.Variable(np.float64(2), name="w")

    def f(x):
        def body(k, y):
            v.assign_add(y * w)
            return y + v

        def step(carry, row):
            w.assign_add(row[0] / 100)
            return carry + w, v * row

        first = gc.fori(0, 3, body, x)
        last, rows = gc.scan(step, w.value, np.arange(6.0).reshape(2, 3))
        until = gc.while_loop(lambda z: z < 100 + w, lambda z: z * 2 + v.sum(), 1.0)
        return first, last, rows, until

    agree(f, [v, w], (np.arange(3.0),))


def test_no_writes_in_the_test_of_a_loop(home):
    v = gc.Variable(0.0, name="v")
    with pytest.raises(GraphError, match="test of a while loop"):
        gc.compile(lambda: gc.while_loop(lambda z: z < v.assign_add(1), lambda z: z + 1, 0.0))()


def test_gradients_beside_state(home):
    v, total = gc.Variable(np.ones(3), name="v"), gc.Variable(0.0, name="total")

    def loss(x):
        total.assign_add(1)
        return (x * x * v).sum()

    def f(x):
        value, slope = gc.value_and_grad(loss)(x)
        v.assign_sub(0.1 * slope)
        return value, slope

    agree(f, [v, total], (np.arange(3.0),))
    assert total.value == 4


# ------------------------------------------------------------------------------------ in place


def test_updates_are_written_where_they_lie(home):
    w, m, b = (gc.Variable(np.ones((40, 30), "f4"), name=n) for n in "wmb")

    def f(x, g):
        m.assign(0.9 * m + x.T @ g)
        w.assign_sub(0.1 * m)
        b.assign_sub(0.5 * (x.T @ g) / 3)
        return (x @ w).sum()

    rng = np.random.default_rng(0)
    arguments = rng.normal(size=(2, 8, 40)).astype("f4")
    arguments = arguments[0], arguments[1, :, :30].copy()
    compiled = agree(f, [w, m, b], arguments)
    assert {"v0", "v1", "v2"} <= homes_of(compiled, *arguments)


def test_branches_write_where_variables_lie(home):
    w, big = gc.Variable(X, name="w"), gc.Variable(np.ones((50, 50)), name="big")

    def f(x):
        def update(x):
            big.assign(big * 0.5 + x[0, 0])
            w.assign_sub(x)
            return x.sum()

        return gc.cond(x.sum() > 0, update, lambda x: x.sum() * 2, x)

    compiled = agree(f, [w, big], (X / 10,))
    agree(f, [w, big], (-X,))
    (cond,) = (n for n in compiled.lower(X).graphs[0].nodes if n.op.name == "cond")
    assert {"v0", "v1"} <= {r.base for r in cond.place.regions}

    def crossed(x):
        def update(x):
            held = w.value
            w.assign(x * 2)
            return held

        return gc.cond(x.sum() > 0, update, lambda x: x, x)

    for sign in (1, -1):
        agree(crossed, [w], (sign * X,))


def test_a_kernel_that_reads_the_old_value_and_writes_one_of_its_own(home):
    v = gc.Variable(X, name="v")

    def f(x):
        old = v + x
        v.assign(x * 2)
        return old

    agree(f, [v], (X,))


def test_a_plan_that_overwrites_what_is_read_is_refused(home):
    v = gc.Variable(np.ones((3, 3)), name="v")
    compiled = gc.compile(lambda: (v.assign(v.T * 0.5), None)[1])
    planned = compiled.lower().graphs[0]
    every_value_is_found(planned)
    (kernel,) = (n for n in planned.nodes if n.op.name == "fused")
    text = gc.show(planned)
    place = str(kernel.place.regions[0])
    assert f"[{place}]" in text
    with pytest.raises(VerifyError, match="overwrites what it reads"):
        every_value_is_found(gc.parse(text.replace(f"[{place}]", "[v0+0:72]")))


def test_finite_checks_leave_variables_as_they_were(home):
    v = gc.Variable(X, name="v")
    compiled = gc.compile(lambda x: (v.assign_add(1), np.log(x))[1], check_finite=True)
    with np.errstate(invalid="ignore"), pytest.raises(RunError, match="non-finite"):
        compiled(-X)
    np.testing.assert_array_equal(v, X)


def test_a_failed_run_is_not_done_twice(home):
    v = gc.Variable(0, name="v")
    table = np.arange(3.0)
    compiled = gc.compile(lambda i: (v.assign_add(1), gc.take(table, i, mode="raise"))[1])
    pair = gc.compile(lambda p: (v.assign_add(1), gc.take(table, p[0], mode="raise"))[1])
    for call in (compiled, lambda i: pair((i,))):
        for _ in range(4):
            call(np.array([1]))
        before = int(v)
        with pytest.raises(RunError, match="out of range"):
            call(np.array([5]))
        assert before <= int(v) <= before + 1


def test_what_another_variable_takes_over_is_overwritten_last(home):
    """What is assigned as it is gets copied at the end, from memory that nothing has changed."""
    a, b = gc.Variable(X, name="a"), gc.Variable(X * 2, name="b")

    def change_places():
        held = a.value
        a.assign(b)
        b.assign(held + 1)

    def keep(x):
        a.assign(x)
        return x + 1

    agree(change_places, [a, b])
    agree(keep, [a], (X * 3,))
    compiled = gc.compile(keep, donate=["x"])
    given = X * 3
    np.testing.assert_array_equal(compiled(given.copy()), given + 1)
    np.testing.assert_array_equal(a.value, given)


def test_scatter_in_place_touches_only_its_rows(home):
    big = gc.Variable(np.zeros((1 << 16, 64), "f4"), name="big")
    rows = np.array([5, 5, -1])
    compiled = gc.compile(lambda i, x: big.scatter_add(i, x).shape and None)
    for k in range(1, 5):
        compiled(rows, np.ones((3, 64), "f4"))
        assert big[5].sum() == 128 * k and big[-1].sum() == 64 * k
    assert "v0" in homes_of(compiled, rows, np.ones((3, 64), "f4"))
    assert np.asarray(big).sum() == 3 * 64 * 4


def test_finite_checks_of_every_device_come_before_any_variable_changes(home):
    v, w = gc.Variable(X, name="v"), gc.Variable(X, name="w")

    def f(x):
        with gc.device("cpu:1"):
            v.assign_add(x)
        with gc.device("cpu:0"):
            w.assign_add(x)
            y = gc.fori(0, 3, lambda i, c: np.tanh(c @ c.T @ c), x)
            return np.log(y)

    compiled = gc.compile(f, devices=["cpu:0", "cpu:1"], check_finite=True, verify=3)
    for _ in range(30):
        with np.errstate(invalid="ignore"), pytest.raises(RunError, match="non-finite"):
            compiled(-X - 1)
        np.testing.assert_array_equal(v, X)
        np.testing.assert_array_equal(w, X)
    compiled(X + 1)
    np.testing.assert_array_equal(v, 2 * X + 1)
    program = {record.name: record.value for record in compiled.stages(X)}["partition"]
    waits = [node.after for g in program.graphs for node in g.nodes if node.op.name == "assign"]
    assert len(waits) == 2 and all(any(n.op.name == "recv" for n in after) for after in waits)


def test_soft_placement_drops_a_colocation_or_a_device_but_no_home_of_a_variable() -> None:
    v, w = (gc.Variable(np.zeros((4, 4), np.float32), name=f"soft_{k}") for k in range(2))

    def f(x):
        gc.colocate(v, w)
        held = v.value
        with gc.device("cpu:0"):
            w.assign(x)
        with gc.device("cpu:1"):
            v.assign(held + x)
        return held

    two, x = ["cpu:0", "cpu:1"], np.ones((4, 4), np.float32)
    with pytest.raises(GraphError, match="lives on one device"):
        gc.compile(f, devices=two)(x)
    run = gc.compile(f, devices=two, soft_placement=True)
    for k in range(2):
        np.testing.assert_array_equal(run(x), x * k)
    np.testing.assert_array_equal(v, x * 2)
