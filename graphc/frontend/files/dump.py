"""The dump folder: every stage of a compilation as a file that can be read, run and compared.

    00-trace.gir ...                numbered by position in STAGES; stages that changed nothing are
    ... NN-plan.gir          left out, except partition, schedule and plan
    NN.01-expand.gir                what a stage of a cycle changed in a later round; NN is the last
                                    stage of the cycle
    constants.safetensors           the big constants of all stages, the values of variables
    kernels/NAME.py NAME.ll NAME.s  the generated kernels, as LLVM or Numba compiled them
    index.txt                       the story in one screen: times, counts, reasons

Every .gir file starts with a comment that names its pass and counts its nodes.  A second
compilation of the same process that dumps to the same folder gets a folder of its own inside it,
and so does each phase of a graph whose data decides sizes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.config import Config
from graphc.errors import GraphError, printable
from graphc.forks import fork_safe_lock
from graphc.frontend.compile.build import Built
from graphc.frontend.files.gir_files import save
from graphc.frontend.files.marked_sizes import marking
from graphc.frontend.files.saved_variables import values_of
from graphc.frontend.files.weights import write_weights
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.literal import Literal
from graphc.runtime.files.files import write_atomically
from graphc.runtime.load.table import CALL, stack_slots

if TYPE_CHECKING:
    from graphc.passes.pipeline import StageResult

ALWAYS = ("partition", "schedule", "plan")
CONSTANTS = "constants.safetensors"
MOST_GUARDS = 12
MOST_REASONS = 3
_HEAD = f"{'stage':<28}{'ms':>8}{'nodes':>8}  what happened"
KERNEL_WORD = 2  # of a call row of the step table
_FILE = re.compile(r"\d\d(\.\d\d)?-\w+\.gir")
_KERNEL = re.compile(r"k[0-9a-f]{24}\.(py|ll|s)")
_dumped: dict[Path, int] = {}
_lock = fork_safe_lock()


def write_dump(folder: Path, built: Built, config: Config) -> Path:
    """Write a compilation to a folder, which is returned. Raises GraphError when it cannot."""
    target = _folder_for(folder, built.program.name)
    _write_stages(target, built.stages)
    _write_kernels(target / "kernels", built, config)
    write_atomically(target / "index.txt", [index_text(built, config).encode()])
    return target


def write_stages(folder: Path, stages: Sequence[StageResult]) -> Path:
    """Write stages that no compilation follows as such: those of a graph that is cut into phases.

    Returns their folder. Raises GraphError when it cannot be written.
    """
    first = stages[0].value
    target = _folder_for(folder, first.name)
    _write_stages(target, stages)
    lines = [f"{first.name}: {len(first)} nodes, cut into phases behind these stages", ""]
    lines += [_HEAD, *_stage_lines(stages)]
    write_atomically(target / "index.txt", [_text(lines).encode()])
    return target


def _write_stages(target: Path, stages: Sequence[StageResult]) -> None:
    try:
        _clear(target)
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphError(f"cannot write dump folder {target}: {error.strerror}") from None
    variables = values_of(stages[0].value)
    constants = [*_constants(stages), *variables.values()]
    if constants:
        write_weights(target / CONSTANTS, constants)
    marked = marking([stage.value for stage in stages])
    for number, stage in _numbered(stages):
        if number == "--":
            continue
        save(
            target / f"{number}-{stage.name}.gir",
            marked(stage.value),
            comments=(f"# stage {stage.name}: {node_counts(stage.value)}",),
            weights=CONSTANTS,
            variables=variables,
        )


def _folder_for(folder: Path, name: str) -> Path:
    with _lock:
        path = folder.absolute()
        count = _dumped[path] = _dumped.get(path, 0) + 1
    return (
        folder
        if count == 1
        else folder / f"{count:02d}-{re.sub(r'[^A-Za-z0-9_.]', '_', name)[:40]}"
    )


def _clear(folder: Path) -> None:
    """Remove an earlier dump, and nothing else, from a folder."""
    if not (folder / "index.txt").exists():
        return
    stages = [path for path in folder.iterdir() if _FILE.fullmatch(path.name)]
    if not stages:
        raise GraphError(f"{folder} has an index.txt of its own", hint="dump to another folder")
    kernels = [p for p in folder.glob("kernels/*") if _KERNEL.fullmatch(p.name)]
    for path in (*stages, *kernels, folder / CONSTANTS, folder / "index.txt"):
        path.unlink(missing_ok=True)


def _constants(stages: Sequence[StageResult]) -> list[Literal]:
    from graphc.ir.text import literals

    found: dict[str, Literal] = {}
    for stage in stages:
        for item in literals(stage.value):
            found.setdefault(item.digest, item)
    return list(found.values())


def _numbered(stages: Sequence[StageResult]) -> Iterator[tuple[str, StageResult]]:
    """The stages that are written, with their numbers; "--" for those that are not."""
    from graphc.passes.pipeline import STAGES

    positions = {stage.name: number for number, stage in enumerate(STAGES)}
    before: Any = None
    last, rounds = -1, 0
    for stage in stages:
        position = positions[stage.name]
        rounds = 0 if position > last else rounds + 1
        last = max(last, position)
        changed = stage.value is not before or stage.name in ALWAYS
        before = stage.value
        yield (f"{last:02d}.{rounds:02d}" if rounds else f"{last:02d}") if changed else "--", stage


def node_counts(value: Graph | Program) -> str:
    """ "12 nodes: 4 add, 3 matmul, ..." with the most frequent ops first."""
    graphs = value.graphs if isinstance(value, Program) else (value,)
    counts = Counter(node.op.name for graph in graphs for node in graph.nodes)
    listed = ", ".join(f"{count} {name}" for name, count in counts.most_common(8))
    more = ", ..." if len(counts) > 8 else ""
    total = sum(counts.values())
    return f"{total} node{'s' * (total != 1)}" + (f": {listed}{more}" if listed else "")


# ------------------------------------------------------------------------------------ kernels


def _write_kernels(folder: Path, built: Built, config: Config) -> None:
    from graphc.codegen.build import kernel_texts

    texts = kernel_texts(built.kernels, config)
    if not texts:
        return
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, [text.encode()])


def kernel_uses(built: Built) -> list[tuple[str, int, str]]:
    """(name, number of steps, what it computes) of every kernel, most used first."""
    program = built.program
    graphs = program.graphs if isinstance(program, Program) else (program,)
    nodes = {node.summary(): node for graph in graphs for node in graph.nodes}
    uses: Counter[str] = Counter()
    titles: dict[str, str] = {}
    for image in built.image.images:
        for row, origin in image.origins.items():
            if image.table[row] != CALL:
                continue
            kernel = image.kernels[image.table[row + KERNEL_WORD]]
            uses[kernel] += 1
            if kernel not in titles:
                titles[kernel] = kernel_title(nodes.get(origin.node), origin.node)
    return [(kernel, count, titles[kernel]) for kernel, count in uses.most_common()]


def kernel_title(node: Node | None, text: str) -> str:
    """ "%126: matmul add tanh -> f32[6,384]" for a fused node; its text for any other."""
    if node is None or not node.regions:
        return text
    inside = [n.op.name for n in node.regions[0].nodes if not n.op.traits.idle]
    shown = " ".join(inside[:8]) + (f" ... ({len(inside)})" if len(inside) > 8 else "")
    return f"%{node.id}: {shown} -> {node.type}"


# ------------------------------------------------------------------------------------ index


def index_text(built: Built, config: Config) -> str:
    """The story of a compilation in one screen."""
    program = built.program
    lines = [
        f"{program.name}: {len(built.stages[0].value)} nodes became {built.steps} steps "
        f"in {built.seconds:.3f} s",
        f"devices {', '.join(config.devices)}   opt {config.opt}   backend {config.backend}   "
        f"threads {config.thread_count}",
        "",
        _HEAD,
        *_stage_lines(built.stages),
    ]
    lines.append(
        f"      {'codegen':<22}{built.build_seconds * 1e3:8.2f}{'':8}  {_codegen_note(built)}"
    )
    return _text(
        [*lines, *_size_lines(built), *_kernel_lines(built, config), *_memory_lines(built)]
    )


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{printable(line)}\n" for line in lines)


def _stage_lines(stages: Sequence[StageResult]) -> list[str]:
    """What each stage did, and last those that did nothing."""
    lines, idle = list[str](), []
    for number, stage in _numbered(stages):
        if number == "--" and not stage.note.reasons:
            idle.append(stage)
            continue
        lines.append(
            f"{number:<6}{stage.name:<22}{stage.seconds * 1e3:8.2f}{len(stage.value):8}  "
            f"{_one_line(stage.note)}".rstrip()
        )
        lines += _reason_lines(stage)
    if idle:
        spent = 1e3 * sum(stage.seconds for stage in idle)
        names = ", ".join(stage.name for stage in idle)
        lines.append(f"{'--':<6}{'without change':<22}{spent:8.2f}{'':8}  {names}")
    return lines


def _size_lines(built: Built) -> list[str]:
    """The sizes that are open, and for which the program is compiled."""
    formulas = built.image.formulas
    if formulas is None:
        return []
    guards = [guard.text for guard in formulas.guards]
    rest = len(guards) - MOST_GUARDS
    shown = [*guards[:MOST_GUARDS], *([f"{rest} more"] if rest > 0 else [])] or ["all values"]
    return ["", f"sizes {', '.join(formulas.symbols)}", f"   for {', '.join(shown)}"]


def _reason_lines(stage: StageResult) -> list[str]:
    """The first reasons a stage gave for what it did."""
    reasons = getattr(stage.note, "reasons", ())
    lines = [f"{'':46}%{node}: {_one_line(text)}" for node, text in reasons[:MOST_REASONS]]
    rest = len(reasons) - MOST_REASONS
    return lines + ([f"{'':46}and {rest} more"] if rest > 0 else [])


def _one_line(note: str) -> str:
    parts = [part.strip() for part in note.splitlines() if part.strip()]
    shown = "; ".join(parts[:3]) + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")
    return shown if len(shown) <= 160 else shown[:157] + "..."


def _codegen_note(built: Built) -> str:
    return f"{built.compiled} kernels compiled, {built.cached} from the cache"


def _kernel_lines(built: Built, config: Config) -> list[str]:
    from graphc.codegen.build import kernel_versions

    uses, versions = kernel_uses(built), kernel_versions(built.kernels, config)
    lines = ["", "kernels"] if uses else []
    for name, count, node in uses[:16]:
        lines.append(f"   {name:<26}{count:>6} x  {_one_line(node)}")
        lines += [f"{'':<38}{text}" for text in versions.get(name, ())]
    return lines + ([f"   and {len(uses) - 16} more"] if len(uses) > 16 else [])


def _memory_lines(built: Built) -> list[str]:
    image = built.image
    sizes = {
        "arguments": sum(slot.nbytes for slot in image.params),
        "results": sum(slot.nbytes for slot in image.results),
        "constants": sum(each.constants.nbytes for each in image.images),
        "arena": sum(each.arena_bytes for each in image.images),
    }
    lines = ["", "bytes", "   " + "   ".join(f"{name} {size:,}" for name, size in sizes.items())]
    if stacks := sum(stack_slots(each.table.tolist()) for each in image.images):
        grown = f"{stacks} stacks {built.stack_bytes:,}"
        lines.append(f"   {grown}, which grow while loops run")
    return lines
