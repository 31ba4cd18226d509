"""Cutting a kernel: the region that computes one block of a fused node's result.

A *cut* says along which axis every loop level cuts a value (-1: not at all).  It is followed from
the result back to the operands.  An operand that is read through views keeps its shape and its
views; a slice takes the first block of what they show, and the operand itself is a window whose
start moves by a fixed step per level:

    scores[b, h, l, s] cut along b, h, l       q[b, l, h, d]  ->  transpose  ->  slice [1, 1, r, d]
    levels (b, 0) (h, 1) (l, 2)                its window moves by 1 along b, h and r along l
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from graphc.base.record import record
from graphc.codegen.lowering.contraction import form_at
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.operands import axis_of, read_of
from graphc.codegen.lowering.space import Space, space_of
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OPS, Contraction, Reduction, Scalar
from graphc.ir.size_answers import by_example
from graphc.ir.types import Type, tensor

Cut = tuple[int, ...]  # for each level the axis it cuts, or -1
Strides = tuple[int, ...]  # for each level the elements that one step along it moves a window
Demand = tuple[bool, tuple[int, ...]]  # (True, cut) of a value or (False, strides) of its window


class Uncuttable(Exception):
    """The kernel does not compute blocks: not an error, it then runs whole."""


@record(frozen=True)
class Level:
    """One loop over blocks: `count` blocks of `size` that start `step` apart along an axis.

    A step below the size makes blocks overlap, which lets them cover any extent.
    """

    size: int
    step: int
    count: int


def block_type(kind: Type, cut: Cut, levels: tuple[Level, ...]) -> Type:
    dims = list(kind.dims)
    for axis, level in zip(cut, levels, strict=True):
        if axis >= 0:
            dims[axis] = level.size
    return tensor(kind.dtype, dims)


class Cutter:
    """What a fused node has to compute, and to read, for one block of each of its results.

    `inside` holds the operands that exist only as blocks.  Raises Uncuttable.
    """

    def __init__(self, fused: Node, cuts: tuple[Cut, ...], inside: frozenset[Node]) -> None:
        self.fused = fused
        self.region = fused.regions[0]
        self.inside = inside
        self.params = set(self.region.params)
        self.demands: dict[Node, dict[Demand, None]] = {}
        self.blocks = {
            param
            for param, operand in zip(self.region.params, fused.inputs, strict=True)
            if operand in inside
        }
        self.results = [(r, demand_of(c)) for r, c in zip(self.region.results, cuts, strict=True)]
        for result, demand in self.results:
            self.need(result, demand)
        for node in reversed((*self.region.params, *self.region.nodes)):
            self.visit(node)
        self.check_inside()

    def visit(self, node: Node) -> None:
        """Pass on what is needed of a node; its readers were visited before."""
        if is_view(node) and node not in self.blocks:
            for blocks, cut in list(self.demands.get(node, ())):
                if blocks:
                    self.need(node, (False, self.window(node, cut)))
        for demand in self.demands.get(node, ()):
            if not (demand[0] and is_view(node)):
                for source, wanted in zip(node.inputs, self.operands(node, demand), strict=True):
                    self.need(source, wanted)

    def need(self, node: Node, demand: Demand) -> None:
        self.demands.setdefault(node, {})[demand] = None

    def check_inside(self) -> None:
        for node, demands in self.demands.items():
            if isinstance(node.op.lower, Contraction) and len(demands) > 1:
                raise Uncuttable("a product is needed whole and in blocks")
            if isinstance(node.op.lower, Reduction) and not all(blocks for blocks, _ in demands):
                raise Uncuttable("a fold of whole rows is no part of a block of their columns")
        if any(isinstance(node.op.lower, Reduction) for node in self.region.nodes):
            self.check_rows(space_of(self.region))
        for param in self.blocks:
            if len(self.demands.get(param, ())) != 1 or not self.cut_of(param)[0]:
                raise Uncuttable("a block is read as a whole")

    def check_rows(self, space: Space) -> None:
        """A kernel has one space: no result is a block of the columns of rows that it folds."""
        for result, (blocks, cut) in self.results:
            if blocks and space.is_full(result) and not space.reduced.isdisjoint(cut):
                raise Uncuttable("rows that are folded are cut along their columns")

    def cut_of(self, param: Node) -> Demand:
        return next(iter(self.demands[param]))

    def cuts(self) -> dict[Node, Cut]:
        """The cut of every operand that exists only as blocks."""
        pairs = zip(self.region.params, self.fused.inputs, strict=True)
        return {operand: self.cut_of(p)[1] for p, operand in pairs if operand in self.inside}

    # -- from a value to its operands

    def operands(self, node: Node, demand: Demand) -> list[Demand]:
        """What a node needs of its operands."""
        blocks, numbers = demand
        if not blocks:
            return [demand] * len(node.inputs)
        if isinstance(node.op.lower, Scalar):
            return [demand_of(broadcast_cut(node, source, numbers)) for source in node.inputs]
        if isinstance(node.op.lower, Reduction):
            return [demand_of(reduction_cut(node, numbers))]
        return [demand_of(cut) for cut in contraction_cuts(node, numbers)]

    def window(self, node: Node, cut: Cut) -> Strides:
        """How far a step along each level moves what a view reads."""
        read = read_of(node, lambda source: source in self.params)
        if read is None:
            raise Uncuttable(f"{node.op.name} is not read in steps")
        moves = tuple(read.strides[axis] if axis >= 0 else 0 for axis in cut)
        if any(move < 0 for move in moves):
            raise Uncuttable(f"{node.op.name} is read backwards")
        return moves

    def read_again(self, levels: tuple[Level, ...]) -> int:
        """Bytes that every block along the last level reads, although the one before did too."""
        total = 0
        for node, demands in self.demands.items():
            for blocks, numbers in demands:
                if not blocks and node in self.params and not any(numbers):
                    total += tensor_type(node).nbytes
                shown = blocks and is_view(node) and node not in self.blocks
                if shown and not self.window(node, numbers)[-1]:
                    total += block_type(tensor_type(node), numbers, levels).nbytes
        return total

    # -- emission

    def windows(self) -> list[tuple[Node, Demand]]:
        """The (operand, demand) pairs that the block's kernel reads, in order."""
        return [
            (operand, demand)
            for param, operand in zip(self.region.params, self.fused.inputs, strict=True)
            for demand in self.demands.get(param, ())
            if not demand[0] or operand in self.inside
        ]

    def emit(self, levels: tuple[Level, ...]) -> Graph:
        """The region of one block; its params are the `windows`."""
        made: dict[tuple[Node, Demand], Node] = {}
        params: list[Node] = []
        op = OPS["param"]
        for param, operand in zip(self.region.params, self.fused.inputs, strict=True):
            for demand in self.demands.get(param, ()):
                kind = tensor_type(param)
                if operand in self.inside:
                    kind = block_type(kind, demand[1], levels)
                elif demand[0]:
                    continue
                attrs = op.coerce({"name": f"p{len(params)}"})
                made[param, demand] = Node(len(params), op, (), attrs, kind)
                params.append(made[param, demand])
        builder = Builder(len(params))
        for node in (*self.region.params, *self.region.nodes):
            for demand in sorted(self.demands.get(node, ()), key=itemgetter(0)):
                if (node, demand) not in made:
                    made[node, demand] = self.copy(builder, node, demand, levels, made)
        self.check_views(builder.nodes, set(params))
        results = tuple(made[result] for result in self.results)
        return Graph("f", tuple(params), builder.nodes, results)

    def copy(
        self,
        builder: Builder,
        node: Node,
        demand: Demand,
        levels: tuple[Level, ...],
        made: Mapping[tuple[Node, Demand], Node],
    ) -> Node:
        """The node on what its operands have become, or the first block of what a view shows."""
        if demand[0] and is_view(node):
            dims = block_type(tensor_type(node), demand[1], levels).dims
            zeros, ones = (0,) * len(dims), (1,) * len(dims)
            whole = made[node, (False, self.window(node, demand[1]))]
            attrs = {"starts": zeros, "stops": dims, "steps": ones}
            with by_example():  # no block is larger than the whole
                return builder.emit(OPS["slice"], (whole,), attrs, loc=node.loc)
        wanted = self.operands(node, demand)
        inputs = [made[pair] for pair in zip(node.inputs, wanted, strict=True)]
        copied = builder.emit(node.op, inputs, node.attrs, loc=node.loc)
        kind = tensor_type(node)
        if copied.type is not (block_type(kind, demand[1], levels) if demand[0] else kind):
            raise Uncuttable(f"{node.op.name} does not compute blocks")
        return copied

    def check_views(self, nodes: list[Node], params: set[Node]) -> None:
        for node in nodes:
            contracts = isinstance(node.op.lower, Contraction)
            if contracts and form_at(node, params.__contains__) is None:
                raise Uncuttable("an operand's block does not fold into strides")


def is_view(node: Node) -> bool:
    """Read through its index map, not computed."""
    return not isinstance(node.op.lower, Scalar | Reduction | Contraction)


def demand_of(cut: Cut) -> Demand:
    """A value that no level cuts is needed as it is, whatever the block."""
    return (True, cut) if any(axis >= 0 for axis in cut) else (False, (0,) * len(cut))


def broadcast_cut(node: Node, source: Node, cut: Cut) -> Cut:
    """Operands are aligned at the right; one that is repeated along an axis is not cut there."""
    dims = tensor_type(source).dims
    shift = tensor_type(node).rank - len(dims)
    return tuple(a - shift if a >= shift and dims[a - shift] != 1 else -1 for a in cut)


def reduction_cut(node: Node, cut: Cut) -> Cut:
    axes = set(node.attrs["axes"])
    rank = tensor_type(node.inputs[0]).rank
    kept = [a for a in range(rank) if a not in axes]
    if node.attrs["keepdims"]:
        kept = list(range(rank))
    if any(a >= 0 and kept[a] in axes for a in cut):
        raise Uncuttable("a reduced axis is cut")
    return tuple(kept[a] if a >= 0 else -1 for a in cut)


def contraction_cuts(node: Node, cut: Cut) -> tuple[Cut, Cut]:
    """Each cut axis of the result must be one dim of the contraction in full."""
    lower = node.op.lower
    assert isinstance(lower, Contraction)
    dims, loops = tensor_type(node).dims, lower.dims(node)
    found: tuple[list[int], list[int]] = ([], [])
    for axis in cut:
        along = [d for d in loops if axis >= 0 and axis_of(d[1], d[4], dims) == axis]
        if axis >= 0 and len(along) != 1:
            raise Uncuttable("a cut axis is no dim of the contraction")
        _, extent, *strides = along[0] if along else ("", 0, 0, 0, 0)
        for operand, axes, stride in zip(node.inputs, found, strides, strict=False):
            place: int | None = -1
            if stride:
                place = axis_of(extent, stride, tensor_type(operand).dims)
            if place is None:
                raise Uncuttable("a cut dim is no axis of an operand")
            axes.append(place)
    return tuple(found[0]), tuple(found[1])
