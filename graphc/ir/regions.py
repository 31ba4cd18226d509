"""Graphs inside graphs: the regions of control flow, which hold kernels of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphc.ir.graph import Graph, Node, Rewriter, map_regions, node_effect, rebuild
from graphc.ir.op import Effect, Op


def map_inside(graph: Graph, function: Callable[[Graph], Graph]) -> Graph:
    """Apply a graph function to the regions of control flow; the same graph if nothing changed."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = map_regions(node, function) if is_control_flow(node) else node
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return graph if all(map(runs_kernels, graph.nesting)) else rebuild(graph, rewrite)


def runs_kernels(op: Op) -> bool:
    """Is a node of the op one kernel, or some that run block by block?"""
    return op.traits.kernel or op.traits.blocks


def is_kernel(node: Node) -> bool:
    """Is the node one kernel, or some that run block by block?"""
    return runs_kernels(node.op)


def is_control_flow(node: Node) -> bool:
    """Are the node's regions graphs as any, and no kernels?"""
    return bool(node.regions) and not is_kernel(node)


def has_workspace(node: Node) -> bool:
    """Does a kernel have its scratch memory, as its last operand?"""
    return bool(node.inputs) and node.inputs[-1].op.traits.workspace


def choosers(node: Node) -> int:
    """How many operands of a region op come before those that its regions take: a branch's."""
    return len(node.inputs) - len(node.regions[0].params) if node.op.traits.branch else 0


def operands_of(node: Node) -> tuple[Node, ...]:
    """The operands that the parameters of the regions stand for."""
    return node.inputs[choosers(node) :]


def first_invariant(node: Node) -> int:
    """The first operand of a branch or loop that is the same whenever a region runs."""
    if node.op.traits.branch:
        return choosers(node)
    first: int = node.attrs["carries"]
    return first + (node.attrs["scanned"] if node.op.traits.counted else 0)


def holds_kernels(node: Node) -> bool:
    """Are the node's regions graphs of kernels of their own, with memory of their own?"""
    return bool(node.regions) and not node.op.traits.kernel


def talks(node: Node) -> bool:
    """Does the node send or receive messages, perhaps in its regions?"""
    return node_effect(node) >= Effect.COMM


def scheduled_graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and every region that holds kernels of its own, however deep."""
    pending = [graph]
    while pending:
        found = pending.pop()
        yield found
        pending += [r for n in reversed(found.nodes) if holds_kernels(n) for r in n.regions[::-1]]
