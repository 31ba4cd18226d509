"""`graphc bisect`, `graphc reduce` and `graphc show --rewrites`, as users run them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from planted_bugs import BUGS, forget
from viewer_pages import data_of

import graphc as gc
from graphc.runtime.files import gcx_writer

X = np.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    gc.compile(lambda x: (np.tanh(x * 2.0) * 1.0, x.sum())).save(tmp_path / "m.gir", X)
    np.savez(tmp_path / "in.npz", x=X)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path
    forget()


@pytest.fixture
def planted(monkeypatch):
    next(bug for bug in BUGS if bug.name == "two_is_a_unit").planted(monkeypatch)


def test_nothing_differs(folder, run):
    model = ("bisect", folder / "m.gir")
    assert run(*model, "--feed", folder / "in.npz")[:2] == (0, "nothing differs\n")
    status, out, _ = run(*model, "--seed", 0, "--against", "opt=0", "--json")
    assert (status, json.loads(out)) == (0, {"differs": False})


def test_what_differs(folder, run, planted):
    written = folder / "test_found.py"
    model = ("bisect", folder / "m.gir", "--feed", folder / "in.npz")
    status, out, _ = run(*model, "-o", written)
    assert status == 3
    assert out.startswith("simplify makes a result differ, by rewrite 1 of 2")
    assert "test_diagnosis_commands.py:" in out
    assert written.read_text() in out
    status, out, _ = run(*model, "--json")
    found = json.loads(out)
    assert (status, found["stage"], found["rewrite"]) == (3, "simplify", 1)
    assert found["difference"]["ulps"] > 0
    assert found["nodes"] == 2
    status, out, _ = run(*model, "--no-reduce", "--against", "opt=0")
    assert status == 3
    assert "smallest" not in out


def test_reduced(folder, run, planted):
    small = folder / "small.gir"
    model = ("reduce", folder / "m.gir", "--feed", folder / "in.npz", "-o", small)
    status, out, _ = run(*model)
    assert status == 0
    assert " -> 2 nodes" in out
    check = ("bisect", small, "--feed", folder / "small.npz", "--no-reduce")
    assert run(*check)[0] == 3
    keeps_sums = "import sys; sys.exit(4 * ('sum' in open(sys.argv[1]).read()))"
    command = f'exit 4 of {sys.executable} -S -c "{keeps_sums}" {{model}}'
    status, out, _ = run(*model, "--when", command, "--json")
    assert (status, json.loads(out)["nodes"]) == (0, 1)


@pytest.mark.slow
def test_a_crash_is_reduced(folder, run, monkeypatch):
    next(bug for bug in BUGS if bug.name == "everything_lies_at_one_place").planted(monkeypatch)
    gc.compile(lambda x: np.tanh(x @ x.T) @ x).save(folder / "m.gir", X)
    found = run(
        "reduce", folder / "m.gir", "--seed", 1, "-o", folder / "s.gir", "--when", "crashes"
    )
    assert found[0] == 0, found
    assert "matmul" in found[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bisect", "m.gir"), "no feed"),
        (("bisect", "m.gir", "--seed", 0, "--against", "nosuch=1"), "no option 'nosuch'"),
        (("bisect", "m.gir", "--seed", 0, "--against", "opt"), "is no option"),
        (("bisect", "m.gir", "--feed", "other.npz"), "cannot read"),
        (("reduce", "m.gir", "--seed", 0, "-o", "s.txt"), "name it .gir"),
        (("reduce", "m.gir", "--seed", 0, "-o", "s.gir"), "nothing fails"),
        (("reduce", "m.gir", "--seed", 0, "-o", "s.gir", "--when", "crashes"), "nothing fails"),
        (("reduce", "m.gir", "--seed", 0, "-o", "s.gir", "--when", "odd"), "not understood"),
        (("show", "m.gir", "--rewrites", 3), "--after"),
        (("show", "m.gir", "--rewrites", 3, "--after", "nosuch"), "no stage"),
    ],
)
def test_wrong_input_is_one_message(folder, run, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    status, _, error = run(*arguments)
    assert status == 1
    assert message in error
    assert "Traceback" not in error


def test_a_pass_stops_at_a_rewrite(folder, run):
    show = ("show", folder / "m.gir", "--after", "simplify")
    texts = [run(*show, "--rewrites", n)[1].count("= mul(") for n in (0, 1)]
    assert texts == [2, 1]


def test_why(folder, run):
    status, out, _ = run("why", folder / "m.gir")
    assert status == 0
    assert "expected by the cost model" in out
    assert out.count("?\n") == 3
    status, out, _ = run("why", folder / "m.gir", "tanh", "--seed", 0, "--runs", 1, "--json")
    answers = json.loads(out)
    assert (status, answers[0]["answer"][:14]) == (0, "it is computed")
    assert "bound by" in answers[-1]["answer"]
    status, _, error = run("why", folder / "m.gir", "nosuch")
    assert (status, "no node 'nosuch'" in error) == (1, True)


def test_profile(folder, run):
    flame = folder / "compile.json"
    status, out, _ = run("profile", folder / "m.gir", "--runs", 1, "--compile-time", flame)
    assert status == 0
    assert "tanh" in out
    assert "test_diagnosis_commands.py:" in out
    found = json.loads(flame.read_text())
    names = [frame["name"] for frame in found["shared"]["frames"]]
    assert {"passes", "simplify", "fuse", "code"} <= set(names)
    opened = []
    (profile,) = found["profiles"]
    for event in profile["events"]:  # each closes what was opened last
        if event["type"] == "O":
            opened.append(event["frame"])
        else:
            assert opened.pop() == event["frame"]
    assert not opened
    times = [event["at"] for event in profile["events"]]
    assert times == sorted(times)
    assert times[-1] == profile["endValue"]
    status, out, _ = run("profile", folder / "m.gir", "--feed", folder / "in.npz", "--json")
    rows = json.loads(out)["kernels"]
    assert status == 0
    assert all(row["seconds"] > 0 for row in rows)
    assert run("profile", folder / "m.gir", "--compile-time", folder / "no" / "x.json")[0] == 1


def test_recorded_and_replayed(folder, run, monkeypatch):
    from graphc.runtime.observe import replay

    def two(x):
        with gc.device("cpu:1"):
            y = np.tanh(x)
        with gc.device("cpu:0"):
            return y + x

    devices = ("--devices", "cpu:0,cpu:1")
    gc.compile(two, devices=["cpu:0", "cpu:1"]).save(folder / "two.gir", X)
    file = folder / "run.json"
    model = ("record", folder / "two.gir", "--feed", folder / "in.npz", "-o", file, *devices)
    assert run(*model)[0] == 0
    status, out, _ = run(*model, "--orders", 5)
    assert status == 0 and out.startswith("5 orders, all with the same bits")
    page = folder / "run.html"
    again = ("replay", folder / "two.gir", file, *devices, "--times", 4)
    status, out, _ = run(*again, "--trace", page)
    assert (status, out) == (0, "4 of 4 runs ended as the recorded one\n")
    assert "cpu:1" in json.dumps(data_of(page.read_text()))
    status, out, _ = run(*again, "--feed", "x=2.0", "--json")
    assert status == 1  # another shape is another program, or none
    np.savez(folder / "other.npz", x=X + 1)
    assert run(*again, "--feed", folder / "other.npz")[0] == 3
    assert run("replay", folder / "two.gir", folder / "in.npz", *devices)[0] == 1
    assert run("record", folder / "two.gir", "-o", folder / "no" / "r.json", *devices)[0] == 1
    gc.compile(two, devices=["cpu:0", "cpu:1"]).save(folder / "open.gir", gc.spec(("n", 4)))
    kept = folder / "drawn.json"
    drawn = ("record", folder / "open.gir", "--bind", "n=3", "-o", kept, *devices)
    assert run(*drawn)[0] == 0 and run("replay", folder / "open.gir", kept, *devices)[0] == 0
    assert run(*drawn, "--bind", "m=3")[0] == 1
    assert run(*drawn, "--feed", folder / "in.npz")[0] == 1
    draws = iter(range(9))
    monkeypatch.setattr(replay, "digest_of_array", lambda array: str(next(draws)))
    status, out, _ = run(*model, "--orders", 5)
    assert status == 3 and out.startswith("order 2 makes other bits of result 0")


def test_sizes_that_the_data_decides_are_measured(folder, run):
    """Such a program is several that run one after the other; a profile ended in a traceback, and
    `bench` asked for what the command line has no word for."""
    gc.compile(lambda x: np.cumsum(x[x > 0])).save(folder / "d.gir", gc.spec(("n",), "f32"))
    status, out, _ = run("profile", folder / "d.gir", "--bind", "n=5", "--runs", 1, "--json")
    kernels = " ".join(row["kernel"] for row in json.loads(out)["kernels"])
    assert (status, "nonzero" in kernels, "gather" in kernels) == (0, True, True)
    status, out, _ = run("bench", folder / "d.gir", "--bind", "n=5", "--seconds", 0.01)
    assert (status, "median" in out) == (0, True)
    trace = ("--trace", folder / "t.json")
    status, _, error = run("run", folder / "d.gir", "--seed", 0, "--bind", "n=5", *trace)
    assert (status, "no timeline" in error) == (1, True)


def test_open_sizes_are_told_in_numbers(folder, run):
    gc.compile(lambda x: np.tanh(x @ x.T)).save(folder / "o.gir", gc.spec(("n", 3), "f32"))
    status, out, _ = run("why", folder / "o.gir")
    assert (status, "with n = 32" in out, "f32[32,32]" in out) == (0, True, True)
    assert "n," not in out
    for stage in ("simplify", "fuse"):  # it asked for sizes
        status, out, _ = run("show", folder / "o.gir", "--after", stage)
        assert (status, "f32[n,3]" in out) == (0, True)


def test_a_program_without_its_graph(folder, run):
    image = gc.load(folder / "m.gir").build().executable.image
    gcx_writer.save(image, folder / "m.gcx")
    for command in ("show", "why", "bench"):
        status, _, error = run(command, folder / "m.gcx")
        assert (status, "m.gcx holds a program without its graph" in error) == (1, True)


def test_programs_that_run_often_do_not_print_each_time(folder, run):
    """`bench` printed hundreds of times, and what --json printed was no JSON."""

    def told(x):
        gc.print("x is {}", x.sum())
        return np.tanh(x)

    gc.compile(told).save(folder / "p.gir", X)
    often = ["bench", "bisect", "profile", "why"]
    for command, *more in (*zip(often), ("bench", "--reference"), ("profile", "--runs", 2)):
        given = ("--seconds", 0.01) if command == "bench" else ("--seed", 0)
        status, out, _ = run(command, folder / "p.gir", *given, *more, "--json")
        assert status == 0
        json.loads(out)
    assert run("run", folder / "p.gir", "--seed", 0, "--check")[1].count("x is") == 1


def test_what_a_program_prints_is_not_in_its_json(tmp_path, run):
    def f(x):
        gc.print("x is {}", x.sum())
        return x * 2

    model, kept = tmp_path / "p.gir", tmp_path / "run.json"
    gc.compile(f).save(model, gc.spec((3,), "f32"))
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    feed = f"--feed=x={tmp_path / 'x.npy'}"
    for more in ((), ("--check",), ("--trace", tmp_path / "t.json")):
        status, out, err = run("run", model, feed, *more)
        assert status == 0 and "x is 3" in out and err == ""
        status, out, err = run("run", model, feed, *more, "--json")
        assert status == 0 and "x is 3" in err
        assert json.loads(out)["results"][0]["values"] == [2, 2, 2]
    for command, *more in (
        ("record", model, feed, "-o", kept),
        ("replay", model, kept),
        ("view", model, feed, "--runs", 2, "-o", tmp_path / "p.html"),
    ):
        status, out, err = run(command, *more, "--json")
        assert status == 0 and "x is 3" in err, (command, err)
        json.loads(out)


def test_some_rewrites_of_a_pass_on_open_sizes(tmp_path, run):
    """They were refused for want of numbers, where the whole pass was shown."""
    half = gc.compile(lambda x: np.tanh(x[: x.shape[0] // 2] * 2 + 1).sum(axis=1))
    half.save(tmp_path / "marked.gir", gc.spec(("n", 4), "f32"))
    gc.compile(lambda x: np.tanh(x * 2 + 1).sum(axis=1)).save(
        tmp_path / "open.gir", gc.spec(("n", 4), "f32")
    )
    for name in ("marked.gir", "open.gir"):
        shown = ["show", tmp_path / name, "--after", "fuse"]
        whole, many, none = (
            run(*shown, *more) for more in ((), ("--rewrites", 99), ("--rewrites", 0))
        )
        assert whole == many and whole[0] == none[0] == 0
        assert whole[1].count("fused") < none[1].count("fused")
        assert "f32[n,4]" in none[1]
