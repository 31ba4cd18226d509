"""Batching a region: its nodes once more, for all lanes at once.

    lane     x: f32[3]      ──> tanh ──> sum ──> y: f32[]         w (the same for all) ──> exp
    lanes    x: f32[8,3]    ──> tanh ──> sum ──> y: f32[8]        w                    ──> exp

One walk over the nodes; what depends on no mapped value is copied as it is, and computed once. The
rule of each op says what becomes of the others (`ops/record/batching.py`); ops with regions have
theirs in `regions.py`.  A mapped value has the lanes as its first axis, always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Composite, Host
from graphc.ir.types import AnyType, Dimension, TupleType, Type, tensor
from graphc.ops.autodiff.region_gradients import apply, listed, region_of, types_of
from graphc.ops.record.batching import Lanes, Same, repeated
from graphc.ops.record.value import Trace, Value, emit

Note = Callable[[Node, Node], None]  # (new node, the node of one lane that it comes from)


class Lane(NamedTuple):
    """What a value of one lane has become: one of all lanes if `mapped`, else what it was."""

    value: Value
    mapped: bool


RegionRule = Callable[["Batcher", Node, list[Lane]], list[Lane]]
RULES: dict[str, RegionRule] = {}


def batched_by(*names: str) -> Callable[[RegionRule], RegionRule]:
    """Register how ops with regions are batched: rule(batcher, node, operands)."""

    def register(rule: RegionRule) -> RegionRule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


class Walker(Protocol):
    """What emits the nodes of a region, each for all lanes."""

    trace: Trace
    note: Note | None

    def node(self, node: Node, values: dict[int, Any]) -> Any:
        """What a node has become, given what those before it have, by their ids."""


def walked(
    walker: Walker, region: Graph, operands: Sequence[Any], keeps_places: bool = True
) -> list[Any]:
    """Emit a region node by node, each at its line and, if wanted, at its place; what its results
    became."""
    values: dict[int, Any] = dict(zip((p.id for p in region.params), operands, strict=True))
    builder = walker.trace.builder
    loc, place = builder.loc, builder.place
    for node in region.nodes:
        builder.loc = node.loc or loc
        builder.place = (keeps_places and node.place) or place
        first = len(builder.nodes)
        try:
            values[node.id] = walker.node(node, values)
        except GraphError as error:
            raise error.at(node.loc, node.describe()) from None
        if walker.note is not None:
            for made in builder.nodes[first:]:
                walker.note(made, node)
    builder.loc, builder.place = loc, place
    return [values[result.id] for result in region.results]


class Batcher:
    """The batching of regions into a trace, for lanes of one `vmap`."""

    def __init__(
        self, trace: Trace, size: Dimension, name: str = "", note: Note | None = None
    ) -> None:
        self.trace = trace
        self.size = size
        self.name = name
        self.note = note

    # -- a region

    def run(self, region: Graph, operands: Sequence[Lane]) -> list[Lane]:
        """Emit a region for all lanes; what its results became."""
        return walked(self, region, operands)

    def node(self, node: Node, values: dict[int, Any]) -> Any:
        """A node for all lanes: a Lane, or several for a node with several results."""
        inputs = [values[source.id] for source in node.inputs]
        if node.op.traits.item:
            return inputs[0][node.attrs["index"]]
        if node.op.traits.makes_tuple:
            return inputs
        if not any(lane.mapped for lane in inputs) and not self.is_of_lanes(node):
            after = tuple(lane.value.node for n in node.after for lane in flat(values[n.id]))
            made: Sequence[Lane] = self.copied(node, inputs, after)
        else:
            rule = RULES.get("host" if isinstance(node.op.lower, Host) else node.op.name)
            made = rule(self, node, inputs) if rule else self.by_rule(node, inputs)
        return list(made) if isinstance(node.type, TupleType) else made[0]

    def is_of_lanes(self, node: Node) -> bool:
        """Does a node ask which lane it is in, or combine the lanes?"""
        return bool(self.name) and names_axis(node, self.name)

    def copied(
        self, node: Node, inputs: Sequence[Lane], after: tuple[Node, ...] = ()
    ) -> list[Lane]:
        nodes = tuple(lane.value.node for lane in inputs)
        made = self.trace.emit(node.op, nodes, node.attrs, after=after, regions=node.regions)
        return [Lane(value, False) for value in listed(made)]

    def by_rule(self, node: Node, inputs: Sequence[Lane]) -> list[Lane]:
        """What the rule in the record of the op says."""
        attrs: dict[str, Any] = dict(node.attrs.values_dict)
        values = [lane.value for lane in inputs]
        lanes = Lanes(self.size, self.name, [lane.mapped for lane in inputs])
        made: Any = NotImplemented
        if not node.regions and node.op.batch is not None:
            made = node.op.batch(node.op, lanes, *values, **attrs)
        if made is NotImplemented:
            is_composite = isinstance(node.op.lower, Composite)
            return self.written_out(node, inputs) if is_composite else self.looped(node, inputs)
        results = made if isinstance(made, tuple) and not isinstance(made, Same) else (made,)
        return [Lane(r.value, False) if isinstance(r, Same) else Lane(r, True) for r in results]

    # -- where there is no rule

    def written_out(self, node: Node, inputs: Sequence[Lane]) -> list[Lane]:
        """A composite op as the ops that it is made of, batched one by one."""
        assert isinstance(node.op.lower, Composite)
        expand, attrs = node.op.lower.expand, dict(node.attrs.values_dict)
        if node.regions:
            attrs["regions"] = node.regions
        kinds = [source.type for source in node.inputs]
        write = lambda trace, values: listed(expand(*values, **attrs))  # noqa: E731
        return self.run(region_of(node.op.name, kinds, write), inputs)

    def looped(
        self, node: Node, inputs: Sequence[Lane], carried: Sequence[Lane] = ()
    ) -> list[Lane]:
        """A loop over the lanes; `carried` are operands behind the others, and as many results
        behind the others, that go from one lane to the next."""
        walked = [k for k, lane in enumerate(inputs) if lane.mapped]
        fixed = [k for k, lane in enumerate(inputs) if not lane.mapped]
        order, count = walked + fixed, len(carried)

        def write(trace: Trace, values: list[Value]) -> list[Value]:
            trace.builder.loc = node.loc
            own = dict(zip(order, values[count:]))
            nodes = [*(own[k].node for k in range(len(inputs))), *(v.node for v in values[:count])]
            made = listed(trace.emit(node.op, tuple(nodes), node.attrs, regions=node.regions))
            split = len(made) - count
            return [*made[split:], *made[:split]]

        values = [*(lane.value for lane in carried), *(inputs[k].value for k in order)]
        kinds = types_of(values)
        kinds[count : count + len(walked)] = [node.inputs[k].type for k in walked]
        made = apply(
            self.trace,
            "scan",
            values,
            [region_of(f"{node.op.name}_lane", kinds, write)],
            carries=count,
            scanned=len(walked),
            length=self.size,
            reverse=False,
        )
        return [*(Lane(v, True) for v in made[count:]), *(Lane(v, False) for v in made[:count])]

    # -- for the rules of regions

    def spread(self, lane: Lane) -> Lane:
        """The value with an axis for the lanes."""
        return lane if lane.mapped else Lane(repeated(lane.value, self.size), True)

    def region(
        self, region: Graph, mapped: Sequence[bool], force: Sequence[bool] = ()
    ) -> tuple[Graph, list[bool]]:
        """The region for all lanes, and which of its results are mapped; those that are to be are
        repeated if they are not."""
        found: list[bool] = []

        def write(trace: Trace, values: list[Value]) -> list[Value]:
            batcher = Batcher(trace, self.size, self.name)
            made = batcher.run(region, list(map(Lane, values, mapped)))
            for k, forced in enumerate(force):
                made[k] = batcher.spread(made[k]) if forced else made[k]
            found[:] = [lane.mapped for lane in made]
            return [lane.value for lane in made]

        kinds = [widened(p.type, self.size) if m else p.type for p, m in zip(region.params, mapped)]
        return region_of(region.name, kinds, write), found


def widened(kind: AnyType, size: Dimension) -> AnyType:
    """The type of a value of all lanes."""
    if not isinstance(kind, Type):
        raise GraphError(f"vmap: a {kind} cannot differ from slice to slice")
    return tensor(kind.dtype, (size, *kind.shape))


def flat(value: Lane | Sequence[Lane]) -> Sequence[Lane]:
    return [value] if isinstance(value, Lane) else value


def names_axis(node: Node, name: str) -> bool:
    """Does a node, or one in its regions, speak of the axis of lanes of this name?"""
    if node.attrs.get("axis_name") == name:
        return not node.regions  # a vmap within has an axis of this name itself
    return any(names_axis(inner, name) for region in node.regions for inner in region.nodes)


def unmapped(lane: Lane, what: str) -> Value:
    """The value that all lanes have in common. Raises GraphError where each has its own."""
    if lane.mapped:
        raise GraphError(
            f"vmap: {what}, but this differs from slice to slice",
            hint="return it from the function, or combine the slices: gc.psum, gc.pmean, gc.pmax",
        )
    return lane.value


def chosen(mask: Value, first: Lane, second: Lane, size: Dimension) -> Lane:
    """Lane by lane one of two values."""
    whole = [x.value if x.mapped else repeated(x.value, size) for x in (first, second)]
    wide = emit("reshape", mask, dims=(size, *(1,) * (whole[0].ndim - 1)))
    return Lane(emit("where", wide, *whole), True)
