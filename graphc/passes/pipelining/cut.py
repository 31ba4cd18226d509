"""cut: the stage of every node of a loss.

By what the user says (`gc.device`, names of values), or into a number of stages that take equally
long.  Nodes in the order of the graph are cut at some positions: no edge then leads backwards,
whatever the graph looks like, and a value that skips stages is one value still.  Where that is not
good enough, branches are cut across their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from graphc.base.hints import meant
from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.place import Constraint, Device
from graphc.ops.autodiff.vjp import Note, Sweep, zeros
from graphc.ops.control.control import param_node
from graphc.ops.control.pipelined import BALANCES
from graphc.ops.record.value import Trace, tracing
from graphc.passes.pipelining.balance import SLACK, assigned, balanced
from graphc.passes.pipelining.cells import Loss
from graphc.passes.placement.simulate import Costs

SCALE = 2  # bytes of a stage per byte of its parameters: themselves and their gradients


def working(loss: Loss) -> list[Node]:
    """The nodes that are cut: those that every chunk has its own of."""
    return [node for node in loss.graph.nodes if loss.varies(node)]


def by_device(loss: Loss, devices: Sequence[Device]) -> tuple[dict[Node, int], list[int]] | None:
    """The stages that `gc.device` asks for, and the device number of each; None if it asks for
    none.  A stage begins wherever a value goes to another device."""
    asked = {node: _asked(node, devices) for node in working(loss)}
    if all(number is None for number in asked.values()):
        return None
    first = next(number for number in asked.values() if number is not None)
    stage: dict[Node, int] = {}
    homes = [first]
    for node, number in asked.items():
        least = max((stage[n] for n in node.inputs if n in stage), default=0)
        if number is not None:
            while least < len(homes) and homes[least] != number:
                least += 1
            if least == len(homes):
                homes.append(number)
        stage[node] = least
    return _late(loss, stage, asked), homes


def _asked(node: Node, devices: Sequence[Device]) -> int | None:
    place = node.place
    spec = place.spec if isinstance(place, Constraint) else None
    if spec is None:
        return None
    found = [k for k, device in enumerate(devices) if spec.matches(device)]
    if not found:
        listed = ", ".join(device.short for device in devices)
        raise GraphError(
            f"%{node.id} is to run on {spec}, but the stages are on {listed}",
            location=node.loc,
            details=node.describe(),
            hint="name that device in devices=",
        )
    return found[0]


def _late(
    loss: Loss, stage: Mapping[Node, int], asked: Mapping[Node, int | None]
) -> dict[Node, int]:
    """What reads nothing but the batch is computed where it is read, not sent there."""
    made = dict(stage)
    read: dict[Node, list[int]] = {}
    for node in reversed(list(stage)):
        free = asked.get(node) is None and not any(n in stage for n in node.inputs)
        if free and node in read:
            made[node] = min(read[node])
        for source in node.inputs:
            read.setdefault(source, []).append(made[node])
    return made


def by_names(loss: Loss, names: Sequence[str]) -> dict[Node, int]:
    """Stages that end with named values, and one more. Raises GraphError for unknown names."""
    known = loss.graph.names
    for name in names:
        if name not in known:
            hint = meant(name, known) or "gc.name(x, 'block1') gives a value a name"
            raise GraphError(f"no value is named {name!r}", hint=hint)
    ends = {known[name]: number for number, name in enumerate(names)}
    stage: dict[Node, int] = {}
    for node in working(loss):
        before = [max(stage[n], ends.get(n.id, -1) + 1) for n in node.inputs if n in stage]
        stage[node] = max(before, default=0)
        if node.id in ends and stage[node] > ends[node.id]:
            raise GraphError(
                f"{names[ends[node.id]]!r} follows from {names[stage[node] - 1]!r}",
                hint="name the ends of the stages in the order in which the model goes through",
            )
        stage[node] = max(stage[node], ends.get(node.id, 0))
    return _late(loss, stage, {node: None if n not in ends else n for n, node in _ids(stage)})


def _ids(stage: Mapping[Node, int]) -> list[tuple[int, Node]]:
    return [(node.id, node) for node in stage]


# ------------------------------------------------------------------------------------ balance


def by_count(
    loss: Loss,
    count: int,
    cost: Costs,
    balance: str = "time",
    limit: float | None = None,
    held: int = 1,
) -> tuple[dict[Node, int], float]:
    """The best stages of this number, and by how much the slowest may be slower than necessary;
    `balance` says what is made equal.  No stage needs more than `limit` bytes for parameters, their
    gradients and what it makes of the chunks that are `held` at once.

    Nodes are cut in their order, where few bytes cross; the graph is searched for other cuts where
    no cut of the order is good.  Raises GraphError for an unknown balance, for more stages than
    there are nodes and where none are within the limit.
    """
    if balance not in BALANCES:
        raise GraphError(f"stages are balanced by {' or '.join(BALANCES)}, not by {balance!r}")
    groups = together(loss)
    if count > len(groups):
        raise GraphError(f"{len(groups)} nodes are no {count} stages")
    bytes = node_bytes(loss, held)
    even = node_seconds(loss, cost) if balance == "time" else bytes
    costs = [sum(even[n] for n in group) for group in groups]
    sizes = [sum(bytes[n] for n in group) for group in groups]
    ends = balanced(costs, count, sizes, limit, crossing_bytes(loss, groups))
    part = [k for k, (a, b) in enumerate(pairwise([0, *ends])) for _ in range(a, b)]
    slowest = max(sum(costs[a:b]) for a, b in pairwise([0, *ends]))
    bound = max(sum(costs) / count, *costs)
    if slowest > SLACK * bound:
        found = assigned(costs, _edges(groups), count, sizes=sizes, limit=limit)
        part = found.part if slowest > SLACK * found.slowest else part
        slowest, bound = min(slowest, found.slowest), found.bound
    stage = {node: number for number, group in zip(part, groups) for node in group}
    return stage, slowest / bound - 1 if bound else 0.0


def _edges(groups: Sequence[Sequence[Node]]) -> list[list[int]]:
    """The numbers of the groups that each one reads."""
    position = {node: k for k, group in enumerate(groups) for node in group}
    read = [
        {position[n] for node in group for n in node.inputs if n in position} for group in groups
    ]
    return [sorted(found - {k}) for k, found in enumerate(read)]


def together(loss: Loss) -> list[list[Node]]:
    """The working nodes in groups that are not cut: the items of a value stay with it."""
    groups: list[list[Node]] = []
    for node in working(loss):
        if groups and (node.op.traits.item or node.op.traits.makes_tuple):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def crossing_bytes(loss: Loss, groups: Sequence[Sequence[Node]]) -> list[float]:
    """The bytes that cross a cut before each group: values made before it that are read later."""
    position = {node: k for k, group in enumerate(groups) for node in group}
    last = dict(position)
    for node, at in position.items():
        for source in node.inputs:
            if source in last:
                last[source] = max(last[source], at)
    change = [0.0] * (len(groups) + 1)
    for node, at in position.items():
        if last[node] > at:
            change[at + 1] += node.nbytes
            change[last[node] + 1] -= node.nbytes
    made, total = [], 0.0
    for difference in change[: len(groups)]:
        total += difference
        made.append(total)
    return made


def node_seconds(loss: Loss, cost: Costs) -> dict[Node, float]:
    """What each working node costs, its backward pass included, as the cost model has it."""
    found = dict.fromkeys((node.id for node in loss.graph.nodes), 0.0)
    device = cost.devices[0]
    for node in loss.graph.nodes:
        found[node.id] += cost.compute(node, device)

    def note(made: Node, forward: Node) -> None:
        found[forward.id] = found.get(forward.id, 0.0) + cost.compute(made, device)

    if loss.wrt:
        _differentiated(loss.graph, loss.wrt, note)
    return {node: found[node.id] for node in working(loss)}


def _differentiated(graph: Graph, wrt: frozenset[int], note: Note) -> None:
    trace = Trace(Builder())
    params = [param_node(k, p.type, f"in{k}") for k, p in enumerate(graph.params)]
    trace.builder.next_id = len(params)
    with tracing(trace):
        sweep = Sweep(trace, graph, set(wrt), {0}, note)
        results = sweep.forward([trace.wrap(p) for p in params])
        seed = zeros(trace, graph.results[0].type)
        sweep.backward([seed, *[None] * (len(results) - 1)])


def node_bytes(loss: Loss, held: int = 1) -> dict[Node, float]:
    """The bytes of each working node for all chunks that are held at once, and of the parameters
    that it is the first to read and their gradients."""
    seen: set[Node] = set()
    found = {}
    for node in working(loss):
        new = [n for n in node.inputs if n.op.traits.parameter and n not in seen]
        seen.update(new)
        found[node] = float(held * node.nbytes + SCALE * sum(n.nbytes for n in new))
    return found


def most_bytes(loss: Loss, stage: Mapping[Node, int], held: int = 1) -> float:
    """The bytes of the stage that has most."""
    found: dict[int, float] = {}
    for node, nbytes in node_bytes(loss, held).items():
        found[stage[node]] = found.get(stage[node], 0.0) + nbytes
    return max(found.values())
