"""place: give every node a device of the list that its constraint allows.

With several devices the greedy placement by simulated execution comes first (`greedy`), then a
search for a better one (`improve`); what was rejected, and how late it would have been done, is
kept as the reason of each decision.

A region op is placed as a whole, unless constraints put nodes of its regions on different devices:
then it has no place of its own, and its regions are placed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.op import STORED
from graphc.ir.place import Constraint, Device, Spec, parse_device, parse_spec
from graphc.passes.assignment import Problem, Run, evaluate
from graphc.passes.constraints import inner_nodes, spec_of, unavailable
from graphc.passes.cost import CostModel, rounds_of
from graphc.passes.gap import gap_of
from graphc.passes.greedy import Offers, greedy
from graphc.passes.improve import improve
from graphc.passes.measured import cost_model
from graphc.passes.reasons import record as explain
from graphc.passes.units import Unit, Units
from graphc.runtime.devices import check_device

MICRO = 1e6
FEW_ASSIGNMENTS = 256  # so many are tried to tell how good the placement is


def place(graph: Graph, config: Config) -> Graph:
    """The graph with a Device as the place of every node. Raises GraphError if none is allowed."""
    devices = tuple(parse_device(d) for d in config.devices)
    for number, device in enumerate(devices):
        check_device(device.type, device.index)
        if device in devices[:number]:
            raise GraphError(f"{device} is twice in the device list")
    graph = constrained(graph, config.constraints)
    if len(devices) == 1:
        return placed(graph, devices[0], config.soft_placement)
    return _Placement(cost_model(devices, config), config).place(graph, region=False)[0]


def constrained(graph: Graph, given: Sequence[str]) -> Graph:
    """The graph with the constraints of `Config.constraints`. Raises GraphError for names that it
    does not have."""
    asked: dict[int, Spec] = {}
    ids = {f"%{n.id}": n.id for n in graph.nodes} | graph.names
    for text in given:
        name, _, spec = text.partition("=")
        if name not in ids:
            listed = ", ".join([*graph.names][:8]) or "none: gc.name gives some"
            raise GraphError(f"no value is named {name!r}", hint=f"names are {listed}")
        asked[ids[name]] = parse_spec(spec)
    if not asked:
        return graph

    def ask(node: Node, r: Rewriter) -> Node | None:
        if node.id not in asked:
            return None
        group = node.place.group if isinstance(node.place, Constraint) else None
        made = node.replace(place=Constraint(asked[node.id], group))
        r.nodes.append(made)
        return made

    return rebuild(graph, ask)


# ------------------------------------------------------------------------------------ one device


def placed(graph: Graph, device: Device, soft: bool = False) -> Graph:
    """The graph and its regions on one device."""
    mapped: dict[Node, Node] = {}
    for node in (*graph.params, *graph.nodes):
        mapped[node] = _placed(node, device, mapped, soft)
    return graph.replace(
        params=tuple(mapped[p] for p in graph.params),
        nodes=[mapped[n] for n in graph.nodes],
        results=tuple(mapped[r] for r in graph.results),
    )


def _placed(node: Node, device: Device, mapped: dict[Node, Node], soft: bool) -> Node:
    constraint = node.place
    spec = constraint.spec if isinstance(constraint, Constraint) else None
    if spec is not None and not spec.matches(device):
        if not soft:
            raise unavailable(node, spec, (device,))
        explain(node.id, f"soft placement: on {device.short}, as no device matches {spec}")
    return map_regions(node, lambda region: placed(region, device, soft)).replace(
        inputs=tuple(mapped[n] for n in node.inputs),
        after=tuple(mapped[n] for n in node.after),
        place=device,
    )


# ------------------------------------------------------------------------------------ several


class _Placement:
    """Placing a graph and the regions of its ops that span devices."""

    def __init__(self, cost: CostModel, config: Config) -> None:
        self.cost = cost
        self.config = config

    def place(self, graph: Graph, region: bool) -> tuple[Graph, float]:
        """The placed graph and the seconds that it would take."""
        spread = {n: self.apart(n) for n in graph.nodes if n.regions and self.spans(n)}
        units = Units(
            graph, self.cost, merge=self.config.merges, soft=self.config.soft_placement,
            free=region, spanning={n: (home, seconds) for n, (_, home, seconds) in spread.items()},
        )  # fmt: skip
        problem = units.problem()
        first, offers = greedy(problem)
        before = evaluate(problem, first)
        run = improve(problem, before, self.config.place_seconds)
        self.explain(units, problem, before, run, offers)
        where = [self.cost.devices[run.where[group]] for group in problem.group]
        regions = {node: made for node, (made, _, _) in spread.items()}
        return _Rewrite(units, where, regions).graph(), run.makespan

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
        made = [self.place(_inherited(region, node.place), region=True) for region in node.regions]
        times = [seconds for _, seconds in made]
        total = max(times) if node.op.name == "cond" else rounds_of(node) * sum(times)
        regions = tuple(graph for graph, _ in made)
        device = next((r.place for r in regions[-1].results if isinstance(r.place, Device)), None)
        return regions, self.cost.devices.index(device) if device else 0, total

    # -- why

    def explain(
        self, units: Units, problem: Problem, before: Run, run: Run, offers: dict[int, Offers]
    ) -> None:
        self.summary(units, problem, before, run)
        for number, unit in enumerate(units.units):
            group = problem.group[number]
            node = next((n for n in unit.nodes if n.op.name != "param"), None)
            if node is None or not any(problem.seconds[number]):
                continue
            mark = "" if units.exact(unit) else " (inaccurate)"
            chosen = self.cost.devices[run.where[group]].short
            text = f"on {chosen}, done at {_us(run.end[number])}{mark}"
            explain(node.id, text + self.rejected(unit, group, before, run, offers))

    def rejected(
        self, unit: Unit, group: int, before: Run, run: Run, offers: dict[int, Offers]
    ) -> str:
        """The devices that a unit is not on, and when it would have been done there."""
        names = [d.short for d in self.cost.devices]
        if group not in offers:
            return ": the only device that its constraints allow"
        taken = before.where[group]
        others = [f"{names[d]} {_us(done)}" for done, d in offers[group] if d != taken]
        if run.where[group] == taken:
            return f"; rejected {', '.join(others)}"
        done = next(done for done, d in offers[group] if d == taken)
        return f"; the search moved it from {names[taken]} ({_us(done)}), for the end of the run"

    def summary(self, units: Units, problem: Problem, before: Run, run: Run) -> None:
        gap = gap_of(problem, run, FEW_ASSIGNMENTS)
        bound = "the best is" if gap.exact else "none is below"
        last = units.graph.results[-1] if units.graph.results else units.graph.nodes[-1]
        text = f"makespan {_us(run.makespan)}, greedy {_us(before.makespan)}, "
        guessed = sum(not units.exact(unit) for unit in units.units)
        mark = f"; {guessed} costs are inaccurate" if guessed else ""
        explain(last.id, f"{text}{bound} {_us(gap.best)}{mark}")


def _us(seconds: float) -> str:
    return f"{seconds * MICRO:.4g} us"


def _inherited(region: Graph, place: object) -> Graph:
    """A region whose nodes ask for what the op around it asks for, where they ask for nothing."""
    if place is None:
        return region
    mapped = {param: param for param in region.params}
    for node in region.nodes:
        mapped[node] = node.replace(
            inputs=tuple([mapped[n] for n in node.inputs]),
            after=tuple([mapped[n] for n in node.after]),
            place=node.place or place,
        )
    return region.replace(
        nodes=[mapped[n] for n in region.nodes], results=tuple(mapped[r] for r in region.results)
    )


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
                if source.op.name == "param":
                    found.setdefault(source, self.where[number])
        return found

    def put(self, node: Node, device: Device, id: int) -> Node:
        """The node on a device, with what it reads, under this id."""
        spread = self.regions.get(node)
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
        if node.op.name in STORED:
            self.made[node] = self.put(node, device, node.id)
            return self.made[node]
        if (node, device) not in self.copies:
            id = node.id
            if any((node, other) in self.copies for other in self.units.cost.devices):
                id, self.next_id = self.next_id, self.next_id + 1
            self.copies[node, device] = self.put(node, device, id)
        return self.copies[node, device]
