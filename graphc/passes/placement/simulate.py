"""simulate: when every node and transfer of a placed graph or a partitioned program would run.

A device runs one kernel at a time and takes, of those that are ready, the one that stands first in
the graph.  A value that another device reads travels once for each such device; what travels holds
up no device, only its link:

    cpu:0   [ a ][ b ][   c   ]
    link         [a  ]    .              "pair": one transfer at a time between two devices and in
    cpu:1             [ d(a)  ]          one direction; "serial": one at a time in all; "parallel":
                                         transfers never wait for one another

A `recv` of a program is such a transfer: it begins when its `send` is reached and its own `after`
edges are satisfied.  A region op that spans devices takes as long as its region does, simulated
alone, times its rounds.  In a graph the devices may do other things meanwhile; in a program there
is a part of it for each of them, and all begin together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Protocol

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.channels import spanning
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import Device, device_of
from graphc.ir.regions import operands_of
from graphc.ir.types import UNIT, AnyType, TupleType
from graphc.passes.placement.cost import nbytes_of, rounds_of
from graphc.passes.placement.events import NEVER, NO_RESOURCE, Tasks, run
from graphc.passes.placement.timeline import Timeline, Transfer, peaks

LINKS = ("pair", "parallel", "serial")


class Costs(Protocol):
    """What a simulation asks: see `CostModel`."""

    @property
    def devices(self) -> tuple[Device, ...]: ...

    def compute(self, node: Node, device: Device) -> float: ...

    def transfer(self, kind: AnyType, source: Device, target: Device) -> float: ...

    def exact(self, node: Node) -> bool: ...


def simulate(
    value: Graph | Program,
    cost: Costs,
    *,
    links: str = "pair",
    in_order: bool = False,
    returns: bool = True,
) -> Timeline:
    """The timeline of a placed graph or of a program.

    `in_order`: a device runs its nodes in the order of the graph and waits where it must, as in a
    run whose messages come when they are expected.  `returns`: the results of a graph travel to
    the first device of the cost model (in a program they are there).  Raises GraphError for a node
    without a device and for nodes that wait for one another forever.
    """
    if links not in LINKS:
        raise GraphError(f"links are {', '.join(LINKS)}, got {links!r}")
    layout = _Layout(cost, links, in_order)
    if isinstance(value, Program):
        layout.add_program(value)
    else:
        layout.add_graph(value, returns)
    if in_order:
        layout.chain()
    start, end = run(layout.tasks)
    return layout.timeline(value, start, end)


@record(frozen=True)
class _Move:
    """A task that is a transfer."""

    task: int
    node: Node
    source: Device
    target: Device
    recv: Node | None
    nbytes: int


class _Layout:
    """Nodes and transfers as tasks: the number of each, and what the numbers stand for."""

    def __init__(self, cost: Costs, links: str, in_order: bool) -> None:
        self.cost = cost
        self.links = links
        self.in_order = in_order
        self.tasks = Tasks()
        self.task: dict[Node, int] = {}
        self.device: dict[Node, Device] = {}
        self.moves: list[_Move] = []
        self.moved: dict[tuple[Node, Device], int] = {}
        self.resources: dict[object, int] = {}
        self.parts: dict[Node, list[Node]] = {}  # all parts of an op that spans devices

    def resource(self, key: object) -> int:
        return self.resources.setdefault(key, len(self.resources))

    def link(self, source: Device, target: Device) -> int:
        if self.links == "parallel":
            return NO_RESOURCE
        return self.resource((source, target) if self.links == "pair" else "link")

    def add(self, node: Node, device: Device, seconds: float, resource: int) -> int:
        number = self.tasks.add(seconds, resource)
        self.task[node] = number
        self.device[node] = device
        return number

    # -- a placed graph: transfers are implied

    def add_graph(self, graph: Graph, returns: bool) -> None:
        for param in graph.params:
            self.add(param, home_of(param), 0.0, NO_RESOURCE)
        for node in graph.nodes:
            self.add_placed(node)
        for result in graph.results if returns else ():
            self.task_at(result, self.cost.devices[0], result.type)

    def add_placed(self, node: Node) -> None:
        home = home_of(node)
        if device_of(node.place) is None:
            before = [
                self.task_at(source, home_of(param), source.type)
                for source, param in zip(_operands(node), node.regions[0].params)
            ]
            before += [self.task[n] for n in (*node.inputs, *node.after)]
            seconds, resource = self.regions_seconds(node), NO_RESOURCE
        else:
            before = [self.task_at(n, home, n.type) for n in dict.fromkeys(node.inputs)]
            before += [self.task_at(n, home, UNIT) for n in node.after]
            seconds, resource = self.cost.compute(node, home), self.resource(home)
        number = self.add(node, home, seconds, resource)
        for other in before:
            self.tasks.edge(other, number)

    def task_at(self, node: Node, device: Device, kind: AnyType) -> int:
        """The task after which a node's value (or its mere end, of type UNIT) is on a device."""
        source = self.device[node]
        several = device_of(node.place) is None and isinstance(node.type, TupleType)
        if source == device or several or node.op.traits.stored:
            return self.task[node]  # constants, and items of an op that spans devices, do not move
        number = self.moved.get((node, device))
        if number is None:
            seconds = self.cost.transfer(kind, source, device)
            number = self.moved[node, device] = self.tasks.add(seconds, self.link(source, device))
            self.tasks.edge(self.task[node], number)
            self.moves.append(_Move(number, node, source, device, None, nbytes_of(kind)))
        return number

    # -- a program: sends and recvs stand in it

    def add_program(self, program: Program) -> None:
        self.parts = parts = spanning(program.graphs)
        inside: dict[Node, float] = {}  # of an op that spans devices: all its parts take as long
        sends = {}
        for graph in program.graphs:
            for param in graph.params:
                self.add(param, graph.device, 0.0, NO_RESOURCE)
            resource = self.resource(graph.device)
            for node in graph.nodes:
                if node in parts:
                    first = parts[node][0]
                    if first not in inside:
                        inside[first] = self.regions_seconds(node, parts[node])
                    seconds = inside[first]
                else:
                    seconds = self.cost.compute(node, graph.device)
                self.add(node, graph.device, seconds, resource)
                if node.op.traits.send:
                    sends[node.attrs["channel"]] = node
        task, edge = self.task, self.tasks.edge
        for node, number in task.items():
            for part in parts.get(node, (node,)):
                for before in {*part.inputs, *part.after} if part.inputs or part.after else ():
                    edge(task[before], number)
            if node.op.traits.recv:
                self.add_transfer(node, sends)

    def add_transfer(self, recv: Node, sends: dict[str, Node]) -> None:
        """A recv takes as long as its value travels, and keeps the link busy, not its device."""
        send = sends.get(recv.attrs["channel"])
        if send is None:
            raise GraphError("no send belongs to a recv", details=recv.describe())
        source, target, number = self.device[send], self.device[recv], self.task[recv]
        self.tasks.seconds[number] = self.cost.transfer(recv.type, source, target)
        self.tasks.resource[number] = self.link(source, target)
        self.tasks.edge(self.task[send], number)
        sent = send.inputs[0] if send.inputs else send
        self.moves.append(_Move(number, sent, source, target, recv, nbytes_of(recv.type)))

    def regions_seconds(self, node: Node, parts: Sequence[Node] = ()) -> float:
        return regions_seconds(node, parts, self.cost, self.links, self.in_order)

    # -- what the tasks have become

    def chain(self) -> None:
        """The nodes of a device run in the order of their graph; transfers come when they come."""
        last: dict[Device, int] = {}
        transfers = {move.task for move in self.moves}
        for node, number in self.task.items():
            if number in transfers or node.op.traits.parameter:
                continue
            device = self.device[node]
            before = last.get(device)
            if before is not None:
                for part in self.parts.get(node, (node,)):
                    self.tasks.edge(before, self.task[part])
            last[device] = number

    def timeline(self, value: Graph | Program, start: list[float], end: list[float]) -> Timeline:
        if NEVER in start:
            stuck = next(n for n, k in self.task.items() if start[k] == NEVER)
            message = f"%{stuck.id} waits forever for a value of another device"
            raise GraphError(message, details=stuck.describe(), location=stuck.loc)
        transfers = [
            Transfer(m.node, m.source, m.target, start[m.task], end[m.task], m.nbytes, m.recv)
            for m in self.moves
        ]
        transfers.sort(key=lambda moved: moved.start)
        starts = {node: start[k] for node, k in self.task.items()}
        ends = {node: end[k] for node, k in self.task.items()}
        live = cache(partial(peaks, value, starts, ends, self.device, transfers))
        guessed = [n for n in self.task if not n.op.traits.parameter and not self.cost.exact(n)]
        return Timeline(
            starts,
            ends,
            self.device,
            self.ran(starts, ends),
            transfers,
            max(end, default=0.0),
            guessed,
            live,
        )

    def ran(self, start: dict[Node, float], end: dict[Node, float]) -> dict[Device, list[Node]]:
        """What kept each device busy, in the order in which it ran."""
        nodes: dict[Device, list[Node]] = {d: [] for d in self.cost.devices}
        for node, number in self.task.items():
            where = self.tasks.resource[number]
            if end[node] > start[node] and where == self.resources.get(self.device[node]):
                nodes.setdefault(self.device[node], []).append(node)
        for listed in nodes.values():
            listed.sort(key=start.__getitem__)
        return nodes


def regions_seconds(
    node: Node, parts: Sequence[Node], cost: Costs, links: str, in_order: bool
) -> float:
    """Seconds of a region op that spans devices: its regions one after the other, or the longest
    branch.  In a program the op is in parts, one per device.
    """
    times = []
    for number, region in enumerate(node.regions):
        value: Graph | Program = region
        if parts:
            own = (p.regions[number].replace(device=device_of(p.place)) for p in parts)
            value = Program(region.name, tuple(own))
        found = simulate(value, cost, links=links, in_order=in_order, returns=False)
        times.append(found.makespan)
    return max(times) if node.op.traits.branch else rounds_of(node) * sum(times)


def home_of(node: Node) -> Device:
    """The device of a node; for a region op that spans several, the one its first result is on.

    Raises GraphError for a node without a place.
    """
    at = node
    while (device := device_of(at.place)) is None:
        if not at.regions or not at.regions[-1].results:
            message = f"%{node.id} has no device"
            raise GraphError(message, details=node.describe(), location=node.loc)
        at = at.regions[-1].results[0]
    return device


def _operands(node: Node) -> tuple[Node, ...]:
    """The operands that the parameters of a node's first region stand for."""
    return operands_of(node)
