"""gc.grad and its kin as they are called: arguments of every kind, methods, dtypes, odd values."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc

X = np.array([1.0, 2.0, 3.0])


def product(a: Any, b: Any = 2.0) -> Any:
    return np.sum(a * b)


@dataclass
class Pair:
    w: Any
    b: Any
    note: Any = None


class Scaled:
    def __init__(self) -> None:
        self.scale = 3.0

    def plain(self, a: Any) -> Any:
        return np.sum(a * a * self.scale)

    @gc.compile
    def compiled(self, a: Any) -> Any:
        return np.sum(a * a * self.scale)


@pytest.mark.parametrize(
    ("wrt", "args", "kwargs", "want"),
    [
        (0, (X,), {}, 2 + 0 * X),
        (-1, (X, X * 3), {}, X),
        ("b", (X, X * 3), {}, X),
        ("b", (X,), {"b": X}, X),
        (1, (X,), {"b": X}, X),
        (("b", 0), (X,), {"b": X * 2}, (X, X * 2)),
        ((0, 0), (X,), {}, (2 + 0 * X, 2 + 0 * X)),
        ((), (X,), {}, ()),
    ],
)
def test_wrt_names_arguments(wrt: Any, args: Any, kwargs: Any, want: Any) -> None:
    got = gc.grad(product, wrt)(*args, **kwargs)
    assert isinstance(got, tuple) == isinstance(wrt, tuple)
    for one, right in zip(
        *((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True
    ):
        np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize("wrt", [None, 1.5, 5, -3, "c", "b"])
def test_wrt_that_names_nothing(wrt: Any) -> None:
    with pytest.raises(gc.TraceError, match=r"wrt (names|takes)"):
        gc.grad(product, wrt)(X)


@pytest.mark.parametrize("result", [None, "text", (X, X), X, 1, X * 1j])
def test_what_is_no_loss(result: Any) -> None:
    with pytest.raises(gc.TraceError, match="function that returns one float"):
        gc.grad(lambda x: result)(X)


def test_an_argument_of_integers_is_what_is_refused() -> None:
    """Not what is made of it, which is reduced but no float."""
    with pytest.raises(gc.TraceError, match=r"argument x is i64\[3\], which has no gradient"):
        gc.grad(lambda x: (x * 2).sum())(np.arange(3))
    with pytest.raises(gc.TraceError, match=r"it returns i64\[\]") as caught:
        gc.grad(lambda x: x.astype(np.int32).sum())(X)
    assert "cast" in (caught.value.hint or "") and "reduce with" not in (caught.value.hint or "")


def test_what_is_no_function() -> None:
    with pytest.raises(gc.TraceError, match="takes a function"):
        gc.grad(3)  # type: ignore[arg-type]


def test_methods_plain_and_compiled() -> None:
    model = Scaled()
    for method in (model.plain, model.compiled):
        np.testing.assert_array_equal(gc.grad(method)(X), 6 * X)


def test_containers_keep_what_is_no_array() -> None:
    made = gc.grad(lambda p, mode: np.sum(p.w * p.b["c"]) if mode == "sum" else 0.0)(
        Pair(X, {"c": 2.0, "d": None}, "a note"), "sum"
    )
    assert isinstance(made, Pair)
    assert made.note is None and made.b["d"] is None
    np.testing.assert_array_equal(made.w, 2 + 0 * X)
    assert made.b["c"] == 6


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.complex64])
def test_gradients_keep_the_dtype(kind: Any) -> None:
    x = X.astype(kind)
    made = gc.grad(lambda x: np.sum(np.abs(x) ** 2))(x)
    assert made.dtype == x.dtype
    np.testing.assert_array_equal(made, 2 * x)


def test_empty_and_not_finite() -> None:
    assert gc.grad(lambda x: np.sum(np.tanh(x)))(np.zeros((0, 3))).shape == (0, 3)
    made = gc.grad(lambda x: np.sum(x * x))(np.array([np.nan, np.inf, 1]))
    np.testing.assert_array_equal(made, [np.nan, np.inf, 2])
    made = gc.grad(lambda x: gc.logsumexp(x))(np.array([-np.inf, 0.0, 0.0]))
    np.testing.assert_array_equal(made, [0, 0.5, 0.5])


def test_jvp_leaves_integers_alone() -> None:
    for tangent in (1, None):
        value, moved = gc.jvp(lambda x, n: x**n, (X, 2), (X, tangent))
        np.testing.assert_array_equal((value, moved), (X**2, 2 * X * X))
    for tangents in ((X,), X, (X, X[:2]), ({"x": X}, X)):
        with pytest.raises(gc.TraceError, match="tangent"):
            gc.jvp(product, (X, X), tangents)


def test_jacobian_passes_keywords_on_inside_a_trace() -> None:
    made = gc.compile(lambda x: gc.jacobian(lambda x, by: x * x * by)(x, by=2.0))(X)
    np.testing.assert_array_equal(made, np.diag(4 * X))


def test_gradients_inside_bodies() -> None:
    """Descent in a loop; a gradient within a checkpoint within a gradient; rows of a gradient."""

    def step(k: Any, w: Any, a: Any) -> Any:
        return w - 0.25 * gc.grad(lambda w: np.sum((w - a) ** 2))(w)

    made = gc.compile(lambda a: gc.fori(0, 2, lambda k, w: step(k, w, a), a * 0))(X)
    np.testing.assert_array_equal(made, 0.75 * X)

    @gc.checkpoint
    def inner(x: Any) -> Any:
        return np.sum(gc.grad(lambda y: np.sum(y**3))(x) * x)

    np.testing.assert_array_equal(gc.grad(inner)(X), 9 * X**2)
    rows = gc.map(gc.grad(lambda row: np.sum(row**2)), np.outer(X, X))
    np.testing.assert_array_equal(rows, 2 * np.outer(X, X))


def test_a_gradient_is_compiled_and_run_by_many_threads() -> None:
    slope = gc.grad(lambda x: np.sum(np.tanh(x) ** 2))
    found: list[bool] = []

    def work() -> None:
        for count in (1, 2, 3):
            x = np.linspace(-1, 1, count)
            want = 2 * np.tanh(x) * (1 - np.tanh(x) ** 2)
            found.append(np.allclose(slope(x), want, rtol=1e-14))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 18
