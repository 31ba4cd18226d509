"""The lanes of a `vmap` on devices: its region once for each, node by node, side by side.

    lane      x ──> tanh ──> axis_sum ──> y

    cpu:0     x[0] ──> tanh ──┐              ┌──> y
                              ├─ all_reduce ─┤
    cpu:1     x[1] ──> tanh ──┘              └──> y

What combines lanes becomes a collective, which `route_collectives` writes out as messages.  A value
that no lane has for itself alone is made on every device, so that it does not travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Host
from graphc.ir.place import Constraint, parse_spec
from graphc.ir.types import TupleType
from graphc.ops.autodiff.region_gradients import listed
from graphc.ops.batching.batch_region import Lane, Note, names_axis, unmapped, walked
from graphc.ops.record.value import Trace, Value, emit, functions


class Copies(NamedTuple):
    """A value of each device; not `mapped`: they are all the same."""

    values: tuple[Value, ...]
    mapped: bool


RegionRule = Callable[["DeviceLanes", Node, Sequence[Copies]], list[Copies]]
RULES: dict[str, RegionRule] = {}


def together_by(name: str) -> Callable[[RegionRule], RegionRule]:
    """Register how devices are combined in the regions of an op: rule(lanes, node, operands)."""

    def register(rule: RegionRule) -> RegionRule:
        RULES[name] = rule
        return rule

    return register


class DeviceLanes:
    """Emits a region once for each device into a trace."""

    def __init__(
        self, trace: Trace, devices: Sequence[str], name: str, note: Note | None = None
    ) -> None:
        self.trace, self.devices, self.name, self.note = trace, tuple(devices), name, note
        self.places = [Constraint(parse_spec(device)) for device in devices]
        self.place = trace.builder.place  # of what is on no device alone

    def enter(self, value: Value, mapped: bool) -> Copies:
        """An operand: a row for each device, or the same for all."""
        rows = range(len(self.devices))
        return Copies(tuple(value[k] if mapped else value for k in rows), mapped)

    def run(self, region: Graph, operands: Sequence[Copies]) -> list[Copies]:
        """Emit a region; what its results became."""
        return walked(self, region, operands, keeps_places=False)

    def node(self, node: Node, values: dict[int, Any]) -> Any:
        """A node on all devices: Copies, or several for a node with several results."""
        inputs = [values[source.id] for source in node.inputs]
        if node.op.traits.item:
            return inputs[0][node.attrs["index"]]
        if node.op.traits.makes_tuple:
            return inputs
        if self.name and names_axis(node, self.name):
            if node.regions:
                return self.together(node, inputs)
            return _TOGETHER[node.op.name](self, inputs[0])
        if isinstance(node.op.lower, Host) and node.attrs["threaded"]:
            made = self.in_turn(node, inputs)
        else:
            made = self.copied(node, inputs, [values[n.id] for n in node.after])
        return made if isinstance(node.type, TupleType) else made[0]

    def together(self, node: Node, inputs: Sequence[Copies]) -> Any:
        """A node in whose regions devices are combined. Raises GraphError without a rule."""
        if node.op.name not in RULES:
            raise GraphError(
                f"devices are not combined in a {node.op.name}",
                hint="combine them before or behind it",
            )
        self.trace.builder.place = self.place
        made = RULES[node.op.name](self, node, inputs)
        return made if isinstance(node.type, TupleType) else made[0]

    def copied(self, node: Node, inputs: Sequence[Copies], after: Sequence[Any]) -> list[Copies]:
        """The node on each device by itself."""
        rows = []
        for k in range(len(self.devices)):
            behind = tuple(c.values[k].node for found in after for c in _flat(found))
            rows.append(self.emitted(k, node, [copies.values[k] for copies in inputs], behind))
        mapped = any(copies.mapped for copies in inputs)
        return [Copies(made, mapped) for made in zip(*rows, strict=True)]

    def in_turn(self, node: Node, inputs: Sequence[Copies]) -> list[Copies]:
        """Python is called for one device after the other; the token goes from one to the next."""
        rows, token = [], inputs[-1].values[0]
        for k in range(len(self.devices)):
            given = [*(copies.values[k] for copies in inputs[:-1]), token]
            *made, token = self.emitted(k, node, given, ())
            rows.append(made)
        found = [Copies(made, True) for made in zip(*rows, strict=True)]
        return [*found, Copies((token,) * len(self.devices), False)]

    def emitted(
        self, k: int, node: Node, given: Sequence[Value], after: tuple[Node, ...]
    ) -> list[Value]:
        self.trace.builder.place = node.place or self.places[k]
        nodes = tuple(value.node for value in given)
        return listed(
            self.trace.emit(node.op, nodes, node.attrs, after=after, regions=node.regions)
        )

    def each(self, function: Callable[[int], Value]) -> tuple[Value, ...]:
        """A value of each device, made there."""
        made = []
        for k, place in enumerate(self.places):
            self.trace.builder.place = place
            made.append(function(k))
        return tuple(made)

    # -- what combines devices

    def total(self, x: Copies) -> Copies:
        made = emit("all_reduce", *x.values, devices=self.devices, combine="sum")
        return Copies(tuple(listed(made)), False)

    def gathered(self, x: Copies) -> Copies:
        rows = self.each(lambda k: functions.expand_dims(x.values[k], 0))
        self.trace.builder.place = self.place
        made = emit("all_gather", *rows, devices=self.devices)
        return Copies(tuple(listed(made)), False)

    def own_row(self, x: Copies) -> Copies:
        return Copies(self.each(lambda k: x.values[k][k]), True)


_TOGETHER: dict[str, Callable[[DeviceLanes, Copies], Copies]] = {
    "axis_sum": DeviceLanes.total,
    "axis_gather": DeviceLanes.gathered,
    "axis_slice": DeviceLanes.own_row,
}


def _flat(value: Copies | Sequence[Copies]) -> Sequence[Copies]:
    return [value] if isinstance(value, Copies) else value


def on_devices(
    region: Graph,
    values: Sequence[Value],
    mapped: Sequence[int],
    stacked: int,
    lanes: DeviceLanes,
    shared: str,
) -> list[Value]:
    """The results of a `vmap` on devices: those that are stacked, and those that are the same."""
    made = lanes.run(region, [lanes.enter(v, k in mapped) for k, v in enumerate(values)])
    rows = [functions.stack(copies.values) for copies in made[:stacked]]
    return rows + [unmapped(Lane(c.values[0], c.mapped), shared) for c in made[stacked:]]
