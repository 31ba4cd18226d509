"""max, min and sorted of Python over traced numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError

X = np.array([3.0, 1.0, 2.0, 1.0, -4.0])
CASES: dict[str, Any] = {
    "two": lambda x: max(x[0], x[1]),
    "a number": lambda x: min(x[0], 2, x[2]),
    "an iterable": lambda x: max(x),
    "a generator": lambda x: min(v * v for v in x),
    "a list": lambda x: max([x[0], x[4]], default=0),
    "a key": lambda x: max(x, key=lambda v: -abs(v)),
    "rows by a key": lambda x: min([x, x * 2, -x], key=lambda row: row.sum()),
    "a named key": lambda x: max(x[1], x[3] + 5, key=np.sin),
    "many": lambda x: max(x[k % 5] * k for k in range(40)),
    "sorted": lambda x: np.array(sorted(x)),
    "backwards": lambda x: np.array(sorted(x, reverse=True)),
    "sorted by a key": lambda x: np.array(sorted(x, key=lambda v: abs(v) % 2)),
    "backwards by a key": lambda x: np.array(sorted(x, key=lambda v: abs(v) % 2, reverse=True)),
    "sorted rows": lambda x: np.array(sorted([x, -x, x + 1], key=lambda row: row[0])),
    "indices": lambda x: sorted(range(3), key=lambda k: -k)[0] + max(2, 7) * x[0],
}


@pytest.mark.parametrize("name", CASES)
def test_choices_are_those_of_python(name: str) -> None:
    call = CASES[name]
    for x in (X, X.astype(np.float32), X.astype(int)):
        want, made = np.asarray(call(x)), gc.compile(call)(x)
        np.testing.assert_allclose(made, want, rtol=1e-6)
        assert made.shape == want.shape


@pytest.mark.parametrize("count", [2, 3, 20])
@pytest.mark.parametrize("place", [0, 1])
def test_a_number_that_is_none_wins_where_it_comes_first(place: int, count: int) -> None:
    x = np.arange(float(count))
    x[place] = np.nan
    for call in (lambda x: max(list(x)), lambda x: min(*x)):
        np.testing.assert_array_equal(gc.compile(call)(x), call(x))


def test_gradients_go_to_the_chosen_one() -> None:
    slope = gc.grad(lambda x: max(x[0], x[1]) * min(x[2], 5.0))(X)
    np.testing.assert_allclose(slope, [2, 0, 3, 0, 0])


def test_arrays_have_no_order() -> None:
    with pytest.raises(GraphError, match="cannot become a bool"):
        gc.compile(lambda x: max(x, x + 1))(X)
    with pytest.raises(ValueError, match="empty"):
        gc.compile(lambda x: max(x[:0]))(X)


def test_wrong_calls_are_those_of_python() -> None:
    wrong: list[Any] = [
        lambda x: max(),
        lambda x: min(x[0], x[1], default=0),
        lambda x: max(x[0], x[1], by=abs),
        lambda x: sorted(x, by=abs),
        lambda x: sorted(),
    ]
    for call in wrong:
        for run in (call, gc.compile(call)):
            with pytest.raises(TypeError):
                run(X)
