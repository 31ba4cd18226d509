"""Windows: operands of which a region reads one contiguous part.

    (p: f32[35,20,256]): exp(slice(p) [3:4])     ->     (p: f32[1,20,256]): exp(p), p + 61440
    (p: f32[300]): slice(p) [7:8] * slice(p) [9:10]  ->
                                    (p: f32[3]): slice(p) [0:1] * slice(p) [2:3], p + 28

Regions that read different parts of an array are then one kernel, given another address: as many
as an unrolled loop has turns.
"""

from __future__ import annotations

from collections import Counter

from graphc.codegen.lowering.evaluate import tensor_type
from graphc.ir.graph import Graph, Node
from graphc.ir.sizes import Size
from graphc.ir.types import tensor
from graphc.ops.record.dims import row_major_strides, run_in_memory


def windowed(region: Graph) -> tuple[Graph, tuple[int, ...]]:
    """The region with parts for parameters, and at which byte of each operand its part begins."""
    if not any(node.op.traits.slices for node in region.nodes):
        return region, ()
    readers = Counter(n for node in region.nodes for n in node.inputs)
    readers.update(region.results)
    starts = dict.fromkeys(region.params, 0)
    parts: dict[Node, Node] = {}
    slices: dict[Node, list[Node]] = {param: [] for param in region.params}
    for node in region.nodes:
        if not node.op.traits.slices:
            continue
        views = [node]
        while readers[source := views[-1].inputs[0]] == 1 and source.op.traits.reshapes:
            views.append(source)
        if readers[source] == 1 and source in starts and (start := start_of(node)) is not None:
            starts[source] = start
            parts |= dict.fromkeys((*views, source), source.replace(type=node.type))
        elif node.inputs[0] in slices:
            slices[node.inputs[0]].append(node)
    for param, several in slices.items():
        if 1 < len(several) == readers[param] and (axis := shared_axis(several)) is not None:
            starts[param], found = rows_of(param, several, axis)
            parts |= found
    return (with_parts(region, parts) if parts else region), tuple(starts.values())


def shared_axis(slices: list[Node]) -> int | None:
    """The axis that all of these slices of a parameter cut into runs of memory; None if they do
    not, or if they reach from one end of it to the other."""
    kind = tensor_type(slices[0].inputs[0])
    axis = next((k for k, extent in enumerate(kind.dims) if extent != 1), None)
    if axis is None or not kind.is_static:
        return None
    for node in slices:
        rest = tensor_type(node).dims[axis + 1 :]
        if rest != kind.dims[axis + 1 :] or start_of(node) is None:
            return None
    low, high = ends(slices, axis)
    opens = any(isinstance(end, Size) for end in (low, high, *kind.dims))
    return None if opens or high - low == kind.dims[axis] else axis


def ends(slices: list[Node], axis: int) -> tuple[int, int]:
    """The first and the last but one position along an axis that slices read."""
    begins = [node.attrs["starts"][axis] for node in slices]
    counts = [tensor_type(node).dims[axis] for node in slices]
    return min(begins), max(begin + n for begin, n in zip(begins, counts, strict=True))


def rows_of(param: Node, slices: list[Node], axis: int) -> tuple[int, dict[Node, Node]]:
    """The byte at which what the slices read of a parameter begins, and what stands for them and
    for it."""
    kind = tensor_type(param)
    low, high = ends(slices, axis)
    dims = (*kind.dims[:axis], high - low, *kind.dims[axis + 1 :])
    made = {param: param.replace(type=tensor(kind.dtype, dims))}
    for node in slices:
        attrs = dict(node.attrs)
        for name in ("starts", "stops"):
            bounds = list(attrs[name])
            bounds[axis] -= low
            attrs[name] = bounds
        made[node] = node.replace(inputs=(made[param],), attrs=node.op.coerce(attrs))
    start = low * row_major_strides(kind.dims)[axis] * kind.dtype.itemsize
    return start, made


def start_of(node: Node) -> int | None:
    """The byte at which a slice of contiguous memory begins; None for another slice."""
    kind = tensor_type(node.inputs[0])
    if not kind.is_static or not tensor_type(node).size:
        return None
    attrs = node.attrs
    start = run_in_memory(kind.dims, tensor_type(node).dims, attrs["starts"], attrs["steps"])
    return None if start is None else start * kind.dtype.itemsize


def with_parts(region: Graph, parts: dict[Node, Node]) -> Graph:
    """The region after parameters, and slices of them, have been replaced."""
    mapped, nodes = dict(parts), []
    for node in region.nodes:
        if node not in mapped:
            mapped[node] = node.replace(inputs=tuple(mapped.get(n, n) for n in node.inputs))
        if not mapped[node].op.traits.parameter:
            nodes.append(mapped[node])
    params = tuple(mapped.get(p, p) for p in region.params)
    results = tuple(mapped[n] for n in region.results)
    return region.replace(params=params, nodes=nodes, results=results)
