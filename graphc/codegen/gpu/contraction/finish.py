"""The rest of a fused region, computed from a finished sum: `finish` in a contraction's source.

    @helper
    def finish(i0, i1, i2, total, a0, a1, a2, status, row):
        x1 = a1[i2]
        a2[i1 * 512 + i2] = maximum_f32(total + x1, np.float32(0.0))

i0, i1 and i2 are the batch, the row and the column of the sum.  Every contraction kernel calls it
once for each sum, and nothing else writes results: what they overwrite may be read here.
"""

from __future__ import annotations

from graphc.codegen.gemm.form import Axis, axes_of
from graphc.codegen.gpu.contraction.tile_choice import Cut
from graphc.codegen.gpu.emit import GpuKernel
from graphc.codegen.gpu.thread_map import Shape
from graphc.codegen.lowering.contraction import Form, result_axes
from graphc.codegen.lowering.evaluate import (
    Element,
    Elements,
    flat_index,
    store_element,
    tensor_type,
)
from graphc.codegen.python.scalar import ATOM, LOOSE, Text
from graphc.ir.graph import Graph
from graphc.ir.types import I32, I64, U32, DType
from graphc.loops.nest import Buffer, Expr, Kernel, Scalars
from graphc.loops.scalars import Pair

LANE = Shape(1, 1, 1, frozenset(), barriers=False, warp=1)


def accumulator_of(dtype: DType) -> DType:
    """The type sums are held in: what products of the type need, and 32 bits at least."""
    if dtype.is_integer and dtype.bits < 32:
        return I32 if dtype.kind == "i" else U32
    return dtype.compute


def buffers_of(region: Graph) -> tuple[Buffer, ...]:
    """The buffers of a contraction kernel: parameters of the region, then its results."""
    made: list[Buffer] = []
    for mode, nodes in (("in", region.params), ("out", region.results)):
        for node in nodes:
            kind = tensor_type(node)
            factor = 2 if kind.dtype.is_complex else 1
            made.append(Buffer(len(made), kind.dtype.real, kind.size * factor, mode))
    return tuple(made)


class FinishKernel(GpuKernel):
    """Writes `finish`. What is not of the size of a result is read by several elements of it, so no
    result lies there."""

    def write(self, expr: Expr) -> Text:
        if expr.op == "load":
            sizes = {b.size for b in self.kernel.buffers if b.mode == "out"}
            number = expr.data[0]
            if self.kernel.buffers[number].size not in sizes:
                return f"fixed(a{number}, {self.atom(expr.args[0], LOOSE)})", ATOM
        return super().write(expr)


class Finish:
    """Builds and writes `finish` for one region that was cut into tiles."""

    def __init__(self, region: Graph, form: Form, cut: Cut, strict: bool, check: bool) -> None:
        self.region, self.form, self.cut, self.strict = region, form, cut, strict
        self.b = Scalars(check)
        self.buffers = buffers_of(region)
        self.axes = axes_of(form.normal(), cut.groups)
        self.extents = {"batch": cut.batch, "i": cut.m, "j": cut.n}
        self.places = [self.b.make("var", I64, (), k) for k in range(3)]
        self.b.counts["var"] = len(self.places)
        self.total = self.b.make("arg", accumulator_of(self.element), (), "total")

    @property
    def element(self) -> DType:
        return tensor_type(self.form.node).dtype

    def text(self) -> list[str]:
        """The helpers that `finish` needs and the function itself."""
        self.fill()
        kernel = Kernel("finish", self.buffers, 0, self.b.body, strict=self.strict)
        writer = FinishKernel(kernel, LANE)
        writer.values[self.total] = ("total", ATOM)
        for place, extent in zip(self.places, self.extents.values(), strict=True):
            writer.ranges[place] = (0, max(0, extent - 1))
        writer.block(kernel.body)
        names = ["i0", "i1", "i2", "total", *map(repr, self.buffers), "status", "row"]
        head = ["", "@helper", f"def finish({', '.join(names)}):"]
        body = [f"    # {line}" for line in writer.signature()] + writer.lines
        return [*writer.library.parts, "\n".join([*head, *body, ""])]

    def fill(self) -> None:
        """Every result at the place of one sum."""
        b, elements = self.b, Elements(self.b)
        for node, buffer in zip(self.region.params, self.buffers, strict=False):
            elements.bind_buffer(node, buffer)
        elements.bind_value(self.form.node, self.total.cast(self.element))
        index = self.index()
        outputs = self.buffers[len(self.region.params) :]
        values = [elements.at(result, index) for result in self.region.results]
        if len(values) > 1:  # a store may change what another result is computed from
            values = [self.held(value) for value in values]
        for result, buffer, value in zip(self.region.results, outputs, values, strict=True):
            position = flat_index(b, index, tensor_type(result).dims)
            store_element(b, buffer, position, value)

    def held(self, value: Element) -> Element:
        """The value in a register, computed here."""
        if isinstance(value, Pair):
            return Pair(self.held(value.re), self.held(value.im))
        return self.b.read(self.b.register(value))

    def index(self) -> tuple[Expr, ...]:
        """The result's index tuple at the batch, row and column of a sum."""
        b = self.b
        found = result_axes(self.form)
        made = [b.integer(0)] * tensor_type(self.form.node).rank
        for role in ("batch", "m", "n"):
            for position, where in enumerate(self.axes[role]):
                if (role, position) in found:
                    axis, step = found[role, position]
                    made[axis] = made[axis] + self.digit(where) * step
        return tuple(made)

    def digit(self, where: Axis) -> Expr:
        """One dim's part of a batch, row or column number."""
        which, divisor, extent = where
        value = self.places[("batch", "i", "j").index(which)]
        value = value // divisor
        if divisor * extent != self.extents[which]:
            value = value % extent
        return value
