"""Budgets: nothing is allocated that the machine cannot hold."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path

from graphc.errors import LimitError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import largest_live, memory, planned_bytes, root
from graphc.ir.regions import scheduled_graphs
from graphc.ir.sizes import hint_of
from graphc.ir.types import AnyType, StackType, Type, leaves, substitute
from graphc.runtime.load.program import Image

SHOWN = 5  # values named when a limit is exceeded
FEW_BYTES = 1 << 24  # that there always are


def available_bytes() -> int:
    """Memory that can be had without swapping, and within the process's limit."""
    page = os.sysconf("SC_PAGE_SIZE")
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    try:
        if allowed != resource.RLIM_INFINITY:
            allowed -= int(Path("/proc/self/statm").read_text().split()[0]) * page
        else:
            allowed = os.sysconf("SC_PHYS_PAGES") * page
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return min(int(line.split()[1]) * 1024, allowed)
    except OSError:
        pass
    return allowed


def check_memory(
    value: Graph | Program, sizes: Mapping[str, int] | None = None, *, every_node: bool = False
) -> None:
    """Raise LimitError when arguments and results are more than the available memory; `sizes` are
    what symbols stand for.

    `every_node` also refuses a single value larger than that: the interpreter stores each one.
    """
    ports = [node.type for node in (*value.params, *value.results)]
    ports = [substitute(kind, sizes) for kind in ports] if sizes else ports
    check_bytes(value.name, _bytes_of(ports), "arguments and results")
    graphs = value.graphs if isinstance(value, Program) else (value,)
    for node in (node for graph in graphs if every_node for node in graph.nodes):
        check_bytes(f"%{node.id} = {node.op.name}", _declared(node), "its result")


def check_limit(value: Graph | Program, limit: int) -> None:
    """Raise LimitError, naming what is largest at the peak, if a planned program needs more bytes.

    What counts are the arenas of all devices (intermediate values) and the results.  The stacks of
    loops grow while those run: they are named besides.
    """
    graphs = value.graphs if isinstance(value, Program) else (value,)
    needed = planned_bytes(value)
    if needed > limit:
        live = [pair for graph in graphs for pair in largest_live(graph, SHOWN)]
        live += [(_declared(result), memory(result)[0]) for result in value.results]
        live.sort(key=lambda pair: -pair[0])
        raise LimitError(
            f"{value.name} needs {hint_of(needed)} bytes for intermediate values and results; "
            f"memory_limit is {limit}",
            details=(*(_line(nbytes, node) for nbytes, node in live[:SHOWN]), *_growing(graphs)),
        )


def check_filled(image: Image) -> None:
    """Raise LimitError where a program whose sizes are filled in needs more than is available."""
    needed = sum(each.arena_bytes for each in image.images)
    needed += sum(slot.nbytes for slot in image.results)
    check_bytes(image.name, needed, "intermediate values and results")


def _growing(graphs: tuple[Graph, ...]) -> tuple[str, ...]:
    """What the stacks of loops take besides, where there are any."""
    nodes = (n for graph in graphs for part in scheduled_graphs(graph) for n in part.nodes)
    sizes = [n.type.element.nbytes for n in nodes if isinstance(n.type, StackType) and root(n) is n]
    turn = f"by {sum(sizes)} bytes a turn of their loops"
    return (f"stacks that grow beside this: {len(sizes)}, {turn}",) if sizes else ()


def _line(nbytes: int, node: Node) -> str:
    where = f" at {node.loc[0]}:{node.loc[1]}" if node.loc else ""
    return f"{hint_of(nbytes)} bytes: {node.summary()}{where}"


def _declared(node: Node) -> int:
    return _bytes_of([node.type])


def _bytes_of(given: Iterable[AnyType]) -> int:
    kinds = (leaf for kind in given for leaf in leaves(kind))
    return sum(kind.nbytes for kind in kinds if isinstance(kind, Type) and kind.is_static)


def check_bytes(name: str, needed: int, what: str) -> None:
    """Raise LimitError when this many bytes are not available."""
    if needed <= FEW_BYTES:
        return
    available = available_bytes()
    if needed > available:
        raise LimitError(
            f"{name} needs {needed / 2**30:.1f} GiB for {what}; "
            f"{available / 2**30:.1f} GiB are available"
        )
