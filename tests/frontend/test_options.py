"""Options are honoured or refused: none that a function accepts is ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ops.record.value import NUMPY, PUBLIC

X = np.linspace(0.1, 0.9, 9).reshape(3, 3)
# What each is called with beside its options.
CREATION: dict[str, tuple[Any, ...]] = {
    "zeros": (3,),
    "ones": (3,),
    "empty": (3,),
    "full": (3, 1.0),
    "arange": (3,),
    "eye": (3,),
    "tri": (3,),
    "zeros_like": (X,),
    "ones_like": (X,),
    "empty_like": (X,),
    "full_like": (X, 2.0),
}
LIKE = ("zeros_like", "ones_like", "empty_like", "full_like")


@pytest.mark.parametrize("name", CREATION)
def test_creation_functions_refuse_what_they_do_not_have(name: str) -> None:
    function, args = getattr(gc, name), CREATION[name]
    for option, near in (("dtyp", "dtype"), ("devic", "device"), ("odrer", "order")):
        if near == "order" and name in ("arange", "eye", "tri"):
            continue
        with pytest.raises(gc.GraphError, match=f"did you mean '{near}'"):
            function(*args, **{option: None})
    for option, value in {"device": "nonsense", "like": X, "order": "Z"}.items():
        with pytest.raises(gc.GraphError, match=rf"{option} must be one of|no argument"):
            function(*args, **{option: value})
        if name in LIKE and option != "like":
            with pytest.raises(gc.GraphError):
                gc.compile(lambda x, o=option, v=value: function(x, *args[1:], **{o: v}))(X)
    assert function(*args, dtype="f4", device="cpu").dtype == np.float32


UFUNCS = [f for f in NUMPY if isinstance(f, np.ufunc) and f.nin <= 2 and f.signature is None]


@pytest.mark.parametrize("function", UFUNCS, ids=lambda f: f.__name__)
def test_ufuncs_refuse_values_that_their_options_do_not_have(function: np.ufunc) -> None:
    wrong = ({"casting": "x"}, {"order": "Z"}, {"subok": 3}, {"nonsense": 1}, {"signature": "d"})
    for options in wrong:
        with pytest.raises((gc.GraphError, TypeError)):
            gc.compile(lambda *a, o=options: function(*a, **o)).graph(*[X] * function.nin)


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize("target", ["int32", "int64", "float32", "float64", "complex128"])
@pytest.mark.parametrize("source", ["int32", "int64", "float32", "float64", "complex128"])
def test_casting_is_numpys(source: str, target: str, casting: Any) -> None:
    x = np.ones(3, source)
    allowed = np.can_cast(source, target, casting)
    uses = [
        lambda x: x.astype(target, casting=casting),
        lambda x: np.add(x, x, dtype=target, casting=casting),
    ]
    for use in uses:
        if not allowed:
            with pytest.raises(gc.GraphError, match="does not cast"):
                gc.compile(use)(x)
        elif not (source == "complex128" and target != source):
            made = gc.compile(use)(x)
            np.testing.assert_array_equal(made, use(x))
            assert made.dtype == np.dtype(target)


def test_every_public_function_refuses_an_option_that_it_does_not_have() -> None:
    accepted = []
    for name, function in PUBLIC.items():
        try:
            function(X, no_such_option=1)
        except (gc.GraphError, TypeError, AttributeError):
            continue
        accepted.append(name)
    assert accepted == []


def test_complex_numbers_are_not_stored_in_real_arrays() -> None:
    def element(x, c):
        x[0] = c[0]
        return x

    def masked(x, c):
        x[x > 0.5] = c[0, 0]
        return x

    def made(x, c):
        y = np.zeros(3)
        y[0] = c[0, 0]
        return y

    def number(x, c):
        x[0] = 1j
        return x

    for function in (element, masked, made, number):
        with pytest.raises(gc.GraphError):
            gc.compile(function)(X, X + 1j)
    assert gc.compile(element)(X + 0j, X + 1j)[0, 0] == X[0, 0] + 1j
