"""NumPy as people write it: arrays made inside a function, tables from outside, writes in place."""

from __future__ import annotations

import functools
import operator
import os
import types

import numpy as np
import pytest
from numpy import zeros as made_of_zeros
from numpy_programs import ARGUMENTS, function_of, program, run

import graphc as gc
from graphc.errors import GraphError, TraceError
from graphc.frontend.trace.hooks import hooked

PROGRAMS = int(os.environ.get("GRAPHC_NUMPY_PROGRAMS", "40"))
X = np.arange(12.0).reshape(4, 3) / 4 - 1
IDS = np.array([2, 0, 3])
W = np.arange(12.0).reshape(4, 3)
CALLS: list[int] = []
LAST = None


def same(function, *args):
    """A compiled function returns what NumPy does: value, dtype and shape."""
    want, got = function(*args), gc.compile(function)(*args)
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.shape(got) == np.shape(want)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_do_what_numpy_does(seed):
    source = program(seed)
    want = run(function_of(source, f"<program {seed}>"))
    try:
        got = run(gc.compile(function_of(source, f"<program {seed}>"), opt=0))
    except TraceError as error:  # what is documented not to be known while tracing
        if any(text in str(error) for text in ("traced mask", "from outside")):
            return
        raise
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype, source
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=source)
        assert np.shape(a) == np.shape(b), source


# ------------------------------------------------------------------------------------ functions


def outer_helper(acc, x):
    acc += x.sum(0)
    return acc


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + made_of_zeros(1)

    return wrapper


@decorated
def total(x):
    acc = np.zeros(3)
    for row in x:
        acc += row
    return acc


def recursive(x, n=2):
    acc = np.zeros(3)
    acc += x[n]
    return acc if n == 0 else acc + recursive(x, n - 1)


def of_default(x, table=W):
    return table[x[:, 0].astype(int) + 1]


def imports_inside(x):
    import numpy
    from numpy import full as filled
    from numpy.linalg import norm

    acc = numpy.zeros(3)
    acc += x[0]
    return acc + filled(3, x[0, 0]) + norm(x)


def makes_a_class(x):
    class Running:
        start = np.ones(3)

        def __init__(self):
            self.total = np.zeros(3)

        def add(self, row):
            self.total += row
            return self

    return Running().add(x[0]).add(Running.start).total


def closure(x):
    acc, count = np.zeros(3), 0

    def add(row):
        nonlocal count, acc
        count += 1
        acc += row

    list(map(add, x))
    return acc * count


@pytest.mark.parametrize(
    "function",
    [
        total,
        recursive,
        of_default,
        imports_inside,
        makes_a_class,
        closure,
        lambda x: outer_helper(np.zeros(3), x),
        lambda x: outer_helper(np.ones_like(x[0]), x),
        lambda x: W[(x[:, 0] > 0).astype(int)],
        lambda x: {"table": [W]}["table"][0][(x[:, 0] > 0).astype(int), 1],
        lambda x: (W * 2)[1, (x[0] > 0).astype(int)],
        lambda x: W.take((x[0] > 0).astype(int), axis=0) + W.dot(x[0])[0],
        lambda x: sum(W[k] * x[k] for k in range(4)),
        lambda x: np.array([[x[0, 0], 1], [x.sum(), np.float32(2)]]),
        lambda x: np.array([x[0].astype(np.float32), [1, 2, 3]]),
        lambda x: np.float32(x[0, 0]) + np.full((2, 2), x[0, 0], np.float32),
        lambda x: np.max([x[0, 0], x[1, 1], 3.0]) + np.asarray(x).sum(),
        lambda x: isinstance(x, np.ndarray) * x + isinstance(np.zeros(3), np.ndarray),
        lambda x: functools.reduce(np.add, [np.zeros(3), *x]),
        lambda x: functools.partial(outer_helper, np.zeros(3))(x),
        lambda x: np.add.outer(np.arange(3), x[0]) + np.add.reduce(np.ones((2, 3))),
    ],
)
def test_functions_of_the_user_are_seen_through(function):
    same(function, X)


def test_methods_and_callable_objects():
    class Model:
        __scale = 2.0

        def __init__(self):
            self.table = np.arange(12.0).reshape(4, 3)

        def __call__(self, x):
            return self.hidden(x) + super().__hash__() * 0

        def hidden(self, x):
            acc = np.zeros(3)
            acc += self.table[(x[:, 0] > 0).astype(int)].sum(0) * self.__scale
            return acc

    model = Model()
    same(model, X)
    same(model.hidden, X)
    same(lambda x: model(x), X)


def write_globals(x):
    global LAST
    LAST = "written"
    CALLS.append(1)
    globals()["SEEN"] = True
    return x + 1


def test_writes_reach_the_true_globals():
    gc.compile(write_globals)(X)
    assert LAST == "written"
    assert CALLS == [1]
    assert globals()["SEEN"]


def test_objects_keep_their_identity():
    seen = []

    def look(x):
        seen.extend([np, W, np.float32, look, np.asarray(W) is W, type(W) is np.ndarray])
        acc = np.zeros(2)
        seen.append(np.asarray(acc) is acc)
        return x

    gc.compile(look)(X)
    assert seen[0] is np
    assert seen[1] is W
    assert seen[2] is np.float32
    assert seen[3] is look
    assert seen[4:] == [True, True, True]


def test_what_is_known_stays_numpys():
    def f(x):
        sizes = np.arange(3) + 1
        assert int(sizes[2]) == 3
        assert sizes.sum() == 6
        assert (sizes > 0).all()
        assert [float(s) for s in np.sqrt(sizes**2)] == [1.0, 2.0, 3.0]
        for _ in range(sizes[1]):
            x = x.reshape(sizes.prod() * 2)
        return x[np.arange(12) % 2 == 0] + len(np.where(sizes > 1)[0])

    same(f, X)
    assert not [n for n in gc.compile(f).graph(X).nodes if n.op.name == "iota"]


def test_arrays_share_memory_as_in_numpy():
    def f(x):
        acc = np.zeros((2, 3))
        first, turned, flat = acc[0], acc.T, acc.reshape(-1)
        acc[1, 0] = 7
        first += x[0]
        turned[2] *= 2
        flat[0] = x[1, 1]
        return acc, first, turned, flat

    for got, want in zip(gc.compile(f)(X), f(X), strict=True):
        np.testing.assert_array_equal(got, want)


def masked(x, y):
    x = x.copy()
    x[x < 0] *= 2
    m = x > 0.5
    x[m] = y[m] + np.sqrt(x[m])
    x[y > 1] -= x[y > 1].mean()
    return x, x[m].sum(), (x[m] * y[m]).max(), x[m].size, np.mean(x[m] > 1), x[m].std()


def test_masks_in_place_and_what_they_select():
    for got, want in zip(gc.compile(masked)(X, X.copy() * 2), masked(X, X * 2), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)
    gradient = gc.grad(lambda x: (x[x > 0] ** 2).sum())(X)
    np.testing.assert_allclose(gradient, np.where(X > 0, 2 * X, 0))


def written_where(x):
    y = x[x > 0.2]
    y[y > 1] = 7
    y[y < 0.5] += 3
    y[y > 2] = y[y > 2] * 2
    return y


def written_rows(x):
    y = x[x[:, 0] > 0]
    y[y[:, 1] > 0] *= 2
    return y[y[:, 1] > -1, 1:]


@pytest.mark.parametrize(
    "function",
    [
        written_where,
        written_rows,
        lambda x: x[x > 0][x[x > 0] > 0.5],
        lambda x: (lambda y: y[(y > 0.5) & (y < 2)])(x[x > 0]),
        lambda x: (lambda y: y[np.argmax(y)])(x[x > 0]),
        lambda x: x.ravel()[x[x > 0].astype(int)],
        lambda x: np.arange(50.0)[x[x > 0].astype(int)],
    ],
)
def test_masks_and_places_made_of_selected_elements(function):
    np.testing.assert_array_equal(gc.compile(function)(X), function(X.copy()))


def test_a_mask_of_selected_elements_needs_no_number_in_a_loop():
    def of_row(r):
        y = r[r > 0]
        return y[y > 0.5].sum()

    want = [of_row(r) for r in X]
    np.testing.assert_allclose(gc.compile(lambda x: gc.map(of_row, x))(X), want)


def test_places_of_known_arrays_that_are_not_there():
    table = np.arange(5.0)

    def written(x):
        known = np.zeros(3)
        known[len(x)] = 1
        return known + x

    for function in (lambda x: table[len(x)], lambda x: np.take(table, len(x)), written):
        with pytest.raises(IndexError, match="out of bounds") as caught:
            gc.compile(function)(np.ones(9))
        assert isinstance(caught.value, GraphError)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0] + x[x > 1],
        lambda x: np.array(len(x[x > 0])),
        lambda x: np.stack(list(x[x > 0])),
        lambda x: x[x > 0] * np.arange(3),
    ],
)
def test_the_number_of_selected_elements_is_numpys(function):
    compiled = gc.compile(function)
    for x in (X, X * 0 + 2, np.array([-1.0, 1.0, 0.5, 2.0])):
        try:
            want = function(x)
        except ValueError:
            with pytest.raises(GraphError):
                compiled(x)
        else:
            np.testing.assert_array_equal(compiled(x), want)


def test_each_step_of_a_loop_selects_as_many_elements_as_there_are():
    counts = gc.compile(lambda x: gc.map(lambda r: len(r[r > 0]), x))(X)
    np.testing.assert_array_equal(counts, (X > 0).sum(axis=1))


@pytest.mark.parametrize(
    ("of_row", "reason"),
    [
        (lambda r: list(r[r > 0]), "stands for any size here, and its number is asked for"),
        (lambda r: r[r > 0] + r[r > 1], "of a size that the run finds"),
    ],
)
def test_what_a_loop_cannot_do_with_selected_elements(of_row, reason):
    with pytest.raises(TraceError, match=reason):
        gc.compile(lambda x: gc.map(of_row, x))(X)


REFUSED = [
    lambda x: x[7],
    lambda x: x[0, 0, 0],
    lambda x: x[0.5],
    lambda x: x + x.T,
    lambda x: x @ x,
    lambda x: x.sum(axis=5),
    lambda x: np.sum(x, axis=1.0),
    lambda x: np.concatenate([x, x.T]),
    lambda x: x.reshape(5),
    lambda x: np.add(x, np.ones(7)),
    lambda x: x.__setitem__(0, np.ones(5)),
    lambda x: x.transpose(0, 0),
]


@pytest.mark.parametrize("function", REFUSED)
def test_errors_are_of_the_class_that_numpy_raises(function):
    with pytest.raises((IndexError, ValueError, TypeError)) as numpys:
        function(X)
    with pytest.raises(GraphError) as ours:
        gc.compile(function)(X)
    assert isinstance(ours.value, (IndexError, ValueError, TypeError))
    assert isinstance(numpys.value, tuple(k for k in type(ours.value).__mro__ if k in REAL))
    assert ours.value.location[0].endswith("test_numpy_programs.py")


REAL = (IndexError, ValueError, TypeError)


def test_errors_can_be_caught_as_numpys():
    def f(x):
        try:
            return x[9]
        except IndexError:
            return x[0]

    same(f, X)


def test_writes_to_arrays_from_outside_are_refused():
    def into(x):
        W[0] = x[0]
        return x

    def plus(x):
        table = W
        table += x
        return table

    def fills(x):
        W.fill(x[0, 0])
        return x

    for function in (into, plus, fills):
        with pytest.raises(TraceError, match=r"copy|outside|traced array"):
            gc.compile(function)(X)
    assert W[0, 1] == 1


def test_known_arrays_of_the_function_around_are_not_written_to_in_a_loop():
    def f(x):
        acc = np.zeros(3)

        def body(k, s):
            acc[0] = 1.0
            return s + 1

        return gc.fori(0, 3, body, x) + acc[0]

    with pytest.raises(TraceError, match="loop body"):
        gc.compile(f)(X)


def test_transformations_see_through_functions():
    def loss(w, x):
        acc = np.zeros(3)
        for row in x:
            acc += row * w
        out = np.empty(2)
        out[0], out[1] = acc.sum(), (acc**2).mean()
        return out @ np.array([1.0, 0.5])

    w = np.array([1.0, 2.0, 3.0])
    want = (loss(w + 1e-6, X) - loss(w - 1e-6, X)) / 2e-6
    np.testing.assert_allclose(gc.grad(loss)(w, X).sum(), want, rtol=1e-5)

    def step(carry, row):
        made = np.zeros(3)
        made[1:] = row[1:]
        return carry + made, made

    np.testing.assert_allclose(
        gc.compile(lambda x: gc.scan(step, np.zeros(3), x))(X)[0], X.sum(0) * [0, 1, 1]
    )
    same(lambda x: gc.cond(x[0, 0] > 0, outer_helper, outer_helper, np.ones(3), x), X)


def test_lines_and_names_stay_the_users():
    def f(x):
        acc = np.zeros(3)
        return acc @ np.ones((4, 4)) @ x

    with pytest.raises((GraphError, ValueError)) as caught:
        gc.compile(f)(X)
    lines = [e.lineno for e in caught.traceback if e.path.name == "test_numpy_programs.py"]
    assert f.__code__.co_firstlineno + 1 in lines  # counted from 0 here
    made = hooked(f)
    assert (made.__name__, made.__qualname__) == (f.__name__, f.__qualname__)
    assert made.__code__.co_firstlineno == f.__code__.co_firstlineno


NO_SOURCE = """
def add_rows(acc, x):
    for row in x:
        acc += row
    return acc
def f(x):
    acc = add_rows(np.zeros(3), x)
    out = np.empty((2, 3), dtype=np.float32)
    out[0], out[1] = acc, np.linalg.norm(x)
    np.add.at(acc, [0, 0], x[0, 0])
    table = W * 2
    table[0] += (lambda q: q + np.ones(3))(x[1])
    return acc, out, table, W[(x[:, 0] > 0).astype(int)], np.array([x[0, 0], 1]), zeros(2) + np.pi
def g(x):
    global LAST
    LAST = np.zeros(3)
    return x + LAST
"""


def test_functions_without_source_are_seen_through_by_name():
    scope = {"np": np, "W": W, "zeros": np.zeros}
    exec(NO_SOURCE, scope)
    for got, want in zip(gc.compile(scope["f"])(X), scope["f"](X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert np.asarray(got).dtype == want.dtype
    assert hooked(scope["g"]) is scope["g"]  # it writes to its globals
    same(scope["g"], X)
    assert type(scope["LAST"]) is np.ndarray
    same(types.FunctionType(compile("x + 1", "<none>", "eval"), {"x": X}), *())


def test_tables_that_are_kept_stay_arrays():
    tables = {}

    def f(x):
        if 3 not in tables:
            tables[3] = np.arange(3.0)
        return x * tables[3]

    same(f, X)
    tables.clear()
    compiled = gc.compile(f)
    np.testing.assert_allclose(compiled(X), compiled(X))
    assert tables[3].sum() == 3
    np.testing.assert_allclose(np.sort(tables[3]) + f(X), X * [0, 1, 2] + [0, 1, 2])


def test_no_known_array_leaves_a_function():
    made = gc.compile(lambda x: (np.zeros(3), {"a": np.arange(2)}, x))(X)
    assert type(made[0]) is np.ndarray
    assert made[1]["a"].dtype == np.int64
    assert set(ARGUMENTS) == {"x", "v", "ids", "flags"}


def rows_of(*functions_and_arguments):
    return [pytest.param(*each) for each in functions_and_arguments]


TINY = np.array([3.0, 0.1, -0.0, np.inf, 5e-324, 1.0, 2.0**-1022, -7.5])
HOLES = np.array([[1.0, np.nan, 3.0, -4.0], [np.nan] * 4, [2.0, 5.0, np.nan, 1.0]])
U8 = np.array([100, 200, 50], np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arguments"),
    rows_of(
        (lambda x: np.frexp(x)[0], (TINY,)),
        (lambda x: np.frexp(x)[1], (TINY,)),
        (lambda x: np.frexp(x)[1], (TINY.astype(np.float32),)),
        (np.spacing, (TINY,)),
        (np.spacing, (TINY.astype(np.float32),)),
        (lambda x: np.nanmedian(x, axis=1), (HOLES,)),
        (lambda x: np.nanmedian(x), (HOLES,)),
        (lambda x: np.nanmedian(x, axis=(0, 1), keepdims=True), (HOLES,)),
        (lambda x: np.median(x, axis=(0, 2)), (np.arange(24.0).reshape(2, 3, 4) ** 1.5,)),
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, 3), (np.arange(6.0),)),
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)), (X,)),
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0), (X,)),
        (lambda x: np.add.reduceat(x, [0, 2, 1, 3]), (X,)),
        (lambda x: np.maximum.reduceat(x, [0, 2], axis=1), (X,)),
        (lambda x: np.add.reduceat(x, [0, 2]), (U8,)),
        (lambda x: np.piecewise(x, [x < 0, x >= 1], [-1, lambda v: v**2]), (X,)),
        (lambda x: np.piecewise(x, [x < 0], [np.negative, 7]), (X,)),
        (lambda x: np.piecewise(x, x < 0, [np.negative, 7]), (X[:, 0],)),
        (lambda x: np.apply_along_axis(lambda v: v.sum(), 0, x), (X,)),
        (lambda x: np.apply_along_axis(np.cumsum, 1, x), (X,)),
        (lambda x: np.apply_along_axis(lambda v: np.outer(v, v), 0, x), (X,)),
        (lambda x: np.vectorize(lambda a, b: a * b + 1)(x, x[0]), (X,)),
        (lambda x: np.vectorize(lambda a: a > 0, otypes=[float])(x), (X,)),
        (lambda x: np.average(x, weights=U8), (U8,)),
        (lambda x: np.dot(x, 200), (U8,)),
        (lambda x: np.dot(2, x), (X.astype(np.float32),)),
        (np.vander, (U8,)),
        (lambda x: np.cov(x, rowvar=False), (X[:, :1],)),
        (lambda x: np.quantile(x, [0.1, 0.5]), (X[0].astype(np.float32),)),
        (lambda x: np.quantile(x, 0.3), (X[0].astype(np.float32),)),
        (lambda x: np.percentile(x, np.float32(30)), (X[0].astype(np.float32),)),
        (lambda x: np.quantile(x, 0.3, method="lower"), (np.arange(5),)),
        (lambda x: np.percentile(x, 50), (np.array([-np.inf, -np.inf, -np.inf, 1, 2, 3]),)),
        (lambda x: np.histogram(x, weights=np.arange(5))[0], (np.arange(5.0),)),
        (lambda x: np.histogram(x)[1], (np.arange(5, dtype=np.float32),)),
        (lambda x: np.linalg.slogdet(x).logabsdet, (np.eye(3) * 2,)),
        (lambda x: np.linalg.matrix_power(x, -2), (np.diag([2.0, 4.0]),)),
        (lambda x: np.array_equal(x, x, equal_nan=True), (HOLES,)),
        (lambda x: round(x[0, 0], 1) + x.trace() + round(x[1, 1]), (X[:3] * 1.26,)),
        (lambda x: np.bincount(x, minlength=6), (IDS,)),
        (lambda x: np.sum(x.sum(), axis=0), (X,)),
        (lambda x: x[np.bool_(True)] + x[True], (X,)),
    ),
)
@pytest.mark.filterwarnings("ignore")
def test_functions_of_numpy(function, arguments):
    same(function, *arguments)


@pytest.mark.parametrize(
    ("function", "arguments"),
    rows_of(
        (lambda x: np.quantile(x, 2.0), (X,)),
        (lambda x: np.sort(x, kind="foo"), (X,)),
        (lambda x, y: np.vecdot(x, y), (np.ones((2, 3)), np.ones((2, 1)))),
        (lambda x: np.add.reduceat(x, [0, 9]), (X,)),
        (lambda x: np.piecewise(x, [x < 0], [1, 2, 3]), (X,)),
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, 7, axis=0), (X,)),
        (lambda x: x.sum(axis=1.0), (X,)),
    ),
)
def test_what_numpy_refuses_is_refused(function, arguments):
    with pytest.raises((ValueError, TypeError, IndexError)):
        function(*arguments)
    with pytest.raises(GraphError):
        gc.compile(function)(*arguments)


@pytest.mark.parametrize("dtype", ["bool", "i8", "u64", "f16", "f64", "c128"])
@pytest.mark.parametrize(
    "function",
    [
        operator.neg,
        operator.pos,
        operator.abs,
        operator.invert,
        *(np.negative, np.positive, np.sign),
    ],
)
def test_an_operator_of_one_array_is_refused_as_numpy_refuses_it(function, dtype):
    x = np.ones(3, gc.spec((), dtype).dtype.numpy)
    try:
        wanted = function(x)
    except TypeError:
        with pytest.raises(TypeError) as caught:
            gc.compile(lambda x: function(x))(x)
        assert isinstance(caught.value, GraphError)
    else:
        made = gc.compile(lambda x: function(x))(x)
        assert made.dtype == wanted.dtype
        np.testing.assert_array_equal(made, wanted)
