"""Formulas of sizes: what is shared by many parts is written, asked and computed once."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ir import size_bounds
from graphc.ir.sizes import Scope, Size, bounds_of, either, greatest, least


def nested(n: Any, depth: int) -> Any:
    """Each step reads the one before it twice: written out, it would double in length."""
    made = n
    for step in range(depth):
        made = greatest(either(n - 3 - step, made + 2, 3 * made // 2), least(made, 7 * n))
    return made


def test_parts_that_are_read_twice_do_not_double() -> None:
    n = Scope().symbol("n", 20)
    made = nested(n, 400)
    assert made.symbols() == {"n"} and len(repr(made)) < 1000
    for value in (0, 1, 2, 20, 1000):
        assert made.value({"n": value}) == nested(value, 400)


def test_least_values_of_deep_formulas_are_found_when_asked_for() -> None:
    n = Scope().symbol("n", 20)
    made: Any = n
    for step in range(5000):
        made = either(n - step, greatest(made, step % 7), made + 1)
    assert 6 <= (bounds_of(made)[0] or 0) <= made.value({"n": 0})


def test_bounds_hold_for_all_values() -> None:
    chance, found = random.Random(3), 0
    for _ in range(300):
        scope = Scope()
        values: list[Any] = [scope.symbol("n", 20), scope.symbol("m", 7), 3]
        for _ in range(6):
            a, b = chance.choice(values), chance.choice(values)
            made = [greatest(a, b), least(a, b), a - b, a + b, a * 2 - 1, a // 2, -a]
            values.append(chance.choice(made))
        for size in [v for v in values if isinstance(v, Size)]:
            low, high = scope.bounds(size, False)
            found += (low is not None) + (high is not None)
            for n, m in itertools.product((0, 1, 2, 3, 8, 100), repeat=2):
                value = size.value({"n": n, "m": m})
                assert (low is None or low <= value) and (high is None or value <= high), size
    assert found > 500


def test_bounds_by_many_values_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of memory are extremes of extremes of many values: not all of them are looked at."""
    n, asked = Scope().symbol("n", 700), 0
    whole = size_bounds.polynomial_bounds

    def counted(size: Size, generic: bool) -> Any:
        nonlocal asked
        asked += 1
        return whole(size, generic)

    monkeypatch.setattr(size_bounds, "polynomial_bounds", counted)
    made: Any = 0
    for step in range(1, 7):
        made = greatest(*(made + n // (step * k) - step + k for k in range(1, 10)))
    assert isinstance(made, Size)
    asked = 0
    size_bounds.bounds_by_values(made - n * 3, False, None, None)
    assert 0 < asked <= 2 * size_bounds.VALUES


def test_slices_at_clamped_places_are_within() -> None:
    n = Scope().symbol("n", 20)
    first = least(2, n)
    last = greatest(first, n - 3)
    for rest in (last - first, n - last, n - first, first):
        assert bounds_of(rest)[0] == 0


def test_extremes_are_one_in_any_order() -> None:
    n = Scope().symbol("n", 20)
    assert greatest(n // 3, 4) is greatest(4, n // 3)
    assert least(greatest(n, 4), n + 1) is least(n + 1, greatest(4, n))


def test_the_extreme_of_equal_formulas_is_one_of_them() -> None:
    n = Scope().symbol("n", 20)
    for a, b in ((n - n // 2, (n + 1) // 2), (n // 2 // 3, n // 6)):
        for made in (greatest(a, b), least(b, a), greatest(a, b, 3 * a), least(b - 1, a, b)):
            assert isinstance(made, Size) and bounds_of(made)[0] is not None
        for value in (0, 1, 5, 12):
            sizes = {"n": value}
            assert greatest(a, b).value(sizes) == a.value(sizes) == b.value(sizes)
            assert least(b - 1, a, b).value(sizes) == a.value(sizes) - 1


def test_deep_programs_are_compiled_once() -> None:
    w = np.eye(8, dtype=np.float32)[::-1] / 2

    def deep(x: Any) -> Any:
        for _ in range(400):
            x = np.tanh(x @ w) + x[:, ::-1]
        return x

    made = gc.compile(deep, sizes={"x": ("n", 8)})
    for rows in (3, 7):
        x = np.linspace(-1, 1, rows * 8, dtype=np.float32).reshape(rows, 8)
        assert np.allclose(made(x), deep(x), rtol=1e-3, atol=1e-3)
    assert len(made.compiles) == 1
