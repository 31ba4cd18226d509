"""Graphs on several devices for tests: places at random, orders at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc
from graphc.codegen.build import build
from graphc.config import Config
from graphc.ir.channels import channels_paired, ends, no_deadlock, spanning
from graphc.ir.graph import Graph, Node, Program, map_regions
from graphc.ir.parse import parse
from graphc.ir.place import Device, parse_device
from graphc.ir.text import show
from graphc.ir.verify import one_device_per_graph, verify
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.devices.partition import partition
from graphc.passes.pipeline import run
from graphc.runtime.call.execute import Executable

CPUS = tuple(parse_device(f"cpu:{k}") for k in range(4))
Choose = Callable[[Node], Device]


def config(devices: int = 2, **options: Any) -> Config:
    return Config.create(devices=[d.short for d in CPUS[:devices]], **options)


def simplified(graph: Graph) -> Graph:
    """The graph as it is when it gets its places."""
    records = run(graph, config(len(CPUS)))
    made = next(record.value for record in records if record.name == "propose_groups")
    assert isinstance(made, Graph)
    return made


def traced(function: Callable[..., Any], *arguments: Any) -> Graph:
    return simplified(gc.compile(function).graph(*arguments))


def spread(graph: Graph, choose: Choose) -> Graph:
    """The graph with a device on every node, also in regions; a region op whose regions lie on
    several has none itself."""
    mapped: dict[Node, Node] = {p: p.replace(place=choose(p)) for p in graph.params}
    for node in graph.nodes:
        made = map_regions(node, lambda region: spread(region, choose))
        inside = devices_in(made)
        place = choose(node) if not inside else None if len(inside) > 1 else inside.pop()
        mapped[node] = made.replace(
            inputs=tuple(mapped[n] for n in node.inputs),
            after=tuple(mapped[n] for n in node.after),
            place=place,
        )
    return graph.replace(
        params=tuple(mapped[p] for p in graph.params),
        nodes=[mapped[n] for n in graph.nodes],
        results=tuple(mapped[r] for r in graph.results),
    )


def devices_in(node: Node) -> set[Device]:
    found: set[Device] = set()
    for region in node.regions:
        for inner in region.nodes:
            found |= devices_in(inner) | ({inner.place} if inner.place else set())
    return found


def at_random(graph: Graph, seed: int, devices: int) -> Graph:
    """Variables stay on the first device; a stack is where it is made, whatever pushes onto it is
    given."""
    draw = random.Random(seed)

    def choose(node: Node) -> Device:
        held = node.op.name in ("read", "assign")
        return CPUS[0] if held else draw.choice(CPUS[:devices])

    return spread(graph, choose)


def parted(graph: Graph, devices: int = 2) -> Program:
    """The program of a placed graph, with everything checked that partition promises."""
    program = partition(graph, config(devices))
    checked(program)
    return program


def checked(program: Program) -> None:
    verify(program)
    one_device_per_graph(program)
    channels_paired(program)
    no_deadlock(program)
    text = show(program)
    tensors: dict[str, Any] = {}
    assert show(parse(text, tensors)) == text


def same(
    value: Graph | Program, other: Graph | Program, arguments: list[Any], **state: Any
) -> None:
    """Both give the same bits."""
    wants = interpret(value, arguments, state=dict(state.get("state", {})))
    found = interpret(other, arguments, state=dict(state.get("state", {})))
    for want, got in zip(wants, found, strict=True):
        np.testing.assert_array_equal(np.asarray(want), np.asarray(got))


def count(program: Program, op: str) -> int:
    return sum(n.op.name == op for g in program.graphs for n in everything(g))


def everything(graph: Graph) -> list[Node]:
    return [
        n for node in graph.nodes for n in (node, *(m for r in node.regions for m in everything(r)))
    ]


def shuffled(program: Program, draw: random.Random) -> Program:
    """The program with every device's nodes in another legal order."""
    whole = spanning(program.graphs)
    sends, _ = ends(program.graphs, deep=False)
    nodes = [node for graph in program.graphs for node in graph.nodes]
    group = {node: whole.get(node, [node])[0] for node in nodes}
    before: dict[Node, set[Node]] = {group[n]: set() for n in nodes}
    for node in nodes:
        sources = [*node.inputs, *node.after]
        if node.op.name == "recv":
            sources.append(sends[node.attrs["channel"]])
        before[group[node]] |= {group[s] for s in sources if s in group} - {group[node]}
    order: list[Node] = []
    waiting = dict(before)
    done: set[Node] = set()
    while waiting:
        ready = sorted((n for n, need in waiting.items() if need <= done), key=nodes.index)
        node = draw.choice(ready)
        order.append(node)
        done.add(node)
        del waiting[node]
    rank = {node: k for k, node in enumerate(order)}
    return program.map(lambda g: g.replace(nodes=sorted(g.nodes, key=lambda n: rank[group[n]])))


def scattered(g: Graph, seed: int, devices: int, **options: Any) -> Executable:
    """The graph compiled with a device drawn for every node."""
    placed = at_random(simplified(g), seed, devices)
    asked = config(devices, threads=1, **options)
    return build(pipeline.run(placed, asked, after="place")[-1].value, asked)[0]
