"""The frontend: what a model function may do while it is traced, and what the graph then computes.

Functions written in NumPy's in-place style are compared with NumPy itself, the graph being
evaluated by the reference interpreter.
"""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np
import pytest

import graphc as gc
from graphc.errors import FeedError, GraphError, TraceError
from graphc.ops.reference.interpreter import interpret

X = np.arange(12.0).reshape(3, 4)
OUTSIDE = np.zeros((3, 4))


def traced(function, *args):
    """The results of the traced graph, evaluated by the interpreter, nested as the function's."""
    compiled = gc.compile(function)
    graph = compiled.graph(*args)
    results = interpret(graph, [np.asarray(a) for a in args])
    return results[0] if len(results) == 1 else tuple(results)


def same(function, *args):
    """The traced function computes what NumPy computes."""
    copies = [np.array(a) for a in args]
    expected = function(*copies)
    given = traced(function, *args)
    pairs = zip(given, expected) if isinstance(expected, tuple | list) else [(given, expected)]
    for mine, wanted in pairs:
        assert mine.dtype == np.asarray(wanted).dtype
        np.testing.assert_allclose(mine, wanted, rtol=1e-12)


# ------------------------------------------------------------------------------------ in place


def add_in_place(x):
    x = x * 1
    x += 2
    return x


def write_elements(x):
    x = x * 1
    x[1, 2] = 7
    x[0] = x[2] * 2
    x[:, ::2] = -1
    return x


def write_through_views(x):
    x = x * 1
    row = x[1]
    row[:2] = 5
    part = x[:, 1:3]
    part += 100
    part[0] = 3
    return x, row, part


def base_write_reaches_views(x):
    x = x * 1
    row, turned = x[1], x.T
    x[1] = 0
    x += 1
    return row, turned, row * 2


def write_through_transpose(x):
    x = x * 1
    x.T[0] = 9
    x.swapaxes(0, 1)[1] = 8
    np.transpose(x)[2, 1] = 7
    return x


def write_through_reshape(x):
    x = x * 1
    x.reshape(-1)[5] = 50
    flat = x.ravel()
    flat[:3] = 1
    x.reshape(4, 3).T[0] = 2
    return x, flat


def reshape_of_transpose_is_a_copy(x):
    x = x * 1
    flat = x.T.reshape(-1)
    flat[0] = 77
    return x, flat


def write_through_reversed(x):
    x = x * 1
    np.flip(x, 0)[0] = 4
    x[::-1][0, 0] = 6
    x[:, ::-1] += np.arange(4.0)
    return x


def write_through_split(x):
    x = x * 1
    left, right = np.split(x, 2, axis=1)
    left += 10
    right[0] = left[1]
    return x, left, right


def augmented_element(x):
    x = x * 1
    x[0] += 1
    x[0, 1] *= 5
    x[np.array([0, 2])] -= 3
    x[..., 0] /= 2
    return x


def scalars_are_not_views(x):
    x = x * 1
    first = x[0, 0]
    first += 5
    total = x.sum()
    total += 1
    return x, first, total


def copies_are_apart(x):
    x = x * 1
    y, z, w = x.copy(), +x, x.astype(x.dtype)
    x[0] = 0
    return x, y, z, w


def out_arguments(x):
    x = x * 1
    y = np.zeros_like(x)
    np.add(x, 1, out=y)
    np.multiply(y, 2, out=x)
    np.sin(x, out=y[...])
    return x, y


def where_argument(x):
    y = np.ones_like(x)
    np.add(x, 10, out=y, where=x > 5)
    return y


def masked_write(x):
    x = x * 1
    x[x > 4] = 0
    return x


def fill_and_sort(x):
    x = x * -1
    x.sort(axis=0)
    y = x.copy()
    y.fill(3)
    return x, y


def integers_stay_integers(x):
    i = x.astype(np.int32)
    i += 1
    i[0] = 2.9
    return i


def writing_functions(x):
    x = x * 1
    x.put([0, 5], [7.0])
    np.put(x[1], [0], 3)
    np.putmask(x, x > 9, -1)
    np.fill_diagonal(x[:, 1:], 8)
    np.put_along_axis(x, np.array([[0], [1], [2]]), 6.0, axis=1)
    return x


def copyto(x):
    x = x * 1
    np.copyto(x, 5)
    np.copyto(x[0], np.arange(4.0))
    return x


@pytest.mark.parametrize(
    "function",
    [
        add_in_place,
        write_elements,
        write_through_views,
        base_write_reaches_views,
        write_through_transpose,
        write_through_reshape,
        reshape_of_transpose_is_a_copy,
        write_through_reversed,
        write_through_split,
        augmented_element,
        scalars_are_not_views,
        copies_are_apart,
        out_arguments,
        where_argument,
        masked_write,
        fill_and_sort,
        integers_stay_integers,
        copyto,
        writing_functions,
    ],
    ids=lambda f: f.__name__,
)
def test_in_place_style(function):
    same(function, X)


def test_a_write_to_an_argument_stays_inside():
    x = X.copy()

    def write(x):
        x[0] = 0
        return x.sum()

    assert traced(write, x) == X[1:].sum()
    np.testing.assert_array_equal(x, X)


def test_augmented_element_writes_once():
    def f(x):
        x[1] += 1
        return x

    ops = [n.op.name for n in gc.compile(f).graph(X).nodes]
    assert ops.count("slice_update") == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.broadcast_to(x, (2, 3, 4)).__setitem__(0, 1), "cannot be written through"),
        (lambda x: x.__iadd__(np.ones((5, 3, 4))), "does not fit"),
        (lambda x: x.astype(np.int32).__iadd__(0.5), "cannot store"),
        (lambda x: np.add(x, 1, out=OUTSIDE), "out= is a NumPy array from outside"),
        (lambda x: np.add(x, 1, where=x > 0), "without out="),
    ],
)
def test_writes_that_are_refused(function, message):
    with pytest.raises(TraceError, match=message):
        gc.compile(function).graph(X)


# ------------------------------------------------------------------------------------ protocols


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.add.reduce(x),
        lambda x: np.maximum.reduce(x, axis=1, keepdims=True),
        lambda x: np.multiply.reduce(x, axis=None),
        lambda x: np.add.accumulate(x, axis=1),
        lambda x: np.subtract.outer(x[0], np.arange(3.0)),
        lambda x: np.float32(2) * x + np.ones(4),
        lambda x: np.ones((3, 1)) - x,
        lambda x: 2 / (x + 1) ** 2,
        lambda x: np.concatenate([x, X]),
        lambda x: np.sum(x, axis=0, dtype=np.float32),
        lambda x: np.reshape(x, (4, 3), order="F"),
        lambda x: x.T @ x,
        lambda x: np.stack(list(x)),
        lambda x: np.stack([row * k for k, row in enumerate(x)]),
        lambda x: x.__array_namespace__().permute_dims(x, (1, 0)),
        lambda x: x.__array_namespace__().acos(x / 20),
        lambda x: x.real + x.imag,
        lambda x: x[:3, :3][np.tril_indices_from(x[:3, :3])],
        lambda x: x[np.diag_indices_from(x[:, :3])],
        lambda x: np.zeros(x.shape, x.dtype) + np.ndim(x) + np.size(x) + len(x),
    ],
)
def test_numpy_protocols(function):
    same(function, X)


def test_at():
    def scatter(x):
        y = gc.zeros((3,), np.float64)
        np.add.at(y, np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]))
        return y + x[0, 0]

    np.testing.assert_array_equal(traced(scatter, X), [1, 0, 5])


def test_an_unsupported_function_is_named_with_near_ones():
    with pytest.raises(TraceError, match=r"np\.isnat") as caught:
        gc.compile(lambda x: np.isnat(x)).graph(X)
    assert caught.value.location is not None
    with pytest.raises(TraceError, match=r"np\.unique of traced arrays got .*'sorted'"):
        gc.compile(lambda x: np.unique(x, sorted=False)).graph(X)


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (lambda x: 1 if x.sum() > 0 else 2, "gc.cond"),
        (lambda x: range(x[0, 0].astype(np.int64)), "static"),
        (lambda x: float(x[0, 0]), "static"),
        (lambda x: x.__array__(), "NumPy functions"),
        (lambda x: x.tolist(), "NumPy functions"),
        (lambda x: x[0, 0].item(), "static"),
        (lambda x: 3 in x, "gc.cond"),
        (lambda x: f"{x[0, 0]:.3f}", "gc.print"),
        (lambda x: x.summ(), "sum"),
    ],
)
def test_what_needs_a_value_raises_with_a_hint_and_the_line(function, hint):
    with pytest.raises(TraceError) as caught:
        gc.compile(function).graph(X)
    error = caught.value
    assert hint in str(error)
    assert error.location == (error.location[0], function.__code__.co_firstlineno)
    assert error.location[0].endswith("test_frontend.py")
    assert len(str(error).splitlines()) <= 12


def test_attributes_that_do_not_exist_can_be_probed():
    assert traced(lambda x: x * (2 if hasattr(x, "no_such_thing") else 3), X)[0, 1] == 3


def test_errors_of_ops_carry_the_users_line_and_no_internal_frames():
    def f(x, y):
        return x @ y

    with pytest.raises(GraphError) as caught:
        gc.compile(f)(X, X)
    assert caught.value.location[1] == f.__code__.co_firstlineno + 1
    files = []
    traceback = caught.value.__traceback__
    while traceback is not None:
        files.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    assert sum("frontend" in name and "test_" not in name for name in files) <= 1


def test_an_escaped_tracer_is_refused():
    kept = SimpleQueue()  # where nobody looks

    def f(x):
        kept.put(x)
        return x

    gc.compile(f).graph(X)
    with pytest.raises(TraceError, match="after the function"):
        kept.get() + 1


# ------------------------------------------------------------------------------------ traced graphs


def test_parameters_and_results_are_named_by_their_paths():
    def f(x, params, *rest, scale=2.0):
        return {"y": x * params["w"][0] + rest[0], "n": scale}

    graph = gc.compile(f).graph(X, {"w": [X, X]}, X)
    assert [p.attrs["name"] for p in graph.params] == ["x", "params.w.0", "params.w.1", "rest.0"]
    assert graph.result_names == ("y", "n")


def test_python_numbers_are_weak():
    graph = gc.compile(lambda x, n: x * n).graph(X.astype(np.float32), 3)
    assert str(graph.params[1].type) == "i64[]"
    assert str(graph.results[0].type) == "f32[3,4]"


def test_the_same_array_is_one_constant_until_it_is_written():
    weights = np.ones(4)

    def f(x):
        a = x + weights
        b = a * weights
        weights[0] = 5
        return b + weights

    consts = [n for n in gc.compile(f).graph(X).nodes if n.op.name == "const"]
    assert len(consts) == 2


def test_locations_are_the_users_lines():
    def f(x):
        y = x + 1
        return np.tanh(y)

    first = f.__code__.co_firstlineno
    nodes = [n for n in gc.compile(f).graph(X).nodes if n.op.name != "const"]
    assert [n.loc[1] for n in nodes] == [first + 1, first + 2]


def test_compiled_functions_inside_a_trace_become_calls():
    inner = gc.compile(lambda x, k: {"a": x * k, "b": x + 1})

    def outer(x):
        first = inner(x, 2.0)
        second = inner(first["a"], 2.0)
        return second["a"] + second["b"]

    graph = gc.compile(outer).graph(X)
    calls = [n for n in graph.nodes if n.op.name == "call"]
    assert len(calls) == 2
    assert calls[0].regions[0] is calls[1].regions[0]
    np.testing.assert_allclose(interpret(graph, [X])[0], X * 4 + X * 2 + 1)


def test_symbolic_specs_trace_and_specialise():
    from graphc.ir.specialise import specialise

    def f(x, w):
        return np.tanh(x @ w).sum(axis=0)

    graph = gc.compile(f).graph(gc.spec(("N", "2*M"), "f64"), gc.spec(("2*M", 5), "f64"))
    assert str(graph.params[0].type) == "f64[N,2*M]"
    made = specialise(graph, {"N": 3, "M": 2})
    w = np.ones((4, 5))
    np.testing.assert_allclose(interpret(made, [X, w])[0], f(X, w))
    assert str(made.params[0].type) == "f64[3,4]"


@pytest.mark.parametrize("text", ["", "N +", "2 3", "N$", "*N", "N**2", "a" * 300])
def test_bad_dimensions(text):
    with pytest.raises(GraphError):
        gc.spec((text,), "f32")


def test_dimension_arithmetic():
    assert gc.spec(("N+N",)) is gc.spec(("2*N",))
    assert gc.spec(("3*4-2",)).shape == (10,)
    assert str(gc.spec(("2*N*M+1-N",))) == "f32[2*M*N-N+1]"


# ------------------------------------------------------------------------------------ signatures


def test_signature_reasons():
    from graphc.frontend.compile.signature import Binder, difference, signature_of

    def f(x, mode="a", n=1):
        return x

    binder = Binder(f, (), False)

    def signature(*args, **kwargs):
        return signature_of(binder, binder.bind(args, kwargs))[0]

    first = signature(X)
    assert signature(X.copy()) == first
    assert signature(X, n=5) == signature(X, n=6) != first
    assert difference(first, []) == "first call"
    assert difference(signature(X[:2]), [first]) == "argument x: shape (3, 4) -> (2, 4)"
    narrow = signature(X.astype(np.float32))
    assert difference(narrow, [first]) == "argument x: dtype f64 -> f32"
    assert difference(signature(X, "b"), [first]) == "argument mode: value 'a' -> 'b'"
    assert "Python i64 -> Python f64" in difference(signature(X, n=1.0), [signature(X, n=1)])
    assert "argument x: gone" in difference(signature({"k": X}), [first])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.graph(X, object()), "argument y is object"),
        (lambda f: f.graph(X, {"a": [object()]}), r"argument y\.a\.0"),
        (lambda f: f.graph(X), "missing a required argument: 'y'"),
        (lambda f: f.graph(X, X, X), "too many positional"),
        (lambda f: f.graph(X, z=X), "unexpected keyword|missing"),
        (lambda f: gc.compile(f.function, static="q"), "no argument"),
        (lambda f: gc.compile(f.function, donate="q"), "no argument"),
        (lambda f: gc.compile(f.function, static="y").graph(X, [1]), "hashable"),
        (lambda f: f.graph(X, np.array(["a"])), "element type"),
        (lambda f: gc.compile(f.function, no_such=1), "no option"),
        (lambda f: gc.compile("f"), "takes a function, got str"),
        (lambda f: gc.compile(f.function, threads="2"), "threads must be a number"),
        (lambda f: gc.compile(f.function, devices=[]), "devices is empty"),
        (lambda f: gc.compile(f.function, devices=[0, 1]), r"a list of names, got \[0, 1\]"),
        (lambda f: gc.compile(f.function, devices=2), "devices must be a list of names, got 2"),
        (lambda f: gc.compile(f.function, place_seconds="1"), "place_seconds must be seconds"),
        (lambda f: gc.compile(f.function, costs=3), "costs must be static, measured or a file"),
        (lambda f: gc.compile(f.function, constraints=3), "constraints must be a list of names"),
        (lambda f: gc.compile(f.function, devices="npu:0")(X, X), "npu:0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(GraphError, match=message):
        call(gc.compile(lambda x, y: x))


def test_a_result_that_is_no_array():
    with pytest.raises(TraceError, match="result 0 is str"):
        gc.compile(lambda x: "text").graph(X)


# ------------------------------------------------------------------------------------ calls


def unaligned(array):
    data = np.zeros(array.nbytes + 1, np.uint8)
    made = data[1:].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def read_only(array):
    made = array.copy()
    made.flags.writeable = False
    return made


class Foreign:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f8"),
        unaligned,
        read_only,
        Foreign,
        lambda x: np.ma.asarray(x).data,
    ],
)
def test_any_layout_is_accepted(change):
    f = gc.compile(lambda x: np.tanh(x) * 2)
    for _ in range(6):  # the first calls take the Python path, later ones the native entry
        np.testing.assert_allclose(f(change(X)), np.tanh(X) * 2)
        np.testing.assert_allclose(f(X + 1), np.tanh(X + 1) * 2)
    assert len(f.compiles) == 1


@pytest.mark.parametrize(
    "held", [np.ma.array(np.ones((2, 2)), mask=np.eye(2)), np.matrix(np.eye(2))]
)
@pytest.mark.parametrize("use", [lambda x, a: x * a, np.matmul, lambda x, a: (x, a)])
def test_constants_whose_operators_mean_something_else_are_refused(held, use):
    with pytest.raises(gc.GraphError, match="a plain array is expected"):
        gc.compile(lambda x: use(x, held))(np.ones((2, 2)))


def test_results_of_every_kind():
    constant = np.arange(300.0)

    def f(x, n):
        y = x + 1
        return {"in": x, "const": constant, "n": n, "twice": [y, y], "none": None, "number": 2.5}

    compiled = gc.compile(f)
    for _ in range(5):
        made = compiled(X, 3)
        assert list(made) == ["in", "const", "n", "twice", "none", "number"]
        np.testing.assert_array_equal(made["in"], X)
        assert made["in"] is not X
        np.testing.assert_array_equal(made["const"], constant)
        assert made["n"] == 3
        assert made["none"] is None
        np.testing.assert_array_equal(made["twice"][1], X + 1)
        assert made["number"] == 2.5
        assert made["twice"][0].flags.writeable


def test_empty_results_and_empty_arrays():
    assert gc.compile(lambda x: {})(X) == {}
    assert gc.compile(lambda x: (x + 1,))(X[:0])[0].shape == (0, 4)
    assert gc.compile(lambda x: x[:0].sum())(X) == 0


def test_keywords_and_defaults():
    f = gc.compile(lambda x, *, scale=2.0, mode="add": x + scale if mode == "add" else x * scale)
    np.testing.assert_array_equal(f(X), X + 2)
    np.testing.assert_array_equal(f(X, scale=3.0), X + 3)
    np.testing.assert_array_equal(f(X, scale=4.0), X + 4)
    np.testing.assert_array_equal(f(scale=3.0, x=X, mode="mul"), X * 3)
    assert len(f.compiles) == 3  # a default is a constant, a number that is given is an argument


def test_a_gap_of_defaults_keeps_later_arguments_in_place():
    f = gc.compile(lambda x, a=1.0, b=2.0: x * a - b)
    np.testing.assert_array_equal(f(X, b=5.0), X - 5)


def test_functions_that_are_not_pythons():
    np.testing.assert_allclose(gc.compile(np.tanh)(X), np.tanh(X))
    np.testing.assert_allclose(gc.compile(gc.exp)(X), np.exp(X))


def test_the_ledger_says_why():
    f = gc.compile(lambda x, n: x * n, static="n", sizes="exact")
    for args in ((X, 2), (X + 1, 2), (X[:2], 2), (X[:2], 3), (X, 2)):
        f(*args)
    reasons = [entry.reason for entry in f.compiles]
    assert reasons == [
        "first call",
        "argument x: shape (3, 4) -> (2, 4)",
        "argument n: value 2 -> 3",
    ]
    assert f.compiles[0].seconds > 0
    assert "kernels" in str(f.compiles[0])


def test_nested_arguments_stay_apart_from_flat_ones():
    f = gc.compile(lambda x, y: x - (y["a"] if isinstance(y, dict) else 2 * y))
    for _ in range(5):
        np.testing.assert_array_equal(f(X, {"a": X}), X * 0)
        np.testing.assert_array_equal(f(X, X), -X)
        np.testing.assert_array_equal(f(X, 1), X - 2)
        np.testing.assert_array_equal(f(X, 1.5), X - 3)
        np.testing.assert_array_equal(f(X, True), X - 2)


def test_methods():
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @gc.compile
        def scale(self, x, n=1):
            return x * self.factor + n

    two, three = Model(2.0), Model(3.0)
    np.testing.assert_array_equal(two.scale(X), X * 2 + 1)
    np.testing.assert_array_equal(three.scale(X, n=2), X * 3 + 2)
    assert [p.attrs["name"] for p in two.scale.graph(X, n=2).params] == ["x", "n"]
    assert len(two.scale.compiles) == 2


def test_stages_and_executable():
    f = gc.compile(lambda x: np.tanh(x) + 1)
    names = [stage[0] for stage in f.stages(gc.spec((3, 4), "f64"))]
    assert names[0] == "trace"
    assert {"cse", "fuse", "plan"} <= set(names)
    assert f.lower(X) is f.stages(X)[-1].value
    np.testing.assert_allclose(f.executable(X).run([X])[0], np.tanh(X) + 1)
    assert len(f.compiles) == 1


def test_threads_share_a_function():
    from concurrent.futures import ThreadPoolExecutor

    f = gc.compile(lambda x: np.tanh(x) * 2, sizes="exact")
    inputs = [X + k for k in range(32)] + [X[:2] + k for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for given, made in zip(inputs, pool.map(f, inputs)):
            np.testing.assert_allclose(made, np.tanh(given) * 2)
    assert len(f.compiles) == 2


def test_opt_levels_agree():
    def f(x):
        y = np.exp(x * 0.1).sum(axis=0) @ x.T
        return y, x.max(axis=1) - y[0]

    zero, two = (gc.compile(f, opt=level)(X) for level in (0, 2))
    for mine, other in zip(zero, two):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_static_arguments_reach_the_function():
    f = gc.compile(lambda x, n, flag=None: x * n if flag is None else x, static=["n"])
    assert len(f.graph(X, 3).params) == 1
    with pytest.raises(FeedError, match="hashable"):
        f.graph(X, [3])


def test_a_donated_argument_becomes_the_result():
    f = gc.compile(lambda p, g: {"w": p["w"] - 0.1 * g, "n": p["n"] @ g}, donate="p")
    p, g = {"w": X.copy(), "n": np.eye(3)}, np.ones((3, 4))
    old = p["w"]
    want = X - 0.1 * g
    made = f(p, g)
    assert made["w"] is old
    np.testing.assert_allclose(made["w"], want)
    again = f({"w": made["w"], "n": p["n"]}, g)["w"]
    np.testing.assert_allclose(again, want - 0.1 * g)


def test_donation_waits_for_the_last_reader():
    f = gc.compile(lambda x: (x + 1, x.T @ x, x[::-1] * 2), donate="x")
    x = X.copy()
    for got, want in zip(f(X.copy()), (x + 1, x.T @ x, x[::-1] * 2)):
        np.testing.assert_allclose(got, want)
    swapped = gc.compile(lambda x: x.T + 0.0, donate="x")
    square = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(swapped(square.copy()), square.T)


def test_endless_recursion_is_one_clear_error():
    f = gc.compile(lambda x: f(x) + 1)
    with pytest.raises(TraceError, match="calls itself"):
        f(X)
