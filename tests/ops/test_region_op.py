"""A region op is added in one file: `case` of tests/support takes part in all by its traits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case_op
import numpy as np
import pytest

import graphc as gc
from graphc.ir.parse import parse
from graphc.ir.text import show
from graphc.ops.reference.interpreter import interpret

X = np.linspace(0.5, 2.0, 12, dtype=np.float32).reshape(3, 4)
NUMBERS = np.array([-3.0, -1.0, -0.0, 0.9, 1.0, 5.0, np.inf, np.nan], np.float32)
RANGES = ((-1.0, 0.0), (0.0, 1.0), (0.5, 6.0))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with case_op.registered():
        yield


def chosen(number: Any, x: Any, y: Any) -> Any:
    """Four functions, of which none reads the same operands."""
    return case_op.case(
        number,
        RANGES,
        [lambda a, b: a * 2, lambda a, b: np.sin(a) * b, lambda a, b: np.exp(-b)],
        lambda a, b: a / b + number,
        x,
        y,
    )


def updated(number: Any, x: Any) -> Any:
    """A loop of branches that read a variable of the loop."""
    return gc.fori(0, 4, lambda i, c: chosen(number - i, c, x).astype(c.dtype), x)


def total(number: Any, x: Any, y: Any) -> Any:
    return (chosen(number, x, y) * y).sum()


@pytest.mark.slow
def test_it_runs_everywhere(tmp_path: Path) -> None:
    """Interpreted, compiled at both levels, without Numba's help and with it, from a dump."""
    function = gc.compile(chosen, dump=tmp_path)
    plain = gc.compile(chosen, opt=0)
    readable = gc.compile(chosen, backend="numba")
    for number in NUMBERS:
        wanted = chosen(number, X, X + 1)
        for made in (function, plain, readable):
            np.testing.assert_allclose(made(number, X, X + 1), wanted, rtol=1e-6)
        graph = function.graph(number, X, X + 1)
        np.testing.assert_allclose(interpret(graph, [number, X, X + 1])[0], wanted, rtol=1e-6)
    stages = sorted(tmp_path.rglob("*.gir"))
    assert any("case(" in path.read_text() for path in stages)
    last = gc.load(next(path for path in stages if "schedule" in path.name))
    made = last(number=NUMBERS[3], x=X, y=X + 1)
    np.testing.assert_allclose(made, chosen(NUMBERS[3], X, X + 1), rtol=1e-6)


def test_it_is_text() -> None:
    graph = gc.compile(chosen).graph(NUMBERS[0], X, X)
    assert show(parse(show(graph))) == show(graph)
    text = show(graph).replace("case(", "case(%0, ")
    with pytest.raises(gc.GraphError, match="case"):
        parse(text)


def test_it_is_differentiated() -> None:
    """Finite differences by each operand, whichever function runs; in a loop, too."""
    both = gc.compile(gc.grad(total, wrt=(1, 2)))
    x, y, step = X.astype(np.float64), X.astype(np.float64) + 1, 1e-6
    for number in NUMBERS[:6].astype(np.float64):
        by_x, by_y = both(number, x, y)
        along = np.cos(x)
        moved = total(number, x + step * along, y) - total(number, x - step * along, y)
        np.testing.assert_allclose((by_x * along).sum(), moved / (2 * step), rtol=1e-6, atol=1e-8)
        moved = total(number, x, y + step * along) - total(number, x, y - step * along)
        np.testing.assert_allclose((by_y * along).sum(), moved / (2 * step), rtol=1e-6, atol=1e-8)
    looped = gc.compile(gc.grad(lambda number, x: updated(number, x).sum(), wrt=1))
    found = (looped(3.5, x) * along).sum()
    moved = updated(3.5, x + step * along).sum() - updated(3.5, x - step * along).sum()
    np.testing.assert_allclose(found, moved / (2 * step), rtol=1e-6)


def test_passes_know_it(home: Any) -> None:
    """Constants sink into it, what nothing reads is pruned, a write in it is threaded."""
    graph = gc.compile(lambda n, x: chosen(n, x, np.full(X.shape, 3.0, np.float32)))
    stages = {name: made for name, made, *_ in graph.stages(NUMBERS[3], X)}
    (node,) = [n for n in stages["hoist"].nodes if n.op.name == "case"]
    assert not any(source.op.traits.constant for source in node.inputs)
    count = gc.Variable(np.zeros(3, np.float32), name="count")

    def counting(number: Any, x: Any) -> Any:
        def first(a: Any) -> Any:
            count.assign_add(np.ones(3, np.float32))
            return a

        return case_op.case(number, RANGES[:1], [first], lambda a: a * 2, x)

    function = gc.compile(counting)
    for number in (-0.5, 3.0, -1.0):
        function(np.float32(number), X)
    np.testing.assert_array_equal(count.value, 2)


def test_devices_take_parts_of_it() -> None:
    """Its regions may lie on several devices; results stay those of one."""

    def apart(number: Any, x: Any) -> Any:
        def first(a: Any) -> Any:
            with gc.device("cpu:1"):
                b = np.sin(a)
            return b + a

        return case_op.case(number, RANGES[:2], [first, np.cos], lambda a: a * 2, x)

    function = gc.compile(apart, devices=["cpu:0", "cpu:1"])
    for number in NUMBERS[:4]:
        np.testing.assert_allclose(function(number, X), apart(number, X), rtol=1e-6)
