"""Donation: a result takes over the memory of an argument that the caller gave up.

That is safe when every other reader of the argument has run before the result's kernel, and that
kernel reads the argument element by element at the place it writes.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import root, roots
from graphc.ir.op import Scalar
from graphc.ir.types import Type


def donations(graph: Graph, names: tuple[str, ...]) -> tuple[int, ...]:
    """For each result the number of the parameter whose memory it takes over, or -1.

    `names` are argument names; "params" donates every parameter called "params" or "params.…".
    """
    if not names:
        return ()
    readers = readers_of_params(graph)
    free = [
        number
        for number, param in enumerate(graph.params)
        if any(param.attrs["name"] == n or param.attrs["name"].startswith(f"{n}.") for n in names)
        and not any(root(r) is param for r in graph.results)
    ]
    position = {node: k for k, node in enumerate(graph.nodes)}
    made = []
    for number, result in enumerate(graph.results):
        first = graph.results.index(result) == number
        taken = -1
        for candidate in free if first and result.op.name == "fused" else ():
            param = graph.params[candidate]
            if takes_over(result, param, readers[candidate], position):
                taken = candidate
                free.remove(candidate)
                break
        made.append(taken)
    return tuple(made)


def takes_over(result: Node, param: Node, readers: list[Node], position: dict[Node, int]) -> bool:
    """May a kernel's result lie in a parameter's memory, given who reads that and the order?"""
    return (
        result.op.name == "fused"
        and param.type is result.type
        and all(
            position[reader] < position[result]
            or (reader is result and reads_in_place(reader, param))
            for reader in readers
        )
    )


def reads_in_place(kernel: Node, param: Node) -> bool:
    """One result, element-wise ops only, and the argument as wide as the result."""
    region = kernel.regions[0]
    wide = isinstance(param.type, Type) and param.type.shape == region.results[0].type.shape  # type: ignore[union-attr]
    plain = all(isinstance(n.op.lower, Scalar) or n.op.name == "const" for n in region.nodes)
    direct = sum(root(n) is param for n in kernel.inputs) == sum(n is param for n in kernel.inputs)
    return wide and plain and direct and len(region.results) == 1


def readers_of_params(graph: Graph) -> list[list[Node]]:
    """For each parameter the nodes that read its memory, aliases included."""
    number = {param: k for k, param in enumerate(graph.params)}
    found: list[list[Node]] = [[] for _ in graph.params]
    for node in graph.nodes:
        for source in node.inputs:
            for memory in roots(source):
                if memory in number:
                    found[number[memory]].append(node)
    return found
