"""gc.vmap on devices: the values of the same function without them, whatever combines slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import graphc as gc
from graphc.errors import GraphError, TraceError
from graphc.ops.reference.interpreter import interpret

DEVICES = ["cpu:0", "cpu:1", "cpu:2"]
X = np.random.default_rng(0).standard_normal((3, 5, 4))
W = np.random.default_rng(1).standard_normal((4, 4))


def _walked(carry: Any, row: Any) -> Any:
    """A carry that is the same on all devices, one that is not, and what is stacked."""
    total, h = carry
    total = total * 0.5 + gc.psum(h, "d")
    return (total, np.cos(h) + row), gc.pmean(row, "d") * row


def _is_large(h: Any) -> Any:
    return np.abs(gc.pmean(h, "d")).max() > 0.1


def _centred(x: Any) -> Any:
    return np.sin(x) * (x - gc.pmean(x, "d"))


def _walk(x: Any) -> Any:
    return gc.fori(0, 2, lambda k, h: np.tanh(h * gc.pmean(h, "d")), x).sum()


_compiled = gc.compile(lambda x: x * gc.psum(np.cos(x), "d"))

STEPS: dict[str, Any] = {
    "psum": lambda x: gc.psum(x, "d") + x,
    "pmean": lambda x: x - gc.pmean(x, "d"),
    "pmax": lambda x: np.where(x >= gc.pmax(x, "d"), x, 0.0),
    "pmin": lambda x: x * gc.pmin(np.tanh(x), "d"),
    "gather": lambda x: gc.all_gather(x, "d", axis=1).sum(axis=1) * 0.5,
    "index": lambda x: x + gc.axis_index("d"),
    "alone": np.sin,
    "shared": lambda x: x @ gc.psum(W, "d") * 0.1,
    "counted": lambda x: x * gc.psum(x.sum(axis=1) > 0, "d").sum(),
    "loop": lambda x: gc.fori(0, 3, lambda k, h: np.cos(h) + k, x),
    "summed loop": lambda x: gc.fori(0, 3, lambda k, h: np.tanh(x - gc.pmean(h, "d")) + k, x),
    "shared carry": lambda x: x - gc.scan(_walked, (np.zeros((5, 4)), x), x)[0][0],
    "until": lambda x: gc.while_loop(_is_large, lambda h: h - gc.pmean(h, "d") * 0.5, x),
    "branch": lambda x: gc.cond(
        gc.psum(x.sum(), "d") > 0, lambda h: gc.psum(h, "d") - h, lambda h: h * gc.pmax(h, "d"), x
    ),
    "marked": lambda x: gc.grad(lambda x: gc.checkpoint(_centred)(x).sum())(x),
    "loop's gradient": lambda x: gc.grad(_walk)(x),
    "called": lambda x: _compiled(x),
    "inner": lambda x: gc.vmap(lambda row: row - gc.pmean(row, "rows"), axis_name="rows")(x),
    "gradient": lambda x: gc.grad(lambda x: ((x - gc.pmean(x, "d")) ** 2).sum())(x),
}


@pytest.mark.slow
@settings(max_examples=8)
@given(some.lists(some.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
def test_slices_on_devices_have_the_values_of_all_together(names: list[str]) -> None:
    def f(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x, gc.pmean(x, "d")

    options: Any = {"axis_name": "d", "out_axes": (0, None)}
    wanted = gc.vmap(f, **options)(X)
    found = gc.compile(gc.vmap(f, devices=DEVICES, **options), devices=DEVICES)(X)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_training_step_sends_sums_alone() -> None:
    """Each device has its rows and gradients; one message to it for each of them and the weights,
    and none for what all have in common."""

    def step(w: Any, x: Any) -> Any:
        value, slope = gc.value_and_grad(lambda w: (np.tanh(x @ w) ** 2).mean())(w)
        slope = gc.pmean(slope, "d")
        return w - 0.1 * slope, gc.pmean(value, "d")

    names = DEVICES[:2]
    options: Any = {"in_axes": (None, 0), "out_axes": None, "axis_name": "d"}
    run = gc.compile(gc.vmap(step, devices=names, **options), devices=names)
    wanted = gc.vmap(step, **options)(W, X[:2])
    for a, b in zip(run(W, X[:2]), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    stages = {name: value for name, value, *_ in run.stages(W, X[:2])}
    assert gc.show(stages["partition"]).count(" send(") == 3  # to: w and x; back: one bucket


def test_it_is_differentiated_mapped_and_looped_over() -> None:
    def each(x: Any) -> Any:
        return np.tanh(x) * gc.psum(x, "d")

    far = gc.vmap(each, axis_name="d", devices=DEVICES)
    near = gc.vmap(each, axis_name="d")
    pairs: list[Any] = [
        lambda f: lambda x: gc.grad(lambda x: (f(x) ** 2).sum())(x),
        lambda f: lambda x: gc.vmap(f, in_axes=1)(x),
        lambda f: lambda x: gc.fori(0, 3, lambda k, h: f(h) * 0.1, x),
        lambda f: lambda x: gc.jvp(f, (x,), (np.ones_like(x),)),
    ]
    for made in pairs:
        found = gc.compile(made(far), devices=DEVICES)(X)
        np.testing.assert_allclose(found, gc.compile(made(near))(X), rtol=1e-9)


def test_what_is_printed_comes_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    def told(x: Any) -> Any:
        gc.print("x is {}", x)
        gc.print("twice {}", 2 * x)
        return x

    run = gc.compile(gc.vmap(told, devices=DEVICES), devices=DEVICES)
    np.testing.assert_array_equal(run(np.arange(3)), np.arange(3))
    lines = capsys.readouterr().out.split("\n")
    assert lines[:-1] == [f"x is {k}" for k in range(3)] + [f"twice {2 * k}" for k in range(3)]


def test_text_and_the_reference_know_the_devices() -> None:
    text = gc.show(gc.compile(gc.vmap(np.sin, devices=DEVICES), devices=DEVICES).graph(X))
    assert 'devices=["cpu:0","cpu:1","cpu:2"]' in text
    assert gc.show(gc.parse(text)) == text
    (found,) = interpret(gc.parse(text), [X])
    np.testing.assert_array_equal(found, np.sin(X))


def test_wrong_arguments() -> None:
    for devices in ("cpu:0", [], 3, [3]):
        with pytest.raises(GraphError):
            gc.vmap(np.sin, devices=devices)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="devices: 2, x: 3"):
        gc.vmap(np.sin, devices=["cpu:0", "cpu:1"])(X)
    shared = gc.vmap(np.sin, out_axes=None, devices=DEVICES)
    with pytest.raises(GraphError, match="differs from slice to slice"):
        gc.compile(shared, devices=DEVICES)(X)

    ways: dict[str, Any] = {
        "leave at different times": lambda x: gc.while_loop(
            lambda h: h.sum() > 0, lambda h: h - gc.pmax(h, "d"), x
        ),
        "take differently": lambda x: gc.cond(x.sum() > 0, lambda: gc.psum(x, "d"), lambda: x),
    }
    for message, way in ways.items():
        with pytest.raises(GraphError, match=message):
            gc.compile(gc.vmap(way, axis_name="d", devices=DEVICES), devices=DEVICES)(X)
    with pytest.raises(TraceError, match="the sizes of the sliced axes differ"):
        gc.vmap(np.add, devices=DEVICES)(X, X[:2])
