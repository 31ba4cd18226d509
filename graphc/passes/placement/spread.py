"""Placement over several devices: greedy, then a search, and the graph as it comes out.

What was rejected, and how late it would have been done, is kept as the reason of each decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.place import Device, Spec
from graphc.ir.rewrites import is_counting, permitted
from graphc.passes.devices.region_devices import stack_origins
from graphc.passes.placement.allowed_devices import Classes, inner_nodes, spec_of
from graphc.passes.placement.assignment import Problem, Run, Where, evaluate
from graphc.passes.placement.cost import CostModel, rounds_of
from graphc.passes.placement.gap import gap_of
from graphc.passes.placement.greedy import Offers, greedy
from graphc.passes.placement.improve import improve
from graphc.passes.placement.measured import cost_model
from graphc.passes.placement.one_device import placed
from graphc.passes.placement.tasks import HOME, Unit, Units
from graphc.passes.reasons import collecting, duration, explain
from graphc.passes.tuning import tuned


def spread(graph: Graph, devices: Sequence[Device], config: Config) -> Graph:
    """The graph over several devices. Raises GraphError for constraints that cannot be met."""
    placement = Placement(cost_model(devices, config), config, stack_origins(graph))
    placement.tie(graph)
    return placement.place(graph, region=False)[0]


class Placement:
    """Placing a graph and the regions of its ops that span devices."""

    def __init__(self, cost: CostModel, config: Config, stacks: dict[Node, Node]) -> None:
        self.cost = cost
        self.config = config
        self.stacks = stacks
        self.homes: dict[Node, int] = {}  # the devices of stacks, where they were read first
        self.ties: Classes | None = None  # of nodes in different regions

    def place(self, graph: Graph, region: bool) -> tuple[Graph, float]:
        """The placed graph and the seconds that it would take."""
        spread = {n: self.apart(n) for n in graph.nodes if n.regions and self.spans(n)}
        units = Units(
            graph,
            self.cost,
            merge=self.config.merges,
            soft=self.config.soft_placement,
            free=region,
            spanning={n: (home, seconds) for n, (_, home, seconds) in spread.items()},
            stacks=self.stacks,
            homes=self.homes,
            ties=self.ties,
        )
        problem = units.problem()
        first, offers = greedy(problem)
        before = evaluate(problem, first)
        run = improve(problem, before, self.config.place_seconds)
        self.explain(units, problem, before, run, offers)
        run = evaluate(problem, chosen(units, problem, run.where)) if is_counting() else run
        where = [self.cost.devices[run.where[group]] for group in problem.group]
        for stack, unit in units.stack_readers():
            self.homes.setdefault(stack, run.where[problem.group[unit]])
        if self.ties is not None:
            for tie, unit in units.classes.ties.items():
                self.ties.settle(tie, (run.where[problem.group[unit]],))
        regions = {node: made for node, (made, _, _) in spread.items()}
        return _Rewrite(units, where, regions).graph(), run.makespan

    # -- colocation across regions

    def tie(self, graph: Graph) -> None:
        """Find what is colocated across regions that are placed one by one. Raises GraphError for
        constraints that contradict each other."""
        scopes = self.scopes(graph)
        if len(scopes) == 1:
            return
        nodes = [node for scope in scopes for node in scope]
        classes = Classes(self.cost.devices, HOME + 1 + len(nodes), self.config.soft_placement)
        with collecting():  # what is ignored is told when its region is placed
            for param in graph.params:
                classes.pin(HOME, param, 0)
                classes.add(HOME, param)
            for number, node in enumerate(nodes, HOME + 1):
                inner_nodes(node, partial(classes.add, number))
            classes.hear_late()
        self.ties = classes if classes.ties else None

    def scopes(self, graph: Graph) -> list[list[Node]]:
        """The nodes that are placed together: of the graph, and of each region of ops that span
        devices."""
        own: list[Node] = []
        found = [own]
        for node in graph.nodes:
            if node.regions and self.spans(node):
                for region in node.regions:
                    found += self.scopes(self.inherited(region, node.place))
            else:
                own.append(node)
        return found

    # -- region ops over several devices

    def spans(self, node: Node) -> bool:
        """Do the constraints in the regions of a node allow no single device?"""
        left = set(self.cost.devices)
        asked: list[Spec | None] = []
        inner_nodes(node, lambda inner: asked.append(spec_of(inner)))
        for spec in dict.fromkeys(asked):
            matching = {d for d in self.cost.devices if spec is not None and spec.matches(d)}
            left &= matching or left  # what no device matches is an error, or dropped, later
        return not left

    def apart(self, node: Node) -> tuple[tuple[Graph, ...], int, float]:
        """The placed regions, the device of the first result and the seconds of the op."""
        regions = [self.inherited(region, node.place) for region in node.regions]
        made = [self.place(region, region=True) for region in regions]
        times = [seconds for _, seconds in made]
        total = max(times) if node.op.traits.branch else rounds_of(node) * sum(times)
        graphs = tuple(graph for graph, _ in made)
        device = next((r.place for r in graphs[-1].results if isinstance(r.place, Device)), None)
        return graphs, self.cost.devices.index(device) if device else 0, total

    def inherited(self, region: Graph, place: object) -> Graph:
        """A region whose nodes ask for what the op around it asks for, where they ask for
        nothing."""
        if place is None:
            return region
        mapped = {param: param for param in region.params}
        for node in region.nodes:
            mapped[node] = node.replace(
                inputs=tuple([mapped[n] for n in node.inputs]),
                after=tuple([mapped[n] for n in node.after]),
                place=node.place or place,
            )
        self.stacks |= {mapped[n]: self.stacks[n] for n in region.nodes if n in self.stacks}
        return region.replace(
            nodes=[mapped[n] for n in region.nodes],
            results=tuple(mapped[r] for r in region.results),
        )

    # -- why

    def explain(
        self, units: Units, problem: Problem, before: Run, run: Run, offers: dict[int, Offers]
    ) -> None:
        self.summary(units, problem, before, run)
        for number, unit in enumerate(units.units):
            group = problem.group[number]
            node = next((n for n in unit.nodes if not n.op.traits.parameter), None)
            if node is None or not any(problem.seconds[number]):
                continue
            mark = "" if units.exact(unit) else " (inaccurate)"
            chosen = self.cost.devices[run.where[group]].short
            text = f"on {chosen}, done at {duration(run.end[number])}{mark}"
            explain(node.id, text + self.rejected(unit, group, before, run, offers))

    def rejected(
        self, unit: Unit, group: int, before: Run, run: Run, offers: dict[int, Offers]
    ) -> str:
        """The devices that a unit is not on, and when it would have been done there."""
        names = [d.short for d in self.cost.devices]
        if group not in offers:
            return ": the only device that its constraints allow"
        taken = before.where[group]
        others = [f"{names[d]} {duration(done)}" for done, d in offers[group] if d != taken]
        if run.where[group] == taken:
            return f"; rejected {', '.join(others)}"
        done = next(done for done, d in offers[group] if d == taken)
        return (
            f"; the search moved it from {names[taken]} ({duration(done)}), for the end of the run"
        )

    def summary(self, units: Units, problem: Problem, before: Run, run: Run) -> None:
        gap = gap_of(problem, run, tuned.proof_tasks)
        bound = "the best is" if gap.exact else "none is below"
        last = units.graph.results[-1] if units.graph.results else units.graph.nodes[-1]
        text = f"makespan {duration(run.makespan)}, greedy {duration(before.makespan)}, "
        guessed = sum(not units.exact(unit) for unit in units.units)
        mark = f"; {guessed} costs are inaccurate" if guessed else ""
        explain(last.id, f"{text}{bound} {duration(gap.best)}{mark}")


def chosen(units: Units, problem: Problem, where: Where) -> Where:
    """The devices of classes where each that is not on the first that it may be on is counted, and
    may be kept there."""
    nodes = {g: u.nodes[0] for u, g in zip(units.units[::-1], problem.group[::-1]) if u.nodes}
    made = list(where)
    for group, devices in enumerate(problem.feasible):
        if where[group] != devices[0] and group in nodes and not permitted(nodes[group]):
            made[group] = devices[0]
    return made


class _Rewrite:
    """The graph with devices; views and constants appear where they are read."""

    def __init__(
        self, units: Units, where: Sequence[Device], regions: dict[Node, tuple[Graph, ...]]
    ) -> None:
        self.units = units
        self.where = where
        self.regions = regions
        self.home = units.cost.devices[0]
        self.nodes: list[Node] = []
        self.next_id = units.graph.next_id
        self.made: dict[Node, Node] = {}
        self.copies: dict[tuple[Node, Device], Node] = {}

    def graph(self) -> Graph:
        graph = self.units.graph
        first = self.readers()
        for param in graph.params:
            self.made[param] = param.replace(place=first.get(param, self.home))
        for node in graph.nodes:
            unit = self.units.of.get(node)
            if unit is not None:
                self.made[node] = self.put(node, self.where[unit], node.id)
        results = tuple([self.local(r, self.home) for r in graph.results])
        kept = {node.id for node in (*graph.params, *self.nodes)}
        return graph.replace(
            params=tuple([self.made[p] for p in graph.params]),
            nodes=self.nodes,
            results=results,
            names={name: id for name, id in graph.names.items() if id in kept},
            next_id=self.next_id,
        )

    def readers(self) -> dict[Node, Device]:
        """The device of the first reader of each parameter of a region."""
        found: dict[Node, Device] = {}
        if not self.units.free:
            return found
        for number, unit in enumerate(self.units.units):
            for source in unit.touched:
                if source.op.traits.parameter:
                    found.setdefault(source, self.where[number])
        return found

    def put(self, node: Node, device: Device, id: int) -> Node:
        """The node on a device, with what it reads, under this id."""
        spread = self.regions.get(node, ())
        used = {inner.place for region in spread for inner in region.nodes}
        if len(used) == 1 and None not in used:  # the op asked for another device than its regions
            (device,), spread = used, ()
        changed = node.replace(
            id=id,
            inputs=tuple([self.local(n, device) for n in node.inputs]),
            after=tuple([self.local(n, device) for n in node.after]),
            place=None if spread else device,
            regions=spread or tuple(placed(r, device, soft=True) for r in node.regions),
        )
        self.nodes.append(changed)
        return changed

    def local(self, node: Node, device: Device) -> Node:
        """A value as a node on a device reads it."""
        if node in self.made:
            return self.made[node]
        if node.op.traits.stored:
            self.made[node] = self.put(node, device, node.id)
            return self.made[node]
        if (node, device) not in self.copies:
            id = node.id
            if any((node, other) in self.copies for other in self.units.cost.devices):
                id, self.next_id = self.next_id, self.next_id + 1
            self.copies[node, device] = self.put(node, device, id)
        return self.copies[node, device]
