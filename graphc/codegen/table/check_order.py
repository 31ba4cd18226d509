"""check_order: do segments that run as soon as they are ready keep to the order that memory needs?

`segments` cuts a device's nodes into pieces, of which the ready ones may run in any order.  This
judges what came out: nothing here asks why a piece waits for another.  A bit stands for a segment:

    segment      0   1   2   3       1 and 2 may run in either order: what 1 writes and 2 reads, or
    releases    1,2  3   3   -       2 writes over what 1 reads, is refused
    has seen      -  0   0  0,1,2

Every access to memory, as `check_memory_plan` finds them in the order of the graph, must have seen
the last write to each of its bytes; a write must have seen those who have read since, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from graphc.codegen.table.check_memory_plan import Access, Span, accesses
from graphc.codegen.table.segments import Segment
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Host
from graphc.ir.regions import talks
from graphc.ir.verify import broken


def check_order(graph: Graph, donated: Sequence[int], segments: Sequence[Segment]) -> None:
    """Whatever order the segments of a planned graph run in, every node finds what it reads.

    Raises VerifyError.
    """
    found = list(accesses(graph, donated))
    _Order(graph, segments).check(found)


class _Order:
    def __init__(self, graph: Graph, segments: Sequence[Segment]) -> None:
        self.graph = graph
        self.last = len(segments) - 1
        self.seen = self.released(segments)  # by segment: the bits of what has run before, and it
        self.home = {node: k for k, piece in enumerate(segments) for node in piece.nodes}
        self.first = {piece.nodes[0] for piece in segments if piece.nodes}
        if [n for n in graph.nodes if n in self.home] != [n for p in segments for n in p.nodes]:
            raise broken(graph, None, "its segments are not in the order of its nodes")

    def released(self, segments: Sequence[Segment]) -> list[int]:
        seen = [0] * len(segments)
        for number, piece in enumerate(segments):
            if number and not seen[number]:
                raise broken(self.graph, None, f"nothing releases segment {number}")
            seen[number] |= 1 << number
            if len({*piece.releases}) < len(piece.releases):
                raise broken(self.graph, None, f"segment {number} releases another twice")
            for other in piece.releases:
                if not number < other <= self.last:
                    raise broken(self.graph, None, f"segment {number} releases segment {other}")
                seen[other] |= seen[number]
        if seen[-1] + 1 != 1 << len(segments):
            raise broken(self.graph, None, "it ends before all its segments have run")
        return seen

    def check(self, found: Iterable[Access]) -> None:
        memory: dict[str, _Memory] = {}
        writers = set()
        for node, span, is_write in found:
            number = self.last if node is None else self.home.get(node, -1)
            if is_write:
                writers.add(node)
            if number < 0:
                continue
            before = memory.setdefault(span.base, _Memory()).touch(span, number, is_write)
            if before & ~self.seen[number]:
                raise broken(self.graph, node, f"{_named(node)} may run before what it follows")
        done: dict[Node, int] = {}
        for node in self.graph.nodes:
            self.follow(node, done)
            if node not in self.home and (node in writers or talks(node) or _is_host(node)):
                raise broken(self.graph, node, f"%{node.id} is in no segment")

    def follow(self, node: Node, done: dict[Node, int]) -> None:
        """What a node reads and comes after has run, and it waits at the start of its segment."""
        before = 0
        for source in (*node.inputs, *node.after):
            before |= done.get(source, 0)
        number = self.home.get(node)
        if number is None:
            done[node] = before
            return
        waits = not node.op.traits.send and talks(node)
        if waits and not node.op.traits.recv:
            before |= (1 << number) - 1  # other devices may need any of these
        if before & ~self.seen[number]:
            raise broken(self.graph, node, f"%{node.id} may run before what it follows")
        if waits and self.last and node not in self.first:
            raise broken(self.graph, node, f"%{node.id} waits in the middle of a segment")
        done[node] = 1 << number


def _named(node: Node | None) -> str:
    return "the end" if node is None else f"%{node.id}"


def _is_host(node: Node) -> bool:
    return isinstance(node.op.lower, Host)


class _Memory:
    """What lies behind a base: stretches of bytes, with the bits of the segment that wrote each
    last and of all that have touched it since."""

    def __init__(self) -> None:
        self.starts = [0]
        self.written = [0]
        self.touched = [0]

    def split(self, at: int) -> int:
        k = bisect_left(self.starts, at)
        if k == len(self.starts) or self.starts[k] != at:
            self.starts.insert(k, at)
            self.written.insert(k, self.written[k - 1])
            self.touched.insert(k, self.touched[k - 1])
        return k

    def touch(self, span: Span, number: int, is_write: bool) -> int:
        """Note an access of a segment: the bits of those that must have run before it."""
        stretches = range(self.split(span.start), self.split(span.end))
        before = 0
        for k in stretches:
            before |= self.touched[k] if is_write else self.written[k]
            self.touched[k] |= 1 << number
            if is_write:
                self.written[k] = self.touched[k] = 1 << number
        return before
