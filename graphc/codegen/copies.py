"""Kernels that only lay arrays one after another in memory: rows of copies, nothing to compile."""

from __future__ import annotations

from graphc.ir.graph import Graph
from graphc.ir.op import Alias
from graphc.ir.types import Type

MOST_BYTES = 1 << 22  # beyond that a kernel, which threads share


def pieces_of(region: Graph) -> tuple[tuple[int, int], ...] | None:
    """(param, bytes) of each piece, in order; None for a region that computes or reorders."""
    result = region.results[0]
    if len(region.results) != 1 or result.op.name != "concat" or not isinstance(result.type, Type):
        return None
    axis, dims = result.attrs["axis"], result.type.dims
    if any(extent != 1 for extent in dims[:axis]) or not 0 < result.type.nbytes <= MOST_BYTES:
        return None
    pieces = []
    for source in result.inputs:
        while isinstance(source.op.lower, Alias):
            source = source.inputs[0]
        number = next((k for k, p in enumerate(region.params) if p is source), None)
        if number is None or not isinstance(source.type, Type):
            return None
        pieces.append((number, source.type.nbytes))
    return tuple(piece for piece in pieces if piece[1])
