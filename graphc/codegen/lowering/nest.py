"""What every lowering of a loop group shares: buffers, operands bound to them, stores.

Buffers of the kernel, in order: region parameters, results, then scratch ("work").
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.codegen.lowering.evaluate import Elements, flat_index, store_element, tensor_type
from graphc.codegen.lowering.space import Space
from graphc.codegen.lowering.unswitch import unswitched
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Reduction, Scalar
from graphc.ir.types import DType, Type, leaves
from graphc.loops.facts import work_stride
from graphc.loops.nest import Buffer, Expr, Kernel, Scalars, Statement


class Nest:
    """Builds the kernel of one region. A subclass writes the loops in `body`."""

    params = 0  # numbers that the kernel is given besides buffers
    sizes_at: int | None = None  # see `Kernel`

    def __init__(
        self, region: Graph, space: Space, name: str, strict: bool, check_finite: bool = False
    ) -> None:
        self.region = region
        self.name = name
        self.strict = strict
        self.b = Scalars(check_finite)
        self.elements = Elements(self.b)
        self.space = space
        self.buffers: list[Buffer] = []
        self.outputs: dict[int, list[Buffer]] = {}
        self.units = 1
        self.elements_per_unit = 1

    # -- buffers

    def buffer(self, element: DType, size: int, mode: str, loose: bool = False) -> Buffer:
        factor = 2 if element.is_complex else 1
        made = Buffer(len(self.buffers), element.real, size * factor, mode, loose)
        self.buffers.append(made)
        return made

    def declare(self) -> None:
        self.declare_params(self.region.params)
        self.declare_results()

    def declare_params(self, params: Iterable[Node]) -> None:
        for param in params:
            kind = tensor_type(param)
            self.elements.bind_buffer(param, self.buffer(kind.dtype, kind.size, "in"))

    def declare_results(self) -> None:
        for result in self.region.results:
            for kind in leaves(result.type):
                assert isinstance(kind, Type)
                made = self.buffer(kind.dtype, kind.size, "out")
                self.outputs.setdefault(result.id, []).append(made)

    def lower(self) -> Kernel:
        """The complete kernel."""
        self.declare()
        self.body()
        return self.kernel(self.b.body, self.units)

    def kernel(self, body: list[Statement], units: int, then: Kernel | None = None) -> Kernel:
        for buffer in self.buffers:
            if buffer.mode == "work":  # a thread finds its own by the stride
                self.b.integer(work_stride(buffer))
        return Kernel(
            self.name,
            tuple(self.buffers),
            self.params,
            unswitched(body),
            units=units,
            strict=self.strict,
            exact=any(map(selects_computed, self.region.nodes)),
            sizes=tuple(self.b.sizes),
            sizes_at=self.sizes_at,
            then=then,
        )

    def body(self) -> None:
        raise NotImplementedError

    def reductions(self) -> list[Node]:
        return [n for n in self.region.nodes if isinstance(n.op.lower, Reduction)]

    def store_full(self, values: dict[int, Expr], results: Iterable[Node]) -> None:
        for result in unique(results):
            self.store(result, self.space.index(self.b, values, tensor_type(result).dims))

    def store(self, result: Node, index: tuple[Expr, ...]) -> None:
        value = self.elements.at(result, index)
        position = flat_index(self.b, index, tensor_type(result).dims)
        for buffer in self.outputs[result.id]:
            store_element(self.b, buffer, position, value)


def selects_computed(node: Node) -> bool:
    """Does the node pick one of the values that this kernel computes?

    Such a value may be computed a second time, in another loop, and be compared with the one that
    was picked: both must be rounded alike, so no product is fused with a sum in one place only.
    """
    if not isinstance(node.op.lower, Reduction) or node.op.lower.combine not in ("max", "min"):
        return False
    source = node.inputs[0]
    while isinstance(source.op.lower, Alias | Compute) and source.inputs:
        source = source.inputs[0]
    return isinstance(source.op.lower, Scalar)


def unique(nodes: Iterable[Node]) -> list[Node]:
    return list(dict.fromkeys(nodes))
