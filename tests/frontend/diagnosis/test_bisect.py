"""Bisection: planted bugs are found by stage and rewrite, nothing else is, and what is found is
reduced to a few nodes."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from control_graphs import control_graphs, whole_numbers
from device_graphs import at_random, config, simplified
from graphs import arguments, graph, random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_bugs import BUGS, forget
from state_programs import program

import graphc as gc
from graphc.base.record import replace
from graphc.config import Config
from graphc.frontend.compile.build import build
from graphc.frontend.diagnosis.bisect import after_rewrites, culprit, same
from graphc.frontend.diagnosis.kernels import wrong_kernels
from graphc.frontend.diagnosis.reduce import reduced
from graphc.frontend.diagnosis.report import is_small, test_file, written
from graphc.ir.graph import rebuild
from graphc.ir.op import OPS
from graphc.ir.rewrites import counting
from graphc.passes import pipeline
from graphc.passes.compare import first_difference, ulps
from graphc.passes.memory import arena
from graphc.passes.memory import plan as plan_module
from graphc.passes.trial import Trial, disagreement

LOG = 10  # of the most rewrites of a stage in these programs, and a few runs more


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Wrong kernels go to no cache that another test reads."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    yield
    forget()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_and_reduced(bug, own_cache, monkeypatch):
    trial = bug.trial()
    with monkeypatch.context() as patch:
        bug.planted(patch)
        found = culprit(trial)
        assert found is not None
        assert (found.stage, found.symptom) == (bug.stage, bug.symptom)
        assert found.node is not None
        assert found.node.op.name == bug.op
        assert found.location is not None
        assert found.location[0].endswith("planted_bugs.py")
        assert found.runs <= len(pipeline.STAGES) + LOG
        smallest = reduced(trial, lambda candidate: same(candidate, found))
        assert len(smallest.value) <= max(2, min(5, len(trial.value)))
        assert is_small(smallest)
        written: dict = {}
        exec(test_file(smallest, found, bug.options), written)
        (test,) = (value for name, value in written.items() if name.startswith("test_"))
        gc.reset_container("planted")
        with pytest.raises(AssertionError, match=f"^{bug.stage} "):
            test()
    gc.reset_container("planted")
    forget()
    test()


def test_enough_bugs_are_planted():
    assert len(BUGS) >= 20
    assert {bug.stage for bug in BUGS} >= {"codegen", "plan", "schedule", "partition", "simplify"}


def clean(trial):
    assert culprit(trial) is None
    planned = pipeline.run(trial.value, trial.config, trial.stage)[-1].value
    assert not [found for found in wrong_kernels(trial, planned) if found[2] is not None]


@given(random_graphs(), st.integers(0, 100))
@settings(max_examples=8, deadline=None)
def test_nothing_is_found_in_a_right_program(made, seed):
    clean(Trial(made, arguments(made), {}, Config.create()))
    spread = at_random(simplified(made), seed, 3)
    clean(Trial(spread, arguments(made), {}, config(3), "place"))


@given(control_graphs())
@settings(max_examples=8, deadline=None)
def test_nothing_is_found_in_control_flow(made):
    clean(Trial(made, whole_numbers(made), {}, Config.create()))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_found_in_programs_with_variables(seed):
    rng = np.random.default_rng(seed)
    start = rng.normal(size=(5, 6, 6))
    with gc.container(f"bisected_{seed}"):
        variables = [gc.Variable(a, name=f"v{k}") for k, a in enumerate(start[:3])]
    made = gc.compile(program(seed, variables)).graph(*start[3:])
    assert gc.bisect(made, list(start[3:])) is None
    assert all((v.value == a).all() for v, a in zip(variables, start[:3]))
    gc.reset_container(f"bisected_{seed}")


@given(random_graphs(), st.data())
@settings(max_examples=15, deadline=None)
def test_any_number_of_rewrites_computes_the_same(made, data):
    trial = Trial(made, arguments(made), {}, Config.create())
    wanted = trial.interpret(made)
    stages = pipeline.run(made, trial.config)
    for before, after in pairwise(stages):
        stage = pipeline.STAGES[pipeline.stage_named(after.name)]
        with counting() as rewrites:
            pipeline.step(stage, before.value, trial.config)
        limit = data.draw(st.integers(0, len(rewrites.nodes)))
        with counting(limit):
            part = pipeline.step(stage, before.value, trial.config).value
        assert disagreement(trial, part, wanted) is None, (stage.name, limit)


def decided(x, w):
    """Kernels to merge, memory to use again, and devices to choose from."""
    h = np.tanh(x @ w) * 2 + 1
    for k in range(3):
        h = np.exp(-abs(h - h.sum(axis=1, keepdims=True) / (k + 2))) @ w
    return h.sum(axis=0), np.tanh(h) - 1


def apart(x, w):
    """Two branches for two devices."""
    a, b = x, x
    for _ in range(3):
        a, b = np.tanh(a @ w), np.exp(-abs(b @ w))
    return a + b


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "program", "size"),
    [("place", apart, 256), ("partition", apart, 256), ("fuse", decided, 8), ("plan", decided, 8)],
)
def test_any_number_of_decisions_computes_the_same(stage, program, size):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(size, size)) / size for _ in range(2)]
    devices = ("cpu:0", "cpu:1") if stage in ("place", "partition") else ("cpu:0",)
    config = Config.create(devices=devices)
    trial = Trial(gc.compile(program).graph(*arrays), arrays, {}, config)
    stages = pipeline.run(trial.value, config)
    at = next(k for k, each in enumerate(stages) if each.name == stage)
    entry = pipeline.STAGES[pipeline.stage_named(stage)]
    with counting() as rewrites:
        whole = pipeline.step(entry, stages[at - 1].value, config).value
    assert gc.show(whole) == gc.show(stages[at].value)
    wanted, seen = trial.interpret(trial.value), set()
    for limit in range(len(rewrites.nodes) + 1):
        part = after_rewrites(trial.value, config, stage, limit)
        if gc.show(part) not in seen:
            seen.add(gc.show(part))
            run = build(part, config, stage=stage).executable
            assert first_difference(trial.named(run.run(arrays), {}), wanted) is None, limit
    assert len(seen) > (1 if stage == "place" else len(rewrites.nodes) // 2)


def memory_in_use(patch):
    """The plan gives out memory that somebody still reads."""
    take = arena.Arena.take

    def taken(self, nbytes, messages=0, reuse=arena.always):
        in_use = self.top > 2 * nbytes and reuse()
        return 0 if in_use else take(self, nbytes, messages, reuse)

    patch.setattr(arena.Arena, "take", taken)
    patch.setattr(plan_module, "by_halves", lambda graph, config: None)


def long_kernels(patch):
    """Kernels of more than five nodes add what they should subtract."""

    def change(node, r):
        if not (node.op.traits.kernel and len(node.regions[0].nodes) > 5):
            return None
        wrong = rebuild(
            node.regions[0],
            lambda n, inner: inner.emit(OPS["add"], n.inputs) if n.op.name == "sub" else None,
        )
        return r.emit(node.op, node.inputs, node.attrs, regions=(wrong,), loc=node.loc)

    stages = list(pipeline.STAGES)
    at = pipeline.stage_named("fuse")

    def broken(graph, config):
        made = stages[at].run(graph, config)
        with counting():  # of its own: only what the stage decides has ordinals
            return rebuild(made, change)

    broken.__module__ = stages[at].run.__module__
    wrong = replace(stages[at], rewrite=broken, name="fuse")
    patch.setattr(pipeline, "STAGES", (*stages[:at], wrong, *stages[at + 1 :]))


@pytest.mark.parametrize(
    ("stage", "plant"), [("plan", memory_in_use), ("fuse", long_kernels)], ids=["plan", "fuse"]
)
def test_a_wrong_decision_is_numbered(stage, plant, monkeypatch, own_cache):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(8, 8)) for _ in range(2)]
    made = gc.compile(decided).graph(*arrays)
    with monkeypatch.context() as patch:
        plant(patch)
        found = gc.bisect(made, arrays)
    assert found is not None and found.stage == stage, found
    assert 0 < found.rewrite <= found.rewrites, found


def test_a_stage_stops_at_a_rewrite():
    made = graph("%2 = neg(%0) : f32[4]\n%3 = neg(%2) : f32[4]\n%4 = neg(%3) : f32[4]")
    counts = [len(after_rewrites(made, Config.create(), "dce", n)) for n in range(3)]
    whole = after_rewrites(made, Config.create(), "simplify", 0)
    assert [node.inputs[0].id for node in whole.nodes] == [0, 2, 3]
    assert counts == sorted(counts, reverse=True)
    with pytest.raises(gc.GraphError, match="does not run"):
        after_rewrites(made, Config.create(opt=0), "simplify", 1)


def test_other_options_are_compared_with():
    made = gc.compile(lambda x: np.tanh(x).sum()).graph(gc.spec((9,), "f4"))
    x = np.arange(9, dtype="f4")
    assert gc.bisect(made, {"x": x}, against={"opt": 0}) is None
    with pytest.raises(gc.GraphError, match=r"x is f64"):
        gc.bisect(made, [x.astype("f8")])
    with pytest.raises(gc.GraphError, match="takes a graph"):
        gc.bisect(np.tanh, [x])


@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
def test_units_in_the_last_place(kind):
    one = np.array(1, kind)
    assert ulps(one, np.nextafter(one, np.array(2, kind))) == 1
    tiny = np.nextafter(np.array(0, kind), one)
    assert ulps(tiny, -tiny) == 2
    assert ulps(np.array(0.0, kind), np.array(-0.0, kind)) == 0
    assert ulps(one, np.array(np.nan, kind)) == -1


@pytest.mark.parametrize(
    "value",
    [
        np.array(3.5),
        np.zeros((0, 2), "f4"),
        np.array([1 + 2j, complex(np.nan, 1)]),
        np.array([True, False]),
        np.array([np.inf, -np.inf, np.nan, -0.0, 1e-300]),
        np.arange(1, 13, dtype="i1").reshape(3, 4),
        np.array([1, -2, 3.5], ml_dtypes.bfloat16),
    ],
    ids=str,
)
def test_arrays_are_written_exactly(value):
    read = eval(written(value), {"np": np, "ml_dtypes": ml_dtypes})
    assert (read.dtype, read.shape) == (value.dtype, value.shape)
    assert read.tobytes() == value.tobytes()
