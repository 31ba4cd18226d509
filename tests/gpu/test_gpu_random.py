"""Random programs on a GPU: typed graphs, nested control flow, variables and donated arguments."""

from __future__ import annotations

import device_graphs
import numpy as np
import pytest
from control_graphs import control_graphs, whole_numbers
from device_graphs import scattered
from effort import rounds
from gpu_harness import GPU, SEED, crossed, need_gpu, run_graph, sized
from graphs import SHAPES, Shapes, arguments, random_graphs, same
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from state_programs import check_program

from graphc.ir.graph import Graph
from graphc.ir.place import parse_device
from graphc.ops.reference.interpreter import interpret

need_gpu()
pytestmark = pytest.mark.gpu

WIDE = sized(
    ((), (12,), (5, 16), (1, 16), (5, 1), (3, 2, 9), (2, 40)),
    ((), (700,), (300, 512), (1, 512), (300, 1), (6, 40, 33), (3, 5000)),
)
PHASES = (Phase.generate, Phase.shrink)


def examples(simulated: int, real: int) -> settings:
    return settings(
        max_examples=sized(rounds(simulated), real),
        deadline=None,
        phases=PHASES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize(("opt", "shapes"), crossed([0, 2], [SHAPES, WIDE]))
def test_graphs(opt: int, shapes: Shapes) -> None:
    @seed(SEED + opt)
    @examples(15, 100)
    @given(random_graphs(most=10, shapes=shapes))
    def check(g: Graph) -> None:
        given_arrays = arguments(g, SEED)
        same(run_graph(g, given_arrays, opt=opt), interpret(g, given_arrays), 3e-5)

    check()


@pytest.mark.parametrize("opt", [0, 2])
def test_control_flow(opt: int) -> None:
    @seed(SEED + opt)
    @examples(15, 100)
    @given(control_graphs())
    def check(g: Graph) -> None:
        given_arrays = whole_numbers(g, SEED)
        for got, want in zip(
            run_graph(g, given_arrays, opt=opt), interpret(g, given_arrays), strict=True
        ):
            np.testing.assert_array_equal(got, want)

    check()


@pytest.mark.parametrize("number", range(sized(6, 60)))
def test_programs_over_variables(number: int) -> None:
    check_program(number, devices=GPU)


@pytest.mark.parametrize("opt", [0, 2])
def test_placed_at_random(opt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes on a CPU, a GPU and another GPU or CPU, whatever they are."""
    others = ("cpu:0", "gpu:0", sized("gpu:1", "cpu:1"))
    monkeypatch.setattr(device_graphs, "CPUS", tuple(map(parse_device, others)))

    @seed(SEED + opt)
    @examples(15, 100)
    @given(st.one_of(random_graphs(most=10), control_graphs()), st.integers(0, 1000))
    def check(g: Graph, places: int) -> None:
        executable = scattered(g, places, 3, opt=opt)
        given_arrays = whole_numbers(g, SEED)
        for _ in range(2):
            same(executable.run(given_arrays), interpret(g, given_arrays), 3e-5)

    check()
