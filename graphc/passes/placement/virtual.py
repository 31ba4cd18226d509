"""virtual: a program really run, with NumPy, on devices whose clocks follow the cost model.

Every device goes through its graph node by node; a node runs when its operands are there, and what
it makes is there when its time is over.  A value of another device is there only when its message
has come.  Nothing here knows what a whole program looks like, so that it says the same as
`simulate(in_order=True)` only if both are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.channels import spanning
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import Device, device_of
from graphc.ops.reference.interpreter import (
    State,
    check_arguments,
    evaluate_node,
    evaluate_together,
)
from graphc.passes.placement.simulate import LINKS, Costs, regions_seconds


@record(eq=False)
class Executed:
    """The results, and when every node, or the message that a recv receives, began and ended, in
    seconds."""

    results: list[Any]
    start: dict[Node, float]
    end: dict[Node, float]

    @property
    def makespan(self) -> float:
        return max(self.end.values(), default=0.0)


def execute(
    program: Program,
    arguments: Sequence[Any],
    cost: Costs,
    *,
    links: str = "pair",
    state: State | None = None,
) -> Executed:
    """Run a program on virtual clocks; `links` as for `simulate`, `state` as for `interpret`.

    The parts of an op that spans devices run together, for as many rounds as the cost model takes
    them for.  Raises GraphError for a deadlock and for what `interpret` raises it.
    """
    if links not in LINKS:
        raise GraphError(f"links are {', '.join(LINKS)}, got {links!r}")
    check_arguments(program.params, arguments)
    machine = _Machine(program, cost, links, {} if state is None else state)
    machine.values |= zip(program.params, arguments, strict=True)
    machine.run()
    results = [machine.values[node] for node in program.results]
    return Executed(results, machine.start, machine.end)


class _Machine:
    """Devices and links, and the time that they all share."""

    def __init__(self, program: Program, cost: Costs, links: str, state: State) -> None:
        self.cost = cost
        self.state = state
        self.now = 0.0
        self.values: dict[Node, Any] = {}
        self.start: dict[Node, float] = {}
        self.end: dict[Node, float] = {}
        self.sent: dict[str, tuple[Any, ...]] = {}  # by channel: the sender and the message
        self.alarms: list[tuple[float, int, Callable[[], None]]] = []
        self.number = count()
        self.parts = spanning(program.graphs)
        self.links = links
        self.workers = [_Worker(self, graph) for graph in program.graphs]
        self.post = _Post(self, program, links)

    def run(self) -> None:
        while True:
            while any(worker.go() for worker in self.workers) or self.post.instant():
                pass
            self.post.load()
            if not self.alarms:
                break
            self.now = self.alarms[0][0]
            while self.alarms and self.alarms[0][0] == self.now:
                heappop(self.alarms)[2]()
        stuck = next((w.head for w in self.workers if w.head is not None), None)
        if stuck is not None:
            message = f"%{stuck.id} waits forever for a value of another device"
            raise GraphError(message, details=stuck.describe(), location=stuck.loc)

    def together(self, node: Node) -> list[_Worker] | None:
        """The workers of all parts of an op that spans devices, once each can begin its part."""
        parts = self.parts[node]
        found = [w for part in parts for w in self.workers if w.head is part and w.free(part)]
        return found if len(found) == len(parts) else None

    def begin(self, node: Node, seconds: float, done: Callable[[], None]) -> None:
        """Call `done` when the node has taken its time."""
        self.start[node] = self.now

        def finish() -> None:
            self.end[node] = self.now
            done()
            self.post.happened(node)

        if seconds:
            heappush(self.alarms, (self.now + seconds, next(self.number), finish))
        else:
            finish()


class _Worker:
    """A device and its program counter."""

    def __init__(self, machine: _Machine, graph: Graph) -> None:
        self.machine = machine
        device = device_of(graph.device)
        assert device is not None
        self.device = device
        self.nodes = iter([node for node in graph.nodes if not node.op.traits.recv])
        self.head = next(self.nodes, None)
        self.busy = False

    def go(self) -> bool:
        """Run what can run now; was there anything?"""
        moved = False
        while self.head is not None and self.free(self.head):
            if self.head in self.machine.parts:
                workers = self.machine.together(self.head)
                if workers is None:
                    break
                run_parts(self.machine, workers)
            else:
                self.run(self.head)
            moved = True
        return moved

    def free(self, node: Node) -> bool:
        """Can the node begin?"""
        values = self.machine.values
        return not self.busy and all(n in values for n in (*node.inputs, *node.after))

    def operands(self, node: Node) -> list[Any]:
        return [self.machine.values[source] for source in node.inputs]

    def run(self, node: Node) -> None:
        machine, operands = self.machine, self.operands(node)
        made = ()
        if not node.op.traits.send:
            made = evaluate_node(node, operands, machine.state)
        self.take(node, operands, made, machine.cost.compute(node, self.device))

    def take(self, node: Node, operands: list[Any], made: Any, seconds: float) -> None:
        """Be busy with the node for its time."""
        self.busy = True
        machine, sends = self.machine, node.op.traits.send

        def done() -> None:
            machine.values[node] = made
            if sends:
                machine.sent[node.attrs["channel"]] = self.device, *operands
            self.busy = False
            self.head = next(self.nodes, None)

        machine.begin(node, seconds, done)


def run_parts(machine: _Machine, workers: Sequence[_Worker]) -> None:
    """Begin all parts of an op that spans devices."""
    parts = [worker.head for worker in workers if worker.head is not None]
    operands = [worker.operands(part) for worker, part in zip(workers, parts, strict=True)]
    made = evaluate_together(parts, operands, machine.state)
    whole = machine.parts[parts[0]]
    for worker, part, given, value in zip(workers, parts, operands, made, strict=True):
        seconds = regions_seconds(part, whole, machine.cost, machine.links, in_order=True)
        worker.take(part, given, value, seconds)


class _Post:
    """Messages on their way. Of those that could leave, a link takes the first in the program."""

    def __init__(self, machine: _Machine, program: Program, links: str) -> None:
        self.machine = machine
        self.links = links
        self.target: dict[Node, Device] = {}
        self.recv: dict[str, Node] = {}
        self.held: dict[Node, list[Node]] = {}  # the recvs that come after a node
        self.lacks: dict[Node, int] = {}  # for how many events a message waits before it leaves
        self.queues: dict[object, list[tuple[int, Node]]] = {}
        self.instants: list[Node] = []
        self.busy: set[object] = set()
        for worker, graph in zip(machine.workers, program.graphs, strict=True):
            for node in graph.nodes:
                if node.op.traits.recv:
                    self.expect(node, worker.device)
        self.number = {recv: k for k, recv in enumerate(self.target)}

    def expect(self, recv: Node, target: Device) -> None:
        before = [node for node in dict.fromkeys(recv.after) if not node.op.traits.parameter]
        for node in before:
            self.held.setdefault(node, []).append(recv)
        self.target[recv], self.recv[recv.attrs["channel"]] = target, recv
        self.lacks[recv] = 1 + len(before)

    def happened(self, node: Node) -> None:
        """Note that a node has run."""
        sent = [self.recv[node.attrs["channel"]]] if node.op.traits.send else []
        for recv in (*self.held.get(node, ()), *sent):
            self.lacks[recv] -= 1
            if self.lacks[recv]:
                continue
            if self.seconds(recv):
                queue = self.queues.setdefault(self.link(recv), [])
                heappush(queue, (self.number[recv], recv))
            else:
                self.instants.append(recv)

    def instant(self) -> bool:
        """Deliver what takes no time; was there anything?"""
        found, self.instants = self.instants, []
        for recv in found:
            self.carry(recv, None)
        return bool(found)

    def load(self) -> None:
        """Give every link that is free its next message."""
        for link in [link for link in self.queues if link not in self.busy]:
            self.carry(heappop(self.queues[link])[1], link)
            if not self.queues[link]:
                del self.queues[link]

    def seconds(self, recv: Node) -> float:
        """How long a message that has been sent travels."""
        source, *_ = self.machine.sent[recv.attrs["channel"]]
        return self.machine.cost.transfer(recv.type, source, self.target[recv])

    def link(self, recv: Node) -> object:
        ways = {"pair": (recv.attrs["from"], self.target[recv]), "serial": "", "parallel": recv}
        return ways[self.links]

    def carry(self, recv: Node, link: object) -> None:
        self.busy.add(link)

        def done() -> None:
            self.busy.discard(link)
            _, *message = self.machine.sent[recv.attrs["channel"]]
            self.machine.values[recv] = message[0] if message else ()

        self.machine.begin(recv, self.seconds(recv), done)
