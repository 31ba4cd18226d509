"""Every op under vmap: all lanes at once equal one lane after the other, whichever operand is
mapped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import case
from effort import examples
from graphs import arguments, random_graphs, same
from hypothesis import given
from hypothesis import strategies as st
from op_samples import SAMPLED, check, expected, good_samples

import graphc as gc
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OPS, Composite, Host, Op, Sample
from graphc.ir.types import tensor
from graphc.ir.verify import no_lanes, verify
from graphc.ops.batching.batch_region import RULES
from graphc.ops.control.control import param_node
from graphc.ops.record.batching import by_the_sweep
from graphc.ops.record.value import emit
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.vmap import vmap

LANES = 3
CONFIG = Config.create(threads=1)
# Ops for which there is no rule: they run lane by lane.
LOOPED = {
    "byte_digits",
    "digits_matmul",
    "nonzero",
    "sparse_sampled",
    "conv_last",
    "conv_windows",
    "conv_windows_last",
    "tile_choose",
    "tile_pool",
    "winograd_input",
    "winograd_output",
    "winograd_weight",
}
PARTLY = {"dynamic_update_slice", "fft", "irfft", "rfft", "searchsorted"}  # with some operands
PARTLY |= {"packed_matmul", "sparse_adjoint", "sparse_matmul"}
# Operands that stay in order.
ORDERED = {"searchsorted": 0, "sparse_adjoint": 2, "sparse_matmul": 2, "sparse_sampled": 3}


def few(samples: list[Sample]) -> list[Sample]:
    """The first sample, the last and one from between, of other dtypes and shapes."""
    return [samples[k] for k in sorted({0, len(samples) // 2, len(samples) - 1})]


def lanes_of(array: np.ndarray[Any, Any], whole: bool) -> np.ndarray[Any, Any]:
    """Lanes that differ: the array, backwards along its first axis, and the array again."""
    other = array if whole or not array.ndim else array[::-1]
    return np.stack([array, other, array])


def ways(count: int) -> list[tuple[bool, ...]]:
    """All operands mapped, then each of the first three alone."""
    alone = [tuple(k == one for k in range(count)) for one in range(min(count, 3))]
    return [(True,) * count, *(alone if count > 1 else [])]


def one_by_one(op: Op, sample: Sample, arrays: list[Any], mapped: tuple[bool, ...]) -> Any:
    rows = []
    for lane in range(LANES):
        chosen = [a[lane] if m else a for a, m in zip(arrays, mapped)]
        kinds, values = expected(op, Sample(tuple(chosen), sample.attrs))
        rows.append(values)
    return kinds, [np.stack(column) for column in zip(*rows)]


def settled(graph: Graph) -> Graph:
    made = vmap(graph, CONFIG)
    verify(made, set())
    no_lanes(made)
    return made


@pytest.mark.parametrize("name", [n for n in SAMPLED if not OPS[n].in_kernels])
def test_lanes_equal_separate_calls(name: str) -> None:
    op, looped = OPS[name], False
    for sample in few(good_samples(op)):
        given = [np.asarray(a) for a in sample.operands]
        for mapped in ways(len(given)) if given else ():
            ordered = [ORDERED.get(name) == k for k in range(len(given))]
            arrays = [lanes_of(*pair) if m else pair[0] for *pair, m in zip(given, ordered, mapped)]
            try:
                kinds, wants = one_by_one(op, sample, arrays, mapped)
            except np.linalg.LinAlgError:  # a matrix that is not positive definite backwards
                continue

            def lane(*operands: Any, sample: Sample = sample) -> Any:
                return emit(op, *operands, **sample.attrs)

            axes = tuple(0 if m else None for m in mapped)
            graph = settled(gc.compile(gc.vmap(lane, in_axes=axes)).graph(*arrays))
            looped |= any(node.op.name == "scan" for node in graph.nodes)
            stacked = [tensor(k.dtype, (LANES, *k.shape)) for k in kinds]
            check(interpret(graph, arrays), stacked, wants, max(sample.tolerance, 4), f"{mapped}")
    assert looped == (name in LOOPED | PARTLY), "what runs lane by lane stands in LOOPED"


def test_no_cell_is_blank() -> None:
    """A rule, or a refusal that says why."""
    for name in sorted(OPS):
        with case(name):
            op = OPS[name]
            assert op.batch is not None, "see ops/record/batching.py"
            if op.batch is by_the_sweep:
                known = name in RULES or isinstance(op.lower, Host) or name in ("tuple", "item")
                assert known, "see ops/batching/regions.py"
            if op.regions:
                assert name in RULES or isinstance(op.lower, Composite) or refuses(op)


def refuses(op: Op) -> bool:
    try:
        return op.batch is None or op.batch(op, None) is None
    except GraphError as error:
        return op.name in error.message


@pytest.mark.slow
def test_random_numbers_are_those_of_separate_calls() -> None:
    keys = np.stack([gc.random.key(seed) for seed in range(5)])

    def draw(key: Any) -> Any:
        return (
            gc.random.normal(key, (3,)),
            gc.random.split(key, 3),
            gc.random.fold_in(key, 7),
            gc.random.uniform(key, (2, 2), minval=-1, maxval=2),
            gc.random.permutation(key, 5),
            gc.random.randint(key, (4,), 0, 9),
            gc.random.categorical(key, np.zeros(4, np.float32)),
        )

    one, each = gc.compile(draw, parity=True), gc.compile(gc.vmap(draw), parity=True)
    rows = [one(key) for key in keys]
    for made, *wants in zip(each(keys), *rows):
        np.testing.assert_array_equal(made, np.stack(wants))


def test_what_has_no_rule_runs_lane_by_lane_and_says_so() -> None:
    @gc.compile
    def places(masks: Any) -> Any:
        return gc.vmap(lambda mask: emit("nonzero", mask, size=2)[0])(masks)

    masks = np.array([[True, False, True], [False, False, True]])
    np.testing.assert_array_equal(places(masks), [[0, 2], [2, 0]])
    stage = next(s for s in places.stages(masks) if s.name == "vmap")
    assert any("nonzero, lane by lane, in a loop" in text for _, text in stage.note.reasons)


def test_nodes_of_no_lane_are_computed_once() -> None:
    def lane(x: Any, w: Any) -> Any:
        return x * np.exp(w)

    x, w = np.ones((4, 3)), np.ones(3)
    graph = settled(gc.compile(gc.vmap(lane, in_axes=(0, None))).graph(x, w))
    exp: Node = next(node for node in graph.nodes if node.op.name == "exp")
    assert exp.type.shape == (3,)


@examples(20)
@given(random_graphs(), st.integers(0, 2**20), st.integers(1, 3))
def test_random_graphs_for_all_slices(region: Graph, seed: int, size: int) -> None:
    """A random region, some of whose operands are mapped: the pass equals the interpreter, which
    runs one slice after the other."""
    chosen = np.random.default_rng(seed).random(len(region.params)) < 0.6
    kinds = [
        tensor(p.type.dtype, (size, *p.type.shape)) if m else p.type  # type: ignore[union-attr]
        for p, m in zip(region.params, chosen)
    ]
    params = tuple(param_node(k, kind) for k, kind in enumerate(kinds))
    builder, count = Builder(len(params)), len(region.results)
    attrs = {"mapped": np.flatnonzero(chosen), "size": size, "stacked": count}
    made = builder.emit(OPS["vmap"], params, attrs, regions=(region,))
    parts = [made]
    if count > 1:
        parts = [builder.emit(OPS["item"], (made,), {"index": k}) for k in range(count)]
    whole = Graph("f", params, builder.nodes, tuple(parts))
    given_arrays = arguments(whole, seed)
    same(interpret(settled(whole), given_arrays), interpret(whole, given_arrays))
