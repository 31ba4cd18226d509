"""Windows: operands of which a region reads one contiguous part.

    (p: f32[35,20,256]): exp(slice(p) [3:4])     ->     (p: f32[1,20,256]): exp(p), p + 61440

Regions that read different parts of an array are then one kernel, given another address: as many
as an unrolled loop has turns.
"""

from __future__ import annotations

from collections import Counter

from graphc.codegen.lowering.evaluate import tensor_type
from graphc.ir.graph import Graph, Node
from graphc.ops.record.dims import row_major_strides


def windowed(region: Graph) -> tuple[Graph, tuple[int, ...]]:
    """The region with parts for parameters, and at which byte of each operand its part begins."""
    if not any(node.op.traits.slices for node in region.nodes):
        return region, ()
    readers = Counter(n for node in region.nodes for n in node.inputs)
    readers.update(region.results)
    starts = dict.fromkeys(region.params, 0)
    parts: dict[Node, Node] = {}
    for node in region.nodes:
        if not node.op.traits.slices or (start := start_of(node)) is None:
            continue
        views = [node]
        while readers[source := views[-1].inputs[0]] == 1 and source.op.traits.reshapes:
            views.append(source)
        if readers[source] == 1 and source in starts:
            starts[source] = start
            parts |= dict.fromkeys((*views, source), source.replace(type=node.type))
    return (with_parts(region, parts) if parts else region), tuple(starts.values())


def start_of(node: Node) -> int | None:
    """The byte at which a slice of contiguous memory begins; None for another slice."""
    kind = tensor_type(node.inputs[0])
    if not kind.is_static or not tensor_type(node).size:
        return None
    dims, starts = tensor_type(node).dims, node.attrs["starts"]
    wide = [axis for axis, extent in enumerate(dims) if extent != 1]
    if any(node.attrs["steps"][axis] != 1 for axis in wide):
        return None
    if wide and dims[wide[0] + 1 :] != kind.dims[wide[0] + 1 :]:
        return None  # parts of rows
    strides = row_major_strides(kind.dims)
    start: int = sum(a * s for a, s in zip(starts, strides, strict=True))
    return start * kind.dtype.itemsize


def with_parts(region: Graph, parts: dict[Node, Node]) -> Graph:
    """The region after parameters, and slices of them, have been replaced."""
    mapped, nodes = dict(parts), []
    for node in region.nodes:
        if node not in mapped:
            mapped[node] = node.replace(inputs=tuple(mapped.get(n, n) for n in node.inputs))
            nodes.append(mapped[node])
    params = tuple(mapped.get(p, p) for p in region.params)
    results = tuple(mapped[n] for n in region.results)
    return region.replace(params=params, nodes=nodes, results=results)
