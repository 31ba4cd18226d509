"""Budgets: what a program needs is known before any kernel of it is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import graphc as gc
from graphc.cli.commands import cli
from graphc.errors import GraphError, LimitError

X = np.ones((64, 64), np.float32)
NBYTES = X.nbytes


def model(x: np.ndarray) -> np.ndarray:
    wide = np.sort(x @ x, axis=1)
    return np.tanh(wide @ x) @ x


def needed() -> int:
    image = gc.compile(model, threads=1).executable(X).image
    return image.arena_bytes + sum(slot.nbytes for slot in image.results)


def test_memory_limit_is_exact() -> None:
    bytes_needed = needed()
    assert bytes_needed >= 3 * NBYTES
    np.testing.assert_allclose(
        gc.compile(model, threads=1, memory_limit=bytes_needed)(X), model(X), rtol=1e-4
    )
    with pytest.raises(LimitError, match=f"needs {bytes_needed} bytes"):
        gc.compile(model, threads=1, memory_limit=bytes_needed - 1)(X)


def test_memory_limit_names_what_is_largest_and_its_line() -> None:
    with pytest.raises(LimitError) as caught:
        gc.compile(model, threads=1, memory_limit=NBYTES)(X)
    first, *values = str(caught.value).split("\n")
    assert f"memory_limit is {NBYTES}" in first
    sizes = [int(line.split()[0]) for line in values]
    assert sizes == sorted(sizes, reverse=True)
    assert 1 <= len(sizes) <= 5
    assert sizes[0] >= NBYTES
    assert all("test_limits.py:" in line for line in values)


def needed_for(function: Any, count: int) -> int:
    """The bytes of intermediate values and results for that many elements."""
    image = gc.compile(function, threads=1, sizes="exact").executable(np.ones(count)).image
    return image.arena_bytes + sum(slot.nbytes for slot in image.results)


def limited_file(function: Any, folder: Path, limit: int) -> Path:
    """A compiled file for any number of elements, of a program that may need so many bytes."""
    text, path = folder / "model.gir", folder / "model.gcx"
    gc.compile(function).save(text, gc.spec(("n",), "f64"))
    words = ["compile", str(text), "-o", str(path), "--memory-limit", str(limit)]
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    return path


def ends_added(x: Any) -> Any:
    return np.sort(x)[::-1] + np.cumsum(x)


@pytest.mark.slow
def test_a_memory_limit_holds_in_files_for_many_sizes(tmp_path: Path) -> None:
    loaded = gc.load(limited_file(ends_added, tmp_path, 2 * needed_for(ends_added, 1000)))
    for count in (1, 1000, 7):
        x = np.linspace(1, 2, count)
        np.testing.assert_allclose(loaded(x), ends_added(x))
    for count in (3000, 100_000):
        with pytest.raises(GraphError, match=f"compiled for .*n = {count}"):
            loaded(np.ones(count))


def turned(x: Any) -> Any:
    """Its gradient needs the values of all 100 turns."""

    def turn(state: Any) -> Any:
        return np.sin(state[0]), state[1] + 1 + state[0][0] * 0

    def last(x: Any) -> Any:
        return gc.while_loop(lambda s: s[1] < 100, turn, (x, np.float64(0)))[0].sum()

    return gc.grad(last)(x)


@pytest.mark.slow
def test_stacks_have_what_a_memory_limit_leaves_for_each_size(tmp_path: Path) -> None:
    limit = needed_for(turned, 1000) + 200 * 1000 * 8
    path = limited_file(turned, tmp_path, limit)
    open_sizes = gc.compile(turned, memory_limit=limit)
    free = gc.compile(turned)
    for run in (gc.load(path), open_sizes):
        for count in (3, 5, 1000, 9000):
            x = np.linspace(0, 1, count)
            if count < 9000:
                np.testing.assert_allclose(run(x), free(x))
            else:
                with pytest.raises(LimitError, match=r"stacks of loops are limited to \d+ bytes"):
                    run(x)
    with pytest.raises(LimitError, match="stacks of loops are limited to 1000 bytes"):
        gc.load(path, stack_bytes=1000)(np.ones(1000))
