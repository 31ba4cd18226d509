"""What looks right and is not: numbers that would lose their fraction, gradients in other nestings,
values where functions belong.  Each is either done as meant or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ir.types import dtype

X = np.linspace(0.5, 2, 4)
N = np.arange(3, dtype=np.int32)


# ---------------------------------------------------------------------------------------- numbers


def test_a_number_in_a_loop_keeps_its_fraction() -> None:
    @gc.compile
    def replaced(n: Any) -> Any:
        return gc.fori(0, n, lambda i, s: 1.5, 0)

    assert replaced(3) == 1.5
    with pytest.raises(gc.TraceError, match=r"f64\[\] but the body returns i32"):
        gc.compile(lambda n: gc.scan(lambda c, x: (x, c), 1.5, n))(N)


def test_a_number_in_a_branch_keeps_its_fraction() -> None:
    choose = gc.compile(lambda p, a: gc.cond(p, lambda: 1, lambda: a))
    assert choose(False, 2.5) == 2.5
    assert choose(True, 2.5) == 1.0
    for branches in [(1.5, np.int32(2)), (np.int32(2), 1.5)]:
        with pytest.raises(gc.GraphError, match="branch 0 returns"):
            gc.compile(lambda p, b=branches: gc.cond(p, lambda: b[0], lambda: b[1]))(True)


# ---------------------------------------------------------------------------------------- nestings


def product(p: Any, backward: Callable[[Any], Any]) -> Any:
    return gc.custom_grad(lambda p: (p["w"] * p["b"], backward))(p)


@pytest.mark.parametrize("whole", [lambda g: g, lambda g: (g,), lambda g: [g]])
def test_none_in_a_custom_gradient_stands_for_one_leaf(whole: Any) -> None:
    made = gc.grad(lambda p: product(p, lambda ct: whole({"w": 5 * ct, "b": None})))(
        {"w": 2.0, "b": 3.0}
    )
    assert made["w"] == 5 and made["b"] == 0


@pytest.mark.parametrize("wrong", [{"w": 1.0}, {"w": 1.0, "b": {"c": 1.0}}, 1.0, (1.0, 1.0)])
def test_a_custom_gradient_of_another_nesting_is_refused(wrong: Any) -> None:
    with pytest.raises(gc.TraceError, match=r"backward returns .* for an argument that is dict"):
        gc.grad(lambda p: product(p, lambda ct: wrong))({"w": 2.0, "b": 3.0})


def test_a_custom_gradient_takes_a_tuple_of_one() -> None:
    doubled = gc.custom_grad(lambda x: (x * 2, lambda ct: (7 * ct,)))
    assert gc.grad(doubled)(3.0) == 7
    inside = gc.custom_grad(lambda t: (t[0] * 2, lambda ct: (7 * ct,)))
    assert gc.grad(inside)((3.0,)) == (7,)


def test_wrt_names_an_argument_after_the_starred_ones() -> None:
    def function(x: Any, *rest: Any, y: Any) -> Any:
        return x * rest[0] * rest[1] * y

    assert gc.grad(function, wrt="y")(2.0, 3.0, 5.0, y=7.0) == 30
    assert gc.grad(function, wrt=2)(2.0, 3.0, 5.0, y=7.0) == 42


# ---------------------------------------------------------------------------------------- gradients


def test_gradients_by_one_value(tmp_path: Path) -> None:
    made = gc.compile(lambda x: gc.gradients((x * x).sum(), x))(X)
    np.testing.assert_allclose(made[0], 2 * X)
    graph = gc.compile(lambda long: {"loss": (long * long).sum()}).graph(X)
    gc.save(tmp_path / "m.gir", graph)
    for given in (graph, gc.load(tmp_path / "m.gir")):
        assert gc.gradients("loss", "long", graph=given).result_names == ("loss", "dloss/dlong")
    for wrong in (3, gc.compile(lambda x: x)):
        with pytest.raises(gc.GraphError, match="gradients takes a graph"):
            gc.gradients("loss", ["long"], graph=wrong)
    with pytest.raises(gc.FeedError, match="there is no node named 'w'"):
        gc.gradients("loss", ["w"], graph=graph)


def test_text_is_not_saved_under_the_name_of_compiled_code(tmp_path: Path) -> None:
    with pytest.raises(gc.GraphError, match=r"a \.gcx file is compiled"):
        gc.compile(lambda x: x + 1).save(tmp_path / "m.gcx", X)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------- loops


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: gc.while_loop(lambda s: s < 5, lambda s: s + 1, x), r"one bool.*bool\[4\]"),
        (lambda x: gc.while_loop(lambda s: s[0], lambda s: s + 1, x), r"one bool.*f64\[\]"),
        (lambda x: gc.cond(x[0] > 0, x, x), "cond chooses between functions, got Tracer"),
        (lambda x: gc.switch(1, [x, x]), "switch chooses between functions"),
        (lambda x: gc.map(lambda r: r, x[0]), "map walks over the first axis"),
        (lambda x: gc.map(lambda r: r, (x, x[1:])), "map: the lengths differ"),
        (lambda x: gc.map(lambda r: r, ()), r"map over nothing\n"),
    ],
)
def test_errors_of_control_flow_name_what_was_called(function: Any, message: str) -> None:
    with pytest.raises(gc.TraceError, match=message):
        gc.compile(function)(X)


# ---------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("limit", ["3MB", -1, True, 1e6])
def test_memory_limit_is_a_number_of_bytes(limit: Any) -> None:
    with pytest.raises(gc.GraphError, match="memory_limit must be a number of bytes"):
        gc.compile(lambda x: x, memory_limit=limit)


@pytest.mark.parametrize("option", ["donate", "static"])
def test_arguments_are_named_in_options(option: str) -> None:
    for wrong in (0, (0,), None):
        with pytest.raises(gc.GraphError, match=f"{option} takes names of arguments"):
            gc.compile(lambda x: x, **{option: wrong})


def test_an_optimizer_is_no_name() -> None:
    with pytest.raises(gc.GraphError, match="optimizer must have init and update, got 'sgd'"):
        gc.Model(gc.nn.Dense(3, 2), loss=gc.nn.mse, optimizer="sgd")


# ---------------------------------------------------------------------------------------- reports


def test_a_kernel_is_named_by_what_it_computes() -> None:
    guarded = gc.compile(gc.grad(lambda x: np.sqrt(x).sum()), check_finite=True)
    with pytest.raises(gc.RunError, match=r"fused\(.*\) : f64\[4\] of div"):
        guarded(0 * X)
    inside = gc.compile(
        lambda x: gc.scan(lambda c, r: (c + np.log(r), c), 0.0, x)[0], check_finite=True
    )
    with pytest.raises(gc.RunError, match=r"fused\(.*\) : f64\[\] of log"):
        inside(0 * X)


@pytest.mark.parametrize("kind", ["f64", "f16", "bf16"])
def test_constants_do_not_hide_what_is_not_finite(kind: str) -> None:
    zeros = np.zeros(3, dtype(kind).numpy)
    guarded = gc.compile(lambda x: gc.where(x > 0, x, gc.log(zeros)), check_finite=True)
    with pytest.raises(gc.RunError, match=r"-inf at \[0\]"):
        guarded(zeros + 1)


def test_gradients_by_variables() -> None:
    with gc.container("test_gradients_by_variables"):
        v = gc.Variable(X, name="v")
    made = gc.compile(lambda: gc.gradients((v * v).sum(), v))()
    np.testing.assert_allclose(made[0], 2 * X)
    gc.reset_container("test_gradients_by_variables")


# ---------------------------------------------------------------------------------------- counts


def test_counts_are_integers_traced_or_not() -> None:
    def run(call: Any) -> None:
        call()

    for wrap in (gc.compile, lambda f: f):
        with pytest.raises(gc.TraceError, match=r"bounds of fori must be integers, got 2\.7"):
            run(wrap(lambda: gc.fori(0, 2.7, lambda i, s: s + 1, 0)))
        with pytest.raises(gc.TraceError, match=r"index of switch must be one integer, got 1\.7"):
            run(wrap(lambda: gc.switch(1.7, [lambda: 1.0, lambda: 2.0])))
        with pytest.raises(gc.TraceError, match=r"length of scan must be an integer, got 2\.5"):
            run(wrap(lambda: gc.scan(lambda c, x: (c, x), 0.0, length=2.5)))
    with pytest.raises(gc.TraceError, match="length of scan must be known when tracing"):
        gc.compile(lambda n: gc.scan(lambda c, x: (c, x), 0.0, length=n))(3)


def test_a_variable_counts_with_its_value_of_the_run() -> None:
    with gc.container("test_a_variable_counts"):
        n = gc.Variable(np.int64(2), name="n")
    total = gc.compile(lambda: gc.fori(0, n, lambda i, s: s + i, 0))
    chosen = gc.compile(lambda: gc.switch(n, [lambda: 1.0, lambda: 2.0, lambda: 3.0]))
    for value in (2, 0):
        n.assign(value)
        assert total() == sum(range(value)) and chosen() == value + 1
    gc.reset_container("test_a_variable_counts")


def test_a_long_loop_needs_no_memory_for_its_counter() -> None:
    count, total = 100_000, sum(range(3, 100_000))

    def function(x: Any) -> Any:
        return gc.fori(3, count, lambda i, s: s + x * i, 0.0)

    value, slope = gc.value_and_grad(function)(2.0)
    assert value == 2 * total and slope == total
    assert gc.compile(function).executable(2.0).image.arena_bytes < 8 * count


# ---------------------------------------------------------------------------------------- matrices


def test_second_derivatives_by_several_arguments() -> None:
    def function(x: Any, y: Any, n: Any = 2) -> Any:
        return (x * x * y).sum() * n

    y = np.arange(4.0)
    (xx, xy), (yx, yy) = gc.hessian(function, wrt=(0, "y"))(X, y)
    np.testing.assert_allclose(xx, np.diag(4 * y))
    np.testing.assert_allclose(xy, np.diag(4 * X))
    np.testing.assert_allclose(yx, np.diag(4 * X))
    np.testing.assert_allclose(yy, np.zeros((4, 4)))
    for wrt, call in [("y", {"y": y}), (-1, {}), (1, {})]:
        args = (X,) if call else (X, y)
        np.testing.assert_allclose(gc.jacobian(function, wrt=wrt)(*args, **call), 2 * X * X)
    with pytest.raises(gc.TraceError, match=r"n is i64.*which has no gradient"):
        gc.jacobian(function, wrt=2)(X, y, 2)
    with pytest.raises(gc.TraceError, match="wrt names 'z'"):
        gc.jacobian(function, wrt="z")(X, y)


def test_an_argument_without_arrays_has_no_gradient() -> None:
    def loss(mode: Any, w: Any) -> Any:
        return (w * w).sum()

    for transform in (gc.grad, gc.value_and_grad, gc.jacobian):
        with pytest.raises(gc.TraceError, match="argument mode is 'train', which has no gradient"):
            transform(loss)("train", X)
        with pytest.raises(gc.TraceError, match=r"mode\.kind is 'train'"):
            transform(loss, wrt=(1, 0))({"kind": "train"}, X)
    assert gc.grad(loss)(None, X) is None and gc.grad(loss)({}, X) == {}
    mixed = gc.grad(lambda params: loss("", params["w"]))({"w": X, "kind": "sgd"})
    assert mixed["kind"] is None
    np.testing.assert_allclose(mixed["w"], 2 * X)


# ---------------------------------------------------------------------------------------- text


def test_slices_and_ranges_are_arguments_by_value() -> None:
    x = np.arange(5.0)
    taken = gc.compile(lambda x, part: x[part].sum() if isinstance(part, slice) else x[list(part)])
    for part in (slice(0, 2), slice(1, 3), slice(0, 2), slice(None, None, -1)):
        assert taken(x, part) == x[part].sum()
    assert len(taken.compiles) == 3
    assert taken(x, range(2)).tolist() == [0, 1]
    assert taken(x, range(1, 3)).tolist() == [1, 2]
    made = gc.grad(lambda x, part, which: x[part].sum() + sum(x[k] for k in which))
    assert made(x, slice(0, 2), range(3)).tolist() == [2, 2, 1, 0, 0]
    assert gc.checkpoint(lambda x, part: x[part] * 2)(x, slice(3, 5)).tolist() == [6, 8]
    with pytest.raises(gc.FeedError, match=r"static=\["):
        taken(x, slice(x[0], None))


@pytest.mark.parametrize(
    ("operand", "message"),
    [
        (None, "an operand is None"),
        ({"a": 1}, "an operand is of type dict"),
        ("abc", "an operand is of type str"),
        ([1.0, None], "of type list that holds what is no number"),
        ([[1.0, 2.0], [3.0]], "inhomogeneous"),
    ],
)
def test_what_is_no_array_is_no_operand(operand: Any, message: str) -> None:
    for function in (
        lambda x: x @ operand,
        lambda x: np.maximum(x, operand),
        lambda x: gc.relu(operand) * x,
        lambda x: gc.concatenate([x, operand]),
    ):
        with pytest.raises(gc.GraphError, match=message) as caught:
            gc.compile(function)(np.ones((2, 2)))
        assert isinstance(caught.value, TypeError | ValueError)
        assert "test_misuse.py" in str(caught.value)


def test_lists_of_traced_values_are_operands_of_products() -> None:
    x = np.arange(4.0).reshape(2, 2)
    np.testing.assert_array_equal(gc.compile(lambda x: x @ [x[0], x[1]])(x), x @ x)
    with pytest.raises(gc.GraphError, match="items of one shape"):
        gc.compile(lambda x: x @ (x[0], x))(x)


def test_tensors_of_others_are_arguments_or_say_why_not(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    double = gc.compile(lambda x: x * 2)
    double.save(tmp_path / "m.gir", gc.spec((3,), "f32"))
    for function in (double, gc.load(tmp_path / "m.gir")):
        np.testing.assert_array_equal(function(torch.ones(3)), np.full(3, 2, np.float32))
        with pytest.raises(gc.FeedError, match=r"torch.Tensor gives no NumPy array: .*detach"):
            function(torch.ones(3, requires_grad=True))
    assert double(torch.ones(3).bfloat16()).dtype == "bfloat16"


def test_parameter_names_repeat_in_regions_only() -> None:
    graph = gc.compile(lambda x, y: gc.scan(lambda c, r: (c + r, c), x[0], y)[0]).graph(X, X)
    text = gc.show(graph)
    (region,) = next(n.regions for n in graph.nodes if n.regions)
    names = [p.attrs["name"] for p in region.params]
    again = text.replace(f" {names[1]}: f64[]", f" {names[0]}: f64[]")
    for given in (again, again.replace(" = ", "=")):  # as it is printed, and otherwise
        assert gc.show(gc.parse(given)) == again != text
    for given in (text.replace("%1 y", "%1 x"), text.replace("%1 y", "%1  x")):
        with pytest.raises(gc.ParseError, match="parameter name stands twice"):
            gc.parse(given)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *(("u1", number) for number in (300, -1, 300.7, True)),
        *(("i8", number) for number in (1e20, 2**70, float("inf"), -3.7)),
        *(("i4", number) for number in (float("nan"), 300.7)),
        ("f4", 1e30),
    ],
)
def test_a_number_is_stored_as_numpy_stores_it(dtype: str, number: Any) -> None:
    def at_once(x: Any) -> Any:
        y = x * x.dtype.type(1)
        y[0] = number
        return y

    x = np.arange(3).astype(dtype)
    refused: type[Exception] | None = None
    try:
        wanted = at_once(x)
    except (OverflowError, ValueError) as error:
        refused = type(error)
    if refused is None:
        np.testing.assert_array_equal(gc.compile(at_once)(x), wanted)
        return
    with pytest.raises(refused) as caught:
        gc.compile(at_once)(x)
    assert isinstance(caught.value, gc.GraphError)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: np.add(x, 1.5, casting="no"), TypeError),
        (lambda x: np.multiply(x, 2j, casting="equiv"), TypeError),
        (lambda x: np.sort(x, order="a"), ValueError),
        (lambda x: np.argsort(x, kind="nonsense"), ValueError),
        (lambda x: np.pad(x, 1, mode="edge", constant_values=3), ValueError),
        (lambda x: np.pad(x, 1, mode="constant", end_values=3), ValueError),
        (lambda x: np.digitize(x, [3, 1, 2]), ValueError),
        (lambda x: gc.random.key(x * 1.5), None),
        (lambda x: gc.random.key(1.5), None),
    ],
)
def test_options_are_not_ignored(call: Any, kind: Any) -> None:
    x = np.arange(3)
    if kind is not None:
        with pytest.raises(kind):
            call(x)
    with pytest.raises(gc.GraphError):
        gc.compile(call)(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: np.sum(x, axs=0),
            "np.sum of traced arrays got .*'axs'\n.*\n.*did you mean axis",
        ),
        (lambda x: x.sum(dim=0), "graphc's word for it is axis"),
        (
            lambda x: gc.softmax(x, dim=0),
            "gc.softmax: got .*'dim'\n.*\n.*graphc's word for it is axis",
        ),
        (lambda x: np.linalg.norm(x, p=2), r"it takes np.linalg.norm\(x, ord=None"),
    ],
)
def test_keywords_of_functions_of_arrays(call: Any, message: str) -> None:
    with pytest.raises(gc.GraphError, match=message) as caught:
        gc.compile(call)(np.arange(3.0))
    assert isinstance(caught.value, TypeError)


# ---------------------------------------------------------------------------------------- messages


def refused(function: Callable[[Any], Any]) -> gc.GraphError:
    with pytest.raises(gc.GraphError) as caught:
        gc.compile(function)(np.ones((3, 4)))
    return caught.value


def test_a_python_while_is_told_of_the_loop_for_values() -> None:
    def halved(x: Any) -> Any:
        while x.sum() > 1:
            x = x / 2
        return x

    assert "gc.while_loop" in (refused(halved).hint or "")


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex64, bool, np.float16])
@pytest.mark.parametrize("index", [slice(None), 0, (0,), slice(1, 2), [1]])
def test_a_value_for_an_array_from_outside(dtype: Any, index: Any) -> None:
    outside, places = np.zeros(4, dtype), (0, (0,))

    def written(x: Any) -> Any:
        outside[index] = x[0, 0] if index in places else x[0, :1]
        return x

    error = refused(written)
    assert "assignment to an array from outside" in str(error)
    assert "made inside the function" in (error.hint or "")
    assert error.location is not None and error.location[0].endswith("test_misuse.py")
    assert not outside.any()


def test_an_error_of_the_users_with_one_of_ours_behind_it_stays_theirs() -> None:
    def mine(x: Any) -> Any:
        try:
            return x if x.sum() else -x
        except gc.GraphError as error:
            raise ValueError("mine") from error

    with pytest.raises(ValueError, match=r"^mine$"):
        gc.compile(mine)(X)


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (lambda x: x @ np.ones(3), ("f64[3, 4] has 4 columns", "f64[3] has 3 elements")),
        (lambda x: np.ones(2) @ x, ("f64[2] has 2 elements", "f64[3, 4] has 3 rows")),
        (lambda x: x[0] @ np.ones(5), ("f64[4] has 4 elements", "f64[5] has 5 elements")),
        (lambda x: np.dot(x[None], np.ones(3)), ("f64[1, 3, 4] has 4", "f64[3] has 3 elements")),
    ],
)
def test_products_by_vectors_speak_of_vectors(function: Any, texts: tuple[str, ...]) -> None:
    error = refused(function)
    assert all(text in str(error) for text in texts), error
    assert isinstance(error, ValueError)  # as NumPy's is


def test_operators_with_known_arrays_raise_as_numpy_does() -> None:
    for function in (lambda x: x + np.ones(3), lambda x: np.ones(3) - x, lambda x: x @ np.eye(3)):
        assert isinstance(refused(function), ValueError)


@pytest.mark.parametrize(
    ("function", "modes"),
    [
        (lambda x: gc.fftconvolve(x, x, mode="smae"), "full, same or valid"),
        (lambda x: np.convolve(x[0], x[1], mode="smae"), "full, same or valid"),
        (lambda x: gc.interpolate(x, (3,), mode="liner"), "nearest, linear or cubic"),
    ],
)
def test_modes_that_do_not_exist(function: Any, modes: str) -> None:
    assert modes in (refused(function).hint or "")
