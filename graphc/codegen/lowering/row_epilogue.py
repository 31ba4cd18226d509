"""Finished rows: the epilogue of a contraction that also reduces each row of its result.

The core hands over whole rows of sums while they are in the cache, and the passes of `Rows` run
over each of them as if the tile were an operand:

    for i in rows of the tile:  softmax(x @ w):     pass 0    max
      for level p:                                  pass 1    e = exp(sum - max), staged; sum
        for j in columns: fold, stage, store        pass 2    e / sum

Sums stay apart from the results, because a pass may store what a later one would read.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from graphc.codegen import gemm as contract
from graphc.codegen.lowering.contraction import (
    EPILOGUE_PARAMS,
    Form,
    form_at,
    index_at,
    is_scalar,
    params_beside,
    sum_of,
)
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.rows import Rows
from graphc.codegen.lowering.space import dims_of, space_of
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import root
from graphc.ir.op import Contraction
from graphc.ir.sizes import far_of
from graphc.loops.nest import Buffer, Expr


def finishes_rows(nodes: Iterable[Node], axes: frozenset[int]) -> bool:
    """Should the core finish whole rows of the contraction among some nodes? `axes` are a row's."""
    node = next(n for n in nodes if isinstance(n.op.lower, Contraction))
    dims = dims_of(node)
    many = far_of(math.prod(dims[: len(dims) - len(axes)])) >= tuned.epilogue_rows
    return many and covers_rows(node, axes)


def covers_rows(node: Node, axes: Collection[int]) -> bool:
    """Should the core finish whole rows of a contraction? `axes` are a row's.

    It does if it can, and rows are neither short nor long and their operands stay near.
    """
    if not has_rows(node, axes):
        return False
    assert isinstance(node.op.lower, Contraction)
    row = math.prod(dims_of(node)[-len(axes) :])
    shared = row * math.prod(d[1] for d in node.op.lower.dims(node) if d[0] == "k")
    near: bool = far_of(shared) <= tuned.epilogue_operand
    pays: bool = tuned.epilogue_shortest <= far_of(row) <= tuned.epilogue_longest
    return near and pays and not turns_panels(node)


def turns_panels(node: Node) -> bool:
    """Do whole rows keep a constant from being the panels that would fill more lanes?

    The rows are along the vectors: 49 elements fill 49 of 64 lanes, where those of the constant
    may fill all, and the reduction as a kernel of its own costs less than that.
    """
    widened = [source for source in node.inputs if is_scalar(source)]
    form = form_at(node, lambda source: source not in widened)
    if form is None:
        return False
    left, right = (root(read.source).op.traits.constant for read in form.reads)
    apart = form.normal()._replace(prepacked=(left, right))
    machine = contract.host_target()
    given = contract.panels_of(apart, machine)
    kept = contract.panels_of(apart._replace(whole_rows=True), machine)
    return given is not None and kept is not None and given.operand != kept.operand


def has_rows(node: Node, axes: Collection[int]) -> bool:
    """Are the columns of the core exactly the elements of a row, so that one unit has them all?"""
    lower, dims = node.op.lower, dims_of(node)
    assert isinstance(lower, Contraction)
    first = len(dims) - len(axes)
    row = math.prod(dims[first:])
    if not axes or frozenset(axes) != frozenset(range(first, len(dims))):
        return False
    found = [d for d in lower.dims(node) if d[1] != 1]
    inside = [d for d in found if d[0] != "k" and d[4] < row]  # d[4] is how far a step goes
    role = inside[0][0] if inside else ""
    whole = inside == [d for d in found if d[0] == role]
    if role not in ("m", "n") or (role == "m" and any(d[0] == "batch" for d in found)):
        return False  # the core makes columns of n, or of m without the batch if n has no unit step
    return whole


class FinishedRows(Rows):
    """Builds the epilogue kernel of a region that reduces, for a plan with whole rows."""

    params = EPILOGUE_PARAMS

    def __init__(
        self,
        region: Graph,
        form: Form,
        plan: contract.Plan,
        name: str,
        strict: bool,
        check_finite: bool = False,
    ) -> None:
        self.form, self.plan = form, plan
        self.operands = params_beside(region, form)
        region = after_contraction(region, form.node, self.operands)
        super().__init__(region, space_of(region), name, strict, check_finite)
        self.sizes_at = len(plan.params)

    def declare(self) -> None:
        """Tile, results, operands: the order that the core passes them in."""
        size = tensor_type(self.form.node).size
        self.buffers.append(Buffer(0, self.form.accumulator, size, "in"))
        self.declare_results()
        self.declare_params(self.operands)

    def body(self) -> None:
        b = self.b
        batch, _, _, lead = (b.param(k) for k in range(4))
        self.registers = {}
        self.units = sum_of(self.plan, "i")
        inner = [loop for loop in self.space.loops if loop.reduced]
        with b.loop(self.units, "parallel") as i:
            self.bind_tile(i * lead)
            places = {"batch": batch, "i": i, "j": b.integer(0)}
            index = index_at(b, self.form, 2, self.plan, places)
            self.row({axis: index[axis] for axis in self.space.kept}, inner)

    def bind_tile(self, start: Expr) -> None:
        """Read the contraction's node from the row of sums that begins there."""
        b, element = self.b, tensor_type(self.form.node).dtype

        def read(index: tuple[Expr, ...]) -> Expr:
            place = start + self.row_position(dict(enumerate(index)))
            return b.load(self.buffers[0], place).cast(element)

        self.elements.bind(self.form.node, read)


def after_contraction(region: Graph, node: Node, operands: list[Node]) -> Graph:
    """What the results of a region need besides its contraction, which becomes a parameter."""
    needed = set(region.results)
    nodes = []
    for one in reversed(region.nodes):
        if one in needed and one is not node:
            needed.update(one.inputs)
            nodes.append(one)
    return region.replace(params=(node, *operands), nodes=nodes[::-1])
