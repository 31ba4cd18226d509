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
