"""mark_prologues: element-wise values that contractions compute themselves while they read them.

%3 = cast(%1) {dtype=f32}             %4 is not stored: the contraction computes it block by block,
%4 = mul(%3, %2)                      which saves a pass over memory if %4 is far larger than a
%5 = matmul(%0, %4) : f32[...]        cache, and costs nothing if every block is needed once

The stage marks such nodes; `fuse` leaves them to the contraction.
"""

from __future__ import annotations

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.gemm.packed import hardware_for
from graphc.codegen.gemm.tile_choice import kind_of
from graphc.codegen.lowering.contraction import form_at
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.space import dims_of
from graphc.codegen.tuning import tuned as codegen_tuned
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Scalar
from graphc.ir.readers import readers_of
from graphc.ir.rewrites import permitted
from graphc.ir.sizes import hint_of
from graphc.ir.types import Type
from graphc.passes.fusion.can_fuse import PROLOGUE, Group, Groups, finishes_rows, groups_of
from graphc.passes.fusion.widening import behind_views, is_view
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def mark_prologues(graph: Graph, config: Config) -> Graph:
    """The graph with marks on the nodes that the one contraction computes which reads them.

    Marks that are there are not believed: what is no such node cannot be computed so.
    """
    if PROLOGUE in graph.marks:
        graph = graph.replace(marks={k: v for k, v in graph.marks.items() if k != PROLOGUE})
    if not finishes_rows(config) or not any(node.op.traits.matrix_product for node in graph.nodes):
        return graph
    found = computed_operands(graph, groups_of(graph, config), config)
    if not found:
        return graph
    for node in found:
        explain(node.id, "computed by the contraction that reads it")
    return graph.replace(marks=graph.marks | {PROLOGUE: frozenset(node.id for node in found)})


def computed_operands(graph: Graph, groups: Groups, config: Config) -> frozenset[Node]:
    """The nodes of element-wise kernels that the one contraction computes which reads them."""
    found: dict[Group, Node] = {}
    for node in graph.nodes:
        if node.op.traits.matrix_product and isinstance(node.type, Type):
            for source in map(behind_views, node.inputs):
                group = groups.of(source)
                if group is not None and is_elementwise(group):
                    found[group] = node
    if not found or config.check_finite:  # which tells what was the first to be infinite
        return frozenset()
    readers = readers_of(graph)
    taken = [
        group
        for group, reader in found.items()
        if is_read_once(group, reader, readers)
        and pays(group, reader, groups, config)
        and permitted(group.nodes[-1])
    ]
    return frozenset(node for group in taken for node in group.nodes)


def is_elementwise(group: Group) -> bool:
    return (
        group.kind == "loop"
        and len(group.nodes) <= tuned.prologue_nodes
        and all(isinstance(n.op.lower, Scalar) and not n.after for n in group.nodes)
        and all(dims_of(n) == group.full for n in group.nodes)
    )


def is_read_once(group: Group, reader: Node, readers: dict[Node, list[Node | None]]) -> bool:
    """Does only one chain of views lead out of the group, and that to the reader?"""
    members = set(group.nodes)
    leaving = [(n, r) for n in group.nodes for r in readers[n] if r not in members]
    while len(leaving) == 1:
        node = leaving[0][1]
        if node is None or node is reader:
            return node is reader
        if not is_view(node):
            return False
        leaving = [(node, r) for r in readers[node]]
    return False


def pays(group: Group, reader: Node, groups: Groups, config: Config) -> bool:
    """Is every element computed once, and is what is not stored far from the core?"""
    value, hardware = tensor_type(group.nodes[-1]), hardware_for(config)
    nbytes = hint_of(value.nbytes)
    large = nbytes > min(tuned.prologue_rows, tuned.prologue_columns) * hardware.l2
    if not large or value.dtype.is_complex or not tensor_type(reader).size:
        return False
    form = form_at(reader, lambda n: not groups.is_view(n) and n not in group.nodes)
    if form is None or kind_of(form.core, hardware).converts:
        return False
    options = {"threads": config.thread_count, "sources": form.computed}
    plan = contract.plan(form.normal(), hardware, **options)
    words = plan.params
    rows = hint_of(words[Word.M])
    row_units, column_units = words[Word.ROW_UNITS], words[Word.COLUMN_UNITS]
    steps = plan.units // (row_units * column_units) * words[Word.K]
    if form.computed[0] is not plan.swapped:
        if rows <= codegen_tuned.dot_tile_rows:
            return False  # nor must the number of threads choose between dot products and tiles
        far = nbytes > tuned.prologue_rows * hardware.l2
        return far and column_units == 1 and steps * words[Word.M] == value.size
    if words[Word.FLAGS] & Flag.LATE and rows <= codegen_tuned.dot_tile_rows:
        return False  # dot products need no panels
    far = nbytes > tuned.prologue_columns * hardware.l2
    once = row_units == 1 and rows <= words[Word.ROW_BLOCK]
    return far and once and steps * words[Word.N] == value.size
