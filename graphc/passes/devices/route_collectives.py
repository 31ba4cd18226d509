"""route_collectives: what several devices do together becomes values that go from one to the next.

    ring   a part for each device goes around and collects, then each total goes around

           cpu:0 ── x0[1] ──> cpu:1 ── x0[1] + x1[1] ──> cpu:2 ── ... ──> (the total of part 1)
           2 (n - 1) messages a device, of size / n each: the bytes hardly depend on n

    tree   sums of pairs, pairs of pairs, ... and the total back along the same branches

           cpu:0 <── cpu:1      cpu:2 <── cpu:3      then cpu:0 <── cpu:2
           2 log2(n) messages one after the other, of the whole size each

What is faster by the latencies and rates of the links is taken.  Nothing here is a message yet:
`partition` makes them of values that another device reads, so they are compressed, scheduled,
simulated and traced as any other.  A sum is made once and then copied, so all devices have its
bits.  Where transfers may lose precision, a total is rounded before it goes out, or crosses whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from math import ceil, inf, log2
from typing import Any

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.op import OPS, Effect, Op
from graphc.ir.place import Constraint, Device, Spec, parse_device, parse_spec
from graphc.ir.sizes import is_open
from graphc.ir.types import F32, AnyType, Dimension, TupleType, Type
from graphc.ops.control import collectives
from graphc.ops.record.value import Trace, Value, emit, functions, tracing
from graphc.passes.devices.compress import moved_from
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.measured import cost_model
from graphc.passes.reasons import duration, explain
from graphc.runtime.devices.registry import Link

Combine = Callable[[Value, Value], Value]


def route_collectives(graph: Graph, config: Config) -> Graph:
    """The graph without collectives. Raises GraphError for what is no name of a device."""
    if not any(node.op.traits.collective for node in graph.nodes):
        return graph
    devices = tuple(parse_device(name) for name in config.devices)
    cost = cost_model(devices, config)
    whole = _whole(graph)

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.traits.item and node.inputs[0].op.traits.makes_tuple:
            item: Node = node.inputs[0].inputs[node.attrs["index"]]
            return item
        if not node.op.traits.collective:
            return None
        trace = Trace(r)
        with tracing(trace):
            given = [trace.wrap(n) for n in node.inputs]
            team = Team(node, r, devices, cost, config, node.id in whole)
            kinds = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
            made = map(_typed, _WRITTEN[node.op](team, given), kinds)
            nodes = [value.node for value in made]
        r.place = node.place
        return r.emit(OPS["tuple"], nodes) if isinstance(node.type, TupleType) else nodes[0]

    return swept(rebuild(graph, rewrite, each=False))


def _typed(value: Value, kind: AnyType) -> Value:
    """A result as the collective's: two halves of n rows are n rows, whatever n is."""
    assert isinstance(kind, Type)
    return value if value.type == kind else functions.reshape(value, kind.dims)


def _whole(graph: Graph) -> set[int]:
    """Collectives whose results must keep all their bits: they are results, or stored."""
    ends = [*graph.results]
    for node in graph.nodes:
        if node.op.effect is Effect.WRITE or node.op.traits.exact:
            ends += node.inputs
    return {node.id for found in moved_from(ends) for node in (found, *found.inputs)}


def is_known(kind: AnyType) -> bool:
    """Is it an array whose size is a number, whatever the arguments?"""
    return isinstance(kind, Type) and kind.is_static and not is_open(kind.dims)


class Team:
    """The devices of one collective, in the order in which values go around.

    Member k has the operand `order[k]`, and runs on `homes[k]`: the first device is member 0.  A
    device that comes several times is several members side by side.
    """

    def __init__(
        self,
        node: Node,
        r: Rewriter,
        devices: Sequence[Device],
        cost: CostModel,
        config: Config,
        whole: bool,
    ) -> None:
        self.r = r
        self.node = node
        self.way: str = node.attrs.get("combine", "sum")
        homes = [_home(name, devices) for name in node.attrs["devices"]]
        self.order = _around(homes, cost)
        self.homes = [homes[k] for k in self.order]
        self.link = _slowest(self.homes, cost)
        self.lossy = config.shortens
        self.mode = "" if whole or config.error_budget is not None else config.compress
        self.size = len(homes)

    @contextmanager
    def on(self, member: int) -> Iterator[None]:
        """Nodes are made for this member meanwhile."""
        outer, self.r.place = self.r.place, Constraint(parse_spec(str(self.homes[member])))
        yield
        self.r.place = outer

    def members(self, given: Sequence[Value]) -> list[Value]:
        """The operands in the order of the members."""
        return [given[k] for k in self.order]

    def seated(self, made: Sequence[Value]) -> list[Value]:
        """What the members have, in the order of the operands."""
        return [made[self.order.index(k)] for k in range(self.size)]

    def rings(self, nbytes: int, ways: int, elements: int) -> bool:
        """Is a ring with a part of the bytes in each round faster than `ways` ways of a tree?"""
        if self.size == 1:
            return False
        round_seconds = self.link.seconds(nbytes / self.size) + self.link.latency  # one in, one out
        ring = ways * (self.size - 1) * round_seconds
        tree = ways * ceil(log2(self.size)) * self.link.seconds(nbytes)
        taken = ring < tree and elements >= self.size
        times = f"ring {duration(ring)}, tree {duration(tree)}"
        what = f"{self.node.op.name} of {nbytes:,} bytes over {self.size} devices"
        explain(self.node.id, f"{what} by a {'ring' if taken else 'tree'}: {times}")
        return taken

    def combined(self, one: Value, other: Value) -> Value:
        names = {"max": "maximum", "min": "minimum"}
        return emit(names.get(self.way, "add"), one, other)  # type: ignore[no-any-return]

    def quotient(self, total: Value) -> Value:
        return functions.divide(total, self.size) if self.way == "mean" else total

    def shared(self, value: Value) -> Value:
        """What all members are to have, as it crosses: rounded, or marked to cross whole."""
        if not self.crosses_short(value):
            return value
        if not self.mode:
            return emit("exact", value)  # type: ignore[no-any-return]
        mode = self.mode if isinstance(self.mode, str) else "truncate"
        return emit("widen16", emit("truncate16", value, mode=mode))  # type: ignore[no-any-return]

    def passed(self, value: Value) -> Value:
        """The same value on the member at hand, for others to take it from there."""
        if self.crosses_short(value) and not self.mode:
            return emit("exact", value)  # type: ignore[no-any-return]
        return emit("reshape", value, dims=value.type.dims)  # type: ignore[no-any-return]

    def crosses_short(self, value: Value) -> bool:
        return self.lossy and self.size > 1 and value.element is F32


def _home(name: str, devices: Sequence[Device]) -> Device | Spec:
    """The device of the list that a name means; the name itself where there is none."""
    spec = parse_spec(name)
    return next((device for device in devices if spec.matches(device)), spec)


def _around(homes: Sequence[Device | Spec], cost: CostModel) -> list[int]:
    """The places in the list so that each device is followed by the nearest that is left."""
    made, left = [0], list(range(1, len(homes)))
    while left:
        last = homes[made[-1]]
        made.append(min(left, key=lambda k: _distance(last, homes[k], cost)))
        left.remove(made[-1])
    return made


def _distance(one: Device | Spec, other: Device | Spec, cost: CostModel) -> float:
    """Seconds for a megabyte; 0 to itself and to what is not known."""
    known = isinstance(one, Device) and isinstance(other, Device) and one != other
    return cost.link(one, other).seconds(1e6) if known else 0.0  # type: ignore[arg-type]


def _slowest(homes: Sequence[Device | Spec], cost: CostModel) -> Link:
    """The slowest link on the way around."""
    found = Link(0.0, inf)
    for a, b in zip(homes, [*homes[1:], *homes[:1]]):
        if isinstance(a, Device) and isinstance(b, Device) and a != b:
            found = found.joined(cost.link(a, b))
    return found


# ------------------------------------------------------------------------------------------- rings


def _collect(team: Team, parts: Sequence[Sequence[Value]]) -> list[Value]:
    """parts[member][part] -> the total of part k on member k, which comes last to it."""
    count = team.size
    moving = [parts[(k + 1) % count][k] for k in range(count)]
    for step in range(2, count + 1):
        for k in range(count):
            member = (k + step) % count
            with team.on(member):
                moving[k] = team.combined(moving[k], parts[member][k])
    return moving


def _circulate(team: Team, parts: Sequence[Value]) -> list[list[Value]]:
    """Part k of member k -> every part on every member: made[member][part]."""
    count = team.size
    made = [list(parts) for _ in range(count)]
    for step in range(1, count):
        for k in range(count):
            member = (k + step) % count
            with team.on(member):
                made[member][k] = team.passed(made[(member - 1) % count][k])
    return made


# ------------------------------------------------------------------------------------------- trees


def _up(team: Team, values: Sequence[Value], combine: Combine) -> Value:
    """The members' values, combined in pairs, pairs of pairs and so on, on member 0."""
    held, step = list(values), 1
    while step < len(held):
        for k in range(0, len(held) - step, 2 * step):
            with team.on(k):
                held[k] = combine(held[k], held[k + step])
        step *= 2
    return held[0]


def _down(team: Team, value: Value) -> list[Value]:
    """A value of member 0 on every member."""
    made = [value] * team.size
    step = 1 << (team.size - 1).bit_length()
    while step > 1:
        step //= 2
        for k in range(0, team.size - step, 2 * step):
            with team.on(k + step):
                made[k + step] = team.passed(made[k])
    return made


# --------------------------------------------------------------------------------------- every op


def _each(team: Team, values: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    """A function of every member's value, there."""
    made = []
    for member, value in enumerate(values):
        with team.on(member):
            made.append(function(value))
    return made


def _all_reduce(team: Team, given: Sequence[Value]) -> list[Value]:
    values, kind = team.members(given), given[0].type
    if is_known(kind) and team.rings(kind.nbytes, 2, kind.size):
        parts = _each(team, values, lambda value: _even(team, _shaped(value, (kind.size,))))
        totals = _each(team, _collect(team, parts), lambda x: team.shared(team.quotient(x)))
        whole = _each(team, _circulate(team, totals), functions.concatenate)
        return team.seated(_each(team, whole, lambda value: _shaped(value, kind.dims)))
    return team.seated(_spread(team, _total(team, values)))


def _even(team: Team, value: Value) -> list[Value]:
    """A vector in a part for each member, of lengths that differ by one at most."""
    ends = [value.type.size * k // team.size for k in range(team.size + 1)]
    return [value[a:b] for a, b in pairwise(ends)]


def _shaped(value: Value, dims: tuple[Dimension, ...]) -> Value:
    return value if value.type.dims == dims else emit("reshape", value, dims=dims)


def _total(team: Team, values: Sequence[Value]) -> Value:
    total = _up(team, values, team.combined)
    with team.on(0):
        return team.quotient(total)


def _spread(team: Team, value: Value) -> list[Value]:
    """A value on every member, with the same bits."""
    with team.on(0):
        value = team.shared(value)
    return _down(team, value)


def _reduce_to(team: Team, given: Sequence[Value]) -> list[Value]:
    return [_total(team, team.members(given))]


def _to_all(team: Team, given: Sequence[Value]) -> list[Value]:
    with team.on(0):
        first = team.passed(given[0])
    return team.seated(_spread(team, first))


def _rows(team: Team, value: Value) -> list[Value]:
    """The rows of each member."""
    rows = value.type.dims[0] // team.size
    return [value[k * rows : (k + 1) * rows] for k in team.order]


def _reduce_scatter(team: Team, given: Sequence[Value]) -> list[Value]:
    values, kind = team.members(given), given[0].type
    if is_known(kind) and team.rings(kind.nbytes, 1, kind.size):
        parts = _each(team, values, lambda value: _rows(team, value))
        return team.seated(_each(team, _collect(team, parts), team.quotient))
    total = _total(team, values)
    with team.on(0):
        cut = _rows(team, total)
    return team.seated(_each(team, cut, team.passed))


def _all_gather(team: Team, given: Sequence[Value]) -> list[Value]:
    parts = _each(team, team.members(given), team.shared)
    kinds = [value.type for value in parts]
    if all(map(is_known, kinds)) and team.rings(
        sum(k.nbytes for k in kinds), 1, min(k.size for k in kinds)
    ):
        held = _circulate(team, parts)
        return team.seated(_each(team, held, lambda x: functions.concatenate(team.seated(x))))
    whole = _up(team, parts, lambda one, other: functions.concatenate([one, other]))
    with team.on(0):
        return team.seated(_down(team, _in_order(team, whole, parts)))


def _in_order(team: Team, whole: Value, parts: Sequence[Value]) -> Value:
    """Rows in the order of the members -> in that of the operands."""
    if team.order == sorted(team.order):
        return whole
    ends = accumulate([part.shape[0] for part in parts], initial=0)
    return functions.concatenate(team.seated([whole[a:b] for a, b in pairwise(ends)]))  # type: ignore[no-any-return]


def _all_to_all(team: Team, given: Sequence[Value]) -> list[Value]:
    cut = _each(team, team.members(given), lambda value: _rows(team, value))
    parts = [[row[k] for row in cut] for k in range(team.size)]
    return team.seated(_each(team, parts, lambda x: functions.concatenate(team.seated(x))))


_WRITTEN: dict[Op, Callable[[Team, Sequence[Value]], list[Value]]] = {
    collectives.ALL_REDUCE: _all_reduce,
    collectives.REDUCE_TO: _reduce_to,
    collectives.TO_ALL: _to_all,
    collectives.ALL_GATHER: _all_gather,
    collectives.REDUCE_SCATTER: _reduce_scatter,
    collectives.ALL_TO_ALL: _all_to_all,
}
