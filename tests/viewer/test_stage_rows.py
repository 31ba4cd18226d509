"""Stages as rows: what the page reads back is what every stage was."""

from __future__ import annotations

import json

import numpy as np
import pytest

import graphc as gc
from graphc.ir.place import Buffer
from graphc.ir.text import attrs_text
from graphc.viewer.changes import changes
from graphc.viewer.rows import Rows, graphs_of, runs


def test_orders_are_runs_of_the_one_before():
    assert runs([], [3, 4]) == [-4, -5]
    assert runs([7, 8, 9], [7, 8, 9]) == [0, 3]
    assert runs([7, 8, 9], [9, 7, 5, 8]) == [2, 1, 0, 1, -6, 1, 1]


class Reader:
    """What assets/data.js does, once more."""

    def __init__(self, rows):
        self.rows = rows
        self.graphs = []

    def stage(self, made):
        before = self.graphs if len(self.graphs) == len(made) else self.graphs[:1] * len(made)
        self.graphs = [
            self.graph(graph, before[k] if before else []) for k, graph in enumerate(made)
        ]
        return self.graphs

    def graph(self, made, old):
        new = {row[0]: row for row in made["rows"]}
        found, order = [], iter(made["order"])
        for step in order:
            part = [[-1 - step]] if step < 0 else old[step : step + next(order)]
            found += [new.get(row[0], row) for row in part]
        return found

    def node(self, row):
        row = [*row, *[0] * (9 - len(row))]
        text = self.rows.strings
        file = [text[row[4][0]], row[4][1]] if row[4] else None
        regions = [self.region(number) for number in row[8] or []]
        named = [text[row[k]] for k in (1, 2, 5)]
        return [row[0], *named, row[3], file, row[6] or [], regions]

    def region(self, number):
        made = self.rows.regions[number]
        return [[self.node(row) for row in made[part]] for part in ("params", "nodes")]


def told(node):
    if node.op.traits.parameter:
        attrs = node.attrs["name"]
    else:
        attrs = attrs_text(node.op, node)[2:-1] if node.op.attrs else ""
    attrs = attrs if len(attrs) <= 300 else attrs[:300] + " ..."
    regions = [[list(map(told, r.params)), list(map(told, r.nodes))] for r in node.regions]
    loc = list(node.loc) if node.loc else None
    inputs, after = [n.id for n in node.inputs], [n.id for n in node.after]
    return [node.id, node.op.name, str(node.type), attrs, inputs, loc, after, regions]


def assert_read_back(stages):
    rows = Rows()
    reader, before = Reader(rows), None
    for stage in stages:
        if stage.value is before:
            continue
        before = stage.value
        made = json.loads(json.dumps(rows.stage(stage.value)))
        for found, graph in zip(reader.stage(made), graphs_of(stage.value), strict=True):
            wanted = [told(node) for node in (*graph.params, *graph.nodes)]
            assert [reader.node(row) for row in found] == wanted, stage.name


def loop(x, w):
    def step(h, x):
        h = np.tanh(h @ w + x)
        return h, h.sum()

    return gc.scan(step, np.zeros_like(x[0]), x)


def devices(x, w):
    with gc.device("cpu:1"):
        h = np.exp(x @ w)
    return h.sum(axis=0), x + 1


@pytest.mark.parametrize(
    ("function", "options"),
    [(loop, {}), (devices, {"devices": ["cpu:0", "cpu:1"], "compress": True})],
)
def test_every_stage_is_read_back(function, options):
    x, w = gc.spec((6, 4, 4), "f32"), gc.spec((4, 4), "f32")
    assert_read_back(gc.compile(function, **options).stages(x, w))


def test_a_training_step_is_read_back():
    def step(w, x):
        value, slope = gc.value_and_grad(lambda w: (np.tanh(x @ w) ** 2).mean())(w)
        return w - 0.1 * slope, value

    assert_read_back(gc.compile(step).stages(gc.spec((4, 3), "f32"), gc.spec((5, 4), "f32")))


def test_changes_of_stages():
    def f(x):
        return np.exp(x) + np.exp(x) * np.tanh(x).sum()

    stages = gc.compile(f).stages(gc.spec((64, 64), "f32"))
    before, found = stages[0].value, {}
    for stage in stages:
        found[stage.name] = changes(before, stage.value)[0]
        before = stage.value
    first, second = (n.id for n in stages[0].value.nodes if n.op.name == "exp")
    assert found["cse"]["merged"] == [(second, first)]
    kernels = {n.id for n in graphs_of(before)[0].nodes if n.op.traits.kernel}
    assert found["fuse"]["taken"]
    assert {kernel for _, kernel in found["fuse"]["taken"]} <= kernels
    assert all(not isinstance(n.place, Buffer) for n in stages[0].value.nodes)


def test_what_moved_is_the_least_that_explains_an_order():
    from graphc.viewer.changes import _moved

    assert _moved([1, 2, 3, 4], [1, 2, 3, 4]) == []
    assert _moved([1, 2, 3, 4], [4, 1, 2, 3]) == [4]
    assert _moved([1, 2, 3, 4, 5], [1, 9, 4, 2, 3, 5]) == [4]
