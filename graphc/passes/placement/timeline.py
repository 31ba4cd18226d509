"""What a simulation finds: when every node and transfer runs, who waits for whom, live bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphc.base.record import record
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import roots
from graphc.ir.op import Alias
from graphc.ir.place import Device
from graphc.passes.placement.cost import nbytes_of

Changes = dict[Device, list[tuple[float, int, int]]]  # time, 1 for more, how much

# Values that are there before the run, and those that transfers hold.


@record(frozen=True)
class Transfer:
    """A value on its way: `node` is what travels, `recv` what receives it in a partitioned program.

    A control edge travels as zero bytes.
    """

    node: Node
    source: Device
    target: Device
    start: float
    end: float
    nbytes: int
    recv: Node | None = None


@record(frozen=True)
class Wait:
    """A device without work until `node` starts, which came after `cause` on the device `source`:
    a transfer if that is another device."""

    device: Device
    start: float
    end: float
    node: Node
    cause: Node
    source: Device


@record(eq=False)
class Timeline:
    """A simulated run, all times in seconds from its start.

    `start`, `end` and `device` are of every node; `nodes` lists those that keep a device busy, in
    the order in which they run.  `inaccurate` are nodes whose cost is guessed.  `live` counts what
    devices hold; that takes as long as the simulation, and most ask for times alone.
    """

    start: dict[Node, float]
    end: dict[Node, float]
    device: dict[Node, Device]
    nodes: dict[Device, list[Node]]
    transfers: list[Transfer]
    makespan: float
    inaccurate: list[Node]
    live: Callable[[], tuple[dict[Device, int], dict[Device, int]]]

    @property
    def peak(self) -> dict[Device, int]:
        """The most bytes that each device holds at one time; parameters, constants and variables
        do not count."""
        return self.live()[0]

    @property
    def received(self) -> dict[Device, int]:
        """The most values that each device has received, or begun to, and still needs."""
        return self.live()[1]

    @property
    def exact(self) -> bool:
        return not self.inaccurate

    def busy(self, device: Device) -> float:
        """Seconds that a device computes."""
        return sum(self.end[n] - self.start[n] for n in self.nodes[device])

    def waits(self) -> list[Wait]:
        """Every gap before a kernel of a device, and what ended it."""
        arrivals = {(t.recv or t.node, t.target): t for t in self.transfers}
        found = []
        for device, nodes in self.nodes.items():
            free = 0.0
            for node in nodes:
                begin = self.start[node]
                if begin > free:
                    cause, source = self._cause(node, device, arrivals)
                    found.append(Wait(device, free, begin, node, cause, source))
                free = self.end[node]
        return found

    def _cause(
        self, node: Node, device: Device, arrivals: dict[tuple[Node, Device], Transfer]
    ) -> tuple[Node, Device]:
        """The operand (or `after` edge) of a node that came last, through nodes without work."""
        while True:
            latest, cause, source = -1.0, node, device
            for before in (*node.inputs, *node.after):
                arrival = arrivals.get((before, device))
                at = arrival.end if arrival is not None else self.end[before]
                if at > latest:
                    latest, cause, source = at, before, self.device[before]
                    if arrival is not None:
                        cause, source = arrival.node, arrival.source
            if cause is node or source != device or self.end[cause] > self.start[cause]:
                return cause, source
            node = cause


def peaks(
    value: Graph | Program,
    start: dict[Node, float],
    end: dict[Node, float],
    device: dict[Node, Device],
    transfers: Sequence[Transfer],
) -> tuple[dict[Device, int], dict[Device, int]]:
    """Per device the most bytes held at a time, and the most received values.

    A value takes room from the start of its node, or of its transfer, until its last reader on that
    device has ended and the last transfer from there has arrived; results stay until the end.
    """
    last: dict[Device, dict[Node, float]] = {where: {} for where in set(device.values())}
    finish = max(end.values(), default=0.0)
    for graph in value.graphs if isinstance(value, Program) else (value,):
        own = last.get(graph.device) if graph.device is not None else None
        for node in graph.nodes:
            if node.inputs:
                _read(last[device[node]] if own is None else own, node.inputs, end[node])
        for result in graph.results:
            _read(last[device[result]], (result,), finish)
    for moved in transfers:
        _read(last[moved.source], (moved.node,), moved.end)
    held: Changes = {}
    for node, begin in start.items():
        if not _is_elsewhere(node) and not _shares(node):
            home = device[node]
            until = max(end[node], last[home].get(node, 0.0))
            _hold(held, home, begin, until, nbytes_of(node.type))
    arrived: Changes = {}
    for moved in transfers:
        read = last.get(moved.target, {})
        base = moved.recv or moved.node
        until = max(moved.end, *(read.get(root, 0.0) for root in roots(base)))
        _hold(held, moved.target, moved.start, until, moved.nbytes)
        _hold(arrived, moved.target, moved.start, until, int(moved.nbytes > 0))
    return _highest(held), _highest(arrived)


def _is_elsewhere(node: Node) -> bool:
    """Is the value held by the caller, the program or a channel?"""
    traits = node.op.traits
    return traits.parameter or traits.resident or traits.recv


def _shares(node: Node) -> bool:
    """May the value lie in the memory of another?"""
    traits = node.op.traits
    gathers = traits.item or traits.makes_tuple or traits.push or traits.pop
    return gathers or isinstance(node.op.lower, Alias)


def _read(last: dict[Node, float], nodes: Iterable[Node], until: float) -> None:
    """What is read until some time has to be there until then."""
    for node in nodes:
        for root in roots(node) if _shares(node) else (node,):
            if until > last.get(root, 0.0):
                last[root] = until


def _hold(table: Changes, device: Device, begin: float, until: float, amount: int) -> None:
    if not amount:
        return
    changes = table.setdefault(device, [])
    changes.append((begin, 1, amount))
    changes.append((until, 0, -amount))  # at one time room is given back before it is taken


def _highest(table: Changes) -> dict[Device, int]:
    return {device: _peak(sorted(changes)) for device, changes in table.items()}


def _peak(changes: Iterable[tuple[float, int, int]]) -> int:
    level = highest = 0
    for _, _, amount in changes:
        level += amount
        highest = max(highest, level)
    return highest
