"""Which devices the regions of an op use: what partition asks before it takes an op apart.

A stack never moves: what pushes onto it or pops from it does so where the stack is, whatever else
its region op computes elsewhere.
"""

from __future__ import annotations

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Reads, map_nodes, map_regions
from graphc.ir.place import Device, device_of
from graphc.ir.regions import operands_of
from graphc.ir.types import StackType


def bodies(node: Node) -> tuple[Graph, ...]:
    """The regions whose results are the results of a region op."""
    return node.regions if node.op.traits.branch else node.regions[-1:]


def stack_origins(graph: Graph) -> dict[Node, Node]:
    """The node that made each stack: of every stack of a graph, in regions, too."""
    found = {param: param for param in graph.params if isinstance(param.type, StackType)}
    _find_origins(graph, found)
    return found


def _find_origins(graph: Graph, found: dict[Node, Node]) -> None:
    for node in graph.nodes:
        for region in node.regions:
            pairs = zip(region.params, operands_of(node))
            found.update((param, found[n]) for param, n in pairs if n in found)
            _find_origins(region, found)
        if isinstance(node.type, StackType):
            found[node] = found.get(_before(node), node)


def _before(stack: Node) -> Node:
    """What a stack was before the node that returns it; itself if it is new."""
    source, number = stack, 0
    if source.op.traits.item:
        source, number = source.inputs[0], source.attrs["index"]
    if source.regions:
        return bodies(source)[0].results[number]
    if source.op.traits.makes_tuple:
        return source.inputs[number]
    return source.inputs[0] if source.inputs else source


class Wiring:
    """The devices of a program, its channels so far, and which devices its region ops use."""

    def __init__(self, devices: tuple[Device, ...], graph: Graph) -> None:
        self.devices = devices
        self.channels = 0
        self.inside: dict[Node, tuple[Device, ...]] = {}
        self.stacks = {  # where every stack is, in regions, too
            node: self.check(device_of(origin.place), origin)
            for node, origin in stack_origins(graph).items()
        }

    def channel(self) -> str:
        """The name of a new channel."""
        self.channels += 1
        return f"c{self.channels - 1}"

    def check(self, device: Device | None, node: Node) -> Device:
        """The device, if it is one of the program's. Raises GraphError."""
        if device not in self.devices:
            where = f"on {device}" if device else "on no device"
            listed = ", ".join(d.short for d in self.devices)
            raise GraphError(
                f"%{node.id} is {where}, but the program runs on {listed}",
                details=node.describe(),
                location=node.loc,
            )
        return device

    def place(self, node: Node) -> Device | None:
        """Where a node is placed: a region op whose regions lie on one device is there, too."""
        devices = self.devices_in(node)
        return devices[0] if len(devices) == 1 else device_of(node.place)

    def devices_in(self, node: Node) -> tuple[Device, ...]:
        """The devices that the regions of a node compute on, or have stacks on, in the order of the
        program."""
        if not node.regions:
            return ()
        found = self.inside.get(node)
        if found is None:
            used = {self.stacks[n] for n in node.inputs if n in self.stacks}
            for region in node.regions:
                for inner in region.nodes:
                    used.update(self._uses(inner))
            found = self.inside[node] = tuple(sorted(used, key=self.devices.index))
        return found

    def _uses(self, node: Node) -> tuple[Device, ...]:
        if node.op.traits.item or node.op.traits.stored:
            return ()
        if node.op.traits.push or node.op.traits.pop:
            return (self.stacks[node.inputs[0]],)
        inner = self.devices_in(node)
        if inner or node.place is None:
            return inner
        return (self.check(device_of(node.place), node),)

    def site(self, value: Node, inside: list[Node]) -> Device | Node | None:
        """Where a value deep in region ops (`inside`, outermost first) is made: a device, a node
        around the outermost op, or None for a constant."""
        while inside:
            if value.op.traits.parameter:
                owner = inside.pop()
                value = operands_of(owner)[_number(owner, value)]
            elif value.op.traits.stored:
                return None
            elif value.op.traits.push or value.op.traits.pop:
                value = value.inputs[0]
            else:
                item = value.op.traits.item
                source = value.inputs[0] if item else value
                if len(self.devices_in(source)) <= 1:
                    if not item:
                        return self.place(value)
                    value = source
                    continue
                inside.append(source)
                value = bodies(source)[0].results[value.attrs["index"] if item else 0]
        return value


def _number(owner: Node, param: Node) -> int:
    """Which parameter of a region op's regions it is."""
    return next(r.params.index(param) for r in owner.regions if param in r.params)


def on_device(graph: Graph, device: Device) -> Graph:
    """A region that moves to a device as a whole; the same graph if it is there."""
    made = {
        n: map_regions(n, lambda r: on_device(r, device)) for n in (*graph.params, *graph.nodes)
    }
    if all(node is new and node.place == device for node, new in made.items()):
        return graph

    def moved(node: Node, reads: Reads) -> Node:
        return made[node].replace(inputs=reads[0], after=reads[1], place=device)

    return map_nodes(graph, moved)
