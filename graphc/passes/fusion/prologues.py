"""What contractions compute themselves while they read their operands.

%3 = cast(%0) {dtype=f32}             %3 and %4 are not stored: the contraction reads %0 and %1,
%4 = cast(%1) {dtype=f32}             as fast as it reads half the bytes, and where the machine
%5 = matmul(%3, %4) : f32[...]        multiplies such numbers it does so

%3 = cast(%1) {dtype=f32}             %4 is not stored either: the contraction computes it block by
%4 = mul(%3, %2)                      block, which saves a pass over memory if %4 is far larger than
%5 = matmul(%0, %4) : f32[...]        a cache, and costs nothing if every block is needed once
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.blocking import DOT_TILE_ROWS
from graphc.codegen.gemm.hardware import kind_of
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.gemm.packed import hardware_for
from graphc.codegen.lowering.contraction import form_at
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.operands import NARROW
from graphc.codegen.lowering.space import dims_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Scalar
from graphc.ir.types import Type

if TYPE_CHECKING:
    from graphc.passes.fusion.groups import Group, Groups

MOST_NODES = 8
# Bytes of an operand, in second-level caches, from which it is computed by blocks and not stored.
FAR_ROWS, FAR_COLUMNS = 2, 12
READERS = ("matmul", "einsum")  # a convolution reads a padded image, which is stored


def widening_casts(graph: Graph) -> frozenset[Node]:
    """The casts that nothing reads but contractions of two such casts of one type."""
    casts = frozenset(n for n in graph.nodes if narrow_type(n) is not None and not n.after)
    if not casts:
        return casts
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for source in (*node.inputs, *node.after):
            readers.setdefault(source, []).append(node)
    results = set(graph.results)
    multiplied: dict[Node, list[Node]] = {}  # cast -> the casts it is multiplied with
    refused: list[Node] = []
    for cast in casts:
        partners = partners_of(cast, readers, results)
        if partners is None or not partners <= casts:
            refused.append(cast)
        for partner in partners or ():
            multiplied.setdefault(partner, []).append(cast)
    gone: set[Node] = set()
    while refused:  # a contraction makes both casts or none
        cast = refused.pop()
        if cast not in gone:
            gone.add(cast)
            refused += multiplied.get(cast, ())
    return casts - gone


def partners_of(
    cast: Node, readers: dict[Node, list[Node]], results: set[Node]
) -> frozenset[Node] | None:
    """The casts of what a cast is multiplied with; None if it is read in another way as well."""
    found: set[Node] = set()
    pending = [cast]
    while pending:
        value = pending.pop()
        if value in results or not readers.get(value):
            return None
        for reader in readers[value]:
            if is_view(reader):
                pending.append(reader)
                continue
            sources = [behind_views(n) for n in reader.inputs]
            if reader.op.name not in READERS or len({narrow_type(s) for s in sources}) != 1:
                return None
            found.update(sources)
    return frozenset(found)


def is_view(node: Node) -> bool:
    lower = node.op.lower
    return len(node.inputs) == 1 and isinstance(lower, Alias | Compute) and not node.after


def behind_views(node: Node) -> Node:
    while is_view(node):
        node = node.inputs[0]
    return node


def narrow_type(node: Node) -> object:
    """The dtype that a cast widens as contractions can; None for any other node."""
    if node.op.name != "cast" or not isinstance(node.type, Type):
        return None
    source = node.inputs[0].type
    assert isinstance(source, Type)
    return source.dtype if NARROW.get(source.dtype.name) is node.type.dtype else None


# ---------------------------------------------------------------------------- computed operands


def computed_operands(graph: Graph, groups: Groups, config: Config) -> frozenset[Node]:
    """The nodes of element-wise kernels that the one contraction computes which reads them."""
    found: dict[Group, Node] = {}
    for node in graph.nodes:
        if node.op.name in READERS and isinstance(node.type, Type):
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
        if is_read_once(group, reader, readers) and pays(group, reader, groups, config)
    ]
    return frozenset(node for group in taken for node in group.nodes)


def is_elementwise(group: Group) -> bool:
    return (
        group.kind == "loop"
        and len(group.nodes) <= MOST_NODES
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


def readers_of(graph: Graph) -> dict[Node, list[Node | None]]:
    """Who reads each node, each use once; None is the caller."""
    readers: dict[Node, list[Node | None]] = {node: [] for node in (*graph.params, *graph.nodes)}
    for node in graph.nodes:
        for source in (*node.inputs, *node.after):
            readers[source].append(node)
    for result in graph.results:
        readers[result].append(None)
    return readers


def pays(group: Group, reader: Node, groups: Groups, config: Config) -> bool:
    """Is every element computed once, and is what is not stored far from the core?"""
    value, hardware = tensor_type(group.nodes[-1]), hardware_for(config)
    large = value.nbytes > min(FAR_ROWS, FAR_COLUMNS) * hardware.l2
    if not large or value.dtype.is_complex or not tensor_type(reader).size:
        return False
    form = form_at(reader, lambda n: not groups.is_view(n) and n not in group.nodes)
    if form is None or kind_of(form.core, hardware).converts:
        return False
    options = {"threads": config.thread_count, "sources": form.computed}
    plan = contract.plan(form.normal(), hardware, **options)
    words = plan.params
    row_units, column_units = words[Word.ROW_UNITS], words[Word.COLUMN_UNITS]
    steps = plan.units // (row_units * column_units) * words[Word.K]
    if form.computed[0] is not plan.swapped:
        if words[Word.M] <= DOT_TILE_ROWS:
            return False  # nor must the number of threads choose between dot products and tiles
        far = value.nbytes > FAR_ROWS * hardware.l2
        return far and column_units == 1 and steps * words[Word.M] == value.size
    if words[Word.FLAGS] & Flag.LATE and words[Word.M] <= DOT_TILE_ROWS:
        return False  # dot products need no panels
    far = value.nbytes > FAR_COLUMNS * hardware.l2
    once = row_units == 1 and words[Word.M] <= words[Word.ROW_BLOCK]
    return far and once and steps * words[Word.N] == value.size
