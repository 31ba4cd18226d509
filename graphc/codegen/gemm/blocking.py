"""Planning of a contraction: the route through the core, cache blocks, work units, workspace.

Every function writes its words of `params`.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from graphc.codegen.gemm.form import (
    IN_PLACE,
    Groups,
    Loop,
    NormalForm,
    laid_out,
    products_of_a,
    reach_of,
    step_of,
    total,
)
from graphc.codegen.gemm.hardware import Hardware
from graphc.codegen.gemm.layout import STREAM_ROWS, Flag, Word
from graphc.codegen.gemm.tile_choice import Kind, may_read_windows
from graphc.codegen.tuning import tuned
from graphc.ir.size_divisors import common
from graphc.ir.sizes import Size, either, greatest, hint_of, is_open, least

PAGE = 4096
# Panels of a single cache line have no neighbour to fetch along: copies pay early.
LINE = 64  # bytes
UNBOUNDED = 1 << 40  # columns: those of any row


class Sizes(NamedTuple):
    """Extents of the groups and cost of the whole contraction."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.n * self.k

    @property
    def at_hand(self) -> Sizes:
        """The same in numbers: blocks are chosen for them and serve all others."""
        return Sizes(*map(hint_of, self))


def sizes_of(groups: Groups) -> Sizes:
    """The extents of the groups."""
    return Sizes(total(groups.batch), total(groups.m), total(groups.n), total(groups.k))


def thin_route(
    kind: Kind, hardware: Hardware, groups: Groups, sizes: Sizes, packed_b: bool, made: int
) -> tuple[int, int]:
    """Flags of the route for few rows, and how many those are: products of a matrix and vectors,
    or panels packed ahead as one stream, beside which as many bytes of A are read in each step.
    """
    n, k = groups.n, groups.k
    if packed_b and not made & Flag.MADE_B:
        tiles = route(kind, hardware, groups, sizes.at_hand, packed_b, made)
        few = min(kind.rows, STREAM_ROWS, STREAM_ROWS * 4 // kind.bytes)
        few = 0 if tiles & Flag.WINDOWS else few
        return tiles | Flag.STREAM, few
    step_b, plain_n = step_of(k, "b"), not n or step_of(n, "b") == 1
    if step_b is None or made or sizes.k <= 0:
        return 0, 0
    few = tuned.dot_rows if kind.converts or not kind.floating else tuned.dot_tile_rows
    few = tuned.dot_rows_of_quads if kind.together == 4 else few
    pack_x = Flag.PACK_A if kind.converts or (k and step_of(k, "a") != 1) else 0
    dots = not k or (step_b == 1 and not (plain_n and n))
    if dots and not hardware.ordered:
        return Flag.DOTS | pack_x, few
    if k and plain_n and sizes.at_hand.n >= kind.columns:
        apart = step_b * kind.memory_bytes % PAGE == 0
        return Flag.ROWS | pack_x, min(few, tuned.few_rows if apart else 1)
    return 0, 0


def route(
    kind: Kind, hardware: Hardware, groups: Groups, sizes: Sizes, packed_b: bool, made: int
) -> int:
    """Flags of the route through tiles: which operands are packed. `made`: which are computed.

    `sizes` are those at hand. Tiles read whole vectors and bundles of what is not packed: that
    these end with a row has to hold for all sizes.
    """
    n, k = groups.n, groups.k
    columns, steps = common(total(n), kind.lanes), common(total(k), kind.together)
    step_a, step_b = step_of(k, "a"), step_of(k, "b")
    plain_n = not n or step_of(n, "b") == 1
    flags = made
    if made & Flag.MADE_B:
        flags |= 0 if across(n, "b") else Flag.LATE
    elif packed_b:
        flags |= Flag.PACKED_B
    elif (
        kind.converts
        or step_b is None
        or not plain_n
        or _worth_b(kind, hardware, sizes, step_b)
        or (not hardware.masked and columns < kind.lanes)
    ):
        flags |= Flag.PACK_B
        flags |= Flag.COPIES if step_b and n and plain_n and not kind.converts else 0
    in_place = kind.bundles and step_a == 1 and steps == kind.together and not kind.flips
    if not made & Flag.MADE_A and (
        (kind.converts and not in_place)
        or step_a is None
        or _worth_a(kind, hardware, groups, sizes)
    ):
        flags |= Flag.PACK_A
    if flags & Flag.PACK_A and _are_windows(kind, hardware, groups):
        flags = flags & ~(Flag.PACK_A | Flag.COPIES) | Flag.WINDOWS
    return flags


def _are_windows(kind: Kind, hardware: Hardware, groups: Groups) -> bool:
    """Whether A has steps of k anywhere, as windows have, and is read in place all the same:
    neighbouring rows share lines of the cache, or the bundles of each lie ready in runs of k that
    are near one another."""
    if step_of(groups.k, "a") is not None:
        return False
    if kind.bundles and not kind.flips:
        run, reach = groups.k[-1], hint_of(reach_of(groups.k, "a")) * kind.memory_bytes
        whole = run.a == 1 and common(run.extent, kind.together) == kind.together
        return whole and reach * tuned.window_share <= hardware.l2
    if kind.name not in IN_PLACE:
        return False
    return 0 < groups.m[-1].a * kind.memory_bytes < LINE if groups.m else False


def in_lanes(kind: Kind, hardware: Hardware, groups: Groups, sizes: Sizes) -> int:
    """Positive where rows of A in lanes are better than a copy of B, which would be one of windows.

    Not where few columns would read what is copied of A (those of several products, if one block
    is all of it), where sums are too short for turning them, or where B comes from far away.
    """
    if not may_read_windows(kind, hardware) or is_open((total(groups.k),)):
        return 0
    if step_of(groups.k, "b") is not None or step_of(groups.k, "a") is None:
        return 0
    _, rows = _blocks(kind, hardware, sizes)
    one = least(rows + 1 - sizes.m, _fits(kind, hardware, sizes.m * sizes.k))
    columns = sizes.n * either(one, products_of_a(groups), 1)
    less = (sizes.m + tuned.window_rows) * sizes.k - _turned(kind, sizes)
    near = tuned.near_windows - reach_of([*groups.n, *groups.k], "b")
    few = least(tuned.lane_columns, tuned.lane_rows * sizes.m)
    positive: int = least(columns + 1 - few, less, near)
    return positive


def _turned(kind: Kind, sizes: Sizes) -> int:
    """What rows in lanes cost: empty lanes, sums that are turned, and slower tiles for last rows
    that are one vector, or half of one."""
    lanes, half = kind.lanes, kind.lanes // 2
    last = (sizes.m - 1) % kind.columns + 1
    rows = either(half + 1 - last, _round(sizes.m, half), _round(sizes.m, lanes))
    narrow = either(lanes + 1 - last, tuned.narrow_lanes, 0)
    slower = either(half + 1 - last, tuned.half_lanes, narrow)
    return rows * (sizes.k + tuned.turned_steps) + slower * sizes.k // 4


def together(words: list[int], kind: Kind) -> int:
    """How many steps of k count as one: tiles multiply so many, matrix-vector products one."""
    return 1 if words[Word.FLAGS] & Flag.VECTOR else kind.together


def _worth_b(kind: Kind, hardware: Hardware, sizes: Sizes, step: int) -> bool:
    """Whether B is read often enough, from badly enough, for a packed copy to pay.

    Tiles fetch the next panel while they use one, so a small B is read in place; the copy itself
    costs little (`Flag.COPIES`).
    """
    tiles, extent = -(-sizes.m // kind.rows), sizes.k * sizes.n * kind.bytes
    if kind.columns * kind.bytes <= LINE:
        if tiles > tuned.crowded_tiles and _crowded(kind, hardware, sizes, step):
            return True
        return tiles > tuned.some_tiles and sizes.k >= tuned.long_sum
    return tiles > tuned.few_tiles and extent > hardware.l2 // 2


def _crowded(kind: Kind, hardware: Hardware, sizes: Sizes, step: int) -> bool:
    """Whether the rows of a panel of B evict each other from the first level.

    Those do of which the lines lie in few sets: a large power of two apart.
    """
    sets = min(PAGE // gcd(hint_of(step) * kind.bytes, PAGE), PAGE // LINE)
    depth, _ = _blocks(kind, hardware, sizes)
    return bool(hint_of(depth) > sets * _ways(hardware))


def _worth_a(kind: Kind, hardware: Hardware, groups: Groups, sizes: Sizes) -> bool:
    """Whether rows (or steps of k) of A lie so that they evict each other from a cache.

    Otherwise a copy gains nothing: tiles read A in short streams that fetch themselves.
    """
    few = 4 * kind.columns
    if _share_sets(kind, groups) and kind.rows > _ways(hardware):
        few = kind.columns  # panels of B that read the lines of A again
    if sizes.n <= few or sizes.m <= 2 * kind.rows:
        return False
    if _share_sets(kind, groups):
        lower = tuned.least_tile <= _ways(hardware) // 2 * 2 < kind.rows
        return not lower or sizes.m * sizes.k * kind.bytes <= hardware.l2
    apart = hardware.l2 // tuned.set_share
    strides = [loop.a * kind.memory_bytes for loop in (*groups.m[-1:], *groups.k)]
    return any(stride and stride % apart == 0 for stride in strides)


def _ways(hardware: Hardware) -> int:
    """How many lines a set of the first level holds; a page has one of each set."""
    return hardware.l1 // PAGE


def _share_sets(kind: Kind, groups: Groups) -> bool:
    """Whether the same place of neighbouring rows of A belongs to one set of the first level."""
    strides = [loop.a * kind.memory_bytes for loop in groups.m[-1:]]
    return any(stride and stride % PAGE == 0 for stride in strides)


def tile_rows(flags: int, kind: Kind, hardware: Hardware, groups: Groups) -> int:
    """Most rows of a register tile: where rows that are read in place share a set of the first
    level, what that holds. More of them evict each other before their lines are used up."""
    in_place = not flags & (Flag.PACK_A | Flag.MADE_A | Flag.LANES)
    if not in_place or not _share_sets(kind, groups):
        return kind.rows
    return min(kind.rows, max(tuned.even_tile, _ways(hardware) // 2 * 2))


def staged(kind: Kind, groups: Groups, epilogue: bool) -> bool:
    """Whether sums need a workspace tile: C is not rows of contiguous sums."""
    if (kind.converts and not kind.whole) or (groups.n and step_of(groups.n, "c") != 1):
        return True
    return epilogue and step_of(groups.m, "c") is None


def turning_rows(kind: Kind, hardware: Hardware, sizes: Sizes) -> list[int]:
    """Numbers of rows up to which another way through tiles may be better than with more."""
    tiles = tuned.some_tiles if kind.columns * kind.bytes <= LINE else tuned.few_tiles
    _, rows = _blocks(kind, hardware, sizes)
    second_level = hardware.l2 // max(1, sizes.k * kind.bytes)
    return [2 * kind.rows, tiles * kind.rows, rows, second_level]


def _blocks(kind: Kind, hardware: Hardware, sizes: Sizes) -> tuple[int, int]:
    """Steps of k and most rows that a cache block has."""
    size = kind.bytes
    deepest = min(tuned.deepest_block, max(64, hardware.l1 * 4 // 3 // (kind.columns * size)))
    pieces = greatest(1, -(-sizes.k // deepest))
    depth = greatest(1, -(-sizes.k // pieces))
    rows = greatest(kind.rows, hardware.l2 * 9 // 20 // (depth * size) // kind.rows * kind.rows)
    return depth, least(rows, 256 // kind.rows * kind.rows)


def block(
    words: list[int],
    kind: Kind,
    hardware: Hardware,
    given: Sizes,
    sizes: Sizes,
    threads: int,
    whole_rows: bool,
) -> None:
    """Cache blocks and work units. The k block depends on k and the route: it shapes rounding."""
    flags, size = words[Word.FLAGS], kind.bytes
    depth, rows = _blocks(kind, hardware, given)
    if flags & Flag.STREAM:
        pieces = greatest(1, -(-given.k // tuned.deepest_stream))
        depth = greatest(1, -(-given.k // pieces))
    widest = UNBOUNDED
    if flags & (Flag.DOTS | Flag.ROWS):
        widest = tuned.vector_columns
    if flags & Flag.PACK_B:
        widest = hardware.l3 // 8 // max(1, sizes.k * size)
        narrow = 4 * kind.columns if not whole_rows else sizes.n
        if sizes.m <= hint_of(rows) or widest < narrow:
            words[Word.FLAGS] = flags = flags ^ Flag.PACK_B | Flag.LATE
            widest = int(tuned.late_share * hardware.l2) // (hint_of(depth) * size)
        elif not flags & (Flag.PACK_A | Flag.MADE_A):
            widest = max(narrow, widest // tuned.read_again)
    if flags & Flag.MADE_B:
        widest = hardware.l2 // (hint_of(depth) * size)
    if whole_rows:
        widest = sizes.n
        fit = hardware.l2 // tuned.tile_share // (given.n * size) // kind.rows * kind.rows
        rows = greatest(kind.rows, least(rows, fit))
        rows = even_share(given.m, -(-given.m // rows), kind.rows)
    elif flags & Flag.TILE:
        widest = min(widest, tuned.tile_columns)
    if flags & Flag.LANES:
        rows = _round(rows // kind.columns * kind.columns, kind.columns)
    others = flags & (Flag.LANES | Flag.LATE | Flag.MADE_A | Flag.MADE_B) or whole_rows
    if not others and sizes.k <= tuned.shallow_sum and sizes.n >= tuned.wide_row * kind.columns:
        rows = either(given.m * given.n * size - hardware.l2, kind.rows, rows)
    words[Word.ROW_BLOCK], words[Word.K_BLOCK] = rows, depth
    widest = max(widest, kind.columns)
    columns, unit_rows = _units(flags, kind, sizes, widest, threads, whole_rows)
    longest = greatest(rows, tuned.long_rows, tuned.long_unit // max(1, columns * sizes.k))
    longest = longest // rows * rows
    if any(isinstance(size, Size) for size in given):
        units = columns, unit_rows
        columns, unit_rows = _open_units(given, sizes, kind, units, widest, threads)
        columns = _round(given.n, kind.columns) if whole_rows else columns
    unit_rows = least(unit_rows, longest)
    if not whole_rows:
        most = _most_columns(tuned.long_unit, hint_of(unit_rows) * sizes.k, kind)
        block = hint_of(least(unit_rows, rows)) * hint_of(depth)
        columns = least(columns, most, _most_columns(tuned.long_look, block, kind))
    words[Word.UNIT_COLUMNS], words[Word.UNIT_ROWS] = columns, unit_rows
    words[Word.ROW_UNITS] = -(-given.m // unit_rows)
    words[Word.COLUMN_UNITS] = -(-given.n // columns)
    group = (kind.rows if flags & Flag.LANES else 8) * kind.columns
    group = kind.columns if flags & Flag.TURNED else group
    words[Word.FINISH_COLUMNS] = columns if whole_rows else least(columns, group)


def fetched_sum(flags: int, kind: Kind, hardware: Hardware, sizes: Sizes) -> int:
    """Steps of k from which on C is fetched while tiles run: of a C that comes from far away, as
    large ones do, even by short sums."""
    if flags & Flag.TILE:
        return tuned.fetched_sum
    near = int(tuned.far_result * hardware.l2)
    extent = sizes.batch * sizes.m * sizes.n * kind.result_bytes
    return either(extent - near, tuned.far_sum, tuned.fetched_sum)


def _most_columns(work: int, steps: int, kind: Kind) -> int:
    """How wide a unit may be that does so much work, with so many steps for each column."""
    wanted = max(tuned.long_rows, work // max(1, steps))
    return max(1, wanted // kind.columns) * kind.columns


def same_tables(words: list[int]) -> int:
    """Flags that all units of a batch share their tables, where those are for all rows (or all
    columns and all steps of k) of a product."""
    rows = least(2 - words[Word.ROW_UNITS], words[Word.ROW_BLOCK] + 1 - words[Word.M])
    columns = least(2 - words[Word.COLUMN_UNITS], words[Word.K_BLOCK] + 1 - words[Word.K])
    return either(rows, Flag.SAME_ROWS, 0) + either(columns, Flag.SAME_COLUMNS, 0)


def same_a(words: list[int], kind: Kind, hardware: Hardware, groups: Groups) -> int:
    """The flag that a copy of A serves several products: of all rows, and all steps of k."""
    flags = words[Word.FLAGS]
    words[Word.A_RUN] = run = products_of_a(groups)
    if not flags & (Flag.PACK_A | Flag.LANES) or flags & Flag.VECTOR or run == 1:
        return 0
    rows = least(2 - words[Word.ROW_UNITS], words[Word.ROW_BLOCK] + 1 - words[Word.M])
    whole = words[Word.K_BLOCK] + 1 - words[Word.K]
    if flags & Flag.LANES:
        whole = _fits(kind, hardware, words[Word.M] * words[Word.K])
    return either(least(rows, whole), Flag.SAME_A, 0)


def _fits(kind: Kind, hardware: Hardware, elements: int) -> int:
    """Positive where a copy of so many elements stays in the second level."""
    return hardware.l2 // 2 + 1 - elements * kind.bytes


def _open_units(
    sizes: Sizes, near: Sizes, kind: Kind, unit: tuple[int, int], widest: int, threads: int
) -> tuple[int, int]:
    """Columns and rows of a unit for any sizes: as many units as for those near, or narrower.

    Few panels are cut into half as many where the busiest thread then has less to do.
    """
    across, down = -(-near.n // unit[0]), -(-near.m // unit[1])
    columns = even_share(sizes.n, across, kind.columns)
    if isinstance(sizes.n, Size) and near.n > threads * unit[0]:
        wider = even_share(sizes.n, -(-across // 2), kind.columns)
        loads = [-(-sizes.n // (threads * each)) * each for each in (columns, wider)]
        columns = either(loads[0] - loads[1], wider, columns)
    if widest < UNBOUNDED:
        columns = least(columns, _round(widest, kind.columns))
    return columns, even_share(greatest(1, sizes.m), down, 2 if down > 1 else 1)


def _units(
    flags: int, kind: Kind, sizes: Sizes, widest: int, threads: int, whole_rows: bool
) -> tuple[int, int]:
    """Columns and rows of a work unit: at most `widest` columns, equal loads for all threads.

    A thread gets one or two contiguous calls; two, so that one that is late leaves work for the
    others, unless that packs, reads or pads too much more.
    """
    parts = -(-sizes.n // widest)
    whole = even_share(sizes.n, parts, kind.columns), max(1, sizes.m)
    most = min(2 * threads, _effort(kind, sizes) // tuned.unit_work)
    if threads == 1 or most < 2 or sizes.batch >= tuned.many_batches * threads:
        return whole
    best, least = whole, _load(flags, kind, sizes, whole, threads)
    for share in sorted({min(threads, most), most}):
        wanted = share // gcd(share, sizes.batch)
        most_down = 1 if flags & Flag.STREAM and not whole_rows else wanted
        cuts = []
        for down in range(wanted if whole_rows else 1, most_down + 1):
            if wanted % down:
                continue
            across = wanted // down * -(-parts // (wanted // down))
            columns = even_share(sizes.n, across, kind.columns)
            cuts.append((columns, even_share(max(1, sizes.m), down, 2 if down > 1 else 1)))
        loads = [_load(flags, kind, sizes, cut, threads) for cut in cuts]
        load = min(loads)
        if load < least * (1 + tuned.late_gain if share > threads else 1):
            best, least = cuts[loads.index(load)], min(load, least)
    return best


def _load(flags: int, kind: Kind, sizes: Sizes, unit: tuple[int, int], threads: int) -> int:
    """What the busiest thread has to do with units of (columns, rows), in multiply-adds.

    Matrix-vector products read B once; tiles are paid in full, and so is every copy. Where B is a
    constant, rows of A that other threads have made lie in the caches of these.
    """
    columns, rows = unit
    units = sizes.batch * -(-sizes.n // columns) * -(-sizes.m // rows)
    if flags & (Flag.DOTS | Flag.ROWS):
        work = (rows * columns + (tuned.row_work if flags & Flag.ROWS else 0)) * sizes.k
    else:
        work = -(-rows // kind.rows) * kind.rows * columns * sizes.k
    copied = columns if flags & (Flag.PACK_B | Flag.LATE | Flag.MADE_B) else 0
    copied += rows if flags & (Flag.PACK_A | Flag.MADE_A) else 0
    across = min(threads, -(-sizes.n // columns))
    foreign = rows - rows // across if flags & Flag.PACKED_B else 0
    work += (
        sizes.k * (tuned.read_work * (rows + columns) + tuned.copy_work * copied)
        + sizes.k * tuned.foreign_work * foreign
        + tuned.unit_overhead
    )
    return -(-units // threads) * work


def _effort(kind: Kind, sizes: Sizes) -> int:
    """Multiply-adds, weighted up where a thin m makes memory the limit, and the stores; of f32:
    a vector has half as many elements of eight bytes, and so does a line of memory."""
    effort: int = sizes.work * (1 + 16 // greatest(1, sizes.m))
    effort += tuned.store_work * sizes.batch * sizes.m * sizes.n
    return effort * max(1, kind.bytes // 4)


def grain_of(kind: Kind, sizes: Sizes, units: int) -> int:
    """Units worth a call of their own; a unit costs something however small it is."""
    each = greatest(tuned.unit_overhead, _effort(kind, sizes) // greatest(1, units))
    return greatest(1, least(units, tuned.grain_work // each))  # type: ignore[no-any-return]


def even_share(total: int, parts: int, step: int) -> int:
    """A share of `total` in `parts` equal parts, as a multiple of `step`."""
    return _round(-(-total // greatest(1, parts)), step)


def _round(value: int, step: int) -> int:
    """The next multiple of `step`, at least one."""
    rounded: int = greatest(step, -(-value // step) * step)
    return rounded


def put_strides(words: list[int], kind: Kind, contraction: NormalForm, groups: Groups) -> None:
    """Offsets and single-dim steps in bytes. In-place operands are stepped by these."""
    size = kind.memory_bytes
    first, second = contraction.offset_a, contraction.offset_b
    if groups.swapped:
        first, second = second, first
    words[Word.OFFSET_A], words[Word.OFFSET_B] = first * size, second * size
    words[Word.OFFSET_C] = contraction.offset_c * kind.result_bytes
    words[Word.STEP_A] = (step_of(groups.k, "a") or 0) * size * together(words, kind)
    words[Word.STEP_B] = (step_of(groups.k, "b") or 0) * size
    words[Word.LEAD_C] = step_of(groups.m, "c") or 0


def made_in_place(words: list[int], kind: Kind, sizes: Sizes, groups: Groups) -> Groups:
    """The groups with strides of blocks in the workspace for operands that are computed."""
    depth, flags = words[Word.K_BLOCK], words[Word.FLAGS]
    if flags & Flag.MADE_A:
        rows = least(words[Word.ROW_BLOCK], greatest(1, sizes.m))
        line, step = _block_strides(kind, depth, rows, across(groups.m, "a"))
        m, k = laid_out(groups.m, "a", line), laid_out(groups.k, "a", step)
        groups, words[Word.LINE_A] = groups._replace(m=m, k=k), line * kind.bytes
    if flags & Flag.MADE_B:
        turned = across(groups.n, "b")
        line, step = _block_strides(kind, depth, words[Word.UNIT_COLUMNS], turned)
        n, k = laid_out(groups.n, "b", line), laid_out(groups.k, "b", step)
        groups, words[Word.LINE_B] = groups._replace(n=n, k=k), line * kind.bytes
    return groups


def _block_strides(kind: Kind, depth: int, extent: int, turned: bool) -> tuple[int, int]:
    """How far rows (or columns) and steps of k are apart in a block; those of one k lie together
    if `turned`. Lines are a vector longer than needed, which spreads cache sets.
    """
    lead = _round(extent if turned else depth, kind.lanes) + kind.lanes
    return (1, lead) if turned else (lead, 1)


def across(loops: list[Loop], field: str) -> bool:
    """Whether an operand is contiguous along a group."""
    return any(getattr(loop, field) == 1 for loop in loops)


def put_panels(words: list[int], kind: Kind, groups: Groups, sizes: Sizes) -> int:
    """Panel layout of B; returns its bytes.

    Spare rows take the overhang of transposition.  What is packed ahead has none: memory is
    fetched in one stream from panel to panel.
    """
    flags = words[Word.FLAGS]
    depth = words[Word.K_BLOCK] if flags & Flag.LATE else sizes.k
    spare = 0 if flags & Flag.PACKED_B else kind.lanes
    step = (depth + spare) * kind.columns * kind.bytes + LINE
    words[Word.PANEL_STEP] = step
    one = _round(sizes.n, kind.columns) // kind.columns * step
    batches = packed_batches(groups, sizes)
    words[Word.PACKED_STEP] = one if batches > 1 else 0
    return batches * one


def packed_batches(groups: Groups, sizes: Sizes) -> int:
    """Number of different B matrices."""
    return sizes.batch if any(loop.b for loop in groups.batch) else 1


def put_workspace(words: list[int], kind: Kind, sizes: Sizes, same: int) -> int:
    """Lay out one thread's workspace and return its bytes; unused regions are empty. `same`: the
    flag of `same_a`."""
    flags = words[Word.FLAGS]
    vector = flags & (Flag.DOTS | Flag.ROWS)
    every = greatest(1, sizes.m)
    rows = every if vector else least(words[Word.ROW_BLOCK], every)
    depth = sizes.k if vector else words[Word.K_BLOCK]
    columns = least(words[Word.UNIT_COLUMNS], _round(sizes.n, kind.columns))
    padded = rows + kind.lanes
    row_step = (_round(depth, kind.lanes) + kind.lanes) * kind.bytes
    lead = columns + kind.lanes
    if flags & Flag.LANES:
        steps = either(same, sizes.k, depth)
        row_step = (steps + kind.lanes) * kind.columns * kind.bytes + 64
    words[Word.ROW_STEP], words[Word.TILE_LEAD] = row_step, lead
    packs_b = flags & (Flag.PACK_B | Flag.LATE)
    tile = rows * lead * kind.bytes if flags & Flag.TILE else 0
    turned = 0
    if flags & Flag.TURNED:
        words[Word.TURNED_STEP] = (_round(rows, kind.lanes) + kind.lanes) * kind.bytes
        turned = words[Word.FINISH_COLUMNS] * words[Word.TURNED_STEP]
    panels = columns // kind.columns * words[Word.PANEL_STEP] if packs_b else 0
    packed_a = padded * row_step if flags & Flag.PACK_A else 0
    if flags & Flag.LANES:
        packed_a = _round(rows, kind.columns) // kind.columns * row_step
    copied = Flag.PACK_A | Flag.PACKED_B | Flag.PACK_B | Flag.LATE | Flag.LANES | Flag.WINDOWS
    packs_k = Flag.PACK_A if vector else copied
    tables_k = together(words, kind) * depth * 8 if flags & packs_k else 0
    line_a, line_b = words[Word.LINE_A], words[Word.LINE_B]
    made_a = greatest(line_a * rows, words[Word.STEP_A] * depth) if flags & Flag.MADE_A else 0
    made_b = greatest(line_b * columns, words[Word.STEP_B] * depth) if flags & Flag.MADE_B else 0
    position = 0
    for word, extent in (
        *((word, rows * 8 + 8) for word in _ROW_TABLES),
        *((word, columns * 8) for word in _COLUMN_TABLES),
        *((word, tables_k) for word in _K_TABLES),
        (Word.SCRATCH, kind.columns * kind.bytes),
        (Word.BLOCK_A, packed_a),
        (Word.TILE, tile),
        (Word.TURNED, turned),
        (Word.PANELS_B, panels),
        (Word.MADE_A, made_a),
        (Word.MADE_B, made_b),
    ):
        words[word] = position
        position += -(-extent // 64) * 64
    # An odd number of lines keeps the threads' regions out of each other's cache sets.
    words[Word.WORKSPACE] = position = (position // 128 * 2 + 1) * 64
    return position


_ROW_TABLES = (Word.ROW_A, Word.ROW_A_RUN, Word.ROW_C, Word.ROW_PACKED, Word.ROW_OUT)
_COLUMN_TABLES = (Word.COLUMN_B, Word.COLUMN_B_RUN, Word.COLUMN_C, Word.COLUMN_C_RUN)
_K_TABLES = (Word.K_A, Word.K_A_RUN, Word.K_B, Word.K_B_RUN)


def put_dims(words: list[int], word: int, loops: list[Loop], kind: Kind) -> None:
    """Append the dims of a group in bytes; an empty group is one dim of extent one."""
    size = kind.memory_bytes
    words[word] = max(1, len(loops))
    words[word - Word.BATCH_DIMS + Word.BATCH_AT] = len(words)
    if not loops:
        words += (1, 0, 0, 0)
    for loop in loops:
        words += (loop.extent, loop.a * size, loop.b * size, loop.c * kind.result_bytes)
