"""Each pass on small graphs: golden texts before and after, and the golden numbers of the
sources.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from effort import examples
from graphs import graph, random_graphs
from hypothesis import given
from project import GOLDEN

import graphc as gc
from graphc.base.record import replace
from graphc.codegen.gemm.hardware import host_target
from graphc.config import Config
from graphc.errors import GraphError, GraphHint
from graphc.ir.graph import Graph, Program
from graphc.ir.literal import literal
from graphc.ir.liveness import live_bytes
from graphc.ir.parse import parse
from graphc.ir.text import show
from graphc.ir.types import F32, TupleType, dtype
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.fusion.can_fuse import Groups
from graphc.passes.fusion.fuse import fuse
from graphc.passes.loops import accumulate_after_loop, batch_scan_dots, hoist, merge_dots
from graphc.passes.memory.arena import Arena, Centred
from graphc.passes.normalise.cse import cse
from graphc.passes.normalise.dce import dce
from graphc.passes.normalise.fold import fold
from graphc.passes.placement.place import place
from graphc.passes.stage import Stage
from graphc.passes.tiling import block, block_images
from graphc.passes.tuning import tuned

CONFIG = Config(threads=1)
MACHINE = host_target()._replace(l2=1 << 20, l3=1 << 24)
LOOPS = (accumulate_after_loop, batch_scan_dots, hoist, merge_dots)
WITHOUT_GOLDEN = {
    "trace",  # changes nothing
    "propose_groups",  # changes nothing: it notes what would run together
    "outline",  # names a function of the process
    "pack_constants",  # its panels are as wide as the machine's vectors
    "mark_prologues",  # pays for what is far larger than the machine's caches
}


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/*.gir")), ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_golden(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file holds the graph before and, after a line of dashes, the graph after its folder's
    stage; options of the compilation, and sizes of symbols, stand in a comment before both.
    """
    for module in (block, block_images, *LOOPS):
        monkeypatch.setattr(module, "host_target", lambda: MACHINE)
    before, _, after = path.read_text().partition("\n----\n")
    first = before.splitlines()[0]
    options = json.loads(first[1:]) if first.startswith("#") else {}
    stage = pipeline.STAGES[pipeline.stage_named(path.parent.name)]
    sizes = options.pop("sizes", {})
    stage = pipeline.bound(stage, sizes) if stage.binds else stage
    made = show(pipeline.apply(stage, parse(before), Config.create(threads=1, **options)))
    if request.config.getoption("--update-golden"):
        path.write_text(f"{before}\n----\n{made}")
        return
    assert made == after


def test_every_stage_has_a_golden() -> None:
    kept = {path.parent.name for path in GOLDEN.glob("*/*.gir")}
    assert {stage.name for stage in pipeline.STAGES} - kept == WITHOUT_GOLDEN
    for path in GOLDEN.glob("*/*.gir"):
        before, _, after = path.read_text().partition("\n----\n")
        assert before[before.index("gir 1") :].strip() != after.strip(), f"{path} changes nothing"


@pytest.mark.parametrize(
    "stage", [s for s in pipeline.STAGES if s.about is not None], ids=lambda s: s.name
)
def test_a_stage_leaves_graphs_without_what_it_is_about(stage: Stage) -> None:
    assert stage.about is not None
    others = 0
    for path in GOLDEN.glob("*/*.gir"):
        value = parse(path.read_text().partition("\n----\n")[0])
        if stage.about.isdisjoint(value.traits):
            others += 1
            made = pipeline.apply(replace(stage, about=None), value, CONFIG)
            assert made is value, f"{stage.name} changes {path}"
    assert others


def count(g: Graph, name: str) -> int:
    return sum(n.op.name == name for n in g.nodes)


# ---------------------------------------------------------------------------------- cse: G1, G2, G3


def test_g1_commutative_operands_merge() -> None:
    g = graph(
        """%2 = add(%0, %1) : f32[4]
           %3 = add(%1, %0) : f32[4]
           %4 = add(%0, %1) : f32[4]
           %5 = concat(%2, %3, %4) {axis=0} : f32[12]"""
    )
    assert count(cse(g, CONFIG), "add") == 1


def test_g1_order_matters_for_sub() -> None:
    g = graph(
        """%2 = sub(%0, %1) : f32[4]
           %3 = sub(%1, %0) : f32[4]
           %4 = mul(%2, %3) : f32[4]"""
    )
    assert cse(g, CONFIG) is g


def test_g1_signed_zeros_stay_apart_and_equal_nans_meet() -> None:
    g = graph(
        """%2 = const() {value=f32[](0.0)} : f32[]
           %3 = const() {value=f32[](-0.0)} : f32[]
           %4 = const() {value=f32[](nan)} : f32[]
           %5 = const() {value=f32[](nan)} : f32[]
           %6 = const() {value=f32[](0x7fc00001)} : f32[]
           %7 = tuple(%2, %3, %4, %5, %6) : (f32[], f32[], f32[], f32[], f32[])"""
    )
    assert count(cse(g, CONFIG), "const") == 4


def test_g1_equal_numbers_of_different_dtypes_stay_apart() -> None:
    g = graph(
        """%2 = const() {value=i32[](1)} : i32[]
           %3 = const() {value=bool[](true)} : bool[]
           %4 = const() {value=f32[](1.0)} : f32[]
           %5 = tuple(%2, %3, %4) : (i32[], bool[], f32[])"""
    )
    assert cse(g, CONFIG) is g


def test_g1_random_draws_of_different_keys_stay_apart() -> None:
    g = graph(
        """%2 = random_bits(%0) {dims=[3], dtype=u32} : u32[3]
           %3 = random_bits(%1) {dims=[3], dtype=u32} : u32[3]
           %4 = random_bits(%1) {dims=[3], dtype=u32} : u32[3]
           %5 = tuple(%2, %3, %4) : (u32[3], u32[3], u32[3])""",
        params="%0 a: u32[2], %1 b: u32[2]",
    )
    assert count(cse(g, CONFIG), "random_bits") == 2


def test_g2_control_inputs_are_part_of_the_key() -> None:
    g = graph(
        """%2 = neg(%0) : f32[4]
           %3 = abs(%0) : f32[4]
           %4 = tanh(%1) : f32[4] after %2
           %5 = tanh(%1) : f32[4] after %3
           %6 = tanh(%1) : f32[4] after %3
           %7 = tuple(%4, %5, %6) : (f32[4], f32[4], f32[4])"""
    )
    assert count(cse(g, CONFIG), "tanh") == 2


def test_g3_devices_stay_apart() -> None:
    g = graph(
        """%2 = tanh(%0) : f32[4] @/job:localhost/device:cpu:0
           %3 = tanh(%0) : f32[4] @/job:localhost/device:cpu:1
           %4 = tanh(%0) : f32[4] @/job:localhost/device:cpu:1
           %5 = tuple(%2, %3, %4) : (f32[4], f32[4], f32[4])"""
    )
    made = cse(g, CONFIG)
    assert count(made, "tanh") == 2
    assert cse(made, CONFIG) is made


def test_a_merged_node_keeps_its_name() -> None:
    text = (
        "graph @g(%0 x: f32[4]) {\n  %1 = neg(%0) : f32[4]\n  %2 = neg(%0) : f32[4]\n"
        "  %3 = mul(%1, %2) : f32[4]\n  name hidden = %2\n  return %3\n}\n"
    )
    g = parse(text)
    assert isinstance(g, Graph)
    assert cse(g, CONFIG).names == {"hidden": 1}


def test_barriers_keep_recomputation_apart() -> None:
    g = graph(
        """%2 = barrier(%0, %1) : f32[4]
           %3 = barrier(%0, %1) : f32[4]
           %4 = tanh(%2) : f32[4]
           %5 = tanh(%3) : f32[4]
           %6 = mul(%4, %5) : f32[4]"""
    )
    assert cse(g, CONFIG) is g


# ------------------------------------------------------------------------------------ the others


def test_dce_drops_what_nothing_reads() -> None:
    g = graph("%2 = neg(%0) : f32[4]\n%3 = tanh(%2) : f32[4]\n%4 = abs(%1) : f32[4]", result="%4")
    assert [n.op.name for n in dce(g, CONFIG).nodes] == ["abs"]


def test_fold_stays_inside_its_budget() -> None:
    g = graph(
        """%2 = const() {value=f32[2](1.0,2.0)} : f32[2]
           %3 = exp(%2) : f32[2]
           %4 = broadcast(%3) {dims=[1000,2]} : f32[1000,2]"""
    )
    made = fold(g, CONFIG)
    assert count(made, "exp") == 0
    assert count(made, "broadcast") == 1  # growing a constant saves nothing
    assert fold(g, Config(fold_flops=0.0)) is g


@pytest.mark.parametrize("name", ["f32", "f64", "i32"])
def test_products_of_constants_cost_less_than_their_flops(name: str) -> None:
    """More than a compilation may fold of elements; not of integers, which NumPy adds up itself."""
    dims = (150, 300), (300, 150)
    arrays = [np.full(d, k, dtype(name).numpy) for k, d in enumerate(dims, 1)]
    digests = [literal(array, dtype(name)).digest for array in arrays]
    text = f"""gir 1
    graph @f(%0 x: {name}[150,150]) {{
      %1 = const() {{value={name}[150,300](sha256:{digests[0]})}} : {name}[150,300]
      %2 = const() {{value={name}[300,150](sha256:{digests[1]})}} : {name}[300,150]
      %3 = matmul(%1, %2) : {name}[150,150]
      %4 = add(%3, %0) : {name}[150,150]
      return %4
    }}"""
    g = parse(text, dict(zip(digests, arrays, strict=True)))
    assert isinstance(g, Graph)
    assert 1e7 < 2 * 150 * 300 * 150 < 64e7
    assert count(fold(g, CONFIG), "matmul") == (name == "i32")


def of_weights(lines: str, result: str) -> Graph:
    """A graph in which %1 are weights f32[2,60,70]."""
    weights = np.arange(2 * 60 * 70, dtype=np.float32).reshape(2, 60, 70)
    digest = literal(weights, F32).digest
    text = f"""gir 1
    graph @f(%0 x: f32[4,70]) {{
      %1 = const() {{value=f32[2,60,70](sha256:{digest})}} : f32[2,60,70]
      {lines}
      return {result}
    }}"""
    made = parse(text, {digest: weights})
    assert isinstance(made, Graph)
    return made


PART_TURNED = """%2 = slice(%1) {starts=[1,0,0], stops=[2,60,70], steps=[1,1,1]} : f32[1,60,70]
      %3 = reshape(%2) {dims=[60,70]} : f32[60,70]
      %4 = transpose(%3) {perm=[1,0]} : f32[70,60]
      %5 = matmul(%0, %4) : f32[4,60]"""
NOTHING = Config(fold_bytes=0, fold_flops=0.0)


def test_what_moves_elements_of_a_constant_is_folded_whatever_that_holds() -> None:
    g = of_weights(PART_TURNED, "%5")
    made = fold(g, NOTHING)
    assert {n.op.name for n in made.nodes} - {"const"} == {"matmul"}
    x = np.random.default_rng(3).integers(-1, 2, (4, 70)).astype(np.float32)  # sums are exact
    np.testing.assert_array_equal(interpret(made, [x])[0], interpret(g, [x])[0])


def test_what_is_made_of_a_constant_several_times_is_held_once() -> None:
    """As by the steps of a network of LSTMs that are written out."""
    again = "%6 = transpose(%3) {perm=[1,0]} : f32[70,60]\n%7 = matmul(%0, %6) : f32[4,60]"
    made = fold(of_weights(f"{PART_TURNED}\n{again}\n%8 = add(%5, %7) : f32[4,60]", "%8"), NOTHING)
    first, second = (node.inputs[1] for node in made.nodes if node.op.name == "matmul")
    assert first is second and first.op.name == "const"


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_constant_that_something_else_reads_is_not_held_twice(position: int) -> None:
    dims = {1: "2,60,70", 2: "1,60,70", 3: "60,70"}[position]
    lines = f"{PART_TURNED}\n%6 = neg(%{position}) : f32[{dims}]"
    made = fold(
        of_weights(f"{lines}\n%7 = tuple(%5, %6) : (f32[4,60], f32[{dims}])", "%7"), NOTHING
    )
    left = sum(count(made, name) for name in ("slice", "reshape", "transpose"))
    assert left == 4 - position


def test_simplify_keeps_nan_inf_and_signed_zero() -> None:
    """x*0, x-x and x+0 are not identities of floats."""
    g = graph(
        """%1 = const() {value=f32[](0.0)} : f32[]
           %2 = mul(%0, %1) : f32[4]
           %3 = sub(%0, %0) : f32[4]
           %4 = add(%0, %1) : f32[4]
           %5 = tuple(%2, %3, %4) : (f32[4], f32[4], f32[4])""",
        params="%0 x: f32[4]",
    )
    text = show(pipeline.run(g, CONFIG)[2].value)
    assert text.count("= mul(") + text.count("= sub(") + text.count("= add(") == 3


def test_simplify_forgets_the_sign_of_a_zero_that_becomes_an_integer() -> None:
    """Numbers of a quantised model have a zero point, which may be 0."""
    g = graph(
        """%1 = const() {value=f32[](0.0)} : f32[]
           %2 = const() {value=f32[](255.0)} : f32[]
           %3 = add(%0, %1) : f32[4]
           %4 = maximum(%3, %1) : f32[4]
           %5 = minimum(%4, %2) : f32[4]
           %6 = cast(%5) {dtype=u8} : u8[4]
           %7 = cast(%3) {dtype=i32} : i32[4]
           %8 = tuple(%6, %7) : (u8[4], i32[4])""",
        params="%0 x: f32[4]",
    )
    made = next(stage for stage in pipeline.run(g, CONFIG) if stage.name == "dce").value
    assert "= add(" not in show(made)
    x = np.array([-0.0, np.nan, 300, -7.5], np.float32)
    for kept, simpler in zip(interpret(g, [x]), interpret(made, [x]), strict=True):
        np.testing.assert_array_equal(kept, simpler)


def test_unchanged_passes_return_the_same_object() -> None:
    g = graph("%2 = add(%0, %1) : f32[4]\n%3 = tanh(%2) : f32[4]")
    for stage in pipeline.STAGES[:6]:
        assert pipeline.apply(stage, g, CONFIG) is g, stage.name


def test_a_constraint_without_a_device_is_an_error() -> None:
    g = graph('%2 = neg(%0) : f32[4] @?/device:gpu loc("model.py":7)')
    with pytest.raises(GraphError, match="must run on /device:gpu") as caught:
        place(g, CONFIG)
    assert caught.value.location == ("model.py", 7)


def test_memory_is_reused_and_small() -> None:
    """A chain of kernels that cannot fuse needs two buffers, however long it is."""
    kind = "f32[8,8]"
    lines = [f"%{k + 1} = matmul(%{k}, %{k}) : {kind}" for k in range(20)]
    g = graph("\n".join(lines), params=f"%0 x: {kind}")
    final = pipeline.run(g, CONFIG)[-1].value
    assert isinstance(final, Program)
    from graphc.ir.liveness import peak_bytes

    scratch = sum(n.type.nbytes for n in final.graphs[0].nodes[:2] if n.op.name == "workspace")
    assert peak_bytes(final.graphs[0]) <= 2 * 256 + 2 * scratch + 256


def test_arena_reuses_and_joins_gaps() -> None:
    arena = Arena()
    a, b, c = arena.take(64), arena.take(128), arena.take(64)
    arena.give(a, 64)
    arena.give(b, 128)
    assert arena.take(192) == a
    arena.give(c, 64)
    assert arena.take(128) == c
    assert arena.top == c + 128


def test_slots_hold_values_of_like_sizes_around_one_middle() -> None:
    arena = Centred()
    a, b, c = arena.take(1024), arena.take(512), arena.take(64)
    arena.give(a, 1024, messages=2)
    arena.give(b, 512)
    d = arena.take(1024)  # the larger slot waits for a message
    arena.give(c, 64)
    e = arena.take(2048)  # the one that is unused is much too small
    f = arena.take(1024, messages=2)
    arena.settle(2)
    arena.give(d, 1024)
    g = arena.take(256, reuse=lambda: False)
    at = arena.places()
    assert arena.sizes == [1024, 1024, 64, 2048, 256]
    assert at[a] == at[f]
    assert at[b] + 256 == at[d] + 512
    assert len({at[n] for n in (a, d, c, e, g)}) == 5
    assert (arena.live, arena.most) == (1024 + 2048 + 256, 4096)


def test_results_may_be_arguments_constants_and_each_other() -> None:
    g = graph(
        """%2 = const() {value=f32[2](1.0,2.0)} : f32[2]
           %3 = neg(%0) : f32[4]
           %4 = reshape(%3) {dims=[2,2]} : f32[2,2]"""
    )
    g = g.replace(
        results=(g.params[0], g.nodes[0], g.nodes[1], g.nodes[2], g.nodes[1]), result_names=()
    )
    from graphc.codegen.build import build

    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    executable, _ = build(pipeline.run(g, CONFIG)[-1].value, CONFIG)
    got = executable.run([x, y])
    for a, b in zip(got, interpret(g, [x, y]), strict=True):
        np.testing.assert_array_equal(a, b)
    got[0][:] = 7
    assert x[0] == 0


def test_check_finite_names_the_first_node_and_line() -> None:
    import graphc as gc
    from graphc.errors import RunError

    def f(x, w):  # type: ignore[no-untyped-def]
        y = x @ w
        z = np.log(y)
        return np.exp(z).sum()

    x, w = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    guarded = gc.compile(f, check_finite=True)
    np.testing.assert_allclose(guarded(x, w), f(x, w), rtol=1e-6)
    with pytest.raises(RunError, match="non-finite") as caught:
        guarded(x, -w)
    assert caught.value.location is not None
    assert caught.value.location[1] == f.__code__.co_firstlineno + 2
    with pytest.raises(RunError, match="non-finite") as caught:
        guarded(x * np.float32(np.inf), w)
    assert caught.value.location is not None
    assert caught.value.location[1] == f.__code__.co_firstlineno + 1


def test_a_sibling_does_not_join_a_group_it_reads_through_a_view() -> None:
    g = graph(
        """%1 = sum(%0) {axes=[1], keepdims=false} : f32[4]
           %2 = reshape(%1) {dims=[1,4]} : f32[1,4]
           %3 = broadcast(%2) {dims=[4,4]} : f32[4,4]
           %4 = add(%0, %3) : f32[4,4]
           %5 = tuple(%1, %4) : (f32[4], f32[4,4])""",
        params="%0 x: f32[4,4]",
    )
    final = pipeline.run(g, CONFIG)[-1].value
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(interpret(final, [x])[0][1], x + x.sum(1))


def two_rows(x):  # type: ignore[no-untyped-def]
    return tuple(np.cumsum(f(x), axis=0)[-1] for f in (np.sin, np.cos))


def test_siblings_whose_results_would_wait_for_each_other_run_apart() -> None:
    """One sweep over x would make both arrays at once, each as large as x."""
    x = gc.spec((512, 1024), "f32")
    stages = {s.name: s for s in gc.compile(two_rows, threads=1).stages(x)}
    assert max(live_bytes(stages["fuse"].value.graphs[0])) < 2.1 * x.nbytes
    reasons = [text for _, text in stages["fuse"].note.reasons]
    assert any("apart from its siblings" in text for text in reasons)


def test_siblings_that_cost_no_memory_share_a_sweep() -> None:
    def moments(x):  # type: ignore[no-untyped-def]
        return x.sum(1), (x * x).sum(1)

    small, large = gc.spec((64, 256), "f32"), gc.spec((512, 1024), "f32")
    for function, x in ((two_rows, small), (moments, large)):
        stages = {s.name: s.value for s in gc.compile(function, threads=1).stages(x)}
        first = next(n for n in stages["fuse"].graphs[0].nodes if n.op.name == "fused")
        assert isinstance(first.type, TupleType), function


@examples(13)
@given(g=random_graphs(most=30))
def test_no_sibling_makes_the_peak_higher(monkeypatch: pytest.MonkeyPatch, g: Graph) -> None:
    monkeypatch.setattr(tuned, "small_peak", 0)
    before = next(s.value for s in pipeline.run(g, CONFIG) if s.name == "schedule").graphs[0]
    with monkeypatch.context() as alone:
        alone.setattr(Groups, "sibling", lambda *_: None)
        least = max(live_bytes(fuse(before, CONFIG)))
    assert max(live_bytes(fuse(before, CONFIG))) <= least


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["llvm", "numba"])
def test_a_product_fused_with_results_that_do_not_need_it(backend: str) -> None:
    """The sums may lie in a result's memory, so that result is stored after they are read."""
    import graphc as gc

    def recurrent(x, w):  # type: ignore[no-untyped-def]
        h, states = np.zeros((4, 16), np.float32), []
        for step in range(12):
            h = np.tanh(x[step] @ w + h)
            states.append(h)
        return tuple(states)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4, 16)).astype(np.float32)
    w = (rng.standard_normal((16, 16)) * 0.1).astype(np.float32)
    compiled = gc.compile(recurrent, threads=1, backend=backend)
    for got, want in zip(compiled(x, w), recurrent(x, w), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_reader_of_a_value_and_of_a_view_of_it_stays_outside_its_group() -> None:
    g = graph(
        """%1 = transpose(%0) {perm=[1,0]} : f32[3,4]
           %2 = matmul(%0, %1) : f32[4,4]
           %3 = transpose(%2) {perm=[1,0]} : f32[4,4]
           %4 = maximum(%3, %2) : f32[4,4]
           %5 = tuple(%3, %4) : (f32[4,4], f32[4,4])""",
        params="%0 x: f32[4,3]",
    )
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    final = pipeline.run(g, CONFIG)[-1].value
    np.testing.assert_array_equal(interpret(final, [x])[0][1], x @ x.T)


@pytest.mark.parametrize("opt", [0, 1, 2])
def test_a_complex_infinity_times_one_is_what_the_product_makes_of_it(opt: int) -> None:
    x = np.array([1 + 1j, complex(1, np.inf), complex(np.nan, 2)])
    with np.errstate(invalid="ignore"):
        times, over = gc.compile(lambda x: (x * 1, x / np.complex128(1)), opt=opt)(x)
        np.testing.assert_array_equal(times, x * np.complex128(1))
        np.testing.assert_array_equal(over, x / np.complex128(1))


def test_complex_constants_do_not_stop_simplification() -> None:
    z = np.array([1 + 2j, -3 - 0.5j])
    for operation in (lambda z: z - (0 + 0j), lambda z: z / (1 + 0j), lambda z: z * 0j):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(gc.compile(operation)(z), operation(z), equal_nan=True)
    with np.errstate(all="ignore"):
        assert not np.isfinite(gc.compile(lambda z: z / 0)(z)).any()


def test_kernels_do_not_differ_by_their_numbers_alone() -> None:
    """An unrolled loop with a different constant in every step needs one kernel, not one a step."""
    import graphc as gc

    def pieces(steps):  # type: ignore[no-untyped-def]
        def unrolled(x, w):  # type: ignore[no-untyped-def]
            for step in range(steps):
                x = np.tanh(x @ w + np.float32(step * 0.001))
            return x

        x = np.full((8, 8), 0.05, np.float32)
        f = gc.compile(unrolled, threads=1)
        np.testing.assert_allclose(f(x, x), unrolled(x, x), rtol=1e-5, atol=1e-7)
        return f.compiles[-1].compiled + f.compiles[-1].cached

    assert pieces(100) == pieces(50)


@pytest.mark.parametrize("opt", [0, 2])
def test_what_constants_make_that_is_not_finite_stops_the_run(opt: int, tmp_path: Path) -> None:
    (tmp_path / "m.gir").write_text(
        "gir 1\ngraph @f(%0 x: f32[2]) {\n"
        "  %1 = const() {value=f32[2](0.0, 1.0)} : f32[2]\n"
        "  %2 = log(%1) : f32[2]\n  %3 = add(%0, %2) : f32[2]\n  return %3\n}\n"
    )
    x = np.zeros(2, "f4")
    assert np.isinf(gc.load(tmp_path / "m.gir", opt=opt)(x)[0])
    with pytest.raises(gc.GraphError, match="non-finite"):
        gc.load(tmp_path / "m.gir", opt=opt, check_finite=True)(x)


@pytest.mark.parametrize(("before", "now"), pipeline.RENAMED.items())
def test_an_earlier_name_of_a_stage_is_known_and_gets_a_hint(before: str, now: str) -> None:
    with pytest.warns(GraphHint, match=f"the stage {before} is called {now} now"):
        assert pipeline.stage_named(before) == pipeline.stage_named(now)


def test_a_product_that_is_reshaped_stays_where_it_was_put() -> None:
    @gc.compile(devices=["cpu:0", "cpu:1"])
    def model(x, w):
        with gc.device("cpu:1"):
            y = x @ w
        return y.reshape(2, 3, 5) + 1

    stages = {s.name: s.value for s in model.stages(np.ones((6, 8)), np.ones((8, 5)))}
    products = [n for n in stages["place"].nodes if n.op.traits.matrix_product]
    assert [str(n.place) for n in products] == ["/job:localhost/device:cpu:1"]
