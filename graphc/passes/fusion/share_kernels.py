"""share_kernels: kernels which compute the same nodes get one region.

    turn 1 of 35     c' = f * c + i * g    h' = o * tanh(c')     stores c' and h'
    turn 35          o   c'   h' = o * tanh(c')                  stores h', and now c', too

In the last turn of an unrolled loop nobody reads some of what the other turns store, and its nodes
may stand in another order.  To store a little more takes less than to compile another kernel.
Regions that are equal then share one kernel (codegen/kernels.py), equal texts one symbol
(codegen/build.py).
"""

from __future__ import annotations

from graphc.base.record import record as record_class
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS
from graphc.ir.types import TupleType, Type
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned

Numbers = tuple[int, ...]  # of values: equal ones for equal values


@record_class(frozen=True)
class Computed:
    """What the nodes of a kernel compute in whatever order, its results, and how it is written."""

    values: object
    results: Numbers
    written: tuple[Numbers, ...]


def share_kernels(graph: Graph, config: Config) -> Graph:
    """The graph with the region that has most results wherever its nodes are computed."""
    if not config.merges:
        return graph
    table: dict[object, int] = {}
    found: dict[Node, Computed] = {}
    most: dict[object, Node] = {}
    for node in graph.nodes:
        if node.op.traits.kernel and node.attrs["kind"] == "loop":
            made = found[node] = computed(node, table)
            best = most.setdefault(made.values, node)
            if len(made.results) > len(found[best].results):
                most[made.values] = node
    if len(most) == len(set(found.values())):
        return graph
    by_id = {node.id: node for node in found}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        old = by_id.get(node.id)
        if old is None:
            return None
        best = most[found[old].values]
        return like(node, found[old], best, found[best], r)

    return rebuild(graph, rewrite)


def computed(node: Node, table: dict[object, int]) -> Computed:
    """`table` numbers what is computed."""
    region = node.regions[0]
    number = {p: table.setdefault((k, p.type), len(table)) for k, p in enumerate(region.params)}
    written = []
    for n in region.nodes:
        inputs = tuple([number[i] for i in n.inputs])
        given = tuple(sorted(inputs)) if n.op.commutative else inputs
        number[n] = table.setdefault((n.op, n.type, n.attrs, given), len(table))
        written.append((number[n], *inputs))
    values = len(region.params), frozenset(number.values()), node.place
    return Computed(values, tuple(number[n] for n in region.results), tuple(written))


def like(node: Node, own: Computed, best: Node, other: Computed, r: Rewriter) -> Node | None:
    """The kernel with the region of another one, if that has its results and little more."""
    if own == other:
        return None
    if own.results == other.results:
        made = node.replace(regions=best.regions)
        r.nodes.append(made)
        return made
    extra = best.nbytes - node.nbytes
    if (
        not isinstance(node.type, Type)
        or own.results[0] not in other.results
        or extra > tuned.shared_kernel_waste
    ):
        return None
    assert isinstance(best.type, TupleType)
    made = node.replace(id=r.next_id, type=best.type, regions=best.regions)
    r.next_id += 1
    r.nodes.append(made)
    explain(made.id, f"the kernel of %{best.id}")
    index = OPS["item"].coerce({"index": other.results.index(own.results[0])})
    item = Node(node.id, OPS["item"], (made,), index, node.type, place=node.place, loc=node.loc)
    r.nodes.append(item)
    return item
