"""How far rounding may move each value of a graph: by what the coarsest type allows that it was
computed in, whatever its own.

    %2 = matmul(%0, %1)       : f32    1e-4
    %3 = cast(%2) {dtype=f64} : f64    1e-4    the same numbers
    %4 = cast(%0) {dtype=f64} : f64    1e-9    what is given has been rounded by nobody here

Types promote by NumPy's rules, so most f64 results of f32 arguments are as exact as f32.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter

import numpy as np

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import Alias, Effect
from graphc.ir.types import AnyType, Type, leaves
from graphc.ir.verify import graphs_of
from graphc.ops.record.effects import Key, accesses
from graphc.passes.compare import TOLERANCE

_LIES_THERE = attrgetter("parameter", "constant", "resident", "idle", "makes_tuple", "item")
_MOVES = attrgetter(
    "reshapes", "permutes", "slices", "writes_slice", "broadcasts", "pads", "joins", "send", "recv"
)


def roundings(value: Graph | Program) -> tuple[dict[Node, float], dict[Key, float]]:
    """The relative tolerance of every value outside of regions, and of the variables that are
    assigned; 0 where nothing is rounded.

    No small error passes through an integer or a bool: it is the same, or another number.
    """
    kept: dict[Key, float] = defaultdict(float)
    while True:  # until what one device or call writes is what another reads
        before, found = dict(kept), dict[Node, float]()
        for graph in graphs_of(value):
            found |= _of_graph(graph, dict.fromkeys(graph.params, 0.0), kept)
        if before == kept:
            return found, before


def _of_graph(graph: Graph, found: dict[Node, float], kept: dict[Key, float]) -> dict[Node, float]:
    """The tolerance of each value of a graph whose parameters have those that are `found`."""
    for node in graph.nodes:
        touched = accesses(node.op, node.attrs, node.regions)
        made = max((_of_node(node, found, kept), *(kept[key] for key in touched)))
        found[node] = 0.0 if _is_discrete(node.type) else made
        for key, effect in touched.items():
            if effect is Effect.WRITE:
                kept[key] = max(kept[key], made)
    return found


def _of_node(node: Node, found: dict[Node, float], kept: dict[Key, float]) -> float:
    given = [found[n] for n in node.inputs]
    if node.op.traits.kernel or node.op.traits.call:
        (region,) = node.regions
        inside = _of_graph(region, dict(zip(region.params, given, strict=True)), kept)
        return max((inside[n] for n in region.results), default=0.0)
    return max((_own(node), *given))


def _own(node: Node) -> float:
    """What computing a node alone may move its value by; with regions, all that is in them."""
    if node.regions:
        return max((_own(n) for region in node.regions for n in region.nodes), default=0.0)
    return _coarseness(node.type) if rounds(node) else 0.0


def rounds(node: Node) -> bool:
    """Does a node without regions round what it computes, or are its elements those of others?"""
    traits = node.op.traits
    if traits.casts:
        source = node.inputs[0]
        assert isinstance(source.type, Type)
        assert isinstance(node.type, Type)
        return not np.can_cast(source.type.dtype.numpy, node.type.dtype.numpy, "safe")
    return not (any(_LIES_THERE(traits) + _MOVES(traits)) or isinstance(node.op.lower, Alias))


def _coarseness(kind: AnyType) -> float:
    names = (leaf.dtype.name for leaf in leaves(kind) if isinstance(leaf, Type))
    return max((TOLERANCE.get(name, 0.0) for name in names), default=0.0)


def _is_discrete(kind: AnyType) -> bool:
    return isinstance(kind, Type) and kind.dtype.name not in TOLERANCE
