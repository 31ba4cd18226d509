"""Bodies of loops, branches and slices that find sizes of their own, beside plain Python."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from gc import collect
from typing import Any

import numpy as np
import pytest
from effort import few, slow

import graphc as gc
from graphc.cli import main
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Host
from graphc.ops.control.host_calls import function_called

SHAPES = ((5, 7), (4, 7), (9, 30), (0, 3), (3, 1))


def rows_of(shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape)


def written(r: Any) -> Any:
    r = r.copy()
    r[r > 0.5] = 7.0
    return r[r > 1].sum()


FOUND: dict[str, Callable[[Any], Any]] = {
    "mask": lambda r: r[r > 0].sum(),
    "length": lambda r: len(r[r > 0]) * 1.0,
    "nonzero": lambda r: (np.nonzero(r > 0)[0] * 1.0).sum(),
    "clamped slice": lambda r: np.sort(r[r > 0])[:2].sum(),
    "last ones": lambda r: np.sort(r[r > 0])[-2:].sum(),
    "slice": lambda r: r[: (r > 0).sum()].sum(),
    "unique": lambda r: np.unique(np.round(r)).sum(),
    "repeat": lambda r: (np.repeat(r, (np.abs(r) * 3).astype(int)) ** 2).sum(),
    "bincount": lambda r: (np.bincount((np.abs(r) * 2).astype(int)) ** 2).sum() * 1.0,
    "twice": lambda r: np.sort(r[r > 0])[np.sort(r[r > 0]) < 1].sum(),
    "product": lambda r: np.outer(r[r > 0], r[r < 0]).sum(),
    "every second": lambda r: np.sort(r[r > 0])[::2].sum(),
    "arange": lambda r: (np.arange(len(r[r > 0])) * 0.5).sum(),
    "written": written,
}


def nodes_within(graph: Graph) -> Iterator[Node]:
    """All nodes, those of regions included."""
    for node in graph.nodes:
        yield node
        for region in node.regions:
            yield from nodes_within(region)


def python_rows(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The rule of all bodies here: each row is taken from what the carry says."""
    carry, ys = 0.0, []
    for row in x:
        y = f(row - carry)
        carry = carry / 2 + 0.125 * np.tanh(y)
        ys.append(y)
    return carry, np.array(ys, float)


def scanned(f: Callable[[Any], Any], x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        y = f(row - carry)
        return carry / 2 + 0.125 * np.tanh(y), y

    return gc.scan(body, 0.0, x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FOUND)
def test_each_step_finds_its_own(name: str, threads: int) -> None:
    f = FOUND[name]
    compiled = gc.compile(lambda x: scanned(f, x), threads=threads)
    for shape in SHAPES:
        x = rows_of(shape)
        for made, want in zip(compiled(x), python_rows(f, x), strict=True):
            np.testing.assert_allclose(made, want, rtol=1e-12, atol=1e-12)
    assert len(compiled.compiles) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("name", FOUND)
def test_so_do_branches_slices_and_loops(name: str, opt: int) -> None:
    f = FOUND[name]

    def bodies(x: Any, flag: Any) -> Any:
        total = gc.while_loop(
            lambda s: s[0] < len(x), lambda s: (s[0] + 1, s[1] + f(x[s[0]])), (np.int64(0), 0.0)
        )[1]
        chosen = gc.cond(flag > 0, lambda r: f(r) + 1, lambda r: f(-r), x.sum(axis=0))
        return total, chosen, gc.vmap(f)(x), gc.vmap(gc.vmap(f))(x[None])

    compiled = gc.compile(bodies, opt=opt)
    for shape in SHAPES:
        x = rows_of(shape)
        each = np.array([f(row) for row in x], float)
        for flag in (-1.0, 1.0):
            column = x.sum(axis=0)
            want = each.sum(), f(column) + 1 if flag > 0 else f(-column), each, each[None]
            for made, wanted in zip(compiled(x, flag), want, strict=True):
                np.testing.assert_allclose(made, wanted, rtol=1e-12, atol=1e-12)


SLOPES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "mask": (lambda r: (r[r > 0] ** 3).sum(), lambda r: np.where(r > 0, 3 * r * r, 0)),
    "sorted": (
        lambda r: (np.sort(r[r > 0]) * np.arange(1, len(r[r > 0]) + 1)).sum(),
        lambda r: np.where(r > 0, np.argsort(np.argsort(np.where(r > 0, r, np.inf))) + 1.0, 0),
    ),
    "pairs": (
        lambda r: np.outer(r[r > 0], r[r < 0]).sum(),
        lambda r: np.where(r > 0, r[r < 0].sum(), r[r > 0].sum()),
    ),
}


@pytest.mark.parametrize("name", [name if name == "mask" else slow(name) for name in SLOPES])
def test_gradients_go_through_what_a_body_finds(name: str) -> None:
    f, slope = SLOPES[name]

    def losses(x: Any) -> Any:
        return (
            gc.grad(lambda x: gc.scan(lambda c, r: (c + f(r), ()), 0.0, x)[0])(x),
            gc.vmap(gc.grad(f))(x),
            gc.grad(lambda x: gc.vmap(f)(x).sum())(x),
            gc.grad(lambda x: gc.cond(x.sum() > 9e9, lambda r: 0.0, lambda r: f(r[0]), x))(x),
        )

    compiled = gc.compile(losses)
    for shape in SHAPES[:3]:
        x = rows_of(shape)
        every = np.array([slope(row) for row in x])
        first = np.concatenate([every[:1], np.zeros_like(x[1:])])
        for made, want in zip(compiled(x), (every, every, every, first), strict=True):
            np.testing.assert_allclose(made, want, rtol=1e-12, atol=1e-12)


def test_second_derivatives_do_too() -> None:
    loss = lambda r: gc.scan(lambda c, v: (c + (r[r > v] ** 3).sum(), ()), 0.0, r)[0]
    r = rows_of((1, 6))[0]
    counts = (r[:, None] > r).sum(axis=1)
    np.testing.assert_allclose(gc.hessian(loss)(r), np.diag(6 * r * counts), rtol=1e-12, atol=1e-12)


def test_bodies_use_sizes_of_outside_and_what_was_found_there() -> None:
    def inside(x: Any) -> Any:
        n, found = x.shape[0], x[x > 0]

        def body(carry: Any, value: Any) -> Any:
            larger = found[found > value]
            return carry + len(larger), (np.arange(n) * 1.0).sum() * larger.sum()

        return gc.scan(body, np.int64(0), found)

    compiled = gc.compile(inside)
    for shape in SHAPES:
        x = rows_of(shape)
        found = x[x > 0]
        ys = [np.arange(shape[0]).sum() * found[found > v].sum() for v in found]
        count, made = compiled(x)
        assert count == sum((found > v).sum() for v in found)
        np.testing.assert_allclose(made, ys, rtol=1e-12, atol=1e-12)


def test_variables_and_bodies_in_bodies() -> None:
    total = gc.Variable(np.zeros(()), name="total")

    @gc.compile
    def step(x: Any) -> Any:
        def outer(carry: Any, row: Any) -> Any:
            total.assign(total + row[row > 0].sum())
            inner = gc.scan(lambda c, v: (c + row[row > v].sum(), ()), 0.0, row)[0]
            return carry + inner, ()

        return gc.scan(outer, 0.0, x)[0]

    expected = 0.0
    for shape in SHAPES[:3]:
        x = rows_of(shape)
        expected += x[x > 0].sum()
        want = sum(row[row > v].sum() for row in x for v in row)
        np.testing.assert_allclose(step(x), want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(total.value, expected, rtol=1e-12)


def test_variables_are_assigned_where_a_body_counts() -> None:
    total, steps = gc.Variable(np.zeros(()), name="sum"), gc.Variable(np.zeros(()), name="steps")
    last = gc.Variable(np.zeros(3), name="last")

    @gc.compile
    def step(x: Any) -> Any:
        def body(_: Any, c: Any) -> Any:
            kept = np.sort(c[c > 0])[::2]
            total.assign(total + kept.sum())
            steps.assign(steps + 1)
            last.assign(np.zeros(3) + len(kept))
            return c - 0.5

        return gc.fori(0, 3, body, x), gc.cond(x[0] > 9, lambda: x.sum(), lambda: total + 0.0)

    assert sum(n.op.traits.phased for n in nodes_within(step.graph(np.ones(4)))) > 0
    expected = 0.0
    for size in (4, 7, 5):
        x = np.arange(float(size))
        made, seen = step(x)
        np.testing.assert_array_equal(made, x - 1.5)
        for k in range(3):
            kept = np.sort((x - 0.5 * k)[x - 0.5 * k > 0])[::2]
            expected += kept.sum()
        assert seen == total.value == expected
        np.testing.assert_array_equal(last.value, np.full(3, len(kept)))
    assert steps.value == 9


def test_a_body_that_counts_may_be_placed() -> None:
    @gc.compile(devices=["cpu:0", "cpu:1"])
    def step(x: Any) -> Any:
        with gc.device("cpu:1"):
            return gc.fori(0, 3, lambda _, c: c + np.sort(c[c > 0])[::2].sum(), x)

    x = want = np.arange(4.0)
    for _ in range(3):
        want = want + np.sort(want[want > 0])[::2].sum()
    np.testing.assert_array_equal(step(x), want)


REFUSED = {
    "the body of a loop .* same shapes": lambda x: gc.scan(lambda c, r: (c, r[r > 0]), 0.0, x)[1],
    "slices of gc.vmap .* same shapes": lambda x: gc.vmap(lambda r: r[r > 0])(x),
    "calls Python": lambda x: gc.scan(lambda c, r: (gc.print("{}", r[r > 0]) or c, ()), 0.0, x)[0],
    "number is asked for": lambda x: gc.scan(
        lambda c, r: (c + sum(range(len(r[r > 0]))), ()), 0.0, x
    )[0],
    "no step of a loop is traced again": lambda x: gc.scan(
        lambda c, r: (c + (1.0 if len(r[r > 0]) > 5 else 2.0), ()), 0.0, x
    )[0],
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_said(text: str) -> None:
    with pytest.raises(GraphError) as error:
        gc.compile(REFUSED[text])(np.array([[1.0, 2, 3, 4, 5, 6, 7]] + [[-1.0] * 7] * 4))
    assert re.search(text, str(error.value)), error.value


def of_a_decision(x: Any) -> Any:
    body = lambda c, r: (c + (1.0 if len(r[r > -9]) > 2 else 2.0) + r[r > 0].sum(), ())
    return gc.scan(body, 0.0, x)[0]


def of_bodies_in_bodies(x: Any) -> Any:
    def body(total: Any, row: Any) -> Any:
        found = row[row > 0]
        inner = gc.scan(lambda c, v: (c + np.sort(row[row > v])[:2].sum(), ()), 0.0, row)[0]
        return total / 2 + inner, found.sum() + len(found)

    return gc.scan(body, 0.0, x[x.sum(axis=1) > -9])


SAVED = {**{name: lambda x, f=f: scanned(f, x) for name, f in FOUND.items()}}
SAVED |= {"decided": of_a_decision, "nested": of_bodies_in_bodies}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_files_hold_bodies_that_count(name: str, tmp_path: Any) -> None:
    compiled, path, built = gc.compile(SAVED[name]), tmp_path / "f.gir", tmp_path / "f.gcx"
    compiled.save(path, gc.spec(("n", "m"), "f64"))
    main(["compile", str(path), "-o", str(built)])
    for shape in ((5, 7), (4, 7), (9, 30), (3, 4)):
        x = rows_of(shape)
        for loaded in (gc.load(path), gc.load(built)):
            made, want = loaded(x), compiled(x)
            pairs = zip(made, want, strict=True) if isinstance(want, tuple) else [(made, want)]
            for a, b in pairs:
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_files_are_checked_in_full(tmp_path: Any) -> None:
    path, built = tmp_path / "f.gir", tmp_path / "f.gcx"
    gc.compile(SAVED["clamped slice"]).save(path, gc.spec(("n", "m"), "f64"))
    main(["compile", str(path), "-o", str(built)])
    x = rows_of((5, 7))
    np.testing.assert_allclose(gc.load(built)(x)[1], gc.load(path)(x)[1])
    whole = built.read_bytes()
    assert whole.count(b'"body.0.python') == 2  # where it lies, and its digest
    begin = 8 + int.from_bytes(whole[:8], "little")
    entries = json.loads(whole[8:begin])
    first, last = next(v["data_offsets"] for k, v in entries.items() if k.startswith("body."))
    for place in (first, (first + last) // 2, last - 1):
        damaged = bytearray(whole)
        damaged[begin + place] ^= 1
        built.write_bytes(damaged)
        with pytest.raises(GraphError, match="is damaged"):
            gc.load(built)


# ------------------------------------------------------------------------------------ random bodies

LINKS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda v, r: v[v > 0.25],
    lambda v, r: np.sort(v),
    lambda v, r: v[::-1] * 0.5,
    lambda v, r: np.cumsum(v) * 0.25,
    lambda v, r: v[np.nonzero(v < 1)[0]],
    lambda v, r: np.concatenate([v, r[:2], v]),
    lambda v, r: v[:3],
    lambda v, r: v - v.sum() * 0.125,
    lambda v, r: np.unique(np.round(v * 2)),
    lambda v, r: np.where(v > 0, v, -v * 0.5),
    lambda v, r: np.repeat(v, 1 + (v > 0)),
    lambda v, r: v[len(v) // 2 :],
    lambda v, r: np.tanh(v[:, None] - r[None, :]).sum(axis=1),
)


def random_body(number: int) -> Callable[[Any], Any]:
    rng = np.random.default_rng(number)
    links = [LINKS[k] for k in rng.integers(0, len(LINKS), rng.integers(1, 6))]

    def body(row: Any) -> Any:
        value = row
        for link in links:
            value = link(value, row)
        return (value * value).sum() + len(value)

    return body


@pytest.mark.slow
@pytest.mark.parametrize("number", few(range(300), 12))
def test_random_bodies_equal_python(number: int) -> None:
    f = random_body(number)
    compiled = gc.compile(
        lambda x: (scanned(f, x), gc.vmap(f)(x)), opt=2 * (number % 2), threads=1 + number // 2 % 2
    )
    for shape in ((4, 6), (3, 6), (5, 11), (2, 2)):
        x = rows_of(shape)
        (carry, ys), each = compiled(x)
        last, want = python_rows(f, x)
        np.testing.assert_allclose(carry, last, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ys, want, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(each, [f(row) for row in x], rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------ their life


def test_programs_of_bodies_go_with_the_function_that_they_are_of() -> None:
    compiled = gc.compile(lambda x: scanned(lambda r: np.sort(r[r > 0]).sum(), x))
    compiled(rows_of((5, 7)))
    names = [n.attrs["function"] for n in nodes_within(outlined_stage(compiled)) if is_call(n)]
    assert names and all(function_called("outlined", str(name)) for name in names)
    name = str(names[0])
    del compiled, names
    collect()
    with pytest.raises(GraphError, match="no function"):
        function_called("outlined", name)


def outlined_stage(compiled: Any) -> Graph:
    stages = compiled.stages(rows_of((5, 7)))
    found = next(stage.value for stage in stages if stage.name == "outline")
    assert isinstance(found, Graph)
    return found


def is_call(node: Node) -> bool:
    return isinstance(node.op.lower, Host)


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import graphc as gc

f = gc.compile(lambda x: gc.scan(lambda c, r: (c / 2 + np.sort(r[r > 0]).sum(), ()), 0.0, x)[0])
x = np.random.default_rng(0).standard_normal((3000, 16))
f(x)
began = threading.Event()


def interrupt():
    began.wait()
    os.kill(os.getpid(), signal.SIGINT)


ended = []
for _ in range(8):
    began.clear()
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        began.set()
        while True:
            f(x)
    except KeyboardInterrupt:
        ended.append("interrupted")
    except BaseException as error:
        ended.append(repr(error))
    thread.join()
print(*sorted(set(ended)), len(ended))
"""


@pytest.mark.slow
def test_an_interrupt_in_a_body_that_counts_is_one() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert run.stdout == "interrupted 8\n", run.stdout + run.stderr
    assert not run.stderr
