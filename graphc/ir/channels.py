"""Channels of a program: every message has a sender and a reader, and nobody waits forever.

The proof runs the program once, without computing anything: a device goes on until it meets a recv
whose message has not been sent, and the parts of an op that spans devices are passed together, with
their regions proven in the same way.  If every device comes to its end so, they always do: a
channel has one sender and one reader, is first in, first out, and a send never waits; so what comes
first in a real run cannot change what is sent (Kahn, "The semantics of a simple language for
parallel programming", 1974).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.errors import VerifyError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import memory
from graphc.ir.op import Effect
from graphc.ir.regions import choosers, operands_of

Ends = dict[str, Node]


def ends(graphs: Sequence[Graph], deep: bool = True) -> tuple[Ends, Ends]:
    """The send and the recv of each channel. Raises VerifyError for a channel with two of one."""
    sends: Ends = {}
    recvs: Ends = {}
    for graph in graphs:
        if not any(op.effect is Effect.COMM for op in graph.ops):
            continue
        for node in _all_nodes(graph) if deep else graph.nodes:
            if node.op.effect is not Effect.COMM:
                continue
            table, channel = sends if node.op.traits.send else recvs, node.attrs["channel"]
            if table.setdefault(channel, node) is not node:
                raise _broken(f"channel {channel} has two {node.op.name}s", node)
    return sends, recvs


def channels_paired(value: Graph | Program) -> None:
    """Every channel has one send and one recv, of the same type."""
    sends, recvs = ends(value.graphs if isinstance(value, Program) else (value,))
    for channel in sends.keys() ^ recvs.keys():
        lonely = sends.get(channel) or recvs[channel]
        raise _broken(f"channel {channel} has no partner for {lonely!r}", lonely)
    for channel, send in sends.items():
        sent, read = (send.inputs[0].type if send.inputs else send.type), recvs[channel].type
        if sent is not read:
            raise _broken(f"channel {channel} carries {sent} but is read as {read}", send)


def no_deadlock(value: Graph | Program) -> None:
    """No device waits forever for a message."""
    if isinstance(value, Program) and len(value.graphs) > 1:
        one_order(value)


def one_order(program: Program) -> list[Node]:
    """The nodes of all devices (regions excluded) in an order in which one thread could run them.

    Raises VerifyError if there is none.
    """
    return _Proof(program).level(program.graphs)


class _Proof:
    def __init__(self, program: Program) -> None:
        self.sends, _ = ends(program.graphs)
        self.outside: dict[Node, Node] = {}  # what a parameter that never changes stands for

    def level(self, graphs: Sequence[Graph]) -> list[Node]:
        """Run the graphs, or the corresponding regions of one op's parts, of all devices."""
        self.aligned(graphs)
        whole = spanning(graphs)
        at = [iter(graph.nodes) for graph in graphs]
        heads = [next(nodes, None) for nodes in at]
        order: list[Node] = []
        sent: set[str] = set()
        passed: set[Node] = set()
        moved = True
        while moved:
            moved = False
            for k, nodes in enumerate(at):
                head = heads[k]
                while head is not None and self.ready(head, heads, sent, whole, passed):
                    order.append(head)
                    moved, head = True, next(nodes, None)
                    heads[k] = head
        stuck = [head for head in heads if head is not None]
        if stuck:
            listed = ", ".join(f"%{head.id} {head.op.name}" for head in stuck)
            raise _broken(f"deadlock: every device waits for another ({listed})", stuck[0])
        return order

    def aligned(self, graphs: Sequence[Graph]) -> None:
        """Both ends of a channel run equally often: they lie in the same region."""
        sends, recvs = ends(graphs, deep=False)
        for channel in sends.keys() ^ recvs.keys():
            lonely = sends.get(channel) or recvs[channel]
            raise _broken(f"the ends of channel {channel} do not run equally often", lonely)

    def ready(
        self,
        node: Node,
        heads: Sequence[Node | None],
        sent: set[str],
        whole: dict[Node, list[Node]],
        passed: set[Node],
    ) -> bool:
        """Can a device go past this node?"""
        if node.op.traits.recv:
            return node.attrs["channel"] in sent
        if node.op.traits.send:
            sent.add(node.attrs["channel"])
        parts = whole.get(node)
        if parts is None or node in passed:
            return True
        if not all(part in heads for part in parts):
            return False
        self.together(parts)
        passed.update(parts)
        return True

    def together(self, parts: list[Node]) -> None:
        """The parts of one op do the same rounds, and none of their regions gets stuck."""
        first = parts[0]
        for part in parts:
            if part.op is not first.op or len(part.regions) != len(first.regions):
                raise _broken(f"%{part.id} and %{first.id} talk inside, but differ", part)
            for region in part.regions:
                pairs = list(zip(region.params, operands_of(part), strict=True))
                self.outside.update(pairs[part.attrs.get("carries", 0) :])
        if len({self.rounds(part) for part in parts}) > 1:
            raise _broken(f"the parts of %{first.id} may not run equally often", first)
        for regions in zip(*(part.regions for part in parts), strict=True):
            self.level(regions)

    def rounds(self, part: Node) -> object:
        """What decides how often the regions of a part run: equal for all parts of one op."""
        if part.op.traits.branch:
            return tuple([self.origin(chooser) for chooser in part.inputs[: choosers(part)]])
        if part.op.traits.tested:
            return self.origin(part.regions[0].results[0])
        return part.attrs["length"] if part.op.traits.counted else None

    def origin(self, node: Node) -> object:
        """The node a value was computed by, whatever devices it has crossed since."""
        while True:
            node, leaf = memory(node)
            if node.op.traits.recv:
                node = self.sends[node.attrs["channel"]].inputs[0]
            elif node in self.outside:
                node = self.outside[node]
            else:
                return node.attrs if node.op.traits.stored else (node, leaf)


def spanning(graphs: Sequence[Graph]) -> dict[Node, list[Node]]:
    """The region ops that are parts of one op over several devices, each with all parts: they talk
    to each other through channels inside their regions."""
    owner: dict[str, Node] = {}
    whole: dict[Node, list[Node]] = {}
    for graph in graphs:
        for node in graph.nodes:
            for channel in _channels(node):
                other = owner.setdefault(channel, node)
                if other is not node:
                    _join(whole, other, node)
    return whole


def _join(whole: dict[Node, list[Node]], first: Node, second: Node) -> None:
    ours, theirs = whole.setdefault(first, [first]), whole.setdefault(second, [second])
    if ours is not theirs:
        ours.extend(theirs)
        whole.update(dict.fromkeys(theirs, ours))


def _channels(node: Node) -> Iterator[str]:
    """The channels of the sends and recvs inside a node's regions."""
    for region in node.regions:
        for inner in _all_nodes(region):
            if inner.op.effect is Effect.COMM:
                yield inner.attrs["channel"]


def _all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of all its regions."""
    pending = [graph]
    while pending:
        for node in pending.pop().nodes:
            yield node
            pending.extend(node.regions)


def _broken(message: str, node: Node) -> VerifyError:
    return VerifyError(message, details=node.describe(), location=node.loc)
