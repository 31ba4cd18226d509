"""Calls of compiled functions without a frame of Python: what they take, and what Python does."""

from __future__ import annotations

import copy
import functools
import inspect
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from leaks import assert_nothing_is_left
from threads import at_once

import graphc as gc
from graphc.frontend.compile.call_cache import MOST_DIRECT
from graphc.frontend.compile.decorator import CompiledFunction

X = np.arange(8, dtype="f4")


def warm(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    compiled = gc.compile(function, **options)
    for _ in range(4):
        compiled(*args)
    return compiled


def frames(call: Callable[[], Any]) -> list[str]:
    """The functions of Python that a call runs, itself left out."""
    seen: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return seen[1:]


def test_a_call_like_the_latest_makes_no_frame() -> None:
    f = warm(lambda x, y: x + y, X, X)
    assert frames(lambda: f(X, X)) == []
    np.testing.assert_array_equal(f(X, X + 1), 2 * X + 1)


def test_nested_arguments_and_results_make_no_frame() -> None:
    f = warm(lambda p: {"z": p["a"] * 2, "y": (p["b"], p["a"])}, {"a": X, "b": X})
    assert frames(lambda: f({"a": X, "b": X})) == []
    np.testing.assert_array_equal(f({"a": X + 1, "b": X})["z"], 2 * X + 2)


def test_a_few_sizes_that_take_turns_make_no_frame() -> None:
    f = warm(lambda x: x * 2, X)
    inputs = [np.arange(length, dtype="f4") for length in range(2, 9)]
    for x in [*inputs, *inputs]:
        np.testing.assert_array_equal(f(x), 2 * x)
    for x in inputs[-MOST_DIRECT:]:
        assert frames(lambda x=x: f(x)) == []
        np.testing.assert_array_equal(f(x), 2 * x)


SCALE = 2.0


def test_what_cells_and_globals_hold_is_looked_at_natively() -> None:
    global SCALE
    shift, rate = 1.0, type("Rate", (), {})()
    rate.value = 3.0
    f = warm(lambda x: x * SCALE + shift * rate.value, X)
    assert frames(lambda: f(X)) == []
    try:
        SCALE = 4.0
        np.testing.assert_array_equal(f(X), 4 * X + 3)
        shift = 2.0
        np.testing.assert_array_equal(f(X), 4 * X + 6)
        rate.value = 5.0
        for _ in range(2):
            np.testing.assert_array_equal(f(X), 4 * X + 10)
        assert frames(lambda: f(X)) == []
        assert len(f.compiles) == 4
        SCALE, shift, rate.value = 2.0, 1.0, 3.0  # equal, and one or another of them another object
        for _ in range(2):
            np.testing.assert_array_equal(f(X), 2 * X + 3)
        assert len(f.compiles) == 4
    finally:
        SCALE = 2.0


@pytest.mark.parametrize("given", [{}, {"k": 3.0}, {"k": 3.0, "w": 2.0}], ids=len)
def test_what_a_partial_was_given_is_looked_at_natively(given: dict[str, float]) -> None:
    part = functools.partial(lambda x, k=1.0, *, w=5.0: x * k + w, **given)
    f = warm(part, X)
    assert frames(lambda: f(X)) == []
    for change in ({"w": 7.0}, {"k": 4.0, "w": 7.0}, {"k": 4.0, "w": 8.0}, {"w": 8.0}, {}):
        part.keywords.clear()
        part.keywords.update(change)
        for _ in range(2):
            np.testing.assert_array_equal(f(X), part(X))
        assert frames(lambda: f(X)) == []


def test_a_default_that_a_keyword_gets_is_seen() -> None:
    def scaled(x: Any, *, k: float = 2.0, w: Any) -> Any:
        return x * k if w is None else w

    outer = lambda x: scaled(x, w=x + 1)
    f = warm(outer, X)
    assert frames(lambda: f(X)) == []
    scaled.__kwdefaults__["k"] = 3.0
    np.testing.assert_array_equal(f(X), X + 1)
    assert len(f.compiles) == 2


@pytest.mark.parametrize("value", [None, 0.0, -0.0, float("nan"), 1 << 70, "text", (1, (2.0, "a"))])
def test_a_value_that_is_equal_but_another_object_does_not_compile_again(value: Any) -> None:
    def model(x: Any) -> Any:
        return x * (2 if value is None else 3)

    f = warm(model, X)
    assert frames(lambda: f(X)) == []
    value = copy.deepcopy(value) if value is None else eval(repr(value), {"nan": float("nan")})
    for _ in range(2):
        np.testing.assert_array_equal(f(X), X * (2 if value is None else 3))
    assert len(f.compiles) == 1


def test_elements_of_arrays_and_items_of_lists_are_looked_at_in_python() -> None:
    table, items = np.ones(8, "f4"), [1.0, 2.0]
    f = warm(lambda x: x * table + items[0], X)
    table[:] = 3
    np.testing.assert_array_equal(f(X), 3 * X + 1)
    items[0] = 4.0
    np.testing.assert_array_equal(f(X), 3 * X + 4)
    del items[0]
    np.testing.assert_array_equal(f(X), 3 * X + 2)


def test_what_is_gone_is_an_error_as_ever() -> None:
    rate = type("Rate", (), {})()
    rate.value = 3.0
    f = warm(lambda x: x * rate.value, X)
    del rate.value
    with pytest.raises((gc.GraphError, AttributeError)):
        f(X)
    rate.value = 3.0
    np.testing.assert_array_equal(f(X), 3 * X)


def test_threads_that_change_what_is_read() -> None:
    scale = 1.0
    f = warm(lambda x: x * scale, X)

    def change(number: int) -> None:
        nonlocal scale
        scale = float(number % 3)

    def call(number: int) -> None:
        assert f(X)[1] in (0, 1, 2)

    at_once(change, call, call, times=300)
    np.testing.assert_array_equal(f(X), X * np.float32(scale))


def test_a_failure_is_of_the_entry_that_ran() -> None:
    def model(x: Any, k: Any) -> Any:
        return x[k]

    f = warm(model, X, np.array([1]))
    for _ in range(4):
        f(X[:4].astype("f8"), np.array([1, 1]))
    for x in (X, X[:4].astype("f8")):
        k = np.full(1 if x is X else 2, 9)
        with pytest.raises(gc.GraphError, match=f"9.*{len(x)}"):
            f(x, k)


OTHERS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "keyword": ((X,), {"y": X}),
    "keywords": ((), {"y": X + 1, "x": X}),
    "number": ((X, 2.0), {}),
    "other dtype": ((X.astype("f8"), X.astype("f8")), {}),
    "strided": ((np.arange(16, dtype="f4")[::2], X), {}),
    "subclass": ((X.view(type("Own", (np.ndarray,), {})), X), {}),
    "empty": ((X[:0], X[:0]), {}),
    "not finite": ((X / np.float32("nan"), X), {}),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_calls_go_through_python(kind: str) -> None:
    f = warm(lambda x, y: x - y, X, X)
    args, kwargs = OTHERS[kind]
    want = np.subtract(*args) if args and not kwargs else X - kwargs["y"]
    for _ in range(3):
        np.testing.assert_array_equal(f(*args, **kwargs), want)
        np.testing.assert_array_equal(f(X, X), np.zeros(8))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((X,), {}), ((X, X, X), {}), ((X,), {"z": X}), ([X] * 300_000, {})],
)
def test_wrong_arguments_are_refused_as_ever(args: Any, kwargs: Any) -> None:
    f = warm(lambda x, y: x - y, X, X)
    with pytest.raises((gc.GraphError, TypeError)) as found:
        gc.compile(lambda x, y: x - y)(*args, **kwargs)
    with pytest.raises(found.type):
        f(*args, **kwargs)
    np.testing.assert_array_equal(f(X, X), np.zeros(8))


def test_inside_a_trace_a_call_with_arrays_is_a_node() -> None:
    inner = warm(lambda x: x * 2, X)
    graph = gc.compile(lambda y: inner(X) + y).graph(X)
    assert "call" in {node.op.name for node in graph.nodes}
    assert frames(lambda: inner(X)) == []


def test_calls_beside_the_trace_of_another_thread() -> None:
    inner = warm(lambda x: x * 2, X)
    made: list[Any] = []

    def model(y: Any) -> Any:
        beside = threading.Thread(target=lambda: made.append(inner(X)))
        beside.start()
        beside.join()
        return y + 1

    gc.compile(model)(X)
    np.testing.assert_array_equal(made[0], 2 * X)


def test_failures_say_what_they_say_through_python() -> None:
    def model(x: Any, k: Any) -> Any:
        return x[k]

    f = warm(model, X, np.array([1]))
    assert frames(lambda: f(X, np.array([1]))) == []
    with pytest.raises(gc.GraphError) as direct:
        f(X, np.array([9]))
    with pytest.raises(gc.GraphError) as python:
        f(x=X, k=np.array([9]))
    assert type(direct.value) is type(python.value) and str(direct.value) == str(python.value)
    np.testing.assert_array_equal(f(X, np.array([7])), X[7:])


def test_nothing_is_left_of_calls() -> None:
    one = object()
    f = warm(lambda x, y: (x + y, x - y) if one else x, X, X)

    def calls() -> None:
        for _ in range(300):
            f(X, X)
            f(X, y=X)
            with pytest.raises(gc.GraphError):
                f(X)

    assert_nothing_is_left(calls, [X, f, None, one])


def test_a_function_ends_with_its_last_reference() -> None:
    f = warm(lambda x: x + 1, X)
    seen, call = weakref.ref(f), f.__call__
    del f
    np.testing.assert_array_equal(call(X), X + 1)  # which holds the function
    del call
    assert seen() is None


def test_a_function_that_was_never_made_is_no_fault() -> None:
    warm(lambda x: x + 1, X)
    with pytest.raises(AttributeError):
        CompiledFunction.__new__(CompiledFunction)(X)


def test_its_signature_and_its_text_stay() -> None:
    def model(x: Any, scale: float = 2) -> Any:
        """What it does."""
        return x * scale

    f = warm(model, X)
    assert str(inspect.signature(f)) == "(x: 'Any', scale: 'float' = 2) -> 'Any'"
    assert f.__doc__ == "What it does." and callable(f)
    assert "Run on arrays" in (CompiledFunction.__call__.__doc__ or "")


def test_threads_that_make_each_other_the_latest() -> None:
    f = warm(lambda x: np.sin(x) * 2, X)

    def work(number: int) -> None:
        x = np.full(1 + number % 5, number, "f4")
        np.testing.assert_allclose(f(x), np.sin(x) * 2, rtol=1e-6)

    at_once(*[lambda k, first=first: work(first + k) for first in range(4)], times=300)


def test_where_slots_are_unknown_python_calls() -> None:
    script = """
    import numpy as np
    import graphc as gc
    from graphc.seams import cpython
    cpython.place_of_slot = lambda owner, slot: 0
    f, x = gc.compile(lambda x, y: x + y), np.ones(4, "f4")
    for _ in range(5):
        assert (f(x, x) == 2).all() and (f(x, y=x) == 2).all()
    assert type(type(f).__call__).__name__ == "function"
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
