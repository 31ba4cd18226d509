"""What rounding may move a value by: what the coarsest type allows that it was computed in."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from graphs import random_graphs
from hypothesis import given, settings

import graphc as gc
from graphc.config import Config
from graphc.frontend.diagnosis.bisect import culprit
from graphc.frontend.diagnosis.failing import differs
from graphc.ir.types import Type
from graphc.passes import pipeline
from graphc.passes.compare import TOLERANCE
from graphc.passes.rounding import roundings
from graphc.passes.trial import Trial

F32, F64, F16 = (TOLERANCE[name] for name in ("f32", "f64", "f16"))
X = np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)
W = np.cos(np.arange(30, dtype="f4")).reshape(6, 5)
D = X.astype("f8")


def scanned(x):
    step = lambda total, row: (total + row, total.sum() * np.float64(2))
    return gc.scan(step, np.zeros(6, "f4"), x)[1]


def scanned_wide(x):
    return gc.scan(lambda total, row: (total + row, total / 3), np.zeros(6), x)[1]


CASES = {  # function, arguments, tolerance of its result
    "a product of f32, divided by an f64": (lambda x, w: (x @ w) / np.sqrt(8), (X, W), F32),
    "a sum of f32, times an f64": (lambda x: np.exp(x).sum(1) * np.float64(2), (X,), F32),
    "f32 that is only cast": (lambda x: np.exp(x.astype("f8")), (X,), F64),
    "f32 that is moved and cast": (lambda x: np.exp(x.T[1:].reshape(-1).astype("f8")), (X,), F64),
    "constants in f32": (lambda x: x @ W.astype("f8"), (D,), F64),
    "f64": (lambda x: np.exp(x) / 3, (D,), F64),
    "f64, cast to less between": (lambda x: x.astype("f4").astype("f8") / 3, (D,), F32),
    "f64, cast to f16 between": (lambda x: x.astype("f2").astype("f8") / 3, (D,), F16),
    "f16 in f32": (lambda x: np.exp(x).astype("f4") + 1, (X.astype("f2"),), F16),
    "places of the largest f32": (lambda x: np.exp(x).argmax(1) / 3, (X,), F64),
    "whole numbers": (lambda x: np.exp(x).argmax(1) + 1, (X,), 0.0),
    "a choice by f32 of f64": (lambda x, d: np.where(np.exp(x) > 1, d / 3, d), (X, D), F64),
    "complex of f32": (lambda x: (np.exp(x) * 1j).astype("c16") / 3, (X,), F32),
    "a loop over f32": (scanned, (X,), F32),
    "a loop over f64": (scanned_wide, (D,), F64),
}


def allowed(value) -> float:
    (result,) = value.results
    return max(F64 * (result.type.dtype.name in TOLERANCE), roundings(value)[0][result])


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_as_exact_as_what_it_was_computed_in(name):
    function, arguments, wanted = CASES[name]
    made = gc.compile(function).graph(*arguments)
    assert allowed(made) == wanted
    for stage in pipeline.run(made, Config.create()):
        found = allowed(stage.value)
        assert found >= wanted or name == "f64, cast to less between", stage.name
        assert found == wanted or wanted != F64, stage.name


def test_bfloat16_casts_to_more_without_a_loss():
    x = X.astype(ml_dtypes.bfloat16)
    assert allowed(gc.compile(lambda x: x.astype("f8") / 3).graph(x)) == F64
    assert allowed(gc.compile(lambda x: (x * x).astype("f8") / 3).graph(x)) == TOLERANCE["bf16"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] >= F64])
def test_a_fault_is_seen_where_rounding_does_not_make_it(name):
    """Faults ten times smaller and larger than f32 allows, of the same result."""
    function, arguments, wanted = CASES[name]
    made = gc.compile(function).graph(*arguments)
    trial = Trial(made, list(arguments), {}, Config.create())
    assert not differs(trial)
    assert culprit(trial) is None
    right = trial.interpret(made)
    for share in (F32 / 10, F32 * 10, F16 * 10):
        scale = max(1.0, *(float(np.abs(a).max()) for a in right.values()))
        wrong = {result: a + share * scale for result, a in right.items()}
        found = culprit(trial, wrong)
        assert (found is not None) == (share > wanted), share


def test_a_variable_is_as_exact_as_what_it_is_assigned():
    with gc.container("rounded"):
        strict, loose = gc.Variable(np.zeros(6), name="s"), gc.Variable(np.zeros(6), name="l")

    def step(x):
        strict.assign(strict.value + x[0].astype("f8"))
        loose.assign(loose.value + (x * x).sum(0).astype("f8"))
        return loose.value / 3

    made = gc.compile(step).graph(X)
    values, kept = roundings(made)
    assert kept == {("rounded", "s"): F64, ("rounded", "l"): F32}
    assert values[made.results[0]] == F32
    gc.reset_container("rounded")


@given(random_graphs())
@settings(max_examples=30, deadline=None)
def test_no_value_is_more_exact_than_what_it_is_computed_of(made):
    """Moved along every edge between floats, and at most what the coarsest type there allows."""
    values, _ = roundings(made)
    types = [n.type.dtype.name for n in (*made.params, *made.nodes) if isinstance(n.type, Type)]
    most = max(TOLERANCE.get(name, 0.0) for name in types)
    for node in made.nodes:
        assert values[node] <= most
        if isinstance(node.type, Type) and node.type.dtype.name in TOLERANCE:
            assert all(values[node] >= values[n] for n in node.inputs)
        elif isinstance(node.type, Type):
            assert values[node] == 0
