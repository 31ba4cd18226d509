"""Loaded graphs are called with the nestings that their functions took, and with single leaves."""

from __future__ import annotations

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
