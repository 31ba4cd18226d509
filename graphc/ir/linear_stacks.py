"""Stacks are linear: each is read once, and what the reader returns stands for it from then on.

That is what lets a push change the memory in place.  A stack that the body of a loop makes cannot
leave it: its memory is used again in the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import memory
from graphc.ir.regions import operands_of
from graphc.ir.types import AnyType, StackType, Type, leaves


def broken_stacks(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Nodes of a graph that use a stack in a way that is not allowed, each with the reason."""
    if not has_stacks(graph):
        return
    read: set[tuple[Node, int]] = set()
    for node, source in reads(graph):
        if isinstance(source.type, StackType):
            value = port(source)
            if value in read:
                yield node, f"the stack %{source.id} is read twice"
            read.add(value)
    for node in graph.nodes:
        if node.op.traits.loop:
            body = node.regions[-1]
            for result in body.results[: node.attrs["carries"]]:
                if isinstance(result.type, StackType) and is_made_inside(result):
                    yield node, f"the body makes the stack %{result.id}, which cannot leave it"


makes_stack = attrgetter("traits.makes_stack")


def has_stacks(graph: Graph) -> bool:
    """Is any value of the graph a stack? It is given, or made here or in a region."""
    return "makes_stack" in graph.traits or any(has_stack(param.type) for param in graph.params)


def has_stack(kind: AnyType) -> bool:
    if isinstance(kind, Type):
        return False
    return any(isinstance(leaf, StackType) for leaf in leaves(kind))


def reads(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Every pair of a reader (of a result: itself) and what it reads.

    A tuple that nobody takes anything of reads nothing: rewriting leaves such behind.
    """
    taken = {source for node in graph.nodes for source in node.inputs}
    for node in graph.nodes:
        if not node.op.traits.item and (not node.op.traits.makes_tuple or node in taken):
            for source in node.inputs:
                yield node, source
    for result in graph.results:
        yield result, result


def port(node: Node) -> tuple[Node, int]:
    """The value a node stands for: itself or a leaf of the node with several results."""
    return (node.inputs[0], node.attrs["index"]) if node.op.traits.item else (node, 0)


def is_made_inside(stack: Node) -> bool:
    """Does a stack of a region come from anywhere but the region's parameters?"""
    return any(node.op.traits.makes_stack for node in sources(stack))


def sources(stack: Node) -> set[Node]:
    """The parameters of its graph, and the `stack` nodes, that a stack may come from."""
    found: set[Node] = set()
    pending, seen = [stack], set()
    while pending:
        node, leaf = memory(pending.pop())
        if node.op.traits.parameter or node.op.traits.makes_stack:
            found.add(node)
        elif (node, leaf) not in seen:
            seen.add((node, leaf))
            pending += _given(node, leaf)
    return found


def _given(node: Node, leaf: int) -> list[Node]:
    """What the result `leaf` of a node may be, if it is a stack: operands, or made in a branch."""
    if node.op.traits.loop:
        body, carries = node.regions[-1], [leaf]
        for number in carries:  # grows while carries change places
            came = {body.params.index(n) for n in sources(body.results[number]) if n in body.params}
            carries += sorted(came.difference(carries))
        return [node.inputs[number] for number in carries]
    if node.op.traits.branch:
        ends = [n for region in node.regions for n in sources(region.results[leaf])]
        numbers = {r.params.index(n) for r in node.regions for n in ends if n in r.params}
        given = operands_of(node)
        return [*(given[k] for k in numbers), *(n for n in ends if n.op.traits.makes_stack)]
    return [n for n in node.inputs if isinstance(n.type, StackType)]
