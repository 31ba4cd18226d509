"""push_strides: what only convolutions of single pixels in steps read is computed in those steps.

    relu(conv(x, w) + y)                      relu(conv(x, w) in steps of 2 + y[:, :, ::2, ::2])
    conv 1x1 in steps of 2          ->        conv 1x1
    conv 1x1 in steps of 2                    conv 1x1

A residual network that steps in its 1x1 convolutions computes four pixels of each block for one
that is read.  Values between lose pixels, none changes.
"""

from __future__ import annotations

from math import prod

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.op import OPS, Scalar
from graphc.ir.types import Type
from graphc.passes.reasons import explain

Steps = tuple[int, ...]  # along each axis of space


def push_strides(graph: Graph, config: Config) -> Graph:
    """The graph in which convolutions compute no pixel that later steps leave out."""
    if not any(map(is_stepping, graph.nodes)):
        return graph
    read = swept(graph)
    steps = reduced(read, wanted(read))
    if not any(map(is_convolution, steps)):
        return graph
    return in_steps(read, {node.id: of for node, of in steps.items()})


def is_convolution(node: Node) -> bool:
    """Is a node a convolution of known sizes?"""
    if not node.op.traits.convolution or node.op is not OPS["conv"] or node.after:
        return False
    return isinstance(node.type, Type) and node.type.is_static and 0 not in node.type.dims


def is_stepping(node: Node) -> bool:
    """Is a node a convolution of single pixels in steps?"""
    return is_convolution(node) and reads_pixels(node) and prod(node.attrs["stride"]) > 1


def is_pointwise(node: Node) -> bool:
    """Is a node computed element by element, and waits for nothing?"""
    return isinstance(node.op.lower, Scalar) and not node.after


def reads_pixels(conv: Node) -> bool:
    weights = conv.inputs[1].type
    assert isinstance(weights, Type)
    return set(weights.dims[2:]) == {1}


def dims_of(node: Node) -> tuple[int, ...]:
    return node.type.dims if isinstance(node.type, Type) and node.type.is_static else ()


def wanted(graph: Graph) -> dict[Node, Steps]:
    """The values of which all who read them read one pixel of so many, and those steps."""
    found: dict[Node, Steps | None] = dict.fromkeys(graph.results)

    def want(source: Node, steps: Steps | None) -> None:
        found[source] = steps if found.get(source, steps) == steps else None

    for node in reversed(graph.nodes):
        steps = found.get(node)
        for source in node.after:
            want(source, None)
        for k, source in enumerate(node.inputs):
            if is_convolution(node) and reads_pixels(node) and k == 0:
                own: Steps = node.attrs["stride"]
                own = tuple(a * b for a, b in zip(own, steps)) if steps else own
                want(source, own if prod(own) > 1 else None)
            elif is_pointwise(node) and dims_of(source) == dims_of(node):
                want(source, steps)
            else:
                want(source, None)
    return {node: steps for node, steps in found.items() if steps is not None}


def reduced(graph: Graph, wanted: dict[Node, Steps]) -> dict[Node, Steps]:
    """Of those the convolutions, and what is computed element by element of such."""
    found: dict[Node, Steps] = {}
    for node in graph.nodes:
        if node not in wanted or not dims_of(node):
            continue
        of_such = any(n in found and dims_of(n) == dims_of(node) for n in node.inputs)
        if is_convolution(node) or (is_pointwise(node) and of_such):
            found[node] = wanted[node]
    return found


def in_steps(graph: Graph, chosen: dict[int, Steps]) -> Graph:
    """The graph in which the nodes of these ids are computed in steps."""
    few: set[Node] = set()  # what has only the pixels that are read

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        steps = chosen.get(node.id)
        if steps is None and few.isdisjoint(node.inputs):
            return None
        if is_convolution(node):
            own: Steps = node.attrs["stride"]
            stride = tuple(a * b for a, b in zip(own, steps)) if steps else own
            stride = (1,) * len(own) if node.inputs[0] in few else stride
            made = r.emit(node.op, node.inputs, {**node.attrs, "stride": stride})
        else:
            assert steps is not None
            inputs = [n if n in few else part(n, steps, r) for n in node.inputs]
            made = r.emit(node.op, inputs, node.attrs)
        if steps is not None:
            explain(node.id, f"one pixel of {prod(steps)} is computed, as others are not read")
            few.add(made)
        return made

    return swept(rebuild(graph, rewrite, each=False))


def part(operand: Node, steps: Steps, r: Rewriter) -> Node:
    """Every so many pixels of an operand, along the axes that it has more than one of."""
    dims = dims_of(operand)
    along = (1,) * (len(dims) - len(steps)) + steps[max(0, len(steps) - len(dims)) :]
    along = tuple(step if extent > 1 else 1 for step, extent in zip(along, dims))
    if prod(along) == 1:
        return operand
    return r.emit(
        OPS["slice"], (operand,), {"starts": (0,) * len(dims), "stops": dims, "steps": along}
    )
