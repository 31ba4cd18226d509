"""Lowering of an op that writes its own loops: the op gives the nest, this gives it memory.

What is computed element-wise from the op's result is evaluated where the op writes an element.
"""

from __future__ import annotations

from graphc.codegen.lowering.evaluate import (
    Element,
    flat_index,
    load_element,
    store_element,
    tensor_type,
)
from graphc.codegen.lowering.nest import Nest, unique
from graphc.ir.graph import Node
from graphc.ir.op import Library, Loops
from graphc.ir.sizes import hint_of
from graphc.ir.types import Type, leaves
from graphc.loops.nest import Expr, Scalars


def loops_of(node: Node) -> Loops | None:
    """The loops that an op gives for CPUs."""
    lower = node.op.lower
    if isinstance(lower, Library):
        return lower.loops(node)
    return lower if isinstance(lower, Loops) else None


def index_of(b: Scalars, position: Expr, node: Node) -> tuple[Expr, ...]:
    """The index of an element of a node, from its place in row-major order."""
    made: list[Expr] = []
    for extent in reversed(tensor_type(node).dims):
        made.insert(0, position % extent)
        position = position // extent
    return tuple(made)


class Written(Nest):
    """Lowers one `Loops` op with its epilogue."""

    def body(self) -> None:
        node, lower = next((n, made) for n in self.region.nodes if (made := loops_of(n)))
        self.units = lower.units(node)
        sizes = (t.size for n in (node, *node.inputs) for t in leaves(n.type))  # type: ignore[union-attr]
        work = max(map(hint_of, sizes))
        self.elements_per_unit = work // max(hint_of(self.units), 1)

        def read(operand: int, position: Expr) -> Element:
            source = node.inputs[operand]
            if lower.template and source.id not in self.elements.buffers:
                return self.elements.at(source, index_of(self.b, position, source))
            while source.id not in self.elements.buffers:
                source = source.inputs[0]  # the first few images of an array: the same positions
            buffer = self.elements.buffers[source.id]
            return load_element(self.b, buffer, position, tensor_type(source).dtype)

        def write(index: tuple[Expr, ...], value: Element, number: int = 0) -> None:
            if not isinstance(node.type, Type):
                position = flat_index(self.b, index, leaves(node.type)[number].dims)  # type: ignore[union-attr]
                store_element(self.b, self.outputs[node.id][number], position, value)
                return
            self.elements.bind(node, lambda _: value)
            for result in unique(self.region.results):
                turned = lower.template and result is not node
                perm = result.attrs["perm"] if turned else range(len(index))
                self.store(result, tuple(index[axis] for axis in perm))

        scratch = [self.buffer(kind, size, "work") for kind, size in lower.workspace(node)]
        lower.nest(self.b, node, read, write, scratch)
