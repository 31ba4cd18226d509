"""Every public function of arrays, on empty arrays and on wrong arguments, beside NumPy's."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError
from graphc.frontend.trace.dispatch import numpy_name, published
from graphc.ops.record.value import NUMPY

X = np.arange(12.0).reshape(3, 4)
WRONG: list[tuple[Any, ...]] = [
    (X, 5),
    (X, -99),
    (X, X[:2, :3]),
    (X, (9, 9)),
    (X > 3,),
    (X, 1.5),
    (X, X, 99),
    (),
    (X,) * 5,
    (X, "no"),
    (X, None),
]
RAISED = (IndexError, ValueError, TypeError)
NAMES = sorted(name for name in published() if name.isidentifier())
# What NumPy's functions take besides arrays.
MORE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("partition", "argpartition", "expand_dims", "rollaxis"), (0,)),
    **dict.fromkeys(("quantile", "nanquantile"), (0.5,)),
    **dict.fromkeys(("percentile", "nanpercentile"), (50,)),
    **dict.fromkeys(("repeat", "tile", "array_split"), (2,)),
    **dict.fromkeys(("moveaxis", "swapaxes"), (0, 0)),
    **dict.fromkeys(("split", "hsplit", "vsplit", "roll", "pad"), (1,)),
    "take": (np.zeros(0, int),),
    "histogram": (np.zeros(0),),
    "insert": (0, 1.0),
}
# Words of ops and attributes that a public function is made of.
INTERNAL = r"^(?!convolve)conv\w*:|attribute \w+ of \w+ must lie|axis 0: index"
# What says why there is no such result, or takes less than NumPy.
LIMITS = (
    r"depends on data|no value yet|must be of kind|integer type|does not broadcast|no static shape|"
    r"not available|vectors of coefficients|equations"
)


def numpys(function: Any, args: tuple[Any, ...]) -> Any:
    """What NumPy makes of it, or raises."""
    try:
        with np.errstate(all="ignore"):
            return function(*(a.copy() if isinstance(a, np.ndarray) else a for a in args))
    except Exception as error:  # noqa: BLE001
        return error


def refusal(function: Any, *args: Any) -> Exception | None:
    """What tracing a function on arguments raises: the others than arrays are constants."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    rest = args[len(arrays) :]
    try:
        gc.compile(lambda *given: function(*given, *rest), opt=0).graph(*arrays)
    except Exception as error:  # noqa: BLE001
        return error
    return None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wrong_arguments_are_errors_of_graphc_and_of_numpy() -> None:
    for k, name in enumerate(NAMES):
        function, numpy = getattr(gc, name), published()[name]
        for args in (*WRONG, *WRONG)[k % len(WRONG) :][:2]:
            title = f"{name}{args}"
            found = refusal(function, *args)
            assert found is None or isinstance(found, GraphError), title
            with contextlib.suppress(GraphError):  # compiled directly, numbers are traced, too
                gc.compile(function, opt=0).graph(*args)
            wanted = None if numpy is None else numpys(numpy, args)
            if found is not None and isinstance(wanted, RAISED):
                assert isinstance(found, RAISED), title


def test_a_function_compiled_directly_says_what_numpy_says() -> None:
    with pytest.raises(ValueError, match="does not divide") as caught:
        gc.compile(gc.split, static="indices_or_sections")(X, 5)
    assert isinstance(caught.value, GraphError)
    with pytest.raises(GraphError, match="static="):
        gc.compile(gc.split)(X, 5)
    with pytest.raises(TypeError, match="missing"):
        gc.compile(gc.split)(X)  # type: ignore[call-arg]


def test_what_a_function_of_the_user_raises_stays_what_it_is() -> None:
    def bad(row: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gc.compile(lambda x: np.apply_along_axis(bad, 0, x))(X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x, wrong = np.zeros(shape), []
    for numpy in list(NUMPY):
        name = numpy_name(numpy)
        for args in ((x,), (x, x), (x, *MORE.get(name, (2,)))):
            wanted, found = numpys(numpy, args), refusal(numpy, *args)
            if found is None or str(found) == str(wanted):
                continue  # or NumPy has looked at the call itself
            inner = re.search(INTERNAL, str(found).splitlines()[0])
            known = isinstance(wanted, Exception) or re.search(LIMITS, str(found))
            if not isinstance(found, GraphError) or inner or not known:
                wrong.append(f"{name}{args}: {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "np.partition(e, 0)",
        "np.argpartition(e, 3)",
        "np.polymul(e, y)",
        "np.polymul(e, e)",
        "np.polymul(e.astype(int), e.astype(int))",
        "np.median(e)",
        "np.nanquantile(e.astype(int), 0.5)",
        "np.histogram(y, e)",
        "np.cov(e[:, None].T[:0])",
        "np.corrcoef(e[None][:0])",
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_empty_results_are_those_of_numpy(text: str) -> None:
    e, y = np.zeros(0), np.arange(1.0, 4.0)
    call = eval(f"lambda e, y: {text}", {"np": np})
    made, wanted = gc.compile(call, opt=0)(e, y), call(e, y)
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (made, wanted))):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function", [np.nanargmax, np.nanargmin])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_the_place_of_no_number(function: Any, axis: int | None) -> None:
    ours = getattr(gc, function.__name__)
    rows = [np.full((2, 3), np.nan), np.array([[np.nan, np.nan], [1, np.nan]]), X, X[:, :2] > 3]
    for x in rows:
        wanted = numpys(function, (x, axis))
        if isinstance(wanted, ValueError):
            with pytest.raises(ValueError, match="all NaN") as caught:
                ours(x, axis)
            assert isinstance(caught.value, GraphError)
            assert np.all(gc.compile(lambda x: function(x, axis), opt=0)(x) >= 0)
        else:
            np.testing.assert_array_equal(ours(x, axis), wanted)


@pytest.mark.parametrize("function", [np.quantile, np.nanquantile, np.percentile])
@pytest.mark.parametrize("method", ["linear", "lower", "hazen", "midpoint"])
def test_a_traced_quantile_beyond_its_range_stops_the_run(function: Any, method: str) -> None:
    top = 100.0 if function is np.percentile else 1.0
    model = gc.compile(lambda x, q: function(x, q, axis=1, method=method))
    for q in (0.0, 0.3 * top, top):
        np.testing.assert_allclose(model(X, np.array(q)), function(X, q, axis=1, method=method))
    for q in (-0.01, top * 1.001, -1e300, 1e300, np.inf, np.nan):
        with pytest.raises(gc.RunError, match="out of range"):
            model(X, np.array(q))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (1, 0), (2, 0, 3), (0, 0)])
@pytest.mark.parametrize("axis", [0, -1])
def test_unique_parts_of_no_elements(shape: tuple[int, ...], axis: int) -> None:
    def unique(x: Any) -> Any:
        return np.unique(x, True, True, True, axis=axis)

    for one, other in zip(gc.compile(unique)(np.ones(shape)), unique(np.ones(shape)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.shape == other.shape
