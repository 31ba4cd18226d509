"""What a placement must respect: device specs, colocation, variables and stacks that do not move.

Union-find over the nodes that must share a device; a class may go where the specs of all its nodes
allow.  A variable lives where it is assigned: what its reads ask for decides only as far as nothing
else does, and a read that asks for another device than that sends its value there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphc.errors import GraphError
from graphc.ir.graph import Location, Node
from graphc.ir.op import STATE, Effect, Host
from graphc.ir.place import Buffer, Constraint, Device, Spec, variable_group
from graphc.passes.placement.one_device import unavailable
from graphc.passes.reasons import explain
from graphc.runtime.call.variable import containers

CPU = Spec(type="cpu")  # where Python and LAPACK are


def spec_of(node: Node) -> Spec | None:
    """The devices that a node asks for; a place that is a device asks for that one.

    What calls Python or LAPACK asks for a CPU, whatever it is written under: where a scope names
    another device, for a CPU beside that.
    """
    spec = _asked(node)
    if not needs_cpu(node) or (spec is not None and spec.type == "cpu"):
        return spec
    return CPU if spec is None else Spec(spec.job, spec.task, "cpu")


def needs_cpu(node: Node) -> bool:
    """Is a node a call of Python or of what only a CPU computes, or a result of one?"""
    made = node.inputs[0] if node.op.traits.item else node
    return isinstance(made.op.lower, Host) or made.op.traits.on_cpu


def _asked(node: Node) -> Spec | None:
    place = node.place
    if isinstance(place, Constraint):
        return place.spec
    device = place.device if isinstance(place, Buffer) else place
    if isinstance(device, Device):
        return Spec(device.job, device.task, device.type, device.index)
    return None


def ties_of(node: Node) -> list[str]:
    """What ties a node to others: the variable that it touches, and its colocation groups."""
    found = []
    if node.op.effect in STATE:
        found.append(variable_group(node.attrs["container"], node.attrs["name"]))
    if isinstance(node.place, Constraint):
        found += node.place.groups
    return list(dict.fromkeys(found))


class Classes:
    """Items (numbers from 0) that must share a device, and where each class of them may go."""

    def __init__(self, devices: tuple[Device, ...], count: int, soft: bool) -> None:
        self.devices = devices
        self.soft = soft
        self.parent = list(range(count))
        self.allowed: list[tuple[int, ...]] = [tuple(range(len(devices)))] * count
        self.asked: list[list[tuple[Node, Spec]]] = [[] for _ in range(count)]
        self.ties: dict[str, int] = {}
        self.late: list[tuple[int, Node]] = []  # reads and calls of Python: they are heard last
        self.matching: dict[Spec, tuple[int, ...]] = {}

    def root(self, item: int) -> int:
        parent = self.parent
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    def add(self, item: int, node: Node) -> None:
        """Apply what a node of the item asks for, regions included. Raises GraphError."""
        spec, ties = spec_of(node), ties_of(node)
        if node.op.effect is Effect.READ and isinstance(node.place, Constraint):
            self.late.append((item, node))
            spec, ties = None, ties[:1]
        if needs_cpu(node):
            self.late.append((item, node))
            ties = []
        if spec is not None:
            self.require(item, node, spec)
        for tie in ties:
            self.unite(self.ties.setdefault(tie, item), item, node, tie)

    def hear_late(self) -> None:
        """Apply what reads ask for, as far as their variables may still be there, and colocations
        of calls of Python, as far as they leave a CPU."""
        reads = [(item, node) for item, node in self.late if node.op.effect is Effect.READ]
        for item, node in self.late:
            for tie in ties_of(node)[node.op.effect is Effect.READ :]:
                self.unite(self.ties.setdefault(tie, item), item, node, tie, soft=True)
        for item, node in reads:
            spec = spec_of(node)
            if spec is None:
                continue
            if not set(self.matches(spec)).isdisjoint(self.allowed[self.root(item)]):
                self.require(item, node, spec)
            elif not self.matches(spec):
                self.require(item, node, spec)  # raises, or says that it is ignored
            else:
                explain(node.id, f"{touched(node)} lives elsewhere: its value goes to {spec}")

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

    def unite(self, first: int, second: int, node: Node, tie: str = "", soft: bool = False) -> None:
        """Two items share a device from here on. Raises GraphError when none is left for both,
        unless placement or this tie is soft: then `gc.colocate` is not heard, and what has to share
        a device is where the first of both may be."""
        first, second = self.root(first), self.root(second)
        if first == second:
            return
        if second < first:
            first, second = second, first
        left = tuple(d for d in self.allowed[first] if d in self.allowed[second])
        if not left:
            a, b = self.clash(self.asked[first], self.asked[second])
            error = conflict(a, b, node, tie)
            if not (self.soft or soft):
                raise error
            if tie and not is_own(tie, node):
                explain(node.id, f"a colocation is ignored: {error.message}")
                return
            explain(node.id, f"soft placement ignores {b[1]}: {error.message}")
            self.parent[second] = first
            return
        self.parent[second] = first
        self.allowed[first] = left
        self.asked[first] += self.asked[second]

    def tied(self, tie: str) -> tuple[int, ...]:
        """The devices that are left for what a tie holds together."""
        return self.allowed[self.root(self.ties[tie])]

    def settle(self, tie: str, devices: tuple[int, ...]) -> None:
        """What a tie holds together goes to one of these devices if that is allowed. Nothing may be
        required of it later."""
        item = self.root(self.ties[tie])
        self.allowed[item] = (
            tuple(d for d in self.allowed[item] if d in devices) or self.allowed[item]
        )

    def prefer(self, item: int, device: int) -> None:
        """The item goes to a device if that is allowed. Nothing may be required of it later."""
        item = self.root(item)
        if device in self.allowed[item]:
            self.allowed[item] = (device,)

    def agree(self, first: int, second: int) -> None:
        """Two items share a device if one is allowed for both, and go their ways otherwise."""
        first, second = sorted((self.root(first), self.root(second)))
        left = tuple(d for d in self.allowed[first] if d in self.allowed[second])
        if left:
            self.parent[second] = first
            self.allowed[first] = left

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


def conflict(
    first: tuple[Node, Spec], second: tuple[Node, Spec], tied: Node, tie: str = ""
) -> GraphError:
    """The error for two nodes that must share a device but ask for different ones."""
    (a, wants), (b, asks) = first, second
    more = () if tied in (a, b) else (f"{tied!r}{_at(tied.loc)}",)
    return GraphError(
        f"%{a.id} must run on {wants} and %{b.id} on {asks}, but {_reason(tied, tie)}",
        details=(_line(a, wants), _line(b, asks), *more),
        location=b.loc,
        hint="change one constraint or the colocation, or let soft_placement=True do it",
    )


def _reason(tied: Node, tie: str) -> str:
    """Why two nodes share a device, in words of the user."""
    tie = tie or next(iter(ties_of(tied)), "")
    if not tie:
        return "one op holds them together"
    if is_own(tie, tied):
        return f"{touched(tied)} lives on one device"
    cells = [cell for home in containers() for cell in home.cells.values()]
    named = [c for c in cells if variable_group(c.container.name, c.name) == tie]
    if named:
        return f"{_variable(named[0].name, named[0].location)} is colocated with both"
    return f"gc.colocate (group {tie!r}) holds them together"


def is_own(tie: str, node: Node) -> bool:
    """Is the tie that of the variable that a node reads or assigns?"""
    return node.op.effect in STATE and tie == ties_of(node)[0]


def touched(node: Node) -> str:
    """The variable of a read or assign, and where it was made."""
    container, name = node.attrs["container"], node.attrs["name"]
    cells = [home.cells.get(name) for home in containers() if home.name == container]
    return _variable(name, cells[0].location if cells and cells[0] else None)


def _variable(name: str, location: Location | None) -> str:
    return f"variable {name!r}" + (f" (made{_at(location)})" if location else "")


def _at(location: Location | None) -> str:
    return f" at {location[0]}:{location[1]}" if location is not None else ""


def _line(node: Node, spec: Spec) -> str:
    return f"{node!r} on {spec}{_at(node.loc)}"


def inner_nodes(node: Node, visit: Callable[[Node], None]) -> None:
    """Call for the node and for every node in its regions."""
    visit(node)
    pending = list(node.regions)
    while pending:
        for inner in pending.pop().nodes:
            visit(inner)
            pending.extend(inner.regions)
