"""One compilation for arrays of many sizes: gc.compile, saved graphs, .gcx files."""

from __future__ import annotations

import itertools
import math
import operator
import re
import subprocess
import sys
import warnings
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.llvm.target import host
from graphc.codegen.llvm.vector_facts import has_masks
from graphc.errors import FeedError, GraphError
from graphc.frontend.compile.variant import Variant
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import Scope, greatest, hint_of, least
from graphc.ir.types import F32, MAX_ELEMENTS, tensor
from graphc.loops.facts import index_range
from graphc.loops.nest import Scalars
from graphc.loops.scalars import maximum
from graphc.runtime.tuning import tuned

rng = np.random.default_rng(3)


def f32(*shape):
    return rng.standard_normal(shape).astype("f4") * np.float32(0.5)


def layer(x, w):
    return np.tanh(x @ w).sum(axis=1)


def normalised(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def attention(x, wq, wk, wv):
    batch, length, width = x.shape
    q, k, v = (
        (x @ w).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv)
    )
    scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // 4))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    made = scores / scores.sum(axis=-1, keepdims=True) @ v
    return x + made.transpose(0, 2, 1, 3).reshape(batch, length, width)


def slope(w, x, y):
    return gc.grad(lambda w: ((np.tanh(x @ w) - y) ** 2).mean())(w)


def running(xs, w):
    return gc.scan(lambda h, x: (np.tanh(h @ w + x), h), np.zeros(xs.shape[1:], np.float32), xs)[1]


PROGRAMS = {
    "element-wise": (lambda x: np.tanh(x) * 2 + 1, lambda n: (f32(n, 5),)),
    "layer": (layer, lambda n: (f32(n, 16), f32(16, 4))),
    "rows": (normalised, lambda n: (f32(n, 33),)),
    "columns": (lambda x: x - x.mean(axis=0), lambda n: (f32(n, 5),)),
    "transposed": (lambda x: np.sin(x.T) + 1, lambda n: (f32(n, 7),)),
    "joined": (lambda x, y: np.concatenate([x, y * 2]), lambda n: (f32(n, 3), f32(2 * n, 3))),
    "attention": (attention, lambda n: (f32(2, n, 16), f32(16, 16), f32(16, 16), f32(16, 16))),
    "gradient": (slope, lambda n: (f32(16, 4), f32(n, 16), f32(n, 4))),
    "scan": (running, lambda n: (f32(n, 3, 4), f32(4, 4))),
    "median": (lambda x: np.median(x, axis=0), lambda n: (f32(n, 3),)),
    "least": (lambda x: gc.grad(lambda x: np.sort(x, axis=0)[0].mean())(x), lambda n: (f32(n, 3),)),
    "sum over": (lambda x: x.sum(0) / x.shape[0] ** 0.5, lambda n: (f32(n, 3),)),
    "slope of the variance": (
        lambda x: gc.grad(lambda x: (x.var(0, ddof=0.5) + 2 * x.std(0) ** 3).sum())(x),
        lambda n: (f32(n, 3),),
    ),
    "counted loop": (
        lambda x: gc.fori(0, len(x), lambda k, sums: sums * 0.5 + x[k], np.zeros(3, np.float32)),
        lambda n: (f32(n, 3),),
    ),
    "loop from the middle": (
        lambda x: gc.fori(len(x) // 2, len(x), lambda k, sum: sum + x[k], np.float32(0)),
        lambda n: (f32(n),),
    ),
    "scan of nothing": (
        lambda x: gc.scan(lambda c, _: (c / 2, c + x[0]), np.float32(1), length=len(x))[1],
        lambda n: (f32(n),),
    ),
    "quantiles": (lambda x: np.quantile(x, [0.1, 0.7], axis=0), lambda n: (f32(n, 3),)),
    "greatest half": (lambda x: gc.topk(x, (len(x) + 1) // 2)[0], lambda n: (f32(n),)),
    "middle row": (lambda x: x[len(x) // 2] + x[len(x) - 1], lambda n: (f32(n, 3),)),
    "windows": (
        lambda x: np.lib.stride_tricks.sliding_window_view(np.pad(x, 2), 3).max(-1),
        lambda n: (f32(n),),
    ),
    "half windows": (
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (len(x) + 1) // 2).sum(-1),
        lambda n: (f32(n),),
    ),
    "covariance": (lambda x: np.cov(x.T, ddof=0), lambda n: (f32(n, 3),)),
    "pairs": (lambda x: np.einsum("ik,jk->ij", x, x), lambda n: (f32(n, 3),)),
    "blocks": (lambda x: np.pad(x, (0, -len(x) % 8)).reshape(-1, 8).sum(1), lambda n: (f32(n),)),
    "mirrored": (lambda x: np.pad(x, 3, mode="symmetric"), lambda n: (f32(n),)),
    "reflected": (lambda x: np.pad(x, 4, mode="reflect"), lambda n: (f32(n),)),
    "wrapped": (lambda x: np.pad(x, (5, 2), mode="wrap"), lambda n: (f32(n),)),
    "repeated ends": (lambda x: np.pad(x, 2, mode="edge"), lambda n: (f32(n),)),
    "frequencies": (
        lambda x: x * np.fft.fftfreq(len(x), 0.5) + np.fft.rfftfreq(2 * len(x))[1:],
        lambda n: (f32(n),),
    ),
    "countdown": (lambda x: x * np.arange(len(x), 0, -1), lambda n: (f32(n),)),
    "grid": (lambda x: x + np.linspace(-1, 1, len(x)), lambda n: (f32(n),)),
    "gradient per row": (
        lambda x, w: gc.vmap(gc.grad(lambda w, r: (r @ w) ** 2), in_axes=(None, 0))(w, x),
        lambda n: (f32(n, 3), f32(3)),
    ),
}


def test_slopes_along_open_axes_and_lines_through_points_take_two_compilations():
    differences = gc.compile(np.gradient)
    line = gc.compile(lambda x, y: np.polyfit(x, y, 1))
    for n in (5, 9, 40, 2, 100):
        x, y = np.linspace(0, 1, n) + 0.1, rng.standard_normal(n)
        np.testing.assert_allclose(differences(y), np.gradient(y), atol=1e-12)
        if n > 2:
            np.testing.assert_allclose(line(x, y), np.polyfit(x, y, 1), rtol=1e-8, atol=1e-8)
    assert len(differences.compiles) == len(line.compiles) == 2


def test_a_row_in_the_middle_is_written():
    def marked(x):
        made = x.copy()
        made[len(x) // 2] = 9
        made[-1, 1] += 2
        return made

    compiled = gc.compile(marked)
    for n in (5, 9, 40, 2, 100):
        x = f32(n, 3)
        np.testing.assert_array_equal(compiled(x), marked(x))
    assert len(compiled.compiles) == 2


def test_quotients_of_sizes_that_differ_by_the_divisor_differ_by_one():
    n = Scope().symbol("n", 9)
    assert (n + 3) // 2 is (n + 1) // 2 + 1
    assert (n - 1) // 2 is (n + 1) // 2 - 1
    assert -(-(n + 9) // 8) is (n + 16) // 8


def test_what_is_left_of_a_division_is_known_to_be_small():
    n = Scope().symbol("n", 9)
    assert n.scope.bounds(n % 8, False) == (0, 7)
    assert n.scope.bounds(-n % 8 + 1, False) == (1, 8)
    assert n.scope.bounds(3 - 2 * (n % 5), False) == (-5, 3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_dimension_that_changes_is_left_open(name):
    function, arguments = PROGRAMS[name]
    compiled = gc.compile(function, verify=3)
    for n in (5, 9, 40, 2, 100, 1):
        given = arguments(n)
        np.testing.assert_allclose(compiled(*given), function(*given), rtol=2e-4, atol=2e-5)
    assert any("_" in repr(entry.signature) for entry in compiled.compiles)
    assert len(compiled.compiles) <= 3


def test_a_write_to_a_part_that_may_be_empty_leaves_the_rest_as_it_was():
    def doubled(x, part):
        made = x.copy()
        made[part] *= 2
        return made

    for part in (slice(2, None), slice(None, -2), slice(2, None, 3)):
        compiled = gc.compile(lambda x, part=part: doubled(x, part), sizes={"x": ("n", 3)})
        for n in (5, 2, 3, 9):
            x = f32(n, 3)
            np.testing.assert_array_equal(compiled(x), doubled(x, part))


def test_sizes_that_are_named_are_open_from_the_first_call():
    named = gc.compile(layer, sizes={"x": ("n", 16)})
    for n in (3, 1, 64, 0):
        x, w = f32(n, 16), f32(16, 4)
        np.testing.assert_allclose(named(x, w), layer(x, w), rtol=1e-4, atol=1e-5)
    assert all(entry.signature.keys[0].symbols() for entry in named.compiles)


def test_every_length_takes_a_few_compilations():
    alone = gc.compile(lambda x: x - x.mean(axis=0))
    for n in rng.permutation(np.arange(1, 130)):
        x = f32(n, 5)
        np.testing.assert_allclose(alone(x), x - x.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert len(alone.compiles) <= 4


def attending(p, x):
    q = (x @ p["w"]).reshape(*x.shape[:2], 2, 4).transpose(0, 2, 1, 3)
    scores = np.exp(q @ q.transpose(0, 1, 3, 2))
    return ((scores / scores.sum(axis=-1, keepdims=True)) @ q).mean()


def recurring(p, x):
    def step(h, row):
        h = np.tanh(row @ p["w"] + h @ p["w"])
        return h, h

    return (gc.scan(step, np.zeros(x.shape[1:]), x)[1] ** 2).mean()


@pytest.mark.slow
@pytest.mark.parametrize("loss", [attending, recurring])
def test_training_steps_with_a_batch_or_a_length_of_one_take_three_compilations(loss):
    step, exact = (gc.compile(gc.value_and_grad(loss), sizes=s) for s in (None, "exact"))
    rng = np.random.default_rng(0)
    p = {"w": rng.standard_normal((8, 8)) / 4}
    for b, t in ((8, 12), (1, 12), (3, 5), (2, 9), (1, 1), (6, 7), (13, 2), (1, 33)):
        x = rng.standard_normal((b, t, 8))
        (got, grads), (want, wanted) = step(p, x), exact(p, x)
        np.testing.assert_allclose(got, want)
        np.testing.assert_allclose(grads["w"], wanted["w"], rtol=1e-6, atol=1e-12)
    assert len(step.compiles) <= 3


def test_an_array_of_outside_is_sliced_by_an_open_size():
    places = np.arange(64.0)
    compiled = gc.compile(lambda x: x + places[: x.shape[0]])
    for n in (3, 5, 64, 2, 33):
        np.testing.assert_allclose(compiled(np.zeros(n)), places[:n])
    assert len(compiled.compiles) == 2
    assert "f64[n]" in gc.show(compiled.graph(gc.spec(("n",), "f64")))


def test_what_needs_the_number_is_compiled_for_each_size():
    def powers(x):
        made = x
        for _ in range(x.shape[0]):
            made = made * x
        return made

    compiled = gc.compile(powers)
    for n in (2, 3, 4, 2):
        x = f32(n)
        np.testing.assert_allclose(compiled(x), powers(x), rtol=1e-5)


def test_a_dimension_that_stayed_for_a_while_is_not_taken_for_open():
    compiled = gc.compile(lambda x: np.tanh(x).sum(axis=1))
    for shape in ((3, 4), (3, 5), (6, 7), (6, 4), (3, 4)):
        x = f32(*shape)
        np.testing.assert_allclose(compiled(x), np.tanh(x).sum(axis=1), rtol=1e-5, atol=1e-6)


def test_sizes_of_long_ago_give_their_memory_back(monkeypatch):
    from graphc.runtime.tuning import tuned

    monkeypatch.setattr(tuned, "kept_sizes", 3)
    compiled = gc.compile(lambda x: np.tanh(x @ x.T).sum(axis=1), sizes={"x": ("n", 4)})
    for n in (40, 50, 60, 70, 80, 50, 40):
        x = f32(n, 4)
        np.testing.assert_allclose(compiled(x), np.tanh(x @ x.T).sum(axis=1), rtol=1e-3, atol=1e-4)
    assert len(compiled._variants._served) == 3
    assert len(compiled.compiles) == 1


@pytest.mark.parametrize("sizes", [None, "exact"])
def test_calls_that_go_back_and_forth_between_sizes_take_the_native_entry(sizes, monkeypatch):
    fn = gc.compile(lambda x: x + 1, sizes=sizes)
    arrays = [f32(n) for n in (3, 5, 7)]
    for x in arrays * (tuned.measured_runs + 1):
        fn(x)
    monkeypatch.setattr(Variant, "run", None)
    for x in (*arrays, *arrays[::-1], arrays[1]):
        np.testing.assert_array_equal(fn(x), x + 1)


def test_a_size_that_may_be_negative_is_not_taken_for_one_that_is_not():
    n = Scope().symbol("n", 9)
    b = Scalars()
    assert index_range(b.integer(n), {}) == (0, MAX_ELEMENTS)
    assert index_range(b.integer(n + 3), {}) == (3, MAX_ELEMENTS)
    assert index_range(maximum(b.integer(n - 20), 0), {}) == (0, MAX_ELEMENTS)
    assert index_range(b.integer(n - 20), {}) == (-20, MAX_ELEMENTS)
    assert index_range(b.integer(20 - n), {}) == (-MAX_ELEMENTS, MAX_ELEMENTS)


@pytest.mark.parametrize(
    "compute", [float, lambda n: n * 0.5, lambda n: 3 / n, lambda n: n**0.5, lambda n: 0.5 + n]
)
def test_numbers_of_floating_point_made_of_a_size_hold_for_it_alone(compute):
    scope = Scope()
    scope.typing = False
    n = scope.symbol("n", 9)
    with by_example():
        assert compute(n) == compute(9)
    assert compute(hint_of(n)) == compute(9) and not scope.guards
    assert compute(n) == compute(9)
    assert [repr(guard) for guard in scope.guards.values()] == ["n = 9"]


@pytest.mark.parametrize(
    ("ask", "guard"),
    [
        (lambda n: n < 2.5, "3 <= n"),
        (lambda n: n >= 2.5, "3 <= n"),
        (lambda n: n > 9.0, "n <= 9"),
        (lambda n: n == 4.0, "n != 4"),
        (lambda n: n == Fraction(8, 2), "n != 4"),
        (lambda n: n == 4 + 0j, "n != 4"),
        (lambda n: n == 4.5, ""),
        (lambda n: n == Decimal("NaN"), ""),
        (lambda n: n < float("inf"), ""),
        (lambda n: n == float("nan"), ""),
        (lambda n: n >> 1 == 4, "((n)//2) = 4"),
        (lambda n: n & (n - 1) == 0, "n = 9"),
        (lambda n: n.bit_length() == 4, "n = 9"),
        (lambda n: round(n) == math.floor(n) == math.ceil(n) == n, ""),
    ],
)
def test_a_size_answers_as_a_number_does_under_the_least_guard(ask, guard):
    scope = Scope()
    n = scope.symbol("n", 9)
    assert ask(n) is ask(9)
    assert ", ".join(map(repr, scope.guards.values())) == guard


TABLE = {3: 10.0, 4: 20.0}
READS = {
    "get": lambda n: TABLE.get(n, 1.0),
    "set": lambda n: n in {3, 4},
    "of shapes": lambda n: {(3, 2): 5.0}.get((n, 2), 1.0),
    "counter": lambda n: Counter([n, 3])[3],
    "text": lambda n: {"w3": 2.0}.get(f"w{n}", 1.0),
    "str": lambda n: {"3": 2.0}.get(str(n), 1.0),
    "kind": lambda n: isinstance(n, int) and type(n) is int,
    "bits": lambda n: n.bit_length(),
}


@pytest.mark.parametrize("name", READS)
def test_what_users_look_up_by_a_size_is_that_of_its_number(name):
    function = gc.compile(lambda x: x * READS[name](x.shape[0]))
    for n in (7, 8, 3, 4, 5, 1, 2):
        x = np.ones((n, 2))
        np.testing.assert_array_equal(function(x), x * READS[name](n))


def test_a_choice_by_size_is_a_guard():
    compiled = gc.compile(lambda x: x + 1 if x.shape[0] > 50 else x - 1)
    for n in (3, 4, 60, 50, 51, 70):
        np.testing.assert_allclose(compiled(np.zeros(n)), np.full(n, 1.0 if n > 50 else -1.0))


def test_a_guard_names_the_line_that_asks():
    def compute(x):
        y = x.reshape(-1, 2, 3)
        return y * 2 if len(x) > 50 else y

    compiled, line = gc.compile(compute), compute.__code__.co_firstlineno
    for n in (6, 12, 18, 60, 66, 600, 24):
        np.testing.assert_allclose(compiled(np.ones(n)), compute(np.ones(n)))
    assert len(compiled.compiles) == 3
    assert compiled.compiles[-1].reason.endswith(f"test_open_sizes.py:{line + 2})")

    needed = gc.compile(lambda x: sum(x[k] for k in range(len(x))), max_compiles=4)
    with pytest.raises(GraphError, match=r"; a number for x_0 \(tests/.*py:\d+\) is needed"):
        [needed(np.ones(n)) for n in range(2, 9)]


@pytest.mark.parametrize("number", [0, -1, "a", 1.5, True])
def test_a_limit_of_compilations_is_a_positive_number(number):
    with pytest.raises(GraphError, match="max_compiles must be a number from 1"):
        gc.compile(lambda x: x, max_compiles=number)


def test_more_compilations_than_allowed_are_an_error():
    compiled = gc.compile(lambda x: x * 2, sizes="exact", max_compiles=2)
    compiled(f32(2))
    compiled(f32(3))
    with pytest.raises(GraphError, match=r"2 times.*shape \(3,\) -> \(4,\)"):
        compiled(f32(4))


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([np.ones(5), np.ones(6), np.ones(2)], r"now the sizes break x_0 > 3 \("),
        ([np.ones(5), np.ones(6), f32(5)], "now argument x: dtype f64 -> f32$"),
    ],
)
def test_the_error_names_what_differs_and_nothing_else(calls, reason):
    compiled = gc.compile(lambda x: x[:3] if x.shape[0] > 3 else x, max_compiles=2)
    *allowed, last = calls
    for call in allowed:
        compiled(call)
    with pytest.raises(GraphError) as error:
        compiled(last)
    assert re.search(reason, error.value.message)


def test_a_type_that_goes_while_something_is_traced_asks_for_no_number():
    def passing(x):
        for name in ("going", "gone"):
            gc.spec((name,), "f32")
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.compile(passing, sizes={"x": ("n",)})(np.ones(3))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("all", "sizes takes the shapes"),
        ({"z": ("n", 3)}, "no array argument"),
        ({"x": ("n",)}, "which is not"),
        ({"x": ("n", 4)}, "which is not"),
        ({"x": ("n", "n*")}, "dimension"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(sizes, message):
    with pytest.raises(GraphError, match=message):
        gc.compile(lambda x: x + 1, sizes=sizes)(f32(2, 3))


def test_a_saved_graph_with_symbols_is_compiled_once(tmp_path):
    gc.compile(layer).save(tmp_path / "m.gir", gc.spec(("n", 16), "f32"), gc.spec((16, 4), "f32"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    w, kernels = f32(16, 4), set()
    for n in (40, 70, 100):
        x = f32(n, 16)
        np.testing.assert_allclose(loaded(x, w), layer(x, w), rtol=1e-4, atol=1e-5)
        kernels.add(loaded.build(x.shape, w.shape).image.kernels)
    assert len(kernels) <= 2


def test_a_compiled_file_serves_every_size_without_the_compiler(tmp_path):
    gc.compile(layer).save(tmp_path / "m.gir", gc.spec(("n", 16), "f32"), gc.spec((16, 4), "f32"))
    from graphc.cli import main

    main(["compile", str(tmp_path / "m.gir"), "-o", str(tmp_path / "m.gcx")])
    served, w = gc.load(tmp_path / "m.gcx"), f32(16, 4)
    for n in (20, 33, 64):
        x = f32(n, 16)
        np.testing.assert_allclose(served(x, w), layer(x, w), rtol=1e-4, atol=1e-5)
    with pytest.raises(FeedError):
        served(f32(4, 15), w)
    code = f"""
import sys, numpy as np, graphc as gc
served = gc.load({str(tmp_path / "m.gcx")!r})
print(served(np.ones((33, 16), "f4"), np.ones((16, 4), "f4")).shape)
print(sorted(m for m in sys.modules if m.startswith(("graphc.passes", "graphc.codegen", "llvm"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["(33,)", "[]"]


def test_the_dump_says_which_sizes_are_open(tmp_path):
    named = gc.compile(
        lambda x: x * 2 if x.shape[0] > 3 else x, sizes={"x": ("n", 3)}, dump=tmp_path / "dump"
    )
    named(f32(5, 3))
    assert (
        "sizes n\n   for n > 3 (tests/frontend/test_open_sizes.py:"
        in (tmp_path / "dump/index.txt").read_text()
    )
    assert "f32[n,3]" in (tmp_path / "dump/00-trace.gir").read_text()


@pytest.mark.skipif(not has_masks(host()), reason="versions are for vectors with masks")
def test_the_dump_says_which_versions_short_rows_have(tmp_path):
    rows = gc.compile(lambda x: x / x.sum(1), sizes={"x": ("n", "n")}, dump=tmp_path)
    rows(f32(5, 5))
    text = (tmp_path / "index.txt").read_text()
    assert re.search(r"rows of n: a version for each number of .*vectors of \d+ up to \d+\n", text)


def test_a_size_is_a_result_as_well():
    compiled = gc.compile(lambda x: (x * 2, x.shape, len(x) * 2 + 1))
    for size in (3, 5, 0, 1, 700):
        doubled, shape, odd = compiled(np.ones((size, 2)))
        assert (doubled.shape, (*map(int, shape),), int(odd)) == (
            (size, 2),
            (size, 2),
            2 * size + 1,
        )
    assert len(compiled.compiles) == 2


def test_sizes_compute_like_numbers():
    scope = Scope()
    n, m = scope.symbol("n", 20), scope.symbol("m", 7)
    values = {"n": 20, "m": 7}
    for made in (n * 4 + 64, (n + 15) // 16, -(-n // 8) * 8, n * m - m * n + n % 6):
        assert hint_of(made) == (made.value(values) if hint_of(made) is not made else made)
    assert n + m is m + n
    assert n * 0 == 0
    assert (n * 16) // 4 is n * 4
    assert greatest(n, n + 1) is n + 1
    assert least(n, n + m) is n
    assert hint_of(greatest(n, m * 3)) == 21
    other = {"n": 3, "m": 9}
    assert greatest(n, m * 3).value(other) == 27
    assert (-(-n // 8)).value(other) == 1
    assert not scope.guards
    assert n * m > m
    assert [repr(guard) for guard in scope.guards.values()] == ["n*m > m"]
    assert tensor(F32, (n, 3)).size is n * 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: np.concatenate([x[:2], y[1:-1], x]),
        lambda x, y: x[-3:].sum() + y[::-1][2:] * 2,
        lambda x, y: np.stack([p.sum() for p in np.array_split(x, 3)]) + y[:1].sum(),
    ],
)
def test_arrays_that_are_too_short_for_a_slice_take_one_compilation_more(function):
    made = gc.compile(function)
    for n, m in itertools.product((9, 0, 1, 2, 4, 30), (7, 1, 0, 17, 2, 3)):
        x, y = np.arange(1.0, n + 1), np.arange(2.0, m + 2)
        np.testing.assert_allclose(made(x, y), function(x, y))
    assert len(made.compiles) <= 5


@pytest.mark.parametrize("sizes", [(5, 41, 40), (41, 5), (41, 41)])
def test_an_extent_that_the_size_at_hand_makes_1_is_broadcast(sizes):
    """Its formula has no value but 1 where that is guarded: kernels must not step along it."""
    rows = np.arange(80, dtype="f4").reshape(40, 2)
    parts = [lambda x: x + rows[40 - x.shape[0] :], lambda x: np.exp(x) + rows[x.shape[0] - 42 :]]
    for part in parts:
        made = gc.compile(part, sizes={"x": ("t", 2)})
        for size in sizes:
            x = np.zeros((size, 2), "f4")
            try:
                want = part(x)
            except ValueError:
                with pytest.raises(GraphError):
                    made(x)
            else:
                np.testing.assert_array_equal(made(x), want)


@pytest.mark.slow
def test_systems_of_any_order_take_a_few_compilations():
    def factors(a, b):
        spd = a @ a.T + np.eye(len(a))
        return np.linalg.solve(spd, b), np.linalg.cholesky(spd), np.linalg.det(spd / len(a))

    compiled = gc.compile(factors)
    for n in (3, 5, 40, 1, 9, 17, 100, 4, 6, 33, 129, 2):
        a, b = rng.uniform(-1, 1, (n, n)), rng.uniform(-1, 1, (n, 2))
        for got, expected in zip(compiled(a, b), factors(a, b), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
    assert len(compiled.compiles) <= 5


def test_a_size_may_say_how_much_is_padded():
    compiled = gc.compile(lambda x: np.pad(x, (1, len(x))))
    for n in (3, 5, 2):
        assert compiled(np.ones(n)).tolist() == [0.0] + [1.0] * n + [0.0] * n


def test_no_extent_is_found_beside_one_of_nothing():
    """NumPy raises: any number would do."""
    rows = gc.compile(lambda x, y: y.reshape(-1, len(x)))
    found = gc.compile(lambda x: x[x > 0].reshape(-1, len(x[x > 0])))
    for n in (2, 3):
        assert rows(np.ones(n), np.arange(12.0)).shape == (12 // n, n)
        assert found(np.ones(n)).shape == (1, n)
    for call in (
        lambda: rows(np.ones(0), np.arange(0.0)),
        lambda: rows(np.ones(0), np.arange(12.0)),
        lambda: found(-np.ones(3)),
    ):
        with pytest.raises(GraphError, match="cannot reshape"):
            call()


def padded(x):
    """Up to a multiple of 8, and by as many as there are."""
    x = np.pad(x, ((0, 0), (0, -x.shape[1] % 8)), constant_values=((1, 2), (3, 4)))
    return np.pad(x, ((x.shape[0], 0), (0, 0)))


def summits(x):
    images = x[None, None]
    whole = gc.avg_pool(images, images.shape[2:]) - gc.max_pool(images, images.shape[2:])
    return whole, gc.grad(lambda v: gc.max_pool(v, v.shape[2:]).sum())(images)


def summits_by_numpy(x):
    first = np.zeros(x.size)
    first[x.argmax()] = 1
    return (x.mean() - x.max())[None, None, None, None], first.reshape(1, 1, *x.shape)


@pytest.mark.parametrize(
    ("function", "want", "least"), [(padded, padded, 0), (summits, summits_by_numpy, 1)]
)
def test_pads_and_windows_may_be_as_large_as_open_sizes(function, want, least):
    compiled = gc.compile(function)
    for rows, columns in ((3, 5), (4, 5), (4, 16), (7, 33), (16, 8), (1, 1), (0, 3), (9, 1)):
        if min(rows, columns) < least:
            continue
        x = np.random.default_rng(rows).integers(0, 9, (rows, columns)).astype(float)
        made, wanted = compiled(x), want(x)
        for m, w in zip(made, wanted, strict=True):
            np.testing.assert_allclose(m, w, rtol=1e-12)
    assert len(compiled.compiles) <= 4


def test_any_number_of_slices_has_one_compilation():
    compiled = gc.compile(
        lambda x: gc.vmap(gc.grad(lambda v: (np.sin(v) ** 2).sum()))(x), sizes={"x": ("n", "m")}
    )
    for shape in ((3, 4), (5, 6), (1, 6), (0, 3), (9, 1), (0, 0)):
        x = np.random.default_rng(1).standard_normal(shape)
        np.testing.assert_allclose(compiled(x), np.sin(2 * x), atol=1e-12)
    assert len(compiled.compiles) == 1


def test_writes_may_begin_where_an_open_size_says():
    def written(x):
        y, n = x * 1.0, len(x)
        y[n // 2 :] = 7
        y[n // 3 : n // 2] += 1
        y[::-2] *= 2
        return y

    compiled = gc.compile(written)
    for n in (5, 8, 30, 64, 7, 1, 0, 2, 100):
        x = np.arange(n) * 1.0
        np.testing.assert_array_equal(compiled(x), written(x))
    assert len(compiled.compiles) <= 6


OPERANDS = [
    np.linspace(0.5, 2, 4),
    np.arange(1, 5, dtype=np.int16),
    np.array(2.5),
    np.float32(2.5),
    np.float64(2.5),
    np.int64(3),
    np.array(3),
    np.bool_(True),
    2,
    7.5,
]


@pytest.mark.filterwarnings("ignore::graphc.GraphHint")  # comparisons with floats fix the size
@pytest.mark.parametrize(
    "of",
    [
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
        *(operator.mod, operator.pow, operator.lt, operator.le, operator.gt, operator.ge),
        *(np.maximum, np.minimum, np.hypot),
    ],
    ids=lambda of: of.__name__,
)
def test_numpy_computes_with_sizes_as_with_numbers(of, tmp_path):
    def both(x, operands):
        n = x.shape[0]
        return [part for a in operands for part in (of(a, n), of(n, a))]

    def with_arrays(x):  # comparisons with numbers are conditions of a file
        return both(x, OPERANDS[:2])

    compiled = gc.compile(lambda x: both(x, OPERANDS), sizes={"x": ("n", 2)})
    gc.compile(with_arrays).save(tmp_path / "m.gir", gc.spec(("n", 2), "f32"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    for n in (5, 3, 9):
        x = np.ones((n, 2), np.float32)
        for found, wanted in ((compiled(x), both(x, OPERANDS)), (loaded(x), with_arrays(x))):
            for got, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.filterwarnings("error::graphc.GraphHint")
def test_products_with_a_size_leave_it_open():
    @gc.compile(sizes={"x": ("n", 2)})
    def made(x):
        n = x.shape[0]
        times = np.linspace(0, 1, 5) * n, n * np.float32(2.5), np.float64(2.5) * n
        return *times, np.zeros(np.int64(2) * n), n - 0.5

    for n in (5, 40):
        first, second, third, zeros, less = made(np.ones((n, 2), np.float32))
        np.testing.assert_allclose(first, np.linspace(0, 1, 5) * n)
        assert (second, third, len(zeros), less) == (2.5 * n, 2.5 * n, 2 * n, n - 0.5)
