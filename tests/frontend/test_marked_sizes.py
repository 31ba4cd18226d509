"""Saved graphs and compiled files whose sizes no argument says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from effort import slow

import graphc as gc
from graphc.errors import FeedError, GraphError, TraceError
from graphc.frontend.files.marked_sizes import require_readable

rng = np.random.default_rng(11)


def both(x, y):
    found = x[x > 0]
    return found, np.sort(found)[::2], np.outer(found, y[:2])


def grown(x, y):
    """The extents that Python computes are formulas."""
    n = len(x)
    return x[: n // 2] * 2, np.zeros(n // 3 + 1) + y.sum() / n, x[::2].sum()


PROGRAMS = {
    "mask": lambda x, y: (x[x > 0], y[y < 0].sum()),
    "boxes": lambda x, y: np.nonzero(x > 0.1)[0][np.argsort(-x[np.nonzero(x > 0.1)[0]])],
    "distinct": lambda x, y: np.unique(np.round(x), return_counts=True, return_inverse=True),
    "distinct of found": lambda x, y: np.unique(x[x > 0], return_index=True),
    "repeat": lambda x, y: np.repeat(x, (np.abs(x) * 2).astype(int)) * 2,
    "rows": lambda x, y: np.argwhere(x[:, None] > y),
    "twice": lambda x, y: np.sort(x[x > 0])[np.sort(x[x > 0]) < 1],
    "slices": lambda x, y: x[: (x > 0).sum()] + 1,
    "both": both,
    "formulas": grown,
    "gradient": lambda x, y: gc.grad(lambda v: (np.sort(v[v > 0]) ** 2).sum())(x),
    "of a loop": lambda x, y: gc.scan(lambda c, v: (c + v, c), 0.0, x[x > 0])[1],
}


def expected(name, x, y):
    """The results by NumPy, as a list."""
    if name == "gradient":
        return [np.where(x > 0, 2 * x, 0)]
    if name == "of a loop":
        found = x[x > 0]
        return [np.cumsum(found) - found]
    made = PROGRAMS[name](x, y)
    return list(made) if isinstance(made, tuple) else [made]


def cases():
    """Arrays of many sizes: with nothing, something and everything over 0."""
    for n in (8, 0, 1, 2, 7, 200):
        for shift in (-5, 0, 5):
            if n or shift == 0:
                yield rng.standard_normal(n) + shift, rng.standard_normal(3)


def files(name, folder):
    """The program as text and as a compiled file, for any number of elements."""
    path = folder / "m.gir"
    gc.compile(PROGRAMS[name]).save(path, gc.spec(("n",), "f64"), gc.spec((3,), "f64"))
    loaded = gc.load(path)
    loaded.build().save(folder / "m.gcx", path.read_text())
    return loaded, gc.load(folder / "m.gcx")


@pytest.mark.parametrize("name", PROGRAMS)
def test_files_serve_every_size(name, tmp_path):
    text, compiled = files(name, tmp_path)
    for x, y in cases():
        if name == "formulas" and not len(x):
            continue  # the mean of nothing
        want = expected(name, x, y)
        for model in (text, compiled):
            made = model.run([x, y])
            assert [m.shape for m in made] == [w.shape for w in want]
            for m, w in zip(made, want, strict=True):
                np.testing.assert_allclose(m, w, rtol=1e-12, atol=1e-12)
    assert len(text._open.made) <= 2
    again = gc.parse(gc.show(text))
    assert gc.show(again) == gc.show(text)


@pytest.mark.parametrize(
    "asks", [lambda x: len(x) == 3, lambda x: x.shape != (4, 2), lambda x: x.size == x.shape[1] * 3]
)
def test_whether_sizes_are_equal_is_a_condition_of_the_file(asks, tmp_path):
    def function(x):
        return x + 1 if asks(x) else x * 2 - (x.shape[0] == x)

    gc.compile(function).save(tmp_path / "m.gir", gc.spec(("n", 2), "f64"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    for n in (2, 5, 7):
        x = np.arange(2.0 * n).reshape(n, 2)
        np.testing.assert_array_equal(loaded(x), function(x))
    with pytest.raises(GraphError, match="traced for sizes with"):
        [loaded(np.ones((n, 2))) for n in (3, 4)]


@pytest.mark.parametrize(
    "part",
    [
        *(np.s_[:3], np.s_[-3:], np.s_[2:], np.s_[:-2], np.s_[1:-1], np.s_[2:-3], np.s_[3::2]),
        *(np.s_[5:2:-1], np.s_[-1:-4:-1], np.s_[::-2], np.s_[:-4:-2], np.s_[4:1], np.s_[1:3]),
    ],
    ids=str,
)
def test_slices_of_a_file_end_where_the_array_does(part, tmp_path):
    def function(x):
        return x[part] * 2, gc.scan(lambda c, v: (c + v[part].sum(), c), 0.0, np.stack([x, x]))[0]

    gc.compile(function).save(tmp_path / "m.gir", gc.spec(("n",), "f64"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    for n in (0, 1, 2, 3, 4, 5, 9):
        x = np.arange(1.0, n + 1)
        made, total = loaded(x)
        np.testing.assert_array_equal(made, x[part] * 2)
        np.testing.assert_allclose(total, 2 * x[part].sum())
    assert len(loaded._open.made) == 1


def test_a_slice_of_as_many_as_there_surely_are_needs_no_mark(tmp_path):
    gc.compile(lambda x: x[:3] + x[-3:]).save(tmp_path / "m.gir", gc.spec(("n+3",), "f64"))
    assert "  mark " not in (tmp_path / "m.gir").read_text()


def test_unequal_sections_need_no_mark_of_the_rest(tmp_path):
    def function(x):
        return tuple(np.array_split(x, 4))

    gc.compile(function).save(tmp_path / "m.gir", gc.spec(("n",), "f64"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    for n in (0, 1, 3, 4, 6, 7, 41):
        x = np.arange(1.0, n + 1)
        for made, want in zip(loaded(x), function(x), strict=True):
            np.testing.assert_array_equal(made, want)
    assert len(loaded._open.made) == 1


def test_searches_in_arrays_of_any_length_are_saved(tmp_path):
    def function(x, v):
        return np.searchsorted(np.sort(x), v)

    gc.compile(function).save(tmp_path / "m.gir", gc.spec(("n",), "f64"), gc.spec((3,), "f64"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    for n in (0, 1, 7, 100):
        x, v = rng.standard_normal(n), rng.standard_normal(3)
        np.testing.assert_array_equal(loaded(x, v), function(x, v))


REPEATED = [
    lambda x: np.resize(x, 2 * len(x)),
    lambda x: np.resize(x, (len(x) // 2 + 1, 3)),
    lambda x: np.resize(x[None], (7, len(x))),
    lambda x: np.tile(x, len(x)),
]


@pytest.mark.parametrize("function", REPEATED)
def test_a_number_of_elements_is_open_where_numbers_are_taken(function, tmp_path):
    gc.compile(function).save(tmp_path / "m.gir", gc.spec(("n",), "f64"))
    loaded, compiled = gc.load(tmp_path / "m.gir"), gc.compile(function)
    for n in (5, 7, 1, 2, 40):
        x = rng.standard_normal(n)
        for made in (loaded(x), compiled(x)):
            np.testing.assert_array_equal(made, function(x))


def test_as_many_numbers_are_drawn_as_there_are_elements():
    def drawn(x):
        key = gc.random.key(3)
        return gc.random.permutation(key, len(x)), gc.random.uniform(key, len(x))

    made = gc.compile(drawn)
    for n in (5, 7, 40):
        order, numbers = made(np.zeros(n))
        assert sorted(order) == [*range(n)] and numbers.shape == (n,)
    assert len(made.compiles) == 2


@pytest.mark.parametrize("full", [False, slow(True)])
def test_files_of_factors_serve_every_number_of_rows(full, tmp_path):
    def function(x):
        q, r = np.linalg.qr(x, "complete" if full else "reduced")
        u, s, v = np.linalg.svd(x, full_matrices=full)
        k = len(s)
        return q @ r, (u[:, :k] * s) @ v[:k], s, np.linalg.svd(x, compute_uv=False)

    gc.compile(function).save(tmp_path / "m.gir", gc.spec(("n", 4), "f64"))
    loaded: Any = gc.load(tmp_path / "m.gir")
    for n in (0, 1, 3, 4, 5, 40):
        x = rng.standard_normal((n, 4))
        for made, want in zip(loaded(x), function(x), strict=True):
            assert made.shape == want.shape
            np.testing.assert_allclose(made, want, atol=1e-12)


def test_what_text_has_no_type_for_is_refused_before_it_is_written(tmp_path):
    made = gc.compile(lambda x, y: np.convolve(x, y))
    with pytest.raises(GraphError, match="stands for any size"):
        made.save(tmp_path / "m.gir", gc.spec(("n",), "f64"), gc.spec(("m",), "f64"))
    assert not list(tmp_path.iterdir())


def test_a_file_of_images_of_any_height_passes_pools_and_strides(tmp_path):
    def net(x, w):
        h = gc.max_pool(np.maximum(gc.conv(x, w, padding=1), 0), 2)
        return gc.conv(h, w, stride=2, padding=1).mean(axis=(2, 3))

    specs = gc.spec((2, 2, "n", "n+3"), "f64"), gc.spec((2, 2, 3, 3), "f64")
    gc.compile(net).save(tmp_path / "m.gir", *specs)
    loaded: Any = gc.load(tmp_path / "m.gir")
    w = np.random.default_rng(0).standard_normal((2, 2, 3, 3))
    for n in (3, 8, 40):
        x = np.random.default_rng(n).standard_normal((2, 2, n, n + 3))
        np.testing.assert_allclose(loaded(x, w), net(x, w))


def test_a_compiled_file_imports_no_part_of_the_compiler(tmp_path):
    files("both", tmp_path)
    script = (
        "import sys, numpy as np\n"
        "from graphc.runtime.files.gcx_function import load\n"
        "made = load(sys.argv[1])(np.array([3.0, -1.0, 2.0]), np.ones(3))\n"
        "assert made[0].tolist() == [3, 2] and made[1].tolist() == [2], made\n"
        "parts = ('passes', 'codegen', 'frontend', 'ops', 'ir')\n"
        "assert not [m for m in sys.modules if m.startswith(tuple(f'graphc.{p}' for p in parts))]\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "m.gcx")], check=True)


def test_what_python_decided_is_a_condition_of_the_file(tmp_path):
    def function(x):
        return x * 2 if len(x) > 5 else x[x > 0] * 3

    compiled = gc.compile(function)
    compiled.save(tmp_path / "m.gir", gc.spec(("n",), "f64"))
    assert "mark positive" in (tmp_path / "m.gir").read_text()
    model = gc.load(tmp_path / "m.gir")
    np.testing.assert_array_equal(model(np.ones(9)), np.full(9, 2.0))
    with pytest.raises(FeedError, match=r"traced for sizes with n-5 > 0"):
        model(np.ones(4))

    def asks(x):
        found = x[x > 0]
        return found if len(found) > 3 else found * 2

    gc.compile(asks).save(tmp_path / "c.gir", gc.spec(("n",), "f64"))
    for model in (gc.load(tmp_path / "c.gir"),):
        np.testing.assert_array_equal(model(np.ones(9)), np.ones(9))
        with pytest.raises(GraphError, match=r"count0 > 3"):
            model(np.ones(2))


QUESTIONS = {  # of an array with n rows of two and one with m
    "equal": lambda x, y: len(x) == 3,
    "unequal": lambda x, y: x.shape[0] != 3,
    "one of": lambda x, y: x.shape[0] in (3, 4),
    "even": lambda x, y: len(x) % 2 == 0,
    "not below": lambda x, y: max(len(x), 3) == len(x),
    "shape": lambda x, y: x.shape == (3, 2),
    "elements": lambda x, y: x.size == 6,
    "rows alike": lambda x, y: x.shape[0] == y.shape[0],
    "shapes alike": lambda x, y: x.shape == y.shape,
    "as a number of another kind": lambda x, y: len(x) == 3.0 or len(x) == np.int64(4),
    "truth": lambda x, y: bool(x.shape[0] - 3),
    "pattern": lambda x, y: [2.0, 3.0][matched(x.shape)],
    "place in a list": lambda x, y: [3, 4, 5].count(len(x)),
    "of found": lambda x, y: len(x[x[:, 0] > 2]) == 2,
    "kind": lambda x, y: isinstance(x.shape[0], int),
}
VALUES = {
    "elementwise": lambda x, y: (np.arange(5) == len(x)) * 1.0,
    "half": lambda x, y: len(x) * 0.5 - (len(y) - np.float32(2.5)),
    "over": lambda x, y: x.shape[0] / 4 + (0.5 + y.shape[0]),
    "array": lambda x, y: len(x) * np.array([1.5, 2.5]),
}
NUMBERS = {
    "looked up": lambda x, y: {3: 10.0}.get(len(x), 1.0),
    "in a set": lambda x, y: len(x) in {3, 4},
    "in a text": lambda x, y: {"w3": 10.0}.get(f"w{len(x)}", 1.0),
    "of a loop": lambda x, y: sum(i * 1.0 for i in range(len(x))),
    "float": lambda x, y: float(x.shape[0]),
    "index": lambda x, y: [1.0, 2.0, 3.0, 4.0][len(x) % 4],
}


def matched(shape):
    match shape:
        case (3, 2):
            return True
    return False


def asking(question):
    return lambda x, y: x.sum() * 2.0 + question(x, y)


@pytest.mark.parametrize("name", [*QUESTIONS, *VALUES])
def test_what_is_asked_of_a_size_is_answered_right_or_refused(name, tmp_path):
    function = asking((QUESTIONS | VALUES)[name])
    specs = gc.spec(("n", 2), "f64"), gc.spec(("m", 2), "f64")
    gc.compile(function).save(tmp_path / "m.gir", *specs)
    text = gc.load(tmp_path / "m.gir")
    text.build().save(tmp_path / "m.gcx", (tmp_path / "m.gir").read_text())
    held = set()
    for model in (text, gc.load(tmp_path / "m.gcx")):
        for n, m in ((32, 33), (3, 4), (3, 3), (4, 3), (5, 5), (6, 2), (2, 6), (1, 1), (33, 32)):
            x, y = np.arange(1, 2 * n + 1.0).reshape(n, 2), np.ones((m, 2))
            made, refused = result_or_refusal(model, x, y)
            if not refused:
                np.testing.assert_allclose(made, function(x, y), rtol=1e-12)
                held.add((n, m))
            else:
                assert name in QUESTIONS and "test_marked_sizes.py" in refused
    assert held


def result_or_refusal(model, *arrays):
    try:
        return model.run(list(arrays))[0], ""
    except GraphError as error:
        return None, str(error)


@pytest.mark.parametrize("name", NUMBERS)
def test_what_only_a_number_answers_is_refused_for_any_size(name, tmp_path):
    function = gc.compile(asking(NUMBERS[name]))
    specs = gc.spec(("n", 2), "f64"), gc.spec((3, 2), "f64")
    with pytest.raises(TraceError, match=r"n.* stands for any size") as raised:
        function.save(tmp_path / "m.gir", *specs)
    assert raised.value.location[0].endswith("test_marked_sizes.py")
    x = np.ones((3, 2))
    assert function(x, x) == asking(NUMBERS[name])(x, x)


def test_a_graph_of_any_size_has_no_answer_by_the_number():
    function = gc.compile(lambda x: x * 2 if x.shape[0] == 3 else x)
    with pytest.raises(TraceError, match="n stands for any size"):
        function.graph(gc.spec(("n",), "f64"))
    same = gc.compile(lambda x, y: x if x.shape == y.shape else -x)
    n = gc.spec(("n",), "f64")
    assert not same.graph(n, n).nodes


def test_arguments_of_a_compiled_file_are_checked(tmp_path):
    _, model = files("both", tmp_path)
    with pytest.raises(FeedError, match="rank 2"):
        model(np.ones((2, 2)), np.ones(3))
    with pytest.raises(FeedError, match="float64"):
        model(np.ones(4, "f4"), np.ones(3))
    with pytest.raises(FeedError, match=r"\[4\]"):
        model(np.ones(4), np.ones(4))


def test_variables_of_a_compiled_file_are_its_own(tmp_path):
    total = gc.Variable(np.zeros(()), name="marked_total")

    @gc.compile
    def step(x):
        total.assign(total + x[x > 0].sum() + np.sort(x[x > 0]).size)
        return np.sort(x[x > 0])

    step.save(tmp_path / "m.gir", gc.spec(("n",), "f64"))
    loaded = gc.load(tmp_path / "m.gir")
    loaded.build().save(tmp_path / "m.gcx", (tmp_path / "m.gir").read_text())
    compiled = gc.load(tmp_path / "m.gcx")
    for model in (loaded, compiled):
        model(np.array([1.0, -1.0, 2.0]))
        model(np.array([4.0]))
        (home,) = model.containers.values()
        assert gc.variables(home)["marked_total"].value == 10
    assert total.value == 0


def test_a_changed_file_is_an_error_and_no_crash(tmp_path):
    files("both", tmp_path)
    whole = (tmp_path / "m.gcx").read_bytes()
    for place in rng.integers(0, len(whole), 60):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "c.gcx").write_bytes(changed)
        try:
            made = gc.load(tmp_path / "c.gcx")(np.array([3.0, -1.0]), np.ones(3))
        except GraphError:
            continue
        assert made[0].tolist() == [3]


@pytest.mark.parametrize(
    "mark",
    [
        "count.count0 = %0",
        "floor.size9 = %1",
        "positive = %1",
        "count.n = %5",
        "max.size1 = %5, %6",
    ],
)
def test_marks_that_say_nothing_are_refused(mark, tmp_path):
    gc.compile(PROGRAMS["mask"]).save(
        tmp_path / "m.gir", gc.spec(("n",), "f64"), gc.spec((3,), "f64")
    )
    text = (tmp_path / "m.gir").read_text()
    changed = text.replace("  return", f"  mark {mark}\n  return")
    (tmp_path / "m.gir").write_text(changed)
    with pytest.raises(GraphError):
        gc.load(tmp_path / "m.gir")(np.ones(3), np.ones(3))


def marked(formulas: list[tuple[str, list[str]]]) -> str:
    """A graph over x: f32[a], y: f32[b], with formulas of sizes s0, s1, ... that nothing uses."""
    lines, marks, node = ["gir 1", "graph @f(%0 x: f32[a], %1 y: f32[b]) {"], list[str](), 3
    lines.append("  %2 = add(%0, %0) : f32[a]")
    for number, (kind, extents) in enumerate(formulas):
        ids = [f"%{node + k}" for k in range(len(extents))]
        node += len(extents)
        lines += [f"  {i} = extent() {{extent={e}}} : i64[]" for i, e in zip(ids, extents)]
        marks.append(f"  mark {kind}.s{number} = {', '.join(ids)}")
    return "\n".join([*lines, *marks[::-1], "  return %2", "}", ""])


@pytest.mark.slow
def test_a_long_chain_of_formulas_takes_linear_time() -> None:
    chain = [("extent", ["a" if k == 0 else f"s{k - 1}+1"]) for k in range(4000)]
    loaded = gc.LoadedGraph(gc.parse(marked(chain)))
    np.testing.assert_array_equal(loaded(np.ones(3, "f4"), np.ones(2, "f4")), [2, 2, 2])


@pytest.mark.parametrize(
    "formulas",
    [
        [("extent", ["b*b" if k == 0 else f"s{k - 1}*s{k - 1}"]) for k in range(60)],
        [("floor", ["a+b+1", "1"]), ("extent", ["*".join(["s0"] * 60)])],
        [("extent", ["s1+1"]), ("max", ["s0", "a"])],
        [("extent", ["nothing+1"])],
    ],
    ids=["squares", "power", "cycle", "unknown"],
)
def test_formulas_of_a_stranger_are_bounded(formulas: list[tuple[str, list[str]]]) -> None:
    loaded = gc.LoadedGraph(gc.parse(marked(formulas)))
    with pytest.raises(GraphError):
        loaded(np.ones(300, "f4"), np.ones(200, "f4"))
    with pytest.raises(GraphError):
        loaded.build()


def test_a_node_whose_type_no_reader_can_tell_is_refused_with_its_line():
    traced = gc.compile(lambda x, y: x + y).graph(*[gc.spec((8,), "f32")] * 2)
    (node,) = traced.nodes
    opened = gc.compile(lambda x, y: (x * 2, y * 2)).graph(
        gc.spec(("n", 3), "f32"), gc.spec(("n", 4), "f32")
    )
    total = node.replace(inputs=opened.params)
    graph = traced.replace(params=opened.params, nodes=[total], results=(total,))
    refusal = r"add cannot be saved for any size: shapes \[n, 3\] and \[n, 4\] do not"
    with pytest.raises(GraphError, match=refusal) as error:
        require_readable(graph)
    assert "test_marked_sizes.py" in str(error.value) and "say a number" in str(error.value)
    require_readable(traced)
