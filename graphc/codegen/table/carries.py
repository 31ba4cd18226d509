"""How the carries of a loop go from one run of its body to the next, without copies where possible.

Each run reads carry k at pK and leaves the next one at rK:

    still      rK is pK: it does not change (a stack grows in place)
    follows    rK is a slice of a stacked result: the next run reads the slice
    in place   rK is pK: the one kernel that writes it may overwrite what it reads
    swapped    two buffers that change places after each run

The first buffer of a carry is the node's own result.  The memory that is only used while the loop
runs holds, in this order: the verdict of the test, second buffers, the values inside the regions.
"""

from __future__ import annotations

import enum

from graphc.base.record import record
from graphc.codegen.table.donation import stays_in_place
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import peak_bytes
from graphc.ir.place import Buffer, Region
from graphc.ir.sizes import greatest
from graphc.ir.types import Type, leaves

ALIGNMENT = 64


class Carry(enum.Enum):
    """What becomes of a carry between two runs of the body."""

    STILL = "still"
    FOLLOWS = "follows"
    IN_PLACE = "in place"
    SWAPPED = "swapped"


@record(frozen=True)
class Layout:
    """The carries of a loop, the result each follows (or -1), the offset of each second buffer
    (or -1) and of the regions' values, and the bytes in all."""

    carries: tuple[Carry, ...]
    follows: tuple[int, ...]
    spare: tuple[int, ...]
    inside: int
    nbytes: int


def scratch_bytes(node: Node, regions: tuple[Graph, ...]) -> int:
    """The bytes that a node with planned regions needs while it runs."""
    if node.op.traits.loop:
        return layout_of(node, regions).nbytes
    most: int = greatest(0, *map(peak_bytes, regions))
    return most


def layout_of(node: Node, regions: tuple[Graph, ...]) -> Layout:
    """The layout of a loop whose regions are planned."""
    body, count = regions[-1], node.attrs["carries"]
    follows = tuple(followed(body, k, count) for k in range(count))
    kinds = tuple(kind_of(body, k, follows[k]) for k in range(count))
    top = ALIGNMENT if node.op.traits.tested else 0
    spare = []
    for kind, leaf in zip(kinds, leaves(node.type), strict=False):
        spare.append(top if kind is Carry.SWAPPED else -1)
        if kind is Carry.SWAPPED:
            top += -(-leaf.nbytes // ALIGNMENT) * ALIGNMENT
    return Layout(kinds, follows, tuple(spare), top, top + greatest(*map(peak_bytes, regions)))


def region_of(result: Node) -> Region:
    """Where a planned result of a region lies."""
    assert isinstance(result.place, Buffer), f"{result!r} has no buffer"
    return result.place.regions[0]


def followed(body: Graph, carry: int, count: int) -> int:
    """The number of a stacked result that is the same value as a carry, or -1."""
    place = region_of(body.results[carry])
    if place.base == f"r{carry}":
        for number in range(count, len(body.results)):
            if region_of(body.results[number]) == place:
                return number
    return -1


def kind_of(body: Graph, carry: int, follows: int) -> Carry:
    param, place = body.params[carry], region_of(body.results[carry])
    if place.nbytes == 0 or place.base == f"p{carry}":
        return Carry.STILL
    if follows >= 0:
        return Carry.FOLLOWS
    if isinstance(param.type, Type) and place.base == f"r{carry}" and stays_in_place(body, carry):
        return Carry.IN_PLACE
    return Carry.SWAPPED
