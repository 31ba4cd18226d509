"""Results whose sizes only a run can tell."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from effort import slow
from project import ROOT

import graphc as gc
from graphc.errors import GraphError, LimitError, SizeError

rng = np.random.default_rng(5)
X = rng.standard_normal(200).astype("f4")


def rows(x):
    return x.reshape(-1, 1) if x.size % 4 else x.reshape(-1, 4)


def kept_boxes(scores):
    """The places of scores over a threshold, best first."""
    places = np.nonzero(scores > 0.1)[0]
    return places[np.argsort(-scores[places])]


PROGRAMS = {
    "mask": lambda x: x[x > 0],
    "sorted": lambda x: np.sort(x[x > 0]) * 2,
    "rows": lambda x: rows(x)[rows(x).sum(axis=1) > 0] * 2,
    "columns": lambda x: rows(x).T[:, rows(x).sum(axis=1) > 0],
    "parts of rows": lambda x: rows(x)[rows(x).sum(axis=1) > 0, :1],
    "two masks": lambda x: rows(x)[rows(x).sum(axis=1) > 0][:, np.arange(rows(x).shape[1]) > 0],
    "number": lambda x: np.asarray(len(x[x > 0])),
    "nonzero": lambda x: np.nonzero(x > 0)[0],
    "where": lambda x: np.where(x > 0.5)[0] * 2,
    "argwhere": lambda x: np.argwhere(rows(x) > 0),
    "compress": lambda x: np.compress(x > 0, x),
    "twice": lambda x: np.sort(x[x > 0])[np.sort(x[x > 0]) < 1.0],
    "boxes": kept_boxes,
    "reshaped": lambda x: np.cumsum(x[x > 0]).reshape(-1, 1) + 1,
}


def data(size, part, dtype):
    """An array of which about a part is over 0."""
    drawn = np.random.default_rng(size)
    found = drawn.random(size) < part
    return np.where(found, 1 + drawn.permutation(size), -drawn.random(size)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "i8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_found_has_its_own_size(name, dtype):
    function = PROGRAMS[name]
    compiled = gc.compile(function, threads=2)
    for size in (64, 0, 1, 2, 7, 1000):
        for part in (0, 0.02, 0.5, 1):
            x = data(size, part, dtype)
            want, made = function(x), compiled(x)
            assert (made.shape, made.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-6)
    assert len(compiled.compiles) <= 4


@pytest.mark.parametrize("write", ["=", "+="])
@pytest.mark.parametrize("place", [(slice(None), "mask"), ("mask", slice(1, 3)), ("mask", 1)])
def test_a_mask_beside_other_indices_says_where_to_write(place, write):
    def function(x, mask):
        index = tuple(mask if part == "mask" else part for part in place)
        y = x.copy()
        if write == "=":
            y[index] = 5
        else:
            y[index] += x[index] * 2
        return y

    x, compiled = X[:16].reshape(4, 4), gc.compile(function)
    for mask in (X[:4] > 0, X[:4] > 100, X[:4] < 100):
        np.testing.assert_allclose(compiled(x, mask), function(x, mask), rtol=1e-6)
    assert len(compiled.compiles) == 1


def test_masks_that_find_other_numbers_do_not_meet():
    compiled = gc.compile(lambda x, first, second: x[first, second])
    few, many = np.arange(5) < 2, np.arange(5) < 3
    with pytest.raises(GraphError, match="do not broadcast"):
        compiled(np.ones((5, 5)), few, many)


def test_other_backends_refuse_what_the_data_decides():
    pytest.importorskip("numba")
    with pytest.raises(GraphError, match="for CPUs, through LLVM"):
        gc.compile(lambda x: np.sort(x[x > 0]), backend="numba")(X)


def test_other_counts_are_served_by_one_compilation():
    compiled = gc.compile(lambda x: np.exp(x[x > 0]) / 2)
    for shift in np.linspace(-2, 2, 12, dtype="f4"):
        x = X + shift
        np.testing.assert_allclose(compiled(x), np.exp(x[x > 0]) / 2, rtol=1e-5)
    assert len(compiled.compiles) == 1


def test_calls_like_an_earlier_one_are_not_bound_again(monkeypatch):
    compiled = gc.compile(lambda x, y: (x[x > 0], y + 1))
    compiled(rng.standard_normal(40), np.arange(3))
    monkeypatch.setattr(type(compiled), "_signature", None)
    for _ in range(3):
        x, y = rng.standard_normal(40), rng.integers(0, 9, 3)
        found, more = compiled(x, y)
        np.testing.assert_array_equal(found, x[x > 0])
        np.testing.assert_array_equal(more, y + 1)


@pytest.mark.parametrize("asked", [{}, {"return_counts": True}, {"return_inverse": True}])
def test_distinct_values(asked):
    compiled = gc.compile(lambda x: np.unique(np.round(x), **asked))
    for x in (X, np.ones_like(X), X * 3):
        want, made = np.unique(np.round(x), **asked), compiled(x)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (made, want)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("asked", [{}, {"return_index": True, "return_inverse": True}])
@pytest.mark.parametrize(("shape", "axis"), [((0, 4), 0), ((3, 0), 1), ((0,), 0), ((0, 4), None)])
def test_nothing_has_no_distinct_parts(shape, axis, asked):
    x = np.zeros(shape, np.float32)
    want = np.unique(x, axis=axis, **asked)
    made = gc.compile(lambda x: np.unique(x, axis=axis, **asked))(x)
    for expected, part in zip(want, made) if asked else [(want, made)]:
        assert (part.shape, part.dtype) == (expected.shape, expected.dtype)


def test_repeats_and_lengths_that_are_traced():
    repeated, counted = gc.compile(np.repeat), gc.compile(lambda n: gc.arange(n) * 2)
    for counts in ([1, 0, 3, 2, 5], [0] * 5, [7] * 5):
        np.testing.assert_array_equal(
            repeated(X[:5], np.array(counts)), np.repeat(X[:5], np.array(counts))
        )
    for n in (5, 0, 100):
        np.testing.assert_array_equal(counted(np.array(n)), np.arange(n) * 2)


def test_data_that_decides_for_no_size_is_refused_as_numpy_does():
    def both(x, counts):
        return np.repeat(x, counts), np.histogram(x, bins="auto")[0]

    compiled = gc.compile(both)
    good, bad = (X[:3], np.array([1, 0, 2])), np.array([1.0, np.nan, 2.0])
    for x, counts in (
        (X[:3], np.array([1, -1, 2])),
        (X[:3], np.array(-1)),
        (bad, good[1]),
        (np.array([np.inf, 0.0, 1.0]), good[1]),
    ):
        with pytest.raises(ValueError):
            both(x, counts)
        with pytest.raises(SizeError, match=r"test_data_sizes\.py"):
            compiled(x, counts)
        for expected, made in zip(both(*good), compiled(*good), strict=True):
            np.testing.assert_array_equal(made, expected)


def test_what_is_computed_before_is_not_computed_again():
    compiled = gc.compile(lambda x, w: np.sort((x @ w)[(x @ w) > 0]))
    x, w = rng.standard_normal((9, 8)), rng.standard_normal((8, 5))
    made = x @ w
    np.testing.assert_allclose(compiled(x, w), np.sort(made[made > 0]), rtol=1e-9)
    products = [
        node
        for record in compiled.stages(x, w)
        if record.name == "trace"
        for node in record.value.nodes
        if node.op.name == "matmul"
    ]
    assert len({node.id for node in products}) == len(products)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: gc.fori(0, len(x[x > 0]), lambda k, sum: sum + x[k], 0.0),
        lambda x: (u := x[x > 0]) is None or gc.fori(0, len(u), lambda k, sum: sum * u[k], 1.0),
        lambda x: (u := x[x > 0]) is None or gc.scan(lambda c, v: (c + u * v, v), u, x)[0],
        lambda x: (u := x[x > 0]) is None or gc.cond(x.sum() > 1, lambda: u[::-1], lambda: u * 2),
        lambda x: (u := x[x > 0]) is None or gc.vmap(lambda a: (a * u).sum())(u),
    ],
)
def test_bodies_use_what_was_found_around_them(function):
    compiled = gc.compile(function)
    for n in (9, 5, 30, 8, 17):
        x = np.random.default_rng(n).standard_normal(n)
        x[0] = 1
        np.testing.assert_allclose(compiled(x), function(x))
    assert len(compiled.compiles) == 2


def test_nothing_is_computed_for_a_count_that_python_took_for_another():
    """The places are of the count of the trace, 32, which x does not have."""
    compiled = gc.compile(lambda x: x[np.arange(len(x[x > 0]))])
    for x in (np.array([1.0, -1, 2]), np.array([1.0, 2, 3])):
        np.testing.assert_array_equal(compiled(x), x[: (x > 0).sum()])


def test_a_compiled_function_is_part_of_the_one_that_calls_it():
    inner = gc.compile(lambda x: x[x > 0])
    for x in (X, -X):
        np.testing.assert_array_equal(gc.compile(lambda x: inner(x) + 1)(x), x[x > 0] + 1)
        np.testing.assert_array_equal(inner(x), x[x > 0])


def with_found(count, of=24):
    """An array with so many elements over 0, none of them near it."""
    order = np.random.default_rng(count).permutation(of)
    size = np.abs(np.random.default_rng(1).standard_normal(of)) + 0.15
    return np.where(order < count, size, -size)


COUNTS = (0, 1, 2, 7, 24)
LOSSES = {
    "mask": lambda x: (np.sort(x[x > 0]) ** 2).sum(),
    "nonzero": lambda x: np.exp(x[np.nonzero(x > 0)[0]]).sum(),
    "where": lambda x: np.sin(x[np.where(x > 0.5)]).sum(),
    "compress": lambda x: np.tanh(np.compress(x > 0, x)).sum(),
    "repeat": lambda x: (np.repeat(x, (np.abs(x) * 3).astype(int)) ** 2).sum(),
    "inverse": lambda x: (x * np.unique(np.round(np.abs(x)), return_inverse=True)[1]).sum(),
    "twice": lambda x: (np.sort(x[x > 0])[np.sort(x[x > 0]) < 1] ** 3).sum(),
    "turned": lambda x: (np.sort(x[x > 0])[::-1] * np.cumsum(x[x > 0][::2].sum())).sum(),
    "pairs": lambda x: np.outer(np.sort(x[x > 0]), np.cumsum(x[x > 0])).sum(),
    "checkpoint": lambda x: gc.checkpoint(lambda y: np.exp(np.sort(y[y > 0])).sum())(x),
}


def slopes(function, x):
    """Its derivatives, by differences."""
    steps = np.eye(len(x)) * 1e-6
    return np.array([(function(x + d) - function(x - d)) / 2e-6 for d in steps])


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_have_one_compilation_for_all_counts(name):
    loss = LOSSES[name]
    compiled = gc.compile(lambda x: gc.value_and_grad(loss)(x))
    for count in COUNTS:
        x = with_found(count)
        value, gradient = compiled(x)
        np.testing.assert_allclose(value, loss(x), rtol=1e-9)
        np.testing.assert_allclose(gradient, slopes(loss, x), rtol=1e-5, atol=1e-6)
    assert len(compiled.compiles) == 1


def test_directions_and_pullbacks_of_what_was_found():
    x = with_found(7)

    def square(x):
        return x[x > 0] ** 2

    value, pullback = gc.vjp(square, x)
    np.testing.assert_allclose(value, square(x))
    np.testing.assert_allclose(pullback(np.ones(7))[0], np.where(x > 0, 2 * x, 0))
    _, moved = gc.compile(lambda x: gc.jvp(square, (x,), (np.ones_like(x),)))(x)
    np.testing.assert_allclose(moved, 2 * x[x > 0])


def bounded(x):
    found = np.sort(x[x > 0])
    if len(found) < 3:
        return found * 10
    return found[:3] + found.shape[0]


def test_python_that_asks_for_a_count_is_traced_again_for_others():
    compiled = gc.compile(bounded)
    for count in (*COUNTS, 0, 5, 1):
        x = with_found(count)
        np.testing.assert_array_equal(compiled(x), bounded(x))
    assert [c.reason for c in compiled.compiles][1:3] == [
        "the run counted count0 = 0",
        "the run counted count0 = 1",
    ]
    with pytest.raises(GraphError, match="max_compiles"):
        gc.compile(lambda x: list(np.sort(x[x > 0])), max_compiles=1)(with_found(3))


def test_what_a_trace_for_a_count_has_read_is_watched():
    read = {"none": 1.0}

    def scaled(x):
        found = np.sort(x[x > 0])
        return np.full(1, read["none"]) if len(found) == 0 else found[:1]

    compiled = gc.compile(scaled)
    for value in (1.0, 1.0, 5.0):
        read["none"] = value
        for count in (3, 0, 2, 0):
            x = with_found(count)
            np.testing.assert_array_equal(compiled(x), scaled(x))


def test_what_nothing_has_no_answer_to_is_an_error_in_the_line_that_asks():
    compiled = gc.compile(lambda x: np.sort(x[x > 0]).max() + 1)
    assert compiled(with_found(5)) == with_found(5).max() + 1
    with pytest.raises(GraphError, match=r"max of no elements[\s\S]*test_data_sizes.py"):
        compiled(with_found(0))
    with pytest.warns(RuntimeWarning):
        want = np.mean(X[:0])
    assert np.isnan(want) and np.isnan(gc.compile(lambda x: np.sort(x[x > 0]).mean())(-np.abs(X)))


def counting(total, seen):
    """A step that assigns variables before and after it counts."""
    check = gc.assert_

    @gc.compile
    def step(x, most):
        found = np.sort(x[x > 0])
        before = seen + 0
        seen.assign(seen + 1)
        check(found < most, "too much: {}", found.sum())
        total.assign(total + found.sum())
        seen.assign(seen + found.size)
        return found.max(), before

    return step


def test_variables_are_assigned_once_when_all_is_counted():
    total = gc.Variable(np.zeros(2), name="found_total")
    seen = gc.Variable(np.array(0), name="found_seen")
    step = counting(total, seen)
    x = with_found(5)
    assert step(x, 9.0) == (x.max(), 0)
    np.testing.assert_allclose(total.value, np.full(2, x[x > 0].sum()))
    with pytest.raises(GraphError, match="max of no elements"):
        step(with_found(0), 9.0)
    assert seen.value == 6
    assert step(x, 9.0) == (x.max(), 6)
    with pytest.raises(GraphError, match="too much"):
        step(x, 0.0)


def test_threads_that_count_do_not_lose_updates():
    seen = gc.Variable(np.array(0), name="found_by_threads")

    @gc.compile
    def step(x):
        found = np.nonzero(x > 0)[0]
        seen.assign(seen + found.size)
        return np.sort(x[found])

    def work(count):
        for _ in range(20):
            np.testing.assert_array_equal(
                step(with_found(count)), np.sort(np.maximum(0, with_found(count)))[24 - count :]
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (3, 11)))
    assert seen.value == 20 * (3 + 11)


def test_random_numbers_and_text_for_what_was_found(capsys):
    @gc.compile
    def noisy(key, x):
        found = x[x > 0]
        gc.print("found {}", found.shape[0] * 1)
        return found + gc.random.normal(key, found.shape)

    key = gc.random.key(3)
    for count in (4, 0):
        x = with_found(count)
        want = x[x > 0] + gc.random.normal(key, (count,))
        np.testing.assert_allclose(noisy(key, x), want, rtol=1e-6)
    assert capsys.readouterr().out.split() == ["found", "4", "found", "0"]


def written(x, a, b):
    x = x * 1.0
    x[a:b] = -1.0
    x[b:] *= 2
    head = x[:a]
    head += np.arange(10.0)[:a]
    return x


def grid(x):
    return x[:, None] * x


SLICES = {
    "parts": lambda x, a, b: np.concatenate([x[:a], x[a:], x[a:b], x[-a:], x[:-b]]),
    "steps": lambda x, a, b: np.concatenate([x[a:b:2], x[b:a:-1], x[a::-1], x[:a:-2]]),
    "axes": lambda x, a, b: grid(x)[a:b, :b],
    "places": lambda x, a, b: grid(x)[None, np.array([1, 2]), ..., a:],
    "written": written,
}
BOUNDS = [(a, b) for a in (0, 1, 7, 12, -4, -11) for b in (0, 3, 10, -2)]


@pytest.mark.parametrize("name", SLICES)
def test_slices_have_traced_bounds(name):
    function, x = SLICES[name], with_found(5, 10)
    compiled = gc.compile(function)
    for a, b in BOUNDS:
        want = function(x, np.int64(a), np.int64(b))
        np.testing.assert_allclose(compiled(x, np.array(a), np.array(b)), want)
    assert len(compiled.compiles) == 1


def test_gradients_and_refusals_of_traced_slices():
    slope = gc.compile(lambda x, n: gc.grad(lambda x: (x[:n] ** 2).sum())(x))
    x = with_found(5, 10)
    for n in (0, 1, 4, 10):
        np.testing.assert_allclose(slope(x, np.array(n)), np.where(np.arange(10) < n, 2 * x, 0))
    with pytest.raises(GraphError, match="is an integer, got f64"):
        gc.compile(lambda x, n: x[:n])(x, np.array(1.5))
    with pytest.raises(GraphError, match="same shapes"):
        gc.compile(lambda x, n: gc.map(lambda k: x[:k], n))(x, np.arange(3))


SETS = {
    "union": np.union1d,
    "intersection": lambda x, y: np.intersect1d(x, y, return_indices=True),
    "difference": np.setdiff1d,
    "as they stand": lambda x, y: np.setdiff1d(np.unique(x)[::-1], y, assume_unique=True),
    "either": np.setxor1d,
    "found": lambda x, y: np.isin(x[x > 0], y[y > 0]),
    "distinct": lambda x, y: np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    ),
    "rows": lambda x, y: np.unique(np.sign(x.reshape(-1, 2)), axis=0, return_inverse=True),
    "columns": lambda x, y: np.unique(np.sign(x.reshape(2, -1)), axis=1, return_counts=True),
    "left": lambda x, y: np.delete(x, y > 0),
    "left at": lambda x, y: np.delete(x, np.flatnonzero(x > 0)),
    "extract": lambda x, y: np.extract(x > y, x),
    "trimmed": lambda x, y: np.concatenate([np.trim_zeros(x), np.trim_zeros(x, "f")]),
    "pieces": lambda x, y: tuple(np.split(np.sort(x), np.searchsorted(np.sort(x), y[:2] * 0))),
    "counts": lambda x, y: np.bincount(np.abs(x).astype(int), weights=y),
    "between": lambda x, y: np.interp(y, np.unique(x), np.unique(x) * 2),
    "binned": lambda x, y: np.digitize(x, np.unique(y)),
    "product": lambda x, y: x[x > 0] @ y[x > 0],
}


@pytest.mark.parametrize("shape", [lambda n: n, lambda n: (n, 2), lambda n: np.stack([n, n])])
@pytest.mark.parametrize("make", [np.zeros, gc.zeros, lambda shape: np.full(shape, 2.0)])
def test_an_array_of_a_traced_shape_is_refused_in_words(make, shape):
    with pytest.raises(GraphError, match=r"no value yet[\s\S]*static="):
        gc.compile(lambda n: make(shape(n)))(np.array(3))


@pytest.mark.parametrize("function", [np.intersect1d, np.setxor1d, np.union1d, np.setdiff1d])
def test_sets_of_other_types_and_with_nan(function):
    compiled = gc.compile(lambda x, y: function(x, y))
    nan, x = np.array([np.nan, 1.0, np.nan, 3.0]), np.array([3.0, 2.0])
    for pair in ((nan, x), (x, nan), (nan, nan), (np.arange(4), x), (x.astype("f4"), x)):
        made, want = compiled(*pair), function(*pair)
        np.testing.assert_array_equal(made, want)
        assert made.dtype == want.dtype


def test_a_dimension_that_was_always_the_same_may_change_later():
    compiled = gc.compile(lambda x, y: (x[x > 0], x + y))
    for a, b, c in ((3, 4, 3), (2, 4, 2), (2, 5, 2), (3, 0, 3), (0, 2, 0), (4, 2, 1), (1, 1, 3)):
        x, y = rng.standard_normal((a, b)), rng.standard_normal((c, b))
        made = compiled(x, y)
        np.testing.assert_array_equal(made[0], x[x > 0])
        np.testing.assert_array_equal(made[1], x + y)


def pair(count):
    """Two arrays of few different whole numbers, of which so many of the first are not zero."""
    x, y = np.round(rng.standard_normal((2, 24)) * 2)
    return np.where(np.arange(24) < count, x, 0.0), y


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_sets_have_numpys_sizes(name):
    function = SETS[name]
    compiled = gc.compile(function)
    for x, y in (*map(pair, COUNTS), (pair(24)[0], np.zeros(24)), (np.ones(24), np.ones(24))):
        want, made = function(x, y), compiled(x, y)
        pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (made, want)), strict=True)
        for a, b in pairs:
            assert (np.shape(a), a.dtype) == (np.shape(b), b.dtype)
            np.testing.assert_allclose(a, b)
    assert len(compiled.compiles) <= 2


@pytest.mark.parametrize(
    "rule", ["doane", "sqrt", *map(slow, ("auto", "fd", "rice", "scott", "sturges"))]
)
def test_histograms_choose_their_bins(rule):
    compiled = gc.compile(lambda x: np.histogram(x, bins=rule))
    for x in (X, X * X, np.round(X * 3), np.ones_like(X), X[:7]):
        for made, want in zip(compiled(x), np.histogram(x, bins=rule), strict=True):
            np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
    rows = X.reshape(4, 50)
    with pytest.raises(GraphError, match="same shapes"):
        gc.compile(lambda x: gc.map(lambda r: np.histogram(r, bins=rule)[0], x))(rows)
    squares = gc.compile(lambda x: gc.map(lambda r: (np.histogram(r, bins=rule)[0] ** 2).sum(), x))
    want = [(np.histogram(row, bins=rule)[0] ** 2).sum() for row in rows]
    np.testing.assert_array_equal(squares(rows), want)


def test_what_is_larger_than_the_memory_is_refused_before_anything_is_written():
    seen = gc.Variable(np.array(0), name="found_too_much")

    @gc.compile(memory_limit=1 << 20)
    def made(n):
        seen.assign(seen + 1)
        return gc.arange(n) * 2

    assert len(made(np.array(10))) == 10
    with pytest.raises(LimitError, match=r"needs 8000000 bytes [\s\S]*memory_limit is 1048576"):
        made(np.array(1_000_000))
    with pytest.raises(LimitError):
        gc.compile(lambda n: gc.arange(n) * 2)(np.array(10**14))
    assert seen.value == 1 and len(made(np.array(3))) == 3


def test_all_phases_together_are_within_the_memory_limit():
    seen = gc.Variable(np.array(0), name="phases_of_a_limit")

    def sums(x):
        seen.assign(seen + 1)
        found = [np.sort(x[x > 0])]
        for least in (1, 2, 3):
            found.append(np.sort(found[-1][found[-1] > least]))
        return sum(each.sum() for each in found)

    compiled = gc.compile(sums, memory_limit=30_000)
    assert compiled(np.full(100, 5.0)) == 2000
    with pytest.raises(LimitError, match=r"bytes or more .* count1 = 500; memory_limit is 30000"):
        compiled(np.full(500, 5.0))
    assert seen.value == 1 and compiled(np.full(50, 5.0)) == 1000


@pytest.mark.slow
def test_the_example_keeps_the_boxes_that_a_loop_keeps():
    import runpy

    found = runpy.run_path(str(ROOT / "examples/found.py"))
    compiled = gc.compile(found["best_boxes"])
    sloping = gc.compile(gc.grad(lambda boxes, s: (found["best_boxes"](boxes, s) ** 2).sum()))
    for count in (60, 200):
        boxes, scores = found["picture"](np.random.default_rng(count), count)
        places = np.nonzero(scores > found["THRESHOLD"])[0]
        best = boxes[places[np.argsort(-scores[places])]]
        near = found["shared_area"](best) > found["OVERLAP"]
        kept: list[int] = []
        for place in range(len(best)):
            if not near[kept, place].any():
                kept.append(place)
        np.testing.assert_allclose(compiled(boxes, scores), best[kept])
        slope = sloping(boxes, scores)
        np.testing.assert_allclose(slope[places[np.argsort(-scores[places])]][kept], 2 * best[kept])
        assert np.count_nonzero(slope.any(axis=1)) == len(kept)
    assert len(compiled.compiles) <= 2 and len(sloping.compiles) <= 2


def test_messages_say_what_a_count_is():
    """A shape that the run decides has a name of its own, which nobody has given."""
    with pytest.raises(GraphError, match=r"count0: as many elements as the run finds at .*:\d+"):
        gc.compile(lambda x: x[x > 0] + np.ones(7))(X[:9])
    with pytest.raises(GraphError, match=r"gc\.arange\(gc\.ceil\(n\)\.astype\('i64'\)\)"):
        gc.compile(lambda n: gc.arange(n))(np.float32(3.5))
    made = gc.compile(lambda n: gc.arange(gc.ceil(n).astype("i64")) * 2 + 1)(np.float32(3.5))
    np.testing.assert_array_equal(made, [1, 3, 5, 7])


def test_the_stages_before_the_cut_are_dumped_as_a_whole(tmp_path):
    @gc.compile
    def positive(x):
        return x > 0

    def function(x):
        return np.sort(x[positive(x)]) * 2

    compiled = gc.compile(function, dump=tmp_path, verify=3)
    np.testing.assert_array_equal(compiled(X), np.sort(X[X > 0]) * 2)
    whole = {path.name for path in tmp_path.glob("*.gir")}
    phases = [folder for folder in sorted(tmp_path.glob("0*")) if folder.is_dir()]
    flat = next(name for name in whole if name.endswith("-flatten.gir"))
    cut = next(name for name in whole if name.endswith("-cut_phases.gir"))
    assert whole == {"00-trace.gir", flat, cut}
    text = (tmp_path / cut).read_text()
    assert [text.count(f'name="phase{k}"') for k in range(3)] == [1, 1, 0]
    dumped, *_ = gc.load(tmp_path / "00-trace.gir")(X).values()
    np.testing.assert_array_equal(dumped, np.sort(X[X > 0]) * 2)
    assert "cut into phases" in (tmp_path / "index.txt").read_text()
    assert [min(path.name for path in folder.glob("*.gir")) for folder in phases] == [cut, cut]
    names = [record.name for record in compiled.stages(X)]
    assert names[0] == "trace"
    assert names.count("trace") == 1
    assert names.count("plan") == 2
