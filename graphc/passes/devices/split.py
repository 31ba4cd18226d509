"""Region ops whose regions lie on several devices: every device gets an op with its part of them.

    while i < n { x = f(x) @cpu:0; y = g(x, y) @cpu:1 }

    cpu:0   while { test: i < n, send(p) {c0} }   { x = f(x), send(x) {c1} }
    cpu:1   while { test: p = recv() {c0} }       { y = g(recv() {c1}, y) }

The device that computes the predicate of a `while` sends it to the others in every round; that of a
`cond` is an operand like any other, and crosses before it.  A carry lives where the body computes
it and crosses, in every round, to the other devices that read it; what does not change (invariants,
scanned arrays, operands of a `cond`) crosses once, before the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.graph import Node, infer
from graphc.ir.place import Device
from graphc.ir.regions import operands_of
from graphc.ir.types import StackType
from graphc.passes.devices.region_devices import bodies
from graphc.passes.reasons import explain

if TYPE_CHECKING:
    from graphc.passes.devices.partition import Made, Parts


@record(frozen=True, eq=False)
class Spread:
    """What became of an op that spans devices: its part on each, and for each of its results the
    part that gives it and the number there (None where it is the part's only one)."""

    parts: dict[Device, Made]
    ports: list[tuple[Made, int | None]]


class Split:
    """One region op being taken apart."""

    def __init__(self, outer: Parts, node: Node, inside: Sequence[Device], position: int) -> None:
        if not (node.op.traits.branch or node.op.traits.loop):
            raise GraphError(
                f"{node.op.name} cannot run on several devices",
                hint="only branches and loops can; constrain its nodes to one device",
                details=node.describe(),
                location=node.loc,
            )
        self.outer = outer
        self.node = node
        self.position = position
        self.carries: int = node.attrs.get("carries", 0)
        self.homes = [self.home(k, inside) for k in range(len(bodies(node)[0].results))]
        self.fixed = dict(enumerate(self.homes[: self.carries])) | self.stacks()
        used = {*inside, *self.homes, *self.fixed.values()}
        self.devices = tuple(d for d in outer.wiring.devices if d in used)
        self.regions = [
            outer.inner(region, {region.params[k]: d for k, d in self.fixed.items()}, inside[0])
            for region in node.regions
        ]

    def home(self, port: int, inside: Sequence[Device]) -> Device:
        """Where a result is made; one that the regions only hand on stays where it comes from, if
        they use that device."""
        wiring, kind = self.outer.wiring, bodies(self.node)[0].results[port].type
        for body in bodies(self.node):
            found = wiring.site(body.results[port], [self.node])
            if isinstance(found, Node):
                made = self.outer.made.get(found)
                found = made.device if made is not None else None
            if found is not None and (found in inside or isinstance(kind, StackType)):
                return found
        return inside[0]

    def stacks(self) -> dict[int, Device]:
        """The devices of the operands that are stacks: they cannot be anywhere else."""
        return {
            k: self.outer.made[operand].device
            for k, operand in enumerate(operands_of(self.node))
            if isinstance(operand.type, StackType)
        }

    def run(self) -> Spread:
        node = self.node
        results: list[dict[Device, list[Node]]] = []
        for region, parts in zip(node.regions, self.regions, strict=True):
            end = len(region.nodes)
            made: dict[Device, list[Node]] = {d: [] for d in self.devices}
            if region in bodies(node):
                for result, home in zip(region.results, self.homes, strict=True):
                    made[home].append(parts.local(result, home, end))
            else:  # the test of a while: all must know what it says
                for device in self.devices:
                    made[device].append(parts.local(region.results[0], device, end))
            results.append(made)
        whole = {d: self.part(d, [made[d] for made in results]) for d in self.devices}
        listed = ", ".join(d.short for d in self.devices)
        explain(node.id, f"{node.op.name} runs in {len(whole)} parts, on {listed}")
        return Spread(whole, [self.port(whole[home], k) for k, home in enumerate(self.homes)])

    def part(self, device: Device, results: list[list[Node]]) -> Made:
        """The op of one device, with the operands that its part of the regions reads."""
        node, outer = self.node, self.outer
        numbers = [k for k in range(len(node.regions[0].params)) if self.takes(k, device)]
        regions = tuple(
            parts.cut(device, [region.params[k] for k in numbers], made)
            for region, parts, made in zip(node.regions, self.regions, results, strict=True)
        )
        operands = operands_of(node)
        read = [*node.inputs[: len(node.inputs) - len(operands)], *(operands[k] for k in numbers)]
        inputs = tuple([outer.local(n, device, self.position) for n in read])
        attrs = node.op.coerce(self.attributes(numbers))
        return outer.put(
            node,
            device,
            self.position,
            inputs=inputs,
            attrs=attrs,
            regions=regions,
            type=infer(node.op, tuple([n.type for n in inputs]), attrs, regions),
        )

    def takes(self, number: int, device: Device) -> bool:
        """Does the part of a device have this parameter?"""
        if number in self.fixed:
            return self.fixed[number] == device
        return any(
            (region.params[number], device) in parts.shared
            for region, parts in zip(self.node.regions, self.regions, strict=True)
        )

    def attributes(self, numbers: Sequence[int]) -> dict[str, object]:
        attrs = dict(self.node.attrs)
        if "carries" in attrs:
            attrs["carries"] = sum(k < self.carries for k in numbers)
        if "scanned" in attrs:
            end = self.carries + self.node.attrs["scanned"]
            attrs["scanned"] = sum(self.carries <= k < end for k in numbers)
        return attrs

    def port(self, whole: Made, port: int) -> tuple[Made, int | None]:
        mine = [k for k, home in enumerate(self.homes) if home == whole.device]
        return whole, (mine.index(port) if len(mine) > 1 else None)


def split(outer: Parts, node: Node, inside: Sequence[Device], position: int) -> Spread:
    """Put the parts of a region op on the devices that its regions use."""
    return Split(outer, node, inside, position).run()
