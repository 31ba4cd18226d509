"""Random typed graphs: every pass keeps the meaning, verifies, settles and survives the text
form.
"""

from __future__ import annotations

import pytest
from effort import examples
from graphs import arguments, random_graphs, same
from hypothesis import given

from graphc.codegen.build import build
from graphc.config import Config
from graphc.ir.graph import Graph, Program
from graphc.ir.parse import parse
from graphc.ir.text import literals, show
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline

SLOW = examples(20)
QUICK = examples(8)
IDEMPOTENT = (
    "fold",
    "simplify",
    "dce",
    "cse",
    "fuse",
    "block",
    "pack_constants",
    "add_workspace",
    "plan",
)


@SLOW
@given(random_graphs())
def test_every_pass_keeps_the_results(g: Graph) -> None:
    given_arrays = arguments(g)
    want = interpret(g, given_arrays)
    for record in pipeline.run(g, Config(verify=3, threads=1)):
        same(interpret(record.value, given_arrays), want)


@SLOW
@given(random_graphs())
def test_passes_settle(g: Graph) -> None:
    config = Config(threads=1)
    value: Graph | Program = g
    for stage in pipeline.STAGES[1:]:
        value = pipeline.apply(stage, value, config)
        if stage.name in IDEMPOTENT:
            assert pipeline.apply(stage, value, config) is value, stage.name


@pytest.mark.slow
@SLOW
@given(random_graphs())
def test_text_round_trip_at_every_stage(g: Graph) -> None:
    for record in pipeline.run(g, Config(threads=1)):
        text = show(record.value)
        tensors = {found.digest: found.array for found in literals(record.value)}
        assert show(parse(text, tensors)) == text
        loose = text.replace(" = ", "  =   ")
        assert show(parse(loose, tensors)) == text


@pytest.mark.parametrize("opt", [0, 2])
@QUICK
@given(g=random_graphs())
def test_compiled_equals_reference(opt: int, g: Graph) -> None:
    config = Config(opt=opt, threads=1)
    executable, _ = build(pipeline.run(g, config)[-1].value, config)
    given_arrays = arguments(g)
    same(executable.run(given_arrays), interpret(g, given_arrays), 3e-5)


@examples(8)
@given(random_graphs(most=6))
def test_readable_source_through_numba_equals_reference(g: Graph) -> None:
    config = Config(backend="numba", threads=1)
    executable, _ = build(pipeline.run(g, config)[-1].value, config)
    given_arrays = arguments(g)
    same(executable.run(given_arrays), interpret(g, given_arrays), 3e-5)


@QUICK
@given(random_graphs())
def test_output_is_deterministic(g: Graph) -> None:
    texts = [show(pipeline.run(g, Config(threads=1))[-1].value) for _ in range(2)]
    assert texts[0] == texts[1]
