"""Placement of random graphs under random constraints: obeyed, verified, and the same results."""

from __future__ import annotations

import random
import re

import numpy as np
from effort import examples
from graphs import arguments, random_graphs
from hypothesis import given
from hypothesis import strategies as st

from graphc.config import Config
from graphc.ir import verify
from graphc.ir.graph import Graph
from graphc.ir.place import Constraint, Device, device_of, parse_device, parse_spec
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.simulate import simulate
from graphc.passes.reasons import collecting

DEVICES = ("cpu:0", "cpu:1", "sim:0")
SPECS = [*map(parse_spec, ("cpu:1", "cpu", "sim", "/job:localhost"))]


def constrained(graph: Graph, draw: random.Random) -> Graph:
    """The graph with a spec or a group here and there."""
    mapped = {param: param for param in graph.params}
    for node in graph.nodes:
        kind = draw.random()
        place = None
        if kind < 0.3:
            place = Constraint(draw.choice(SPECS))
        elif kind < 0.5:
            place = Constraint(None, draw.choice("ab"))
        mapped[node] = node.replace(
            inputs=tuple(mapped[n] for n in node.inputs),
            after=tuple(mapped[n] for n in node.after),
            place=place,
        )
    return graph.replace(
        nodes=[mapped[n] for n in graph.nodes], results=tuple(mapped[r] for r in graph.results)
    )


@examples(20)
@given(random_graphs(), st.integers(0, 1000), st.sampled_from([0, 2]))
def test_random_graphs_under_random_constraints(graph: Graph, seed: int, opt: int) -> None:
    config = Config.create(devices=DEVICES, opt=opt, place_seconds=0.02, verify=3)
    arrays = arguments(graph, seed)
    wanted = interpret(graph, arrays)
    before = value = constrained(graph, random.Random(seed))
    for stage in pipeline.STAGES:
        if stage.name in ("gradient", "expand", "dce", "place", "partition"):
            with collecting() as note:
                before, value = value, pipeline.apply(stage, value, config)
            verify.verify(value)
        if stage.name == "place":
            obeyed(before, value, merged(note.lines))
            finishes(value)
    for made, want in zip(interpret(value, arrays), wanted, strict=True):
        np.testing.assert_array_equal(made, want)


def merged(lines: list[tuple[int, str]]) -> dict[int, int]:
    """Nodes that became another one, and which: equal nodes may meet on one device."""
    found = ((node, re.fullmatch(r"same as %(\d+)", text)) for node, text in lines)
    return {node: int(match[1]) for node, match in found if match}


def obeyed(before: Graph, placed: Graph, merged: dict[int, int]) -> None:
    """Every constraint holds, and every group is on one device."""
    verify.every_node_placed(placed)
    homes = {node.id: device_of(node.place) for node in placed.nodes}
    homes |= {node: homes[first] for node, first in merged.items()}
    groups: dict[str, set[Device | None]] = {}
    for node in before.nodes:
        if node.op.name == "const" or not isinstance(node.place, Constraint):
            continue
        home = homes[node.id]
        assert home is not None and (node.place.spec is None or node.place.spec.matches(home))
        if node.place.group:
            groups.setdefault(node.place.group, set()).add(home)
    assert all(len(found) == 1 for found in groups.values())
    assert {p.place for p in placed.params} <= {parse_device("cpu:0")}


def finishes(placed: Graph) -> None:
    timeline = simulate(placed, CostModel(map(parse_device, DEVICES)))
    assert all(end >= 0 for end in timeline.end.values())
    for node in placed.nodes:
        for source in node.inputs:
            assert timeline.start[node] >= timeline.end[source]
