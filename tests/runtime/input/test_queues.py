"""Queues: every order against a model of it, waiting, closing, cancelling, programs and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import graphc as gc
from graphc.errors import EndOfData, GraphError, RunError
from graphc.runtime.input import resource_table
from graphc.runtime.input.queues import Queue
from graphc.runtime.input.queues import Queue as Kept

NUMBER = gc.spec((), "i64")


def started(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_programs_use_a_queue() -> None:
    """Items of several arrays, one and several at once, in program order with its size."""
    queue = gc.Queue({"x": gc.spec((3,), "f32"), "n": NUMBER}, capacity=4)

    @gc.compile
    def put(x: Any, n: Any) -> None:
        queue.enqueue({"x": x * 2, "n": n})

    @gc.compile
    def take() -> Any:
        first = queue.dequeue()
        return first, queue.size(), queue.dequeue_many(2), queue.size()

    for k in range(3):
        put(np.full(3, k, "f4"), np.int64(k))
    assert queue.size() == 3
    first, two, rest, none = take()
    assert (first["n"], two, none) == (0, 2, 0)
    np.testing.assert_array_equal(rest["x"], [[2.0] * 3, [4.0] * 3])
    np.testing.assert_array_equal(rest["n"], [1, 2])


def test_loops_and_branches_use_a_queue() -> None:
    queue = gc.Queue(NUMBER, capacity=9)

    @gc.compile
    def fill(n: Any) -> Any:
        def body(k: Any, c: Any) -> Any:
            gc.cond(k % 2 == 0, lambda k: queue.enqueue(k), lambda k: None, k)
            return c

        return gc.fori(0, n, body, n)

    fill(np.int64(7))
    np.testing.assert_array_equal(queue.dequeue_many(4), [0, 2, 4, 6])


@given(
    some.lists(some.integers(0, 5), max_size=20),
    some.integers(1, 6),
    some.integers(0, 3),
    some.booleans(),
)
def test_shuffling_is_a_permutation_by_the_seed(
    given_items: list[int], window: int, seed: int, late: bool
) -> None:
    """However the items come, between dequeues or all before: the order is that of the seed."""
    columns = [["value", "int64", []]]

    def order(early: bool) -> list[int]:
        queue = Kept("shuffle", 100, columns, window=window, seed=seed)
        made = []
        for item in given_items:
            queue.enqueue((np.array(item),))
            while early and queue.order.ready(1, False):
                made += [int(x) for (x,) in queue.dequeue(1)]
        queue.close()
        while queue.size:
            made += [int(x) for (x,) in queue.dequeue(1)]
        return made

    assert order(late) == order(not late)
    assert sorted(order(late)) == sorted(given_items)


def test_shuffling_has_other_orders_for_other_seeds() -> None:
    def order(seed: int) -> list[int]:
        queue = gc.Queue(NUMBER, capacity=32, order="shuffle", seed=seed)
        for k in range(32):
            queue.enqueue(k)
        queue.close()
        return [int(queue.dequeue()) for _ in range(32)]

    assert order(1) == order(1) != order(2)
    assert order(1) != sorted(order(1))


def test_priorities() -> None:
    queue = gc.Queue(NUMBER, capacity=9, order="priority")
    for item, priority in enumerate([3, 1, 2, 1]):
        queue.enqueue(item, priority)
    assert [int(queue.dequeue()) for _ in range(4)] == [1, 3, 2, 0]


@given(
    some.lists(
        some.one_of(
            some.integers(-(2**63), 2**64 - 1),
            some.floats(allow_nan=False),
            some.floats(allow_nan=False, width=32).map(np.float32),
            some.integers(0, 255).map(np.uint8),
        ),
        max_size=9,
    )
)
def test_priorities_are_real_numbers(keys: list[Any]) -> None:
    """Integers and floats are compared by value, as Python compares them."""
    queue = gc.Queue(NUMBER, capacity=9, order="priority")
    for item, key in enumerate(keys):
        queue.enqueue(item, key)
    exact = [key.item() if isinstance(key, np.generic) else key for key in keys]
    made = [int(queue.dequeue()) for _ in keys]
    assert made == sorted(range(len(keys)), key=exact.__getitem__)


def test_keys_that_are_none() -> None:
    queue = gc.Queue(NUMBER, capacity=9, order="priority")
    buckets = gc.Queue(NUMBER, capacity=9, order="bucket", boundaries=(4,))
    put = gc.compile(lambda key: queue.enqueue(1, key))
    put(np.float32(0.5))
    for kept, key, problem in (
        (queue, np.nan, "a priority is NaN"),
        (queue, 1j, "are not taken for f64"),
        (queue, [1, 2], "shape"),
        (queue, "x", "of type str: an array or a number is expected"),
        (queue, 10**30, "."),
        (buckets, 1.0, "its length: numbers of f64 are not taken for i64"),
        (buckets, 5, "in no bucket"),
        (buckets, -1, "in no bucket"),
        (buckets, 2**64 - 1, "in no bucket"),
    ):
        with pytest.raises(GraphError, match=problem):
            kept.enqueue(1, key)
    with pytest.raises(RunError, match="a priority is NaN"):
        put(np.float32(np.nan))
    with pytest.raises(GraphError, match="are not taken for f64"):
        put(np.complex64(1))
    assert queue.size() == 1 and buckets.size() == 0


def test_items_keep_their_numbers() -> None:
    """What would become another number is refused, with the name of the array and the way out."""
    queue = gc.Queue({"x": gc.spec((), "i8"), "y": gc.spec((2,), "f32")}, capacity=9)
    put = gc.compile(lambda x, y: queue.enqueue({"x": x, "y": y}))
    good = np.ones(2, "f4")
    for x, y, problem in (
        (1.7, good, r"(?s)x: numbers of f64 are not taken for i8.*gc.astype\(x, 'i8'\)"),
        (np.float32(1), good, "x: numbers of f32 are not taken for i8"),
        (300, good, "'x' is 300, which int8 cannot hold"),
        (np.uint64(2**63), good, "'x' is 9223372036854775808, which int8 cannot hold"),
        (1, good + 1j, "y: numbers of c64 are not taken for f32"),
        (1, np.array([1, 1e300]), r"'y' is 1e\+300 at \[1\], which float32 cannot hold"),
        (1, np.ones(3), r"y: it has the shape \(2,\), not \(3,\)"),
    ):
        for call in (put, lambda x, y: queue.enqueue({"x": x, "y": y})):
            with pytest.raises(GraphError, match=problem):
                call(np.asarray(x) if call is put else x, y)
    put(np.array(True), np.array([1, np.inf]))
    put(np.int64(-128), np.array([2**40, 0.1]))
    assert queue.size() == 2
    queue.dequeue()
    np.testing.assert_array_equal(queue.dequeue()["y"], np.array([2**40, 0.1], "f4"))


def test_buckets_hold_lengths_of_one_range() -> None:
    queue = gc.Queue(gc.spec((8,), "f32"), capacity=9, order="bucket", boundaries=(2, 4, 8))
    for length in (7, 1, 5, 2, 3):
        queue.enqueue(np.arange(8) < length, length)
    short, bounds = queue.dequeue_many(2)
    np.testing.assert_array_equal(bounds, [2, 2])
    np.testing.assert_array_equal(short.sum(axis=1), [1, 2])
    long, bounds = queue.dequeue_many(2)
    np.testing.assert_array_equal(bounds, [8, 8])
    np.testing.assert_array_equal(long.sum(axis=1), [7, 5])
    with pytest.raises(RunError, match="in no bucket"):
        queue.enqueue(np.zeros(8), 9)


def test_waiting_for_items_and_for_space() -> None:
    queue = gc.Queue(NUMBER, capacity=2)
    put = gc.compile(lambda k: queue.enqueue(k))
    take = gc.compile(lambda: queue.dequeue_many(2))
    producer = started(lambda: [put(np.int64(k)) for k in range(10)])
    found = [int(x) for _ in range(5) for x in take()]
    producer.join(300)
    assert found == list(range(10))


def test_closing_drains_and_ends() -> None:
    queue = gc.Queue(NUMBER, capacity=4)
    take, three = gc.compile(queue.dequeue), gc.compile(lambda: queue.dequeue_many(3))
    for k in range(2):
        queue.enqueue(k)
    gc.compile(queue.close)()
    with pytest.raises(RunError, match="closed"):
        queue.enqueue(5)
    with pytest.raises(EndOfData, match=r"(?s)no more data.*test_queues.py"):
        three()
    assert [int(take()) for _ in range(2)] == [0, 1]
    with pytest.raises(EndOfData):
        take()
    waiting = gc.Queue(NUMBER)
    ends: list[Exception] = []

    def wait() -> None:
        try:
            waiting.dequeue()
        except EndOfData as error:
            ends.append(error)

    threads = [started(wait) for _ in range(3)]
    waiting.close()
    for thread in threads:
        thread.join(300)
    assert len(ends) == 3
    cancelled = gc.Queue(NUMBER)
    cancelled.enqueue(1)
    cancelled.cancel()
    with pytest.raises(EndOfData):
        cancelled.dequeue()


SETTINGS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "shuffle": {"window": 3, "seed": 5},
    "priority": {},
    "bucket": {"boundaries": (2, 4, 9)},
}


@given(
    some.sampled_from(sorted(SETTINGS)),
    some.lists(some.integers(0, 9), max_size=12),
    some.lists(some.integers(0, 9), max_size=12),
    some.integers(0, 12),
)
def test_a_queue_with_restored_contents_goes_on_as_the_other(
    order: str, before: list[int], after: list[int], taken: int
) -> None:
    """Items, keys, ties and the place in the random numbers, whatever was in it."""

    def made() -> Kept:
        return Kept(order, 40, [["x", "float32", [2]], ["n", "int64", []]], **SETTINGS[order])

    def put(queue: Kept, items: list[int]) -> None:
        for number, key in enumerate(items):
            queue.enqueue((np.full(2, number, "f4"), np.array(100 * key)), key)

    def rest(queue: Kept) -> list[bytes]:
        found = []
        while queue.order.ready(1, True):
            found += [b"".join(array.tobytes() for array in item) for item in queue.dequeue(1)]
        return found

    one, other = made(), made()
    put(one, before)
    while taken and one.order.ready(1, False):
        one.dequeue(1)
        taken -= 1
    put(other, after[:3])
    other.restore(one.contents())
    for queue in (one, other):
        put(queue, after)
        queue.close()
    assert rest(one) == rest(other)
    other.restore(one.contents())
    assert other.is_closed and not other.size


@pytest.mark.parametrize("key", [2**64 - 1, 2**53 + 1, -(2**63), 1.5, np.inf, 3])
def test_keys_of_restored_items_are_as_they_were(key: float) -> None:
    queue = Kept("priority", 3, [["x", "int64", []]])
    for item, each in enumerate((key, key - 1, key)):
        queue.enqueue((np.array(item),), each)
    before = sorted(queue.order.listed(), key=lambda pair: pair[0])
    queue.restore(queue.contents())
    assert sorted(queue.order.listed(), key=lambda pair: pair[0]) == before


def test_contents_lie_in_checkpoints_and_come_from_devices(tmp_path: Path) -> None:
    specs = {"x": gc.spec((2,), "f32"), "n": NUMBER}
    queue = gc.Queue(specs, capacity=4, order="priority")
    for k in (3, 1, 2):
        queue.enqueue({"x": np.full(2, k), "n": k}, k)

    @gc.compile(devices=["cpu:0", "cpu:1"])
    def contents() -> Any:
        with gc.device("cpu:1"):
            return queue.contents()

    gc.save_checkpoint(tmp_path / "c.safetensors", {"queue": contents()})
    other = gc.Queue(specs, capacity=4, order="priority")
    found = gc.load_checkpoint(tmp_path / "c.safetensors", {"queue": queue.contents()})[0]
    gc.compile(other.restore)(found["queue"])
    assert [int(other.dequeue()["n"]) for _ in range(3)] == [1, 2, 3]
    assert queue.size() == 3
    wrong = {**found["queue"], "state": np.array([5, 0, 0, 0])}
    for bad, problem in (
        ({**wrong}, "never has had 5 items"),
        ({**wrong, "state": np.array([-1, 0, 0, 0])}, "never has had -1"),
        ({**wrong, "state": np.array([0, 2, 0, 0])}, "no queue of this order"),
        ({**wrong, "state": np.array([0, 0, 1, 0])}, "no queue of this order"),
        ({**wrong, "state": np.array([0, 0, 0, 1])}, "no queue of this order"),
        ({**wrong, "state": np.zeros(3, "i8")}, r"shape \(4,\), not \(3,\)"),
        ({**wrong, "keys": np.zeros((2, 2))}, r"shape \(4, 2\)"),
        ({"items": 3}, "structure"),
        ({**wrong, "keys": np.full((4, 2), np.nan), "state": np.array([1, 0, 0, 0])}, "NaN"),
    ):
        with pytest.raises(GraphError, match=problem):
            other.restore(bad)
    assert other.size() == 0
    lengths = gc.Queue(specs, capacity=4, order="bucket", boundaries=[8])
    with pytest.raises(GraphError, match="nan is in no bucket"):
        lengths.restore({**wrong, "keys": np.full((4, 2), np.nan), "state": np.array([1, 0, 0, 0])})


@pytest.mark.parametrize("devices", [["cpu:0"], ["cpu:0", "cpu:1"]])
def test_a_cancelled_run_leaves_no_thread(devices: list[str]) -> None:
    queue = gc.Queue(NUMBER, capacity=1)

    @gc.compile(devices=devices)
    def wait() -> Any:
        with gc.device(devices[-1]):
            return queue.dequeue() + 1

    errors: list[str] = []

    def run() -> None:
        try:
            wait()
        except RunError as error:
            errors.append(str(error))

    run_of = wait.executable()
    thread = started(run)
    while thread.is_alive():
        run_of.cancel()
        thread.join(0.01)
    assert "cancelled" in errors[0]
    queue.enqueue(41)
    assert wait() == 42


def test_an_error_elsewhere_ends_a_wait() -> None:
    queue = gc.Queue(NUMBER)

    @gc.compile(devices=["cpu:0", "cpu:1"])
    def step(i: Any) -> Any:
        with gc.device("cpu:1"):
            taken = queue.dequeue()
        with gc.device("cpu:0"):
            gc.assert_(i < 3, "too large")  # noqa: PT009
        return taken

    with pytest.raises(RunError, match="too large"):
        step(np.int64(9))
    queue.enqueue(7)
    assert step(np.int64(1)) == 7


def test_calls_of_two_queues_do_not_wait_for_each_other() -> None:
    """On two devices each has its own token: what one waits for, the other brings."""
    one, two = gc.Queue(NUMBER), gc.Queue(NUMBER)

    @gc.compile(devices=["cpu:0", "cpu:1"])
    def step() -> Any:
        with gc.device("cpu:1"):
            made = one.dequeue()
            two.enqueue(made + 1)
        with gc.device("cpu:0"):
            one.enqueue(np.int64(4))
            return two.dequeue()

    # Calls of one queue are in line: `one` is asked first, so its item has to be there.
    one.enqueue(3)
    assert step() == 4
    assert one.size() == 1


def test_queues_are_of_this_process(tmp_path: Path) -> None:
    queue = gc.Queue(NUMBER)
    step = gc.compile(queue.dequeue)
    with pytest.raises(GraphError):
        step.save(tmp_path / "q.gir")
    with pytest.raises(GraphError):
        step.save(tmp_path / "q.gcx")


def test_bad_arguments() -> None:
    for arguments, problem in (
        ({"order": "lifo"}, "not 'lifo'"),
        ({"capacity": 0}, "one item or more"),
        ({"capacity": 2, "window": 3}, "a window in it"),
        ({"order": "bucket"}, "has boundaries"),
        ({"order": "bucket", "boundaries": (4, 2)}, "from 0 and rising"),
        ({"order": "bucket", "boundaries": (-1, 2)}, "from 0 and rising"),
        ({"boundaries": (2,)}, "has boundaries"),
    ):
        with pytest.raises(GraphError, match=problem):
            gc.Queue(NUMBER, **arguments)
    with pytest.raises(GraphError, match="specs of known shapes"):
        gc.Queue(np.zeros(3))
    queue = gc.Queue(gc.spec((2,), "f32"), capacity=3)
    with pytest.raises(GraphError, match="never has 4"):
        queue.dequeue_many(4)
    with pytest.raises(GraphError, match="has no key"):
        queue.enqueue(np.zeros(2), 1)
    with pytest.raises(GraphError, match=r"shape \(2,\), not \(3,\)"):
        queue.enqueue(np.zeros(3))
    with pytest.raises(GraphError, match="a key, its priority"):
        gc.Queue(NUMBER, order="priority").enqueue(1)


def test_a_queue_may_be_collected_while_another_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector runs wherever Python allocates, in the same thread."""
    old = gc.Queue(gc.spec((), "f64"))
    old.enqueue(1.0)
    text = old.text

    def collecting(**settings: Any) -> Queue:
        resource_table.drop(text)
        return Queue(**settings)

    monkeypatch.setattr(resource_table, "_maker", lambda kind: collecting)
    new = gc.Queue(gc.spec((), "f64"))
    made = threading.Thread(target=new.enqueue, args=(2.0,), daemon=True)
    made.start()
    made.join(300)
    assert not made.is_alive() and new.dequeue() == 2.0
