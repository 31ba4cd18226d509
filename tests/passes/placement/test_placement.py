"""`gc.device` and `gc.colocate` where they meet variables, regions, calls and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_graphs import everything

import graphc as gc
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.place import device_of
from graphc.ir.regions import talks
from graphc.passes import pipeline

TWO = ["cpu:0", "cpu:1"]
X = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)


def placed(function: object, *arrays: object) -> Graph:
    for record in gc.compile(function, devices=TWO).stages(*arrays):
        if record.name == "place":
            return record.value
    raise AssertionError


def homes(graph: Graph, op: str) -> list[str]:
    return [device_of(n.place).short for n in graph.nodes if n.op.name == op]


def groups(nodes: list[Node]) -> set[str | None]:
    return {n.place.group if n.place else None for n in nodes}


def test_nodes_follow_a_variable_and_a_variable_follows_them() -> None:
    v = gc.Variable(np.ones((4, 4), np.float32), name="follow")

    def f(x):
        with gc.device("cpu:1"):
            y = x @ v
        with gc.colocate(v):
            z = np.tanh(x)
        v.assign(y + z)
        return np.exp(z)

    found = placed(f, X)
    assert homes(found, "read") == homes(found, "assign") == homes(found, "tanh")
    v2 = gc.Variable(np.ones((4, 4), np.float32), name="follow2")

    def g(x):
        y = np.tanh(x)
        gc.colocate(v2, y)
        with gc.device("cpu:1"):
            z = np.exp(y)
        gc.colocate(y, z)
        v2.assign_add(y)
        return z

    assert set(homes(placed(g, X), "assign") + homes(placed(g, X), "tanh")) == {"cpu:1"}


def test_regions_inherit_the_constraint_around_them() -> None:
    def f(x):
        with gc.device("cpu:1"):
            return gc.fori(0, 3, lambda i, c: np.tanh(c @ c), x)

    graph = gc.compile(f, devices=TWO).graph(X)
    (loop,) = (n for n in graph.nodes if n.regions)
    inside = [n for n in loop.regions[-1].nodes if n.op.name in ("matmul", "tanh")]
    assert {str(n.place) for n in inside} == {"?/device:cpu:1"}
    found = placed(f, X)
    (loop,) = (n for n in found.nodes if n.regions)
    assert device_of(loop.place).short == "cpu:1"
    np.testing.assert_allclose(
        gc.compile(f, devices=TWO)(X), gc.compile(f, soft_placement=True)(X), rtol=1e-6
    )


def test_two_calls_of_a_function_have_groups_of_their_own() -> None:
    @gc.compile
    def layer(x):
        a, b = np.tanh(x), np.exp(x)
        gc.colocate(a, b)
        return a @ b

    def f(x):
        with gc.device("cpu:0"):
            y = layer(x)
        with gc.device("cpu:1"):
            return layer(y)

    found = placed(f, X)
    assert homes(found, "tanh") == homes(found, "exp") == TWO
    np.testing.assert_allclose(
        gc.compile(f, devices=TWO)(X), gc.compile(f, soft_placement=True)(X), rtol=1e-6
    )


def test_groups_are_named_once_for_a_function_and_its_regions() -> None:
    def f(x):
        a, b = np.tanh(x), np.sin(x)
        gc.colocate(a, b)

        def body(_, c):
            left, right = np.exp(c), np.cos(c)
            gc.colocate(left, right)
            return left @ right

        return gc.fori(0, 2, body, a @ b)

    graph = gc.compile(f, devices=TWO).graph(X)
    (loop,) = (n for n in graph.nodes if n.regions)
    assert groups([n for n in graph.nodes if n.op.name in ("tanh", "sin")]) == {"g0"}
    inner = [n for n in loop.regions[-1].nodes if n.op.name in ("exp", "cos")]
    assert groups(inner) == {"g1"}


def test_colocation_in_a_colocation_adds_to_it() -> None:
    v = gc.Variable(np.ones((4, 4), np.float32), name="nested_group")

    def clash(x):
        with gc.device("cpu:0"):
            a = np.tanh(x)
        with gc.device("cpu:1"):
            b = np.sin(x)
        with gc.colocate(a), gc.colocate(b):
            return a @ b

    message = r"(?s)%1 must run on .*cpu:0 and %2 .*cpu:1.*gc.colocate.*matmul.*test_placement.py"
    with pytest.raises(GraphError, match=message):
        gc.compile(clash, devices=TWO)(X)

    def meet(x):
        with gc.device("cpu:1"):
            a = np.tanh(x)
        with gc.colocate(a), gc.colocate(v):
            b = x * 2
        return a + b @ v

    def apart(x):
        a, b = np.tanh(x), np.sin(x)
        with gc.colocate(a):
            gc.colocate(b)  # no block: it says nothing of a
            return a @ b

    found = placed(meet, X)
    assert homes(found, "tanh") == homes(found, "mul") == homes(found, "read") == ["cpu:1"]
    nodes = gc.compile(apart, devices=TWO).graph(X).nodes
    assert [n.place.group for n in nodes if n.op.name in ("tanh", "sin")] == ["g0", "g1"]


def test_a_variable_is_read_under_another_device_as_a_message() -> None:
    v = gc.Variable(np.ones((4, 4), np.float32), name="read_elsewhere")

    def f(x):
        with gc.device("cpu:1"):
            y = v.value + 1
        with gc.device("cpu:0"):
            v.assign(v + x)
        return y

    def loop(x):
        with gc.device("cpu:0"):
            v.assign_add(x)

        def body(_, c):
            with gc.device("cpu:1"):
                c = np.tanh(c @ v.value)
            with gc.device("cpu:0"):
                v.assign(v * 0.5 + c)
            return c

        return gc.fori(0, 3, body, x)

    for function in (f, loop):
        found = []
        for options in ({"soft_placement": True}, {"devices": TWO, "verify": 3}):
            v.assign(np.ones((4, 4), np.float32))
            run = gc.compile(function, **options)
            found.append((run(X), run(X), np.array(v)))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    graph = placed(f, X)
    assert homes(graph, "read") == homes(graph, "assign") == ["cpu:0"]
    assert "cpu:1" in homes(graph, "add")
    record = next(r for r in gc.compile(f, devices=TWO).stages(X) if r.name == "place")
    texts = [text for _, text in record.note.reasons]
    assert any("'read_elsewhere'" in text and "test_placement.py" in text for text in texts)


def test_updates_keep_the_device_that_they_ask_for() -> None:
    v = gc.Variable(np.ones((4, 4), np.float32), name="asked")

    def twice(x):
        with gc.device("cpu:1"):
            v.assign_add(x)
            v.assign(v * 2)

    def inside(x):
        def grow(a):
            with gc.device("cpu:1"):
                v.assign(a)
            return a

        return gc.cond(np.sum(x) > 0, grow, lambda a: a, x)

    for function in (twice, inside):
        assert homes(placed(function, X), "assign") == ["cpu:1"]


def test_variables_that_are_only_assigned_are_colocated() -> None:
    v = gc.Variable(np.ones((4, 4), np.float32))
    w = gc.Variable(np.ones((4, 4), np.float32))

    def f(x):
        gc.colocate(v, w)
        with gc.device("cpu:1"):
            v.assign(x)
        w.assign(x + 1)

    def g(x):
        with gc.device("cpu:1"):
            v.assign(x)
        w.assign(x + 1)
        gc.colocate(v, w)

    def clash(x):
        gc.colocate(v, w)
        with gc.device("cpu:1"):
            v.assign(x)
        with gc.device("cpu:0"):
            w.assign(x + 1)

    for function in (f, g):
        assert homes(placed(function, X), "assign") == ["cpu:1", "cpu:1"]
    line = clash.__code__.co_firstlineno
    with pytest.raises(GraphError) as error:
        placed(clash, X)
    text = str(error.value)
    assert f"variable {v.name!r} (made at tests/passes/placement/test_placement.py:" in text
    assert f"test_placement.py:{line + 3}" in text and f"test_placement.py:{line + 5}" in text


def test_a_value_may_be_beside_several_others() -> None:
    def f(x):
        a, b, c = np.tanh(x), np.sin(x), np.exp(x)
        with gc.colocate(a):
            gc.colocate(a, b)
            with gc.colocate(c):
                y = a + 1
        with gc.device("cpu:1"):
            z = np.cos(x)
        gc.colocate(y, z)
        return a, b, c, y, z

    found = placed(f, X)
    for op in ("tanh", "sin", "exp", "cos"):
        assert homes(found, op) == ["cpu:1"]
    text = gc.show(gc.compile(f).graph(X))
    assert "~g0~g1" in text
    assert gc.show(gc.parse(text)) == text


def test_outside_of_a_trace_nothing_happens() -> None:
    with gc.device("cpu:1"), gc.colocate(X):
        assert gc.tanh(X).shape == (4, 4)
    with pytest.raises(GraphError, match="is not a device name"):
        gc.device("cpu:one")


def test_colocation_needs_something_traced() -> None:
    def f(x):
        gc.colocate(3.0, "cpu:1")
        return x

    with pytest.raises(GraphError, match=r"(?s)traced arrays or variables.*test_placement.py"):
        gc.compile(f).graph(X)


def test_gradients_of_layers_on_two_devices_are_those_of_one() -> None:
    def loss(w, x):
        with gc.device("cpu:0"):
            h = np.tanh(x @ w)
        with gc.device("cpu:1"):
            return np.sum(np.tanh(h @ w))

    one = gc.compile(gc.value_and_grad(loss), soft_placement=True)(X, X)
    two = gc.compile(gc.value_and_grad(loss), devices=TWO)(X, X)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_allclose(one[1], two[1], rtol=1e-6)


def test_programs_of_simulated_devices_place_and_partition() -> None:
    def f(x, w):
        left = right = x
        for _ in range(4):
            left, right = np.tanh(left @ w), np.sin(right @ w)
        return left + right

    x = gc.spec((512, 512), "f32")
    value: Any = gc.compile(f).graph(x, x)
    config = Config.create(devices=["sim:0", "sim:1"])
    for record in pipeline.STAGES:
        value = pipeline.apply(record, value, config)
        if record.name == "schedule":
            break
    assert [g.device.short for g in value.graphs] == ["sim:0", "sim:1"]


@pytest.mark.parametrize("devices", [["cpu:0"], TWO])
def test_equal_nodes_that_meet_on_one_device_become_one(devices: list[str]) -> None:
    def f(x):
        y = np.tanh(x) * 2
        with gc.device("cpu:0"):
            return y + np.tanh(x) * 2

    run = gc.compile(f, devices=devices)
    np.testing.assert_allclose(run(X), f(X), rtol=1e-6)
    graph = next(r.value for r in run.stages(X) if r.name == "cse_placed")
    assert len(homes(graph, "tanh")) == len(homes(graph, "const")) == 1


def test_constants_of_different_devices_keep_no_equal_nodes_apart() -> None:
    """Partition has one constant for both on the device of these nodes."""

    def f(x):
        with gc.device("cpu:1"):
            left = np.exp(x)
        with gc.device("cpu:2"):
            right = np.sin(x)
        half, other = left * 0.5, right * 0.5  # one constant for both
        gc.colocate(half, left)
        gc.colocate(other, right)
        with gc.device("cpu:2"):
            again = right * 0.5
        with gc.device("cpu:0"):
            return half + other, again + 1

    run = gc.compile(f, devices=["cpu:0", "cpu:1", "cpu:2"])
    for got, want in zip(run(X), f(X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    graph = next(r.value for r in run.stages(X) if r.name == "cse_placed")
    assert len(homes(graph, "mul")) == 2


def test_a_branch_lies_where_all_that_it_does_lies() -> None:
    def on_one(function):
        def branch(a):
            with gc.device("cpu:1"):
                return function(a)

        return branch

    def f(x):
        with gc.device("cpu:0"):
            return gc.cond(np.sum(x) > 0, on_one(np.tanh), on_one(np.sin), x)

    for opt in (0, 1, 2):
        run = gc.compile(f, devices=TWO, opt=opt, verify=3)
        np.testing.assert_allclose(run(X), np.tanh(X), rtol=1e-6)
    assert homes(placed(f, X), "cond") == ["cpu:1"]


def test_an_update_in_a_branch_of_a_loop_may_have_another_device_than_the_loop() -> None:
    v = gc.Variable(np.zeros((4, 4), np.float32), name="inner_update")

    def f(x):
        def grow(a):
            v.assign(v + a)
            return v * 0.5

        def body(_, c):
            with gc.device("cpu:0"):
                d = gc.cond(np.sum(c) > 0, grow, lambda a: a * 2, c)
            with gc.device("cpu:1"):
                return np.tanh(d)

        with gc.device("cpu:1"):
            return gc.fori(0, 3, body, x)

    found = []
    for options in ({"soft_placement": True}, {"devices": TWO}):
        v.assign(np.zeros((4, 4), np.float32))
        found.append((gc.compile(f, **options)(X), np.array(v)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_branches_that_do_nothing_but_what_spans_devices() -> None:
    def inner(x):
        with gc.device("cpu:0"):
            y = np.tanh(x)
        with gc.device("cpu:1"):
            return np.exp(y)

    def f(x, p, q):
        return gc.cond(p, lambda x: gc.cond(q, inner, lambda x: x, x), lambda x: x, x)

    run = gc.compile(f, devices=TWO)
    for p in (False, True):
        wanted = np.exp(np.tanh(X)) if p else X
        np.testing.assert_allclose(run(X, np.bool_(p), np.bool_(True)), wanted, rtol=1e-6)


@pytest.mark.parametrize(("near", "far"), [("cpu:0", "cpu:1"), ("cpu:1", "cpu:0"), ("cpu:1", None)])
def test_a_stack_is_where_a_loop_in_a_loop_pushes(near: str, far: str | None) -> None:
    """Nothing crosses in the rounds of the inner loop, on the way there or back."""

    def f(x):
        def body(c, k):
            with gc.device(near):
                a = gc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.tanh(s[1])), (0, c))
            with gc.device(far):
                return np.sin(a[1]), k * a[1].sum()

        c, y = gc.scan(body, x, np.ones(3, np.float32))
        return c.sum() + y.sum()

    alone = gc.compile(gc.grad(f), fast_math=False, soft_placement=True)
    both = gc.compile(gc.grad(f), fast_math=False, devices=TWO)
    np.testing.assert_array_equal(both(X), alone(X))
    program = next(r.value for r in both.stages(X) if r.name == "partition")
    loops = [node for graph in program.graphs for node in everything(graph)]
    loops = [node for node in loops if node.op.name == "while"]
    assert len(loops) == 2 and {node.place.short for node in loops} == {near}
    assert not any(talks(node) for node in loops)


@pytest.mark.parametrize("devices", [TWO, TWO[::-1], ["cpu:2", *TWO]])
@pytest.mark.parametrize("asked", ["cpu:0", "cpu:1", None])
def test_what_is_colocated_across_a_loop_over_devices(
    devices: list[str], asked: str | None
) -> None:
    """The body is placed before what stands around it, and yet goes where that asks for."""

    def f(x):
        y = np.tanh(x)

        def body(i, c):
            with gc.device("cpu:1"):
                a = np.sin(c)
            with gc.device("cpu:0"):
                b = np.cos(a)
            with gc.colocate(y):
                return np.exp(-b)

        far = gc.fori(0, 3, body, x)
        with gc.device(asked), gc.colocate(y):
            return np.floor(y * 8) + far

    run = gc.compile(f, devices=devices)
    np.testing.assert_allclose(run(X), gc.compile(f, soft_placement=True)(X), atol=1e-6)
    graph = next(r.value for r in run.stages(X) if r.name == "place")
    found = {n.place.short for n in everything(graph) if n.op.name in ("tanh", "exp", "floor")}
    assert len(found) == 1 and asked in (None, *found)


def test_a_colocation_across_a_loop_that_cannot_be() -> None:
    def f(x):
        with gc.device("cpu:0"):
            y = np.tanh(x)

        def body(i, c):
            with gc.device("cpu:1"):
                a = np.sin(c)
                gc.colocate(a, y)
            with gc.device("cpu:0"):
                return np.cos(a)

        return gc.fori(0, 3, body, y)

    with pytest.raises(GraphError, match=r"(?s)must run on .*colocat.*test_placement.py"):
        gc.compile(f, devices=TWO)(X)
    soft = gc.compile(f, devices=TWO, soft_placement=True)
    np.testing.assert_allclose(soft(X), gc.compile(f, soft_placement=True)(X), atol=1e-6)


def told(x):
    gc.print("{}", x)
    return x * 2


def told_in_a_loop(x):
    return gc.fori(0, 3, lambda k, y: told(y), x)


def told_in_a_scan(x):
    return gc.scan(lambda c, row: (told(c), c * row), x[0], x)[1]


def told_in_a_branch(x):
    return gc.cond(x.sum() > 0, told, lambda y: y, x)


def asked_of_python(x):
    made = gc.callback(lambda a: np.asarray(a) * 2, gc.spec((4, 4), "f32"), x * 3)
    gc.assert_(made.sum() > 0, "none")  # noqa: PT009
    return made + 1


def told_beside_a_value(x):
    y = x * 2
    with gc.colocate(y):
        gc.print("{}", y)
    return y


CALLS = (
    told,
    told_in_a_loop,
    told_in_a_scan,
    told_in_a_branch,
    asked_of_python,
    told_beside_a_value,
    gc.grad(lambda x: told_in_a_loop(x).sum()),
)


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("cpus", [1, 2])
def test_python_is_called_on_a_cpu_whatever_the_scope_says(function, cpus):
    def scoped(x):
        with gc.device("gpu:0"):
            return function(x)

    devices = [*(f"cpu:{k}" for k in range(cpus)), "gpu:0"]
    stages = gc.compile(scoped, devices=devices).stages(X)
    graph = next(r.value for r in stages if r.name == "place")
    nodes = list(everything(graph))
    called = [n.place.short for n in nodes if n.op.name in ("print", "callback", "assert")]
    assert called and all(place.startswith("cpu") for place in called)
    assert any(n.place is not None and n.place.short == "gpu:0" for n in nodes)


def test_python_is_called_on_the_cpu_that_a_scope_names():
    def scoped(x):
        with gc.device("cpu:1"):
            gc.print("{}", x)
        return x + 1

    assert homes(placed(scoped, X), "print") == ["cpu:1"]
