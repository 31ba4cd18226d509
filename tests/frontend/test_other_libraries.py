"""Functions of SciPy and PyTorch on traced arrays: the user's line, the function, what stands for
it here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import graphc as gc

X = np.linspace(0.1, 0.9, 8)


def called(module: Any, path: str) -> Callable[[Any], Any]:
    """A function that calls one of a library, on a line of this file."""

    def function(x: Any) -> Any:
        found = module
        for name in path.split("."):
            found = getattr(found, name)
        arguments = {"lfilter": ([1.0], [1.0, 0.5], x), "fftconvolve": (x, x), "softmax": (x, 0)}
        arguments |= {"gaussian_filter": (x, 1.0)}
        return found(*arguments.get(name, (x,))) + 1

    return function


def told(function: Callable[..., Any], *args: Any) -> gc.TraceError:
    with pytest.raises(gc.TraceError) as caught:
        gc.compile(function)(*args)
    assert caught.value.location is not None
    assert caught.value.location[0].endswith("test_other_libraries.py")
    assert len(str(caught.value).splitlines()) <= 4
    return caught.value


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("special", "erf", "gc.erf"),
        ("special", "gammaln", "gc.lgamma"),
        ("special", "j0", "gc.callback(scipy.special.j0"),
        ("special", "softmax", "gc.softmax"),
        ("special", "logsumexp", "gc.logsumexp"),
        ("signal", "fftconvolve", "gc.fftconvolve"),
        ("signal", "lfilter", "gc.scan"),
        ("ndimage", "gaussian_filter", "gc.callback(scipy.ndimage.gaussian_filter"),
        ("fft", "fft", "np.fft.fft"),
    ],
)
def test_functions_of_scipy(module: str, name: str, hint: str) -> None:
    pytest.importorskip("scipy")
    error = told(called(import_module(f"scipy.{module}"), name), X)
    assert error.message.startswith(f"scipy.{module}.{name} ")
    assert hint in str(error.hint)


def test_what_the_hints_name_is_there() -> None:
    from graphc.frontend.trace.other_libraries import _OF_SCIPY

    for hint in _OF_SCIPY.values():
        assert callable(getattr(gc, hint.removeprefix("gc.").partition(" ")[0]))


@pytest.mark.parametrize(
    "path", ["tanh", "from_numpy", "as_tensor", "nn.functional.relu", "nn.functional.softmax"]
)
def test_functions_of_pytorch(path: str) -> None:
    error = told(called(pytest.importorskip("torch"), path), X)
    assert "PyTorch" in error.message
    assert "gc.from_torch(module" in str(error.hint)
    assert 'torch.compile(function, backend="graphc")' in str(error.hint)


def test_a_module_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU())
    error = told(module, np.ones((1, 1, 4, 4), np.float32))
    assert error.message.startswith("PyTorch's conv2d ")
    assert isinstance(error, TypeError)


def test_errors_of_the_user_and_of_tensors_stay_what_they_are() -> None:
    torch = pytest.importorskip("torch")

    def mine(x: Any) -> Any:
        raise TypeError("mine takes no Tracer, a Tensor")

    def theirs(x: Any) -> Any:
        return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, 2))

    with pytest.raises(RuntimeError) as caught:
        gc.compile(theirs)(X)
    assert not isinstance(caught.value, gc.GraphError)
    with pytest.raises(TypeError) as raised:
        gc.compile(mine)(X)
    assert not isinstance(raised.value, gc.GraphError)


def test_a_function_of_the_user_that_scipy_calls_is_to_blame_itself() -> None:
    integrate = pytest.importorskip("scipy.integrate")

    def function(x: Any) -> Any:
        return integrate.quad(lambda t: float(x[0]) * t, 0.0, 1.0)[0]

    with pytest.raises(gc.TraceError, match="cannot become a float"):
        gc.compile(function)(X)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: gc.print(f"sum {x.sum()}"),
        lambda x: gc.print("sum " + str(x.sum())),
        lambda x: gc.assert_(x.sum() > 0, f"sum {x.sum()}"),  # noqa: PT009
    ],
)
def test_a_text_that_a_traced_array_was_formatted_into(use: Callable[[Any], Any]) -> None:
    assert "without an f" in str(told(lambda x: (use(x), x)[1], X).hint)


def test_show_says_how_a_compiled_function_is_shown() -> None:
    function = gc.compile(lambda x: x + 1)
    with pytest.raises(gc.GraphError, match=r"gc\.show\(f\.graph\(x\)\)"):
        gc.show(function)
    with pytest.raises(gc.GraphError) as caught:
        gc.show(3)
    assert caught.value.hint is None
    assert "add" in gc.show(function.graph(X))
