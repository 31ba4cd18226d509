"""Branches and loops in which devices are combined: one for all of them, their values side by side.

    lane       scan(h)          body: h ──> tanh ──> axis_sum ──> h

    devices    scan(h0, h1)     body: h0 ──> tanh ──┐              ┌──> h0
                                                    ├─ all_reduce ─┤
                                      h1 ──> tanh ──┘              └──> h1

So all devices come to the same collectives, as often: each iteration sends its own messages.  What
decides (a test, a predicate) must be the same for all; devices that go ways of their own could
never be combined.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ops.autodiff.region_gradients import apply, region_of
from graphc.ops.batching.device_lanes import Copies, DeviceLanes, together_by
from graphc.ops.record.value import Trace, Value


def values_of(copies: Sequence[Copies]) -> list[Value]:
    """The values of all devices, one operand after the other."""
    return [value for each in copies for value in each.values]


def copies_of(values: Sequence[Value], mapped: Sequence[bool], devices: int) -> list[Copies]:
    """The other way round."""
    starts = range(0, len(values), devices)
    return [Copies(tuple(values[k : k + devices]), m) for k, m in zip(starts, mapped, strict=True)]


def flags(copies: Sequence[Copies]) -> list[bool]:
    return [each.mapped for each in copies]


def beside(lanes: DeviceLanes, region: Graph, mapped: Sequence[bool]) -> tuple[Graph, list[bool]]:
    """The region for all devices, and which of its results differ from one to the next, where
    `mapped` says so of its operands."""
    found: list[bool] = []

    def write(trace: Trace, values: list[Value]) -> list[Value]:
        inner = DeviceLanes(trace, lanes.devices, lanes.name)
        made = inner.run(region, copies_of(values, mapped, len(lanes.devices)))
        found[:] = flags(made)
        return values_of(made)

    kinds = [param.type for param in region.params for _ in lanes.devices]
    return region_of(region.name, kinds, write), found


def decision(lanes: DeviceLanes, region: Graph, mapped: Sequence[bool]) -> Graph:
    """The test of a loop, which is asked on the first device for all. Raises GraphError where each
    would answer for itself."""
    made, (differs,) = beside(lanes, region, mapped)
    require_same(differs, "a loop that they leave at different times")
    return made.replace(results=made.results[:1], result_names=())


def require_same(differs: bool, where: str) -> None:
    if differs:
        raise GraphError(
            f"devices are combined in {where}",
            hint="have all of them decide alike: by gc.psum, gc.pmax or gc.pmin of what decides",
        )


def settled(
    lanes: DeviceLanes, body: Graph, inputs: Sequence[Copies], carries: int
) -> tuple[Graph, list[bool], list[bool]]:
    """The body of a loop, which of its operands differ from device to device, and of its results:
    a carry does as soon as one step makes it so."""
    mapped = flags(inputs)
    while True:
        region, found = beside(lanes, body, mapped)
        more = [a or b for a, b in zip(mapped, found[:carries])]
        if more == mapped[:carries]:
            return region, mapped, found
        mapped[:carries] = more


@together_by("call")
def call_together(lanes: DeviceLanes, node: Node, inputs: Sequence[Copies]) -> list[Copies]:
    return lanes.run(node.regions[0], inputs)


@together_by("checkpoint")
def checkpoint_together(lanes: DeviceLanes, node: Node, inputs: Sequence[Copies]) -> list[Copies]:
    region, found = beside(lanes, node.regions[0], flags(inputs))
    made = apply(lanes.trace, "checkpoint", values_of(inputs), [region], **node.attrs)
    return copies_of(made, found, len(lanes.devices))


@together_by("cond")
def cond_together(lanes: DeviceLanes, node: Node, inputs: Sequence[Copies]) -> list[Copies]:
    predicate, *rest = inputs
    require_same(predicate.mapped, "a branch that they take differently")
    sides = [beside(lanes, region, flags(rest)) for region in node.regions]
    given = [predicate.values[0], *values_of(rest)]
    made = apply(lanes.trace, "cond", given, [region for region, _ in sides])
    mapped = [any(column) for column in zip(*(found for _, found in sides), strict=True)]
    return copies_of(made, mapped, len(lanes.devices))


@together_by("scan")
def scan_together(lanes: DeviceLanes, node: Node, inputs: Sequence[Copies]) -> list[Copies]:
    count, carries = len(lanes.devices), node.attrs["carries"]
    region, mapped, found = settled(lanes, node.regions[0], inputs, carries)
    shares = {"carries": count * carries, "scanned": count * node.attrs["scanned"]}
    attrs = {**node.attrs, **shares}
    made = apply(lanes.trace, "scan", values_of(inputs), [region], **attrs)
    return copies_of(made, [*mapped[:carries], *found[carries:]], count)


@together_by("while")
def while_together(lanes: DeviceLanes, node: Node, inputs: Sequence[Copies]) -> list[Copies]:
    count, carries = len(lanes.devices), node.attrs["carries"]
    test, body = node.regions
    region, mapped, _ = settled(lanes, body, inputs, carries)
    regions = [decision(lanes, test, mapped), region]
    made = apply(lanes.trace, "while", values_of(inputs), regions, carries=count * carries)
    return copies_of(made, mapped[:carries], count)
