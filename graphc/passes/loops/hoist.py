"""hoist: what a loop computes from invariants alone is computed once, before the loop.

    while(c, x): c = c * exp(x)     ->     e = exp(x);  while(c, e): c = c * e

Inner loops have been emptied before: work leaves a nest level by level. Nothing leaves a branch.
What only views data or makes more of it (transposes, broadcasts, counting) stays where it is read:
there it costs nothing, and outside it would have to be stored.  But matrices are transposed outside
for products that read them by columns (see `hoist_transposes`).
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.codegen.gemm.hardware import host_target
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, node_effect, rebuild, swept
from graphc.ir.op import OPS, Alias, Compute, Contraction, Effect, Reduction, Scalar
from graphc.ir.regions import first_invariant, holds_kernels
from graphc.ir.sizes import hint_of
from graphc.ir.types import Type, leaves
from graphc.passes.loops.hoist_transposes import is_read_across
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def hoist(graph: Graph, config: Config) -> Graph:
    """The graph with invariant work of loops in front of them."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = emptied(node, r) if node.op.traits.loop else node
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite) if any(map(holds_kernels, graph.nodes)) else graph


def emptied(loop: Node, r: Rewriter) -> Node:
    """The loop without its invariant work, which is emitted before it."""
    first = first_invariant(loop)
    for number in range(len(loop.regions)):
        region = loop.regions[number]
        # The test always runs, and so does a body with a known number of turns.
        sure = number < len(loop.regions) - 1 if loop.op.traits.tested else has_turns(loop)
        outside = dict(zip(region.params[first:], loop.inputs[first:], strict=True))
        found = invariants(region, outside, sure)
        moved = leaving(region, found)
        if moved:
            emit_outside(found, moved, outside, r)
            loop = with_operands(loop, number, moved, outside)
            explain(loop.id, f"computed before the loop: {', '.join(n.op.name for n in moved[:8])}")
    return loop


def has_turns(loop: Node) -> bool:
    length = loop.attrs["length"]
    return isinstance(length, int) and length > 0


# ------------------------------------------------------------------------------------ what leaves


def invariants(region: Graph, outside: dict[Node, Node], sure: bool) -> dict[Node, None]:
    """The nodes that depend on invariants only and may run before the loop, in order."""
    found: dict[Node, None] = {}
    for node in region.nodes:
        known = all(n in outside or n in found for n in node.inputs)
        if known and not node.after and may_leave(node, sure):
            found[node] = None
    return found


def may_leave(node: Node, sure: bool) -> bool:
    """Is the node pure and, unless it is sure to run in the loop, can it not fail or take long?"""
    if node_effect(node) is not Effect.PURE or stays(node):
        return False
    values = (*leaves(node.type), *(n.type for n in node.inputs))
    if not all(isinstance(kind, Type) and kind.is_static for kind in values):
        return False
    lower = node.op.lower
    if sure or isinstance(lower, Scalar | Reduction | Contraction | Alias):
        return not node.op.traits.tested or sure
    indices = any(isinstance(n.type, Type) and n.type.dtype.is_integer for n in node.inputs)
    return node.op.traits.constant or (isinstance(lower, Compute) and not indices)


def stays(node: Node) -> bool:
    """Does a node change a stack, or keep runs of the body apart?"""
    traits = node.op.traits
    return traits.distinct or traits.push or traits.pop


def leaving(region: Graph, found: dict[Node, None]) -> list[Node]:
    """The invariant values that what stays in the loop reads, and that are worth keeping."""
    readers: dict[Node, list[Node]] = {}
    results = set(region.results)
    moved = []
    for node in reversed(region.nodes):
        if node in found:
            inside = readers.get(node, [])
            if not inside and node not in results:
                continue  # only what leaves reads it
            if is_worth_keeping(node, inside):
                moved.append(node)
                continue
        for source in node.inputs:
            readers.setdefault(source, []).append(node)
    return moved[::-1]


def is_worth_keeping(node: Node, readers: Iterable[Node]) -> bool:
    """Is reading the value from memory better than computing it in every turn?"""
    lower = node.op.lower
    if any(is_read_across(node, reader) for reader in readers):
        return True
    if not node.inputs or isinstance(lower, Compute | Alias) or stays(node):
        return False
    if not isinstance(node.type, Type):
        return False  # its items leave
    if not isinstance(lower, Scalar):
        return True
    nbytes = node.nbytes
    if nbytes > tuned.hoisted_share * host_target().l2 and nbytes > sum(
        hint_of(leaf.nbytes) for n in node.inputs for leaf in leaves(n.type)
    ):
        return False
    flops, most = node.op.estimate(node)[0], tuned.hoisted_flops * hint_of(node.type.size)
    light = node.op.cost is None or flops < most
    return (
        nbytes <= tuned.hoisted_share * host_target().l2
        or not light
        or not all(isinstance(n.op.lower, Scalar) for n in readers)
    )


# ------------------------------------------------------------------------------------ moving it


def emit_outside(
    found: dict[Node, None], moved: list[Node], outside: dict[Node, Node], r: Rewriter
) -> None:
    """Copy what leaves, and all it reads, in front of the loop; `outside` says what it becomes."""
    needed: set[Node] = set()
    pending = list(moved)
    while pending:
        node = pending.pop()
        if node not in needed and node not in outside:
            needed.add(node)
            pending.extend(node.inputs)
    for node in found:
        if node in needed:
            made = node.replace(
                id=r.next_id,
                inputs=tuple(outside[n] for n in node.inputs),
                place=node.place or r.place,
                loc=node.loc or r.loc,
            )
            r.next_id += 1
            r.nodes.append(made)
            outside[node] = made


def with_operands(loop: Node, number: int, moved: list[Node], outside: dict[Node, Node]) -> Node:
    """The loop with the values as further invariants, read by its region of this number."""
    op = OPS["param"]
    regions = []
    for position, region in enumerate(loop.regions):
        names = [op.coerce({"name": f"p{len(region.params) + k}"}) for k in range(len(moved))]
        params = [
            Node(region.next_id + k, op, (), attrs, node.type)
            for k, (attrs, node) in enumerate(zip(names, moved, strict=True))
        ]
        grown = region.replace(
            params=(*region.params, *params), next_id=region.next_id + len(params)
        )
        if position == number:
            grown = swept(reading(grown, dict(zip(moved, params, strict=True))))
        regions.append(grown)
    inputs = (*loop.inputs, *(outside[node] for node in moved))
    return loop.replace(inputs=inputs, regions=tuple(regions))


def reading(region: Graph, gone: dict[Node, Node]) -> Graph:
    """The region with nodes replaced by parameters."""
    by_id = {node.id: param for node, param in gone.items()}
    return rebuild(region, lambda node, r: by_id.get(node.id))
