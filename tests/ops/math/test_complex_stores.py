"""Imaginary parts are never lost in silence: a store into real numbers is refused, and a cast that
was asked for warns as NumPy does, whether it is traced, compiled or eager."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.exceptions import ComplexWarning

import graphc as gc
import graphc.numpy as gnp
from graphc.errors import GraphError
from graphc.ops.record.value import PUBLIC

REAL = np.arange(4.0)
COMPLEX = np.array([1 + 2j, 3 + 4j])


def written(write: Callable[..., Any]) -> Callable[..., Any]:
    """The array that `write(np, x, v)` changes."""

    def changed(x: Any, v: Any) -> Any:
        x = x * 1
        write(x, v)
        return x

    return changed


def whole(x: Any, v: Any) -> None:
    x[...] = v[0]


def box(x: Any, v: Any) -> None:
    x[0:2] = v


def added(x: Any, v: Any) -> None:
    x[0:2] += v


def masked(x: Any, v: Any) -> None:
    x[x > 0] = v[0]


def diagonal(x: Any, v: Any) -> Any:
    square = x.reshape(2, 2) * 1
    np.fill_diagonal(square, v[0])
    return square


STORES: dict[str, Callable[..., Any]] = {
    "whole": written(whole),
    "box": written(box),
    "added": written(added),
    "masked": written(masked),
    "rows": written(lambda x, v: x.__setitem__([0, 1], v)),
    "fill": written(lambda x, v: x.fill(v[0])),
    "put": written(lambda x, v: np.put(x, [0, 1], v)),
    "putmask": written(lambda x, v: np.putmask(x, x > 1, v)),
    "place": written(lambda x, v: np.place(x, x > 1, v)),
    "put_along_axis": written(lambda x, v: np.put_along_axis(x, np.array([0, 1]), v, 0)),
    "copyto": written(lambda x, v: np.copyto(x[0:2], v)),
    "add.at": written(lambda x, v: np.add.at(x, [0, 1], v)),
    "diagonal": diagonal,
    "insert": lambda x, v: np.insert(x, 1, v[0]),
    "insert two": lambda x, v: np.insert(x, [1, 2], v),
    "ediff1d": lambda x, v: np.ediff1d(x, to_end=v),
    "ediff1d begin": lambda x, v: np.ediff1d(x, to_begin=v),
    "pad": lambda x, v: np.pad(x, 1, constant_values=v[0]),
    "nan_to_num": lambda x, v: np.nan_to_num(x, nan=v[0]),
    "out": lambda x, v: np.add(v, v, out=x[0:2] * 1),
    "piecewise": lambda x, v: np.piecewise(x, [x > 1], [v[0], 1.0]),
    "scatter": lambda x, v: gc.index_update(x, (np.array([0, 1]),), v),
    "block": lambda x, v: gc.dynamic_update_slice(x, v, (1,)),
}


@pytest.mark.parametrize("name", list(STORES))
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_a_store_into_real_numbers_is_refused(name: str, dtype: str) -> None:
    x = REAL.astype(dtype)
    for call in (
        lambda: gc.compile(STORES[name])(x, COMPLEX),
        lambda: gc.compile(lambda x: STORES[name](x, COMPLEX))(x),
    ):
        with pytest.raises(GraphError):
            call()


ORDERED = ("masked", "putmask", "place", "piecewise")  # where numbers are compared
OURS = ("scatter", "block", "nan_to_num")


@pytest.mark.parametrize("name", [name for name in STORES if name not in ORDERED + OURS])
def test_a_store_into_complex_numbers_is_not(name: str) -> None:
    x = REAL.astype("c16")
    np.testing.assert_allclose(gc.compile(STORES[name])(x, COMPLEX), STORES[name](x, COMPLEX))


NO_CAST = ("arange", "empty_like", "ones_like", "zeros_like", "view")  # of what the array holds


def cast_functions() -> list[str]:
    """Public functions with an argument `dtype` whose first is an array."""
    found = []
    for name in filter(str.isidentifier, PUBLIC):
        parameters = inspect.signature(getattr(gc, name)).parameters
        first = next(iter(parameters), "")
        array = first in ("x", "a", "arrays", "fill_value", "object", "v", "start", "m")
        if "dtype" in parameters and array and name not in NO_CAST:
            found.append(name)
    return sorted(found)


def arguments(name: str, v: Any) -> tuple[Any, ...]:
    parameters = list(inspect.signature(PUBLIC[name]).parameters.values())
    first, *rest = (p for p in parameters if p.kind is not p.VAR_KEYWORD)
    more = [p.name for p in rest if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    made = {"stop": v[1], "fill_value": v[0], "dtype": "f8", "y": v, "x2": v}
    given = [v, v] if first.name == "arrays" else v
    if name == "trace":
        given = v.reshape(1, 2)
    return (given, *(made[n] for n in more if n in made))


@pytest.mark.parametrize("name", cast_functions())
def test_a_cast_that_was_asked_for_warns(name: str) -> None:
    def call(v: Any) -> Any:
        given = arguments(name, v)
        more = {} if any(isinstance(g, str) for g in given) else {"dtype": "f8"}
        return PUBLIC[name](*given, **more)

    for run in (gc.compile(call), lambda v: call(gnp.asarray(v))):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                made = run(COMPLEX)
            except GraphError:
                continue
        parts = made if isinstance(made, tuple) else (made,)
        kept = all(np.asarray(part).dtype.kind == "c" for part in parts)
        told = [w for w in seen if w.category is ComplexWarning]
        assert kept or told, name
        assert all(w.filename == __file__ for w in told), [w.filename for w in told]


def test_gradients_of_parts_of_complex_numbers_warn_of_nothing() -> None:
    def loss(x: Any) -> Any:
        z = x * (1 + 2j)
        return (np.abs(z) ** 2 + z.real * z.imag).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = gc.compile(gc.grad(loss))(REAL)
    np.testing.assert_allclose(gradient, 2 * (5 + 2) * REAL)
