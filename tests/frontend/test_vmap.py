"""`gc.vmap`: with control flow, gradients, random keys and state; axes, nestings, collectives and
errors.  The reference interpreter runs a `vmap` node one slice after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc as gc
from graphc.config import Config
from graphc.errors import GraphError, TraceError
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline

RNG = np.random.default_rng(0)
X, S = RNG.normal(size=(6, 3)), RNG.normal(size=6)
STACK = RNG.normal(size=(6, 3, 3))
COUNTS = np.array([0, 3, 1, 2, 3, 0])
IMAGES, WINDOWS = RNG.normal(size=(6, 1, 2, 6, 6)), RNG.normal(size=(4, 2, 3, 3))


@gc.custom_grad
def clipped(x: Any) -> Any:
    return np.clip(x, -1, 1), lambda ct: 3 * ct


def power(x: Any) -> Any:
    return gc.while_loop(lambda t: t < 10, lambda t: t * t + 1.5, x)


def first_of(n: Any, row: Any) -> Any:
    """The sum of the first n elements: one step further would be out of range."""
    return gc.while_loop(lambda t: t[0] < n, lambda t: (t[0] + 1, t[1] + row[t[0]]), (0, 0.0))[1]


def root(x: Any) -> Any:
    return gc.cond(x > 0, np.sqrt, lambda x: 0.5 * x, x)


def running(row: Any) -> Any:
    return gc.scan(lambda c, v: (np.tanh(c * 0.5 + v), c * v), 0.0, row)


def updated(x: Any, i: Any) -> Any:
    x = x * 1
    x[i] = 9.0
    x[np.stack([i, i + 1])] += 3.0
    return x


def convnet(w: Any, image: Any, label: Any) -> Any:
    h = gc.max_pool(gc.relu(gc.conv(image, w, padding=1)), 2)
    return gc.cross_entropy(h.mean((2, 3)), label[None]).sum()


class Case(NamedTuple):
    function: Callable[..., Any]
    operands: tuple[Any, ...]
    in_axes: Any = 0


CASES = {
    "branch": Case(root, (S,)),
    "gradient of a branch": Case(gc.grad(root), (S,)),
    "branch that all take": Case(
        lambda x, p: gc.cond(p > 0, lambda x: x * 2, np.sin, x), (X, np.float64(1)), (0, None)
    ),
    "switch": Case(lambda i, x: gc.switch(i, [np.sin, np.cos, np.exp], x), (COUNTS, S)),
    "branch with an index": Case(
        lambda x, i: gc.cond(i < 3, lambda x, i: x[i], lambda x, i: 0.0, x, i), (X, COUNTS * 2)
    ),
    "while": Case(power, (S,)),
    "while in steps": Case(first_of, (COUNTS, X)),
    "gradient of while": Case(gc.grad(power), (S,)),
    "gradient of what while shares": Case(
        gc.value_and_grad(
            lambda w, n: gc.while_loop(
                lambda t: t[0] < n, lambda t: (t[0] + 1, np.tanh(t[1] * w)), (0, 1 + w)
            )[1].sum()
        ),
        (np.array([0.3, 0.4]), COUNTS),
        (None, 0),
    ),
    "fori": Case(lambda n, x: gc.fori(0, n, lambda i, t: t + i * x, x * 0), (COUNTS, X)),
    "scan": Case(running, (X,)),
    "gradient of scan": Case(gc.grad(lambda x: running(x)[1].sum()), (X,)),
    "scan over what is shared": Case(
        lambda x, b: gc.scan(lambda c, v: (c + v * b, c), b, x, reverse=True), (X[0], S), (None, 0)
    ),
    "checkpoint": Case(gc.grad(lambda x: gc.checkpoint(lambda x: np.sin(x).sum() ** 2)(x)), (X,)),
    "custom gradient": Case(gc.grad(lambda x: (clipped(x) * x).sum()), (X,)),
    "nested": Case(
        lambda x, y: gc.vmap(lambda u: gc.vmap(lambda v: u * v)(y))(x), (X, X[0]), (0, None)
    ),
    "factorisations": Case(
        lambda a, b: (np.linalg.solve(a, b), np.linalg.inv(a), np.linalg.det(a)),
        (STACK, X[0]),
        (0, None),
    ),
    "sorts": Case(lambda x: (np.sort(x), np.argsort(-x), np.median(x)), (X,)),
    "reads": Case(lambda x, i: (x[i], x[::-1], x[[2, 0]], x[x > 0].sum()), (X, COUNTS % 3)),
    "writes": Case(updated, (X, np.array([0, 1, -2, 1, 0, -3]))),
    "fft": Case(lambda x: np.fft.fft(x), (X + 1j,)),
    "booleans": Case(lambda x: (x > 0).any() & (x < 1).all(), (X,)),
    "images": Case(lambda x, w: gc.conv(x, w, padding=1), (IMAGES, WINDOWS), (0, None)),
    "windows": Case(
        lambda x, w: gc.conv(x, w, stride=2), (IMAGES[0], np.stack([WINDOWS] * 3)), (None, 0)
    ),
    "gradients of a convnet": Case(
        gc.grad(convnet), (WINDOWS, IMAGES, np.array([0, 1, 2, 3, 0, 1])), (None, 0, 0)
    ),
    "gradients of groups": Case(
        gc.grad(lambda w, x: (gc.conv(x, w, groups=2, stride=2) ** 2).sum(), wrt=(0, 1)),
        (WINDOWS[:, :1], IMAGES),
        (None, 0),
    ),
    "attention": Case(lambda q: gc.attention(q, q, q, causal=True), (STACK,)),
    "pullback": Case(lambda x, ct: gc.vjp(np.sin, x)[1](ct), (X, X)),
    "jacobian": Case(gc.jacobian(lambda x: np.sin(x) * x.sum()), (X,)),
    "hessian": Case(gc.hessian(lambda x: (np.sin(x) * x.sum()).sum()), (X,)),
    "jacobian of while": Case(gc.jacobian(power), (S,)),
    "gradient around": Case(
        gc.grad(lambda x, b: gc.vmap(lambda u: np.tanh(u * b).sum())(x).sum(), wrt=(0, 1)),
        (STACK, X[0]),
        (0, None),
    ),
    "gradient around a while": Case(gc.grad(lambda x: gc.vmap(power)(x).sum()), (X,)),
    "no slice": Case(lambda x: gc.cond(x.sum() > 0, np.sin, np.cos, x), (X[:0],)),
    "one slice": Case(power, (S[:1],)),
    "other axes": Case(lambda x, y: x @ y, (STACK, STACK[0]), (2, -1)),
}


@pytest.mark.parametrize("name", CASES)
def test_slices_equal_separate_calls(name: str) -> None:
    case = CASES[name]
    run = gc.compile(gc.vmap(case.function, in_axes=case.in_axes))
    made = run(*case.operands)
    wants = interpret(run.graph(*case.operands), case.operands)
    for got, want in zip(made if isinstance(made, tuple) else (made,), wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_a_branch_not_taken_has_no_part_in_gradients() -> None:
    """The square root of 0 has an infinite slope, which no select may multiply by zero."""

    def total(x: Any) -> Any:
        return gc.vmap(lambda v: gc.cond(v > 0, np.sqrt, lambda v: 0.0 * v, v))(x).sum()

    np.testing.assert_allclose(gc.grad(total)(np.array([0.0, 4.0, -1.0])), [0, 0.25, 0])


def test_per_example_gradients_of_an_mlp() -> None:
    params = {"w": RNG.normal(size=(3, 5)), "b": np.zeros(5), "v": RNG.normal(size=5)}

    def loss(params: Any, x: Any, y: Any) -> Any:
        return (np.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2

    made = gc.vmap(gc.grad(loss), in_axes=(None, 0, 0))(params, X, S)
    one = gc.compile(gc.grad(loss))
    rows = [one(params, x, y) for x, y in zip(X, S)]
    for name in params:
        np.testing.assert_allclose(made[name], np.stack([row[name] for row in rows]), rtol=1e-10)


def test_products_of_shared_weights_stay_one_product() -> None:
    made = gc.compile(gc.vmap(lambda x, w: np.tanh(x @ w), in_axes=(0, None)))
    stages = {stage.name: stage.value for stage in made.stages(X, STACK[0])}
    assert [node.op.name for node in stages["trace"].nodes] == ["vmap"]
    names = [node.op.name for node in stages["vmap"].nodes]
    assert names.count("matmul") == 1 and "scan" not in names


def test_gradients_and_lanes_are_expanded_in_turn() -> None:
    def total(x: Any) -> Any:
        return gc.vmap(gc.grad(lambda v: gc.vmap(np.sin)(v).sum()))(x).sum()

    run = gc.compile(gc.grad(total))
    np.testing.assert_allclose(run(X), -np.sin(X))
    names = [stage.name for stage in run.stages(X)]
    assert names[1:].index("vmap") < len(names) and names.count("gradient") > 1
    assert {"gradient", "vmap"} <= {stage.name for stage in pipeline.STAGES}


# ------------------------------------------------------------------------------------ arguments


def test_nestings_of_axes() -> None:
    def parts(p: Any, scale: float, *, kind: str = "k", shift: Any) -> Any:
        made = p["a"] * scale + shift if kind == "k" else None
        return {"sum": made.sum(), "both": (made, p["b"])}

    axes = ({"a": 1, "b": None}, None)
    run = gc.vmap(parts, in_axes=axes, out_axes={"sum": 0, "both": (-1, None)})
    made = run({"a": X.T, "b": S}, 2.0, shift=X)
    np.testing.assert_allclose(made["sum"], (X * 2 + X).sum(1))
    np.testing.assert_allclose(made["both"][0], (X * 2 + X).T)
    np.testing.assert_allclose(made["both"][1], S)


def test_arguments_that_nobody_gave_are_not_sliced() -> None:
    def one(x: Any, n: Any = 3, *, scale: Any = 2.0, kind: str = "k", other: Any = None) -> Any:
        return x.sum() * n * scale

    for made in (gc.vmap(one), gc.vmap(one, in_axes=(0,)), gc.compile(gc.vmap(one))):
        np.testing.assert_allclose(made(X), X.sum(1) * 6)
    np.testing.assert_allclose(gc.vmap(one, in_axes=np.int64(0))(X, scale=S), X.sum(1) * 3 * S)


def test_captured_arrays_variables_and_prints(capfd: pytest.CaptureFixture[str]) -> None:
    weight = gc.Variable(np.full(3, 2.0), name="vmap_weight_for_test")

    def one(x: Any) -> Any:
        gc.print("row {}", x)
        return x * weight.value + S[:3]

    made = gc.compile(lambda x: gc.vmap(one)(x))(X[:2])
    np.testing.assert_allclose(made, X[:2] * 2 + S[:3])
    assert capfd.readouterr().out.count("row [") == 2


def test_dtypes_and_sizes() -> None:
    def kinds(x: Any) -> Any:
        return x.astype("f2"), x.astype("u1"), x > 2, x + 1j

    for size in (0, 1, 5):
        x = np.arange(size * 3.0).reshape(size, 3)
        for made, want in zip(gc.vmap(kinds)(x), kinds(x)):
            assert made.dtype == want.dtype and made.shape == want.shape
            np.testing.assert_array_equal(made, want)
    np.testing.assert_array_equal(gc.vmap(lambda: S, axis_size=2)(), [S, S])


def test_the_number_of_slices_may_be_a_symbol(tmp_path: Path) -> None:
    each = gc.compile(gc.vmap(gc.grad(lambda w, x: (np.tanh(x @ w) ** 2).sum()), in_axes=(None, 0)))
    each.save(tmp_path / "each.gir", gc.spec((3, 2), "f64"), gc.spec(("n", 3), "f64"))
    loaded = gc.load(tmp_path / "each.gir")
    weights = STACK[0, :, :2]
    for count in (6, 0):
        np.testing.assert_allclose(loaded(weights, X[:count]), each(weights, X[:count]))


# ------------------------------------------------------------------------------------ all slices


def test_slices_are_combined() -> None:
    def one(x: Any) -> Any:
        return (
            gc.psum(x, "i"),
            gc.pmean(x, "i"),
            gc.pmax(x, "i"),
            gc.pmin(x, "i"),
            gc.all_gather(x, "i", axis=1),
            gc.axis_index("i"),
            gc.psum(x > 0, "i"),
            x / gc.psum({"all": x}, "i")["all"],
        )

    same = (None,) * 5 + (0, None, 0)
    made = gc.vmap(one, axis_name="i", out_axes=same)(X)
    sums = (X.sum(0), X.mean(0), X.max(0), X.min(0))
    wants = (*sums, X.T, np.arange(6), (X > 0).sum(0), X / X.sum(0))
    for got, want in zip(made, wants, strict=True):
        np.testing.assert_allclose(got, want)


def test_axes_of_nested_slices_have_names() -> None:
    def inner(v: Any) -> Any:
        return gc.psum(v, "i") + 10 * gc.psum(v, "j") + 100 * gc.axis_index("i")

    def outer(row: Any) -> Any:
        return gc.vmap(inner, axis_name="j")(row)

    want = X.sum(0) + 10 * X.sum(1, keepdims=True) + 100 * np.arange(6)[:, None]
    np.testing.assert_allclose(gc.vmap(outer, axis_name="i")(X), want)


def test_gradients_of_what_combines_slices() -> None:
    def weighted(x: Any) -> Any:
        every = gc.all_gather(x, "i")
        return (every * np.arange(6.0)[:, None]).sum() * gc.axis_index("i") + gc.psum(x, "i").sum()

    inside = gc.vmap(gc.grad(weighted), axis_name="i")(X)
    around = gc.grad(lambda x: gc.vmap(weighted, axis_name="i")(x).sum())(X)
    want = np.repeat(np.arange(6.0)[:, None] * 15 + 6, 3, 1)
    np.testing.assert_allclose(inside, want)
    np.testing.assert_allclose(around, want)


# ------------------------------------------------------------------------------------ errors


def assigning(x: Any) -> Any:
    gc.Variable(np.zeros(3), name="vmap_written_for_test").assign(x)
    return x


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "sizes": (lambda: gc.vmap(lambda a, b: a)(X, S[:2]), r"differ \(a: 6, b: 2\)"),
    "axis": (lambda: gc.vmap(lambda a: a, in_axes=2)(X), "no axis 2"),
    "number": (lambda: gc.vmap(lambda a: a)(3.0), "no axis 0"),
    "count": (lambda: gc.vmap(lambda a, b: a, in_axes=(0,))(X, X), "2 argument"),
    "nesting": (lambda: gc.vmap(lambda a: a, in_axes=({"b": 0},))({"a": X}), "in_axes has"),
    "bool": (lambda: gc.vmap(lambda a: a, in_axes=True)(X), "no axis|in_axes"),
    "nothing": (lambda: gc.vmap(lambda a: a, in_axes=None)(X), "no argument is sliced"),
    "result axis": (lambda: gc.vmap(lambda a: a, out_axes=3)(X), "out_axes says 3"),
    "result nesting": (lambda: gc.vmap(lambda a: a, out_axes=(0, 0))(X), "out_axes has"),
    "one result": (lambda: gc.vmap(lambda a: a, out_axes=None)(X), "slice to slice"),
    "assign": (lambda: gc.compile(lambda x: gc.vmap(assigning)(x))(X), "slice to slice"),
    "name": (lambda: gc.vmap(lambda a: gc.psum(a, "j"), axis_name="i")(X), "axis_name='j'"),
    "no name": (lambda: gc.psum(X, "i"), "no vmap"),
    "a name that is none": (lambda: gc.vmap(np.sin, axis_name=3), "axis_name is a name"),
    "no function": (lambda: gc.vmap(3), "takes a function"),
    "option": (lambda: gc.vmap(np.sin, out_axis=0), "out_axis"),  # type: ignore[call-arg]
    "sum in a branch": (
        lambda: gc.vmap(
            lambda v: gc.cond(v > 0, lambda v: gc.psum(v, "i"), lambda v: v, v), axis_name="i"
        )(S),
        "combined in a branch",
    ),
    "print in a branch": (
        lambda: gc.vmap(lambda v: gc.cond(v > 0, lambda v: (gc.print("x"), v)[1], np.sin, v))(S),
        "in a branch",
    ),
    "index": (lambda: gc.vmap(lambda row, i: row[i])(X, COUNTS + 1), "out of range"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(GraphError, match=message):
        call()


def test_errors_name_the_line() -> None:
    @gc.compile
    def sizes(x: Any, y: Any) -> Any:
        return gc.vmap(lambda a, b: a)(x, y)

    with pytest.raises(TraceError, match=r"test_vmap\.py:\d+"):
        sizes(X, S[:2])

    @gc.compile
    def shared(x: Any) -> Any:
        return gc.vmap(lambda a: a, out_axes=None)(x)

    with pytest.raises(GraphError, match=r"test_vmap\.py:\d+"):
        shared(X)


def test_what_combines_slices_is_refused_alone() -> None:
    text = 'graph @f(%0 x: f64[3]) {\n  %1 = axis_sum(%0) {axis_name="i", size=2} : f64[3]\n  '
    with pytest.raises(GraphError, match="no vmap with an axis named 'i'"):
        pipeline.run(gc.parse(f"gir 1\n{text}return %1\n}}\n"), Config.create())


def test_the_options_of_others_are_known() -> None:
    with pytest.raises(GraphError) as caught:
        gc.vmap(np.sin, axis=0)  # type: ignore[call-arg]
    assert "in_axes" in str(caught.value)
