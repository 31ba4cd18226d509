"""The kernels of a compilation: what each computes, costs and looks like in every form.

    user's line  <->  nodes  <->  readable Python  <->  LLVM IR  <->  assembly

Nodes know the user's line.  Which line of assembly comes from which line of LLVM IR is what LLVM
itself says: the IR is compiled once more with its own line numbers as debug information, which
changes no instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.codegen.build import kernel_texts
from graphc.codegen.compiler import renamed
from graphc.codegen.llvm.target import Target, assembly, target_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import Device, device_of
from graphc.passes.placement.cost import CostModel, nbytes_of
from graphc.runtime.load.table import CALL
from graphc.viewer.called import called_nodes
from graphc.viewer.lines import llvm_lines, python_lines
from graphc.viewer.rows import graphs_of

if TYPE_CHECKING:
    from graphc.codegen.compiler import Compiled
    from graphc.runtime.load.program import Image

KERNEL_WORD = 2  # of a call row of the step table
MOST_TEXT = 400_000  # characters of one form of one kernel
_SCOPE = 9_000_000  # numbers of metadata that no kernel reaches
_DEFINE = re.compile(r"define [^{]*@([\w.]+)\([^{]*\{$")
_NO_DEBUG = re.compile(r"^\s*(;|[\w.\"-]+:|\}|$)")
_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s")
_BOOKKEEPING = re.compile(r"^\s*(\.(loc|cfi_\w+|file)\b|\.Ltmp\d+:|\.Lfunc_(begin|end)\d+:\s*$)")
_SECTION = re.compile(r"^\s*\.section\s+\.?\"?\.debug_")


@record(frozen=True)
class Dumped:
    """A kernel that a dump folder has: its texts by their endings, and the id of the first node
    that it computes (-1 if that is not told)."""

    symbol: str
    texts: Mapping[str, str]
    node: int = -1


def kernels(
    program: Graph | Program, image: Image, compiled: Compiled, config: Config, costs: CostModel
) -> list[dict[str, Any]]:
    """Every kernel with its texts, and of each call the node, its device and its cost, the
    costliest first; then the parts that products share, which no step calls itself."""
    texts = kernel_texts(compiled, config)
    target, calls = target_of(config.for_device(None)), _calls(program, image, costs)
    shared = {name[:-3] for name in texts if name.startswith("graphc_")}
    found = [
        {
            "symbol": symbol,
            "calls": calls.get(symbol, []),
            **_forms(symbol, texts, target, config),
            **_nodes(symbol, texts, compiled, target),
        }
        for symbol in [*calls, *sorted(shared - calls.keys())]
    ]
    return sorted(found, key=_seconds, reverse=True)


def dumped_kernels(
    program: Graph | Program, dumped: Sequence[Dumped], costs: CostModel
) -> list[dict[str, Any]]:
    """The kernels of a dump: texts as they are (LLVM is given none that a stranger may have
    written), and the nodes that the dump tells of."""
    nodes = {n.id: (k, n) for k, graph in enumerate(graphs_of(program)) for n in graph.nodes}
    found = []
    for kernel in dumped:
        device, node = nodes.get(kernel.node, (0, None))
        call = {
            "device": device,
            "text": "",
            "node": kernel.node,
            "rounds": 1,
            **_cost(node, costs),
        }
        forms = (("python", ".py"), ("llvm", ".ll"), ("assembly", ".s"))
        texts = {form: kernel.texts.get(ending, "")[:MOST_TEXT] for form, ending in forms}
        calls = [call] if node is not None else []
        found.append({"symbol": kernel.symbol, "calls": calls, **texts, "origins": []})
    return sorted(found, key=_seconds, reverse=True)


def _calls(
    program: Graph | Program, image: Image, costs: CostModel
) -> dict[str, list[dict[str, Any]]]:
    nodes = called_nodes(program)
    found: dict[str, dict[tuple[int, str], dict[str, Any]]] = {}
    for number, each in enumerate(image.images):
        for row, origin in each.origins.items():
            if each.table[row] != CALL:
                continue
            called = nodes.get((each.device, origin))
            path, rounds = (called.path, called.rounds) if called is not None else (-1, 1)
            cost = _cost(called.node if called is not None else None, costs)
            call = {"device": number, "text": origin.node, "node": path, "rounds": rounds, **cost}
            kernel = each.kernels[each.table[row + KERNEL_WORD]]
            found.setdefault(kernel, {})[number, str(path)] = call
    return {symbol: list(calls.values()) for symbol, calls in found.items()}


def _seconds(kernel: Mapping[str, Any]) -> float:
    """What all calls of a run take by the cost model."""
    return sum((call["rounds"] * call["seconds"] for call in kernel["calls"]), 0.0)


def _cost(node: Node | None, costs: CostModel) -> dict[str, float]:
    """What the cost model says of one call."""
    device = device_of(node.place) if node is not None else None
    if node is None or not isinstance(device, Device):
        return {"flops": 0.0, "bytes": 0.0, "seconds": 0.0}
    inner = [costs.work(n) for region in node.regions for n in region.nodes if not n.regions]
    return {
        "flops": sum(work.flops for work in inner),
        "bytes": float(sum(nbytes_of(n.type) for n in (node, *node.inputs))),
        "seconds": costs.compute(node, device),
    }


def _forms(symbol: str, texts: Mapping[str, str], target: Target, config: Config) -> dict[str, Any]:
    """The texts of a kernel, and of each line of assembly the line of LLVM IR it comes from."""
    python, llvm = texts.get(f"{symbol}.py", ""), texts.get(f"{symbol}.ll", "")
    native, lines = texts.get(f"{symbol}.s", ""), list[int]()
    if llvm and max(len(llvm), len(native)) <= MOST_TEXT:
        native, lines = linked(llvm, native, target, config.opt)
    forms = {"python": python, "llvm": llvm, "assembly": native}
    return {**{k: v[:MOST_TEXT] for k, v in forms.items()}, "origins": lines}


def _nodes(
    symbol: str, texts: Mapping[str, str], compiled: Compiled, target: Target
) -> dict[str, list[list[int]]]:
    """The nodes of each line of readable Python and of LLVM IR, where our own emitters wrote it."""
    kernel = compiled.kernels.get(symbol)
    if kernel is None or symbol in compiled.by_numba:
        return {}
    kernel = renamed(kernel, symbol)
    return {
        "python_nodes": python_lines(kernel, texts.get(f"{symbol}.py", "")),
        "llvm_nodes": llvm_lines(kernel, texts.get(f"{symbol}.ll", ""), target),
    }


# ---------------------------------------------------------------------------- LLVM and assembly


def linked(llvm: str, native: str, target: Target, opt: int) -> tuple[str, list[int]]:
    """The assembly of a text, and for each of its lines the line of the text, 0 where there is
    none.  Where debug information would change the code, the code as it was, and no lines."""
    from graphc.errors import GraphError

    try:
        lines = list(_unwrapped(assembly([numbered(llvm)], target, opt)))
    except (GraphError, RuntimeError):  # LLVM refuses it: what is shown is what runs
        return native, []
    text = "\n".join(line for line, _ in lines) + "\n"
    return text, [origin for _, origin in lines]


def numbered(llvm: str) -> str:
    """An LLVM text with its own line numbers as debug information."""
    lines: list[str] = []
    notes: dict[int, int] = {}  # line of the text -> scope
    scopes: list[str] = []
    scope = 0
    for number, line in enumerate(llvm.split("\n"), 1):
        define = _DEFINE.match(line)
        if define:
            scope = _SCOPE + 10 + len(scopes)
            scopes.append(define[1])
            line = f"{line[:-1]}!dbg !{scope} {{"
        elif line == "}":
            scope = 0
        elif scope and not _NO_DEBUG.match(line) and line.startswith("  "):
            notes[number] = scope
            line = f"{line}, !dbg !{_SCOPE + 1000 + number}"
        lines.append(line)
    return "\n".join([*lines, *_metadata(notes, scopes)]) + "\n"


def _metadata(notes: Mapping[int, int], scopes: list[str]) -> Iterator[str]:
    unit, file, kind, flag = (_SCOPE + k for k in range(4))
    yield f"!llvm.dbg.cu = !{{!{unit}}}\n!llvm.module.flags = !{{!{flag}}}"
    yield f'!{flag} = !{{i32 2, !"Debug Info Version", i32 3}}'
    yield f'!{file} = !DIFile(filename: "kernel.ll", directory: "")'
    kept = "isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly"
    yield f"!{unit} = distinct !DICompileUnit(language: DW_LANG_C99, file: !{file}, {kept})"
    yield f"!{kind} = !DISubroutineType(types: !{{}})"
    for number, name in enumerate(scopes):
        yield (
            f'!{_SCOPE + 10 + number} = distinct !DISubprogram(name: "{name}", scope: !{file}, '
            f"file: !{file}, line: 1, type: !{kind}, spFlags: DISPFlagDefinition, unit: !{unit})"
        )
    for line, scope in notes.items():
        yield f"!{_SCOPE + 1000 + line} = !DILocation(line: {line}, scope: !{scope})"


def _unwrapped(native: str) -> Iterator[tuple[str, int]]:
    """The lines of an assembly text without debug information, each with what that said."""
    current, hidden = 0, False
    for line in native.rstrip("\n").split("\n"):
        if line.lstrip().startswith(".section"):
            hidden = _SECTION.match(line) is not None
        place = _LOC.match(line)
        if place:
            current = int(place[1])
        elif not hidden and not _BOOKKEEPING.match(line):
            code = line.startswith("\t") and not line.lstrip().startswith((".", "#"))
            yield line, current if code else 0
