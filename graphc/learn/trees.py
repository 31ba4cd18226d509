"""Pytrees of parameters: mapping, and reading one tree along the structure of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.frontend.trace.tree import TreeDef, flatten, refill, unflatten


def matched(tree: TreeDef, value: Any, what: str) -> list[Any]:
    """The leaves of `value` in the order of `tree`; None may stand in the place of a leaf.

    Raises TraceError when the structures differ.
    """
    leaves: list[Any] = []
    if refill(tree, value, leaves) and len(leaves) == tree.count:
        return leaves
    raise TraceError(
        f"{what} do not have the structure of the parameters",
        details=(f"parameters: {tree!r}", f"{what}: {flatten(value)[1]!r}"),
        hint="pass the same nesting of dicts, lists and tuples, with arrays in the same places",
    )


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` of every leaf and of the leaves in the same place of further trees."""
    leaves, structure = flatten(tree, keep_order=True)
    rest = [matched(structure, other, "further trees") for other in others]
    return unflatten(structure, [function(*row) for row in zip(leaves, *rest)])


def parameter_count(tree: Any) -> int:
    """How many numbers the arrays of a tree hold."""
    return sum(math.prod(np.shape(leaf)) for leaf in flatten(tree)[0])
