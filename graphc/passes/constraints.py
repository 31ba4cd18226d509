"""What a placement must respect: device specs, colocation, variables and stacks that do not move.

Union-find over the nodes that must share a device; a class may go where the specs of all its nodes
allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphc.errors import GraphError
from graphc.ir.graph import Node
from graphc.ir.place import Buffer, Constraint, Device, Spec, variable_group
from graphc.ir.types import StackType, leaves
from graphc.passes.place import unavailable
from graphc.passes.reasons import record as explain


def spec_of(node: Node) -> Spec | None:
    """The devices that a node asks for; a place that is a device asks for that one."""
    place = node.place
    if isinstance(place, Constraint):
        return place.spec
    device = place.device if isinstance(place, Buffer) else place
    if isinstance(device, Device):
        return Spec(device.job, device.task, device.type, device.index)
    return None


def ties_of(node: Node) -> list[str]:
    """What ties a node to others: its colocation group, and the variable that it touches."""
    found = []
    if node.op.name in ("read", "assign"):
        found.append(variable_group(node.attrs["container"], node.attrs["name"]))
    if isinstance(node.place, Constraint) and node.place.group:
        found.append(node.place.group)
    return found


class Classes:
    """Items (numbers from 0) that must share a device, and where each class of them may go."""

    def __init__(self, devices: tuple[Device, ...], count: int, soft: bool) -> None:
        self.devices = devices
        self.soft = soft
        self.parent = list(range(count))
        self.allowed: list[tuple[int, ...]] = [tuple(range(len(devices)))] * count
        self.asked: list[list[tuple[Node, Spec]]] = [[] for _ in range(count)]
        self.ties: dict[str, int] = {}
        self.matching: dict[Spec, tuple[int, ...]] = {}

    def root(self, item: int) -> int:
        parent = self.parent
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    def add(self, item: int, node: Node) -> None:
        """Apply what a node of the item asks for, regions included. Raises GraphError."""
        spec = spec_of(node)
        if spec is not None:
            self.require(item, node, spec)
        for tie in ties_of(node):
            self.unite(self.ties.setdefault(tie, item), item, node)

    def pin(self, item: int, node: Node, device: int) -> None:
        """The item is on a device whatever happens, as this node shows."""
        name = self.devices[device]
        self.allowed[item] = (device,)
        self.asked[item] = [(node, Spec(name.job, name.task, name.type, name.index))]

    def require(self, item: int, node: Node, spec: Spec) -> None:
        """The item's class runs on a device of a spec. Raises GraphError naming what rules it out,
        or with soft placement drops the spec."""
        item = self.root(item)
        matching = self.matches(spec)
        left = tuple(d for d in self.allowed[item] if d in matching)
        if not left:
            error = self.nothing_left(item, node, spec)
            if not self.soft:
                raise error
            explain(node.id, f"soft placement ignores {spec}: {error.message}")
            return
        self.allowed[item] = left
        self.asked[item].append((node, spec))

    def matches(self, spec: Spec) -> tuple[int, ...]:
        found = self.matching.get(spec)
        if found is None:
            numbered = enumerate(self.devices)
            found = self.matching[spec] = tuple(k for k, d in numbered if spec.matches(d))
        return found

    def unite(self, first: int, second: int, node: Node) -> None:
        """Two items share a device from here on. Raises GraphError when none is left for both."""
        first, second = self.root(first), self.root(second)
        if first == second:
            return
        if second < first:
            first, second = second, first
        left = tuple(d for d in self.allowed[first] if d in self.allowed[second])
        if not left:
            a, b = self.clash(self.asked[first], self.asked[second])
            error = conflict(a, b, node)
            if not self.soft:
                raise error
            explain(node.id, f"soft placement ignores a colocation: {error.message}")
            return
        self.parent[second] = first
        self.allowed[first] = left
        self.asked[first] += self.asked[second]

    def clash(
        self, ours: Iterable[tuple[Node, Spec]], theirs: Iterable[tuple[Node, Spec]]
    ) -> tuple[tuple[Node, Spec], tuple[Node, Spec]]:
        """Two demands that no device meets, or the first of each side."""
        ours, theirs = list(ours), list(theirs)
        for a in ours:
            for b in theirs:
                if not set(self.matches(a[1])) & set(self.matches(b[1])):
                    return a, b
        return ours[0], theirs[0]

    def nothing_left(self, item: int, node: Node, spec: Spec) -> GraphError:
        if not self.matches(spec):
            return unavailable(node, spec, self.devices)
        other, _ = self.clash(self.asked[item], [(node, spec)])
        return conflict(other, (node, spec), node)


def conflict(first: tuple[Node, Spec], second: tuple[Node, Spec], tied: Node) -> GraphError:
    """The error for two nodes that must share a device but ask for different ones."""
    (a, wants), (b, asks) = first, second
    ties = ties_of(tied)
    why = f"colocation {ties[0]!r}" if ties else "one op"
    return GraphError(
        f"%{a.id} must run on {wants} and %{b.id} on {asks}, but {why} holds them together",
        details=(_line(a, wants), _line(b, asks)),
        location=b.loc,
        hint="change one constraint or the colocation, or let soft_placement=True do it",
    )


def _line(node: Node, spec: Spec) -> str:
    at = f" at {node.loc[0]}:{node.loc[1]}" if node.loc is not None else ""
    return f"{node!r} on {spec}{at}"


def carries_stack(node: Node) -> bool:
    return any(isinstance(leaf, StackType) for leaf in leaves(node.type))


def inner_nodes(node: Node, visit: Callable[[Node], None]) -> None:
    """Call for the node and for every node in its regions."""
    visit(node)
    pending = list(node.regions)
    while pending:
        for inner in pending.pop().nodes:
            visit(inner)
            pending.extend(inner.regions)
