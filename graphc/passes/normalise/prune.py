"""prune: what has several results is narrowed to what is read of it, control flow above all.

A result of a `cond`, `while` or `scan` that nothing reads is not computed; a carry that only feeds
itself goes, and so do operands that no region reads.  A carry that the body passes on unchanged is
an invariant, and its result is the operand.  A factorisation of which one factor is read makes that
alone, if it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, node_effect, rebuild, swept
from graphc.ir.op import Effect
from graphc.ir.regions import choosers, first_invariant
from graphc.ir.rewrites import permitted
from graphc.ir.types import AnyType, TupleType
from graphc.ops.control.control import results_type
from graphc.passes.reasons import explain

Moved = dict[int, int | Node]  # what a result has become: a result of the new node or an operand


def prune(graph: Graph, config: Config | None = None) -> Graph:
    """The graph with narrower branches and loops."""
    if not any(narrow_rule(node) for node in graph.nodes):
        return graph
    read = results_read(graph)
    moved: dict[int, Moved] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.traits.item and (places := moved.get(node.inputs[0].id)) is not None:
            place = places[node.attrs["index"]]
            return place if isinstance(place, Node) else port(node, place, r)
        narrow = narrow_rule(node)
        if narrow is None:
            return None
        made, places = narrow(node, read[node.id])
        if made is None or not permitted(node):
            return None
        explain(node.id, f"{len(node.inputs)} -> {len(made.inputs)} operands")
        r.nodes.append(made)
        if isinstance(node.type, TupleType):
            moved[node.id] = places
            return made
        only = places.get(0)
        return only if isinstance(only, Node) else made

    return rebuild(graph, rewrite, each=False)


def port(item: Node, index: int, r: Rewriter) -> Node:
    """The item that reads a result at its new place: the node itself if that is its only one."""
    source = item.inputs[0]
    if not isinstance(source.type, TupleType):
        return source
    made = item.replace(attrs=item.op.coerce({"index": index}))
    r.nodes.append(made)
    return made


def narrow_rule(node: Node) -> Callable[[Node, set[int]], tuple[Node | None, Moved]] | None:
    """What narrows a branch, a loop or a factorisation; None for any other node."""
    if node.op.traits.branch:
        return narrow_branch
    if node.op.traits.makes_last:
        return narrow_to_last
    return narrow_loop if node.op.traits.loop else None


def results_read(graph: Graph) -> dict[int, set[int]]:
    """For the id of each node that can be narrowed the numbers of its results that are read."""
    read = {n.id: set[int]() for n in graph.nodes if narrow_rule(n)}
    everything = {
        id: range(len(n.type.elements) if isinstance(n.type, TupleType) else 1)
        for n in graph.nodes
        if (id := n.id) in read
    }
    for node in graph.nodes:
        for source in node.inputs:
            if source.id in read:
                ports = [node.attrs["index"]] if node.op.traits.item else everything[source.id]
                read[source.id].update(ports)
    for result in graph.results:
        if result.id in read:
            read[result.id].update(everything[result.id])
    return read


# ------------------------------------------------------------------------------------ narrowing


def narrow_to_last(node: Node, read: set[int]) -> tuple[Node | None, Moved]:
    """A node that makes its last result alone, if that is all that is read."""
    if not isinstance(node.type, TupleType) or read != {len(node.type.elements) - 1}:
        return None, {}
    attrs = node.op.coerce({**node.attrs, "alone": True})
    return node.replace(attrs=attrs, type=node.type.elements[-1]), {max(read): 0}


def narrow_branch(node: Node, read: set[int]) -> tuple[Node | None, Moved]:
    """The branches with the results that are read and the operands that these need."""
    first = choosers(node)
    count = len(node.inputs) - first
    node = with_shared_operands(node, [range(count)], first)
    kept = sorted(read)
    needed: set[Node] = set()
    for region in node.regions:
        needed |= reached(region, [region.results[k] for k in kept])
    used = [k for k in range(count) if not needed.isdisjoint(slot(node, k))]
    if len(kept) == len(node.regions[0].results) and len(used) == count:
        return None, {}
    regions = tuple(selected(region, used, kept) for region in node.regions)
    made = node.replace(
        inputs=(*node.inputs[:first], *(node.inputs[first + k] for k in used)),
        regions=regions,
        type=results_type(regions[0].signature[1]),
    )
    return made, dict(zip(kept, range(len(kept))))


def narrow_loop(node: Node, read: set[int]) -> tuple[Node | None, Moved]:
    """The loop with the carries, slices, invariants and stacked results that are needed."""
    count, end = node.attrs["carries"], first_invariant(node)
    node = with_shared_operands(node, [range(count, end), range(end, len(node.inputs))])
    body = node.regions[-1]
    still = {k for k in range(count) if body.results[k] is body.params[k]}
    kept, needed = needed_results(node, read - still)
    carries = [k for k in range(count) if k in kept and k not in still]
    used = [k for k in range(len(node.inputs)) if not needed.isdisjoint(slot(node, k))]
    slices = [k for k in used if count <= k < end]
    invariants = [k for k in used if k >= end] + [k for k in used if k in still]
    operands = [*carries, *slices, *invariants]
    results = [*carries, *sorted(k for k in kept if k >= count)]
    if len(operands) == len(node.inputs) and len(results) == len(body.results) and not still:
        return None, {}
    regions = tuple(
        selected(region, operands, results if region is body else [0]) for region in node.regions
    )
    changes = {"carries": len(carries)}
    if node.op.traits.counted:
        changes["scanned"] = len(slices)
    attrs = node.op.coerce({**node.attrs, **changes})
    inputs = tuple(node.inputs[k] for k in operands)
    made = node.replace(
        inputs=inputs, attrs=attrs, regions=regions, type=narrowed_type(node, results)
    )
    places: Moved = {k: node.inputs[k] for k in still}
    return made, places | dict(zip(results, range(len(results))))


def with_shared_operands(node: Node, groups: list[range], first: int = 0) -> Node:
    """The node with one parameter read for operands that are given twice; the other is left over.

    Parameter k stands for operand k + `first`; those of one group may stand for each other.
    """
    same: dict[int, int] = {}
    for group in groups:
        seen: dict[Node, int] = {}
        for k in group:
            if (j := seen.setdefault(node.inputs[k + first], k)) != k:
                same[k] = j
    return map_regions(node, lambda region: with_one_of(region, same)) if same else node


def with_one_of(region: Graph, same: dict[int, int]) -> Graph:
    """The region with some parameters read in place of others."""
    r = Rewriter(region)
    for k, j in same.items():
        r.mapped[region.params[k].id] = region.params[j]
    for node in region.nodes:
        made = r.mapped[node.id] = r.copy(node)
        r.nodes.append(made)
    return r.finish()


def needed_results(node: Node, read: set[int]) -> tuple[set[int], set[Node]]:
    """The results of a loop's body that matter, and all nodes that these reach in its regions."""
    body, count = node.regions[-1], node.attrs["carries"]
    carry = {param: k for k, param in enumerate(body.params[:count])}
    kept, needed = set(read), set[Node]()
    for region in node.regions[:-1]:  # the test
        inside = reached(region, region.results)
        needed |= inside
        kept |= {k for k, param in enumerate(region.params[:count]) if param in inside}
    pending = [body.results[k] for k in kept]
    pending += [n for n in body.nodes if node_effect(n) > Effect.READ]
    while pending:
        found = pending.pop()
        if found in needed:
            continue
        needed.add(found)
        pending.extend(found.inputs)
        if (k := carry.get(found)) is not None and k not in kept:
            kept.add(k)
            pending.append(body.results[k])
    return kept, needed


def reached(graph: Graph, results: Iterable[Node]) -> set[Node]:
    """Everything that some results and the effects of a graph read, directly or not."""
    found: set[Node] = set()
    pending = [*results, *(n for n in graph.nodes if node_effect(n) > Effect.READ)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.inputs)
    return found


def slot(node: Node, operand: int) -> set[Node]:
    """The parameters, one per region, that stand for an operand (of a branch: after the flags)."""
    return {region.params[operand] for region in node.regions}


def selected(region: Graph, params: Sequence[int], results: Sequence[int]) -> Graph:
    """The region with some of its parameters and results, and the nodes that these results need."""
    kept = tuple(region.results[k] for k in results)
    made = region.replace(results=kept, result_names=())
    before = None
    while made is not before:  # what it does not need of the loops in it, these need not make
        before = swept(made)
        made = prune(before)
    made = made.replace(params=tuple(made.params[k] for k in params))
    ids = {n.id for n in (*made.params, *made.nodes)}
    return made.replace(names={name: id for name, id in made.names.items() if id in ids})


def narrowed_type(node: Node, results: Sequence[int]) -> AnyType:
    kind = node.type
    kinds = kind.elements if isinstance(kind, TupleType) else (kind,)
    return results_type([kinds[k] for k in results])
