"""`graphc run --check`, `bisect` and `reduce` of results that are wider than what they were
computed in."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc

X = np.random.default_rng(1).standard_normal((4, 1536)).astype("f4")
W = np.random.default_rng(2).standard_normal((1536, 8)).astype("f4")


@pytest.fixture
def promoted(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    gc.compile(lambda x, w: (x @ w) / np.sqrt(8)).save(tmp_path / "m.gir", X, W)
    return tmp_path / "m.gir"


def test_sums_of_f32_are_not_held_to_f64(promoted, run, tmp_path):
    status, out, _ = run("run", promoted, "--seed", 0, "--check")
    assert status == 0
    assert "float64" in out
    assert run("bisect", promoted, "--seed", 0)[:2] == (0, "nothing differs\n")
    status, _, errors = run("reduce", promoted, "--seed", 0, "-o", tmp_path / "s.gir")
    assert (status, "nothing fails" in errors) == (1, True)


@pytest.mark.parametrize(("wide", "share", "status"), [(1, 1e-6, 3), (0, 1e-6, 0), (0, 1e-3, 3)])
def test_a_fault_of_f64_is_still_seen(promoted, run, monkeypatch, wide, share, status):
    """The same results, of arguments that are cast before they are computed with, or after."""
    from graphc.ops.reference import interpreter

    if wide:
        function = lambda x, w: (x.astype("f8") @ w.astype("f8")) / np.sqrt(8)
        gc.compile(function).save(promoted, X, W)
    right = interpreter.interpret
    wrong = lambda *given, **options: [r + share * abs(r).max() for r in right(*given, **options)]
    monkeypatch.setattr(interpreter, "interpret", wrong)
    assert run("run", promoted, "--seed", 0, "--check")[0] == status


def test_arguments_that_rounding_alone_moves_blame_no_stage(promoted, run):
    """The inverse of a matrix of rank one, but for rounding."""
    function = lambda x: np.linalg.inv(np.outer(x, x) / 3 + np.eye(3) * 1e-14) @ x
    gc.compile(function).save(promoted, np.arange(1.0, 4.0))
    for command in (("run", promoted, "--seed", 0, "--check"), ("bisect", promoted, "--seed", 0)):
        status, _, errors = run(*command)
        assert status == 1, errors
        assert "ill-conditioned" in errors
        assert "--feed" in errors
