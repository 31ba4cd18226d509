"""Row reductions in the epilogue of a contraction: which join it, and that they are right there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import case
from effort import examples, rounds
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.lowering.contraction import reduces
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Contraction
from graphc.ir.types import dtype
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline

FEW = examples(13)
LIMITS = {"f16": 2e-2, "bf16": 1e-1, "f32": 1e-4, "f64": 1e-11}


def softmax(s: Any, g: Any, r: Any) -> Any:
    powers = gc.exp(s - gc.max(s, axis=-1, keepdims=True))
    return powers / gc.sum(powers, axis=-1, keepdims=True)


def layer_norm(s: Any, g: Any, r: Any) -> Any:
    centred = s - gc.mean(s, axis=-1, keepdims=True)
    spread = gc.mean(centred * centred, axis=-1, keepdims=True)
    return centred * gc.rsqrt(spread + 0.01) * g


def rms_norm(s: Any, g: Any, r: Any) -> Any:
    return s * gc.rsqrt(gc.mean(s * s, axis=-1, keepdims=True) + 0.01) * g


def log_sum_exp(s: Any, g: Any, r: Any) -> Any:
    most = gc.max(s, axis=-1)
    return gc.log(gc.sum(gc.exp(s - most[..., None]), axis=-1)) + most


def after_residual(s: Any, g: Any, r: Any) -> Any:
    total = r + gc.tanh(s + g)
    return total, layer_norm(total, g, r)


def sums_too(s: Any, g: Any, r: Any) -> Any:
    return gc.sum(s, axis=-1), s, gc.max(s * g, axis=-1, keepdims=True), s * 2 + r


def masked(s: Any, g: Any, r: Any) -> Any:
    return softmax(gc.where(r > 0, s * 0.5, -30.0), g, r)


ENDS: tuple[Callable[..., Any], ...] = (
    softmax,
    layer_norm,
    rms_norm,
    log_sum_exp,
    after_residual,
    sums_too,
    masked,
)


def ended(end: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w, g, r: end(x @ w, g, r)


def squared(end: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of a function of all its results."""

    def loss(x: Any, w: Any, g: Any, r: Any) -> Any:
        made = end(x @ w, g, r)
        parts = made if isinstance(made, tuple) else (made,)
        total = gc.sum(parts[0] * parts[0])
        for part in parts[1:]:
            total = total + gc.sum(part * part)
        return total

    return gc.grad(loss, (0, 1, 2, 3))


def kernels(function: Any, *arguments: Any, **options: Any) -> list[Node]:
    """The contractions of a compiled function, those in blocks too."""
    return contractions(gc.compile(function, **options).stages(*arguments)[-1][1].graphs[0])


def contractions(graph: Graph) -> list[Node]:
    graphs = [graph]
    found: list[Node] = []
    while graphs:
        graph = graphs.pop()
        for node in graph.nodes:
            if node.op.name == "fused" and contracts(node.regions[0]):
                found.append(node)
            elif node.regions:
                graphs.extend(node.regions)
    return found


def contracts(region: Graph) -> bool:
    return any(isinstance(n.op.lower, Contraction) for n in region.nodes)


def joined(function: Any, *arguments: Any, **options: Any) -> bool:
    return any(reduces(n.regions[0]) for n in kernels(function, *arguments, **options))


def specs(m: int, k: int, n: int, element: str = "f32") -> tuple[Any, ...]:
    return tuple(gc.spec(dims, element) for dims in ((m, k), (k, n), (n,), (m, n)))


def arrays(m: int, k: int, n: int, element: str) -> list[np.ndarray]:
    rng = np.random.default_rng((m, k, n))
    scale = 1 / np.sqrt(max(k, 1))
    values = (rng.normal(size=s) for s in ((m, k), (k, n), (n,), (m, n)))
    made = [next(values), next(values) * scale, next(values), next(values)]
    return [v.astype(dtype(element).numpy) for v in made]


def check(function: Any, given: list[np.ndarray], limit: float, threads: int) -> None:
    compiled = gc.compile(function, threads=threads)
    wanted = interpret(compiled.graph(*given), given)
    made = compiled(*given)
    for one, value in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        one, value = (np.asarray(a).astype("f8") for a in (one, value))
        np.testing.assert_allclose(one, value, rtol=limit, atol=limit * max(1, np.abs(value).max()))


@pytest.mark.slow
@FEW
@given(
    end=st.sampled_from(ENDS),
    m=st.sampled_from([tuned.epilogue_rows - 1, tuned.epilogue_rows, 131, 300]),
    k=st.sampled_from([0, 1, 3, 16, 65, 600]),
    n=st.sampled_from(
        [
            1,
            tuned.epilogue_shortest - 1,
            tuned.epilogue_shortest,
            16,
            31,
            32,
            64,
            100,
            257,
            tuned.epilogue_longest,
            tuned.epilogue_longest + 1,
        ]
    ),
    element=st.sampled_from(["f16", "bf16", "f32", "f64"]),
    threads=st.integers(1, 2),
)
def test_any_shape(end: Any, m: int, k: int, n: int, element: str, threads: int) -> None:
    check(ended(end), arrays(m, k, n, element), LIMITS[element], threads)


@settings(FEW, max_examples=rounds(8))
@given(
    end=st.sampled_from(ENDS),
    m=st.sampled_from([tuned.epilogue_rows, 140]),
    k=st.sampled_from([1, 20]),
    n=st.sampled_from([5, 12, 33, 64]),
    element=st.sampled_from(["f32", "f64"]),
    threads=st.integers(1, 2),
)
def test_gradients(end: Any, m: int, k: int, n: int, element: str, threads: int) -> None:
    check(squared(end), arrays(m, k, n, element), 10 * LIMITS[element], threads)


@settings(FEW, max_examples=rounds(8))
@given(
    heads=st.sampled_from([tuned.epilogue_rows, 150]),
    m=st.sampled_from([1, 13]),
    n=st.sampled_from([10, 33, 130]),
    layout=st.sampled_from(["bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,kn->bmn", "bmk,nk->bmn"]),
    threads=st.integers(1, 2),
)
def test_batches_and_views(heads: int, m: int, n: int, layout: str, threads: int) -> None:
    size = {"b": heads, "m": m, "k": 9, "n": n}
    rng = np.random.default_rng(m)
    given = [rng.normal(size=[size[a] for a in s]) for s in layout.split("->")[0].split(",")]
    given += [rng.normal(size=n), rng.normal(size=(heads, m, n))]

    def function(x: Any, w: Any, g: Any, r: Any) -> Any:
        return masked(gc.einsum(layout, x, w), g, r), log_sum_exp(gc.einsum(layout, x, w), g, r)

    assert joined(function, *given)
    check(function, given, LIMITS["f64"], threads)


def test_rows_of_several_axes() -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype("f") for s in ((150, 8), (8, 5, 6), (5, 6))]

    def function(x: Any, w: Any, g: Any) -> Any:
        s = gc.einsum("mk,kpq->mpq", x, w) * g
        return s - gc.mean(s, axis=(1, 2), keepdims=True), gc.max(s, axis=(1, 2))

    assert joined(function, *given)
    check(function, given, LIMITS["f32"], 2)


def test_integers() -> None:
    given = [np.arange(n, dtype="i4").reshape(s) for n, s in ((260, (130, 2)), (20, (2, 10)))]

    def function(x: Any, w: Any) -> Any:
        return gc.max(x @ w, axis=1), gc.sum(x @ w, axis=1)

    assert joined(function, *given)
    made = gc.compile(function)(*given)
    np.testing.assert_array_equal(made[0], (given[0] @ given[1]).max(1))
    np.testing.assert_array_equal(made[1], (given[0] @ given[1]).sum(1))


def test_as_many_results_as_a_group_has_nodes() -> None:
    given = [np.random.default_rng(0).normal(size=s) for s in ((130, 4), (4, 9))]

    def function(x: Any, w: Any) -> Any:
        made = [x @ w]
        for _ in range(59):
            made.append(gc.tanh(made[-1]))
        return *made, *(gc.sum(value, axis=1) for value in made[-3:])

    assert joined(function, *given)
    check(function, given, LIMITS["f64"], 1)


# -- which reductions join ------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_one_kernel(end: Any) -> None:
    (kernel,) = kernels(ended(end), *specs(256, 64, 48))
    assert kernel.attrs["kind"] == "contract"
    assert reduces(kernel.regions[0])
    made = gc.compile(ended(end)).stages(*specs(256, 64, 48))[-1][1].graphs[0]
    assert [n.op.name for n in made.nodes if n.op.name == "fused"] == ["fused"]


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (tuned.epilogue_rows - 1, 8, 8),
        (256, 8, tuned.epilogue_shortest - 1),
        (256, 8, tuned.epilogue_longest + 1),
        (512, 512, 512),
    ],
)
def test_sizes_that_stay_apart(m: int, k: int, n: int) -> None:
    assert not joined(ended(softmax), *specs(m, k, n))


@pytest.mark.parametrize("options", [{"backend": "numba"}, {"parity": True}, {"opt": 0}])
def test_options_that_keep_reductions_apart(options: Any) -> None:
    assert joined(ended(softmax), *specs(256, 8, 16))
    assert not joined(ended(softmax), *specs(256, 8, 16), **options)


def test_graphs_of_gpus_keep_reductions_apart() -> None:
    graph = gc.compile(ended(softmax)).graph(*specs(256, 8, 16))
    records = pipeline.run(graph, Config(backend="cuda", target="cuda:sm_90"))
    assert not any(reduces(n.regions[0]) for n in contractions(records[-1].value.graphs[0]))


def test_other_axes_stay_apart() -> None:
    def columns(x: Any, w: Any, g: Any, r: Any) -> Any:
        return gc.sum(x @ w, axis=0)

    def everything(x: Any, w: Any, g: Any, r: Any) -> Any:
        return gc.sum(x @ w)

    def rows_of_columns(x: Any, w: Any, g: Any, r: Any) -> Any:
        return gc.sum(gc.einsum("mk,kn->nm", x, w), axis=0)

    for function in (columns, everything, rows_of_columns):
        assert not joined(function, *specs(256, 8, 256))
        check(function, arrays(256, 8, 256, "f64"), 1e-11, 2)


def test_a_transposed_result_has_rows_too() -> None:
    def function(x: Any, w: Any, g: Any, r: Any) -> Any:
        return gc.sum(gc.einsum("mk,kn->nm", x, w), axis=1)

    assert joined(function, *specs(200, 8, 256))
    check(function, arrays(200, 8, 256, "f64"), 1e-11, 2)


def test_rows_that_leave_lanes_empty_stay_apart_where_a_constant_fills_them() -> None:
    weights = np.ones((256, 256, 1, 1), np.float32)

    def of_constant(x: Any) -> Any:
        return gc.mean(gc.relu(gc.conv(x, weights)), axis=(2, 3))

    def of_argument(x: Any, w: Any) -> Any:
        return gc.mean(gc.relu(gc.conv(x, w)), axis=(2, 3))

    small, even, given = ((1, 256, 7, 7), "f32"), ((1, 256, 8, 8), "f32"), ((256, 256, 1, 1), "f32")
    assert not joined(of_constant, gc.spec(*small))
    assert not joined(of_constant, gc.spec(*small), precision="bf16")
    assert joined(of_constant, gc.spec(*even))
    assert joined(of_argument, gc.spec(*small), gc.spec(*given))


def test_heads_in_the_columns_are_no_rows() -> None:
    """Each row of the core holds several rows of the result."""

    def function(x: Any, w: Any) -> Any:
        return gc.max(gc.einsum("mk,khd->mhd", x, w), axis=2)

    given = [np.random.default_rng(0).normal(size=s) for s in ((200, 8), (8, 4, 16))]
    assert not joined(function, *given)
    check(function, given, 1e-11, 2)


# -- that they do no harm -------------------------------------------------------------------------


def test_a_donated_operand_is_read_before_it_is_overwritten() -> None:
    def function(x: Any, w: Any, g: Any, r: Any) -> Any:
        s = x @ w + r
        return layer_norm(s, g, r) + r, s

    given = arrays(300, 16, 40, "f64")
    wanted = gc.compile(function)(*given)
    made = gc.compile(function, donate="r")(*[x.copy() for x in given])
    for one, value in zip(made, wanted, strict=True):
        np.testing.assert_allclose(one, value, rtol=1e-12, atol=1e-12)


def test_threads_do_not_change_a_bit() -> None:
    given = arrays(500, 200, 77, "f32")
    made = [gc.compile(ended(layer_norm), threads=t)(*given) for t in (1, 2, 3, 7)]
    assert all(np.array_equal(made[0], other) for other in made[1:])


def test_a_product_is_as_exact_as_what_its_maximum_is_compared_with() -> None:
    def function(x: Any, w: Any, g: Any, r: Any) -> Any:
        s = (x @ w) * 0.3 + g
        return gc.max(gc.where(s == gc.max(s, axis=-1, keepdims=True), 1, 0), axis=-1)

    assert joined(function, *specs(300, 16, 40))
    assert gc.compile(function)(*arrays(300, 16, 40, "f32")).all()


def test_plans_finish_whole_rows() -> None:
    for m, n, k, element in itertools.product(
        [1, 5, 128, 3000], [2, 33, 1000], [1, 700, 9000], ["f32", "f64", "bf16"]
    ):
        with case(m, n, k, element):
            rows, columns, depth = (m, k, 0, n), (n, 0, 1, 1), (k, 1, n, 0)
            dims = [(contract.Dim(*d),) for d in (rows, columns, depth)]
            product = contract.NormalForm(element, (), dims[0], dims[1], dims[2], whole_rows=True)
            for threads, packed in ((1, False), (2, False), (5, False), (2, True)):
                words = contract.plan(
                    product,
                    contract.host_target(),
                    threads=threads,
                    epilogue=True,
                    stage=True,
                    packed_b=packed,
                ).params
                assert words[Word.N] == n
                assert words[Word.COLUMN_UNITS] == 1
                assert words[Word.FINISH_COLUMNS] >= words[Word.UNIT_COLUMNS] >= n
                assert words[Word.FLAGS] & Flag.TILE
