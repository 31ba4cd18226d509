"""segments: the nodes of a device, cut where they wait for different messages.

    order    k0   recv a   k1(a)   k2   recv b   k3(b)   k4(a, b)
    hears    -    a        a       -    b        b       a, b
    cut      k0 | recv a   k1    | k2 | recv b   k3    | k4       | results, variables

A node hears the messages that it receives itself and those that anything before it hears.
Neighbours that hear the same ones are a segment: it starts with its recv, if it has one, and then
runs without waiting.  A segment is ready when those that must run before it have run, and its
message is there; the device runs the ready one that comes first in the scheduler's order.

What must run before a node: what it reads, what it comes after, and, as the plan uses memory again
in the order of the graph, whoever has read or written before it the memory that it writes.  A
message that answers another one cannot come before that has been sent.  The part of an op that
spans devices waits inside for other devices, which may need anything that stands before it: all of
that must have run.  So nobody waits forever, as `one_order` has proved for the order of the graphs:
of all segments that have not run, the first one in that order is ready.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphc.base.record import record
from graphc.ir.channels import ends, one_order
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import own_regions
from graphc.ir.op import Alias
from graphc.ir.place import Buffer, Region
from graphc.ir.regions import talks
from graphc.ir.sizes import hint_of


@record(frozen=True)
class Segment:
    """Nodes that run one after the other, and the numbers of later segments that wait for it."""

    nodes: Sequence[Node]
    releases: Sequence[int] = ()


def segments(
    graph: Graph, registers: Mapping[str, int], answered: Mapping[Node, Node] | None = None
) -> list[Segment]:
    """The segments of a planned graph; the last one, whose nodes end it, releases none.

    The first waits for nothing and releases all that wait for no other.  `registers` says which
    base register each base of a region is: two bases may be the same memory; `answered` is what
    `answered` finds.  Where every segment waits for the one before it there is nothing to choose,
    and the graph is one segment.
    """
    if not any(node.op.traits.recv for node in graph.nodes):
        return [Segment(graph.nodes)]
    pieces, before = _Order(graph, registers, answered or {}).cut()
    if all(number in found for number, found in enumerate(before[1:])):
        return [Segment(graph.nodes)]
    releases: list[list[int]] = [[] for _ in pieces]
    for number, found in enumerate(before):
        for other in found:
            releases[other].append(number)
    return [Segment(nodes, after) for nodes, after in zip(pieces, releases, strict=True)]


def answered(program: Graph | Program) -> dict[Node, Node]:
    """By recv: the last send of its device that must have run before its message can be sent.

    Each node knows of the sends of every device that have run when it has, as in Lamport's "Time,
    clocks, and the ordering of events in a distributed system" (1978), the last one.
    """
    if isinstance(program, Graph) or len(program.graphs) < 2:
        return {}
    home = {n: (d, k) for d, graph in enumerate(program.graphs) for k, n in enumerate(graph.nodes)}
    sends, _ = ends(program.graphs, deep=False)
    nothing = (-1,) * len(program.graphs)
    known: dict[Node, tuple[int, ...]] = {}
    found: dict[Node, Node] = {}
    for node in one_order(program):
        sources = [*node.inputs, *node.after]
        if node.op.traits.recv:
            sources.append(sends[node.attrs["channel"]])
        clocks = {known[source] for source in sources if source in known}
        now = tuple(max(times) for times in zip(nothing, *clocks, strict=True))
        device, position = home[node]
        if node.op.traits.recv and now[device] >= 0:
            found[node] = program.graphs[device].nodes[now[device]]
        elif node.op.traits.send:
            now = (*now[:device], position, *now[device + 1 :])
        known[node] = now
    return found


class _Order:
    """What must run before what; nodes are known by their position among those with rows."""

    def __init__(
        self, graph: Graph, registers: Mapping[str, int], answered: Mapping[Node, Node]
    ) -> None:
        self.registers = registers
        self.answered = answered
        self.memory: dict[int, _Touched] = {}
        self.nodes: list[Node] = []
        self.before: list[set[int]] = []
        self.hears: list[int] = []  # a bit for each message
        self.messages = 0
        self.last: set[int] = set()  # those before nothing so far
        self.there: dict[Node, set[int]] = {}  # what has run when a node has
        for node in graph.nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        sources = (*node.inputs, *node.after)
        if (send := self.answered.get(node)) is not None:
            sources = (*sources, send)
        before: set[int] = set().union(*(self.there.get(source, ()) for source in sources))
        if node.op.traits.idle or isinstance(node.op.lower, Alias):
            self.there[node] = before
            return
        number = len(self.nodes)
        for start, end, touched in self.regions(read_by(node)):
            before |= touched.read(start, end, number)
        for start, end, touched in self.regions(written_by(node)):
            before |= touched.write(start, end, number)
        before.discard(number)
        waits = not node.op.traits.send and talks(node)
        if waits and not node.op.traits.recv:
            before |= self.last
        heard = int(waits) << self.messages
        self.messages += waits
        for other in before:
            heard |= self.hears[other]
        self.last -= before
        self.last.add(number)
        self.there[node] = {number}
        self.nodes.append(node)
        self.before.append(before)
        self.hears.append(heard)

    def regions(self, regions: Iterable[Region]) -> Iterator[tuple[int, int, _Touched]]:
        """Where memory begins and ends, and who has touched it; constants are only read."""
        for region in regions:
            if region.nbytes and region.base != "c":
                touched = self.memory.setdefault(self.registers[region.base], _Touched())
                start = hint_of(region.offset)
                yield start, start + hint_of(region.nbytes), touched

    def cut(self) -> tuple[list[list[Node]], list[set[int]]]:
        """The nodes of each segment, and for each the numbers of the segments before it."""
        pieces: list[list[Node]] = [[]]
        before: list[set[int]] = [set()]
        segment: list[int] = []  # that each node is in
        heard = 0
        for node, others, hears in zip(self.nodes, self.before, self.hears, strict=True):
            if hears != heard:
                pieces.append([])
                before.append(set())
                heard = hears
            pieces[-1].append(node)
            before[-1].update(segment[other] for other in others)
            segment.append(len(pieces) - 1)
            before[-1].discard(segment[-1])
        before.append({segment[other] for other in self.last})
        return [*pieces, []], [set(), *(found or {0} for found in before[1:])]


def read_by(node: Node) -> Iterator[Region]:
    """The memory regions that the rows of a node may read."""
    for source in node.inputs:
        if isinstance(source.place, Buffer):
            yield from source.place.regions


def written_by(node: Node) -> Iterator[Region]:
    """The memory regions that the rows of a node may write."""
    if isinstance(node.place, Buffer):
        yield from own_regions(node)
        if node.place.scratch is not None:
            yield node.place.scratch
    for source in node.inputs:
        if source.op.traits.workspace and isinstance(source.place, Buffer):
            yield from source.place.regions


class _Touched:
    """Who wrote each byte of a memory last, and who has read it since: pieces between starts."""

    def __init__(self) -> None:
        self.starts = [0]
        self.writer: list[set[int]] = [set()]
        self.readers: list[set[int]] = [set()]

    def split(self, at: int) -> int:
        """The number of the piece that starts at a byte."""
        piece = bisect_left(self.starts, at)
        if piece == len(self.starts) or self.starts[piece] != at:
            self.starts.insert(piece, at)
            self.writer.insert(piece, set(self.writer[piece - 1]))
            self.readers.insert(piece, set(self.readers[piece - 1]))
        return piece

    def read(self, start: int, end: int, reader: int) -> set[int]:
        """Note a reader: who has written what it reads?"""
        pieces = slice(self.split(start), self.split(end))
        for readers in self.readers[pieces]:
            readers.add(reader)
        return set().union(*self.writer[pieces])

    def write(self, start: int, end: int, writer: int) -> set[int]:
        """Note a writer: who has read or written what it overwrites?"""
        pieces = slice(self.split(start), self.split(end))
        found = set().union(*self.writer[pieces], *self.readers[pieces])
        self.starts[pieces] = [start]
        self.writer[pieces] = [{writer}]
        self.readers[pieces] = [set()]
        return found
