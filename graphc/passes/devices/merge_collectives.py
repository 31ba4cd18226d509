"""merge_collectives: sums over devices share messages, in buckets that go off while gradients come.

    all_reduce(a0, a1)   all_reduce(b0, b1)       ->       all_reduce(a0 b0, a1 b1)

A message costs its latency whatever its size, so small values go together: as many as come one
after the other until a message is long enough to be worth its latency.  What does not wait for
another sum is joined; larger values go alone, as joining costs a copy.

Devices take first what stands first.  So nodes are put in the order in which all devices together
would start them, and collectives start when their operands are there: a bucket travels while what
comes later is computed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import Alias, Compute, Scalar
from graphc.ir.place import Constraint, Device, parse_device, parse_spec
from graphc.ops.control.collectives import ALL_REDUCE
from graphc.ops.record.value import Trace, Value, emit, functions, tracing
from graphc.passes.devices.route_collectives import is_known
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.measured import cost_model
from graphc.passes.reasons import explain, summarise
from graphc.passes.tuning import tuned

Bucket = list[Node]


def merge_collectives(graph: Graph, config: Config) -> Graph:
    """The graph with sums over the same devices merged, as far as they wait for no other sum."""
    if not any(node.op.traits.collective for node in graph.nodes):
        return graph
    devices = [parse_device(name) for name in config.devices]
    cost = cost_model(devices, config)
    keys = _starts(graph, devices, cost)
    found = _buckets(graph, filter(_may_merge, graph.nodes), keys, _enough(devices, cost))
    buckets = [bucket for bucket in found if len(bucket) > 1]
    if buckets:
        summarise(f"{sum(map(len, buckets))} sums over devices in {len(buckets)} bucket(s)")
    made = _Merging(graph, buckets, keys).graph()
    return made if buckets or made.nodes != graph.nodes else graph


def _starts(graph: Graph, devices: Sequence[Device], cost: CostModel) -> dict[Node, float]:
    """When each node would start if every device did its nodes in their order, one after the other;
    what is light and serves collectives alone starts when its operands are there."""
    serving = _serving(graph)
    clocks: dict[Device, float] = {}
    starts = dict.fromkeys(graph.params, 0.0)
    ends = dict.fromkeys(graph.params, 0.0)
    for node in graph.nodes:
        spec = node.place.spec if isinstance(node.place, Constraint) else None
        home = next((d for d in devices if spec is not None and spec.matches(d)), devices[0])
        start = max([ends[n] for n in (*node.inputs, *node.after)], default=0.0)
        if node not in serving:
            start = max(start, clocks.get(home, 0.0))
            clocks[home] = start + cost.compute(node, home)
        starts[node], ends[node] = start, start + cost.compute(node, home)
    return starts


def _serving(graph: Graph) -> set[Node]:
    """Collectives, and what is computed for them alone at little cost."""
    found: set[Node] = set()
    others = {*graph.results}
    for node in reversed(graph.nodes):
        light = isinstance(node.op.lower, Scalar | Compute | Alias) or node.op.traits.stored
        if node.op.traits.collective or (light and node not in others):
            found.add(node)
        else:
            others |= {*node.inputs, *node.after}
    return found


def _may_merge(node: Node) -> bool:
    return node.op is ALL_REDUCE and is_known(node.inputs[0].type) and not node.after


def _enough(devices: Sequence[Device], cost: CostModel) -> float:
    """Bytes of a message beside which its latency counts little."""
    links = [cost.link(devices[0], device) for device in devices[1:]]
    most = max([link.latency * link.bandwidth for link in links], default=0.0)
    return tuned.bucket_latencies * most


def _buckets(
    graph: Graph, found: Iterable[Node], keys: Mapping[Node, float], enough: float
) -> list[Bucket]:
    """Sums in the order in which their operands come, of one kind and with no sum between them."""
    depth = _depths(graph)
    kinds: dict[object, Bucket] = {}
    for node in found:
        key = node.attrs, node.inputs[0].type.dtype, depth[node]  # type: ignore[union-attr]
        kinds.setdefault(key, []).append(node)
    made: list[Bucket] = []
    for alike in kinds.values():
        alike.sort(key=keys.__getitem__)
        made += _filled(alike, enough * len(alike[0].inputs))
    return made


def _filled(nodes: Sequence[Node], enough: float) -> Iterable[Bucket]:
    """The nodes in runs that are long enough; one that is so by itself stays alone."""
    bucket: Bucket = []
    for node in nodes:
        nbytes = node.inputs[0].nbytes
        if nbytes >= enough:
            yield [node]
            continue
        bucket.append(node)
        if sum(n.inputs[0].nbytes for n in bucket) >= enough:
            yield bucket
            bucket = []
    yield bucket


def _depths(graph: Graph) -> dict[Node, int]:
    """The most collectives on a way to each node: of two as deep none waits for the other."""
    depth = dict.fromkeys(graph.params, 0)
    for node in graph.nodes:
        sources = (*node.inputs, *node.after)
        depth[node] = max([depth[n] + n.op.traits.collective for n in sources], default=0)
    return depth


class _Merging:
    """Writes a graph anew, in the order of the `keys`: a bucket has the last one of its sums, and
    what reads one of them stands behind it."""

    def __init__(self, graph: Graph, buckets: Sequence[Bucket], keys: Mapping[Node, float]) -> None:
        self.old = graph
        self.keys = keys
        self.builder = Builder(graph.next_id)
        self.trace = Trace(self.builder)
        self.made: dict[Node, Node] = {p: p for p in graph.params}
        self.sums: dict[Node, list[Node]] = {}
        self.bucket_of = {node: bucket for bucket in buckets for node in bucket}

    def graph(self) -> Graph:
        for unit in self.in_order():
            if len(unit) > 1:
                self.merge(unit)
            else:
                self.copy(unit[0])
        ids = {old.id: new.id for old, new in self.made.items()}
        return self.old.replace(
            nodes=self.builder.nodes,
            results=tuple(self.made[n] for n in self.old.results),
            names={name: ids[id] for name, id in self.old.names.items() if id in ids},
            next_id=self.builder.next_id,
        )

    def in_order(self) -> Iterator[Bucket]:
        """Buckets and single nodes, each after what it needs."""
        units = {id(u): u for n in self.old.nodes for u in [self.bucket_of.get(n, [n])]}
        order = sorted(units.values(), key=lambda unit: max(self.keys[n] for n in unit))
        place = {node: k for k, unit in enumerate(order) for node in unit}
        waits = [0] * len(order)
        readers: list[list[int]] = [[] for _ in order]
        for node in self.old.nodes:
            for source in dict.fromkeys((*node.inputs, *node.after)):
                if source in place:
                    readers[place[source]].append(place[node])
                    waits[place[node]] += 1
        ready = [k for k, count in enumerate(waits) if not count]
        while ready:
            k = heapq.heappop(ready)
            yield order[k]
            for reader in readers[k]:
                waits[reader] -= 1
                if not waits[reader]:
                    heapq.heappush(ready, reader)

    def copy(self, node: Node) -> None:
        """A node as it was, with what its operands have become."""
        if node.op.traits.item and node.inputs[0] in self.sums:
            self.made[node] = self.sums[node.inputs[0]][node.attrs["index"]]
            return
        inputs, after = ([self.made[n] for n in nodes] for nodes in (node.inputs, node.after))
        if inputs != [*node.inputs] or after != [*node.after]:
            node, old = node.replace(inputs=tuple(inputs), after=tuple(after)), node
            self.made[old] = node
        self.made[node] = node
        self.builder.nodes.append(node)

    def merge(self, bucket: Bucket) -> None:
        """One sum for a bucket: its operands in a row on each device, and its results cut out."""
        devices = bucket[0].attrs["devices"]
        nbytes = sum(node.inputs[0].nbytes for node in bucket)
        explain(bucket[0].id, f"{len(bucket)} sums over devices are one of {nbytes:,} bytes")
        rows = []
        with tracing(self.trace):
            for k, device in enumerate(devices):
                self.builder.place = Constraint(parse_spec(device))
                rows.append(functions.concatenate([self.flat(node, k) for node in bucket]))
            self.builder.place, self.builder.loc = bucket[0].place, bucket[0].loc
            totals = emit(ALL_REDUCE, *rows, **bucket[0].attrs)
            self.sums |= {node: [] for node in bucket}
            for device, total in zip(devices, totals, strict=True):
                self.builder.place = Constraint(parse_spec(device))
                self.cut(bucket, total)
        self.builder.place = self.builder.loc = None

    def flat(self, node: Node, k: int) -> Value:
        """The operand of one device as a vector."""
        value, self.builder.loc = self.trace.wrap(self.made[node.inputs[k]]), node.loc
        return value if value.ndim == 1 else emit("reshape", value, dims=(value.type.size,))

    def cut(self, bucket: Bucket, total: Value) -> None:
        """What one device has of every sum."""
        start = 0
        for node in bucket:
            kind, self.builder.loc = node.inputs[0].type, node.loc
            part = total[start : start + kind.size]  # type: ignore[union-attr]
            start += kind.size  # type: ignore[union-attr]
            if kind.rank != 1:  # type: ignore[union-attr]
                part = emit("reshape", part, dims=kind.dims)  # type: ignore[union-attr]
            self.sums[node].append(part.node)
