"""Carries and results of branches whose sizes only the run tells, beside plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import few

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.size_ceilings import ceiling
from graphc.ir.sizes import Scope, Size, greatest, least

SHAPES = ((6, 5), (4, 7), (9, 30), (3, 3), (1, 4))
Function = Callable[[Any], Any]


def rows_of(shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape)


def while_python(test: Function, body: Function, state: Any) -> Any:
    while test(state):
        state = body(state)
    return state


def scan_python(body: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
    ys = []
    for x in xs:
        carry, y = body(carry, x)
        ys.append(y)
    return carry, np.array(ys)


class InPython:
    """What the loops of graphc are in Python."""

    while_loop = staticmethod(while_python)
    scan = staticmethod(scan_python)

    @staticmethod
    def cond(flag: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
        return (then if flag else otherwise)(*operands)

    @staticmethod
    def switch(index: Any, branches: Any, *operands: Any) -> Any:
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)

    @staticmethod
    def fori(start: Any, stop: Any, body: Any, state: Any) -> Any:
        for k in range(start, stop):
            state = body(k, state)
        return state


def shrinks(g: Any, x: Any) -> Any:
    def body(left: Any, row: Any) -> Any:
        left = left[left > row[0] - 1] * 0.9
        return left, len(left) * 1.0

    return g.scan(body, x[0], x)


def grows(g: Any, x: Any) -> Any:
    return g.scan(lambda c, r: (np.concatenate([c, r[r > 0]]), 0.0), np.zeros(0), x)[0]


def is_replaced(g: Any, x: Any) -> Any:
    return g.scan(lambda c, r: (np.concatenate([r[r > 0], c[:2]]), 0.0), x[0], x)[0]


def until_nothing_is_left(g: Any, x: Any) -> Any:
    def body(state: Any) -> Any:
        left, steps = state
        return left[left > left.min()], steps + 1

    return g.while_loop(lambda s: len(s[0]) > 0, body, (x.reshape(-1), 0))


def of_one_length(g: Any, x: Any) -> Any:
    def body(state: Any) -> Any:
        keys, values, others = state
        chosen = keys > keys.mean()
        return keys[chosen], values[chosen] * 2 + keys[chosen], others[others > others.min()]

    def test(state: Any) -> Any:
        return np.logical_and(len(state[0]) > 1, state[2].size >= 2)

    return g.while_loop(test, body, (x[0], x[0] * 1.0, x[-1]))


def of_rows(g: Any, x: Any) -> Any:
    def body(rows: Any, row: Any) -> Any:
        rows = rows[rows[:, 0] < row.max()]
        return rows, rows.sum()

    return g.scan(body, x, x)


def change_places(g: Any, x: Any) -> Any:
    def body(state: Any, row: Any) -> Any:
        a, b = state
        return (b[b > row.min()], a[a < row.max()]), len(a) * 1.0

    (a, b), lengths = g.scan(body, (x[0], x.reshape(-1)), x)
    return a, b, lengths


def with_what_was_found_before(g: Any, x: Any) -> Any:
    y = x[x > 0]
    return g.fori(0, 4, lambda k, c: np.concatenate([c[c > 0.3 * k], y[:k]]), y)


def chosen(g: Any, x: Any) -> Any:
    one = g.cond(x[0, 0] > 0, lambda: x[x > 0], lambda: np.sort(x[x < 0]) * 2)
    both = g.cond(x.sum() > 0, lambda a: (a[a > 0], a[:2]), lambda a: (a[a < 0], a[1:3]), x[0])
    branches = [lambda: np.unique(np.round(x)), lambda: x[0], lambda: x[:, 0][x[:, 0] > 0]]
    return one, *both, g.switch((abs(x[0, 0]) * 3).astype(int) % 3, branches)


def is_cut(g: Any, x: Any) -> Any:
    return g.while_loop(lambda c: len(c) < 9, lambda c: np.concatenate([c, c])[:12], x[0][x[0] < 9])


def in_a_loop(g: Any, x: Any) -> Any:
    def body(total: Any, row: Any) -> Any:
        left = g.while_loop(lambda a: len(a) > 2, lambda a: a[a > a.min()], row)
        picked = g.cond(total > 0, lambda: row[row > 0], lambda: row[row < 0])
        return total / 2 + left.sum() + len(picked), picked.sum()

    return g.scan(body, 0.0, x)


def a_loop_in_a_loop_grows(g: Any, x: Any) -> Any:
    def body(found: Any, row: Any) -> Any:
        add = lambda inner, v: (np.concatenate([inner, row[row > v]]), len(found) * 1.0)
        return g.scan(add, found, row)[0], 0.0

    return g.scan(body, x[:0, 0], x)[0]


def grows_by_what_shrinks(g: Any, x: Any) -> Any:
    def body(state: Any, row: Any) -> Any:
        a, b, c = state
        grown = np.concatenate([a, b[b > row.mean()]])
        return (grown, b[b > row.min()], np.concatenate([c, c[:1], a[:2]])), 0.0

    return g.scan(body, (x[0], x[-1], x[0]), x)[0]


def starts_and_ends_where_a_count_says(g: Any, x: Any) -> Any:
    y = x[0]
    starts = g.fori(0, 3, lambda k, c: y[len(c[c > 0]) :], y)
    halves = g.fori(0, 3, lambda k, c: y[len(c[c > -9]) // 2 :], y)
    beyond = g.fori(0, 3, lambda k, c: y[len(c[c > -1]) * 2 - 1 :], y)
    ends = g.fori(0, 3, lambda k, c: y[: -len(c[c > 0])], y)
    back = g.fori(0, 3, lambda k, c: y[len(c[c > 0]) :: -2], y)
    between = g.fori(0, 3, lambda k, c: c[len(c[c > 0]) : len(c[c > -1])], y)
    return starts, halves, beyond, ends, back, between


CASES = [shrinks, grows, is_replaced, until_nothing_is_left, of_one_length, of_rows]
CASES += [is_cut, change_places, with_what_was_found_before, chosen, in_a_loop]
CASES += [a_loop_in_a_loop_grows, grows_by_what_shrinks, starts_and_ends_where_a_count_says]


def compare(made: Any, want: Any) -> None:
    made, want = (v if isinstance(v, tuple) else (v,) for v in (made, want))
    for a, b in zip(made, want, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("case", CASES)
def test_as_in_python(case: Any, opt: int) -> None:
    compiled = gc.compile(lambda x: case(gc, x), opt=opt, threads=1 + opt // 2)
    for shape in SHAPES:
        x = rows_of(shape)
        compare(compiled(x), case(InPython, x))
    assert len(compiled.compiles) <= 2 or case is is_cut  # where Python decides by what is found


def test_a_set_that_shrinks_until_it_is_empty() -> None:
    compiled = gc.compile(lambda x: until_nothing_is_left(gc, x))
    for shape in SHAPES[:2]:
        compare(compiled(rows_of(shape)), until_nothing_is_left(InPython, rows_of(shape)))
    assert compiled.compiles and len(compiled.compiles) == 2


def test_slices_of_vmap_have_such_loops() -> None:
    def left(row: Any) -> Any:
        return gc.while_loop(lambda a: len(a) > 2, lambda a: a[a > a.min()], row).sum()

    x = rows_of((5, 7))
    np.testing.assert_allclose(gc.compile(gc.vmap(left))(x), [np.sort(r)[-2:].sum() for r in x])


# ------------------------------------------------------------------------------------ gradients


def loss(g: Any, x: Any) -> Any:
    left = g.scan(lambda c, r: (np.sort(c[c > r[0] - 1]) * 0.5, 0.0), x[0], x)[0]
    found = grows(g, x) ** 2
    picked = g.cond(x[0, 0] > 0, lambda: x[x > 0] ** 2, lambda: x[x < 0] ** 3)
    return (left**2).sum() + (found * np.arange(len(found))).sum() + picked.sum()


def slope(f: Function, x: Any) -> Any:
    made = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-6
        made[index] = (f(x + step) - f(x - step)) / 2e-6
    return made


@pytest.mark.slow
def test_gradients() -> None:
    compiled = gc.compile(gc.grad(lambda x: loss(gc, x)))
    for shape in SHAPES:
        x = rows_of(shape)
        wanted = slope(lambda x: loss(InPython, x), x)
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-5, atol=1e-6)
    assert len(compiled.compiles) <= 2


def cut_down(g: Any, x: Any) -> Any:
    left = g.while_loop(lambda a: len(a) > 3, lambda a: a[a > a.min()] * 1.5, x[0])
    return (left**2).sum()


def counted_behind_a_loop(g: Any, x: Any) -> Any:
    left = g.while_loop(lambda a: a.sum() < 20, lambda a: a * 1.5 + abs(a), x[0])
    found = left[left > 0]
    return (np.sort(found) ** 2 * np.arange(len(found))).sum()


@pytest.mark.slow
@pytest.mark.parametrize("case", [cut_down, counted_behind_a_loop])
def test_loops_whose_stacks_a_later_phase_reads(case: Any) -> None:
    compiled = gc.compile(gc.grad(lambda x: case(gc, x)))
    for shape in SHAPES[:3]:
        x = rows_of(shape)
        wanted = slope(lambda x: case(InPython, x), x)
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-5, atol=1e-5)


def test_what_would_be_seen_twice_is_refused() -> None:
    def seen(x: Any) -> Any:
        body = lambda a: (gc.print("{}", a.sum()), a * a)[1]
        left = gc.while_loop(lambda a: a.sum() < 20, body, x)
        return (np.cumsum(left[left > 0]) ** 2).sum()

    with pytest.raises(GraphError, match="the gradient of a while that is seen from outside"):
        gc.compile(gc.grad(seen))(np.full(3, 2.0))


def test_a_decision_of_python_is_an_error_of_its_line() -> None:
    body = lambda c, r: (c[c > r] if len(c) > 0 else c, ())
    with pytest.raises(GraphError, match=r"compiled for count\d+ > 0 \(.*test_counted_carries"):
        gc.compile(lambda x: gc.scan(body, x, x)[0])(np.arange(9.0)[::-1].copy())


@pytest.mark.slow
def test_gradients_of_slices() -> None:
    f = lambda r: gc.scan(lambda c, v: (c[c > v] * 2, 0.0), r, r[:2])[0].sum()
    x = rows_of((6, 5))
    want = [4.0 * ((r > r[0]) & (r * 2 > r[1])) for r in x]
    np.testing.assert_allclose(gc.compile(gc.vmap(gc.grad(f)))(x), want)


# ------------------------------------------------------------------------------------ random loops

LINKS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda v, r: v[v > 0.1],
    lambda v, r: np.sort(v),
    lambda v, r: v[::-1] * 0.5,
    lambda v, r: v[::2],
    lambda v, r: np.cumsum(v) * 0.25,
    lambda v, r: v[np.nonzero(v < r.max())[0]],
    lambda v, r: v[:4],
    lambda v, r: v[1:],
    lambda v, r: v - v.sum() * 0.125,
    lambda v, r: np.unique(np.round(v * 2)),
    lambda v, r: np.where(v > 0, v, -v * 0.5),
    lambda v, r: np.repeat(v, 1 + (v > 0))[:6],
    lambda v, r: v[len(v) // 2 :],
    lambda v, r: r[len(v[v > -99]) :],  # not len(v): a carry that nothing counts keeps its shape
    lambda v, r: r[len(v[v > 0]) : len(v)],
    lambda v, r: np.concatenate([v, v[:1]])[1:],
    lambda v, r: np.tanh(v[:, None] - r[None, :]).sum(axis=1),
)
ENDS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda v, r: v[v > -0.5],
    lambda v, r: np.concatenate([v, r[r > 0.5]]),
    lambda v, r: np.concatenate([v[v < 1], r[:1]]),
    lambda v, r: np.concatenate([r[r < 0], v[:3]]),
)


def random_loop(number: int) -> Callable[[Any, Any], Any]:
    """A loop over one or two carries, of which one may be made of the other."""
    rng = np.random.default_rng(number)
    count = int(rng.integers(1, 3))
    chains = [
        (*(LINKS[k] for k in rng.integers(0, len(LINKS), rng.integers(0, 4))), ENDS[int(end)])
        for end in rng.integers(0, len(ENDS), count)
    ]
    swaps, kind = rng.random() < 0.3, int(rng.integers(0, 3))

    def turn(state: tuple[Any, ...], row: Any) -> tuple[Any, ...]:
        made = []
        for value, chain in zip(state, chains, strict=True):
            for link in chain:
                value = link(value, row)
            made.append(np.tanh(value))
        return tuple(made[::-1] if swaps else made)

    def loop(g: Any, x: Any) -> Any:
        begin = (x[0], x[:, 0] * 2.0)[:count]
        if kind == 0:
            body = lambda s, row: (turn(s, row), sum(len(v) for v in s) * 1.0)
            last, lengths = g.scan(body, begin, x)
            return (*last, lengths)
        if kind == 1:
            return g.fori(0, len(x), lambda k, s: turn(s, x[k]), begin)
        done = lambda s: np.logical_and(s[0] < len(x), len(s[1][0]) < 50)
        state = g.while_loop(done, lambda s: (s[0] + 1, turn(s[1], x[s[0]])), (0, begin))
        return state[1]

    return loop


@pytest.mark.slow
@pytest.mark.parametrize("number", few(range(300), 12))
def test_random_loops_equal_python(number: int) -> None:
    loop = random_loop(number)
    compiled = gc.compile(lambda x: loop(gc, x), opt=2 * (number % 2), threads=1 + number // 2 % 2)
    for shape in ((4, 6), (3, 6), (5, 11), (2, 2)):
        x = rows_of(shape)
        try:
            made = compiled(x)
        except GraphError as error:
            assert "how large the carry" in str(error)  # noqa: PT017  (of a `while` that grows)
            return
        compare(made, loop(InPython, x))


# ------------------------------------------------------------------------------------ refused

REFUSED: dict[str, Function] = {
    r"nothing says how large the carry x can become.*\n.*y\[:n\]": lambda x: gc.while_loop(
        lambda c: len(c) < 9, lambda c: np.concatenate([c[c > 0], c]), x[0]
    ),
    "nothing says how large the carry x can": lambda x: gc.scan(
        lambda c, r: (np.repeat(c, (abs(c) * 2).astype(int)), ()), x[0], x
    )[0],
    "nothing says how large result 0": lambda x: gc.cond(
        x[0, 0] > 0, lambda: np.repeat(x[0], (abs(x[0]) * 2).astype(int)), lambda: x[0]
    ),
    r"result 1 is f64\[count\d+\].*a loop may carry": lambda x: gc.scan(
        lambda c, r: (c, r[r > 0]), 0.0, x
    ),
    r"the branches return f64\[count\d+\], f64\[\]": lambda x: gc.cond(
        x[0, 0] > 0, lambda: x[x > 0], lambda: 1.0
    ),
    "the carry x is f64\\[7\\] but the body returns f64\\[\\d*count": lambda x: gc.scan(
        lambda c, r: (np.outer(c[c > 0], r), ()), x[0], x
    )[0],
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_said(text: str) -> None:
    with pytest.raises(GraphError) as error:
        gc.compile(REFUSED[text])(rows_of((5, 7)))
    assert re.search(text, str(error.value), re.S), error.value
    assert "test_counted_carries.py" in str(error.value)


# ------------------------------------------------------------------------------------ ceilings


def test_ceilings_are_never_exceeded() -> None:
    """Random formulas of two counts and a size, for all values that the counts may have."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        scope = Scope()
        n, a, b = (scope.symbol(name, 20) for name in ("n", "a", "b"))
        values: list[Any] = [n, a, b, 1, 3]
        for _ in range(5):
            x, y = (values[k] for k in rng.integers(0, len(values), 2))
            choices = [x + y, x - y, x * 2, greatest(x, y), least(x, y), x // 3, -(-x // 2)]
            choices += [-((1 - x) // 2), -((x - y) // 3)]
            values.append(choices[rng.integers(0, len(choices))])
        end = values[-1]
        most: dict[str, Any] = {"a": n, "b": least(a, 5)}
        above = ceiling(end, most)
        if above is None or not isinstance(end, Size):
            continue
        found += 1
        for size in (0, 1, 4, 9):
            for first in range(size + 1):
                for second in range(min(first, 5) + 1):
                    values_of = {"n": size, "a": first, "b": second}
                    limit = above.value(values_of) if isinstance(above, Size) else above
                    assert end.value(values_of) <= limit, (end, above)
    assert found > 100
