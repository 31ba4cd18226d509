"""A graph as a placement problem: what runs as one kernel is one task.

Constants are on every device that reads them, and views (index maps, which their readers inline)
are made where they are read: neither is a task.  A view that is smaller than what it shows stays
with that, so that only its own bytes travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from graphc.base.record import record
from graphc.ir.graph import Graph, Node
from graphc.ir.place import Device
from graphc.passes.fusion.can_fuse import Group, Groups
from graphc.passes.placement.allowed_devices import Classes, inner_nodes, spec_of, ties_of
from graphc.passes.placement.assignment import Problem
from graphc.passes.placement.cost import CostModel, Work, nbytes_of

HOME = 0  # the unit of a graph's parameters, which lie on the first device


@record(eq=False)
class Unit:
    """Nodes that run together; `spans` is the device of the first result and the seconds of a
    region op whose regions are on several devices."""

    nodes: list[Node]
    spans: tuple[int, float] | None = None
    reads: dict[tuple[Node, bool], None] = field(default_factory=dict)  # value, or just its end
    touched: dict[Node, None] = field(default_factory=dict)  # every value from outside, with data


class Units:
    """The units of a graph. `of` gives the unit of a node; nodes without one go to their readers.

    In a region (`free`) parameters are wherever they are read.  `stacks` are the origins of all
    stacks, `homes` the devices of those that other regions have placed; `ties` is what they share
    with other regions.  Raises GraphError for constraints that contradict each other.
    """

    def __init__(
        self,
        graph: Graph,
        cost: CostModel,
        *,
        merge: bool,
        soft: bool,
        free: bool,
        spanning: dict[Node, tuple[int, float]],
        stacks: dict[Node, Node],
        homes: dict[Node, int],
        ties: Classes | None = None,
    ) -> None:
        self.graph = graph
        self.cost = cost
        self.free = free
        self.spanning = spanning
        self.stacks = stacks
        self.groups = Groups(graph, merge=merge)
        self.results = set(graph.results)
        self.of: dict[Node, int] = {}
        self.units = [Unit([] if free else list(graph.params))]
        if not free:
            self.of = dict.fromkeys(graph.params, HOME)
        mixed = self.mixed_groups()
        known: dict[Group, int] = {}
        for node in graph.nodes:
            group = self.groups.of(node)
            if group is not None and group not in mixed:
                self.put(node, known.setdefault(group, len(self.units)))
            else:
                self.add(node)
        self.connect()
        self.classes = self.constrained(soft)
        if ties is not None:
            for tie in self.classes.ties:
                self.classes.settle(tie, ties.tied(tie))
        self.keep_stacks(homes)

    def mixed_groups(self) -> set[Group]:
        """Groups whose nodes ask for different things, and so may not run together."""
        asked: dict[Group, object] = {}
        mixed = set()
        for node in self.graph.nodes:
            group = self.groups.of(node)
            if group is not None and asked.setdefault(group, node.place) != node.place:
                mixed.add(group)
        return mixed

    def put(self, node: Node, unit: int) -> None:
        if unit == len(self.units):
            self.units.append(Unit([]))
        self.units[unit].nodes.append(node)
        self.of[node] = unit

    def add(self, node: Node) -> None:
        """A node outside the groups: with its operand, with its readers, or alone."""
        if node.op.traits.stored and node not in self.results:
            return
        if node.op.traits.item:
            self.put(node, self.of[node.inputs[0]])
        elif not self.groups.is_view(node) or spec_of(node) is not None or ties_of(node):
            self.put(node, len(self.units))
            self.units[-1].spans = self.spanning.get(node)
        elif (unit := self.kept(node)) is not None:
            self.put(node, unit)
        elif node in self.results:
            self.put(node, len(self.units))

    def kept(self, view: Node) -> int | None:
        """The unit that a view stays with: it is smaller than the one value it shows."""
        shown = dict.fromkeys(s for s in self.sources(view.inputs) if not s.op.traits.stored)
        if len(shown) != 1 or (base := next(iter(shown))) not in self.of:
            return None
        smaller = nbytes_of(view.type) < nbytes_of(base.type) or view in self.results
        return self.of[base] if smaller else None

    # -- what units read

    def connect(self) -> None:
        for number, unit in enumerate(self.units):
            if number == HOME and not self.free:
                continue
            for node in unit.nodes:
                for source in self.sources(node.inputs):
                    if self.of.get(source) != number:
                        unit.touched[source] = None
                        if source in self.of:
                            unit.reads[source, True] = None
                for source in self.sources(node.after):
                    if self.of.get(source, number) != number:
                        unit.reads[source, False] = None

    def sources(self, nodes: Iterable[Node]) -> Iterable[Node]:
        """The nodes behind views that are made where they are read."""
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node in self.of or node.op.traits.stored or not self.groups.is_view(node):
                yield node
            else:
                pending.extend(node.inputs)

    # -- constraints

    def constrained(self, soft: bool) -> Classes:
        classes = Classes(self.cost.devices, len(self.units), soft)
        for number, unit in enumerate(self.units):
            if number == HOME and unit.nodes:
                classes.pin(HOME, unit.nodes[0], 0)
            for node in unit.nodes:
                if unit.spans is not None:
                    classes.pin(number, node, unit.spans[0])
                    break
                inner_nodes(node, self.adder(classes, number))
        classes.hear_late()
        return classes

    def adder(self, classes: Classes, number: int) -> Callable[[Node], None]:
        return lambda inner: classes.add(number, inner)

    def stack_readers(self) -> Iterator[tuple[Node, int]]:
        """The stacks that units make or read, by their origins; what spans devices has no say."""
        for node, number in self.of.items() if self.stacks else ():
            if self.units[number].spans is None:
                for source in (node, *node.inputs):
                    if source in self.stacks:
                        yield self.stacks[source], number

    def keep_stacks(self, homes: dict[Node, int]) -> None:
        """What reads a stack is where the stack is, as far as that is allowed: `homes` are the
        devices of some, by origin.  What is elsewhere sends what it pushes."""
        readers = [*self.stack_readers()]
        for stack, number in readers:
            if stack in homes:
                self.classes.prefer(number, homes[stack])
        first: dict[Node, int] = {}
        for stack, number in readers:
            self.classes.agree(first.setdefault(stack, number), number)

    # -- the problem

    def problem(self) -> Problem:
        devices = self.cost.devices
        values: dict[tuple[Node, bool], int] = {}
        reads = [[values.setdefault(key, len(values)) for key in unit.reads] for unit in self.units]
        results = [] if self.free else [(r, True) for r in self.graph.results if r in self.of]
        returned = [values.setdefault(key, len(values)) for key in dict.fromkeys(results)]
        stored = {node for unit in self.units for node in unit.touched} | self.results
        numbers: dict[int, int] = {}
        roots = [self.classes.root(k) for k in range(len(self.units))]
        group = [numbers.setdefault(root, len(numbers)) for root in roots]
        links = [[self.cost.link(a, b) for b in devices] for a in devices]
        return Problem(
            seconds=[self.seconds(unit, stored) for unit in self.units],
            reads=reads,
            maker=[self.of[node] for node, _ in values],
            nbytes=[nbytes_of(node.type) if data else 0 for node, data in values],
            results=returned,
            group=group,
            feasible=[self.classes.allowed[root] for root in numbers],
            latency=[
                [0.0 if a == b else link.latency for b, link in enumerate(row)]
                for a, row in enumerate(links)
            ],
            pace=[
                [0.0 if a == b else 1 / link.bandwidth for b, link in enumerate(row)]
                for a, row in enumerate(links)
            ],
        )

    def seconds(self, unit: Unit, stored: set[Node]) -> tuple[float, ...]:
        devices = self.cost.devices
        if unit.spans is not None:
            return (unit.spans[1],) * len(devices)
        nodes = [n for n in unit.nodes if not n.op.traits.parameter and not self.groups.is_view(n)]
        work = self.work(nodes, unit, stored) if len(nodes) != 1 else None
        known: dict[str, float] = {}
        for device in devices:
            if device.type not in known:
                known[device.type] = (
                    self.cost.compute(nodes[0], device)
                    if work is None
                    else self.together(nodes, work, device)
                )
        return tuple([known[d.type] for d in devices])

    def together(self, nodes: list[Node], work: Work, device: Device) -> float:
        measured = self.cost.together(nodes, device)
        return self.cost.seconds(work, device) if measured is None else measured

    def work(self, nodes: list[Node], unit: Unit, stored: set[Node]) -> Work:
        """One kernel: only what it reads from outside and what others read is in memory."""
        inner = [self.cost.work(n) for n in nodes]
        calls = max((w.calls for w in inner), default=0.0)
        nbytes = sum(nbytes_of(n.type) for n in unit.touched)
        nbytes += sum(nbytes_of(n.type) for n in nodes if n in stored)
        return Work(sum(w.flops for w in inner), nbytes, calls)

    def exact(self, unit: Unit) -> bool:
        return unit.spans is None and all(
            self.cost.exact(n) for n in unit.nodes if not n.op.traits.parameter
        )
