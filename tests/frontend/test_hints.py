"""Names that are not there: what was meant, in the words of other libraries and by spelling."""

from __future__ import annotations

import itertools
import json
import pickle
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
import graphc.numpy as gnp
from graphc import passes
from graphc.base.hints import FOREIGN, meant
from graphc.base.refusing import refusing
from graphc.codegen.numba.route import refusal


def model() -> gc.Model:
    return gc.Model(gc.nn.Dense(3, 1), loss=gc.nn.mse, optimizer=gc.optim.adam(1e-3))


def traced(function: Callable[[Any], Any]) -> Any:
    return gc.compile(function)(np.ones((3, 4), np.float32))


@pytest.mark.parametrize(
    ("use", "kind", "hint"),
    [
        (lambda: gc.jit, AttributeError, "gc.compile"),
        (lambda: gc.concatt, AttributeError, "concat"),
        (lambda: gc.nn.Linear, AttributeError, "gc.nn.Dense"),
        (lambda: gc.optim.Adam, AttributeError, "gc.optim.adam"),
        (lambda: gc.data.DataLoader, AttributeError, "gc.data.Loader"),
        (lambda: gc.grad(np.sum, argnums=0), TypeError, "wrt"),
        (lambda: gc.optim.adam(lr=1e-3), TypeError, "rate"),
        (lambda: gc.optim.sgd(weight_deca=1e-3), TypeError, "weight_decay"),
        (lambda: model().fit(([[1.0]], [1.0]), batch_size=2), TypeError, "batch"),
        (lambda: gc.compile(np.sum, static_argnums=0), gc.GraphError, "static"),
        (lambda: gc.compile(np.sum, devics=["cpu:0"]), gc.GraphError, "devices"),
        (lambda: gc.compile(np.sum, dynamic=True), gc.GraphError, "sizes"),
        (lambda: gc.compile(np.sum, size={}), gc.GraphError, "sizes"),
        (lambda: gc.compile(np.sum, fullgraph=True), gc.GraphError, "always one graph"),
        (lambda: gc.random.PRNGKey(0), AttributeError, "gc.random.key"),
        (lambda: gc.tree, AttributeError, "dicts, lists, tuples"),
        (lambda: gc.tree_util, AttributeError, "gc.register_pytree"),
        (lambda: gc.tree_map, AttributeError, "a comprehension"),
        (lambda: gc.from_numpy, AttributeError, "NumPy arrays go in"),
        (lambda: gc.manual_seed, AttributeError, "gc.random.key"),
        (lambda: gc.debug, AttributeError, "gc.print"),
        (lambda: gc.random.seed, AttributeError, "gc.random.key"),
        (lambda: gc.random.randn, AttributeError, "gc.random.normal"),
        (lambda: gc.optim.apply_updates, AttributeError, "optimizer.update"),
        (lambda: gc.nn.ReLU, AttributeError, "gc.nn.relu"),
        (lambda: gc.nn.GELU, AttributeError, "gc.nn.gelu"),
        (lambda: gc.nn.ModuleList, AttributeError, "gc.nn.Sequential"),
        (lambda: gnp.softmax(np.ones(3)), AttributeError, "gc.softmax"),
        (lambda: traced(lambda x: x.at[0].set(1)), AttributeError, "x[i] = value"),
        (lambda: traced(lambda x: x.permute(1, 0)), AttributeError, "transpose"),
        (lambda: traced(lambda x: x.unsqueeze(0)), AttributeError, "expand_dims"),
        (lambda: traced(lambda x: x.numpy()), AttributeError, "returns NumPy arrays"),
    ],
)
def test_misspelt_and_foreign_names(use: Callable[[], Any], kind: type, hint: str) -> None:
    with pytest.raises(gc.GraphError) as caught:
        use()
    assert isinstance(caught.value, kind)
    assert hint in (caught.value.hint or "")


def test_no_foreign_name_is_one_of_ours() -> None:
    assert not [name for name in FOREIGN if hasattr(gc, name)]


def test_nothing_is_guessed_from_afar() -> None:
    assert meant("quux", ["alpha", "beta"]) is None
    assert not hasattr(gc, "quux") and not hasattr(gc.nn, "__wrapped__")
    assert pickle.loads(pickle.dumps(gc.optim.adam)) is gc.optim.adam


def test_an_error_inside_of_the_function_is_left_alone() -> None:
    def wrong() -> None:
        raise TypeError("from inside")

    with pytest.raises(TypeError, match="from inside") as caught:
        refusing(wrong)()
    assert not isinstance(caught.value, gc.GraphError)


def test_a_spec_is_no_argument() -> None:
    with pytest.raises(gc.FeedError, match=r"a spec, f32\[3\]") as caught:
        gc.compile(np.tanh)(gc.spec((3,), "f32"))
    assert "fn.graph" in (caught.value.hint or "")


def test_what_is_no_array_is_named_where_the_function_fails() -> None:
    def total(x: Any, mode: Any, z: Any) -> Any:
        return x.sum() + z

    with pytest.raises(AttributeError, match="'list' object") as caught:
        gc.compile(total)([1.0, 2.0], "fast", None)
    (note,) = caught.value.__notes__
    assert "x is a list" in note and "mode is 'fast'" in note and "z is None" in note


@pytest.mark.parametrize("call", ["__call__", "resident", "graph", "stages"])
def test_an_error_of_the_users_shows_the_users_lines(call: str) -> None:
    """What graphc does in between is cut out, but for the method that was called."""

    texts = {"bad": "?"}

    def inner(name: str, x: Any) -> Any:
        return json.loads(texts[name]) * x

    compiled = gc.compile(lambda name, x: inner(name, x), static=["name"])
    for name, kind in (("none", KeyError), ("bad", json.JSONDecodeError)):
        with pytest.raises(kind) as caught:
            getattr(compiled, call)(name, np.ones(3))
        shown = traceback.extract_tb(caught.value.__traceback__)
        names = [frame.name for frame in shown if "json" not in frame.filename]
        assert names[0] == "test_an_error_of_the_users_shows_the_users_lines"
        assert names[-2:] == ["<lambda>", "inner"] and set(names[1:-2]) <= {call, "_traced"}


def test_an_error_of_graphc_keeps_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say where it is wrong."""

    def wrong(*_: Any) -> None:
        raise AssertionError("wrong")

    wrong.__code__ = wrong.__code__.replace(co_filename=passes.__file__)
    monkeypatch.setattr("graphc.frontend.trace.trace.hint_unrolled", wrong)
    with pytest.raises(AssertionError, match="wrong") as caught:
        gc.compile(lambda x: x + 1)(np.ones(3))
    assert "trace_function" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]


def summed_rows(x: Any) -> Any:
    total = 0.0
    for row in x:  # needs its length as a number
        total = total + row
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiled", "calls", "said"),
    [
        (
            gc.compile(lambda x, n: x * n, static=["n"]),
            [(np.ones(3), n) for n in range(9)],
            "argument n: value 6 -> 7; a number that changes often .* static=",
        ),
        (
            gc.compile(lambda xs: sum(x.sum() for x in xs)),
            [([np.ones(3)] * n,) for n in range(1, 10)],
            "argument xs.7: new; arrays .* stacked",
        ),
        (
            gc.compile(summed_rows),
            [(np.ones((n, 3)),) for n in range(2, 11)],
            r"argument x: shape \(7, 3\) -> \(8, 3\).* padded",
        ),
    ],
    ids=["static", "length", "shape"],
)
def test_many_compilations_for_one_kind_of_calls_are_told_once(
    compiled: Any, calls: list[Any], said: str
) -> None:
    with pytest.warns(gc.GraphHint, match=f"was compiled 8 times, the last time for {said}") as all:
        list(itertools.starmap(compiled, calls))
    (hint,) = (w for w in all if w.category is gc.GraphHint)
    assert Path(hint.filename).name == Path(__file__).name


def test_calls_of_other_kinds_are_no_reason_for_a_hint() -> None:
    sizes = gc.compile(lambda x: x * 2, sizes="exact")
    served = gc.compile(lambda x: x * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gc.GraphHint)
        for n in range(9):
            sizes(np.ones(n + 2))
            served(np.ones(n + 2))
            served(np.ones((2,) * n))
    assert len(sizes.compiles) == 9


def test_errors_in_a_file_name_it(tmp_path: Path) -> None:
    path = tmp_path / "net.gir"
    for line in ("%1 = tanhh(%0) : f32[3]", "%1 = tanh(%0 : f32[3]"):
        path.write_text(f"graph @f(%0 x: f32[3]) {{\n  {line}\n  return %1\n}}\n")
        with pytest.raises(gc.ParseError, match=r"net.gir: line 2"):
            gc.load(path)


def test_what_a_region_captures_keeps_its_name() -> None:
    with pytest.raises(gc.GraphError) as caught:
        gc.compile(gc.grad(lambda w, batch: (batch @ w).sum()))(np.ones((3, 1)), np.ones((8, 4)))
    assert "batch: f64[8,4]" in str(caught.value)
    graph = gc.compile(lambda x, n: gc.fori(0, n, lambda i, s: s + x, x)).graph(np.ones(3), 4)
    assert "x: f64[3]" in gc.show(graph).split("@body", 1)[1]


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (lambda x, i: x[i], (np.arange(5.0), np.array([1, 7])), "index 7 .* axis 0 of extent 5"),
        (lambda x, i: x[:, i], (np.ones((2, 3)), -4), "index -4 .* axis 1 of extent 3"),
        (
            lambda x, i: np.take_along_axis(x, i, 1),
            (np.ones((2, 3)), np.array([[0], [9]])),
            "index 9 .* axis 1 of extent 3",
        ),
    ],
)
def test_index_and_extent_are_told(function: Any, arguments: Any, said: str) -> None:
    with pytest.raises(gc.GraphError, match=said) as caught:
        gc.compile(function)(*arguments)
    assert isinstance(caught.value, IndexError)
    assert caught.value.location is not None


def test_the_place_of_what_is_not_finite_is_told() -> None:
    def f(x: Any) -> Any:
        return np.log(x) * 2

    checked = gc.compile(f, check_finite=True)
    with pytest.raises(gc.RunError, match=r"non-finite value: -inf at \[1, 0\], the first of 2"):
        checked(np.array([[1.0, 2.0], [0.0, 0.0]]))
    with pytest.raises(gc.RunError, match=r"non-finite value: nan\n"):
        checked(np.float64(-1.0))


def test_numba_refusals_name_the_op_and_the_cause_first() -> None:
    @gc.custom_op("stray")
    def stray(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i] = undefined_thing(x[i])  # noqa: F821

    with pytest.raises(gc.GraphError) as caught:
        gc.compile(lambda x: stray(x) + 1)(np.ones(3))
    message = caught.value.message
    assert message.startswith("Numba refuses the custom op stray: NameError")
    assert "undefined_thing" in message
    assert caught.value.location is not None and caught.value.location[0] == __file__


def test_colours_of_numba_are_left_out() -> None:
    text = "\x1b[1mFailed in nopython mode\x1b[0m\n\x1b[1m\x1b[31mNameError: no x\x1b[0m\nFile y"
    made = refusal(text, "stray", test_colours_of_numba_are_left_out)
    assert made.message.endswith("test_colours_of_numba_are_left_out: NameError: no x")


def test_a_dtype_is_spelt_in_one_way(tmp_path: Path) -> None:
    gc.compile(np.tanh).save(tmp_path / "f.gir", gc.spec((3,), "f32"))
    loaded = gc.load(tmp_path / "f.gir")
    with pytest.raises(gc.FeedError, match=r"f64\[3\], the graph takes f32\[3\]"):
        loaded(np.ones(3))
    with pytest.raises(gc.FeedError, match="the graph takes an array"):
        loaded("a")
    with pytest.raises(gc.FeedError, match="no feed for parameter 'x'"):
        loaded(None)
