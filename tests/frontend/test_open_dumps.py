"""Dumped stages of programs that leave sizes open: each is text that is read, run and compared."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import numpy as np
import pytest
from open_graphs import EXAMPLES, SIZES, open_graph
from open_sizes import Template, wrong

import graphc as gc
from graphc.cli.commands import main
from graphc.errors import FeedError, GraphError, VerifyError
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.files.marked_sizes import marking
from graphc.ir.place import parse_place
from graphc.ir.sizes import Scope
from graphc.ir.specialise import specialise
from graphc.ops.reference.interpreter import interpret

rng = np.random.default_rng(12)


def strided(x: Any, w: Any) -> Any:
    return np.tanh(x[::2] @ w), x[: len(x) // 3].sum(axis=1)


def decided(x: Any, w: Any) -> Any:
    return (x * 2 if len(x) > 3 else x) @ w, np.pad(x, ((1, 2), (0, 0)))


def gradient(x: Any, w: Any) -> Any:
    return gc.grad(lambda v: (np.tanh(v[::2] @ w) ** 2).sum())(x)


def loop(x: Any, w: Any) -> Any:
    return gc.scan(lambda c, row: (np.tanh(c + row @ w), c.sum()), np.zeros(4, np.float32), x)


FUNCTIONS = {f.__name__: f for f in (strided, decided, gradient, loop)}


def arguments(n: int) -> list[Any]:
    return [rng.standard_normal(s).astype(np.float32) for s in ((n, 8), (8, 4))]


def flat(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_stage_of_an_open_program_is_read_and_run(name, tmp_path):
    function = gc.compile(FUNCTIONS[name], sizes={"x": ("n", 8)}, dump=tmp_path)
    function(*arguments(6))
    exact = gc.compile(FUNCTIONS[name], sizes="exact")
    paths = sorted(tmp_path.glob("*.gir"))
    assert paths[-1].name.endswith("-plan.gir")
    for path in paths:
        loaded = gc.load(path)
        body = path.read_text().partition("\n")[2]
        assert body.startswith(gc.show(loaded)[:200]) and gc.show(gc.parse(body)) == body
        for n in (6, 7, 20):
            given = arguments(n)
            for got, want in zip(loaded.run(given), flat(exact(*given)), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_size_has_one_name_in_all_stages_and_one_node_says_what_it_is(tmp_path):
    gc.compile(strided, sizes={"x": ("n", 8)}, dump=tmp_path)(*arguments(6))
    said = [
        {line for line in path.read_text().splitlines() if re.match(r" *mark \w+\.size0", line)}
        for path in sorted(tmp_path.glob("*.gir"))
    ]
    assert len({line.strip() for lines in said for line in lines}) == 1
    plan = next(tmp_path.glob("*-plan.gir")).read_text()
    assert re.search(r"\[p0\+0:\(32\*n\)\]", plan)


def test_what_was_decided_holds_for_its_dump(tmp_path):
    gc.compile(decided, sizes={"x": ("n", 8)}, dump=tmp_path)(*arguments(6))
    for path in tmp_path.glob("*.gir"):
        with pytest.raises(FeedError, match="traced for sizes with"):
            gc.load(path).run(arguments(2))


def test_a_cut_graph_and_its_phases_are_run(tmp_path):
    gc.compile(lambda x: (np.sort(x[x > 0]) * 2, x.sum()), dump=tmp_path)(rng.standard_normal(9))
    x = rng.standard_normal(9)
    cut = gc.load(next(tmp_path.glob("*-cut_phases.gir")))
    for got, want in zip(cut.run([x]), (np.sort(x[x > 0]) * 2, x.sum()), strict=False):
        np.testing.assert_allclose(got, want)
    last = gc.load(next(tmp_path.glob("03-*/*-plan.gir")))
    assert last.params[-1] == "count0"  # its length says the size
    arrays = {"f64": np.arange(9.0), "bool": np.arange(9) % 4 == 3}
    *given, _ = (arrays[kind.dtype.name] for kind in last.types)
    (found,) = last.run([*given, np.zeros(2, bool)])
    np.testing.assert_array_equal(found, [6.0, 14.0])


def test_the_commands_take_a_dump_with_open_sizes(tmp_path, capsys):
    gc.compile(strided, sizes={"x": ("n", 8)}, dump=tmp_path / "d")(*arguments(6))
    np.savez(tmp_path / "x.npz", x=arguments(7)[0], w=arguments(7)[1])
    fused, planned = (str(next((tmp_path / "d").glob(f"*-{s}.gir"))) for s in ("fuse", "plan"))
    feeds = [f"--feed={name}={tmp_path / 'x.npz'}" for name in ("x", "w")]
    assert not main(["run", planned, *feeds])
    assert "[4, 4]" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="3"):
        main(["diff", fused, planned])
    assert not main(["show", planned])
    assert not main(["view", str(tmp_path / "d"), "-o", str(tmp_path / "d.html")])


def centred(x: Any, w: Any) -> Any:
    """A product whose rows the kernel finishes."""
    sums = x @ w
    return np.exp(sums - sums.max(axis=1, keepdims=True))


def test_a_fusion_is_run_for_rows_that_are_shorter_or_longer_than_what_is_fused_by_itself(tmp_path):
    sizes = {"x": ("n", 8), "w": (8, "m")}
    gc.compile(centred, sizes=sizes, dump=tmp_path)(np.ones((40, 8), "f4"), np.ones((8, 40), "f4"))
    loaded = gc.load(next(tmp_path.glob("*-fuse.gir")))
    assert (tmp_path / "index.txt").exists() and gc.show(loaded).count("fused(") == 1
    for n, m in ((1, 2), (3, 3), (40, 5), (2, 40), (3, 1500)):
        x, w = (rng.standard_normal(s).astype(np.float32) for s in ((n, 8), (8, m)))
        np.testing.assert_allclose(loaded(x, w), centred(x, w), rtol=1e-4, atol=1e-6)


def shares(x: Any, w: Any) -> Any:
    """Of each row, what an element is more than the sum."""
    sums = x @ w
    return np.exp(sums - sums.sum(axis=1, keepdims=True))


def shares_and_sums(x: Any, w: Any) -> Any:
    """Four results, one of them the product itself, and one a number for each row."""
    sums = x @ w
    totals = sums.sum(axis=1, keepdims=True)
    return sums - totals, sums, sums + totals * 2, totals + 1


@pytest.mark.parametrize("function", [shares, shares_and_sums])
def test_a_fusion_is_run_for_rows_of_one_element_and_of_none(tmp_path, function):
    sizes = {"x": ("n", 8), "w": (8, "m")}
    gc.compile(function, sizes=sizes, dump=tmp_path)(np.ones((40, 8), "f4"), np.ones((8, 40), "f4"))
    for stage in ("fuse", "plan"):
        loaded = gc.load(next(tmp_path.glob(f"*-{stage}.gir")))
        assert gc.show(loaded).count("= fused(") == 1
        for n, m in ((1, 1), (5, 1), (40, 1), (0, 1), (0, 0), (0, 5), (5, 0)):
            x, w = (rng.standard_normal(s).astype(np.float32) for s in ((n, 8), (8, m)))
            wanted, made = function(x, w), loaded(x, w)
            several = isinstance(wanted, tuple)
            for one, other in zip(made if several else [made], wanted if several else [wanted]):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("number", range(24))
def test_stages_of_random_open_programs_are_read_and_run(number):
    check_stages(number, 3)


def check_stages(number: int, stages: int) -> int:
    """Read and run some of the stages of a program; how many runs were compared."""
    graph, chance = open_graph(number), random.Random(number)
    names = {s for p in graph.params for s in p.type.symbols()}
    scope, example = Scope(), EXAMPLES[number % len(EXAMPLES)]
    binding = {s: scope.symbol(s, e) for s, e in zip("nm", example, strict=True) if s in names}
    try:
        made = Template(specialise(graph, binding), scope, opt=2, threads=1)
    except (GraphError, KeyError):
        return 0  # it needs a number, or a size that no array says
    if made.formulas is None:
        return 0
    records = [r for r in made.built.stages if r is made.built.stages[0] or r.note != "no change"]
    mark, runs = marking([r.value for r in made.built.stages]), 0
    for record in chance.sample(records, min(stages, len(records))):
        text = gc.show(mark(record.value))
        read = gc.parse(text)
        assert gc.show(read) == text
        loaded = LoadedGraph(read, stage=record.name)
        for sizes in chance.sample(SIZES, 2):
            runs += compared(made, loaded, graph, dict(zip("nm", sizes, strict=True)))
    return runs


def compared(made: Template, loaded: LoadedGraph, graph: Any, sizes: dict[str, int]) -> int:
    """Run a stage that was read for these sizes, where the compilation serves them."""
    try:
        exact = specialise(graph, sizes)
    except GraphError:  # the greatest of nothing
        return 0
    arrays = [rng.uniform(-2, 2, p.type.dims).astype(np.float32) for p in exact.params]
    if made.formulas.fits([a.shape for a in arrays]) is None:
        return 0
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            got = loaded.run(arrays)
        except VerifyError as error:
            if "cannot run as it is fused" in str(error) and min(sizes.values()) < 2:
                return 0  # where extents are alike by chance, the rows are others
            raise
        assert not wrong(got, interpret(exact, arrays)), (sizes, loaded.stage)
    return 1


@pytest.mark.parametrize(
    "text",
    ["(n", "(2*)", "(n n)", "()", "(+)", "(n-)", "(2**n)", "(n/2)", f"({'n*' * 600}n)", "(1.5)"],
)
def test_formulas_of_memory_that_say_nothing_are_refused(text):
    with pytest.raises(GraphError):
        parse_place(f"cpu:0[{text}:64]")
    assert str(parse_place("cpu:0[c+(n*m-2*n+64):(4*n)]")).endswith("[c+(m*n-2*n+64):(4*n)]")
