"""schedule: the issue order of every device, and when each recv begins.

A simulation says when every node would start; that is the order in which its device issues it.  A
recv, if nothing held it back, would begin when the run does and hold memory until it is read.
`recv_slack` finds how late it may begin; here it gets an `after` edge to the last kernel that ends
before that.  What is kept is never slower in the simulation, and holds fewer bytes.  With one
device the order is that of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TypeVar

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import VerifyError
from graphc.ir.channels import no_deadlock, spanning
from graphc.ir.graph import Graph, Node, Program, Rewriter, node_effect, rebuild
from graphc.ir.op import Effect
from graphc.ir.place import device_of
from graphc.ir.rewrites import permitted
from graphc.ir.sizes import hint_of
from graphc.passes import reasons
from graphc.passes.devices.recv_slack import Hold, holds, windows
from graphc.passes.fusion.node_costs import Shares
from graphc.passes.placement.measured import cost_model
from graphc.passes.placement.simulate import Costs, simulate
from graphc.passes.placement.timeline import Timeline
from graphc.passes.reasons import duration

Found = TypeVar("Found")
NEARLY = 1 + 1e-9  # sums of the same times in another order differ in their last bits


def schedule(program: Program, config: Config) -> Program:
    """The program of several devices in issue order, with recvs held back."""
    devices = [d for g in program.graphs if (d := device_of(g.device)) is not None]
    cost = cost_model(devices, config)
    plan = scheduled(program, Shares(program, cost) if config.merges else cost)
    explain(plan)
    reasons.summarise(plan.summary())
    return plan.program


def explain(plan: Plan) -> None:
    """Note why each recv begins when it does; those of a loop under the loop's number."""
    taken = {hold for p in (plan, *(inner for _, inner in plan.inside)) for hold in p.taken}
    for hold in plan.holds:
        reasons.explain(hold.window.recv.id, explanation(hold, hold in taken))
    for node, inner in plan.inside:
        for hold in inner.holds:
            text = explanation(hold, hold in taken)
            reasons.explain(node.id, f"in its {inner.program.name}: %{hold.window.recv.id} {text}")


@record(frozen=True, eq=False)
class Plan:
    """A scheduled program: what was decided, and its simulation before and after; `inside` are the
    plans of the regions of ops that span devices."""

    program: Program
    before: Timeline
    after: Timeline
    holds: list[Hold]
    taken: list[Hold]
    inside: list[tuple[Node, Plan]]

    def summary(self) -> str:
        spans = f"{duration(self.before.makespan)} -> {duration(self.after.makespan)}"
        peaks = ", ".join(
            f"{device.short} {hint_of(bytes):,} -> {hint_of(self.after.peak.get(device, 0)):,}"
            for device, bytes in sorted(self.before.peak.items())
        )
        guessed = len(self.after.inaccurate)
        doubt = f"; inaccurate: the cost of {guessed} nodes is guessed" if guessed else ""
        plans = [self, *(inner for _, inner in self.inside)]
        taken, held = (sum(len(getattr(p, name)) for p in plans) for name in ("taken", "holds"))
        count = f"{taken} of {held} recvs held back"
        return f"{count}; makespan {spans}; peak live bytes {peaks or 'none'}{doubt}"


def scheduled(program: Program, cost: Costs, links: str = "pair") -> Plan:
    """The best issue order that the simulation knows of, and recvs held back within it."""
    before = simulate(program, cost, links=links, in_order=True)
    program, inside = with_regions(program, cost, links)
    fixed = simulate(program, cost, links=links, in_order=True) if inside else before
    ordered = in_issue_order(program, cost, links, fixed)
    base = simulate(ordered, cost, links=links, in_order=True)
    if base.makespan > fixed.makespan * NEARLY:
        ordered, base = program, fixed
    found = holds(ordered, base, windows(ordered, base, links))
    possible = [hold for hold in found if hold.kernel is not None]
    for taken in (possible, [hold for hold in possible if hold.free]):
        if not taken:
            continue
        held = held_back(ordered, taken)
        after = simulate(held, cost, links=links, in_order=True)
        saves = sum(after.peak.values()) < sum(base.peak.values())
        if saves and after.makespan <= base.makespan * NEARLY:
            kept = [hold for hold in taken if permitted(hold.window.recv)]
            if len(kept) < len(taken):
                held = held_back(ordered, kept)
            return Plan(held, before, after, found, kept, inside)
    return Plan(ordered, before, base, found, [], inside)


def with_regions(
    program: Program, cost: Costs, links: str
) -> tuple[Program, list[tuple[Node, Plan]]]:
    """The program with the regions of ops that span devices scheduled, and how."""
    inside: list[tuple[Node, Plan]] = []
    regions: dict[Node, list[Graph]] = {}
    home = {node: graph.device for graph in program.graphs for node in graph.nodes if node.regions}
    for parts in {id(found): found for found in spanning(program.graphs).values()}.values():
        for number, region in enumerate(parts[0].regions):
            graphs = [part.regions[number].replace(device=home[part]) for part in parts]
            plan = scheduled(Program(region.name, tuple(graphs)), cost, links)
            inside += [(parts[0], plan), *plan.inside]
            for part, graph in zip(parts, plan.program.graphs, strict=True):
                regions.setdefault(part, []).append(graph.replace(device=None))

    def put(node: Node, made: list[Graph], r: Rewriter) -> Node:
        return node.replace(regions=tuple(made))

    return changed(program, regions, put), inside


def changed(
    program: Program, found: Mapping[Node, Found], put: Callable[[Node, Found, Rewriter], Node]
) -> Program:
    """The program with `put(node, what was found for it)` in place of some of its nodes.

    What a node reads may be one of them, and then the node that `put` gets is a new one: in a graph
    nodes are known by their ids.  All of it is one rewrite: what may happen is decided before.
    """

    def map(graph: Graph) -> Graph:
        by_id = {node.id: found[node] for node in graph.nodes if node in found}

        def rewrite(node: Node, r: Rewriter) -> Node | None:
            if node.id not in by_id:
                return None
            r.nodes.append(put(node, by_id[node.id], r))
            return r.nodes[-1]

        return rebuild(graph, rewrite, each=False)

    return program.map(map)


def held_back(program: Program, taken: Iterable[Hold]) -> Program:
    """The program with `after` edges from recvs to the kernels they wait for."""
    waits = {hold.window.recv: hold.kernel for hold in taken if hold.kernel is not None}

    def wait(recv: Node, kernel: Node, r: Rewriter) -> Node:
        return recv.replace(after=tuple(dict.fromkeys((*recv.after, r.new(kernel)))))

    return changed(program, waits, wait)


def explanation(hold: Hold, taken: bool) -> str:
    """Why a recv begins when it does."""
    window = hold.window
    reader = f"%{window.reader.id}" if window.reader is not None else "the end of the run"
    slack = f"{duration(window.slack)} of slack before {reader}"
    if hold.kernel is None:
        return f"begins at once: no kernel to wait for ends in the {slack}"
    waits = f"{duration(hold.delay)}, until %{hold.kernel.id} has run"
    if taken:
        return f"held back {waits}: {slack}"
    return f"begins at once: held back {waits}, it would save no memory in all"


# ------------------------------------------------------------------------------------ issue order


def in_issue_order(program: Program, cost: Costs, links: str, fixed: Timeline) -> Program:
    """Every device's nodes by the time they start when a device takes what is ready first, if that
    is faster than the order they stand in (whose simulation is `fixed`)."""
    free = simulate(program, cost, links=links)
    ordered = program.map(lambda g: by_start(g, free if free.makespan < fixed.makespan else fixed))
    try:
        no_deadlock(ordered)
    except VerifyError:  # parts of one loop start at different times, and what lies between waits
        return program
    return ordered


def by_start(graph: Graph, timeline: Timeline) -> Graph:
    """The nodes by start; a recv, and what costs nothing, directly before its first reader (a
    result at the end)."""
    start: dict[Node, float] = {}
    soonest: dict[Node, float] = dict.fromkeys(graph.results, inf)
    for node in reversed(graph.nodes):
        own = timeline.start[node]
        start[node] = soonest.get(node, own) if _waits(node, timeline) else own
        for source in (*node.inputs, *node.after):
            soonest[source] = min(soonest.get(source, inf), start[node])
    nodes = sorted(graph.nodes, key=start.__getitem__)
    moved = next((new for new, old in zip(nodes, graph.nodes, strict=True) if new is not old), None)
    return graph.replace(nodes=nodes) if moved is not None and permitted(moved) else graph


def _waits(node: Node, timeline: Timeline) -> bool:
    """Does a node run no sooner than it is read? Widening is part of the kernel that reads it."""
    if node.op.name in ("recv", "widen16"):
        return True
    return timeline.end[node] == timeline.start[node] and node_effect(node) is Effect.PURE
