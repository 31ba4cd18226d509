"""merge_dots: slices of an array are multiplied by one matrix at once.

    a = x[0] w;  b = x[1] w;  c = x[2] w     ->     y = x[0:3] w;  a = y[0];  b = y[1];  c = y[2]

An unrolled loop over the slices of x reads all of the matrix in every turn for a few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from graphc.base.record import record as record_class
from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.lowering.windows import start_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS
from graphc.ir.sizes import is_open
from graphc.ir.types import Type
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned

Rows = tuple[int, int]  # the first one and the one after the last


@record_class(eq=False)
class Joint:
    """Products of neighbouring rows of an array, and the product of all of them once it is made."""

    array: Node
    products: dict[int, Rows]
    rows: Rows  # of all of them
    made: Node | None = None


def merge_dots(graph: Graph, config: Config) -> Graph:
    """The graph with one product of neighbouring slices instead of one of each."""
    if config.strict:
        return graph
    joints: dict[int, Joint] = {}
    for array, products in candidates(graph):
        for joint in parts_of(array, products):
            joints |= dict.fromkeys(joint.products, joint)
            explain(next(iter(joint.products)), f"product of {len(joint.products)} slices")

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        joint = joints.get(node.id)
        if joint is None:
            return None
        if joint.made is None:
            rows = flat_rows(r.new(joint.array), joint.rows, r)
            joint.made = r.emit(OPS["matmul"], (rows, node.inputs[1]))
        first, (start, stop) = joint.rows[0], joint.products[node.id]
        return flat_rows(joint.made, (start - first, stop - first), r)

    return rebuild(graph, rewrite) if joints else graph


def candidates(graph: Graph) -> Iterable[tuple[Node, dict[Node, Rows]]]:
    """Arrays with the products of slices of them, equally thick, by one matrix."""
    found: dict[object, tuple[Node, dict[Node, Rows]]] = {}
    for node in graph.nodes:
        if node.op.name == "matmul" and not node.after and (part := slice_of(node)) is not None:
            array, rows = part
            key = (array, node.inputs[1], rows[1] - rows[0], node.place)
            found.setdefault(key, (array, {}))[1][node] = rows
    return found.values()


def slice_of(node: Node) -> tuple[Node, Rows] | None:
    """The array of which the first operand of a product is a few rows, and which ones.

    Rows are all that the last axis gives the columns of.
    """
    view, matrix = node.inputs
    kind = view.type
    if not isinstance(kind, Type) or not kind.is_static or not isinstance(matrix.type, Type):
        return None
    if (
        kind.rank != 2
        or matrix.type.rank != 2
        or is_open(kind.dims)
        or kind.dims[0] > tuned.merged_dot_rows
        or not kind.size
    ):
        return None
    while view.op.traits.reshapes and not view.after:
        view = view.inputs[0]
    if not view.op.traits.slices or view.after or (start := start_of(view)) is None:
        return None
    array = view.inputs[0]
    if not isinstance(array.type, Type) or array.type.dims[-1:] != kind.dims[1:]:
        return None
    first = start // (kind.dims[1] * kind.dtype.itemsize)
    return array, (first, first + kind.dims[0])


def parts_of(array: Node, products: dict[Node, Rows]) -> Iterator[Joint]:
    """Products that are near each other, as evenly as they fit the memory."""
    each = max(node.nbytes for node in products)
    count = -(
        -len(products) // max(1, int(tuned.merged_dot_share * host_target().l2) // max(1, each))
    )
    size = -(-len(products) // count)
    nodes = list(products)
    for start in range(0, len(nodes), size):
        part = {node.id: products[node] for node in nodes[start : start + size]}
        rows = sorted(part.values())
        if len(part) > 1 and all(a[1] == b[0] for a, b in pairwise(rows)):
            yield Joint(array, part, (rows[0][0], rows[-1][1]))


def flat_rows(array: Node, rows: Rows, r: Rewriter) -> Node:
    """Some rows of an array, as a matrix."""
    assert isinstance(array.type, Type)
    width = array.type.dims[-1]
    whole = array.type.size // width
    if array.type.rank != 2:
        array = r.emit(OPS["reshape"], (array,), {"dims": (whole, width)})
    if rows == (0, whole):
        return array
    attrs = {"starts": (rows[0], 0), "stops": (rows[1], width), "steps": (1, 1)}
    return r.emit(OPS["slice"], (array,), attrs)
