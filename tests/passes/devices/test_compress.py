"""Short transfers: the bits, which channels may be shortened, error budgets, reports."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from device_graphs import CPUS, at_random, checked, config, count, parted, same, spread, traced

import graphc as gc
from graphc.config import Config
from graphc.errors import FeedError, GraphError
from graphc.ir.graph import Builder, Graph, Program
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ops.control.control import param_node
from graphc.ops.record.value import literal_type
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.devices.compress import compressed, explanation
from graphc.passes.devices.conditioning import factors, weights
from graphc.passes.measured_error import result_error

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((3, 16, 16)).astype(np.float32)
HALVES = np.arange(1 << 16, dtype=np.uint32)


def floats(bits: np.ndarray) -> np.ndarray:
    return np.asarray(bits, np.uint32).view(np.float32)


def back(x: np.ndarray, mode: str = "truncate") -> np.ndarray:
    return gc.widen16(gc.truncate16(x, mode))


# ---------------------------------------------------------------------------------------- the bits


@pytest.mark.slow
def test_errors_over_one_binade() -> None:
    """G5: at most 2**-7 cut off (mean 0.0027 towards zero), 2**-8 rounded (no bias)."""
    x = floats(np.arange(0x3F800000, 0x40000000))
    wide = x.astype(np.float64)
    cut = (wide - back(x)) / wide
    assert cut.min() == 0
    assert cut.max() == pytest.approx(0.0077518, abs=1e-7)
    assert cut.max() < 2**-7
    assert cut.mean() == pytest.approx(0.0027, abs=5e-5)
    rounded = (wide - back(x, "nearest")) / wide
    assert abs(rounded).max() == pytest.approx(0.0038911, abs=1e-7)
    assert abs(rounded).max() < 2**-8
    assert abs(rounded.mean()) == pytest.approx(1.3e-6, abs=5e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["truncate", "nearest", "saturate"])
def test_nans_infinities_and_zeros(mode: str) -> None:
    """G6 and G7: every NaN stays one, infinities and zeros keep their sign."""
    payloads = np.arange(1, 1 << 23, dtype=np.uint32)
    for sign in (0, 0x80000000):
        made = back(floats(payloads + np.uint32(0x7F800000 + sign)), mode)
        assert np.isnan(made).all()
        assert (np.signbit(made) == bool(sign)).all()
    x = np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(back(x, mode).view(np.uint32), x.view(np.uint32))


def test_the_largest_floats() -> None:
    """G6: 32,768 finite values a sign round up to infinity; cut off or saturated they stay."""
    for sign in (0, 0x80000000):
        x = floats(np.arange(0x7F7F0000, 0x7F800000, dtype=np.uint32) + np.uint32(sign))
        assert np.isinf(back(x, "nearest")).sum() == 32_768
        largest = np.uint16(0x7F7F + (sign >> 16))
        assert (gc.truncate16(x, "truncate") == largest).all()
        assert (gc.truncate16(x, "saturate") == largest).all()


def test_denormals_and_integers() -> None:
    """G7: 65,535 denormals a sign are cut to zero; 257 is the first integer that is not kept."""
    for sign in (0, 0x80000000):
        x = floats(np.arange(1, 1 << 23, dtype=np.uint32) + np.uint32(sign))
        assert (back(x) == 0).sum() == 65_535
        assert (np.signbit(back(x)) == bool(sign)).all()
    integers = np.arange(300, dtype=np.float32)
    assert np.flatnonzero(back(integers) != integers)[0] == 257


@pytest.mark.parametrize("mode", ["truncate", "nearest", "saturate"])
def test_what_is_short_already_is_kept(mode: str) -> None:
    wide = gc.widen16(HALVES.astype(np.uint16))
    once = gc.truncate16(wide, mode)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(gc.widen16(once)))
    np.testing.assert_array_equal(once[~np.isnan(wide)], HALVES[~np.isnan(wide)])
    np.testing.assert_array_equal(gc.truncate16(gc.widen16(once), mode), once)


def test_rounding_is_that_of_bfloat16() -> None:
    x = floats(np.random.default_rng(2).integers(0, 1 << 32, 1 << 20, dtype=np.uint32))
    x = x[~np.isnan(x)]
    with np.errstate(over="ignore"):
        want = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(gc.truncate16(x, "nearest"), want.view(np.uint16))
    np.testing.assert_array_equal(back(x, "nearest"), want.astype(np.float32))


@pytest.mark.parametrize("mode", ["truncate", "nearest", "saturate"])
def test_compiled_equals_the_reference_on_every_upper_half(mode: str) -> None:
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFF], np.uint32)
    x = floats((HALVES[:, None] << 16) | lower)
    run = gc.compile(lambda v: gc.truncate16(v, mode))
    np.testing.assert_array_equal(run(x), gc.truncate16(x, mode))
    widen = gc.compile(lambda v: gc.widen16(v))
    short = HALVES.astype(np.uint16)
    np.testing.assert_array_equal(widen(short).view(np.uint32), HALVES << 16)


def test_the_public_functions() -> None:
    with pytest.raises(GraphError, match="must be one of truncate, nearest, saturate"):
        gc.truncate16(X, "up")
    with pytest.raises(GraphError, match="does not take f64"):
        gc.truncate16(np.ones(3))
    assert gc.exact(X) is not None


# --------------------------------------------------------------------------------------- the edges


def model(x, w):
    for k in range(3):
        x = np.tanh(x @ w[k]) * np.sin(x)
    return x.sum(0), x


def program(seed: int = 0, devices: int = 3, function=model) -> Program:
    return parted(at_random(traced(function, X, W), seed, devices), devices)


def messages(value: Program) -> dict[str, int]:
    """Bytes that each channel carried in one run."""
    sent: dict = {}
    interpret(value, [X, W], sent=sent)
    return {c: sum(np.asarray(m).nbytes for m in found) for c, found in sent.items()}


@pytest.mark.parametrize("seed", range(4))
def test_the_bytes_are_exactly_half(seed: int) -> None:
    given = program(seed)
    plan = compressed(given, config(3, compress=True))
    checked(plan.program)
    before, after = messages(given), messages(plan.program)
    short = {e.channel for e in plan.taken}
    assert short
    for channel, nbytes in before.items():
        assert after[channel] == (nbytes // 2 if channel in short else nbytes)
    assert count(plan.program, "widen16") == len(short)


def test_feeds_and_results_are_never_shortened() -> None:
    for seed in range(6):
        plan = compressed(program(seed), config(3, compress=True))
        first = plan.program.graphs[0]
        results = {r.inputs[0] if r.inputs else r for r in first.results}
        assert not any(r.op.name == "widen16" for r in first.results)
        for edge in plan.edges:
            feed = edge.send.inputs[0].op.name == "param"
            assert (edge in plan.taken) == (edge.refused == "")
            assert edge.refused == "it is a feed" or not feed
            if edge.recv in results:
                assert edge.refused == "it is a result"
    x = np.float32(3.14159)
    only = traced(lambda v: np.sin(np.tanh(v)), x)
    moved = parted(spread(only, lambda n: CPUS[1]))
    assert applied(moved, config(compress=True)) is moved


def test_other_types_and_variables_stay_exact(home) -> None:
    v = gc.Variable(np.ones(16, np.float32), name="v")

    def step(x, w):
        rows = np.argmax(x @ w[0], axis=1)
        v.assign(np.tanh(x).sum(0))
        return np.tanh(w[1])[rows] * (x @ w[2]).astype("f8").sum()

    graph = spread(
        traced(step, X, W), lambda n: CPUS[n.op.name in ("argmax", "tanh", "cast", "assign")]
    )
    given = parted(graph)
    plan = compressed(given, config(compress=True))
    assert {str(e.send.inputs[0].type.dtype) for e in plan.edges} == {"f32"}
    stored = [n for g in plan.program.graphs for n in g.nodes if n.op.name == "assign"]
    assert all(n.inputs[0].op.name != "widen16" for n in stored)
    reversed_homes = spread(graph, lambda n: CPUS[n.op.name == "sum"])
    found = compressed(parted(reversed_homes), config(compress=True)).edges
    assert "a variable keeps it" in {e.refused for e in found}


def test_exact_opts_out_and_so_does_its_gradient() -> None:
    def loss(x, w):
        return np.sum(np.tanh(gc.exact(np.sin(x @ w[0]))) * np.cos(x))

    graph = traced(lambda x, w: gc.grad(loss)(x, w), X, W)
    given = parted(spread(graph, lambda n: CPUS[n.op.name in ("tanh", "square", "sub")]))
    plan = compressed(given, config(compress=True))
    exact = [e for e in plan.edges if e.refused == "it is marked exact"]
    assert exact and not {e.channel for e in exact} & {e.channel for e in plan.taken}
    forward = [e for e in exact if e.send.inputs[0].op.name in ("sin", "exact")]
    assert forward
    assert gc.parse(gc.show(graph)) is not None and "exact(" in gc.show(graph)
    np.testing.assert_array_equal(gc.compile(lambda x: gc.exact(x) * 2)(X), X * 2)


def test_exact_reaches_through_views() -> None:
    for function in (
        lambda x, w: np.sin(gc.exact(np.tanh(x)).T.reshape(4, 32)) * 2,
        lambda x, w: np.sin(gc.exact(np.tanh(x).T[3:])) * 2,
    ):
        for views in (0, 1):
            graph = traced(function, X, W)
            order = [n.op.name for n in graph.nodes]
            assert order.index("tanh") < order.index("exact") < order.index("sin")

            def choose(node, views=views):
                return CPUS[{"tanh": 1, "sin": 0, "mul": 0}.get(node.op.name, views)]

            plan = compressed(parted(spread(graph, choose)), config(compress=True))
            assert {e.refused for e in plan.edges} == {"it is a feed", "it is marked exact"}


def applied(value: Graph | Program, options: Config) -> Graph | Program:
    """What the stage makes of it."""
    stage = pipeline.STAGES[pipeline.stage_named("compress")]
    return pipeline.apply(stage, value, options)


def test_inside_a_device_nothing_changes() -> None:
    graph = traced(model, X, W)
    alone = Program("g", (graph,))
    assert applied(alone, config(1, compress=True)) is alone
    assert applied(graph, config(2, compress=True)) is graph
    many = program()
    assert applied(many, config(3)) is many
    got = gc.compile(model, compress=True)(X, W)
    for a, b in zip(got, gc.compile(model)(X, W), strict=True):
        np.testing.assert_array_equal(a, b)


def test_loops_carry_short_values_too() -> None:
    def f(x, w):
        def body(i, s):
            return np.tanh(s @ w[0]) * np.cos(s)

        return np.exp(gc.fori(0, 6, body, x))

    graph = spread(traced(f, X, W), lambda n: CPUS[n.op.name == "cos"])
    given = parted(graph)
    plan = compressed(given, config(compress=True))
    inner = [n for g in plan.program.graphs for n in g.nodes if n.regions]
    assert any(m.op.name == "widen16" for n in inner for r in n.regions for m in r.nodes)
    checked(plan.program)
    before, after = messages(given), messages(plan.program)
    assert all(2 * after[e.channel] == before[e.channel] for e in plan.taken)
    want, got = interpret(given, [X, W]), interpret(plan.program, [X, W])
    assert 0 < result_error(want[0], got[0]) < 0.1


def test_conversions_are_part_of_the_kernels_around_them() -> None:
    def f(x, w):
        with gc.device("cpu:1"):
            y = np.tanh(x @ w[0])
        with gc.device("cpu:0"):
            return np.sin(y) * 2 + x

    run = gc.compile(f, devices=["cpu:0", "cpu:1"], compress=True)
    stages = {name: value for name, value, _, _ in run.stages(X, W)}
    fused = [n for g in stages["fuse"].graphs for n in g.nodes if n.op.name == "fused"]
    inside = [[m.op.name for m in n.regions[0].nodes] for n in fused]
    assert any("matmul" in ops and ops[-1] == "truncate16" for ops in inside)
    assert any("widen16" in ops and "sin" in ops for ops in inside)
    (want,) = interpret(stages["compress"], [X, W])
    np.testing.assert_allclose(run(X, W), want, rtol=2e-6, atol=1e-2)


def test_one_conversion_for_several_destinations() -> None:
    graph = traced(lambda x, w: np.sin(np.tanh(x)) + np.cos(np.tanh(x)) * np.exp(x), X, W)
    where = {"sin": 1, "cos": 2}
    given = parted(spread(graph, lambda n: CPUS[where.get(n.op.name, 0)]), 3)
    plan = compressed(given, config(3, compress="nearest"))
    there = [n for n in plan.program.graphs[0].nodes if n.op.name == "truncate16"]
    assert len(there) == 1
    assert sum(e.send.inputs[0].op.name == "tanh" for e in plan.taken) == 2
    assert count(plan.program, "widen16") == len(plan.taken)


# ----------------------------------------------------------------------------------- error budgets


@pytest.mark.parametrize("budget", [0.0, 1e-3, 6e-3, 2e-2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_results_stay_within_the_budget(seed: int, budget: float) -> None:
    given = program(seed)
    plan = compressed(given, config(3, error_budget=budget, sample=(X, W)))
    want, got = interpret(given, [X, W]), interpret(plan.program, [X, W])
    assert max(map(result_error, want, got)) <= budget
    possible = [e for e in plan.edges if not e.refused]
    if budget == 1.0:
        assert len(plan.taken) == len(possible)
    if budget == 0.0:
        assert plan.taken == []
    if budget == 6e-3:
        assert 0 < len(plan.taken) < len(possible)


def test_a_sample_is_nested_as_the_arguments_are() -> None:
    def f(parts):
        with gc.device("cpu:1"):
            y = np.tanh(parts["x"] @ parts["w"])
        with gc.device("cpu:0"):
            return np.sin(y) * 2

    given = {"x": X, "w": W[0]}
    run = gc.compile(f, devices=["cpu:0", "cpu:1"], error_budget=1e-2, sample=(given,))
    stages = {name: (value, note) for name, value, _, note in run.stages(given)}
    assert "1 of 3 f32 transfers shortened" in stages["compress"][1]
    assert "measured" in " ".join(text for _, text in stages["compress"][1].reasons)
    want = np.sin(np.tanh(X @ W[0])) * 2
    assert result_error(want, run(given)) <= 1.01e-2


def test_the_report_of_each_edge() -> None:
    given = program()
    plan = compressed(given, config(3, compress="nearest", sample=(X, W)))
    sent: dict = {}
    interpret(given, [X, W], sent=sent)
    for edge in plan.taken:
        value = sent[edge.channel][0].astype(np.float64)
        lost = np.abs(value - back(sent[edge.channel][0], "nearest")) / np.abs(value)
        choice = plan.choices[edge.channel]
        assert choice.worst == pytest.approx(np.nanmax(lost))
        assert choice.mean == pytest.approx(np.nanmean(lost))
        assert choice.worst <= 2**-8
        text = explanation(edge, plan)
        assert f"saves {value.nbytes // 4:,} bytes a message" in text
        assert "relative error at most 0.0039, measured 0.00" in text
    record = next(
        r
        for r in pipeline.run(
            at_random(traced(model, X, W), 0, 3), config(3, compress=True), after="place"
        )
        if r.name == "compress"
    )
    assert "f32 transfers shortened" in record.note
    assert len(record.note.reasons) == len(plan.edges)


def scaling(x, w):
    """Nothing but products and largest values behind what crosses."""
    return np.maximum(np.tanh(x), 0.1) * np.exp(x[0]) / np.square(w[0, 0])


def test_without_a_sample_errors_are_bounded() -> None:
    graph = spread(traced(scaling, X, W), lambda n: CPUS[n.op.name in ("tanh", "exp")])
    given = parted(graph)
    unit = 2.0**-7
    assert sorted(weights(given)[e.channel] for e in compressed_edges(given)) == [1, 1]
    for budget, taken in ((0.9 * unit, 0), (1.5 * unit, 1), (2 * unit, 2)):
        plan = compressed(given, config(error_budget=budget))
        assert len(plan.taken) == taken
        want, got = interpret(given, [X, W]), interpret(plan.program, [X, W])
        assert max(map(result_error, want, got)) <= budget * 1.01
    nearest = compressed(given, config(error_budget=unit, compress="nearest"))
    assert len(nearest.taken) == 2
    sums = compressed(program(), config(3, error_budget=0.5))
    assert sums.taken == []
    texts = {explanation(e, sums) for e in sums.edges if not e.refused}
    assert all("nothing bounds its error in the results" in text for text in texts)


def compressed_edges(given: Program) -> list:
    return [e for e in compressed(given, config(compress=True)).edges if not e.refused]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("mul(%0, %1) : f32[4]", [1, 1]),
        ("div(%0, %1) : f32[4]", [1, 1]),
        ("square(%0) : f32[4]", [2]),
        ("sqrt(%0) : f32[4]", [0.5]),
        ("maximum(%0, %1) : f32[4]", [1, 1]),
        ("relu(%0) : f32[4]", [1]),
        ("add(%0, %1) : f32[4]", [np.inf, np.inf]),
        ("tanh(%0) : f32[4]", [np.inf]),
        ("max(%0) {axes=[0], keepdims=false} : f32[]", [1]),
        ("sum(%0) {axes=[0], keepdims=false} : f32[]", [np.inf]),
        ("reshape(%0) {dims=[2,2]} : f32[2,2]", [1]),
        ("concat(%0, %1) {axis=0} : f32[8]", [1, 1]),
        ("lt(%0, %1) : bool[4]", [np.inf, np.inf]),
    ],
)
def test_how_often_relative_errors_count(line: str, want: list[float]) -> None:
    text = f"graph @g(%0 x: f32[4], %1 y: f32[4]) {{\n  %2 = {line}\n  return %2\n}}\n"
    graph = parse(text)
    assert isinstance(graph, Graph)
    assert factors(graph.nodes[0]) == want


def test_factors_bound_real_errors() -> None:
    """On the samples of every op: relative errors of its operands grow by no more than that."""
    rng, small, bounded = np.random.default_rng(3), 1e-5, set()
    for name, sample, node in sampled_nodes():
        found = sum(f for f, o in zip(factors(node), sample, strict=True) if o.dtype == np.float32)
        if not np.isfinite(found):
            continue
        wide = [o.astype(np.float64) if o.dtype == np.float32 else o for o in sample]
        off = [
            v * (1 + small * rng.uniform(-1, 1, v.shape)) if v.dtype == np.float64 else v
            for v in wide
        ]
        attrs = node.attrs.values_dict
        with np.errstate(all="ignore"):
            want, got = (np.asarray(node.op.reference(*v, **attrs)) for v in (wide, off))
            inside = np.isfinite(want) & np.isfinite(got)
            lost = np.abs(got.astype(np.float64) - want)[inside]
        assert (lost <= 1.001 * small * found * np.abs(want[inside])).all(), name
        bounded.add(name)
    assert {"mul", "div", "sqrt", "relu", "concat", "transpose", "gather", "max"} <= bounded


def sampled_nodes():
    for name, op in list(OPS.items()):
        for sample in op.samples() if op.samples and not op.regions else ():
            operands = [np.asarray(o) for o in sample.operands]
            if not sample.good or not operands or operands[0].dtype != np.float32:
                continue
            params = [param_node(k, literal_type(o)) for k, o in enumerate(operands)]
            builder = Builder(len(params))
            yield name, operands, builder.emit(op, params, sample.attrs)


def test_a_sample_that_does_not_fit() -> None:
    with pytest.raises(FeedError, match="expected 2 argument"):
        compressed(program(), config(3, error_budget=0.1, sample=(X,)))


def test_a_sample_that_needs_a_variable(home) -> None:
    v = gc.Variable(np.ones((16, 16), np.float32), name="v")
    graph = traced(lambda x, w: np.tanh(x @ v.value) * np.sin(x), X, W)
    given = parted(spread(graph, lambda n: CPUS[n.op.name in ("tanh", "matmul", "read")]))
    options = config(error_budget=1.0, sample=(X, W))
    before = np.array(v.value)
    plan = compressed(given, options)
    assert all("change the results by" in plan.choices[c].text for c in plan.choices)
    np.testing.assert_array_equal(v.value, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compress": "up"}, "compress must be one of True, False, 'truncate'"),
        ({"compress": 2}, "compress must be one of"),
        ({"error_budget": -1}, "error_budget must be a number that is not negative"),
        ({"error_budget": float("nan")}, "error_budget must be a number"),
        ({"error_budget": "much"}, "error_budget must be a number"),
    ],
)
def test_options_that_are_wrong(options: dict, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Config.create(**options)


def test_every_mode_prints_parses_and_runs() -> None:
    for mode in (True, "truncate", "nearest", "saturate"):
        plan = compressed(program(1), config(3, compress=mode))
        checked(plan.program)
        again = parse(gc.show(plan.program), {})
        same(plan.program, again, [X, W])
