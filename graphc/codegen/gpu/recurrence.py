"""Scans that are one kernel on a GPU: each element of the carries goes through all rounds alone.

    parallel for i in 0..n:                  c' = f(c, x[t]),  y[t] = c'
        r = start[i]
        for t in 0..length:
            r = f(r, x[t, i])
            y[t, i] = r
        last[i] = r

The kernels of the body compute element by element, and read carries, and each other, only where
they write; slices, and what is the same in all rounds, they may read anywhere.  Slices of several
rounds are loaded before the first of those is computed: nothing else hides how long memory takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.emit import launches_of
from graphc.codegen.gpu.specs import spec
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import (
    Element,
    Elements,
    Index,
    flat_index,
    load_element,
    split_index,
    store_element,
    tensor_type,
)
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.lowering.space import Space
from graphc.codegen.spec import Spec, rules
from graphc.config import Config
from graphc.ir.graph import Node
from graphc.ir.liveness import memory
from graphc.ir.op import Alias, Compute, Scalar
from graphc.ir.types import Type, leaves
from graphc.loops.nest import Expr, Register


class _Together(Exception):
    """The elements of a carry do not go through the rounds alone."""


def recurrence(loop: Node, config: Config) -> tuple[Spec, tuple[Node, ...]] | None:
    """The kernel of a scan, and constants of its body that are operands after those of the scan;
    None for one that is no such kernel.
    """
    if config.check_finite or not _suits(loop):
        return None
    kernels = _kernels(loop)
    if not kernels:
        return None
    made = Recurrence(loop, kernels, config)
    try:
        lowered = made.lower()
    except _Together:
        return None
    operands = [("in", k, 0) for k in range(len(made.given))]
    operands += [("out", k, 0) for k in range(len(made.last))]
    launches, workspace = launches_of(lowered, tuple(operands), chip_of(config.target))
    return (spec(launches, 0), made.constants) if not workspace else None


def _suits(loop: Node) -> bool:
    """Whether the rounds are known and the carries arrays of one shape, of plain numbers."""
    length, count = loop.attrs["length"], loop.attrs["carries"]
    kinds = [node.type for node in (*loop.inputs, *loop.regions[0].params)]
    kinds += leaves(loop.type)
    if not all(isinstance(kind, Type) and kind.is_static for kind in kinds):
        return False
    carried = [tensor_type(param) for param in loop.regions[0].params[:count]]
    return (
        isinstance(length, int)
        and 2 <= length <= tuned.kernel_rounds
        and bool(carried)
        and all(kind.dims == carried[0].dims and kind.size > 0 for kind in carried)
        and all(_is_plain(kind) for kind in carried)
    )


def _is_plain(kind: Type) -> bool:
    """Whether a register holds an element as memory does."""
    return kind.dtype.kind in "iuf" and kind.dtype.compute is kind.dtype


def _kernels(loop: Node) -> list[Node]:
    """The kernels of a body, if they compute element by element."""
    body = loop.regions[0]
    found = [n for n in body.nodes if not isinstance(n.op.lower, Alias) and not n.op.traits.idle]
    kernels = [n for n in found if not (n.op.traits.item or n.op.traits.stored)]
    return kernels if all(map(_is_pointwise, kernels)) else []


def _is_pointwise(kernel: Node) -> bool:
    if not kernel.op.traits.kernel or kernel.attrs["kind"] != "loop":
        return False
    return all(
        isinstance(n.op.lower, Scalar | Compute | Alias) or n.op.traits.constant
        for n in kernel.regions[0].nodes
    )


class Recurrence(Nest):
    """Lowers a scan whose body is made of such kernels."""

    def __init__(self, loop: Node, kernels: Sequence[Node], config: Config) -> None:
        self.dims = tensor_type(loop.regions[0].params[0]).dims
        space = Space(self.dims, frozenset(), ())
        super().__init__(kernels[0].regions[0], space, "kernel", **rules(config))
        self.loop, self.kernels = loop, kernels
        self.length, self.reverse = loop.attrs["length"], loop.attrs["reverse"]
        self.carries = loop.attrs["carries"]
        self.slices = range(self.carries, self.carries + loop.attrs["scanned"])
        self.sources = [memory(node)[0] for kernel in kernels for node in kernel.inputs]
        self.constants = tuple(n for n in dict.fromkeys(self.sources) if n.op.traits.stored)
        params = (*loop.regions[0].params, *self.constants)
        self.place = {node: k for k, node in enumerate(params)}
        self.registers: list[Register] = []

    def declare(self) -> None:
        operands = (*self.loop.inputs, *self.constants)
        given = [tensor_type(node) for node in operands]
        made = [kind for kind in leaves(self.loop.type) if isinstance(kind, Type)]
        self.given = [self.buffer(kind.dtype, kind.size, "in") for kind in given]
        self.last = [self.buffer(kind.dtype, kind.size, "out") for kind in made]

    def body(self) -> None:
        b = self.b
        self.units = math.prod(self.dims)
        work = max(1, sum(len(kernel.regions[0].nodes) for kernel in self.kernels))
        ahead = max(1, min(tuned.rounds_ahead, tuned.round_nodes // work, self.length))
        with b.loop(self.units, "parallel") as unit:
            self.unit = unit
            self.registers = [b.register(b.load(g, unit)) for g in self.given[: self.carries]]
            whole = self.length // ahead
            with b.loop(whole) as turn:
                self.rounds(turn * ahead, ahead)
            self.rounds(b.integer(whole * ahead), self.length % ahead)
            for register, buffer in zip(self.registers, self.last, strict=False):
                b.store(buffer, unit, b.read(register))

    def rounds(self, first: Expr, count: int) -> None:
        """Some rounds, one after another; what they read of slices comes before."""
        b = self.b
        steps = [first + k for k in range(count)]
        if self.reverse:
            steps = [b.integer(self.length - 1) - step for step in steps]
        wanted = {self.place.get(source, -1) for source in self.sources} & set(self.slices)
        near = [k for k in sorted(wanted) if self.slice(k).dims == self.dims]
        loaded = [
            {k: b.register(b.load(self.given[k], step * self.units + self.unit)) for k in near}
            for step in steps
        ]
        for step, values in zip(steps, loaded, strict=True):
            self.round(step, values)

    def round(self, step: Expr, near: dict[int, Register]) -> None:
        b, body = self.b, self.loop.regions[0]
        self.computed: dict[Node, Elements] = {}
        self.kept: dict[tuple[Node, int], Register] = {}
        for kernel in self.kernels:
            region, elements = kernel.regions[0], Elements(b)
            for param, source in zip(region.params, kernel.inputs, strict=False):
                elements.bind(param, self.reader(param, source, step, near))
            self.computed[kernel] = elements
            for leaf, result in enumerate(region.results):
                kind = tensor_type(result)
                if kind.dims == self.dims and _is_plain(kind):
                    self.kept[kernel, leaf] = b.register(self.element(kernel, leaf, self.unit))
        made = [self.element(*memory(result), self.unit) for result in body.results]
        if any(tensor_type(result).size != self.units for result in body.results):
            raise _Together
        stacked = zip(made[self.carries :], self.last[self.carries :], strict=True)
        for value, buffer in stacked:
            store_element(b, buffer, step * self.units + self.unit, value)
        fresh = [b.register(value) for value in made[: self.carries]]
        for register, new in zip(self.registers, fresh, strict=True):
            b.assign(register, b.read(new))

    def element(self, source: Node, leaf: int, position: Expr) -> Element:
        """What a kernel of this round computes, or a carry as it was, at a position."""
        here = position is self.unit or self.units == 1
        if here and (source, leaf) in self.kept:
            return self.b.read(self.kept[source, leaf])
        if source in self.computed:
            result = source.regions[0].results[leaf]
            index = split_index(self.b, position, tensor_type(result).dims)
            return self.computed[source].at(result, tuple(index))
        if not here or self.place.get(source, self.carries) >= self.carries:
            raise _Together
        return self.b.read(self.registers[self.place[source]])

    def reader(
        self, param: Node, source: Node, step: Expr, near: dict[int, Register]
    ) -> Callable[[Index], Element]:
        """How a kernel reads a parameter: what goes by itself, a slice of a step, or what stays."""
        b, kind = self.b, tensor_type(param)
        root, leaf = memory(source)
        place = self.place.get(root, -1)
        start = step * self.slice(place).size if place in self.slices else b.integer(0)

        def read(index: Index) -> Element:
            position = flat_index(b, index, kind.dims)
            if place < self.carries:
                return self.element(root, leaf, position)
            if position is self.unit and place in near:
                return b.read(near[place])
            return load_element(b, self.given[place], start + position, kind.dtype)

        return read

    def slice(self, place: int) -> Type:
        """What a round reads of a scanned operand."""
        return tensor_type(self.loop.regions[0].params[place])
