"""precision="bf16": products read 16 bits where that pays, and say what it costs.

Stages are made for a CPU that multiplies pairs of bf16, whatever the tests run on; what runs is
compared within a bound that holds in f32, too.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from effort import rounds

import graphc as gc
from graphc.errors import GraphError
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.ir.types import DTYPES, F32
from graphc.ops.reference.interpreter import interpret
from graphc.passes.measured_error import result_error

RNG = np.random.default_rng(5)
BF16 = DTYPES["bf16"]
PAIRS = {"precision": "bf16", "target": "cpu:znver4"}
UNIT = 2.0**-8  # the most that rounding to bf16 changes a number by, relative to it


def normal(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype("f4")


def stage(
    function: Any, *given: Any, name: str = "narrow_products", **options: Any
) -> tuple[Any, Any]:
    """The graph with narrow products, and the note."""
    stages = gc.compile(function, **{**PAIRS, **options}).stages(*given)
    return next((value, note) for found, value, _, note in stages if found == name)


def narrow_count(graph: Any) -> int:
    """Casts to bf16 and constants of it; zeros around images are none."""
    inside = [r for node in graph.nodes for r in node.regions]
    made = [n for n in graph.nodes if getattr(n.type, "dtype", None) is BF16 and n.type.rank]
    here = sum(n.op.traits.casts or n.op.traits.constant for n in made)
    return here + sum(map(narrow_count, inside))


def rounded(x: Any) -> Any:
    return x.astype(ml_dtypes.bfloat16).astype("f4")


WEIGHTS = normal(96, 200)
PRODUCTS: list[tuple[Any, list[tuple[int, ...]]]] = [
    (lambda x, y: x @ y, [(70, 130), (130, 90)]),
    (lambda x, y: x.T @ y.T, [(130, 70), (90, 130)]),
    (lambda x, y: np.einsum("bik,bjk->bij", x, y), [(3, 80, 100), (3, 90, 100)]),
    (lambda x, y: x[:, :80] @ y[3:], [(90, 120), (83, 100)]),
    (lambda x, y: gc.conv(x, y, padding=1), [(2, 70, 9, 11), (80, 70, 3, 3)]),
    (lambda x, y: gc.conv(x, y, groups=2), [(2, 72, 17, 13), (160, 36, 3, 3)]),
    (lambda x, y: gc.conv(x, y, stride=2, padding=1), [(1, 24, 37, 75), (96, 24, 3, 3)]),
]


@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_products_are_those_of_rounded_operands(number: int) -> None:
    function, shapes = PRODUCTS[number]
    given = [normal(*shape) for shape in shapes]
    graph, note = stage(function, *given)
    assert narrow_count(graph) == 2 and "1 of 1 products in bf16" in note
    (made,) = interpret(graph, given)
    exact = gc.compile(function, fast_math=False)
    (wanted,) = [exact(*map(rounded, given))]
    assert result_error(wanted, made) < 1e-5
    bound = gc.compile(function)(*map(np.abs, given)) * 2.1 * UNIT
    for threads in (1, 2):
        ran = gc.compile(function, precision="bf16", threads=threads)(*given)
        assert (np.abs(ran - exact(*given)) <= bound).all()


def test_what_a_product_reads_is_rounded_as_by_a_cast_but_for_denormals() -> None:
    """Bit for bit, in whole vectors and in parts of them; denormals may be zero."""
    bits = np.random.default_rng(3).integers(0, 1 << 32, 4099, dtype=np.uint64)
    edges = [0, 0x007FFFFF, 0x00800000, 0x00807FFF, 0x00808000, 0x7F7F7FFF, 0x7F7F8000, 0x7F800000]
    edges += [0x3F808000, 0x3F818000, 0x3F80FFFF, 0x00000001, 0x00400000, 0x00018000]
    bits = np.concatenate([bits.astype("u4"), np.uint32(edges), np.uint32(edges) | 1 << 31])
    x = bits.view("f4")
    x = np.where(np.isnan(x), np.float32(1), x)
    text = f"gir 1\ngraph @g(%0 x: f32[{x.size}]) {{\n  %1 = narrow(%0) {{dtype=bf16}}"
    model = LoadedGraph(gc.parse(f"{text} : bf16[{x.size}]\n  return %1\n}}\n"))
    with np.errstate(over="ignore"):
        wanted = x.astype(ml_dtypes.bfloat16).view("u2")
    made = np.asarray(model(x)).view("u2")
    denormal = (x != 0) & (np.abs(x) < np.finfo("f4").tiny)
    kept = np.where(denormal & (made & 0x7FFF == 0), wanted & 0x8000, wanted)
    np.testing.assert_array_equal(made, kept)


def test_weights_that_are_known_are_rounded_once() -> None:
    program, _ = stage(lambda x: x @ WEIGHTS, normal(1, 96), name="dce_scheduled")
    kinds = [(node.op.name, node.type.dtype) for node in program.graphs[0].nodes]
    assert ("const", BF16) in kinds and ("const", F32) not in kinds


def test_parts_of_an_array_are_rounded_before_they_are_turned() -> None:
    """A product reads through the turn; rounding all of the array would cost more."""
    x = np.zeros((200, 192), np.float32)
    graph, note = stage(lambda x: x[:, :96] @ x[:, 96:].T, x)
    made = [node for node in graph.nodes if node.op.name == "narrow"]
    assert "1 of 1 products in bf16" in note
    assert [node.inputs[0].op.traits.slices for node in made] == [True, True]


def test_weights_of_16_bits_are_read_as_they_are() -> None:
    w = normal(200, 96).astype(ml_dtypes.bfloat16)
    graph, note = stage(lambda x, w: x @ w.T + x @ w.T * 2, normal(1, 96), w)
    casts = [node for node in graph.nodes if node.op.name == "narrow"]
    assert len(casts) == 1 and "1 of 1 products in bf16" in note
    x = normal(3, 96)
    made = gc.compile(lambda x, w: x @ w.T, precision="bf16")(x, w)
    assert made.dtype == np.float32 and result_error(x @ w.T.astype("f4"), made) < 0.02


def test_what_costs_more_than_it_saves_stays() -> None:
    for function, given in (
        (lambda x, w: x @ w, (normal(4, 96), normal(96, 200))),  # few rows, weights to be rounded
        (lambda x, y: (x * y).sum(), (normal(96, 96), normal(96, 96))),
        (lambda x, w: x @ w, (normal(99, 99).astype("f8"), normal(99, 99).astype("f8"))),
        (lambda x, w: gc.exact(x) @ w, (normal(200, 200), normal(200, 200))),
        (lambda x, w: gc.exact(x).T[:190].T @ w, (normal(200, 200), normal(190, 200))),
    ):
        graph, _ = stage(function, *given)
        assert narrow_count(graph) == 0


def test_images_of_many_tiles_and_channels_are_convolved_in_full() -> None:
    cases = (
        ((40, 64, 64), True),
        ((32, 64, 64), False),
        ((80, 32, 32), False),
        ((40, 96, 24), False),  # transforms of many channels for few results
        ((42, 64, 64), False),  # tiles reach far over the ends
    )
    for (side, inputs, outputs), full in cases:
        w = normal(outputs, inputs, 3, 3)
        given = normal(1, inputs, side, side)
        graph, _ = stage(lambda x, w=w: gc.conv(x, w, padding=1), given)
        names = {node.op.name for node in graph.nodes}
        assert ("winograd_input" in names) is full and (narrow_count(graph) == 0) is full


def test_what_is_joined_or_picked_for_products_alone_is_rounded_before() -> None:
    w, rows = normal(64, 64, 3, 3), np.repeat(np.arange(7), 2)

    def joined(x: Any, y: Any) -> Any:
        near = np.take(np.take(np.tanh(x), rows, axis=2), rows, axis=3)
        return np.concatenate([near, np.tanh(y)], axis=1)

    given = normal(1, 32, 7, 7), normal(1, 32, 14, 14)
    graph, _ = stage(lambda x, y: gc.conv(joined(x, y), w, padding=1), *given)
    moved = [node for node in graph.nodes if node.op.name in ("concat", "gather", "pad")]
    assert len(moved) == 4 and all(node.type.dtype is BF16 for node in moved)
    graph, _ = stage(lambda x, y: (gc.conv(joined(x, y), w), joined(x, y) + 1), *given)
    moved = [node for node in graph.nodes if node.op.name in ("concat", "gather")]
    assert len(moved) == 3 and not any(node.type.dtype is BF16 for node in moved)


def test_what_is_rounded_is_padded_as_such() -> None:
    w = normal(64, 32, 3, 3)
    graph, _ = stage(lambda x: gc.conv(x, w, padding=((1, 0), (0, 2))), normal(2, 32, 14, 14))
    pads = [node for node in graph.nodes if node.op.name == "pad" and node.type.dtype is BF16]
    assert [pad.inputs[0].type.dims for pad in pads] == [(2, 32, 14, 14)]


def test_other_cpus_multiply_f32() -> None:
    graph, note = stage(lambda x: x @ x, normal(200, 200), target="cpu:x86-64-v3")
    assert narrow_count(graph) == 0 and "does not multiply pairs of bf16" in note


def layers(x: Any) -> Any:
    for w in (WEIGHTS, WEIGHTS.T, WEIGHTS):
        x = np.tanh(x @ (w * 0.1))
    return {"y": x, "mean": x.mean()}


def test_a_budget_chooses_by_measuring() -> None:
    x = normal(80, 96)
    counts = []
    for budget in (0.0, 1e-3, 1.0):
        graph, note = stage(layers, x, error_budget=budget, sample=(x,))
        wanted = interpret(gc.compile(layers).graph(x), [x])
        errors = list(map(result_error, wanted, interpret(graph, [x])))
        assert max(errors) <= budget * 1.01 + 1e-6
        assert "products in bf16" in note and "the results of the sample differ by" in note
        counts.append(int(str(note).split(" of 3 products")[0].split()[-1]))
    assert counts[0] == 0 and counts[2] == 3 and counts == sorted(counts)


def test_a_report_names_the_results() -> None:
    report = gc.precision_report(layers, normal(80, 96))
    assert set(report) == {"y", "mean"} and all(e < 0.1 for e in report.values())
    same = gc.precision_report(layers, normal(80, 96), error_budget=0.0)
    assert max(same.values()) < 1e-5


def test_loops_and_gradients() -> None:
    w = normal(128, 128) / 12

    def loss(w: Any, x: Any) -> Any:
        y, _ = gc.scan(lambda h, _: (np.tanh(h @ w), None), x, None, length=3)
        return (y * y).mean()

    x = normal(128, 128)
    step = gc.value_and_grad(loss)
    graph, _ = stage(step, w, x)
    assert narrow_count(graph) > 4
    value, slope = gc.compile(step, precision="bf16")(w, x)
    wanted, exact = gc.compile(step)(w, x)
    assert abs(value - wanted) < 0.02 * wanted and result_error(exact, slope) < 0.1


def test_one_compilation_for_all_sizes() -> None:
    function = gc.compile(lambda x: x @ WEIGHTS, precision="bf16", sizes={"x": ("n", 96)})
    for count in (1, 2, 7, 64):
        x = normal(count, 96)
        assert result_error(x @ WEIGHTS, function(x)) < 0.02
    assert len(function.compiles) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"precision": "bf8"}, "precision must be"),
        ({"precision": True}, "precision must be"),
        ({"precision": "bf16", "error_budget": 0.1}, "needs arguments to measure with"),
    ],
)
def test_wrong_options(options: dict[str, Any], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        gc.compile(lambda x: x @ x, **options)


def test_a_sample_that_does_not_fit() -> None:
    narrow = gc.compile(lambda x: x @ x, error_budget=1.0, sample=(normal(3, 4),), **PAIRS)
    with pytest.raises(GraphError, match=r"x of the sample must be f32\[99,99\][\s\S]*again"):
        narrow.stages(normal(99, 99))


@pytest.mark.parametrize("seed", range(rounds(6)))
def test_views_of_rounded_values(seed: int) -> None:
    """What is rounded in the model itself may be read through any views."""
    rng = np.random.default_rng(seed)
    x, w = normal(4, 6, 20, 32), normal(192, 64)
    views = [
        lambda x: x.transpose(0, 2, 1, 3).reshape(4, 20, 192),
        lambda x: x.reshape(4, 20, 192),
        lambda x: x.transpose(0, 2, 3, 1)[:, :, ::-1].reshape(80, 192),
    ]
    view = views[int(rng.integers(3))]
    both = bool(rng.integers(2))

    def product(x: Any) -> Any:
        near = (x * 2).astype(ml_dtypes.bfloat16).astype(np.float32)
        return view(near) @ (rounded(w) if both else w)

    wanted = view(rounded(x * 2)) @ (rounded(w) if both else w)
    assert result_error(wanted, gc.compile(product)(x)) < 1e-5


def test_tf32_is_for_gpus_alone() -> None:
    x, y = normal(20, 30), normal(30, 40)
    given = {"precision": "tf32", "target": "cpu"}
    graph, note = stage(lambda x, y: x @ y, x, y, **given)
    assert narrow_count(graph) == 0
    assert "not on GPUs alone" in note
    np.testing.assert_array_equal(
        gc.compile(lambda x, y: x @ y, precision="tf32")(x, y), gc.compile(lambda x, y: x @ y)(x, y)
    )
    assert gc.precision_report(lambda x, y: x @ y, x, y, precision="tf32") == {"": 0.0}
    with pytest.raises(GraphError, match="error_budget cannot choose products in tf32"):
        gc.compile(lambda x: x @ x, precision="tf32", error_budget=1e-3)(normal(4, 4))
    with pytest.raises(GraphError, match='"f32", "bf16" or "tf32"'):
        gc.compile(lambda x: x @ x, precision="fp8")(normal(4, 4))


def test_a_budget_without_anything_to_spend_it_on_is_refused() -> None:
    cases: Any = ({}, {"sample": (normal(3, 4),)}, {"devices": ["cpu:0"]})
    for options in cases:
        with pytest.raises(GraphError, match="an error_budget has no use") as caught:
            gc.compile(lambda x: x @ x, error_budget=1e-3, **options)
        assert "precision=" in (caught.value.hint or "")
    gc.compile(lambda x: x @ x, error_budget=1e-3, devices=["cpu:0", "cpu:1"])
