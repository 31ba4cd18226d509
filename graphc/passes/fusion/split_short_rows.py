"""Products that finish rows of one element, or of none, as two kernels.

    %5 = fused(%0, %1) {kind="contract"} {     %8 = fused(%0, %1) {kind="contract"} {
      %2 = matmul(%0, %1) : f32[5,1]             %2 = matmul(%0, %1) }
      %3 = max(%2) {axes=[1]}            ->    %9 = fused(%8) {kind="loop"} {
      %4 = sub(%2, %3) }                         %3 = max(%2)   %4 = sub(%2, %3) }

A dump with open sizes says how a product is fused, and may be run where its rows are that short.
The core takes several rows of one element as one of its own then, so that none of its units has a
row alone, and of rows without elements it visits none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphc.codegen.lowering.check_kernels import reaching
from graphc.codegen.lowering.space import dims_of
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS, Contraction, Reduction


def split_short_rows(graph: Graph) -> Graph:
    """The graph with a kernel for each such product and one for what follows; the same object if
    it has none."""
    return rebuild(graph, _split, each=False)


def _split(node: Node, r: Rewriter) -> Node | None:
    if not node.op.traits.kernel or not _has_short_rows(node.regions[0]):
        return None
    region = node.regions[0]
    sums = next((n for n in region.nodes if isinstance(n.op.lower, Contraction)), None)
    if sums is None:
        return None
    given = dict(zip(region.params, node.inputs, strict=True))
    product = _kernel(r, node, node.attrs["kind"], given, region.nodes, [sums])
    stored = sums.replace(op=OPS["param"], inputs=(), attrs=OPS["param"].coerce({"name": "sums"}))
    rest = _reading(region, sums, stored)
    later = [rest[n] for n in region.results if n is not sums]
    made = _kernel(r, node, "loop", {stored: product, **given}, list(rest.values()), later)
    if len(later) == len(region.results):
        return made
    parts = [made] if len(later) == 1 else [_item(r, made, k) for k in range(len(later))]
    parts.insert(region.results.index(sums), product)
    return r.emit(OPS["tuple"], parts)


def _has_short_rows(region: Graph) -> bool:
    """Has a region reductions, each of one element or of none?"""
    folds = [n for n in region.nodes if isinstance(n.op.lower, Reduction)]
    counts = (math.prod(dims_of(n.inputs[0])[axis] for axis in n.attrs["axes"]) for n in folds)
    return bool(folds) and all(count == 1 or count == 0 for count in counts)


def _reading(region: Graph, sums: Node, stored: Node) -> dict[Node, Node]:
    """The nodes of a region, by what they were, where `stored` stands for the sums."""
    made = {sums: stored}
    for node in region.nodes:
        if node is not sums:
            made[node] = node.replace(inputs=tuple([made.get(n, n) for n in node.inputs]))
    return made


def _kernel(
    r: Rewriter,
    node: Node,
    kind: str,
    given: Mapping[Node, Node],
    nodes: Sequence[Node],
    results: Sequence[Node],
) -> Node:
    """A kernel of some nodes of another one; `given` are operands by parameter."""
    needed = reaching(results)
    params = tuple([p for p in given if p in needed])
    inside = [n for n in nodes if n in needed and n not in given]
    region = Graph("f", params, inside, tuple(results))
    inputs = [given[p] for p in params]
    return r.emit(node.op, inputs, {"kind": kind}, after=node.after, regions=(region,))


def _item(r: Rewriter, node: Node, index: int) -> Node:
    return r.emit(OPS["item"], (node,), {"index": index})
