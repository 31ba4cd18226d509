"""Which tiles a contraction is cut into on a GPU, and how its operands are read.

    C[batch, i, j] = sum over k of A[batch, i, k] * B[batch, k, j]

A block computes a tile of `rows` x `columns` sums, `depth` steps of k at a time through shared
memory; each of its threads holds `tall` x `wide` of them.  Every address is separable: an offset
by batch, one by i (or j) and one by k, each a mixed-radix sum over a few dims (see
`codegen.gemm.form`), so a convolution needs no unfolding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from graphc.codegen.gemm.form import Groups, Loop, normalise, total
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.contraction import Form
from graphc.ir.types import BF16, F16, F32, DType

WIDEST = 16  # bytes of one load
WARP = 32
GROUP_ROWS, GROUP_DEPTH = 64, 64  # of a group of four warps; a line of k fills 128 bytes
LINE = 128  # bytes of a swizzled line
ATOM = 8 * LINE  # the order of their 16 bytes repeats; it begins at a multiple of this

Term = tuple[int, int]  # extent and stride of a dim


class Terms(NamedTuple):
    """The dims of an operand: of batch, of i (or j), and of k."""

    batch: tuple[Term, ...]
    outer: tuple[Term, ...]
    steps: tuple[Term, ...]


class Tile(NamedTuple):
    """A block's share of the result: see above. `vector` sums are read and written at once.

    Of pieces that are copied in the background there are `stages` in shared memory; 0 where they
    pass through registers.
    """

    rows: int
    columns: int
    depth: int
    tall: int
    wide: int
    stages: int = 0

    @property
    def across(self) -> int:
        """Threads along a row of the tile."""
        return self.columns // self.wide

    @property
    def down(self) -> int:
        return self.rows // self.tall

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def efficiency(self) -> float:
        """The share of time that multiplies and adds: reads of shared memory and what a step costs
        besides take the rest, as measured."""
        sums = self.tall * self.wide
        return sums / (sums + 2 * (self.tall + self.wide) + 4)


SINGLE = (
    Tile(128, 128, 8, 8, 8),
    Tile(128, 64, 8, 8, 4),
    Tile(64, 128, 8, 4, 8),
    Tile(64, 64, 16, 8, 4),
    Tile(32, 128, 8, 4, 8),
    Tile(128, 32, 8, 8, 4),
    Tile(32, 32, 16, 4, 4),
    Tile(16, 64, 16, 4, 4),
    Tile(16, 16, 16, 2, 2),
)
DOUBLE = (
    Tile(64, 64, 8, 4, 4),
    Tile(32, 64, 8, 4, 4),
    Tile(32, 32, 8, 4, 4),
    Tile(16, 16, 16, 2, 2),
)
COPIED = (  # where elements are copied to shared memory as they are multiplied
    Tile(128, 256, 16, 8, 16, 3),
    Tile(256, 128, 16, 16, 8, 3),
    Tile(128, 128, 16, 8, 8, 3),
    Tile(64, 256, 16, 8, 8, 3),
    Tile(256, 64, 16, 8, 8, 3),
    Tile(64, 64, 16, 4, 4, 3),
    *(tile._replace(stages=4 if tile.depth < 16 else 3) for tile in SINGLE[1:]),
)
SIMULATED = (Tile(8, 8, 4, 4, 4), Tile(4, 8, 4, 2, 4))


class Matrix(NamedTuple):
    """A block's share of the result for tensor cores: each warp has `high` x `wide` sums of it, in
    fragments of 16 x 8."""

    rows: int
    columns: int
    depth: int
    high: int
    wide: int
    stages: int = 2

    @property
    def across(self) -> int:
        """Warps along a row of the tile."""
        return self.columns // self.wide

    @property
    def down(self) -> int:
        return self.rows // self.high

    @property
    def threads(self) -> int:
        return WARP * self.across * self.down

    @property
    def efficiency(self) -> float:
        """The share of time that multiplies: reads of shared memory cost the rest."""
        return self.high * self.wide / (self.high * self.wide + 8 * (self.high + self.wide))


class Group(NamedTuple):
    """A block's share of the result for `wgmma`: each four warps have 64 rows of it.

    Products of `behind` pieces may go on while those of the next one begin.  `efficiency` is the
    share of the time between the first and the last product that multiplies, as measured.
    """

    rows: int
    columns: int
    depth: int
    stages: int
    behind: int
    efficiency: float = 1.0

    @property
    def threads(self) -> int:
        return 4 * WARP * self.rows // GROUP_ROWS

    @property
    def resident(self) -> int:
        """Blocks that share a processor."""
        pieces = self.stages * (self.rows + self.columns) * LINE + ATOM
        return min(tuned.processor_shared // pieces, tuned.resident_threads // self.threads)

    @property
    def twin(self) -> Matrix | Tile:
        """The same share for `mma.sync`, or for sums of f32, with as many threads and less shared
        memory."""
        if self.depth < GROUP_DEPTH:
            return Tile(
                self.rows, self.columns, 16, 8, self.columns * self.rows // 8 // self.threads, 3
            )
        high, wide = self.rows // 2, self.columns * 32 // self.rows
        return Matrix(self.rows, self.columns, 32, high, wide, 3)


class Thin(NamedTuple):
    """A block's share of a result of few rows: all of them, and `columns` columns.

    The `lanes` threads that share a column take its steps of k in turns, `run` neighbours at once,
    `unroll` times; a thread has `wide` columns.  Lanes that follow each other lie along k, or along
    the columns.
    """

    rows: int
    columns: int
    lanes: int
    wide: int
    run: int
    unroll: int
    along: str

    @property
    def threads(self) -> int:
        return self.lanes * self.columns // self.wide

    @property
    def depth(self) -> int:
        return self.lanes * self.run * self.unroll


GROUPS = (
    Group(128, 256, 64, 4, 1, 0.91),
    Group(128, 128, 64, 3, 0, 0.6),
    Group(64, 128, 64, 3, 0, 0.5),
    Group(64, 64, 64, 4, 0, 0.36),
)
TF32_GROUPS = tuple(group._replace(depth=GROUP_DEPTH // 2) for group in GROUPS)
MATRICES = (
    Matrix(128, 128, 32, 64, 32),
    Matrix(64, 128, 32, 32, 32),
    Matrix(64, 64, 32, 32, 32),
    Matrix(32, 64, 32, 16, 32),
)


class Side(NamedTuple):
    """How one operand is read: dims of batch, of i (or j) and of k with the strides there.

    Lanes run along "k" or along "outer", and read `width` neighbours at once.
    """

    name: str
    buffer: int
    element: DType
    offset: int
    terms: Terms
    along: str
    width: int


class Cut(NamedTuple):
    """A contraction cut into tiles; `splits` blocks share the sum of a tile."""

    groups: Groups
    tile: Any  # a Tile, a Matrix or a Thin
    splits: int
    batch: int
    m: int
    n: int
    k: int

    @property
    def tiles(self) -> tuple[int, int]:
        return ceiling(self.m, self.tile.rows), ceiling(self.n, self.tile.columns)

    @property
    def blocks(self) -> int:
        high, wide = self.tiles
        return self.batch * high * wide * self.splits

    @property
    def pieces(self) -> int:
        """Steps of `depth` in a whole sum."""
        return ceiling(self.k, self.tile.depth)


def ceiling(total: int, part: int) -> int:
    """How many parts make the total, the last one perhaps short."""
    return -(-total // part)


def vector_of(accumulator: DType) -> int:
    """Sums that a shared memory access takes at once."""
    return WIDEST // accumulator.itemsize


def has_matrices(form: Form, chip: Chip) -> bool:
    """Do tensor cores of the chip multiply such elements? Those before sm_80 know no bf16."""
    half = form.element in (F16, BF16) and form.accumulator is F32
    return half and not chip.simulated and chip.capability >= (8, 0)


def has_groups(form: Form, chip: Chip) -> bool:
    """Do groups of four warps multiply such elements?"""
    return has_matrices(form, chip) and chip.own is not chip


def has_tf32(form: Form, chip: Chip) -> bool:
    """Do groups of four warps multiply f32 by the first bits, if that is asked for?"""
    return form.element is F32 and form.accumulator is F32 and chip.own is not chip


def is_copied(form: Form, chip: Chip) -> bool:
    """Can pieces be copied to shared memory in the background, as they are multiplied?"""
    able = chip.simulated or chip.capability >= (8, 0)
    return able and form.element is form.accumulator and form.element.itemsize >= 4


def tiles_for(form: Form, chip: Chip, strict: bool) -> Sequence[Tile | Matrix | Group]:
    if has_matrices(form, chip) and not strict:
        return (*GROUPS, *MATRICES) if has_groups(form, chip) else MATRICES
    single, copied = form.accumulator.itemsize <= 4, is_copied(form, chip)
    if single and copied and not chip.simulated:
        return COPIED
    tiles: Sequence[Tile] = SINGLE if single else DOUBLE
    tiles = SIMULATED if chip.simulated else tiles
    return [tile._replace(stages=3) for tile in tiles] if copied else tiles


def cut(
    form: Form,
    chip: Chip,
    tile: Tile | Matrix | Group | None = None,
    splits: int | None = None,
    strict: bool = False,
    tf32: bool = False,
) -> Cut:
    """The tiles and splits that take the least time by a simple model of the machine.

    With `strict`, sums are made one product after another: not split, and not by tensor cores.
    With `tf32`, those may multiply f32 by the first bits.
    """
    choices = (tile,) if tile else fitting(form, chip, strict, tf32)
    splits = 1 if strict else splits
    best: tuple[float, Cut] | None = None
    for choice in choices:
        groups = normalise(form.normal(), choice.columns)
        sizes = (total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
        for parts in (splits,) if splits else possible_splits(choice, sizes, chip):
            made = Cut(groups, choice, filled(parts, sizes[3], choice.depth), *sizes)
            cost = cycles(made, form.accumulator)
            if best is None or cost < best[0]:
                best = cost, made
    assert best is not None
    return best[1]


def fitting(form: Form, chip: Chip, strict: bool, tf32: bool) -> Sequence[Tile | Matrix | Group]:
    """The tiles that there is room for; groups of warps alone, if they can."""
    if tf32 and not strict and has_tf32(form, chip):
        return TF32_GROUPS
    found = [
        tile
        for tile in tiles_for(form, chip, strict)
        if has_room(form, normalise(form.normal(), tile.columns), tile)
    ]
    return [tile for tile in found if isinstance(tile, Group)] or found


def has_room(form: Form, groups: Groups, tile: Tile | Matrix | Group) -> bool:
    """Are there registers for all that a thread reads, beside its sums?  A group has to read 16
    bytes at once: they are what it moves about in shared memory.
    """
    if isinstance(tile, Matrix) or (isinstance(tile, Tile) and tile.stages):
        return True
    sides = sides_of(form, (0, 1), Cut(groups, tile, 1, 1, 1, 1, 1))
    if isinstance(tile, Group):
        return all(side.width * side.element.itemsize == WIDEST for side in sides)
    few = tile.tall * tile.wide <= tuned.scattered_sums
    return few or all(side.width > 1 for side in sides)


def filled(parts: int, k: int, depth: int) -> int:
    """How many of the parts of a sum of k products have any, in steps of `depth`."""
    pieces = ceiling(k, depth)
    return ceiling(pieces, ceiling(pieces, parts))


def possible_splits(
    tile: Tile | Matrix | Group | Thin, sizes: tuple[int, ...], chip: Chip
) -> Iterator[int]:
    """Into how many parts sums may be split; never where the tiles fill the machine."""
    batch, m, n, k = sizes
    blocks = batch * ceiling(m, tile.rows) * ceiling(n, tile.columns)
    for parts in tuned.splits:
        full = chip.simulated or blocks * parts > 4 * tuned.processors
        if parts == 1 or (not full and k >= parts * tuned.split_steps):
            yield parts


def cycles(made: Cut, accumulator: DType) -> float:
    """Estimated cycles: the busiest processor's share, and what joining split sums takes."""
    tile, double = made.tile, accumulator.itemsize > 4
    steps = ceiling(made.pieces, made.splits) * tile.depth
    each, waves = tile.rows * tile.columns / tile.efficiency, ceiling(made.blocks, tuned.processors)
    if isinstance(tile, Group):
        last = tile.rows * tile.columns // tile.threads * tuned.finish_cycles
        turns = ceiling(waves, tile.resident)
        each *= steps * GROUP_DEPTH // tile.depth / tuned.group_lanes
        spent = waves * each + turns * (tuned.start_cycles + last)
    else:
        each *= steps + 8
        each /= tuned.tensor_lanes if isinstance(tile, Matrix) else tuned.processor_lanes
        busy = min(1.0, tile.threads * waves / tuned.busy_threads)
        spent = waves * each * (2 if double else 1) / busy
    if made.splits > 1:
        moved = made.batch * made.m * made.n * (2 * made.splits + 1) * accumulator.itemsize
        spent += tuned.launch_cycles + moved / (tuned.processors * tuned.processor_bytes)
    return float(spent)


# -- operands --------------------------------------------------------------------------------------


def terms_of(loops: Sequence[Loop], field: str) -> tuple[Term, ...]:
    """The dims as one operand sees them: neighbours that are one longer dim there are joined."""
    made: list[Term] = []
    for loop in loops:
        extent, stride = loop.extent, getattr(loop, field)
        if made and made[-1][1] == stride * extent:
            extent *= made.pop()[0]
        made.append((extent, stride))
    return tuple(made)


def sides_of(form: Form, buffers: tuple[int, int], made: Cut) -> tuple[Side, Side]:
    """How A and B are read; they trade places where the groups are swapped."""
    found = []
    for name, extent in (("a", made.tile.rows), ("b", made.tile.columns)):
        position, terms = operand(form, made.groups, name)
        read = form.reads[position]
        element = read.dtype
        along, width = access(element, read.offset, terms, extent, made.tile)
        found.append(Side(name, buffers[position], element, read.offset, terms, along, width))
    return found[0], found[1]


def access(element: DType, offset: int, terms: Terms, extent: int, tile: Tile) -> tuple[str, int]:
    """Along which direction lanes read, and how many neighbours at once."""
    share = extent * tile.depth // tile.threads
    outer = neighbours(element, offset, terms, 1, min(share, extent))
    steps = neighbours(element, offset, terms, 2, min(share, tile.depth))
    if outer or steps:
        return ("outer", outer) if outer >= steps else ("k", steps)
    return ("k" if nearer(terms) else "outer"), 1


def nearer(terms: Terms) -> bool:
    """Do elements that follow each other along k lie nearer to each other than along outer?"""
    outer, steps = terms.outer, terms.steps
    step = abs(steps[-1][1]) if steps else 0
    return not outer or 0 < step < abs(outer[-1][1])


def neighbours(element: DType, offset: int, terms: Terms, which: int, most: int) -> int:
    """How many elements along outer (1) or k (2) can be read at once; 0 where none lie in a row."""
    mine = terms[which]
    if not mine or mine[-1][1] != 1:
        return 0
    width = min(WIDEST // element.itemsize, most)
    others = [stride for k in range(3) for _, stride in (terms[k] if k != which else mine[:-1])]
    while width > 1 and (mine[-1][0] % width or any(x % width for x in (offset, *others))):
        width //= 2
    return width


def operand(form: Form, groups: Groups, name: str) -> tuple[int, Terms]:
    """Which operand of the contraction is A or B of the groups, and its dims: batch, outer, k."""
    position = int((name == "b") != groups.swapped)
    outer = groups.m if name == "a" else groups.n
    return position, Terms(*(terms_of(g, name) for g in (groups.batch, outer, groups.k)))
