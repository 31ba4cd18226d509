"""Calls of loaded functions: those like the latest one take its native entry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.cli.commands import main
from graphc.runtime.call.execute import Executable

X = np.arange(6, dtype="f4")
KINDS = ("m.gir", "m.gcx")
ANY = gc.spec(("n",), "f32")


def loaded(folder: Path, kind: str, function: Callable[..., Any], *args: Any) -> Any:
    """A function that was saved for some arguments, and compiled where the kind says so."""
    text = folder / "m.gir"
    gc.compile(function).save(text, *args)
    if kind == "m.gcx":
        main(["compile", str(text), "-o", str(folder / kind)])
    return gc.load(folder / kind)


@pytest.fixture
def is_native(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Whether a call is made without `Executable.run`."""

    def native(function: Any, *args: Any) -> bool:
        runs: list[None] = []
        run = Executable.run
        with monkeypatch.context() as patch:
            patch.setattr(Executable, "run", lambda *a, **k: runs.append(None) or run(*a, **k))
            function(*args)
        return not runs

    return native


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_one_size(tmp_path: Path, kind: str, is_native: Callable[..., bool]) -> None:
    f = loaded(tmp_path, kind, lambda x, y: x - y, X, X)
    for k in range(6):
        np.testing.assert_array_equal(f(X, X * k), X - X * k)
    assert is_native(f, X, X)
    for args in ([X[::-1], X], [np.stack([X, X])[0], X]):
        np.testing.assert_array_equal(f(*args), args[0] - X)
    np.testing.assert_array_equal(f(y=X, x=X * 3), X * 2)
    with pytest.raises(gc.FeedError):
        f(X)
    with pytest.raises(gc.FeedError):
        f(X, X[:3])


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_any_size(tmp_path: Path, kind: str, is_native: Callable[..., bool]) -> None:
    f = loaded(tmp_path, kind, lambda x: (x * 2, x.sum()), ANY)
    for length in (6, 6, 6, 6, 6, 3, 6, 0, 6, 6, 6):
        twice, total = f(X[:length])
        np.testing.assert_array_equal(twice, 2 * X[:length])
        assert total == X[:length].sum()
    assert is_native(f, X)


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_their_names(tmp_path: Path, kind: str) -> None:
    f = loaded(tmp_path, kind, lambda x: {"z": x * 2, "a": x + 1}, X)
    for _ in range(5):
        made = f(X)
        assert list(made) == list(f.result_names)
        np.testing.assert_array_equal(made["z"], 2 * X)
        np.testing.assert_array_equal(made["a"], X + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_failures_say_the_same_at_every_call(tmp_path: Path, kind: str) -> None:
    f = loaded(tmp_path, kind, lambda x, k: x[k], X, np.array([1]))
    told = []
    for _ in range(5):
        with pytest.raises(gc.RunError) as found:
            f(X, np.array([9]))
        told.append(str(found.value))
        np.testing.assert_array_equal(f(X, np.array([2])), X[2:3])
    assert len(set(told)) == 1, told


def test_inside_a_trace_it_is_a_part_of_it(tmp_path: Path) -> None:
    f = loaded(tmp_path, "m.gir", lambda x: x * 2, X)
    for _ in range(5):
        f(X)
    graph = gc.compile(lambda y: f(X) + y).graph(X)
    assert "call" in {node.op.name for node in graph.nodes}


def test_the_function_does_not_hold_its_results(tmp_path: Path) -> None:
    f = loaded(tmp_path, "m.gir", lambda x: x * 2, X)
    for _ in range(5):
        made = f(X)
    assert sys.getrefcount(made) == 2
