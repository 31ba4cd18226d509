"""Loops and branches that a GPU goes through by itself, in one another, beside those of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gpu_harness import GPU, need_gpu, rng, some

import graphc as gc
from graphc.codegen.gpu.tuning import tuned as gpu_tuned
from graphc.errors import RunError
from graphc.runtime.load.table import CALL, LOOP, rows
from graphc.runtime.tuning import tuned

need_gpu()
pytestmark = pytest.mark.gpu

F = np.float32
WIDTH = 6
Body = Callable[[Any, Any], Any]


def matrix(rows: int, columns: int = WIDTH) -> Any:
    return rng(rows, columns).standard_normal((rows, columns)).astype(F)


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from flat(item)
    else:
        yield value


def check(function: Any, *arrays: Any, near: float = 1e-4) -> Any:
    """Three runs equal those of the CPU; the function on the GPU."""
    there, here = gc.compile(function, devices=GPU), gc.compile(function, devices=["cpu:0"])
    wanted = list(flat(here(*arrays)))
    for _ in range(3):
        for got, want in zip(flat(there(*arrays)), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=near, atol=near)
    return there


def opcodes(function: Any, *arrays: Any) -> list[int]:
    """The rows of a table, in order."""
    table = function.executable(*arrays).parts[0].table
    return [table[row] for row in rows(table)]


# ------------------------------------------------------------------------------- one kernel

ALONE: dict[str, tuple[Any, Body]] = {
    "affine": (np.zeros(WIDTH, F), lambda c, r: (c * F(0.5) + r, c)),
    "places": (
        (np.zeros(WIDTH, F), np.ones(WIDTH, F)),
        lambda c, r: ((c[1] * F(0.5), c[0] + r), c[0]),
    ),
    "dtypes": (
        (np.zeros(WIDTH, np.int32), np.zeros(WIDTH, F)),
        lambda c, r: ((c[0] + 1, c[1] * F(0.5) + r), (c[1], r > c[1])),
    ),
    "slices elsewhere": (np.zeros(WIDTH, F), lambda c, r: (c * F(0.3) + r[::-1] * r[0], c * 2)),
    "constants": (np.zeros(WIDTH, F), lambda c, r: (c * np.arange(WIDTH, dtype=F) * F(0.1) + r, c)),
    "two axes": (np.zeros((WIDTH, 2), F), lambda c, r: (c * F(0.4) + r[:, None], c)),
    "one": (F(0), lambda c, r: (c * F(0.9) + r[1], c)),
}
TOGETHER: dict[str, tuple[Any, Body]] = {
    "sum": (np.zeros(WIDTH, F), lambda c, r: (c * F(0.5) + r - c.mean(), c)),
    "turned": (np.zeros(WIDTH, F), lambda c, r: (c[::-1] * F(0.5) + r, c)),
}


@pytest.mark.parametrize("name", some([*ALONE, *TOGETHER], 9))
@pytest.mark.parametrize("reverse", [False, True])
def test_elements_that_go_alone_are_one_kernel(name: str, reverse: bool) -> None:
    start, body = (ALONE | TOGETHER)[name]
    for length in (2, 21):
        x = matrix(length)
        made = check(lambda x: gc.scan(body, start, x, reverse=reverse), x)
        codes = opcodes(made, x)
        assert (LOOP in codes) == (name in TOGETHER)
        assert name in TOGETHER or codes.count(CALL) <= 2


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (1, 1)])
def test_rounds_of_nothing(shape: tuple[int, int]) -> None:
    def function(x: Any) -> Any:
        start = np.zeros(shape[1], F)
        return gc.scan(lambda c, r: (c * F(0.5) + r, (c, r > 0)), start, x)

    check(function, np.zeros(shape, F))


def test_gradients_are_one_kernel_each() -> None:
    start, body = ALONE["affine"]
    loss = gc.grad(lambda x: (gc.scan(body, start, x)[0] ** 2).sum())
    assert LOOP not in opcodes(check(loss, matrix(21)), matrix(21))


# ----------------------------------------------------------------------------- in one another


@pytest.fixture
def turning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are launches, and a few of them a turn."""
    monkeypatch.setattr(gpu_tuned, "kernel_rounds", 0)
    monkeypatch.setattr(tuned, "turn_acts", 8)
    monkeypatch.setattr(tuned, "straight_acts", 10)


def step(c: Any, r: Any) -> Any:
    return c * F(0.5) + r, c


def scans(x: Any) -> Any:
    return gc.scan(lambda c, r: gc.scan(step, c, r), np.zeros(WIDTH, F), x)


def branches(x: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        return gc.cond(r[0, 0] > 0, lambda: c + r[0], lambda: c * F(0.5)), c

    return gc.scan(body, np.zeros(WIDTH, F), x)


def searches(x: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        return gc.while_loop(lambda s: (s * s).sum() > 5, lambda s: s * F(0.7), c + r[0]), c

    return gc.scan(body, np.zeros(WIDTH, F), x)


def rounds(x: Any) -> Any:
    def body(s: Any) -> Any:
        return s[0] + 1, gc.scan(step, s[1], x[0])[0]

    return gc.while_loop(lambda s: s[0] < 5, body, (np.int32(0), x[0, 0]))


@pytest.mark.usefixtures("turning")
@pytest.mark.parametrize("program", [scans, branches, searches, rounds])
@pytest.mark.parametrize("shape", [(3, 2), (23, 41)])
def test_loops_in_loops(program: Any, shape: tuple[int, int]) -> None:
    check(program, rng(*shape).standard_normal((*shape, WIDTH)).astype(F))


@pytest.mark.usefixtures("turning")
@pytest.mark.parametrize("length", [1, 2, 9, 40, 41])
def test_rounds_of_products(length: int) -> None:
    w, x = matrix(WIDTH) * F(0.3), matrix(length)

    def loss(w: Any, x: Any) -> Any:
        return (gc.scan(lambda c, r: (np.tanh(c @ w + r), c), np.zeros(WIDTH, F), x)[0] ** 2).sum()

    check(gc.grad(loss), w, x, near=1e-3)


def test_a_failure_ends_a_loop_at_its_line() -> None:
    """The loop would go on for ever."""

    def function(x: Any, start: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] + 1, x[s[0][None]]

        return gc.while_loop(lambda s: s[1][0] >= 0, body, (start, x[:1]))

    made = gc.compile(function, devices=GPU)
    with pytest.raises(RunError, match="out of range") as found:
        made(np.ones(20, F), np.int32(0))
    assert "test_gpu_loops.py" in str(found.value)
