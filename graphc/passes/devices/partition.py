"""partition: one graph per device; feeds and results belong to the first.

    %2 = tanh(%0)   @cpu:0              cpu:0   %2 = tanh(%0)      send(%2) {c0}
    %3 = neg(%2)    @cpu:1      ->      cpu:1   %9 = recv() {c0}   %3 = neg(%9)
    %4 = exp(%2)    @cpu:1                      %4 = exp(%9)

A value crosses once for each device that reads it, straight from where it is made to where it is
read; an `after` edge that crosses is a message without a value.  Constants are part of the program:
every device has those it reads.  A variable, a stack and the items of a value stay where they are.

Every device keeps the order of the graph.  A send stands behind what it sends, a recv before its
first reader: so the order of the graph shows that no device waits forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import OPS, STATE, Attrs, Effect
from graphc.ir.place import Device, parse_device
from graphc.ir.rewrites import is_counting
from graphc.ir.types import UNIT, AnyType, StackType, TupleType, leaves
from graphc.passes.devices.permitted_moves import permitted_moves
from graphc.passes.devices.region_devices import Wiring, on_device
from graphc.passes.devices.split import Spread, split
from graphc.passes.reasons import explain

RECV, NODE, ITEM, SEND = range(4)  # the order of what stands at one position of the old graph


def partition(graph: Graph, config: Config) -> Program:
    """The program of a placed graph; devices with nothing to do are left out.

    Raises GraphError for a node whose device is not in the list, for a variable on two devices and
    for a stack that would have to move.
    """
    devices = tuple(parse_device(d) for d in config.devices)
    first = devices[0]
    if len(devices) == 1:
        return Program(graph.name, (graph.replace(device=first),))
    if is_counting():
        graph = permitted_moves(graph, first)
    if config.check_finite:
        graph = written_last(graph)
    parts = Parts(graph, Wiring(devices, graph), dict.fromkeys(graph.params, first), first)
    results = tuple([parts.local(r, first, len(graph.nodes)) for r in graph.results])
    check_variables(parts)
    used = [d for d in devices if d == first or d in parts.lists]
    return Program(graph.name, tuple(_graph(parts, d, d == first, results) for d in used))


def written_last(graph: Graph) -> Graph:
    """The graph whose assigns wait for all else: a check that fails on one device then leaves the
    variables of the others as they were, too."""
    assigns = [node for node in graph.nodes if node.op.effect is Effect.WRITE]
    others = [node for node in graph.nodes if node.op.effect is not Effect.WRITE]
    followed = {n for node in others for n in (*node.inputs, *node.after)}
    ends = tuple(n for n in others if n not in followed and not n.op.traits.stored)
    made = [n.replace(after=tuple(dict.fromkeys((*n.after, *ends)))) for n in assigns]
    return graph.replace(nodes=[*others, *made]) if made else graph


def _graph(parts: Parts, device: Device, first: bool, results: tuple[Node, ...]) -> Graph:
    old = parts.graph
    params = old.params if first else ()
    made = parts.cut(device, params, results if first else ())
    return made.replace(device=device, result_names=old.result_names if first else ())


def check_variables(parts: Parts) -> None:
    """Raise GraphError for a variable that is used on two devices."""
    homes: dict[tuple[str, str], Device] = {}
    for node in parts.graph.nodes:
        if node.op.effect in STATE:
            key = node.attrs["container"], node.attrs["name"]
            device = parts.made[node].device
            if homes.setdefault(key, device) != device:
                raise GraphError(
                    f"variable {key[1]!r} is used on {homes[key]} and on {device}",
                    hint="a variable lives on one device: colocate what reads and assigns it",
                    details=node.describe(),
                    location=node.loc,
                )


@record(frozen=True, eq=False)
class Made:
    """Where the node that makes a value is: its device, itself, its position in the old graph."""

    device: Device
    node: Node
    position: int


class Parts:
    """A graph, or a region of an op, taken apart by device.

    `homes` are the devices of parameters that lie on one; any other parameter is there on every
    device that reads it, and the part of that device gets it as an operand (`shared`).  `first` is
    the device of what could be anywhere.
    """

    def __init__(
        self, graph: Graph, wiring: Wiring, homes: Mapping[Node, Device], first: Device
    ) -> None:
        self.graph = graph
        self.wiring = wiring
        self.first = first
        self.next_id = graph.next_id
        self.made: dict[Node, Made] = {}
        self.copies: dict[tuple[Node, Device], Node] = {}
        self.lists: dict[Device, list[tuple[int, int, Node]]] = {}
        self.shared: set[tuple[Node, Device]] = set()
        self.received: dict[tuple[Node, Device, AnyType], Node] = {}
        self.ports: dict[tuple[Node, int], Made] = {}
        self.constants: dict[tuple[Attrs, Device], Node] = {}
        self.spread: dict[Node, Spread] = {}
        for param, home in homes.items():
            self.made[param] = Made(home, self.param(param, home), -1)
        for position, node in enumerate(graph.nodes):
            self.add(node, position)

    def inner(self, region: Graph, homes: Mapping[Node, Device], first: Device) -> Parts:
        """A region of one of the nodes taken apart."""
        return Parts(region, self.wiring, homes, first)

    # -- every node to its device

    def add(self, node: Node, position: int) -> None:
        if node.op.traits.stored:
            return  # made where it is read
        if node.op.traits.item:
            self.made[node] = self.port(node.inputs[0], node.attrs["index"], node)
            return
        devices = self.wiring.devices_in(node)
        if len(devices) > 1:
            self.spread[node] = split(self, node, devices, position)
            if not isinstance(node.type, TupleType):
                self.made[node] = self.port(node, 0, node)
            return
        device = self.wiring.check(self.device(node), node)
        inputs = tuple([self.local(n, device, position) for n in node.inputs])
        regions = tuple([on_device(region, device) for region in node.regions])
        self.made[node] = self.put(node, device, position, inputs=inputs, regions=regions)

    def device(self, node: Node) -> Device | None:
        """Where a node runs; what changes a stack does so where the stack is."""
        if node.op.traits.push or node.op.traits.pop:
            return self.made[node.inputs[0]].device
        found = self.wiring.place(node)
        if found is None and node.regions:  # which hold no work
            first = self.made.get(node.inputs[0]) if node.inputs else None
            return first.device if first is not None else self.first
        return found

    def put(self, node: Node, device: Device, position: int, **changes: object) -> Made:
        """The node with some fields changed, on a device; itself if nothing is new."""
        changes |= {"after": self.after(node, device, position), "place": device}
        if any(getattr(node, field) != value for field, value in changes.items()):
            node = node.replace(**changes)
        self.insert(device, position, NODE, node)
        return Made(device, node, position)

    def insert(self, device: Device, position: int, rank: int, node: Node) -> None:
        self.lists.setdefault(device, []).append((position, rank, node))

    def emit(
        self,
        op: str,
        inputs: Sequence[Node],
        attrs: dict[str, object],
        kind: AnyType,
        at: tuple[Device, int, int],
        like: Node,
        after: tuple[Node, ...] = (),
        id: int | None = None,
    ) -> Node:
        """A new node of a device, position and rank, with the line of another."""
        record, (device, position, rank) = OPS[op], at
        made = Node(
            self.next_id if id is None else id,
            record,
            tuple(inputs),
            record.coerce(attrs),
            kind,
            after=after,
            place=device,
            loc=like.loc,
        )
        self.next_id += id is None
        self.insert(device, position, rank, made)
        return made

    # -- values where they are read

    def local(self, node: Node, device: Device, position: int) -> Node:
        """What stands for a value on a device, from this position on."""
        found = self.copies.get((node, device))
        if found is None:
            found = self.copies[node, device] = self.bring(node, device, position)
        return found

    def bring(self, node: Node, device: Device, position: int) -> Node:
        if node.op.traits.stored:
            return self.constant(node, device)
        made = self.made.get(node)
        if made is not None and made.device == device:
            return made.node
        if node.op.traits.parameter and made is None:
            self.shared.add((node, device))
            return self.param(node, device)
        if isinstance(node.type, TupleType):
            ports = [self.port(node, k, node) for k in range(len(node.type.elements))]
            inputs = [self.receive(port, device, position) for port in ports]
            return self.emit("tuple", inputs, {}, node.type, (device, position, RECV), node)
        assert made is not None
        return self.receive(made, device, position)

    def param(self, node: Node, device: Device) -> Node:
        found = self.copies.get((node, device))
        if found is None:
            found = node if node.place == device else node.replace(place=device)
            self.copies[node, device] = found
        return found

    def constant(self, node: Node, device: Device) -> Node:
        """A constant on a device that reads it; equal ones are one."""
        found = self.constants.get((node.attrs, device))
        if found is None:
            found = node if node.place == device else node.replace(place=device)
            self.constants[node.attrs, device] = found
            self.insert(device, -1, NODE, found)
        return found

    def port(self, source: Node, index: int, like: Node) -> Made:
        """One result of a node with several, on the device that makes it."""
        found = self.ports.get((source, index))
        if found is None:
            found = self.ports[source, index] = self._port(source, index, like)
        return found

    def _port(self, source: Node, index: int, like: Node) -> Made:
        if source in self.spread:
            whole, number = self.spread[source].ports[index]
            if number is None:
                return whole
        else:
            whole, number = self.made[source], index
        assert isinstance(whole.node.type, TupleType)
        at = whole.device, whole.position, ITEM
        kind = whole.node.type.elements[number]
        id = like.id if like.op.traits.item else None
        made = self.emit("item", (whole.node,), {"index": number}, kind, at, like, id=id)
        return Made(whole.device, made, whole.position)

    # -- messages

    def receive(self, made: Made, device: Device, position: int) -> Node:
        """The value on another device: a send where it is made, a recv where it is read."""
        if made.device == device:
            return made.node
        kind = made.node.type
        if any(isinstance(leaf, StackType) for leaf in leaves(kind)):
            raise GraphError(
                f"the stack %{made.node.id} cannot move from {made.device} to {device}",
                hint="a stack stays on the device that makes it",
                details=made.node.describe(),
                location=made.node.loc,
            )
        return self.message(made, device, position, kind)

    def signal(self, made: Made, device: Device, position: int) -> Node:
        """What tells a device that a node has run: its value if that is sent anyway."""
        if made.device == device:
            return made.node
        found = self.received.get((made.node, device, made.node.type))
        return found or self.message(made, device, position, UNIT)

    def message(self, made: Made, device: Device, position: int, kind: AnyType) -> Node:
        key = made.node, device, kind
        found = self.received.get(key)
        if found is None:
            found = self.received[key] = self._message(made, device, position, kind)
        return found

    def _message(self, made: Made, device: Device, position: int, kind: AnyType) -> Node:
        node, empty = made.node, kind is UNIT
        channel = self.wiring.channel()
        at = made.device, made.position, SEND
        attrs: dict[str, object] = {"channel": channel, "to": str(device)}
        inputs, after = ((), (node,)) if empty else ((node,), ())
        self.emit("send", inputs, attrs, UNIT, at, node, after)
        what = "the end of " if empty else ""
        explain(node.id, f"{what}%{node.id} goes to {device.short} as {channel}")
        attrs = {"channel": channel, "from": str(made.device), "type": None if empty else kind}
        return self.emit("recv", (), attrs, kind, (device, position, RECV), node)

    def after(self, node: Node, device: Device, position: int) -> tuple[Node, ...]:
        """What a node waits for, on its device."""
        if not node.after:
            return ()
        ends = [end for source in node.after for end in self.ends(source)]
        return tuple(dict.fromkeys(self.signal(end, device, position) for end in ends))

    def ends(self, node: Node) -> Iterable[Made]:
        """The nodes that must have run for a node to have run; none for what always has."""
        if node in self.spread:
            return self.spread[node].parts.values()
        return (self.made[node],) if node in self.made else ()

    # -- the part of one device

    def cut(self, device: Device, params: Iterable[Node], results: Sequence[Node]) -> Graph:
        """The part of a device, with these of the old parameters."""
        entries = sorted(self.lists.get(device, ()), key=lambda entry: entry[:2])
        nodes = [node for _, _, node in entries]
        return self.graph.replace(
            params=tuple([self.param(p, device) for p in params]),
            nodes=nodes,
            results=tuple(results),
            result_names=(),
            names=self.names(device, {node.id for node in nodes}),
            next_id=self.next_id,
        )

    def names(self, device: Device, held: set[int]) -> dict[str, int]:
        """The user's names of what a device makes."""
        if not self.graph.names:
            return {}
        moved = {old.id: made for old, made in self.made.items()}
        found = {}
        for name, id in self.graph.names.items():
            made = moved.get(id)
            if made is not None and made.device == device:
                found[name] = made.node.id
            elif made is None and id in held:
                found[name] = id
        return found
