"""What the stages make of the small examples: a golden text for each, with a line per stage that
changes a program, and the ops that come and go.

Left out are stages whose decisions are the machine's (panels, blocks, scratch memory).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import click
import pytest
from click.testing import CliRunner
from effort import slow
from project import GOLDEN, ROOT

from graphc.codegen.gemm.hardware import host_target
from graphc.frontend.compile import build
from graphc.ir.graph import Graph, Program
from graphc.passes.pipeline import StageResult
from graphc.passes.tiling import block, block_images

MACHINE = host_target()._replace(l2=1 << 20, l3=1 << 24)
OF_THE_MACHINE = {"pack_constants", "mark_prologues", "add_workspace"}
EXAMPLES = {
    "mlp": [],
    "takion": ["--updates", "2"],
    "clipped_gradients": [],
    "pipeline": ["--quick"],
}


def ops_of(value: Graph | Program) -> Counter[str]:
    """How often each op stands in a program, regions included; graphs of devices are told apart."""
    found: Counter[str] = Counter()

    def visit(graph: Graph) -> None:
        for node in graph.nodes:
            found[node.op.name] += 1
            for region in node.regions:
                visit(region)

    for graph in value.graphs if isinstance(value, Program) else (value,):
        visit(graph)
    return found


def story(stages: Sequence[StageResult]) -> Iterator[str]:
    """A line for the program as it is written, and for each stage that changes its ops."""
    before = ops_of(stages[0].value)
    yield f"{stages[0].value.name}: {listed(before)}"
    for stage in stages[1:]:
        after = ops_of(stage.value)
        changes = [f"-{listed(before - after)}"] if before - after else []
        changes += [f"+{listed(after - before)}"] if after - before else []
        if changes and stage.name not in OF_THE_MACHINE:
            yield f"    {stage.name:22} {'  '.join(changes)}"
        before = after


def listed(ops: Counter[str]) -> str:
    return " ".join(f"{name}*{count}" if count > 1 else name for name, count in sorted(ops.items()))


@pytest.mark.parametrize("name", [slow(n) if n == "pipeline" else n for n in EXAMPLES])
def test_what_stages_make_of_an_example(
    name: str, request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    told: dict[str, None] = {}
    stages_of = build.stages_of

    def noted(*args: Any, **kwargs: Any) -> tuple[StageResult, ...]:
        stages = stages_of(*args, **kwargs)
        told["\n".join(story(stages))] = None
        return stages

    monkeypatch.setattr(build, "stages_of", noted)
    for module in (block, block_images):
        monkeypatch.setattr(module, "host_target", lambda: MACHINE)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHC_THREADS", "1")
    example = import_module(name)
    if name == "mlp":  # which is saved only
        example.mlp(example.random(64, 256))
    elif isinstance(example.main, click.Command):
        assert CliRunner().invoke(example.main, EXAMPLES[name]).exit_code == 0
    else:
        example.main()
    text = "\n\n".join(told) + "\n"
    path = GOLDEN / "examples" / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()
