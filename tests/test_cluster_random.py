"""Random programs, placed at random over several devices, give what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from control_graphs import control_graphs, whole_numbers
from device_graphs import at_random, config, simplified
from graphs import arguments, random_graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_properties import same

from graphc.codegen.build import build
from graphc.ir.graph import Graph
from graphc.ops.interpret import interpret
from graphc.passes import pipeline
from graphc.runtime.execute import Executable

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 1000)


def scattered(g: Graph, seed: int, devices: int, **options: Any) -> Executable:
    """The graph compiled with a device drawn for every node."""
    placed = at_random(simplified(g), seed, devices)
    asked = config(devices, threads=1, **options)
    return build(pipeline.run(placed, asked, after="place")[-1].value, asked)[0]


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
