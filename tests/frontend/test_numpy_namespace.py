"""`graphc.numpy`: the names of NumPy, on arrays and in traces."""

from __future__ import annotations

import functools
import inspect
import pickle

import numpy as np
import pytest

import graphc as gc
import graphc.numpy as gnp

# The functions of the array API standard, 2024.12.
STANDARD = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh
bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
broadcast_arrays broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero
cumulative_prod cumulative_sum diff divide empty empty_like equal exp expand_dims expm1 eye finfo
flip floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag isdtype
isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and
logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum
moveaxis multiply negative nextafter nonzero not_equal ones ones_like permute_dims positive pow
prod real reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin
sinh sort sqrt square squeeze stack std subtract sum take take_along_axis tan tanh tensordot tile
tril triu trunc unique_all unique_counts unique_inverse unique_values unstack var vecdot where
zeros zeros_like
"""


def test_every_name_of_the_standard_is_there() -> None:
    assert not [name for name in STANDARD.split() if not callable(getattr(gnp, name))]
    assert gnp.float32 is np.float32 and gnp.newaxis is None and gnp.pi == np.pi
    assert gnp.__array_namespace_info__().default_dtypes()["real floating"] == np.float64
    assert gc.numpy is gnp and "tanh" in dir(gnp) and "inv" in dir(gnp.linalg)


def test_arrays_and_traces_give_the_same() -> None:
    def model(x):
        table = gnp.zeros(3)
        table[0] = gnp.add.reduce(x)
        norms = gnp.array([gnp.linalg.norm(x), x.max(), 1.0])
        return gnp.tanh(table) + norms, gnp.linalg.inv(gnp.eye(3) + gnp.outer(x, x))

    x = np.array([1.0, 2.0, -0.5])
    for one, other in zip(model(x), gc.compile(model)(x)):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert gc.grad(lambda x: gnp.sum(gnp.square(x)))(x).tolist() == [2.0, 4.0, -1.0]


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="tanhh") as caught:
        gnp.tanhh  # noqa: B018
    assert "tanh" in str(caught.value)
    with pytest.raises(AttributeError):
        gnp.linalg.invv  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(gc.TraceError, match="roots"):
        gc.compile(gnp.roots)(np.ones(4))
    np.testing.assert_array_equal(gnp.roots(np.ones(2)), -np.ones(1))


def test_functions_are_pickled_and_described() -> None:
    again = pickle.loads(pickle.dumps(gnp.tanh))
    assert again(0.0) == 0.0 and "graphc.numpy" in repr(again) and gnp.tanh.__doc__


@pytest.mark.parametrize("title", ["i1", "i2", "i4", "i8", "u1", "u4", "u8", "f4", "f8", "c8"])
def test_strings_of_dtypes_are_numpys_in_numpys_functions(title: str) -> None:
    for function in (
        lambda x: x.astype(title),
        lambda x: np.sum(x, dtype=title) + x.sum(dtype=title),
    ):
        x = np.ones(3, np.uint8)
        assert gc.compile(function)(x).dtype == function(x).dtype
    assert gc.compile(lambda x: x + gc.zeros(3, "i8"))(np.ones(3, np.int8)).dtype == np.int8


def test_on_arrays_errors_are_numpys_too() -> None:
    x = np.ones((2, 3))
    for call, kind in (
        (lambda: gnp.expand_dims(x, 9), IndexError),
        (lambda: gnp.sum(x, axis=4), IndexError),
        (lambda: gnp.squeeze(x, 0), ValueError),
    ):
        with pytest.raises(gc.GraphError) as caught:
            call()
        assert isinstance(caught.value, kind)


def test_arrays_may_be_more_than_a_graph_can_hold() -> None:
    a = np.eye(40) * 1j
    assert gnp.linalg.det(a) == np.linalg.det(a)
    np.testing.assert_array_equal(gnp.unique(X[:, None], axis=0), np.unique(X[:, None], axis=0))
    assert gnp.histogram(X, "auto")[0].sum() == 3


def test_limits_are_of_dtypes_and_of_arrays() -> None:
    assert gnp.finfo(np.float32).eps == gnp.finfo(np.ones(2, "f4")).eps == np.finfo("f4").eps
    assert gc.compile(lambda x: x + gnp.iinfo(x).max)(np.array([-1], "i2")) == [2**15 - 2]


X = np.array([1.0, 2.0, 0.5])
TRANSFORMS = {
    "compile": lambda f: gc.compile(f)(X),
    "jvp": lambda f: gc.jvp(f, (X,), (np.ones(3),)),
    "vjp": lambda f: gc.vjp(f, X)[1](np.ones(3)),
    "jacobian": lambda f: gc.jacobian(f)(X),
    "checkpoint": lambda f: gc.compile(gc.checkpoint(f))(X),
    "map": lambda f: gc.compile(lambda x: gc.map(f, x))(X),
    "cond": lambda f: gc.compile(lambda x: gc.cond(x[0] > 0, f, f, x))(X),
    "grad": lambda f: gc.grad(f)(X[1]),
    "value_and_grad": lambda f: gc.value_and_grad(f)(X[1]),
    "hessian": lambda f: gc.hessian(f)(X[1]),
    "grad of grad": lambda f: gc.grad(gc.grad(f))(X[1]),
    "grad of checkpoint": lambda f: gc.grad(gc.checkpoint(f))(X[1]),
}
FUNCTIONS = [
    np.cbrt,
    gnp.cbrt,
    np.nan_to_num,
    gnp.square,
    np.negative,
    functools.partial(np.power, 2.0),
    functools.partial(gnp.multiply, 3.0),
    np.vectorize(np.cbrt),
    gc.relu,
]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_take_functions_of_numpy_as_they_are(transform: str) -> None:
    for function in FUNCTIONS:
        direct, wrapped = map(TRANSFORMS[transform], (function, lambda x: function(x)))  # noqa: B023
        for one, other in zip(*map(np.atleast_1d, (direct, wrapped)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_transforms_of_binary_functions_take_argument_numbers() -> None:
    assert gc.grad(np.hypot, wrt=1)(3.0, 4.0) == 0.8
    assert gc.grad(gnp.multiply, wrt=(0, 1))(3.0, 4.0) == (4.0, 3.0)
    assert gc.compile(np.add)(X, 1.0).tolist() == [2.0, 3.0, 1.5]
    with pytest.raises(gc.TraceError, match="must return"):
        gc.scan(np.add, 0.0, X)


def test_signatures_are_numpys_with_what_is_ours_besides() -> None:
    names = {f: list(inspect.signature(f).parameters) for f in (gnp.sort, gnp.roll, gnp.unique)}
    assert names[gnp.sort] == ["a", "axis", "kind", "order", "stable", "descending"]
    assert names[gnp.roll] == ["a", "shift", "axis"]
    assert names[gnp.unique][-2:] == ["size", "fill_value"]
    assert gnp.fft.fftfreq(4, dtype=np.float32).dtype == np.float32
