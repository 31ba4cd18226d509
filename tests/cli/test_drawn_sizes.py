"""Models with open sizes are measured on arrays that a seed draws, with the sizes of --bind."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.cli.commands import main


@pytest.fixture
def model(tmp_path):
    f = gc.compile(lambda x, w: np.tanh(x @ w).sum(axis=1))
    f.save(tmp_path / "m.gir", gc.spec(("n", 8), "f32"), gc.spec((8, "k"), "f32"))
    np.save(tmp_path / "x.npy", np.ones((4, 8), np.float32))
    return tmp_path / "m.gir"


def status(*arguments):
    try:
        main(list(arguments))
    except SystemExit as left:
        return left.code
    return 0


COMMANDS = {
    "view": ("--runs", "1"),
    "profile": ("--runs", "1"),
    "why": ("--runs", "1"),
    "bisect": (),
    "reduce": ("-o", "small.gir", "--when", "exit 0 of true"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_sizes_are_bound(command, model, monkeypatch, capsys):
    monkeypatch.chdir(model.parent)
    bound = ("--seed", "1", "--bind", "n=4", "--bind", "k=3")
    assert status(command, str(model), *bound, *COMMANDS[command]) == 0, capsys.readouterr()


@pytest.mark.parametrize("command", COMMANDS)
def test_sizes_that_nothing_says_are_asked_for(command, model, monkeypatch, capsys):
    monkeypatch.chdir(model.parent)
    assert status(command, str(model), "--seed", "1", *COMMANDS[command]) == 1
    assert "--bind k=1 --bind n=1" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_sizes_are_those_of_feeds_or_bound(command, model, monkeypatch, capsys):
    monkeypatch.chdir(model.parent)
    fed = (command, str(model), "--feed", "x=x.npy", "--seed", "1", *COMMANDS[command])
    assert status(*fed, "--bind", "k=3") == 0, capsys.readouterr()
    assert status(*fed, "--bind", "k=3", "--bind", "n=4") == 0, capsys.readouterr()
    assert status(*fed) == 1
    assert "write --bind k=1\n" in capsys.readouterr().err
    assert status(*fed, "--bind", "k=3", "--bind", "n=5") == 1
    assert "leave one out" in capsys.readouterr().err


def test_a_run_draws_open_sizes(model, run, tmp_path):
    bound = ("--bind", "n=4", "--bind", "k=3")
    status, out, _ = run("run", model, "--seed", "1", *bound)
    assert status == 0 and "[4]" in out
    status, _, err = run("run", model, "--seed", "1")
    assert status == 1 and "--bind k=1 --bind n=1" in err
    fed = ("--feed", f"x={tmp_path / 'x.npy'}")
    assert run("run", model, "--seed", "1", *fed, *bound)[0] == 0
    f = gc.compile(lambda x, y: x + y)
    f.save(tmp_path / "same.gir", *[gc.spec(("n", 8), "f32")] * 2)
    status, out, _ = run("run", tmp_path / "same.gir", "--seed", "1", *fed)
    assert status == 0 and "[4, 8]" in out, "n is that of x"
    assert run("compile", model, "-o", tmp_path / "m.gcx", *bound)[0] == 0
    status, _, err = run("run", tmp_path / "m.gcx", "--seed", "1", *bound)
    assert status == 1 and "--bind has no effect" in err


def test_a_run_of_given_arrays_takes_no_sizes(model, run, tmp_path):
    np.save(tmp_path / "w.npy", np.ones((8, 3), np.float32))
    given = ("--feed", f"x={tmp_path / 'x.npy'}", "--feed", f"w={tmp_path / 'w.npy'}")
    assert run("run", model, *given)[0] == 0
    status, _, err = run("run", model, *given, "--bind", "n=99")
    assert status == 1 and "leave one out" in err


@pytest.fixture
def ranks(tmp_path):
    """x + y, where the file does not say the rank of x; and a file that passes strings of any rank
    on."""
    onnx = pytest.importorskip("onnx", reason="the onnx package writes ONNX files")
    for name, text in (
        ("sum", "m (float[] x, float[n] y) => (float[] z) { a = Relu (x) z = Add (a, y) }"),
        ("text", "m (string[] x) => (string[] z) { z = Identity (x) }"),
    ):
        head = '<ir_version: 9, opset_import: ["" : 18]> '
        onnx.save(onnx.parser.parse_model(head + text), tmp_path / f"{name}.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "y.npy", np.full(3, 4, np.float32))
    np.save(tmp_path / "t.npy", np.array([["a", "b"]]))
    return tmp_path


def test_a_parameter_without_a_rank_leaves_the_others_their_types(ranks, run):
    fed = [f"--feed={name}={ranks / name}.npy" for name in "xy"]
    status, out, err = run("run", ranks / "sum.onnx", *fed)
    assert status == 0 and "[2, 3]  5 5 5" in out, err
    status, out, err = run("run", ranks / "sum.onnx", fed[0], "--seed", "1", "--bind", "n=3")
    assert status == 0 and "[2, 3]" in out, err
    status, _, err = run("run", ranks / "sum.onnx", *fed, "--bind", "n=4")
    assert status == 1 and "--bind n=4, and the feeds have n=3" in err
    assert repr(gc.load(ranks / "sum.onnx")) == "<graphc loaded graph m(x, y: f32[n])>"


@pytest.mark.parametrize("command", ["run", "profile"])
@pytest.mark.parametrize("file", ["sum", "text"])
def test_what_has_no_rank_is_not_drawn(ranks, run, command, file):
    bound = ("--bind", "n=3") if file == "sum" else ()
    status, _, err = run(command, ranks / f"{file}.onnx", "--seed", "1", *bound)
    assert status == 1 and "no feed for parameter 'x', and no declared type" in err
    assert run("run", ranks / "text.onnx", f"--feed=x={ranks / 't.npy'}")[0] == 0


def test_sizes_do_not_help_where_a_rank_is_missing(ranks, run):
    """They were asked for, and the missing rank was told once they were there."""
    fed = [f"--feed={name}={ranks / name}.npy" for name in "xy"]
    for arguments in (
        ("show",),
        ("show", "--after", "fuse"),
        ("compile", "-o", ranks / "m.gcx"),
        ("compile", "-o", ranks / "m.gcx", "--bind", "n=3"),
        ("bisect", *fed),
        ("run", "--check", *fed),
    ):
        status, _, err = run(arguments[0], ranks / "sum.onnx", *arguments[1:])
        assert status == 1 and "the input 'x' has no declared rank" in err, (arguments, err)
    with pytest.raises(gc.GraphError, match="'x' has no declared rank"):
        gc.load(ranks / "sum.onnx").save(ranks / "m.gir")
