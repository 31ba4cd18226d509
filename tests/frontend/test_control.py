"""Control flow: every op against the interpreter, random nested graphs, failures and cost."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from control_graphs import compiled, control_graphs, equal, whole_numbers
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from project import GOLDEN, environment

import graphc as gc
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.parse import parse
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.runtime.observe.profile import profile

POWER = """graph @power(%0 x: f64[], %1 n: i64[]) {
  %2 = const() {value=f64[](1.0)} : f64[]
  %3 = const() {value=i64[](0)} : i64[]
  %4 = while(%3, %2, %0, %1) {carries=2} : (i64[], f64[]) {
    graph @test(%0 i: i64[], %1 y: f64[], %2 x: f64[], %3 n: i64[]) {
      %4 = lt(%0, %3) : bool[]
      return %4
    }
    graph @body(%0 i: i64[], %1 y: f64[], %2 x: f64[], %3 n: i64[]) {
      %4 = const() {value=i64[](1)} : i64[]
      %5 = add(%0, %4) : i64[]
      %6 = mul(%1, %2) : f64[]
      return %5, %6
    }
  }
  %5 = item(%4) {index=1} : f64[]
  return %5
}"""
SLOW = examples(20)


@SLOW
@given(g=control_graphs(), options=st.sampled_from([(0, 1), (2, 1), (2, 2)]))
def test_random_control_flow(g: Graph, options: tuple[int, int]) -> None:
    opt, threads = options
    executable = compiled(g, opt=opt, threads=threads)
    for seed in range(3):
        arrays = whole_numbers(g, seed)
        equal(executable.run(arrays), interpret(g, arrays))


@pytest.mark.slow
@SLOW
@given(control_graphs())
def test_every_pass_keeps_control_flow(g: Graph) -> None:
    arrays = whole_numbers(g)
    want = interpret(g, arrays)
    for record in pipeline.run(g, Config(verify=3, threads=1)):
        equal(interpret(record.value, arrays), want)


@SLOW
@given(control_graphs(most=4))
def test_passes_settle_on_control_flow(g: Graph) -> None:
    config = Config(threads=1)
    value: Any = g
    for stage in pipeline.STAGES[1:]:
        value = pipeline.apply(stage, value, config)
        if stage.name in ("fold", "expand", "simplify", "dce", "cse", "hoist", "fuse", "plan"):
            assert pipeline.apply(stage, value, config) is value, stage.name


@examples(8)
@given(control_graphs(depth=2, most=4))
def test_control_flow_through_numba(g: Graph) -> None:
    arrays = whole_numbers(g)
    equal(compiled(g, backend="numba", threads=1).run(arrays), interpret(g, arrays))


def test_a_profile_follows_loops() -> None:
    g = parse(POWER)
    assert isinstance(g, Graph)
    executable = compiled(g, threads=1)
    lines = profile(executable, [np.float64(3), np.int64(5)])
    assert {line.count for line in lines if line.kernel != "copy"} == {5, 6}


@pytest.mark.parametrize("opt", [0, 2])
def test_powers_by_a_loop(opt: int) -> None:
    g = parse(POWER)
    assert isinstance(g, Graph)
    executable = compiled(g, opt=opt)
    for n in range(11):
        equal(executable.run([np.float64(3), np.int64(n)]), [np.float64(3**n)])


OUT_OF_MEMORY = """
import resource
import numpy as np
import pytest
from control_graphs import EYE, STACK, compiled
from graphc.errors import RunError
from graphc.ir.parse import parse

executable = compiled(parse(STACK), threads=1)
executable.run([np.int64(9), np.int64(9), EYE])
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), -1))
with pytest.raises(RunError, match="no memory for a stack") as caught:
    executable.run([np.int64(1 << 24), np.int64(1), EYE])
assert caught.value.location == ("model.py", 7)
executable.run([np.int64(9), np.int64(9), EYE])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_stack_without_memory_is_an_error() -> None:
    command = [sys.executable, "-c", OUT_OF_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def test_exchanging_elements() -> None:
    def rotate(x: Any, n: Any) -> Any:
        def exchange(i: Any, x: Any) -> Any:
            x = x.copy()
            x[i], x[i + 1] = x[i + 1], x[i]
            return x

        return gc.fori(0, n, exchange, x)

    function = gc.compile(rotate)
    for n in (0, 1, 2, 9):
        x = np.arange(10, dtype=np.float32)
        equal([function(x, np.int64(n))], [np.concatenate([x[1 : n + 1], x[:1], x[n + 1 :]])])


@pytest.mark.parametrize("opt", [0, 2])
def test_products_of_few_rows_ahead_of_a_loop(opt: int) -> None:
    before = (GOLDEN / "batch_scan_dots/slices.gir").read_text().split("----")[0]
    g = parse(before)
    assert isinstance(g, Graph)
    arrays = whole_numbers(g)
    equal(compiled(g, opt=opt).run(arrays), interpret(g, arrays))
