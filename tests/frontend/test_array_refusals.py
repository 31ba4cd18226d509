"""Every argument of every function of arrays, of gc and graphc.numpy, with values of other kinds:
done, or refused by a GraphError, of the class that NumPy raises; never an error from inside."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as gc
import graphc.numpy as gnp
from graphc.errors import GraphError
from graphc.frontend.trace.dispatch import published

X = np.arange(12.0).reshape(3, 4) + 1
S, V, I = np.eye(4) * 3 + 1, np.array([1.0, 2, 3]), np.array([[0, 1], [1, 0]])  # noqa: E741
WRONG: tuple[Any, ...] = (
    None, 3, -1, 1.5, np.nan, np.inf, 10**30, -(2**63), True, "x", "", [], {}, [None], ["x"],
    (0,) * 5, object(), b"x", 1j, np.array("x"), np.array([None]), np.float32, slice(2), 2.5e300,
)  # fmt: skip
CALLS: tuple[tuple[Any, ...], ...] = (
    (X,), (S,), (X, X), (S, S), (V, V), (I,), (I, I), (X, 0), (X, 1), (X, 0, 1), (X, 0.5),
    (X, [0, 1]), (X, I), ((3,),), ((2, 3), 1.0), (3,), ([X, X],), ([V, V],), (X, (3, 4)),
    (X, "f4"), (V, V, V), (X > 2, X, X), (X, X > 2), (X, 2), (X, V[:, None]), ("ij,jk", S, S),
    ("ij->ji", S), (0, 3), (0, 3, 4), (X, np.zeros((3, 4), int), 0), (X > 2, [X, X]),
    (X, np.zeros((3, 1), int), np.zeros((3, 1)), 0), ([X > 2], [X]), (X, 0, 1.0), (X, (0,), 1.0),
    (V, V, 1), (I[0], I[0]), (I[0],), (X, 1.0, 2.0), (X, slice(0, 2), 1.0), ("f4",),
    ("f4", "f8"), (I, (2, 2)), (V, 2, 0), (X[None, None],), (X[None, None], X[None, None]),
    (X[None, None], 2), (X, (0, 0), (1, 1)), (X, X[:1], (0, 0)), (I.astype("u1"),),
)  # fmt: skip
TOLD = {"test", "set_printoptions", "seterr", "setbufsize", "seterrcall", "info", "save", "savetxt",
        "savez", "savez_compressed", "load", "loadtxt", "fromfile", "genfromtxt", "fromregex",
        "printoptions", "errstate", "frombuffer", "fromiter", "fromstring", "show_config",
        "show_runtime", "frompyfunc", "bmat", "put",
        "apply_along_axis", "apply_over_axes", "fromfunction", "piecewise"}  # fmt: skip


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in filter(str.isidentifier, published()):
        yield f"gc.{name}", getattr(gc, name)
    for module, prefix in ((gnp, ""), (gnp.linalg, "linalg."), (gnp.fft, "fft.")):
        for name in dir(module):
            found = None if name.startswith("_") or name in TOLD else getattr(module, name)
            if type(found).__name__ == "Function":
                yield f"gnp.{prefix}{name}", found


def known_call(function: Callable[..., Any], shape: inspect.Signature) -> Any:
    """Arguments that the function takes, or None."""
    for args in CALLS:
        try:
            bound = shape.bind(*args)
            function(*args)
        except (GraphError, TypeError):
            continue
        return bound
    return None


def changed(bound: inspect.BoundArguments, name: str, wrong: Any) -> Any:
    """The call with another value in one argument."""
    made = inspect.BoundArguments(bound.signature, bound.arguments.copy())
    if bound.signature.parameters[name].kind == inspect.Parameter.VAR_POSITIONAL:
        made.arguments[name] = (wrong,)
    elif name in made.arguments:
        made.arguments[name] = wrong
    else:
        return made.args, {**made.kwargs, name: wrong}
    return made.args, made.kwargs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_arguments_of_other_kinds() -> None:
    turn, tried, bare = 0, set(), []
    for title, function in functions():
        try:
            shape = inspect.signature(function)
        except ValueError:
            continue
        bound = known_call(function, shape)
        for name, parameter in shape.parameters.items() if bound else ():
            if parameter.kind == parameter.VAR_KEYWORD or name == "out":
                continue
            turn += 1
            wrong = WRONG[turn % len(WRONG)]
            if wrong == 10**30 and not title.startswith("gc."):
                continue  # NumPy itself counts up to it
            args, kwargs = changed(bound, name, wrong)
            tried.add(title)
            try:
                function(*args, **kwargs)
            except GraphError:
                pass
            except Exception as error:  # noqa: BLE001
                bare.append(f"{title}({name}={wrong!r:.30}): {error!r:.90}")
    assert len(tried) > 550
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: gc.argmax(X, axis=7), IndexError),
        (lambda: gc.argmax(X, axis=[]), TypeError),
        (lambda: gnp.reshape(X, (5, 5)), ValueError),
        (lambda: gnp.fft.fft(X, norm="x"), ValueError),
        (lambda: gc.compile(lambda x: np.sum(x, axis=7))(X), IndexError),
    ],
)
def test_errors_are_of_both_classes_in_another_process_too(
    call: Callable[[], Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        call()
    again = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, again):
        assert isinstance(error, kind) and isinstance(error, GraphError)
    assert str(again) == str(caught.value) and type(again) is type(caught.value)


def test_what_was_given_stands_beside_what_is_taken() -> None:
    with pytest.raises(GraphError, match=r"takes eye\(n, .*it was given n=3, k=\{\}"):
        gc.eye(3, k={})
    with pytest.raises(GraphError, match=r"it was given a=float64\[3, 4\], axis='x'"):
        gc.argmax(X, axis="x")
    with pytest.raises(TypeError, match=r"^clip: takes from 1 to 3 positional") as caught:
        gc.clip(X, 0, 1, 1)
    assert isinstance(caught.value, GraphError)


@pytest.mark.parametrize(
    "call",
    [lambda: gc.round(X, 10**30), lambda: gc.array_split(X, 10**30), lambda: gc.polyint(V, 10**30)],
)
def test_counts_without_bounds_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(GraphError):
        call()


def test_more_differences_than_elements_leave_none() -> None:
    assert gc.diff(X, 10**30).shape == np.diff(X, 9).shape == (3, 0)
    assert gc.polyder(V, 10**30).shape == np.polyder(V, 9).shape


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x.sum(5), np.exceptions.AxisError),
        (lambda x: np.concatenate([x, x], 7), np.exceptions.AxisError),
        (lambda x: np.moveaxis(x, 0, 5), np.exceptions.AxisError),
        (lambda x: np.linalg.solve(x, x), np.linalg.LinAlgError),
        (lambda x: np.linalg.inv(x), np.linalg.LinAlgError),
        (lambda x: np.linalg.cholesky(x[0]), np.linalg.LinAlgError),
    ],
)
def test_classes_of_numpys_own_are_raised(function: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as wanted:
        function(X)
    with pytest.raises(kind) as caught:
        gc.compile(function)(X)
    assert isinstance(caught.value, gc.GraphError)
    assert vars(caught.value)["message"]
    for name in ("axis", "ndim"):
        assert getattr(caught.value, name, None) == getattr(wanted.value, name, None)


ZEROS, NOT_FINITE = np.zeros((3, 3)), np.full((3, 3), np.nan)


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (np.linalg.inv, (ZEROS,), "singular matrix"),
        (np.linalg.inv, (np.zeros((20, 20)),), "singular matrix"),
        (np.linalg.inv, (np.zeros((2, 3, 3), np.complex64),), "singular matrix"),
        (np.linalg.solve, (ZEROS, np.ones(3)), "singular matrix"),
        (np.linalg.cholesky, (-np.eye(3),), "matrix is not positive definite"),
        (np.linalg.cholesky, (-np.eye(20),), "matrix is not positive definite"),
        (np.linalg.eigh, (NOT_FINITE,), "decomposition does not converge"),
        (np.linalg.svd, (NOT_FINITE,), "decomposition does not converge"),
        (np.linalg.eigvals, (NOT_FINITE,), "decomposition does not converge"),
        (np.linalg.pinv, (NOT_FINITE,), "decomposition does not converge"),
    ],
)
@pytest.mark.parametrize("check_finite", [False, True])
def test_runs_raise_what_numpy_raises(
    function: Any, arguments: Any, said: str, check_finite: bool
) -> None:
    with pytest.raises(np.linalg.LinAlgError):
        function(*arguments)
    with pytest.raises(np.linalg.LinAlgError, match=said) as caught:
        gc.compile(lambda *given: function(*given), check_finite=check_finite)(*arguments)
    error = caught.value
    assert isinstance(error, gc.RunError)
    assert error.location is not None and error.location[0].endswith("test_array_refusals.py")
    assert error.hint


def test_what_is_not_finite_in_a_matrix_is_told() -> None:
    with pytest.raises(np.linalg.LinAlgError, match=r"argument x, at \[0, 0\]: nan"):
        gc.compile(lambda x: np.linalg.cholesky(x))(NOT_FINITE)
