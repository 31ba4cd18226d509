"""slack: how late a transfer may begin without making anything else later.

    link     [ r1 ][ r2 ][ r3 ]             as soon as possible (ASAP)
    cpu:1          [    a(r1)    ][    b(r2)    ][    c(r3)    ]
    link     [ r1 ]         [ r2 ]         [ r3 ]                 as late as possible (ALAP)
                    <-slack->

Earliest starts are those of the simulation.  Latest starts are found backwards from them: a value
must be there when its first reader starts, and a link must be free again when the next transfer
must begin.  Abadi et al., "TensorFlow: Large-Scale Machine Learning on Heterogeneous Distributed
Systems" (2015), section 5.2, delays a receive by control edges to just before it is needed; `holds`
finds for each the last kernel of its device after which it still comes in time.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from graphc.base.record import record
from graphc.ir.graph import Node, Program
from graphc.ir.liveness import root
from graphc.ir.op import Alias, Compute
from graphc.passes.placement.timeline import Timeline, Transfer


@record(frozen=True, eq=False)
class Window:
    """When a transfer may begin, in seconds; `reader` needs it first (None: it is a result)."""

    moved: Transfer
    recv: Node
    latest: float
    reader: Node | None

    @property
    def slack(self) -> float:
        return self.latest - self.moved.start


@record(frozen=True, eq=False)
class Hold:
    """The kernel that a recv can wait for, or None if there is none in its window; `free` when the
    sender keeps the value until then anyway."""

    window: Window
    kernel: Node | None
    delay: float
    free: bool


def windows(program: Program, timeline: Timeline, links: str = "pair") -> list[Window]:
    """The window of every transfer, from a simulation of the program in its order."""
    readers = first_readers(program)
    limit: dict[object, float] = {}
    found = []
    for moved in sorted(timeline.transfers, key=lambda t: t.start, reverse=True):
        assert moved.recv is not None
        reader = readers.get(moved.recv)
        link = {"pair": (moved.source, moved.target), "serial": None}.get(links, moved)
        needed = timeline.makespan if reader is None else timeline.start[reader]
        end = min(needed, limit.get(link, inf))
        latest = max(moved.start, end - (moved.end - moved.start))
        limit[link] = latest
        found.append(Window(moved, moved.recv, latest, reader))
    return found[::-1]


def first_readers(program: Program) -> dict[Node, Node]:
    """For each recv the node of its device that reads it, or waits for it, first."""
    readers: dict[Node, Node] = {}
    for graph in program.graphs:
        for node in graph.nodes:
            for source in (*node.inputs, *node.after):
                if source.op.traits.recv:
                    readers.setdefault(source, node)
    return readers


def holds(program: Program, timeline: Timeline, found: list[Window]) -> list[Hold]:
    """What each recv can wait for so that it begins within its window but as late as possible."""
    kept = kept_until(program, timeline)
    kernels = {d: [n for n in ran if not _is_view(n)] for d, ran in timeline.nodes.items()}
    ends = {d: [timeline.end[n] for n in nodes] for d, nodes in kernels.items()}
    position = {node: k for graph in program.graphs for k, node in enumerate(graph.nodes)}
    made = []
    for window in found:
        nodes = kernels.get(window.moved.target, [])
        last = bisect_right(ends.get(window.moved.target, []), window.latest) - 1
        while last >= 0 and position[nodes[last]] > position[window.recv]:
            last -= 1  # what takes no time may end as a kernel behind it does
        made.append(_hold(window, nodes[last] if last >= 0 else None, timeline, kept))
    return made


def _is_view(node: Node) -> bool:
    """Is the node made where it is read, so that there is nothing to wait for?"""
    return isinstance(node.op.lower, Alias | Compute)


def _hold(window: Window, kernel: Node | None, timeline: Timeline, kept: dict[Node, float]) -> Hold:
    moved = window.moved
    if not moved.nbytes or kernel is None or timeline.end[kernel] <= moved.start:
        return Hold(window, None, 0.0, False)
    delay = timeline.end[kernel] - moved.start
    source = root(moved.node)
    stored = source.op.traits.parameter or source.op.traits.resident
    free = stored or kept.get(source, 0.0) >= moved.end + delay
    return Hold(window, kernel, delay, free)


def kept_until(program: Program, timeline: Timeline) -> dict[Node, float]:
    """When the last reader of a value on its own device has ended."""
    kept: dict[Node, float] = {}
    for graph in program.graphs:
        for node in graph.nodes:
            for source in node.inputs:
                memory = root(source)
                kept[memory] = max(kept.get(memory, 0.0), timeline.end[node])
        for result in graph.results:
            kept[root(result)] = timeline.makespan
    return kept
