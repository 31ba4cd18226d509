"""The cost model: how long a node runs on a device, and a value takes from one to another.

    static     max(flops / rate, bytes / rate) + launch, with flops and bytes from the op's record
    measured   a table of seconds per kernel (ops and types) and type of device, where it has an
               entry

Regions add up, loops as often as they run.  What has to be guessed (the rounds of a `while`, the
branch of a `cond`, symbolic extents, ops that do not state their cost) is not `exact`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from graphc.base.record import record
from graphc.ir.graph import Graph, Node, canonical
from graphc.ir.op import Alias, Compute, Library, Loops, Structural
from graphc.ir.place import Device
from graphc.ir.sizes import hint_of
from graphc.ir.types import AnyType, StackType, leaves
from graphc.passes.tuning import tuned
from graphc.runtime.devices.registry import Kind, Link, Rates, kind_of

Table = Mapping[str, Mapping[str, float]]  # key of an op -> type of device -> seconds


@record(frozen=True)
class Work:
    """What a kernel does: arithmetic, bytes it reads and writes, and how many calls it takes."""

    flops: float = 0.0
    bytes: float = 0.0
    calls: float = 1.0
    exact: bool = True


FREE = (Structural, Alias)  # ops that take no time, but for their regions
NOTHING = Work(calls=0.0)


class CostModel:
    """Seconds of nodes and transfers on some devices.

    `measured` maps `key_of(node)` to seconds per type of device; `kinds` overrides the rates that
    device types are registered with (calibration), `links` has those between tasks of a job.
    Raises GraphError for a type of device that does not exist.
    """

    def __init__(
        self,
        devices: Iterable[Device],
        measured: Table | None = None,
        kinds: Mapping[str, Kind] | None = None,
        links: Mapping[str, Link] | None = None,
    ) -> None:
        self.devices = tuple(devices)
        self.measured = measured or {}
        types = dict.fromkeys(d.type for d in self.devices)
        known = kinds or {}
        self.kinds = {name: known.get(name) or kind_of(name) for name in types}
        self._seconds: dict[tuple[object, ...], float] = {}
        self._works: dict[tuple[object, ...], Work] = {}
        self.links = links or {}
        self._links: dict[tuple[str, str, str], Link] = {}
        self._keys: dict[tuple[object, ...], str] = {}

    def rates(self, device: Device) -> Rates:
        return self._kind(device.type).rates

    def link(self, source: Device, target: Device) -> Link:
        """The way from one device to another."""
        between = source.job if source.job == target.job and source.task != target.task else ""
        key = source.type, target.type, between
        found = self._links.get(key)
        if found is None:
            ends = self._kind(source.type).link, self._kind(target.type).link
            found = ends[0].joined(ends[1])
            if between in self.links:
                found = found.joined(self.links[between])
            self._links[key] = found
        return found

    def compute(self, node: Node, device: Device) -> float:
        """Seconds that a node runs on a device."""
        if node.regions:
            return self._region_seconds(node, device)
        if isinstance(node.op.lower, FREE):
            return 0.0
        key = (*signature(node), device.type)
        found = self._seconds.get(key)
        if found is None:
            found = self._seconds[key] = self._node_seconds(node, device)
        return found

    def transfer(self, kind: AnyType, source: Device, target: Device) -> float:
        """Seconds until a value of a type is on another device; none on the same one."""
        if source == target:
            return 0.0
        return self.link(source, target).seconds(nbytes_of(kind))

    def together(self, nodes: Sequence[Node], device: Device) -> float | None:
        """The measured seconds of a kernel that does all these nodes, if there are any."""
        if not self.measured or self._kind(device.type).runs_on == "null":
            return None
        return self.measured.get(key_of_all(nodes, self._key), {}).get(device.type)

    def exact(self, node: Node) -> bool:
        """Whether the cost of a node is known rather than guessed."""
        if self.measured and self._key(node) in self.measured:
            return True
        if not node.regions:
            return isinstance(node.op.lower, FREE) or self.work(node).exact
        if node.op.traits.branch or node.op.traits.tested:
            return False
        return all(self.exact(inner) for region in node.regions for inner in region.nodes)

    def work(self, node: Node) -> Work:
        """What a node without regions does."""
        key = signature(node)
        found = self._works.get(key)
        if found is None:
            found = self._works[key] = work_of(node)
        return found

    # -- how

    def _kind(self, name: str) -> Kind:
        found = self.kinds.get(name)
        if found is None:
            found = self.kinds[name] = kind_of(name)
        return found

    def _node_seconds(self, node: Node, device: Device) -> float:
        if self._kind(device.type).runs_on == "null":
            return 0.0
        if self.measured:
            measured = self.measured.get(self._key(node), {}).get(device.type)
            if measured is not None:
                return measured
        return self.seconds(self.work(node), device)

    def _key(self, node: Node) -> str:
        if node.regions:
            return key_of(node)
        known = signature(node)
        found = self._keys.get(known)
        if found is None:
            found = self._keys[known] = key_of(node)
        return found

    def seconds(self, work: Work, device: Device) -> float:
        """Seconds of some work on a device."""
        if not work.calls:
            return 0.0
        rates = self.rates(device)
        return max(work.flops / rates.flops, work.bytes / rates.bytes) + work.calls * rates.launch

    def _region_seconds(self, node: Node, device: Device) -> float:
        if self.measured:
            measured = self.measured.get(key_of(node), {}).get(device.type)
            if measured is not None:
                return measured
        if node.op.traits.kernel:
            return self.seconds(self._fused_work(node), device)
        times = [sum(self.compute(n, device) for n in r.nodes) for r in node.regions]
        if node.op.traits.branch:
            return max(times)
        return rounds_of(node) * sum(times)

    def _fused_work(self, node: Node) -> Work:
        """One kernel: its inner values never reach memory."""
        inner = [self.work(n) for n in node.regions[0].nodes]
        nbytes = sum(nbytes_of(n.type) for n in (node, *node.inputs))
        return Work(sum(w.flops for w in inner), nbytes)


def rounds_of(node: Node) -> int:
    """How often the regions of a node run (all of them in every round)."""
    if node.op.traits.tested:
        return tuned.guessed_rounds
    if node.op.traits.counted:
        length = node.attrs["length"]
        return length if isinstance(length, int) else tuned.guessed_rounds
    return math.prod(node.attrs["counts"]) if node.op.traits.blocks else 1


def signature(node: Node) -> tuple[object, ...]:
    """What the cost of a node without regions depends on."""
    return node.op, node.attrs, node.type, tuple([n.type for n in node.inputs])


def work_of(node: Node) -> Work:
    """Flops and bytes of a node without regions, as its op states them."""
    lower = node.op.lower
    if isinstance(lower, FREE):
        return NOTHING
    kinds = [leaf for n in (node, *node.inputs) for leaf in leaves(n.type)]
    if any(isinstance(k, StackType) or not k.is_static for k in kinds):
        return Work(exact=False)
    if node.op.cost is not None:
        return Work(*node.op.estimate(node))
    most = math.inf
    if isinstance(lower, Compute):  # an element of the result reads one of each operand, or none
        most = float(nbytes_of(node.type))
    touched = float(sum(min(nbytes_of(k), most) for k in kinds))
    return Work(0.0, touched, exact=isinstance(lower, Compute) or not _heavy(node))


def _heavy(node: Node) -> bool:
    """May the op do more than go over its operands once?"""
    return isinstance(node.op.lower, Library | Loops)


def nbytes_of(kind: AnyType) -> int:
    """Bytes of a value for the sizes at hand; what is symbolic or grows counts as nothing."""
    total = 0
    for leaf in leaves(kind):
        if not isinstance(leaf, StackType) and leaf.is_static:
            total += hint_of(leaf.nbytes)
    return total


def key_of(node: Node) -> str:
    """The entry of a node in a table of measured times: its op, attributes and types, and for an op
    with regions what they compute."""
    from graphc.ir.text import attrs_text

    types = ",".join(str(n.type) for n in node.inputs)
    attrs = attrs_text(node.op, node) if node.op.attrs and not node.regions else ""
    text = f"{node.op.name}({types}){attrs} -> {node.type}"
    return text + "".join(f" {digest_of(region)}" for region in node.regions)


def key_of_all(nodes: Iterable[Node], key: Callable[[Node], str] = key_of) -> str:
    """The entry of a kernel that does these nodes: their ops and types, in any order.

    What only moves elements counts where there is nothing else: kernels read through it.
    """
    working = [n for n in nodes if not isinstance(n.op.lower, FREE)]
    counting = [n for n in working if not isinstance(n.op.lower, Compute)] or working
    return " + ".join(sorted(map(key, counting)))


def digest_of(region: Graph) -> str:
    """A short name for what a region computes."""
    from graphc.ir.text import show

    bare = canonical(region).replace(device=None)
    return hashlib.sha256(show(bare, locations=False).encode()).hexdigest()[:16]
