"""Saved graphs and compiled files whose sizes no argument says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import graphc as gc
from graphc.errors import FeedError, GraphError

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
