"""Batches: any nesting of arrays with equal first axes, taken apart by rows and put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from graphc.errors import TypeRuleError
from graphc.frontend.session.variable import Variable
from graphc.frontend.trace.placement import colocate, device
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten
from graphc.ir.sizes import Size, extent_of
from graphc.ir.types import Dim
from graphc.learn.arguments import count, refuse
from graphc.learn.trees import matched
from graphc.ops.record.families import require
from graphc.ops.record.value import Value, current
from graphc.ops.record.value import functions as f


def sizes(rows: int, parts: int) -> tuple[int, ...]:
    """How many rows each part of a batch has: equal numbers, the last part may have fewer.

    There are fewer parts where there is nothing left for them: (3, 3, 3, 1) for 10 rows in 4 parts,
    (1, 1, 1) for 3 in 8.  Of an open number of rows, parts are open, too; that there is something
    left for each is a condition of the compilation.  Raises GraphError unless parts > 0.
    """
    count(parts, "parts of a batch")
    if not isinstance(rows, int | Size) or rows < 0:
        raise refuse(f"a batch has a whole number of rows, got {rows!r:.80}")
    if parts == 1:
        return (rows,)
    each = extent_of(-(-rows // parts)) or 1
    found: list[int] = []
    while len(found) < parts - 1 and rows > each:
        found.append(each)
        rows -= each
    return (*found, extent_of(rows) if found else rows)


def split(batch: Any, parts: int) -> list[Any]:
    """The parts of a batch, any nesting of arrays that have equal first axes; see `sizes`.

    Raises TypeRuleError for a leaf that is no array, and for different numbers of rows.
    """
    leaves, tree = flatten(batch, keep_order=True)
    return pieces(batch, sizes(rows_of(leaves, tree), parts))


def pieces(batch: Any, lengths: Sequence[int]) -> list[Any]:
    leaves, tree = flatten(batch, keep_order=True)
    starts = accumulate(lengths, initial=0)
    return [unflatten(tree, [leaf[a:b] for leaf in leaves]) for a, b in pairwise(starts)]


def join(parts: Sequence[Any]) -> Any:
    """The batch that `split` has taken apart."""
    return combined(parts, f.concatenate)


def rows_of(leaves: Sequence[Any], tree: TreeDef) -> int:
    """The length of the first axis of all arrays of a batch."""
    names = [name or "the batch" for name in leaf_names(tree)]
    for name, leaf in zip(names, leaves):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "__getitem__")):
            kind = type(leaf).__name__
            raise TypeRuleError(f"a batch is made of arrays, but {name} is of type {kind}")
        require(len(leaf.shape) > 0, f"{name} is a number: a batch has its rows along axis 0")
        require(not isinstance(leaf.shape[0], Dim), f"the number of rows of {name} is not known")
    lengths: dict[str, int] = {name: leaf.shape[0] for name, leaf in zip(names, leaves)}
    require(len(lengths) > 0, "the batch has no arrays")
    shown = ", ".join(f"{name} has {n}" for name, n in list(lengths.items())[:6])
    require(len(set(lengths.values())) == 1, f"the arrays differ in their rows: {shown}")
    return next(iter(lengths.values()))


def cut_rows(leaf: Any, start: int, stop: int) -> Any:
    """Rows of an array, taken where the array is: the others need not travel."""
    if start == 0 and stop == leaf.shape[0]:
        return leaf
    if current() is None or not isinstance(leaf, Value | Variable):
        return leaf[start:stop]
    with device(None), colocate(leaf):
        return leaf[start:stop]


def combined(trees: Sequence[Any], combine: Callable[[Sequence[Any]], Any]) -> Any:
    """One tree out of several of one structure."""
    if not isinstance(trees, Sequence) or not trees:
        raise refuse(f"parts to combine come as a list, one or more, got {trees!r:.80}")
    first, structure = flatten(trees[0], keep_order=True)
    rest = [matched(structure, tree, "results of another part") for tree in trees[1:]]
    return unflatten(structure, [combine(row) for row in zip(first, *rest)])
