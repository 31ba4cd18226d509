"""What one kernel may be: the shape of a fused region that the code generator can be given.

A region is a typed graph, and any typed graph has a meaning; a kernel has less freedom.  It runs
one nest of loops over a space F, some axes R of which may be reduced:

    full     dims F                    once per element
    row      dims F with 1 at R, or F without R     once per row: reductions, and what follows them

What is a view (an index map over operands) may have any dims: it is pulled at whatever index its
reader wants.  Everything else is computed at the present element or row and nowhere else, so it
must be read there.  `problem` says what breaks this.  With it, and the type rules, a kernel

    reads    only elements inside its operands, at positions that come from loop variables and from
             checked indices, never an address from data
    writes   each element of each result, each at its place, and nothing else

whoever wrote the region.  `blocked_problem` does the same for blocks: they cover the result, and no
window that moves is read but by kernels.  The rules here know nothing of how groups are found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from graphc.codegen.lowering.operands import read_of
from graphc.codegen.lowering.row_epilogue import has_rows
from graphc.errors import VerifyError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Contraction, Effect, Library, Loops, Reduction, Scalar
from graphc.ir.types import TupleType, Type, leaves
from graphc.ops.record.structural import moves_of

SPECIAL = {"contract": Contraction, "staged": Contraction, "library": Library, "nest": Loops}
Dims = tuple[int, ...]


def check_kernel(node: Node, region: Graph) -> None:
    """Raise VerifyError, with the user's line, for a region that is no kernel of the node's kind.

    `region` is without the parameter for workspace.
    """
    found = problem(node.attrs["kind"], region)
    if found is not None:
        _refuse(node, found)


def check_blocked(node: Node) -> None:
    """Raise VerifyError for a node that cannot run in blocks as it says."""
    found = blocked_problem(node)
    if found is not None:
        _refuse(node, found)


def _refuse(node: Node, reason: str) -> None:
    message = f"%{node.id} cannot run as it is fused: {reason}"
    raise VerifyError(message, details=node.describe(), location=node.loc)


def problem(kind: str, region: Graph) -> str | None:
    """Why a region cannot be one kernel of a kind; None if it can."""
    found = _unfit(region)
    if found is not None:
        return found
    nodes = region.nodes
    special = [n for n in nodes if isinstance(n.op.lower, tuple(SPECIAL.values()))]
    wanted = SPECIAL.get(kind)
    if wanted is None:
        return "it is a loop around no loop" if special or not nodes else _loop_problem(region)
    if len(special) != 1 or not isinstance(special[0].op.lower, wanted):
        return f"a kernel of kind {kind} is made of one {wanted.__name__.lower()}"
    if wanted is Contraction:
        return _contraction_problem(region, special[0])
    return _written_problem(region, special[0])


def _unfit(region: Graph) -> str | None:
    """Only tensors of known sizes, computed by pure nodes without regions."""
    for node in (*region.params, *region.nodes):
        kinds = (node.type,) if node.op.traits.parameter else leaves(node.type) or (node.type,)
        if not all(isinstance(kind, Type) and kind.is_static for kind in kinds):
            return f"%{node.id} is no tensor of a known size"
        if node.regions or node.after or node.op.effect is not Effect.PURE:
            return f"%{node.id} does not run inside a kernel"
    if not region.results or any(is_given(r) or r.op.traits.constant for r in region.results):
        return "a result is not computed"
    needed = reaching(region.results)
    spare = next((n for n in region.nodes if n not in needed), None)
    return None if spare is None else f"nothing reads %{spare.id}"


# ------------------------------------------------------------------------------------ loops


def dims_of(node: Node) -> Dims:
    assert isinstance(node.type, Type)
    return node.type.dims


def is_view(node: Node) -> bool:
    return isinstance(node.op.lower, Compute | Alias)


def is_computed(node: Node) -> bool:
    return isinstance(node.op.lower, Scalar | Reduction)


def is_number(node: Node) -> bool:
    return node.op.traits.constant and math.prod(dims_of(node)) == 1


class _Space:
    """The loops of a region: their extents F, and which of them are reduced."""

    def __init__(self, full: Dims, reduced: Iterable[int] | None) -> None:
        axes = frozenset(reduced or ())
        self.full = full
        self.folds = reduced is not None
        self.keep = tuple(1 if k in axes else extent for k, extent in enumerate(full))
        self.drop = tuple(extent for k, extent in enumerate(full) if k not in axes)
        wide = [k for k, extent in enumerate(full) if extent != 1]
        self.columns = not axes.isdisjoint(wide) and wide[-1] not in axes

    def is_full(self, node: Node) -> bool:
        return dims_of(node) == self.full and not isinstance(node.op.lower, Reduction)

    def is_row(self, node: Node) -> bool:
        return self.folds and dims_of(node) in (self.keep, self.drop) and not self.is_full(node)

    def reads_here(self, node: Node, source: Node) -> bool:
        """Does a node read what is computed at its own element or row?"""
        if isinstance(node.op.lower, Reduction):
            return self.is_full(source)
        if self.is_full(node):
            return self.is_full(source) or dims_of(source) in (self.keep, ())
        return dims_of(source) == dims_of(node) and not self.is_full(source)


def _loop_problem(region: Graph, sums: Node | None = None) -> str | None:
    """`sums` is the contraction whose rows the loops are over; for them it is an operand."""
    if any(not isinstance(n.type, Type) for n in region.nodes):
        return "a loop has values of several parts"
    folds = [n for n in region.nodes if isinstance(n.op.lower, Reduction)]
    axes = {(dims_of(n.inputs[0]), frozenset(n.attrs["axes"])) for n in folds}
    if len(axes) > 1:
        return "its reductions are over different axes or arrays of different dims"
    full, reduced = next(iter(axes), (dims_of(region.results[0]), None))
    if sums is not None and (full != dims_of(sums) or not has_rows(sums, reduced or ())):
        return "its rows are not those of the contraction"
    space = _Space(full, reduced)
    after: set[Node] = set()  # what waits for a reduction
    for node in region.nodes:
        found = None if node is sums else _misread(space, node, after, sums)
        if found is not None:
            return f"%{node.id} {found}"
        if isinstance(node.op.lower, Reduction) or not after.isdisjoint(node.inputs):
            after.add(node)
    if not all(r is sums or is_member(space, r) for r in region.results):
        return "a result has other dims than its loops"
    return None


def is_member(space: _Space, node: Node) -> bool:
    """Is the node computed by the loops themselves, once per element or once per row?"""
    if isinstance(node.op.lower, Compute):
        return dims_of(node) == space.full
    return is_computed(node) and (space.is_full(node) or space.is_row(node))


def _misread(space: _Space, node: Node, after: set[Node], sums: Node | None) -> str | None:
    inside = [n for n in node.inputs if is_computed(n) or n is sums]
    if is_view(node):
        return "shows what is not stored" if inside else None
    if not is_computed(node):
        return None if is_number(node) else "is no part of a loop"
    if not is_member(space, node):
        return "has other dims than its loops"
    if not all(space.reads_here(node, source) for source in inside):
        return "reads what is computed elsewhere"
    late = isinstance(node.op.lower, Reduction) or space.is_full(node)
    if space.columns and late and not after.isdisjoint(node.inputs):
        return "reads a column that is not complete"
    return None


# ------------------------------------------------------------------------------------ contractions


def _contraction_problem(region: Graph, sums: Node) -> str | None:
    behind = reaching((sums,))
    if any(isinstance(n.op.lower, Reduction) for n in behind):
        return "a contraction reads what is reduced"
    for node in behind - {sums}:
        if not (is_view(node) or isinstance(node.op.lower, Scalar) or is_stored(node)):
            return f"a contraction cannot compute %{node.id}"
    if any(isinstance(n.op.lower, Reduction) for n in region.nodes):
        shown = region.replace(nodes=[n for n in region.nodes if n is sums or n not in behind])
        if any(n in behind and n is not sums for n in region.results):
            return "an operand is a result"
        return _loop_problem(shown, sums)
    return _epilogue_problem(region, sums)


def is_given(node: Node) -> bool:
    """Is it an operand of the kernel, packed or not?"""
    return node.op.traits.parameter or node.op.traits.unpacks


def is_stored(node: Node) -> bool:
    return is_given(node) or is_number(node)


def _epilogue_problem(region: Graph, sums: Node) -> str | None:
    """Every result shows the sums element by element, in one order of axes for all of them."""
    shown: dict[Node, Dims] = {sums: tuple(range(len(dims_of(sums))))}
    for node in region.nodes:
        reached = [n for n in node.inputs if n in shown]
        if not reached:
            continue
        axes = shown[reached[0]]
        if node.op.traits.permutes:
            shown[node] = tuple(axes[k] for k in node.attrs["perm"])
        elif not isinstance(node.op.lower, Scalar) or any(
            shown[n] != axes or dims_of(n) != dims_of(node) for n in reached
        ):
            return f"%{node.id} reads sums that are computed elsewhere"
        else:
            shown[node] = axes
    orders = {shown[r] for r in region.results if r in shown}
    first = shown.get(region.results[0], shown[sums])
    if orders != {first}:
        return "its results show the sums in several orders"
    dims = tuple(dims_of(sums)[k] for k in first)
    if not all(dims_of(r) == dims and (r in shown or is_pulled(r)) for r in region.results):
        return "a result has other dims than the sums"
    return None


def is_pulled(node: Node) -> bool:
    return isinstance(node.op.lower, Scalar | Compute)


def reaching(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, and all that they are computed from."""
    found: set[Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.inputs)
    return found


# ------------------------------------------------------------------------------------ written loops


def _written_problem(region: Graph, made: Node) -> str | None:
    """The op writes its own loops; what follows is element-wise at the place it writes."""
    lower = made.op.lower
    whole = isinstance(lower, Library) and lower.loops(made) is None
    for source in made.inputs:
        if not source.op.traits.parameter and (whole or not is_readable(made, source)):
            return f"%{made.id} reads what is not stored"
    if isinstance(lower, Library) or isinstance(made.type, TupleType):
        alone = region.results == (made,) and region.nodes[-1] is made
        return None if alone else f"its results are not those of %{made.id}"
    if lower.template and region.results != (made,):  # type: ignore[union-attr]
        shown, rank = region.results[0], len(dims_of(made))
        turned = shown.inputs == (made,) and shown.op.traits.permutes
        fits = turned and len(region.results) == 1 and shown.attrs["perm"][-1] == rank - 1
        return None if fits else f"it shows more than rows of %{made.id}"
    after = {made}
    for node in region.nodes:
        reached = [n for n in node.inputs if n in after]
        if reached:
            if not isinstance(node.op.lower, Scalar):
                return f"%{node.id} reads what is computed elsewhere"
            if any(dims_of(n) != dims_of(node) for n in reached):
                return f"%{node.id} has other dims than %{made.id}"
            after.add(node)
        elif node is not made and not (is_pulled(node) or is_view(node) or is_number(node)):
            return f"%{node.id} is no part of a loop"
    if any(dims_of(r) != dims_of(made) or not (r in after or is_pulled(r)) for r in region.results):
        return f"a result has other dims than %{made.id}"
    return None


def is_readable(made: Node, source: Node) -> bool:
    """Can loops, or a template that reads by strides, read an operand that is not stored?"""
    lower = made.op.lower
    if isinstance(lower, Loops) and lower.template:
        return read_of(source, lambda n: n.op.traits.parameter) is not None
    return is_beginning(source)


def is_beginning(node: Node) -> bool:
    """The first entries of an operand: they lie at the same positions."""
    while node.op.traits.slices:
        source = node.inputs[0]
        plain = not any(node.attrs["starts"]) and all(s == 1 for s in node.attrs["steps"])
        if not plain or dims_of(node)[1:] != dims_of(source)[1:]:
            return False
        node = source
    return node.op.traits.parameter


# ------------------------------------------------------------------------------------ blocks


def blocked_problem(node: Node) -> str | None:
    """Why a node cannot run its region block by block; None if it can.

    How far the kernels read a window that moves is checked where the rows of blocks are written.
    """
    region, counts = node.regions[0], node.attrs["counts"]
    result, *windows = moves_of(counts, node.attrs["steps"])
    plain = (t.kernel or t.item or t.workspace for t in (n.op.traits for n in region.nodes))
    if not all(plain) or any(n.after for n in region.nodes):
        return "its blocks are made by more than kernels"
    if region.results[0] not in region.nodes:
        return "its result is made by no kernel"
    if not all(isinstance(p.type, Type) for p in region.params):
        return "a window is no tensor"
    moving = {p for p, move in zip(region.params, windows, strict=True) if any(move)}
    if any(n.op.traits.item and not moving.isdisjoint(n.inputs) for n in region.nodes):
        return "a window that moves is read by no kernel"
    if covered(math.prod(dims_of(region.results[0])), counts, result) < math.prod(dims_of(node)):
        return "its blocks leave some of the result as it was"
    return None


def covered(run: int, counts: Sequence[int], steps: Sequence[int]) -> int:
    """How many elements from the first on are written by runs that start at these steps."""
    for step, count in sorted(zip(steps, counts, strict=True)):
        if step > run:
            break
        run += step * (count - 1)
    return run
