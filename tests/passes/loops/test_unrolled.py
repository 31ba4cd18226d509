"""Unrolled loops: turns that differ in what they read share kernels, and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.codegen.kernels import spec_of
from graphc.codegen.lowering.lower import lower_loops
from graphc.codegen.lowering.windows import start_of
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node, Program
from graphc.ir.op import OPS
from graphc.ir.types import F32, tensor
from graphc.ops.control.control import param_node
from graphc.passes import pipeline
from graphc.passes.loops.merge_dots import merge_dots

CONFIG = Config(threads=1)


def planned(function: Callable[..., Any], *arrays: np.ndarray) -> Graph:
    program = pipeline.run(gc.compile(function).graph(*arrays), CONFIG)[-1].value
    assert isinstance(program, Program)
    return program.graphs[0]


def kernels(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == "fused"]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def recurrent(x: Any, w: Any, u: Any) -> Any:
    state = np.tanh(x[0] @ w)
    for k in range(1, len(x)):
        state = np.tanh(x[k] @ w + state @ u)
    return state


def backwards(x: Any, w: Any, u: Any) -> Any:
    return recurrent(x[::-1], w, u)


def batch_first(x: Any, w: Any, u: Any) -> Any:
    return recurrent(np.swapaxes(x, 0, 1), w, u)


# ---------------------------------------------------------------------------------- parts of arrays


@examples(100)
@given(st.data())
def test_a_slice_is_a_part_exactly_where_its_memory_is_contiguous(data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    cuts = []
    for extent in dims:
        step = data.draw(st.sampled_from((1, 1, 1, 2)))
        start = data.draw(st.integers(0, extent - 1))
        cuts.append((start, data.draw(st.integers(start + 1, extent)), step))
    starts, stops, steps = zip(*cuts, strict=True)
    x = np.empty(dims, np.float32)
    view = x[tuple(slice(*cut) for cut in cuts)]
    builder = Builder(1)
    attrs = {"starts": starts, "stops": stops, "steps": steps}
    node = builder.emit(OPS["slice"], (param_node(0, tensor(F32, dims), "x"),), attrs)
    offset = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    assert start_of(node) == (offset if view.flags.c_contiguous else None)


def test_turns_are_one_kernel_at_several_addresses() -> None:
    made = kernels(planned(recurrent, normal(6, 2, 4), normal(4, 3), normal(3, 3)))
    specs = [spec_of(node, CONFIG) for node in made]
    turns = [s for s in specs if s.kernel is not None and len(s.operands) > 4]
    assert len(turns) == 5
    assert len({id(s.kernel) for s in turns}) == 1
    assert len({s.operands for s in turns}) == 5
    assert len({(s.params, s.units, s.workspace) for s in turns}) == 1


def test_a_part_that_is_read_twice_or_beside_the_whole_is_read_where_it_lies() -> None:
    x = normal(3, 4)

    def twice(x: Any) -> Any:
        return [x[k] + x[k - 1] * 2 for k in (1, 2)], x[1:] - x[:2].sum()

    made = gc.compile(twice, threads=1)(x)
    for mine, theirs in zip((*made[0], made[1]), (*twice(x)[0], twice(x)[1]), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------------------------- products


@pytest.mark.parametrize("function", [recurrent, backwards, batch_first])
@pytest.mark.parametrize("dims", [(9, 4, 16), (40, 40, 48), (5, 70, 8)])
def test_products_of_slices(function: Callable[..., Any], dims: tuple[int, int, int]) -> None:
    x, w, u = normal(*dims), normal(dims[2], 24) * 0.1, normal(24, 24) * 0.1
    if function is batch_first:
        x = np.ascontiguousarray(np.swapaxes(x, 0, 1))
    expected = function(*(a.astype(np.float64) for a in (x, w, u)))
    for opt in (0, 2):
        made = gc.compile(function, opt=opt)(x, w, u)
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_neighbouring_slices_are_one_product() -> None:
    products = (normal(12, 4, 16), normal(16, 24), normal(24, 24))
    count = sum(
        any(n.op.name == "matmul" for n in node.regions[0].nodes)
        for node in kernels(planned(recurrent, *products))
    )
    assert count == 1 + 11


def test_a_slice_of_a_number_is_no_row() -> None:
    builder = Builder(2)
    x, w = param_node(0, tensor(F32, ()), "x"), param_node(1, tensor(F32, (1, 3)), "w")
    part = builder.emit(OPS["slice"], (x,), {"starts": (), "stops": (), "steps": ()})
    row = builder.emit(OPS["reshape"], (part,), {"dims": (1, 1)})
    graph = Graph("f", (x, w), builder.nodes, (builder.emit(OPS["matmul"], (row, w)),))
    assert merge_dots(graph, CONFIG) is graph
    assert pipeline.run(graph, CONFIG)


def test_many_products_become_one() -> None:
    for count in (2, 1000):
        builder = Builder(2)
        kinds = tensor(F32, (count, 1, 4)), tensor(F32, (4, 4))
        x, w = (param_node(k, kind, f"p{k}") for k, kind in enumerate(kinds))
        results = []
        for k in range(count):
            attrs = {"starts": (k, 0, 0), "stops": (k + 1, 1, 4), "steps": (1, 1, 1)}
            part = builder.emit(OPS["slice"], (x,), attrs)
            row = builder.emit(OPS["reshape"], (part,), {"dims": (1, 4)})
            results.append(builder.emit(OPS["matmul"], (row, w)))
        graph = Graph("f", (x, w), builder.nodes, tuple(results))
        assert sum(n.op.name == "matmul" for n in merge_dots(graph, CONFIG).nodes) == 1


# ---------------------------------------------------------------------------------- the rest


def test_many_results_are_stacked_by_copies() -> None:
    def stacked(x: Any) -> Any:
        rows = [x]
        for _ in range(79):
            rows.append(np.tanh(rows[-1] + 1))
        return np.stack(rows)

    x = normal(3, 5)
    last = kernels(planned(stacked, x))[-1]
    assert spec_of(last, CONFIG).kind == "copy"
    assert len(spec_of(last, CONFIG).params) == 80
    np.testing.assert_allclose(gc.compile(stacked)(x), stacked(x), rtol=1e-5)


def test_many_slices_are_stacked_in_stages() -> None:
    def woven(x: Any) -> Any:
        return np.stack([x[:, k % 7] for k in range(50)])

    x = normal(6, 7)
    np.testing.assert_array_equal(gc.compile(woven)(x), woven(x))


def test_costly_elements_are_shared_among_threads_sooner() -> None:
    def grain(function: Callable[..., Any]) -> int:
        return lower_loops(kernels(planned(function, normal(64, 256)))[0].regions[0], "kernel")[1]

    cheap, costly = grain(lambda x: x[:, :1] * x), grain(lambda x: np.tanh(np.exp(x[:, :1] * x)))
    assert 2 * costly < cheap
