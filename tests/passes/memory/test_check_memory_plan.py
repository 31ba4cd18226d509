"""Memory plans with faults are found: by what is where, not by how the planner thinks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from effort import examples, few
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from benchmarks.hostile.models import FUNCTIONS, dumps
from graphc.codegen.build import build
from graphc.codegen.table.check_memory_plan import check_memory_plan, every_value_is_found
from graphc.config import Config
from graphc.errors import VerifyError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import memory
from graphc.ir.place import Buffer, Region
from graphc.ir.regions import holds_kernels


def tangled(seed: int) -> Callable[..., Any]:
    """Products of products, each read at random times."""

    def function(x: Any, w: Any) -> Any:
        draw, values = random.Random(seed), [x, w]
        for _ in range(14):
            one, other = draw.choice(values[-5:]), draw.choice(values)
            made = draw.choice((np.matmul, np.add))(np.sort(one, axis=0), other)
            values.append(np.sign(made @ other))
        return values[-1], values[-3] + values[-5]

    return function


TANGLED = {f"tangled {seed}": tangled(seed) for seed in range(6)}
MODELS = sorted({**FUNCTIONS, **TANGLED})


@cache
def planned(model: str) -> Graph | Program:
    if model in TANGLED:
        spec = gc.spec((8, 8), "f32")
        return gc.compile(TANGLED[model], threads=1).stages(spec, spec)[-1].value
    return next(dump.value for dump in dumps(model) if dump.stage == "plan")


def first(value: Graph | Program) -> Graph:
    return value if isinstance(value, Graph) else value.graphs[0]


def with_first(value: Graph | Program, graph: Graph) -> Graph | Program:
    return graph if isinstance(value, Graph) else Program(value.name, (graph, *value.graphs[1:]))


def moved(graph: Graph, target: Node, leaf: int, region: Region) -> Graph:
    """The graph with a value in other memory, and all that are other names for it."""
    mapped: dict[Node, Node] = {p: p for p in graph.params}
    old = target.place.regions[leaf]

    def place(node: Node) -> object:
        roots = [memory(n) for n in node.inputs] if node.op.name == "tuple" else [memory(node)]
        if target not in (root for root, _ in roots) or not isinstance(node.place, Buffer):
            return node.place
        regions = tuple(region if r == old else r for r in node.place.regions)
        return Buffer(node.place.device, regions, node.place.scratch)

    for node in graph.nodes:
        inputs, after = (tuple(mapped[n] for n in ns) for ns in (node.inputs, node.after))
        mapped[node] = node.replace(inputs=inputs, after=after, place=place(node))
    return graph.replace(
        nodes=[mapped[n] for n in graph.nodes], results=tuple(mapped[r] for r in graph.results)
    )


def in_arena(graph: Graph) -> Iterator[tuple[int, Node, int]]:
    """Position, node and leaf of what a node makes in the arena."""
    for position, node in enumerate(graph.nodes):
        mine = isinstance(node.place, Buffer) and memory(node)[0] is node
        if mine and node.op.name not in ("tuple", "workspace"):
            for leaf, region in enumerate(node.place.regions):
                if region.base == "arena" and region.nbytes:
                    yield position, node, leaf


def read_after(graph: Graph, position: int, value: tuple[Node, int]) -> bool:
    late = graph.nodes[position + 1 :]
    return any(memory(source) == value for node in late for source in node.inputs)


def overwriting(graph: Graph) -> Iterator[tuple[Node, int, Region]]:
    """Places of values that are read later: nobody else may be there."""
    values = list(in_arena(graph))
    for issued, node, leaf in values:
        nbytes = node.place.regions[leaf].nbytes
        for earlier, other, part in values:
            if earlier < issued and read_after(graph, issued, (other, part)):
                offset = other.place.regions[part].offset
                end = other.place.regions[part].nbytes
                for place in {offset, offset + end // 2, max(offset - nbytes // 2, 0)}:
                    if place + nbytes > offset:
                        yield node, leaf, Region("arena", place, nbytes)


@pytest.mark.parametrize("model", MODELS)
def test_what_is_read_later_is_not_overwritten(model: str) -> None:
    value = planned(model)
    every_value_is_found(value)
    for node, leaf, region in few(overwriting(first(value)), 12):
        wrong = with_first(value, moved(first(value), node, leaf, region))
        with pytest.raises(VerifyError):
            every_value_is_found(wrong)


def test_that_many_faults_are_planted() -> None:
    counts = [len(list(overwriting(first(planned(model))))) for model in MODELS]
    assert sum(counts) > 200
    assert sum(map(bool, counts)) > 8


@pytest.mark.parametrize("model", ["scan", "while", "cond", "back", "backs"])
def test_regions_have_the_memory_that_they_need(model: str) -> None:
    """A scratch that is a line shorter is refused; so is a value of a region moved beyond it."""
    value = planned(model)
    graph = first(value)
    found = 0
    for node in filter(holds_kernels, graph.nodes):
        if isinstance(node.place, Buffer) and (scratch := node.place.scratch) is not None:
            less = Region("arena", scratch.offset, scratch.nbytes - 64)
            less = Buffer(node.place.device, node.place.regions, less)
            wrong = substituted(graph, node, node.replace(place=less))
            with pytest.raises(VerifyError, match="bytes while it runs"):
                every_value_is_found(with_first(value, wrong))
            found += 1
    assert found


def substituted(graph: Graph, old: Node, new: Node) -> Graph:
    mapped = {p: p for p in graph.params}
    for node in graph.nodes:
        mapped[node] = (new if node is old else node).replace(
            inputs=tuple(mapped[n] for n in node.inputs), after=tuple(mapped[n] for n in node.after)
        )
    return graph.replace(
        nodes=[mapped[n] for n in graph.nodes], results=tuple(mapped[r] for r in graph.results)
    )


@pytest.mark.parametrize("model", MODELS)
def test_faults_inside_regions_are_found(model: str) -> None:
    value = planned(model)
    graph = first(value)
    for node in filter(holds_kernels, graph.nodes):
        for k, region in enumerate(node.regions):
            for target, leaf, place in overwriting(region):
                regions = list(node.regions)
                regions[k] = moved(region, target, leaf, place)
                wrong = substituted(graph, node, node.replace(regions=tuple(regions)))
                with pytest.raises(VerifyError):
                    every_value_is_found(with_first(value, wrong))


@given(st.sampled_from([m for m in MODELS if m != "state"]), st.integers(0, 1 << 30))
@examples(20)
def test_a_plan_that_is_accepted_runs_right(model: str, seed: int) -> None:
    """Values are moved to where others lie or begin, harmlessly or not."""
    draw, value = random.Random(seed), planned(model)
    graph = first(value)
    values = list(in_arena(graph))
    if not values:
        return
    _, node, leaf = draw.choice(values)
    own = node.place.regions[leaf]
    offsets = [n.place.regions[k].offset for _, n, k in values]
    offset = draw.choice([*offsets, own.offset + 64, max(own.offset - 64, 0)])
    wrong = with_first(value, moved(graph, node, leaf, Region("arena", offset, own.nbytes)))
    try:
        every_value_is_found(wrong)
    except VerifyError:
        return
    numbers = np.random.default_rng(seed)
    given = [numbers.integers(-2, 3, p.type.dims).astype(p.type.dtype.numpy) for p in value.params]
    executable, _ = build(wrong, Config.create(threads=1))
    right, _ = build(value, Config.create(threads=1))
    for got, want in zip(executable.run(given), right.run(given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("function", "fits"),
    [
        (lambda x, w: x * 2 + w, True),
        (lambda x, w: x.T + x, False),
        (lambda x, w: x[::-1] * 2, False),
        (lambda x, w: (x * 2, np.sort(x, axis=0)), False),
        (lambda x, w: np.abs(x @ w) @ x, False),
        (lambda x, w: (w, x), False),
    ],
)
def test_what_a_result_takes_over_is_read_no_more(function: Any, fits: bool) -> None:
    spec = gc.spec((8, 8), "f32")
    graph = first(gc.compile(function, threads=1).stages(spec, spec)[-1].value)
    check_memory_plan(graph, (-1,) * len(graph.results))
    taken = (0, *(-1 for _ in graph.results[1:]))
    if fits:
        check_memory_plan(graph, taken)
    else:
        with pytest.raises(VerifyError):
            check_memory_plan(graph, taken)
