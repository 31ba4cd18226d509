"""How attention is laid out on a GPU: what lies where, and which part a block takes.

    result[h, i] = sum over j of softmax over j (q[h, i] k[h, j] factor + mask[h, i, j]) v[h, j]

A block takes `rows` queries of one head, and all keys in steps of `keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.contract_plan import WARP, WIDEST, Term, ceiling
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.operands import read_of
from graphc.ir.graph import Graph, Node
from graphc.ir.types import BF16, F16, F32, DType, Type
from graphc.ops.record.dims import row_major_strides

WARP_ROWS = 16  # of a fragment
FRAGMENTS = 64  # a shape of so many rows and more is one of fragments
WIDEST_MATRIX, WIDEST_TILE = 256, 128  # of heads that registers have room for


class Side(NamedTuple):
    """How an operand or the result lies: which buffer, its type, where it begins, how far heads,
    rows and columns are apart."""

    buffer: int
    element: DType
    offset: int
    heads: tuple[Term, ...]
    row: int
    column: int

    @property
    def run(self) -> int:
        """Neighbours of a row that may be read at once."""
        if self.column != 1:
            return 1
        width = WIDEST // self.element.itemsize
        while any(x % width for x in (self.offset, self.row, *(s for _, s in self.heads))):
            width //= 2
        return width


class Attention(NamedTuple):
    """Attention as a kernel sees it; `mask` is None where there is none."""

    heads: int
    queries: int
    keys: int
    width: int  # of queries and keys
    depth: int  # of values and results
    q: Side
    k: Side
    v: Side
    mask: Side | None
    result: Side
    causal: bool
    scale: float

    @property
    def element(self) -> DType:
        return self.q.element


class Cut(NamedTuple):
    """What a block takes at once, by how many blocks the keys of a tile are shared, and how many
    blocks a processor has registers for.

    A thread has `tall` rows of it, which it shares with other `lanes`; on tensor cores a warp has
    16 rows.
    """

    rows: int
    keys: int
    threads: int
    splits: int = 1
    tall: int = 0
    lanes: int = 4
    resident: int = 1


def attention_of(region: Graph) -> Attention:
    """The attention that a region is."""
    node = region.nodes[-1]
    q, k, v, *mask = node.inputs
    place = {param: number for number, param in enumerate(region.params)}
    heads = tensor_type(q).dims[:-2]
    groups = splits_of(heads, [tensor_type(n).dims[:-2] for n in (q, k, v, *mask)])
    rows, keys = tensor_type(q).dims[-2], tensor_type(k).dims[-2]
    sides = [side_of(n, place, groups) for n in (q, k, v, *mask)]
    kind = tensor_type(node)
    steps = row_major_strides(kind.dims)
    made = Side(
        len(region.params), kind.dtype, 0, terms_of(kind.dims[:-2], steps, groups), *steps[-2:]
    )
    attrs = node.attrs
    return Attention(
        product(heads),
        rows,
        keys,
        tensor_type(q).dims[-1],
        tensor_type(v).dims[-1],
        *(sides[0], sides[1], sides[2]),
        sides[3] if mask else None,
        made,
        attrs["causal"],
        attrs["scale"],
    )


def product(extents: Sequence[int]) -> int:
    made = 1
    for extent in extents:
        made *= extent
    return made


def splits_of(heads: Sequence[int], others: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Each leading dim as one or two, so that an operand goes along all or nothing of each: heads
    of keys are shared by as many neighbouring heads of queries."""
    made = []
    for axis, extent in enumerate(heads):
        back = len(heads) - axis
        shared = {dims[-back] for dims in others if len(dims) >= back} - {1, extent}
        made.append((*shared, extent // next(iter(shared))) if shared else (extent,))
    return made


def side_of(operand: Node, place: dict[Node, int], groups: list[tuple[int, ...]]) -> Side:
    """How an operand lies; a mask's rows and columns may be one for all."""
    read = read_of(operand, place.__contains__)
    assert read is not None
    dims = tensor_type(operand).dims
    strides = tuple(0 if n == 1 else s for n, s in zip(dims, read.strides, strict=True))
    strides = (0,) * (2 - len(dims)) + strides
    heads = terms_of(dims[:-2], strides, groups)
    return Side(place[read.source], read.dtype, read.offset, heads, *strides[-2:])


def terms_of(
    dims: Sequence[int], strides: Sequence[int], groups: list[tuple[int, ...]]
) -> tuple[Term, ...]:
    """The leading dims of an operand as those of queries are cut: stride 0 where it has one for
    all."""
    made: list[Term] = []
    for axis, extents in enumerate(groups):
        back = len(groups) - axis
        if back > len(dims) or dims[-back] == 1:
            made += [(extent, 0) for extent in extents]
            continue
        stride = strides[len(dims) - back]
        if dims[-back] == product(extents):
            made += [(n, stride * product(extents[k + 1 :])) for k, n in enumerate(extents)]
        else:
            made += [(extents[0], stride), (extents[1], 0)]
    return joined(made)


def joined(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Neighbours that are one longer dim, as one."""
    made: list[Term] = []
    for extent, stride in terms:
        if made and made[-1][1] == stride * extent:
            extent *= made.pop()[0]
        made.append((extent, stride))
    return tuple(made)


def padded(width: int) -> int:
    """The next multiple of what a fragment takes."""
    return 16 * ceiling(width, 16)


def has_matrices(element: DType, chip: Chip) -> bool:
    """Do tensor cores of the chip take such elements?"""
    return element in (F16, BF16) and copies_behind(chip)


def copies_behind(chip: Chip) -> bool:
    """Does the chip copy to shared memory in the background? It knows bf16 then, too."""
    return not chip.simulated and chip.capability >= (8, 0)


def has_kernel(operands: Sequence[Type], chip: Chip) -> bool:
    """Is there a kernel for operands of these types on the chip?"""
    q, _, v, *_masks = operands
    widest = max(q.dims[-1], v.dims[-1])
    if any(kind.size == 0 for kind in operands):
        return False
    if q.dtype is F32:
        return widest <= WIDEST_TILE and (chip.simulated or copies_behind(chip))
    return has_matrices(q.dtype, chip) and widest <= WIDEST_MATRIX


def cut_of(made: Attention, chip: Chip) -> Cut:
    """The tile of a block."""
    if chip.simulated:
        return shared(Cut(4, 8, 8, tall=2, lanes=4), made, 2)
    if made.element is F32:
        return shared(tile_cut(made), made, tuned.processors)
    return shared(matrix_cut(made), made, tuned.processors)


def matrix_cut(made: Attention) -> Cut:
    """The tile for tensor cores."""
    widest = max(padded(made.width), padded(made.depth))
    warps = min(4, ceiling(made.queries, WARP_ROWS))
    keys = 64 if widest <= 128 else 32 if widest <= 192 else 16
    return Cut(warps * WARP_ROWS, keys, WARP * warps)


def tile_cut(made: Attention) -> Cut:
    """The tile for sums in registers."""
    widest = max(made.width, made.depth)
    if widest <= 64:
        return Cut(64, 32, 64, tall=8, lanes=8)
    return Cut(32, 16, 64, tall=4, lanes=8)


def shared(cut: Cut, made: Attention, processors: int) -> Cut:
    """The cut with as many splits of keys as keep processors busy."""
    blocks = made.heads * ceiling(made.queries, cut.rows)
    pieces = ceiling(made.keys, cut.keys)
    wanted = ceiling(tuned.attention_blocks * processors, blocks)
    wanted = min(wanted, pieces // tuned.attention_pieces)
    if wanted < 2 or (made.causal and made.queries > 1):
        return cut
    share = ceiling(pieces, wanted)
    return cut._replace(splits=ceiling(pieces, share))
