"""The iteration space of a loop group: which axes are looped over, which merge, and how they split.

A group has a full shape F and a set of reduced axes.  Every value of the group is *full* (shape
F), *keep* (F with 1 at the reduced axes) or *drop* (the kept axes only).  Adjacent axes merge into
one loop when every operand is either full or broadcast along both, so the common case is one long
contiguous loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from graphc.base.record import record
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Reduction, Structural
from graphc.ir.types import Type
from graphc.loops.nest import Expr, Scalars

Dims = tuple[int, ...]


@record(frozen=True)
class Axes:
    """Adjacent axes of F that run as one loop. `place` is the axis that carries the variable."""

    first: int
    last: int
    extent: int
    place: int
    reduced: bool


@record(frozen=True)
class Space:
    """F, the reduced axes and the loops they form, outermost first."""

    full: Dims
    reduced: frozenset[int]
    loops: tuple[Axes, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.full)) if k not in self.reduced)

    def is_full(self, node: Node) -> bool:
        """Evaluated inside the loop over the reduced axes, not once per row."""
        return dims_of(node) == self.full and not isinstance(node.op.lower, Reduction)

    def index(self, b: Scalars, values: dict[int, Expr], dims: Dims) -> tuple[Expr, ...]:
        """The index tuple of a value with these dims, from the loop variable of each placed
        axis.
        """
        axes = range(len(self.full)) if len(dims) == len(self.full) else self.kept
        zero = b.integer(0)
        pairs = zip(axes, dims, strict=True)
        return tuple(values.get(k, zero) if extent != 1 else zero for k, extent in pairs)


def dims_of(node: Node) -> Dims:
    assert isinstance(node.type, Type)
    return node.type.dims


def space_of(region: Graph) -> Space:
    """The iteration space of a fused region."""
    reductions = [n for n in region.nodes if isinstance(n.op.lower, Reduction)]
    if reductions:
        full = dims_of(reductions[0].inputs[0])
        reduced = frozenset(reductions[0].attrs["axes"])
    else:
        full, reduced = dims_of(region.results[0]), frozenset()
    return Space(full, reduced, _loops(region, full, reduced))


def _loops(region: Graph, full: Dims, reduced: frozenset[int]) -> tuple[Axes, ...]:
    joins = _mergeable(region, full, reduced)
    loops: list[Axes] = []
    first = 0
    for axis in range(len(full)):
        if axis + 1 == len(full) or not joins[axis]:
            loops.append(_axes(full, first, axis, axis in reduced))
            first = axis + 1
    return tuple(loop for loop in loops if loop.extent != 1)


def _axes(full: Dims, first: int, last: int, reduced: bool) -> Axes:
    extent = math.prod(full[first : last + 1])
    wide = [k for k in range(first, last + 1) if full[k] != 1]
    return Axes(first, last, extent, wide[-1] if wide else last, reduced)


def _mergeable(region: Graph, full: Dims, reduced: frozenset[int]) -> list[bool]:
    """For each axis whether it may run in one loop with the next."""
    joins = [(k in reduced) == (k + 1 in reduced) for k in range(len(full) - 1)]
    kept = tuple(k for k in range(len(full)) if k not in reduced)
    for node in _placed(region, full):
        lower = node.op.lower
        if isinstance(lower, Compute | Alias) and not _in_order(node, full, joins):
            return [False] * len(joins)
        if isinstance(lower, Structural | Compute):
            continue
        axes = tuple(range(len(full)))
        if not isinstance(lower, Reduction) and len(dims_of(node)) != len(full):
            axes = kept
        for source in node.inputs:
            _constrain(joins, full, axes, dims_of(source))
    return joins


def _placed(region: Graph, full: Dims) -> Iterator[Node]:
    """The nodes whose elements are asked for by an index into F or its kept axes, last first.

    Not those behind a reshape to F of what is one row, or stored: they are asked for by the place
    in row-major order, which one loop over all axes knows best.
    """
    found, waiting = set(), list(region.results)
    while waiting:
        node = waiting.pop()
        if node.id in found or _is_row(node, full):
            continue
        found.add(node.id)
        waiting.extend(node.inputs)
        yield node


def _is_row(node: Node, full: Dims) -> bool:
    """Is it a reshape to F of one row, or of what is stored?"""
    if not isinstance(node.op.lower, Alias) or dims_of(node) != full:
        return False
    source = node
    while isinstance(source.op.lower, Alias):
        source = source.inputs[0]
    return source.op.traits.parameter or len(dims_of(source)) <= 1


def _in_order(node: Node, full: Dims, joins: list[bool]) -> bool:
    """Does the place in row-major order alone matter? The axes before those where it does keep
    apart.
    """
    lower = node.op.lower
    if not isinstance(lower, Compute) or lower.flat is None or dims_of(node) != full:
        return False
    first = lower.flat(node)
    joins[:first] = [False] * first
    return True


def _constrain(joins: list[bool], full: Dims, axes: tuple[int, ...], dims: Dims) -> None:
    """An operand that broadcasts along one of two axes and not the other keeps them apart, also
    when axes of extent 1 lie between.
    """
    wide = dict.fromkeys(range(len(full)), False)
    for axis, extent in zip(axes[len(axes) - len(dims) :], dims, strict=True):
        wide[axis] = extent != 1
    long = [k for k in range(len(full)) if full[k] != 1]
    for left, right in pairwise(long):
        if wide[left] != wide[right]:
            joins[right - 1] = False
