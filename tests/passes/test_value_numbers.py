"""Value numbers: what moves, merges, drops or groups nodes keeps them, and what wires up something
else does not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from control_graphs import control_graphs
from graphs import graph, random_graphs
from hypothesis import given, settings

import graphc as gc
from graphc.config import Config
from graphc.ir.graph import Program, rebuild
from graphc.passes import pipeline
from graphc.passes.stage import Keeps
from graphc.passes.validation import check_expressions
from graphc.passes.value_numbers import ValueNumbers

X = np.linspace(-1, 1, 12).reshape(3, 4)


def numbered(*graphs):
    """What one numbering says of each graph."""
    numbers = ValueNumbers()
    return [numbers.of(g) for g in graphs]


def test_order_and_duplicates_do_not_matter():
    one, other, third = numbered(
        graph("%2 = mul(%0, %1) : f32[4]\n%3 = tanh(%2) : f32[4]\n%4 = add(%2, %3) : f32[4]"),
        graph(
            "%2 = mul(%1, %0) : f32[4]\n%3 = tanh(%2) : f32[4]\n"
            "%4 = mul(%0, %1) : f32[4]\n%5 = add(%3, %4) : f32[4]"
        ),
        graph("%2 = mul(%0, %1) : f32[4]\n%3 = tanh(%2) : f32[4]\n%4 = sub(%3, %2) : f32[4]"),
    )
    assert one == other
    assert one != third


def test_operands_of_what_does_not_commute_have_an_order():
    one, other = numbered(graph("%2 = sub(%0, %1) : f32[4]"), graph("%2 = sub(%1, %0) : f32[4]"))
    assert one != other


def across(x):
    with gc.device("cpu:1"):
        h = np.tanh(x)
        k = np.exp(x) * 2.0
    return h + k, h - k


def test_a_message_that_carries_another_value_is_seen_behind_it():
    """The nodes that read the message are the same objects as before."""
    config = Config.create(devices=["cpu:0", "cpu:1"])
    records = pipeline.run(gc.compile(across).graph(X), config)
    before = next(r.value for r in records if r.name == "schedule" or r.name == "partition")
    assert isinstance(before, Program)
    sent = [n for n in before.graphs[1].nodes if n.op.traits.send]
    assert len(sent) == 2

    def crossed(node, r):
        if node.id != sent[0].id:
            return None
        made = node.replace(inputs=tuple(r.new(n) for n in sent[1].inputs))
        r.nodes.append(made)
        return made

    nodes = sorted(before.graphs[1].nodes, key=lambda n: n.op.traits.send)
    second = before.graphs[1].replace(nodes=nodes)
    wrong = Program(before.name, (before.graphs[0], rebuild(second, crossed)))
    with pytest.raises(gc.VerifyError, match="another expression"):
        check_expressions(ValueNumbers(), before, wrong)
    check_expressions(ValueNumbers(), before, Program(before.name, (before.graphs[0], second)))


def test_the_message_names_what_stands_for_what_and_who_reads_it():
    before = graph("%2 = exp(%0) : f32[4]\n%3 = sub(%2, %1) : f32[4]\n%4 = tanh(%3) : f32[4]")
    after = graph("%2 = exp(%1) : f32[4]\n%3 = sub(%2, %1) : f32[4]\n%4 = tanh(%3) : f32[4]")
    with pytest.raises(gc.VerifyError) as caught:
        check_expressions(ValueNumbers(), before, after)
    assert "%1 y: f32[4] stands for %0 x: f32[4]" in caught.value.message
    assert "%2 = exp(%1) : f32[4] reads it" in caught.value.message


def test_a_loop_over_several_devices_is_left_to_the_interpreter():
    def model(x):
        def step(k, c):
            with gc.device("cpu:1"):
                c = np.tanh(c)
            with gc.device("cpu:0"):
                return np.exp(c) * 0.5

        return gc.fori(0, 3, step, x)

    config = Config.create(devices=["cpu:0", "cpu:1"])
    records = pipeline.run(gc.compile(model).graph(X), config)
    placed = next(r.value for r in records if r.name == "place")
    assert ValueNumbers().of(placed) is None
    assert ValueNumbers().of(records[-1].value) is None


def proved(made, **options):
    """How many stages that keep expressions changed a graph, all of them proved."""
    records = pipeline.run(made, Config.create(**options))
    keeps = {stage.name: stage.keeps for stage in pipeline.STAGES}
    numbers, count = ValueNumbers(), 0
    for before, after in pairwise(records):
        if keeps[after.name] is Keeps.EXPRESSIONS and after.value is not before.value:
            old, new = numbers.of(before.value), numbers.of(after.value)
            assert old is not None
            assert old == new, after.name
            count += 1
    return count


@given(random_graphs())
@settings(max_examples=10, deadline=None)
def test_right_stages_are_proved(made):
    assert proved(made, threads=1) >= 2
    assert proved(made, devices=["cpu:0", "cpu:1"]) >= 2


@given(control_graphs())
@settings(max_examples=10, deadline=None)
def test_right_stages_of_control_flow_are_proved(made):
    assert proved(made, threads=1) >= 2
