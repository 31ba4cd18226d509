"""widening: casts that contractions make themselves while they read their operands.

%3 = cast(%0) {dtype=f32}             %3 and %4 are not stored: the contraction reads %0 and %1,
%4 = cast(%1) {dtype=f32}             as fast as it reads half the bytes, and where the machine
%5 = matmul(%3, %4) : f32[...]        multiplies such numbers it does so
"""

from __future__ import annotations

from graphc.codegen.lowering.operands import NARROW, can_fold_view, meet
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Contraction
from graphc.ir.readers import readers_of
from graphc.ir.types import Type


def widening_casts(graph: Graph) -> frozenset[Node]:
    """The casts that nothing reads but contractions of two such casts of one type."""
    casts = frozenset(n for n in graph.nodes if narrow_type(n) is not None and not n.after)
    if not casts:
        return casts
    readers = readers_of(graph)
    multiplied: dict[Node, list[Node]] = {}  # cast -> the casts it is multiplied with
    refused: list[Node] = []
    for cast in casts:
        partners = partners_of(cast, readers)
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


def partners_of(cast: Node, readers: dict[Node, list[Node | None]]) -> frozenset[Node] | None:
    """The casts of what a cast is multiplied with; None if it is read in another way as well."""
    found: set[Node] = set()
    pending = [cast]
    while pending:
        value = pending.pop()
        if not readers[value]:
            return None
        for reader in readers[value]:
            if reader is not None and is_view(reader):
                pending.append(reader)
                continue
            if reader is None or not reads_narrow(reader, cast):
                return None
            found.update(behind_views(n) for n in reader.inputs)
    return frozenset(found)


def reads_narrow(reader: Node, cast: Node) -> bool:
    """Does a node contract two casts of one type, or of i8 and u8, and read this one's operand
    through any views, of the cast and of what it widens?"""
    sources = [behind_views(n) for n in reader.inputs]
    if not isinstance(reader.op.lower, Contraction) or not meet(*map(narrow_type, sources)):
        return False
    places = [position for position, source in enumerate(sources) if source is cast]
    direct = all(reader.inputs[place] is cast for place in places)
    if not direct and isinstance(behind_views(cast.inputs[0]).op.lower, Compute):
        return False
    ends = (lambda n: n is cast), (lambda n: n is not cast and not is_view(n))
    return all(can_fold_view(reader, place, end) for place in places for end in ends)


def is_view(node: Node) -> bool:
    lower = node.op.lower
    return len(node.inputs) == 1 and isinstance(lower, Alias | Compute) and not node.after


def behind_views(node: Node) -> Node:
    while is_view(node):
        node = node.inputs[0]
    return node


def narrow_type(node: Node) -> object:
    """The dtype that a cast widens as contractions can; None for any other node."""
    if not node.op.traits.casts or not isinstance(node.type, Type):
        return None
    source = node.inputs[0].type
    assert isinstance(source, Type)
    return source.dtype if NARROW.get(source.dtype.name) is node.type.dtype else None
