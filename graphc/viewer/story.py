"""What a page tells of a compilation, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import parse_device
from graphc.ir.regions import is_control_flow
from graphc.passes.placement.cost import CostModel, nbytes_of
from graphc.viewer.changes import changes
from graphc.viewer.memory import memory
from graphc.viewer.rows import Rows, graphs_of
from graphc.viewer.timeline import measured, simulated

if TYPE_CHECKING:
    from graphc.codegen.compiler import Compiled
    from graphc.passes.pipeline import StageResult
    from graphc.runtime.load.program import Image
    from graphc.runtime.observe.trace import Trace
    from graphc.viewer.kernels import Dumped

FORMAT = 1
MOST_REASONS = 4000  # of a stage
MOST_SOURCE = 1 << 20  # characters of a file of the user's


@record
class Subject:
    """What a page is of: the stages of a compilation, what they have become, and where the user's
    lines may be read (their text by file; nothing is read from a disk for a page).
    """

    name: str
    stages: Sequence[StageResult]
    config: Config
    image: Image | None = None
    compiled: Compiled | None = None
    runs: Sequence[Trace] = ()
    sources: Mapping[str, str] | None = None
    dumped: Sequence[Dumped] = ()


def story(subject: Subject) -> dict[str, Any]:
    """The data of a page: numbers, strings, lists and dicts of them."""
    rows = Rows()
    program = subject.stages[-1].value
    costs = _costs(subject.config)
    made: dict[str, Any] = {
        "format": FORMAT,
        "name": subject.name,
        "options": _options(subject.config),
        "rates": _rates(costs),
        "stages": _stages(subject, rows),
        "kernels": _kernels(subject, costs) if costs is not None else [],
        "memory": memory(program),
        "simulated": simulated(program, costs) if costs is not None else {},
        "measured": [measured(trace, program) for trace in subject.runs],
        "sources": _sources(subject, rows),
    }
    made["work"] = _work(subject.stages[0].value, costs)
    return {**made, "strings": rows.strings, "regions": rows.regions}


def _options(config: Config) -> dict[str, str]:
    shown = {
        "devices": ", ".join(config.devices),
        "opt": config.opt,
        "backend": config.backend,
        "threads": config.thread_count,
        "compress": config.compress or "no",
    }
    return {name: str(value) for name, value in shown.items()}


def _costs(config: Config) -> CostModel | None:
    """The cost model, where the devices are known."""
    from graphc.passes.placement.measured import cost_model

    try:
        return cost_model(tuple(map(parse_device, config.devices)), config)
    except GraphError:
        return None


def _rates(costs: CostModel | None) -> list[dict[str, Any]]:
    """How fast each device is said to be: the lines of the roofline."""
    if costs is None:
        return []
    found = []
    for device in costs.devices:
        rates = costs.rates(device)
        finite = {k: min(v, 1e300) for k, v in (("flops", rates.flops), ("bytes", rates.bytes))}
        found.append({"device": device.short, "launch": rates.launch, **finite})
    return found


def _stages(subject: Subject, rows: Rows) -> list[dict[str, Any]]:
    """Every stage; one that changed nothing has no graphs of its own."""
    from graphc.passes.pipeline import STAGES

    known = {stage.name: stage for stage in STAGES}
    before: Graph | Program | None = None
    made = []
    for stage in subject.stages:
        found: dict[str, Any] = {
            "name": stage.name,
            "about": known[stage.name].folder if stage.name in known else "",
            "keeps": known[stage.name].keeps.value if stage.name in known else "",
            "seconds": stage.seconds,
            "note": str(stage.note),
            "reasons": list(getattr(stage.note, "reasons", ()))[:MOST_REASONS],
            "nodes": len(stage.value),
        }
        if stage.value is not before:
            found["graphs"] = rows.stage(stage.value)
            if before is not None:
                found["changes"] = changes(before, stage.value)
        before = stage.value
        made.append(found)
    return made


def _kernels(subject: Subject, costs: CostModel) -> list[dict[str, Any]]:
    from graphc.viewer.kernels import dumped_kernels, kernels

    program = subject.stages[-1].value
    if subject.image is None or subject.compiled is None:
        return dumped_kernels(program, subject.dumped, costs)
    return kernels(program, subject.image, subject.compiled, subject.config, costs)


def _work(value: Graph | Program, costs: CostModel | None) -> list[list[list[float]]]:
    """[id, flops, bytes of the result] of the nodes of the first stage, device by device."""
    return [[_node_work(node, costs) for node in graph.nodes] for graph in graphs_of(value)]


def _node_work(node: Node, costs: CostModel | None) -> list[float]:
    flops = 0.0
    if costs is not None:
        inner = node.regions[0].nodes if node.regions and not is_control_flow(node) else (node,)
        flops = sum(costs.work(n).flops for n in inner if not n.regions)
    return [node.id, flops, nbytes_of(node.type)]


def _sources(subject: Subject, rows: Rows) -> list[list[Any]]:
    """[file, text] of the user's files that nodes come from, as far as the subject has them."""
    known = subject.sources or {}
    used = {text for text in rows.strings if text in known}
    return [[rows.string(file), known[file]] for file in sorted(used)]
