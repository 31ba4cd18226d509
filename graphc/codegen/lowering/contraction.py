"""From a fused contraction to calls of the contraction core, with the rest of the region as its
epilogue.

The core computes tiles of sums; the epilogue is a loop kernel over a finished tile that evaluates
the region's element-wise nodes and stores every result:

    buffers   tile, first result, further results, operands
    params    batch, j0, j1, leading stride
"""

from __future__ import annotations

from math import gcd

from graphc.codegen import contract
from graphc.codegen.contract.layout import Word
from graphc.codegen.loops import Buffer, Expr, Kernel, Scalars
from graphc.codegen.lowering.evaluate import Elements, flat_index, store_element, tensor_type
from graphc.codegen.lowering.operands import Dims, Read, folded_dims, read_of
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Contraction
from graphc.ir.types import DType, Type
from graphc.ops.dims import row_major_strides
from graphc.record import record

EPILOGUE_PARAMS = 4
SHORTEST_BLOCK = 32  # columns; a shorter loop would not fill vectors

Roles = dict[str, list[tuple[int, int, int, int]]]


@record(frozen=True)
class Form:
    """A region's contraction: its node, how its operands read memory, and its dims by role."""

    node: Node
    reads: tuple[Read, Read]
    dims: Dims

    def role(self, name: str) -> tuple[contract.Dim, ...]:
        return tuple(contract.Dim(e, a, b, c) for role, e, a, b, c in self.dims if role == name)

    @property
    def element(self) -> DType:
        """The type of both operands in memory; the result may have the type of the sums."""
        return tensor_type(self.reads[0].source).dtype

    @property
    def core(self) -> str:
        """The name of the core that computes it: small integers are summed in wider ones."""
        sums = tensor_type(self.node).dtype
        same = self.element is sums or self.element.kind == "f"
        return self.element.name if same else f"{self.element}_{sums}"

    @property
    def accumulator(self) -> DType:
        return tensor_type(self.node).dtype.compute

    def normal(self) -> contract.Contraction:
        return contract.Contraction(
            self.core, self.role("batch"), self.role("m"), self.role("n"),
            self.role("k"), self.reads[0].offset, self.reads[1].offset,
        )  # fmt: skip


def form_of(region: Graph) -> Form:
    """The contraction of a region; fuse made sure that its operands' views fold."""
    node = next(n for n in region.nodes if isinstance(n.op.lower, Contraction))
    params = set(region.params)

    def stored(source: Node) -> bool:
        return source in params or source.op.name == "unpack"

    reads = tuple(read_of(n, stored, widens=True) for n in node.inputs)
    assert reads[0] is not None
    assert reads[1] is not None
    dims = folded_dims(node, {0: reads[0], 1: reads[1]})
    assert dims is not None
    return Form(node, (reads[0], reads[1]), dims)


def result_axes(form: Form) -> dict[tuple[str, int], tuple[int, int]]:
    """(role, position) -> (axis of the result it runs along, how far one step goes there).

    Several dims may share an axis: the groups of a convolution and the channels of a group.
    """
    dims = tensor_type(form.node).dims
    found: dict[tuple[str, int], tuple[int, int]] = {}
    counts: dict[str, int] = {}
    for role, extent, _, _, stride in form.dims:
        position = counts.get(role, 0)
        counts[role] = position + 1
        if role == "k" or extent == 1:
            continue
        for axis, step in enumerate(row_major_strides(dims)):
            if step <= stride < step * dims[axis]:
                found[role, position] = axis, stride // step
    return found


def params_beside(region: Graph, form: Form) -> list[Node]:
    """Region params that nodes other than the contraction reach."""
    seen: set[Node] = set()
    pending = list(region.results)
    while pending:
        node = pending.pop()
        if node in seen or node is form.node:
            continue
        seen.add(node)
        pending.extend(node.inputs)
    return [p for p in region.params if p in seen]


def _buffer(index: int, kind: Type, mode: str) -> Buffer:
    """The memory of a tensor; complex numbers are pairs of reals."""
    factor = 2 if kind.dtype.is_complex else 1
    return Buffer(index, kind.dtype.real, kind.size * factor, mode)


class EpilogueLowering:
    """Builds the epilogue kernel of a region for a plan of the core."""

    def __init__(self, region: Graph, form: Form, plan: contract.Plan, name: str) -> None:
        self.region = region
        self.form = form
        self.plan = plan
        self.name = name
        self.b = Scalars()
        self.elements = Elements(self.b)
        self.operands = params_beside(region, form)  # in buffer order

    def lower(self, strict: bool, check_finite: bool = False) -> Kernel:
        self.b.check_finite = check_finite
        b, form = self.b, self.form
        size = tensor_type(form.node).size
        buffers = [Buffer(0, form.accumulator, size, "in")]
        outputs = []
        for result in self.region.results:
            kind = tensor_type(result)
            outputs.append(_buffer(len(buffers), kind, "out"))
            buffers.append(outputs[-1])
        for param in self.operands:
            kind = tensor_type(param)
            made = _buffer(len(buffers), kind, "in")
            buffers.append(made)
            self.elements.bind_buffer(param, made)
        batch, first, last, lead = (b.param(k) for k in range(EPILOGUE_PARAMS))
        rows = sum_of(self.plan, "i")

        def element(j: Expr, offset: Expr | None = None) -> None:
            self.tile_reader(buffers[0], i, j if offset is None else b.add(j, offset), lead)
            index = result_index(b, form, self.plan, {"batch": batch, "i": i, "j": j}, offset)
            for result, buffer in zip(self.region.results, outputs, strict=True):
                value = self.elements.at(result, index)
                position = flat_index(b, index, tensor_type(result).dims)
                store_element(b, buffer, position, value)

        block = self.block()
        with b.loop(rows, "parallel") as i:
            if block < SHORTEST_BLOCK:
                with b.loop(last, "vector", first) as j:
                    element(j)
            else:
                blocks = b.op("idiv", b.sub(last, first), b.integer(block))
                with b.loop(blocks) as number, b.loop(block, "vector") as j:
                    element(b.add(first, b.mul(number, b.integer(block))), j)
        return Kernel(self.name, tuple(buffers), EPILOGUE_PARAMS, b.body, units=rows, strict=strict)

    def block(self) -> int:
        """Columns that a tile is a multiple of and no axis of the result begins or ends within.

        A loop over so many has a constant extent and steps of one: no remainder, no division.
        """
        words = self.plan.params
        block = gcd(words[Word.N], words[Word.UNIT_COLUMNS], words[Word.FINISH_COLUMNS])
        for axes in self.plan.axes.values():
            for which, divisor, extent in axes:
                if which == "j":
                    block = gcd(block, divisor * extent, divisor if divisor > 1 else 0)
        return block

    def tile_reader(self, tile: Buffer, i: Expr, j: Expr, lead: Expr) -> None:
        b = self.b
        element = tensor_type(self.form.node).dtype

        def read(_: tuple[Expr, ...]) -> Expr:
            return b.cast(b.load(tile, b.add(b.mul(i, lead), j)), element)

        self.elements.bind(self.form.node, read)


def result_index(
    b: Scalars, form: Form, plan: contract.Plan, places: dict[str, Expr], offset: Expr | None = None
) -> tuple[Expr, ...]:
    """The result's index tuple from the core's three linear indices, "batch", "i" and "j".

    With an offset the last is "j" + offset, where no axis begins or ends between them.
    """
    axes = result_axes(form)
    made = [b.integer(0)] * tensor_type(form.node).rank
    for role in ("batch", "m", "n"):
        for position, (which, divisor, extent) in enumerate(plan.axes[role]):
            if (role, position) not in axes:
                continue
            axis, step = axes[role, position]
            value = b.op("idiv", places[which], b.integer(divisor))
            if divisor * extent != sum_of(plan, which):
                value = b.op("irem", value, b.integer(extent))
            if which == "j" and divisor == 1 and offset is not None:
                value = b.add(value, offset)
            made[axis] = b.add(made[axis], b.mul(value, b.integer(step)))
    return tuple(made)


def sum_of(plan: contract.Plan, which: str) -> int:
    """The extent of one of the core's linear indices."""
    total = 1
    for axes in plan.axes.values():
        for name, divisor, extent in axes:
            if name == which:
                total = max(total, divisor * extent)
    return total
