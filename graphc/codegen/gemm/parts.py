"""Which functions a core needs for a plan, and what it is called.

A program has one core per data type with what all its plans need.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from graphc.codegen.gemm.form import Groups, total
from graphc.codegen.gemm.layout import (
    STREAM_ROWS,
    Flag,
    Part,
    Slot,
    Word,
    copy_bit,
    half_lane_bit,
    half_of,
    height_bit,
    lane_bit,
    narrow_lane_bit,
    stream_bit,
    window_bit,
)
from graphc.codegen.gemm.tile_choice import Kind
from graphc.codegen.tuning import tuned
from graphc.ir.sizes import Size, hint_of, is_open, least

_ENTRY = "graphc_contract_"
_RANGES = {"TILES": "tile", "NARROW": "narrow", "COPIES": "copy", "WINDOWS": "window"}
_RANGES |= {"NARROW_WINDOWS": "narrow_window", "LANES": "lane", "NARROW_LANES": "narrow_lane"}
_RANGES |= {"HALF_LANES": "half_lane", "HALF_TILES": "half_tile", "HALF_NARROW": "half_narrow"}
_RANGES |= {"HALF_WINDOWS": "half_window", "HALF_NARROW_WINDOWS": "half_narrow_window"}
_SINGLE = {name for name in vars(Slot) if name.isupper()} - _RANGES.keys() - {"STREAM", "COUNT"}
SLOT_NAMES = {
    **{getattr(Slot, name): name.lower() for name in _SINGLE},
    **{Slot.STREAM + rows: f"stream_{rows}" for rows in range(1, STREAM_ROWS + 1)},
    **{
        getattr(Slot, slots) + half: f"{name}_{2 * half}"
        for slots, name in _RANGES.items()
        for half in range(1, 8)
    },
}


class Module(NamedTuple):
    """LLVM IR of one part of a core and the symbol it defines. `inner`: its speed matters."""

    symbol: str
    text: str
    inner: bool

    @property
    def is_entry(self) -> bool:
        """Whether it also defines the symbol with "_fused" behind it."""
        return self.symbol.startswith(_ENTRY)


def core_name(dtype: str) -> str:
    """Exported name of the core of a data type (already mapped by `core_dtype`)."""
    return f"{_ENTRY}{dtype}"


def function_name(dtype: str, slot: int) -> str:
    """Exported name of what fills a slot of the core's table."""
    return f"graphc_core_{dtype}_{SLOT_NAMES[slot]}"


def parts_of(words: list[int], kind: Kind, groups: Groups, ordered: bool) -> int:
    """The `Part`s of the core that a plan runs through."""
    flags, columns = words[Word.FLAGS], words[Word.N]
    parts = Part.ORDERED if ordered else 0
    parts |= Part.MADE if flags & (Flag.MADE_A | Flag.MADE_B) else 0
    if _is_brisk(words, kind, groups):
        parts |= Part.BRISK_ROWS if flags & Flag.VECTOR else Part.BRISK
    parts |= Part.TABLES if len(groups.k) > 1 else 0
    parts |= Part.PACK_A if flags & Flag.PACK_A else 0
    if flags & (Flag.PACK_B | Flag.LATE):
        parts |= Part.PACK_B
    parts |= Part.SCATTER if flags & Flag.TILE else 0
    parts |= Part.TURN if flags & Flag.TURNED else 0
    across_a = parts & Part.PACK_A and any(loop.a == 1 for loop in groups.m)
    across_b = parts & Part.PACK_B and any(loop.b == 1 for loop in groups.k)
    if across_a or across_b:
        parts |= Part.TURNS
    if flags & (Flag.DOTS | Flag.ROWS):
        dots = Part.DOTS | (Part.DOT_TILES if words[Word.M] > 1 else 0)
        return parts | (dots if flags & Flag.DOTS else Part.ROWS)
    if flags & Flag.LANES:
        for bit in _lane_bits(words, kind):
            parts |= sum(map(bit, _lane_widths(words, kind)))
        return parts | Part.PACK_B | Part.TURNS
    if flags & Flag.STREAM:
        return parts | sum(map(stream_bit, _stream_rows(words)))
    half = half_width(columns, kind)
    if isinstance(columns, Size) or (0 < columns % kind.columns <= kind.lanes and half is None):
        parts |= Part.NARROW
    for height in _heights(words, kind):
        tile = window_bit(height) if flags & Flag.WINDOWS else height_bit(height)
        parts |= tile if half is None else tile | half_of(tile, not half)
    if not isinstance(columns, Size) and 0 < columns <= kind.lanes and kind.vectors > 1:
        return parts
    whole = words[Word.UNIT_COLUMNS]
    if half is not None and not flags & Flag.COPIES and columns <= least(kind.columns, whole):
        return parts
    rows = least(words[Word.ROW_BLOCK], words[Word.UNIT_ROWS], words[Word.M])
    if flags & Flag.COPIES and rows:
        for height in _first_heights(rows, columns, kind):
            parts |= copy_bit(height)
    return parts | Part.TILES


def half_width(columns: int, kind: Kind) -> int | None:
    """Lanes before the half vector that the last columns end with, or None where they do not."""
    if not kind.halves or isinstance(columns, Size):
        return None
    before, last = divmod((columns - 1) % kind.columns, kind.lanes)
    return before * kind.lanes if last < kind.lanes // 2 else None


def _stream_rows(words: list[int]) -> range:
    """How many rows a run of units may have, of a product of few rows."""
    rows, units = words[Word.M], words[Word.ROW_UNITS]
    if is_open((rows, units)):
        return range(1, STREAM_ROWS + 1)
    return range(rows, rows + 1) if units == 1 else range(1, rows + 1)


def _lane_bits(words: list[int], kind: Kind) -> Sequence[Callable[[int], int]]:
    """Which tiles a plan has whose lanes are rows of A: of whole panels, and of what the last panel
    has if it fits one vector, or half of one.

    Wider ones stand in for those that a core has not.
    """
    rows = words[Word.M]
    if is_open((rows,)):
        return [lane_bit, narrow_lane_bit, half_lane_bit]
    last = rows % kind.columns or kind.columns
    ends = half_lane_bit if last <= kind.lanes // 2 else narrow_lane_bit
    return [lane_bit] * (rows > kind.lanes) + [ends] * (last <= kind.lanes)


def _lane_widths(words: list[int], kind: Kind) -> set[int]:
    """Widths of the tiles into which groups of columns are dealt, where rows of A are in lanes."""
    unit, columns, group = words[Word.UNIT_COLUMNS], words[Word.N], words[Word.FINISH_COLUMNS]
    if is_open((unit, columns, group)):
        return set(range(2, kind.rows + 1, 2))
    units = {min(unit, columns), columns - (columns - 1) // unit * unit}
    groups = {min(width, group) for width in units} | {width % group for width in units}
    return set().union(*(_cut(width, kind) for width in groups - {0}))


def _first_heights(rows: int, columns: int, kind: Kind) -> set[int]:
    """Heights of the first tile of blocks of rows, which copies B while it reads that.

    Of an open number of rows: few are copied only where vectors do not end with rows of B, which
    some machines then cannot read in place.  A panel is packed where a height is missing.
    """
    if not isinstance(rows, Size):
        return {max(_cut(rows, kind))}
    least = 0 if is_open((columns,)) or columns % kind.lanes else tuned.crowded_tiles * kind.rows
    # Two more tiles, and none is lower than those before: each deals its rows more evenly.
    return {max(_cut(count, kind)) for count in range(least + 1, least + 2 * kind.rows + 1)}


def _is_brisk(words: list[int], kind: Kind, groups: Groups) -> bool:
    """Whether the walk takes a good part of the time: many small products, or many tiles of short
    sums.
    """
    batch, depth = hint_of(total(groups.batch)), hint_of(words[Word.DEPTH])
    area = words[Word.M] * words[Word.N]
    if batch >= tuned.brisk_products and hint_of(area) * depth <= tuned.brisk_work:
        return True
    tiles = batch * hint_of(area) // (kind.rows * kind.columns)
    many = isinstance(area, Size) or tiles >= tuned.brisk_tiles
    return depth <= tuned.brisk_sum and many


def _heights(words: list[int], kind: Kind) -> set[int]:
    """Heights of the tiles into which the row blocks of any run of units are cut."""
    units, most = words[Word.ROW_UNITS], words[Word.ROW_BLOCK]
    if is_open((units, most, words[Word.M])) or units > tuned.known_units:
        return set(range(2, kind.rows + 1, 2))
    runs = {count * words[Word.UNIT_ROWS] for count in range(1, units)}
    runs |= {words[Word.M] - first * words[Word.UNIT_ROWS] for first in range(units)}
    blocks = {run % most for run in runs} | {min(run, most) for run in runs}
    found = set()
    for rows in blocks - {0}:
        found |= _cut(rows, kind)
    return found


def _cut(rows: int, kind: Kind) -> set[int]:
    """Heights of the tiles into which a block of rows is cut, or widths of those of columns."""
    pairs = -(-rows // 2)
    base, longer = divmod(pairs, -(-pairs // (kind.rows // 2)))
    return {2 * base, 2 * (base + (longer > 0))}
