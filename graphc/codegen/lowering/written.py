"""Lowering of an op that writes its own loops: the op gives the nest, this gives it memory.

What is computed element-wise from the op's result is evaluated where the op writes an element.
"""

from __future__ import annotations

from graphc.codegen.loops import Expr
from graphc.codegen.lowering.evaluate import Element, load_element, tensor_type
from graphc.codegen.lowering.nest import Nest, unique
from graphc.ir.op import Loops


class Written(Nest):
    """Lowers one `Loops` op with its epilogue."""

    def body(self) -> None:
        node = next(n for n in self.region.nodes if isinstance(n.op.lower, Loops))
        lower = node.op.lower
        assert isinstance(lower, Loops)
        self.units = lower.units(node)
        work = max(n.type.size for n in (node, *node.inputs))  # type: ignore[union-attr]
        self.elements_per_unit = work // max(self.units, 1)

        def read(operand: int, position: Expr) -> Element:
            source = node.inputs[operand]
            while source.id not in self.elements.buffers:
                source = source.inputs[0]  # the first few images of an array: the same positions
            buffer = self.elements.buffers[source.id]
            return load_element(self.b, buffer, position, tensor_type(source).dtype)

        def write(index: tuple[Expr, ...], value: Element) -> None:
            self.elements.bind(node, lambda _: value)
            for result in unique(self.region.results):
                self.store(result, index)

        scratch = [self.buffer(kind, size, "work") for kind, size in lower.workspace(node)]
        lower.nest(self.b, node, read, write, scratch)
