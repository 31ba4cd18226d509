"""reduce, accumulate, reduceat, outer and at of every ufunc of two operands, and np.ndenumerate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import few

import graphc as gc
from graphc.errors import GraphError

rng = np.random.default_rng(4)
UFUNCS = {
    "bitwise_or": "ib",
    "bitwise_and": "ib",
    "bitwise_xor": "ib",
    "logical_or": "ibf",
    "logical_and": "ibf",
    "logical_xor": "ibf",
    "gcd": "i",
    "lcm": "i",
    "fmax": "ibf",
    "fmin": "ibf",
}


def operand(kind: str, *shape: int) -> Any:
    numbers = rng.integers(0, 4, size=shape)
    if kind == "f":
        return np.where(numbers == 3, np.nan, numbers - 1.0)
    return numbers.astype({"i": "i2", "b": "?"}[kind])


@pytest.mark.parametrize("kind", "ibf")
@pytest.mark.parametrize("name", UFUNCS)
def test_folds_are_those_of_numpy(name: str, kind: str) -> None:
    ufunc = getattr(np, name)
    x = operand(kind, 5, 3)
    calls = [
        lambda x: ufunc.reduce(x),
        lambda x: ufunc.reduce(x, axis=-1, keepdims=True),
        lambda x: ufunc.reduce(x[:, 1], None),
        lambda x: ufunc.reduce([x[0], x[1]], 0),
        lambda x: ufunc.accumulate(x),
        lambda x: ufunc.accumulate(x, axis=1),
    ]
    if kind not in UFUNCS[name]:
        with pytest.raises(GraphError):
            gc.compile(calls[0])(x)
        return
    for call in calls:
        want, made = call(x), gc.compile(call)(x)
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(made, want)


def test_a_fold_of_nothing_is_the_identity_or_an_error() -> None:
    empty = np.zeros((0, 2), int)
    made = gc.compile(lambda x: np.bitwise_and.reduce(x))(empty)
    np.testing.assert_array_equal(made, np.bitwise_and.reduce(empty))
    assert gc.compile(lambda x: np.bitwise_or.accumulate(x))(empty).shape == (0, 2)
    with pytest.raises(ValueError, match="no identity"):
        gc.compile(lambda x: np.fmax.reduce(x))(empty)
    made = gc.compile(lambda x: np.hypot.reduce(x))(np.zeros((0, 2)))
    np.testing.assert_array_equal(made, np.zeros(2))


def test_ndenumerate_walks_over_traced_values() -> None:
    def weighed(x: Any) -> Any:
        return sum(v * (i + 1) * (j - 1) for (i, j), v in np.ndenumerate(x))

    x = operand("i", 3, 4).astype(float)
    np.testing.assert_allclose(gc.compile(weighed)(x), weighed(x))


# ------------------------------------------------------------------------------- every ufunc of two

BINARY = sorted(
    name
    for name, found in vars(np).items()
    if isinstance(found, np.ufunc)
    and (found.nin, found.nout, found.signature) == (2, 1, None)
    and found.__name__ == name
)
MATRICES = {
    "f4": np.array([[1.5, 2, -3, 0.5], [4, -5, 6, 2.5], [2, 1, 0.25, 3]], np.float32),
    "i8": np.array([[7, 2, 3, 1], [4, 5, 6, 2], [2, 1, 9, 3]]),
    "?": np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]], bool),
}


def at(ufunc: Any, x: Any, index: Any, *operands: Any) -> Any:
    x = x.copy()
    ufunc.at(x, index, *operands)
    return x


METHODS: dict[str, Any] = {
    "reduce": lambda u, x: u.reduce(x),
    "reduce by rows": lambda u, x: u.reduce(x, axis=-1, keepdims=True),
    "reduce from a start": lambda u, x: u.reduce(x, initial=x[0, 0]),
    "reduce of one": lambda u, x: u.reduce(-x[:1] if x.dtype.kind != "b" else x[:1]),
    "reduce of chosen": lambda u, x: u.reduce(x, where=x > 1, initial=3),
    "accumulate": lambda u, x: u.accumulate(x, axis=1),
    "outer": lambda u, x: u.outer(x, x[0]),
    "reduceat": lambda u, x: u.reduceat(x, [0, 2, 1], axis=1),
    "at rows that repeat": lambda u, x: at(u, x, np.array([0, 2, 0]), x[:, :1]),
    "at others": lambda u, x: at(u, x, np.array([2, 0]), x[1]),
    "at a slice": lambda u, x: at(u, x, (slice(1, None), 2), x[0, 1]),
    "at a mask": lambda u, x: at(u, x, x > 1, x[0, 1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", few(BINARY, 12))
def test_methods_of_every_ufunc(name: str, method: str) -> None:
    """As NumPy has them in dtype, shape and value, or refused where NumPy refuses."""
    ufunc, call = getattr(np, name), METHODS[method]
    for kind in crossed_kinds(name):
        x = MATRICES[kind]
        try:
            with np.errstate(all="ignore"):
                want = call(ufunc, x)
                if name == "power" and x.dtype.kind == "f":
                    # NumPy 2.4 itself is wrong where a later exponent is a half: it takes the
                    # square root of the first number.
                    want = call(np.frompyfunc(ufunc, 2, 1), x.astype(object)).astype(want.dtype)
        except Exception:  # noqa: BLE001  (whatever it is, it is refused)
            with pytest.raises(GraphError):
                gc.compile(lambda x: call(ufunc, x))(x)
            continue
        made = gc.compile(lambda x: call(ufunc, x))(x)
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        bound = 5e-3 if want.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(made, want, rtol=bound, atol=bound)


def crossed_kinds(name: str) -> list[str]:
    kinds = [kind for kind in MATRICES if (name, kind) != ("nextafter", "?")]  # f16 has none here
    return few(kinds, 2, BINARY.index(name))


@pytest.mark.parametrize("size", [1, 2, 40])
def test_long_folds_are_loops(size: int) -> None:
    """Whether they are written out or not, they go from the first to the last."""
    x = rng.uniform(1, 2, (size, 3)).astype(np.float32)
    for call in (
        lambda x: np.subtract.reduce(x),
        lambda x: np.divide.accumulate(x, axis=0),
        lambda x: np.hypot.reduce(x, where=x > 1.5),
        lambda x: np.subtract.reduce(x[:, 0], None, initial=2.0),
    ):
        np.testing.assert_allclose(gc.compile(call)(x), call(x), rtol=1e-6)
    slope = gc.grad(lambda x: np.divide.reduce(x).sum())(x)
    want = np.divide.reduce(x) * np.concatenate([1 / x[:1], -1 / x[1:]])
    np.testing.assert_allclose(slope, want, rtol=1e-4)


def test_folds_of_open_sizes() -> None:
    run = gc.compile(lambda x: np.subtract.reduce(x), sizes={"x": ("n", 3)})
    for size in (2, 5, 30, 31):
        x = rng.normal(size=(size, 3))
        np.testing.assert_allclose(run(x), np.subtract.reduce(x), rtol=1e-10)
    assert len(run.compiles) == 1


def test_what_numpy_does_not_fold_is_refused_as_there() -> None:
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="not reorderable"):
        gc.compile(lambda x: np.subtract.reduce(x, axis=(0, 1)))(x)
    with pytest.raises(ValueError, match="initial"):
        gc.compile(lambda x: np.subtract.reduce(x, where=x > 0))(x)
    with pytest.raises(IndexError, match="axis 2"):
        gc.compile(lambda x: np.hypot.reduce(x, axis=2))(x)
    with pytest.raises(TypeError, match="bitwise_or"):
        gc.compile(lambda x: at(np.bitwise_or, x, [0], 2))(np.ones(3))
    with pytest.raises(GraphError, match="one value"):
        gc.compile(lambda x: at(np.hypot, x, x > 0, [1.0, 2, 3]))(np.ones(3))
    made = gc.compile(lambda x: np.bitwise_or.reduce(x, axis=(0, 1)))(x.astype(int))
    assert made == 1


def test_arrays_of_one_number_and_of_no_part() -> None:
    calls: list[Any] = [
        lambda x: np.subtract.reduce(x[0]),
        lambda x: np.hypot.reduce(-x[1]),
        lambda x: np.hypot.reduceat(x, np.array([], int)),
        lambda x: np.add.reduceat(x, np.array([], int)),
    ]
    x = np.arange(1.0, 4)
    for call in calls:
        want, made = call(x), gc.compile(call)(x)
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("index", [[0, 0, 1], [1, 0], slice(1)])
def test_numbers_of_python_have_a_dtype_of_their_own_in_at(index: Any) -> None:
    """Beside an i64, u64 becomes f64: these numbers lose their last bits."""
    x = np.array([2**63 + 12345, 2**62 + 99], np.uint64)
    made = gc.compile(lambda x: at(np.floor_divide, x, index, 2))(x)
    np.testing.assert_array_equal(made, at(np.floor_divide, x, index, 2))


def test_at_traced_indices() -> None:
    x, rows = np.arange(1.0, 9).reshape(4, 2), np.array([3, 0, 3, 3])
    made = gc.compile(lambda x, rows: at(np.multiply, x, (rows, 1), rows + 2.0))(x, rows)
    np.testing.assert_array_equal(made, at(np.multiply, x, (rows, 1), rows + 2.0))
    made = gc.compile(lambda x, rows: at(np.negative, x, rows))(x, rows)
    np.testing.assert_array_equal(made, at(np.negative, x, rows))
