"""Random programs, placed at random over several devices, give what the reference gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from control_graphs import control_graphs, whole_numbers
from device_graphs import at_random, config, parted, scattered, shuffled, simplified, traced
from effort import examples, rounds
from graphs import arguments, random_graphs, same
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.codegen.build import build
from graphc.ir.graph import Graph, Program
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline

SLOW = examples(13)
SEEDS = st.integers(0, 1000)


@pytest.mark.parametrize("opt", [0, 2])
@SLOW
@given(g=random_graphs(), seed=SEEDS, devices=st.sampled_from([2, 3, 4]))
def test_random_graphs(opt: int, g: Graph, seed: int, devices: int) -> None:
    executable = scattered(g, seed, devices, opt=opt)
    arrays = arguments(g)
    wanted = executable.run(arrays)
    same(wanted, interpret(g, arrays), 3e-5)
    for _ in range(5):
        for again, first in zip(executable.run(arrays), wanted, strict=True):
            assert again.tobytes() == first.tobytes()


@pytest.mark.parametrize("opt", [0, 2])
@SLOW
@given(g=control_graphs(), seed=SEEDS, devices=st.sampled_from([2, 3]))
def test_random_control_flow(opt: int, g: Graph, seed: int, devices: int) -> None:
    executable = scattered(g, seed, devices, opt=opt)
    for number in range(3):
        arrays = whole_numbers(g, number)
        for got, want in zip(executable.run(arrays), interpret(g, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


def bits(program: Program, arrays: list[np.ndarray], devices: int, opt: int) -> list[bytes]:
    """What a program gives, compiled in the order in which it stands."""
    asked = config(devices, threads=1, opt=opt)
    executable = build(pipeline.run(program, asked, after="schedule")[-1].value, asked)[0]
    return [result.tobytes() for result in executable.run(arrays)]


def model(x: Any, w: Any) -> Any:
    a, b = np.tanh(x @ w), np.exp(x)
    c = gc.fori(0, 3, lambda i, c: np.sin(c) + a, b)
    d = (a + c) @ w
    return d * b, np.sum(c - d), np.maximum(a, d)


@pytest.mark.slow
@pytest.mark.parametrize("opt", [0, 2])
def test_legal_orders_give_the_same_bits(opt: int) -> None:
    x = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
    program = parted(at_random(traced(model, x, x), 3, 3), 3)
    wanted = bits(program, [x, x], 3, opt)
    draw = random.Random(opt)
    orders = set()
    count = rounds(40)
    for _ in range(count):
        other = shuffled(program, draw)
        orders.add(tuple(node.id for graph in other.graphs for node in graph.nodes))
        assert bits(other, [x, x], 3, opt) == wanted
    assert len(orders) > 0.8 * count


@pytest.mark.slow
@pytest.mark.parametrize("opt", [0, 2])
@SLOW
@given(g=random_graphs(), seed=SEEDS, devices=st.sampled_from([2, 3]))
def test_legal_orders_of_random_graphs(opt: int, g: Graph, seed: int, devices: int) -> None:
    program = parted(at_random(simplified(g), seed, devices), devices)
    arrays, draw = arguments(g), random.Random(seed)
    wanted = bits(program, arrays, devices, opt)
    for _ in range(4):
        assert bits(shuffled(program, draw), arrays, devices, opt) == wanted
