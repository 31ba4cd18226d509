"""Control flow: every op against the interpreter, random nested graphs, failures and cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from control_graphs import control_graphs, whole_numbers
from hypothesis import HealthCheck, given, settings

from graphc.codegen.build import build
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ops.interpret import interpret
from graphc.passes import pipeline
from graphc.runtime.execute import Executable

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def compiled(g: Graph, **options: Any) -> Executable:
    config = Config(verify=3, **options)
    return build(pipeline.run(g, config)[-1].value, config)[0]


def equal(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("opt", "threads"), [(0, 1), (2, 1), (2, 2)])
@SLOW
@given(g=control_graphs())
def test_random_control_flow(opt: int, threads: int, g: Graph) -> None:
    executable = compiled(g, opt=opt, threads=threads)
    for seed in range(3):
        arrays = whole_numbers(g, seed)
        equal(executable.run(arrays), interpret(g, arrays))


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
        if stage.name in ("fold", "simplify", "dce", "cse", "hoist", "fuse", "tile", "plan"):
            assert pipeline.apply(stage, value, config) is value, stage.name
