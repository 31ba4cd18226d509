"""From a fused contraction to calls of the contraction core, with the rest of the region as its
epilogue.

The core computes tiles of sums; the epilogue is a loop kernel over a finished tile that evaluates
the region's element-wise nodes and stores every result:

    buffers   tile, first result, further results, operands
    params    batch, j0, j1, leading stride
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

from graphc.base.record import record
from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Word
from graphc.codegen.lowering.evaluate import Elements, flat_index, store_element, tensor_type
from graphc.codegen.lowering.operands import Dims, Read, folded_dims, meet, read_of
from graphc.codegen.lowering.space import dims_of
from graphc.codegen.tuning import tuned
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Contraction, Reduction, Scalar
from graphc.ir.size_divisors import common
from graphc.ir.types import DType, Type
from graphc.loops.nest import Buffer, Expr, Kernel, Scalars
from graphc.loops.scalars import maximum, minimum
from graphc.ops.record.dims import row_major_strides

EPILOGUE_PARAMS = 4


@record(frozen=True)
class Form:
    """A region's contraction: its node, how its operands read memory, and its dims by role.

    What an operand reads is `computed` by a prologue, in blocks, if it is not stored. Each axis of
    what the region stores is the one of the contraction that `shown` says. A region that reduces
    has `whole_rows` finished at once; one that is `plain` stores the sums.
    """

    node: Node
    reads: tuple[Read, Read]
    dims: Dims
    computed: tuple[bool, bool]
    shown: tuple[int, ...]
    whole_rows: bool = False
    plain: bool = False

    def role(self, name: str) -> tuple[contract.Dim, ...]:
        return tuple(contract.Dim(e, a, b, c) for role, e, a, b, c in self.dims if role == name)

    @property
    def element(self) -> DType:
        """The type of both operands in memory (or i8 and u8); the result may have the type of the
        sums."""
        return tensor_type(self.reads[0].source).dtype

    @property
    def core(self) -> str:
        """The name of the core that computes it: small integers are summed in wider ones."""
        sums = tensor_type(self.node).dtype
        if self.element is sums or self.element.kind == "f":
            return self.element.name
        other = tensor_type(self.reads[1].source).dtype
        return f"{self.element}{'' if other is self.element else other}_{sums}"

    @property
    def rounds(self) -> bool:
        """Would the core round its sums to the type of the operands, which the result is not of?"""
        sums = tensor_type(self.node).dtype
        return self.element is not sums and sums.kind == "f"

    @property
    def accumulator(self) -> DType:
        return tensor_type(self.node).dtype.compute

    def normal(self) -> contract.NormalForm:
        return contract.NormalForm(
            self.core,
            self.role("batch"),
            self.role("m"),
            self.role("n"),
            self.role("k"),
            self.reads[0].offset,
            self.reads[1].offset,
            whole_rows=self.whole_rows,
            prepacked=(self.reads[0].is_packed, self.reads[1].is_packed),
            plain=self.plain,
        )


def form_of(region: Graph) -> Form:
    """The contraction of a region. Raises GraphError where its operands' views do not fold."""
    node = next(n for n in region.nodes if isinstance(n.op.lower, Contraction))
    params = set(region.params)

    def stored(source: Node) -> bool:
        return source in params or source.op.traits.unpacks

    form = form_at(node, stored)
    if form is None:
        raise GraphError("a contraction cannot read these views", location=node.loc)
    axes, dims = arrangement(region) or form.shown, form.dims
    if axes != form.shown:
        steps = row_major_strides(tensor_type(region.results[0]).dims)
        strides = tuple(steps[axes.index(axis)] for axis in range(len(axes)))
        dims = restrided(form, strides)
    plain = region.results == (node,)
    return Form(node, form.reads, dims, form.computed, axes, reduces(region), plain)


def reduces(region: Graph) -> bool:
    """Does a region reduce the result of its contraction?"""
    return any(isinstance(n.op.lower, Reduction) for n in region.nodes)


def arrangement(region: Graph) -> tuple[int, ...] | None:
    """For each axis of a region's result the axis of the contraction that it shows.

    None if the result is not one element of the contraction at each place, in some order of axes.
    """
    found: dict[Node, tuple[int, ...] | None] = {}
    for node in region.nodes:
        if isinstance(node.op.lower, Contraction):
            found[node] = tuple(range(tensor_type(node).rank))
        reached = [n for n in node.inputs if n in found]
        if not reached:
            continue
        axes = found[reached[0]]
        same = all(found[n] == axes and dims_of(n) == dims_of(node) for n in reached)
        if axes is not None and node.op.traits.permutes:
            found[node] = tuple(axes[k] for k in node.attrs["perm"])
        else:
            found[node] = axes if same and is_scalar(node) else None
    return found.get(region.results[0])


def restrided(form: Form, strides: tuple[int, ...]) -> Dims:
    """The dims of a contraction whose result has these strides, one for each of its axes."""
    places = axes_along(form, 2)
    counts: dict[str, int] = {}
    made: Dims = []
    for role, extent, a, b, c in form.dims:
        position = counts.get(role, 0)
        counts[role] = position + 1
        if (role, position) in places:
            axis, step = places[role, position]
            c = strides[axis] * step
        made.append((role, extent, a, b, c))
    return made


def form_at(node: Node, stored: Callable[[Node], bool]) -> Form | None:
    """A contraction as the core runs it; None where an operand's views do not fold.

    An operand is stored, widened while it is read as the other one is, or computed by a prologue.
    """
    left, right = (read_of(n, stored, widens=True) for n in node.inputs)
    if left is None or right is None or not meet(left.dtype, right.dtype):
        left, right = (read_of(n, lambda s: stored(s) or is_scalar(s)) for n in node.inputs)
    if left is None or right is None:
        return None
    dims = folded_dims(node, {0: left, 1: right})
    computed = not stored(left.source), not stored(right.source)
    axes = tuple(range(tensor_type(node).rank))
    return None if dims is None else Form(node, (left, right), dims, computed, axes)


def is_scalar(node: Node) -> bool:
    return isinstance(node.op.lower, Scalar)


def axes_along(form: Form, which: int) -> dict[tuple[str, int], tuple[int, int]]:
    """(role, position) -> (axis it runs along, how far one step goes there), of one of the operands
    (0, 1) or of the result (2).

    Several dims may share an axis: the groups of a convolution and the channels of a group.
    """
    node = form.node
    lower = node.op.lower
    assert isinstance(lower, Contraction)
    dims = tensor_type((*node.inputs, node)[which]).dims
    found: dict[tuple[str, int], tuple[int, int]] = {}
    counts: dict[str, int] = {}
    for role, extent, *strides in lower.dims(node):
        position = counts.get(role, 0)
        counts[role] = position + 1
        if strides[which] == 0 or extent == 1:
            continue
        for axis, step in enumerate(row_major_strides(dims)):
            if step <= strides[which] < step * dims[axis]:
                found[role, position] = axis, strides[which] // step
    return found


def result_axes(form: Form) -> dict[tuple[str, int], tuple[int, int]]:
    """Where the dims of a contraction lie in its result."""
    return axes_along(form, 2)


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
        across, along = self.sides()
        rows, run = sum_of(self.plan, across), self.plan.run

        def element(j: Expr, offset: Expr | None = None, number: Expr | None = None) -> None:
            self.tile_reader(buffers[0], i, j if offset is None else j + offset, lead)
            places = {"batch": batch, across: i, along: j}
            if number is not None:
                places |= {"run": number, along: j - number * run}
            index = index_at(b, form, 2, self.plan, places, offset)
            index = tuple(index[axis] for axis in form.shown)
            for result, buffer in zip(self.region.results, outputs, strict=True):
                value = self.elements.at(result, index)
                position = flat_index(b, index, tensor_type(result).dims)
                store_element(b, buffer, position, value)

        block = self.block()
        with b.loop(rows, "parallel") as i:
            if run:
                with b.loop((last - 1) // run + 1, "serial", first // run) as number:
                    start, stop = maximum(first, number * run), minimum(last, (number + 1) * run)
                    with b.loop(stop, "vector", start) as j:
                        element(j, number=number)
            elif block < tuned.epilogue_block:
                with b.loop(last, "vector", first) as j:
                    element(j)
            else:
                blocks = (last - first) // block
                with b.loop(blocks) as number, b.loop(block, "vector") as j:
                    element(first + number * block, j)
        return Kernel(
            self.name,
            tuple(buffers),
            EPILOGUE_PARAMS,
            b.body,
            units=rows,
            strict=strict,
            sizes=tuple(b.sizes),
            sizes_at=len(self.plan.params),
        )

    def sides(self) -> tuple[str, str]:
        """What of the core's linear indices counts rows of a tile, and what their elements."""
        return ("j", "i") if self.plan.turned else ("i", "j")

    def block(self) -> int:
        """Columns that a tile is a multiple of and no axis of the result begins or ends within.

        A loop over so many has a constant extent and steps of one: no remainder, no division.
        """
        words, along = self.plan.params, self.sides()[1]
        block = common(words[Word.N], words[Word.UNIT_COLUMNS], words[Word.FINISH_COLUMNS])
        if self.plan.turned:
            block = common(words[Word.M], words[Word.UNIT_ROWS], words[Word.ROW_BLOCK])
        for axes in self.plan.axes.values():
            for which, divisor, extent in chain.from_iterable(axes):
                if which == along:
                    block = common(block, divisor * extent, divisor if divisor > 1 else 0)
        return block

    def tile_reader(self, tile: Buffer, i: Expr, j: Expr, lead: Expr) -> None:
        b = self.b
        element = tensor_type(self.form.node).dtype
        if len(self.region.results) == 1:
            self.elements.bind(self.form.node, lambda _: b.load(tile, i * lead + j).cast(element))
            return
        # The first result may lie where the sums do, and not need them: a part of a complex number.
        kept = b.register(b.load(tile, i * lead + j))
        self.elements.bind(self.form.node, lambda _: b.read(kept).cast(element))


def index_at(
    b: Scalars,
    form: Form,
    which: int,
    plan: contract.Plan,
    places: dict[str, Expr],
    offset: Expr | None = None,
) -> tuple[Expr, ...]:
    """The index tuple of an operand (0, 1) or the result (2) from the core's linear indices.

    Those are "batch", "i", "run", "j" and "k". With an offset the column is "j" + offset, where no
    axis begins or ends between them: the row, of a plan that is turned.
    """
    axes, along = axes_along(form, which), "i" if plan.turned else "j"
    made = [b.integer(0)] * tensor_type((*form.node.inputs, form.node)[which]).rank
    for role, groups in plan.axes.items():
        parts = [(position, part) for position, each in enumerate(groups) for part in each]
        for position, (name, divisor, extent) in parts:
            if (role, position) not in axes:
                continue
            axis, step = axes[role, position]
            value = places[name] // divisor
            if divisor * extent != sum_of(plan, name):
                value = value % extent
            if name == along and divisor == 1 and offset is not None:
                value = value + offset
            made[axis] = made[axis] + value * step
    return tuple(made)


def sum_of(plan: contract.Plan, which: str) -> int:
    """The extent of one of the core's linear indices."""
    return math.prod(
        extent
        for axes in plan.axes.values()
        for name, _, extent in chain.from_iterable(axes)
        if name == which
    )
