"""Loaded graphs are called with the nestings that their functions took, and with single leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc as gc
from graphc.cli.commands import main


class Pair(NamedTuple):
    left: Any
    right: Any


def nested(x: Any, params: Any, pairs: Any) -> Any:
    return x * params["w"] + params["more"][0] - params["more"][1] * pairs.left / pairs.right


ARGUMENTS: tuple[Any, ...] = (
    np.arange(3.0),
    {"w": np.full(3, 2.0), "more": [np.full(3, 5.0), np.full(3, 7.0)]},
    Pair(np.arange(1.0, 4), np.full(3, 4.0)),
)


@pytest.fixture(scope="module", params=["gir", "gcx"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("nested") / "nested.gir"
    gc.compile(nested).save(path, *ARGUMENTS)
    if request.param == "gcx":
        main(["compile", str(path), "-o", str(path.with_suffix(".gcx"))])
        path = path.with_suffix(".gcx")
    return gc.load(path)


def test_nestings_are_given_as_to_the_function(loaded: Any) -> None:
    x, params, pairs = ARGUMENTS
    wanted = nested(*ARGUMENTS)
    flat = (x, params["w"], *params["more"], *pairs)
    by_name = dict(zip(("x", "params.w", "params.more.0", "params.more.1"), flat))
    for _ in range(2):  # calls like the latest one take another way
        for made in (
            loaded(x, params, pairs),
            loaded(x, params, tuple.__new__(Pair, pairs)),
            loaded(x, pairs=pairs, params=params),
            loaded(pairs=pairs, params=dict(reversed(params.items())), x=x),
            loaded(**by_name, pairs=pairs),
            loaded(x, **{"params.w": flat[1], "params.more": params["more"], "pairs": pairs}),
        ):
            np.testing.assert_array_equal(made, wanted)


def test_leaves_are_given_one_by_one_as_ever(loaded: Any) -> None:
    x, params, pairs = ARGUMENTS
    values = {"x": x, "params.w": params["w"], "pairs.left": pairs[0], "pairs.right": pairs[1]}
    values |= {f"params.more.{k}": leaf for k, leaf in enumerate(params["more"])}
    ordered = [values[name] for name in loaded.params]
    for made in (loaded(*ordered), loaded(**values)):
        np.testing.assert_array_equal(made, nested(*ARGUMENTS))


def test_what_does_not_fit_a_nesting_is_named(loaded: Any) -> None:
    x, params, pairs = ARGUMENTS
    more = params["more"]
    endless: list[Any] = []
    endless.append(endless)
    for call, text in (
        (lambda: loaded(x, {"w": x}, pairs), "no feed for parameter 'params.more.0'"),
        (lambda: loaded(x, {"w": x, "more": more, "v": x}, pairs), "no parameter 'params.v'"),
        (lambda: loaded(x, {"w": {"w": x}, "more": more}, pairs), "params.w"),
        (lambda: loaded(x, params=x, pairs=pairs), "its leaves are params."),
        (
            lambda: loaded(x, params, pairs, **{"params.w": x}),
            "'params.w' of nested is given twice",
        ),
        (lambda: loaded(x, endless, pairs), "no parameter 'params.0'"),
        (lambda: loaded(x, params, pairs, x), "takes 3 arguments, or 6 arrays, got 4"),
    ):
        with pytest.raises(gc.FeedError) as caught:
            call()
        assert text in str(caught.value), caught.value


def with_nones(first: Any, params: Any, mask: Any, x: Any, training: bool = True) -> Any:
    assert first is None and mask is None and params[1] is None
    made = x @ params[0]["w"] + params[2]["b"]
    return made if training else made * 2


def saved(form: str, folder: Path, function: Any, *arguments: Any, **named: Any) -> Any:
    path = folder / "saved.gir"
    gc.compile(function, static=[*named]).save(path, *arguments, **named)
    if form == "gcx":
        main(["compile", str(path), "-o", str(path.with_suffix(".gcx"))])
    return gc.load(path.with_suffix(f".{form}"))


@pytest.mark.parametrize("form", ["gir", "gcx"])
def test_none_is_no_argument_here_as_it_was_none_to_the_function(form: str, tmp_path: Path) -> None:
    params = [{"w": np.ones((3, 2)), "skip": None}, None, {"b": np.arange(2.0)}]
    x = np.arange(6.0).reshape(2, 3)
    loaded = saved(form, tmp_path, with_nones, None, params, None, x, training=True)
    wanted = with_nones(None, params, None, x)
    leaves = {"params.0.w": params[0]["w"], "params.2.b": params[2]["b"], "x": x}
    for _ in range(2):
        for made in (
            loaded(None, params, None, x),
            loaded(params, x),
            loaded(params, x=x, mask=None),
            loaded(first=None, params=params, mask=None, x=x),
            loaded(*leaves.values()),
            loaded(*leaves.values(), mask=None),
            loaded(**leaves),
        ):
            np.testing.assert_array_equal(made, wanted)
    with pytest.raises(gc.FeedError, match="no feed for parameter 'x'"):
        loaded(None, params, None, None)


@pytest.mark.parametrize("form", ["gir", "gcx"])
def test_a_list_with_as_many_entries_as_there_are_parameters(form: str, tmp_path: Path) -> None:
    """[w, None] is no array, though the file has two parameters and the call two values."""
    w, x = np.full(3, 2.0), np.arange(3.0)
    loaded = saved(form, tmp_path, lambda p, x: p[0] * x, [w, None], x)
    np.testing.assert_array_equal(loaded([w, None], x), w * x)
    np.testing.assert_array_equal(loaded(w, x), w * x)
    one = saved(form, tmp_path, lambda p, x: p[0] * x, [w], x)
    np.testing.assert_array_equal(one([w], x), w * x)
    if form == "gcx":
        np.testing.assert_array_equal(one([2.0, 2.0, 2.0], x), w * x)


def test_a_training_step_of_layers_is_called_as_it_was(tmp_path: Path) -> None:
    net = gc.nn.Sequential(gc.nn.Dense(3, 4), gc.nn.relu, gc.nn.Dense(4, 2))
    params = net.init(gc.random.key(0))
    x = np.ones((2, 3), np.float32)

    def step(params: Any, x: Any) -> Any:
        return gc.value_and_grad(lambda p: (net(p, x) ** 2).mean())(params)

    loaded = saved("gir", tmp_path, step, params, x)
    loss, slopes = gc.compile(step)(params, x)
    assert params[1] is None and slopes[1] is None
    made = loaded(params, x)
    assert [*made] == ["0", "1.0.bias", "1.0.weight", "1.2.bias", "1.2.weight"]
    np.testing.assert_array_equal(made["0"], loss)
    np.testing.assert_array_equal(made["1.2.weight"], slopes[2]["weight"])


@pytest.mark.parametrize("form", ["gir", "gcx"])
def test_an_argument_that_was_fixed_is_told_as_such(form: str, tmp_path: Path) -> None:
    params = [{"w": np.ones((3, 2))}, None, {"b": np.arange(2.0)}]
    x = np.arange(6.0).reshape(2, 3)
    loaded = saved(form, tmp_path, with_nones, None, params, None, x, training=False)
    for call in (
        lambda: loaded(None, params, None, x, training=False),
        lambda: loaded(None, params, None, x, False),
        lambda: loaded(params, x, mode="train"),
        lambda: loaded(params[0]["w"], params[2]["b"], x, False),
    ):
        with pytest.raises(gc.FeedError) as caught:
            call()
        assert "fixed when the graph was saved" in str(caught.value), caught.value
    with pytest.raises(gc.FeedError) as caught:
        loaded(params, x, y=x)
    assert "fixed" not in str(caught.value)
