"""Translation validation: what a stage must keep is seen from structure alone, and all else by
running every stage; errors planted behind many stages are caught there, and right stages pass."""

from __future__ import annotations

from itertools import product

import gradient_programs
import numpy as np
import pytest
from control_graphs import control_graphs
from device_graphs import config
from graphs import graph, random_graphs
from hypothesis import given, settings
from planted_bugs import after_stage

import graphc as gc
from graphc.config import Config
from graphc.ir.literal import literal
from graphc.ir.op import Effect
from graphc.passes import pipeline
from graphc.passes.stage import Keeps
from graphc.passes.validation import Sample

EARLY = ("gradient", "fold", "expand", "simplify", "sink", "dce", "cse", "hoist", "constrain")
LATE = ("place", "cse_placed", "partition", "dce_scheduled", "recompute", "fuse", "share_kernels")
LAST = ("stage_sums", "pack_constants", "add_workspace", "plan")
PROVED = {s.name for s in pipeline.STAGES if s.keeps is Keeps.EXPRESSIONS}
X, Y = np.linspace(-1, 1, 25).reshape(5, 5), np.linspace(1, 2, 25).reshape(5, 5)


def model(x, y):
    """Products, sums, differences, views, constants, a branch, a loop and a variable."""
    before = STATE[0].value
    STATE[0].assign(np.tanh(y) - x * 3.0)
    h = gc.fori(0, 3, lambda k, c: np.tanh(c @ y) - c * 0.5, x - y)
    g = gc.cond(h[0, 0] > 5, lambda a: a - 1.0, lambda a: a / 2.0, h)
    return np.transpose(g)[1:, 2:], (g - before).sum(axis=0), np.exp(x) - y, h.max(axis=1)


STATE = []


@pytest.fixture(scope="module")
def traced():
    with gc.container("validated"):
        STATE[:] = [gc.Variable(np.zeros((5, 5)), name="v")]
    yield gc.compile(model).graph(X, Y)
    gc.reset_container("validated")


# Each gives a wrong node in place of a right one, or None where it does not apply.


def swapped(node):
    two = len(node.inputs) == 2 and node.inputs[0].type is node.inputs[1].type
    return node.replace(inputs=node.inputs[::-1]) if node.op.name in ("sub", "div") * two else None


def another(node):
    """The same of one operand twice."""
    same = len(node.inputs) == 2 and node.inputs[0].type is node.inputs[1].type
    plain = node.op.name in ("sub", "add", "mul", "matmul")
    return node.replace(inputs=(node.inputs[0],) * 2) if plain and same else None


def constant(node):
    if node.op.name != "const" or node.type.dtype.kind != "f" or not node.attrs["value"].is_small:
        return None
    wrong = literal(node.attrs["value"].array + 1)
    return node.replace(attrs=node.op.coerce({"value": wrong}))


def shifted(node):
    if node.op.name != "slice" or node.attrs["starts"][0] == 0:
        return None
    starts, stops = node.attrs["starts"], node.attrs["stops"]
    attrs = {"starts": (starts[0] - 1, *starts[1:]), "stops": (stops[0] - 1, *stops[1:])}
    return node.replace(attrs=node.op.coerce({**node.attrs, **attrs}))


def early(node):
    """An assign that waits for nothing."""
    return node.replace(after=()) if node.op.effect is Effect.WRITE and node.after else None


def elsewhere(node):
    """An assign to a variable of another name."""
    if node.op.effect is not Effect.WRITE:
        return None
    return node.replace(attrs=node.op.coerce({**node.attrs, "name": "w"}))


def in_region(node):
    """A region of a branch, a loop or a kernel with one of these errors."""
    for k, region in enumerate(node.regions):
        for inner in region.nodes:
            for wrong in (swapped, another, constant):
                made = wrong(inner)
                if made is not None:
                    again = replaced(region, inner, made)
                    return node.replace(regions=(*node.regions[:k], again, *node.regions[k + 1 :]))
    return None


def replaced(region, node, by):
    from graphc.frontend.diagnosis.reduce import _replaced

    return _replaced(region, node, by)


def turned(node):
    """A fold along the other axis."""
    axes = node.attrs.get("axes") if node.op.name in ("sum", "max") else None
    if not axes or node.inputs[0].type.rank != 2 or node.type.rank != 1:
        return None
    return node.replace(attrs=node.op.coerce({**node.attrs, "axes": (1 - axes[0],)}))


ERRORS = (swapped, another, constant, shifted, early, elsewhere, in_region, turned)


def plant(patch, stage, wrong):
    """Make the last node that an error applies to wrong, behind a stage; the stages it reached."""
    reached = []

    def change(node, r):
        made = wrong(node) if not (reached and stage != "cse") else None
        if made is None:
            return None
        reached.append(node)
        r.nodes.append(made)
        return made

    after_stage(patch, stage, change)
    return reached


def error_of(made):
    """What the strictest checks say of compiling a graph."""
    try:
        pipeline.run(made, Config(threads=1, verify=4))
    except gc.VerifyError as error:
        return error.message
    return ""


@pytest.mark.slow
def test_fifty_planted_errors_are_caught(traced, monkeypatch):
    caught, by_structure, missed = 0, 0, []
    for stage, wrong in product(EARLY + LATE + LAST, ERRORS):
        with monkeypatch.context() as patch:
            reached = plant(patch, stage, wrong)
            message = error_of(traced)
        if message.startswith(f"after {stage}: "):
            caught += 1
            seen = "computes something else" not in message
            by_structure += seen
            assert seen or stage not in PROVED, message
        elif reached or message:
            missed.append((stage, wrong.__name__, message))
    assert not missed
    assert caught >= 120
    assert by_structure >= 85


@pytest.mark.parametrize("wrong", [early, elsewhere])
def test_what_is_seen_from_structure_is_seen_always(traced, monkeypatch, wrong):
    plant(monkeypatch, "simplify", wrong)
    with pytest.raises(gc.VerifyError, match="after simplify"):
        pipeline.run(traced, Config(threads=1))


def test_ports_are_kept(monkeypatch):
    given_graph = graph("%2 = sub(%0, %1) : f32[4]\n%3 = sum(%2) {axes=[0]} : f32[]")

    def results(g, *given):
        return g.replace(results=(g.nodes[0],))

    stages = list(pipeline.STAGES)
    at = pipeline.stage_named("fold")
    from graphc.base.record import replace

    stages[at] = replace(stages[at], rewrite=results, name="fold")
    monkeypatch.setattr(pipeline, "STAGES", tuple(stages))
    with pytest.raises(gc.VerifyError, match=r"after fold: .*other names or types"):
        pipeline.run(given_graph, Config(threads=1))


@given(random_graphs())
@settings(max_examples=8, deadline=None)
def test_right_stages_pass(made):
    pipeline.run(made, Config(threads=1, verify=4))


@pytest.mark.slow
@given(control_graphs())
@settings(max_examples=8, deadline=None)
def test_right_stages_of_control_flow_pass(made):
    pipeline.run(made, Config(threads=1, verify=4))


def test_what_cannot_be_sampled_is_let_pass():
    symbolic = gc.compile(lambda x: x + 1).graph(gc.spec(("N",), "f4"))
    assert Sample(symbolic, Config(verify=4)).trial is None
    printed = gc.compile(lambda x: (gc.print("{}", x), x)[1]).graph(X)
    assert pipeline.run(printed, Config(verify=4))
    taken = gc.compile(lambda x, k: x[k]).graph(X, np.array([0, 4]))
    assert pipeline.run(taken, config(2, verify=4))


def narrow_model(x, w):
    """Constants that fold to f32, sorts of bits, means and their gradients."""
    h = np.maximum(x @ w, 0).mean() + np.sort(x @ w, axis=1)[:, :2].sum() / 7
    return h + np.median(np.exp(x) / 3.0)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("differentiate", [False, True])
def test_what_rounds_to_its_type_is_right(kind, differentiate):
    """What is folded is rounded to the type of the graph, and a sort sees bits of that type."""
    function = gc.grad(narrow_model, (0, 1)) if differentiate else narrow_model
    made = gc.compile(function).graph(gc.spec((6, 5), kind), gc.spec((5, 4), kind))
    assert Sample(made, Config(verify=4)).trial is not None
    pipeline.run(made, Config(threads=1, verify=4))


@pytest.mark.parametrize("seed", [0, 2])
def test_right_gradients_pass(seed):
    case = gradient_programs.program(seed)
    pipeline.run(gc.compile(case.function).graph(*case.arguments), Config(threads=1, verify=4))


def test_errors_in_narrow_types_are_caught(traced, monkeypatch):
    def plain(x, y):
        h = gc.fori(0, 3, lambda k, c: np.tanh(c @ y) - c * 0.5, x - y)
        return np.transpose(h)[1:, 2:], (h - x).sum(axis=0), np.exp(x) - y, h.max(axis=1)

    narrow = gc.compile(plain).graph(X.astype("f4"), Y.astype("f4"))
    caught = 0
    for stage, wrong in product(EARLY[::2], (swapped, another, constant, shifted, turned)):
        with monkeypatch.context() as patch:
            reached = plant(patch, stage, wrong)
            message = error_of(narrow)
        assert not reached or message.startswith(f"after {stage}: "), (stage, wrong, message)
        caught += bool(message)
    assert caught >= 15
