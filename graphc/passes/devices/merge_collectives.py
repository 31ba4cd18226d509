"""merge_collectives: sums over devices share messages, in buckets that fill while gradients come.

    all_reduce(a0, a1)   all_reduce(b0, b1)       ->       all_reduce(a0 b0, a1 b1)

A message costs its latency whatever its size, so small values go together: as many as come one
after the other until a message is long enough to be worth its latency.  A bucket goes off when the
last of its values is there, while what comes later is still computed.  What does not wait for
another sum is joined; larger values go alone, as joining costs a copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.place import Constraint, parse_device, parse_spec
from graphc.ops.control.collectives import ALL_REDUCE
from graphc.ops.record.value import Trace, Value, emit, functions, tracing
from graphc.passes.devices.route_collectives import is_known
from graphc.passes.placement.measured import cost_model
from graphc.passes.reasons import record, summarise
from graphc.passes.tuning import tuned

Bucket = list[Node]


def merge_collectives(graph: Graph, config: Config) -> Graph:
    """The graph with sums over the same devices merged, as far as they wait for no other sum."""
    found = [node for node in graph.nodes if _may_merge(node)]
    if len(found) < 2:
        return graph
    buckets = [b for b in _buckets(graph, found, _enough(config)) if len(b) > 1]
    if not buckets:
        return graph
    summarise(f"{sum(map(len, buckets))} sums over devices in {len(buckets)} bucket(s)")
    return _Merging(graph, buckets).graph()


def _may_merge(node: Node) -> bool:
    return node.op is ALL_REDUCE and is_known(node.inputs[0].type) and not node.after


def _enough(config: Config) -> float:
    """Bytes of a message beside which its latency counts little."""
    devices = [parse_device(name) for name in config.devices]
    cost = cost_model(devices, config)
    links = [cost.link(devices[0], device) for device in devices[1:]]
    most = max([link.latency * link.bandwidth for link in links], default=0.0)
    return tuned.bucket_latencies * most


def _buckets(graph: Graph, found: Iterable[Node], enough: float) -> list[Bucket]:
    """Sums in the order in which their operands come, of one kind and with no sum between them."""
    position = {node: k for k, node in enumerate(graph.nodes)}
    depth = _depths(graph)
    kinds: dict[object, Bucket] = {}
    for node in found:
        key = node.attrs, node.inputs[0].type.dtype, depth[node]  # type: ignore[union-attr]
        kinds.setdefault(key, []).append(node)
    made: list[Bucket] = []
    for alike in kinds.values():
        alike.sort(key=lambda node: max(position.get(x, -1) for x in node.inputs))
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
    """Writes a graph anew: a bucket stands where its last operand is there, and what reads one of
    its sums behind it; all else keeps its order."""

    def __init__(self, graph: Graph, buckets: Sequence[Bucket]) -> None:
        self.old = graph
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
        """Buckets and single nodes, each after what it needs and else as early as it was."""
        units = [self.bucket_of.get(node, [node]) for node in self.old.nodes]
        first = {id(unit): k for k, unit in reversed([*enumerate(units)])}
        place = {node: first[id(unit)] for node, unit in zip(self.old.nodes, units)}
        waits: dict[int, int] = dict.fromkeys(first.values(), 0)
        readers: dict[int, list[int]] = {k: [] for k in waits}
        for node in self.old.nodes:
            for source in dict.fromkeys((*node.inputs, *node.after)):
                if source in place:
                    readers[place[source]].append(place[node])
                    waits[place[node]] += 1
        ready = sorted(k for k, count in waits.items() if not count)
        while ready:
            k = heapq.heappop(ready)
            yield units[k]
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
        record(bucket[0].id, f"{len(bucket)} sums over devices are one of {nbytes:,} bytes")
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
