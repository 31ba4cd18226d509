"""How attention is laid out on a GPU: what lies where, and which part a block takes.

    result[h, i] = sum over j of softmax over j (q[h, i] k[h, j] factor + mask[h, i, j]) v[h, j]

A block takes `rows` queries of one head, and all keys in steps of `keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.contraction.tile_choice import WARP, WIDEST, Term, ceiling
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.operands import read_of
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Loops
from graphc.ir.types import BF16, BOOL, F16, F32, DType, Type, leaves
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

    def joined(self) -> Side:
        """The same with neighbouring heads that are one longer dim as one."""
        made: list[Term] = []
        for extent, stride in self.heads:
            if made and made[-1][1] == stride * extent:
                extent *= made.pop()[0]
            made.append((extent, stride))
        return self._replace(heads=tuple(made))

    def goes_on(self, count: int) -> bool:
        """Are the last dims of heads one dim?"""
        return len(self._replace(heads=self.heads[-count:]).joined().heads) == 1

    def without(self, count: int) -> Side:
        """One for all of the last dims of heads."""
        return self._replace(heads=self.heads[:-count])

    def with_rows(self, count: int) -> Side:
        """The last dims of heads as rows."""
        ((_, stride),) = self._replace(heads=self.heads[-count:]).joined().heads
        return self._replace(heads=self.heads[:-count], row=stride)

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


class Gradient(NamedTuple):
    """The gradient of attention: `q`, `k` and `v` are where cotangents go, and the result of the
    forward pass and its cotangent lie at `made` and `ct`."""

    forward: Attention
    ct: Side
    made: Side
    q: Side
    k: Side
    v: Side


def attention_of(region: Graph) -> Attention:
    """The attention that a region is; what it stores may be transposed."""
    node = attending(region)
    groups = groups_of(node.inputs)
    sides = sides_of(region, node.inputs, groups)
    kind, strides = tensor_type(node), row_major_strides(tensor_type(region.results[0]).dims)
    if region.results[0] is not node:
        perm = region.results[0].attrs["perm"]
        strides = tuple(strides[perm.index(axis)] for axis in range(kind.rank))
    result = target(len(region.params), kind, groups, strides)
    made = forward_of(node, node.inputs, sides, result)
    return with_rows(made) if made.queries == 1 else joined(made)


def gradient_of(region: Graph) -> Gradient:
    """The gradient that a region is."""
    node = attending(region)
    operands = node.inputs[2:]
    groups = groups_of(operands)
    ct, made, *sides = sides_of(region, node.inputs, groups)
    kinds = [kind for kind in leaves(node.type) if isinstance(kind, Type)]
    first = len(region.params)
    to_q, to_k, to_v = (target(first + k, kind, groups) for k, kind in enumerate(kinds))
    forward = joined(forward_of(node, operands, sides, to_q))
    return Gradient(forward, *(side.joined() for side in (ct, made, to_q, to_k, to_v)))


def with_rows(made: Attention) -> Attention:
    """Attention of one query a head as attention of the queries of all heads that share keys."""
    count = 0
    ends = [side.heads[::-1] for side in (made.k, made.v)]
    for terms in zip(*ends, strict=True):
        if any(stride for _, stride in terms):
            break
        count += 1
    if not count or not all(
        s is None or s.goes_on(count) for s in (made.q, made.mask, made.result)
    ):
        return joined(made)
    rows = product([extent for extent, _ in made.q.heads[-count:]])
    fields = made._replace(
        heads=made.heads // rows,
        queries=rows,
        q=made.q.with_rows(count),
        k=made.k.without(count),
        v=made.v.without(count),
        mask=made.mask and made.mask.with_rows(count),
        result=made.result.with_rows(count),
        causal=False,
    )
    return joined(fields)


def joined(made: Attention) -> Attention:
    """The same with leading dims that are one longer dim as one."""
    sides = {name: getattr(made, name) for name in ("q", "k", "v", "mask", "result")}
    return made._replace(**{name: side and side.joined() for name, side in sides.items()})


def attending(region: Graph) -> Node:
    """The node with attention, or its gradient."""
    return next(n for n in region.nodes if isinstance(n.op.lower, Loops))


def forward_of(
    node: Node, operands: Sequence[Node], sides: Sequence[Side], result: Side
) -> Attention:
    q, k, v = (tensor_type(n).dims for n in operands[:3])
    attrs = node.attrs
    return Attention(
        product(q[:-2]),
        q[-2],
        k[-2],
        q[-1],
        v[-1],
        *(sides[0], sides[1], sides[2]),
        sides[3] if len(sides) > 3 else None,
        result,
        attrs["causal"],
        attrs["scale"],
    )


def groups_of(operands: Sequence[Node]) -> list[tuple[int, ...]]:
    """How the leading dims of queries, the first operand, are cut."""
    heads = tensor_type(operands[0]).dims[:-2]
    return splits_of(heads, [tensor_type(n).dims[:-2] for n in operands])


def sides_of(region: Graph, operands: Sequence[Node], groups: list[tuple[int, ...]]) -> list[Side]:
    place = {param: number for number, param in enumerate(region.params)}
    return [side_of(n, place, groups) for n in operands]


def target(
    buffer: int, kind: Type, groups: list[tuple[int, ...]], strides: tuple[int, ...] | None = None
) -> Side:
    """How a result lies."""
    steps = strides or row_major_strides(kind.dims)
    return Side(buffer, kind.dtype, 0, terms_of(kind.dims[:-2], steps, groups), *steps[-2:])


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


def has_gradient(operands: Sequence[Type], chip: Chip) -> bool:
    """The same for the gradient: operands are those of attention."""
    widest = max(kind.dims[-1] for kind in operands[:3])
    plain = all(kind.dtype is BOOL for kind in operands[3:])
    return has_kernel(operands, chip) and operands[0].dtype is not F32 and plain and widest <= 128


def gradient_cuts(made: Gradient) -> tuple[Cut, Cut]:
    """The tiles of the kernels for queries, and for keys and values."""
    forward = made.forward
    step = 64 if max(forward.width, forward.depth) <= 64 else 32
    cuts = []
    for extent, keys in ((forward.queries, step), (forward.keys, step // 2)):
        warps = min(4, ceiling(extent, WARP_ROWS))
        cuts.append(Cut(warps * WARP_ROWS, keys, WARP * warps))
    return cuts[0], cuts[1]


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
    most, keys = (4, 64) if widest <= 64 else (8, 64) if widest <= 128 else (4, 32)
    warps = min(most, ceiling(made.queries, WARP_ROWS))
    keys = keys if widest <= 192 else 16
    four = widest <= 64 and warps == 4 and made.mask is None  # what 128 registers are enough for
    return Cut(warps * WARP_ROWS, keys, WARP * warps, resident=4 if four else 1)


def tile_cut(made: Attention) -> Cut:
    """The tile for sums in registers: a large one where there are blocks for several rounds."""
    if max(made.width, made.depth) > 64:
        return Cut(32, 16, 64, tall=4, lanes=8)
    large = Cut(64, 32, 64, tall=8, lanes=8)
    blocks = made.heads * ceiling(made.queries, large.rows)
    if blocks < tuned.attention_rounds * tuned.processors:
        return Cut(32, 32, 64, tall=4, lanes=8)
    return large


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
