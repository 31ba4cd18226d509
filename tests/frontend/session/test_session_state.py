"""Variables in sessions: state that outlives runs and is shared through containers."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from session_graphs import session

import graphc as gc
from graphc.errors import RunError

_numbers = itertools.count()


def counting(value: float = 0.0) -> tuple[gc.Variable, Any]:
    """A new variable, and the graph of a function that adds to it: before, add, now."""
    counter = gc.Variable(np.float32(value), name=f"session_counter_{next(_numbers)}")

    @gc.compile
    def increase(x: Any) -> Any:
        gc.name(counter.value, "before")
        gc.name(counter.assign_add(x), "add")
        return gc.name(counter.value, "now")

    return counter, increase.graph(gc.spec((), "f32"))


def test_a_thousand_increments_make_a_thousand() -> None:
    counter, graph = counting()
    s = session(graph)
    for _ in range(1000):
        s.run([], {"x": 1.0}, targets=["add"])
    assert counter.value == 1000 and len(s.compiles) == 1
    assert s.run("before") == 1000
    assert s.run("now", {"x": 0.5}) == 1000.5


def test_what_is_not_asked_for_does_not_write() -> None:
    counter, graph = counting(3)
    s = session(graph)
    for _ in range(5):
        assert s.run("before") == 3
    assert counter.value == 3


def test_two_sessions_see_one_counter_until_its_container_is_reset() -> None:
    with gc.container("session_shared"):
        counter, graph = counting()
    one, two = session(graph), session(graph)
    for k in range(10):
        assert one.run("now", {"x": 1.0}) == 2 * k + 1
        assert two.run("now", {"x": 1.0}) == 2 * k + 2
    assert counter.value == 20
    gc.reset_container("session_shared")
    for s in (one, two):
        with pytest.raises(RunError, match="reset"):
            s.run("now", {"x": 1.0})
    counter.assign(np.float32(5))
    assert one.run("now", {"x": 1.0}) == 6 and two.run("before") == 6


def test_one_graph_added_twice_writes_in_the_order_of_adding() -> None:
    counter, graph = counting()
    s = session(graph)
    s.extend(graph, scope="again")
    assert s.run(["now", "again/now"], {"x": 1.0, "again/x": 10.0}) == [1, 11]
    assert counter.value == 11


def test_a_partial_run_writes_once() -> None:
    counter, graph = counting()
    s = session(graph)
    after = "graph @after(%0 n: f32[], %1 y: f32[]) {\n  %2 = mul(%0, %1) : f32[]\n"
    s.extend(after + "  return product: %2\n}", inputs={"n": "now"})
    for k in range(1, 4):
        h = s.partial_run_setup(["before", "add", "product"], ["x", "y"])
        assert s.partial_run(h, "add", {"x": 1.0}) == k
        counter.assign(np.float32(100))  # somebody else writes between the calls
        assert s.partial_run(h, "before") == k - 1
        assert s.partial_run(h, "product", {"y": 2.0}) == 200
        assert counter.value == 100
        counter.assign(np.float32(k))


def test_eight_threads_count_together() -> None:
    counter, graph = counting()
    s = session(graph)

    def work() -> None:
        for _ in range(250):
            s.run([], {"x": 1.0}, targets=["add"])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == 2000


def test_a_fed_read_is_not_read() -> None:
    counter, graph = counting(1)
    s = session(graph)
    assert s.run("now", {"before": 10.0, "x": 5.0}) == 15
    assert counter.value == 15
