"""The contraction core as LLVM IR: a walk over blocks, and the functions in which time is spent.

    unit range -> (batch, columns j0..j1, rows i0..i1)          neighbouring row units run as one
      pack B[all k, j0..j1] into panels                         unless read in place or packed ahead
      for each row block:  for each k block:  pack A;  tiles    panels outside, row tiles inside
                                              last k block: epilogue or scatter per column group

Windows of images may be read in place, with panels of A in place of those of B (`lane_tiles`).

The walk is the same for all contractions of a data type; it calls copies, tiles and dot products
through a table (`Slot`). A program has one table per data type, of what its plans need: each
function is compiled once and serves every program whose table names it.

k is never split between calls, so results do not depend on threads. Blocking after Goto and van
de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

from graphc.codegen.gemm.bundles import (
    emit_pack_a_bundles,
    emit_pack_b_bundles,
    emit_transpose_bundles,
)
from graphc.codegen.gemm.emit import Body
from graphc.codegen.gemm.frame import (
    Frame,
    emit_fill_rows,
    emit_make,
    emit_pack_columns,
    emit_pack_rows,
)
from graphc.codegen.gemm.hardware import Hardware
from graphc.codegen.gemm.lane_tiles import (
    LANE_TILE_ARGUMENTS,
    emit_lane_pack,
    emit_lane_strip,
    emit_lane_tile,
)
from graphc.codegen.gemm.layout import (
    STREAM_ROWS,
    Field,
    Flag,
    Part,
    Slot,
    Word,
    copy_bit,
    height_bit,
    lane_bit,
    stream_bit,
    window_bit,
)
from graphc.codegen.gemm.packing import (
    FILL_ARGUMENTS,
    emit_fill,
    emit_offset,
    emit_pack_a,
    emit_pack_b,
    emit_scatter,
    emit_transpose,
)
from graphc.codegen.gemm.panels import emit_block, emit_finish, emit_strip, emit_sweep
from graphc.codegen.gemm.parts import Module, core_name
from graphc.codegen.gemm.register_tiles import (
    TILE_ARGUMENTS,
    emit_dot_tile,
    emit_dots,
    emit_rows,
    emit_stream_tile,
    emit_tile,
    tile_name,
    tile_parts,
)
from graphc.codegen.gemm.thin import emit_vector
from graphc.codegen.gemm.tile_choice import Kind, kind_of, may_read_windows
from graphc.codegen.gemm.vector import Core
from graphc.codegen.tuning import tuned
from graphc.tuning import forgotten

HOOKS = [("ptr", "epilogue"), ("ptr", "prologue_a"), ("ptr", "prologue_b")]
ABI = [("ptr", "bufs"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("i64", "thread")]
TABLE = ("ptr", "core")
FEW_HEIGHTS = (2, 4, 8)
STREAMS = sum(stream_bit(rows) for rows in range(1, STREAM_ROWS + 1))
LANES = sum(lane_bit(columns) for columns in range(2, 16, 2))

_SHARED = emit_offset, emit_fill_rows, emit_finish, emit_pack_rows

Emitter = Callable[[Core], str]


@forgotten
@functools.cache
def core_modules(dtype: str, hardware: Hardware, parts: int) -> tuple[Module, ...]:
    """The core of one data type with the given `Part`s; modules come after those that they call.

    The last one defines `core_name(dtype, parts)` and, taking an epilogue and prologues, that name
    with "_fused" behind it.
    """
    kind = kind_of(dtype, hardware)
    functions = {}
    for slot, emit in _functions(kind, hardware, parts):
        core = Core(kind, hardware, bool(parts & Part.TURNS), 0 if slot == Slot.PACK_A else 1)
        functions[slot] = _exported(core, emit(core), inner=True)
    fill = _fill(kind, hardware)._replace(inner=bool(parts & Part.TABLES))
    walk = _walk(kind, hardware)._replace(inner=bool(parts & (Part.BRISK | Part.BRISK_ROWS)))
    around = {}
    if parts & (Part.DOTS | Part.ROWS):
        around[Slot.VECTOR] = _rows(kind, hardware)._replace(inner=bool(parts & Part.BRISK_ROWS))
    if parts & (Part.TILES | STREAMS | LANES):
        around[Slot.BLOCK] = _panels(kind, hardware)._replace(inner=bool(parts & Part.BRISK))
    symbols = {slot: module.symbol for slot, module in (functions | around).items()}
    entry = _entry(kind, hardware, parts, symbols, walk.symbol)
    return *functions.values(), fill, *around.values(), walk, entry


def _functions(kind: Kind, hardware: Hardware, parts: int) -> Iterator[tuple[int, Emitter]]:
    """What a core of these parts is made of besides the walk: slot, and what emits it."""
    if parts & Part.PACK_A and (not kind.bundles or parts & (Part.DOTS | Part.ROWS)):
        yield Slot.PACK_A, _emit_pack_a
    if parts & Part.PACK_A and kind.bundles:
        yield Slot.PACK_A_BUNDLES, emit_pack_a_bundles
    if parts & Part.PACK_B:
        yield Slot.PACK_B, _emit_pack_b
    if parts & Part.SCATTER:
        yield Slot.SCATTER, emit_scatter
    if parts & Part.DOTS:
        yield Slot.DOTS, functools.partial(emit_dots, columns=kind.dots, unroll=2)
        yield Slot.DOT, functools.partial(emit_dots, columns=1, unroll=8)
    if parts & Part.DOT_TILES:
        yield Slot.DOT_TILE, functools.partial(emit_dot_tile, rows=kind.dot_rows)
        yield Slot.DOT_ROW, functools.partial(emit_dot_tile, rows=1)
    if parts & Part.ROWS:
        yield Slot.ROWS, functools.partial(emit_rows, rows=tuned.row_group)
        yield Slot.ROW, functools.partial(emit_rows, rows=1)
    for rows in range(1, STREAM_ROWS + 1):
        if parts & stream_bit(rows):
            yield Slot.STREAM + rows, functools.partial(emit_stream_tile, rows=rows)
    if parts & Part.TILES:
        yield from _tiles(kind, parts)
    for columns in range(2, kind.rows + 1, 2) if may_read_windows(kind, hardware) else ():
        if parts & lane_bit(columns):
            yield Slot.LANES + columns // 2, functools.partial(emit_lane_tile, columns=columns)


def _tiles(kind: Kind, parts: int) -> Iterator[tuple[int, Emitter]]:
    """The register tiles. One vector is for the last columns only: few heights do, put together."""
    for rows in _heights(kind, parts):
        vectors = kind.vectors
        yield Slot.TILES + rows // 2, functools.partial(emit_tile, rows=rows, vectors=vectors)
    for rows in _narrow_heights(kind, parts):
        yield Slot.NARROW + rows // 2, functools.partial(emit_tile, rows=rows, vectors=1)
    for rows in range(2, kind.rows + 1, 2):
        if parts & copy_bit(rows):
            emit = functools.partial(emit_tile, rows=rows, vectors=kind.vectors, copies=True)
            yield Slot.COPIES + rows // 2, emit
    for rows in _window_heights(kind, parts):
        emit = functools.partial(emit_tile, rows=rows, windows=True)
        yield Slot.WINDOWS + rows // 2, functools.partial(emit, vectors=kind.vectors)
        if parts & Part.NARROW and kind.vectors > 1:
            yield Slot.NARROW_WINDOWS + rows // 2, functools.partial(emit, vectors=1)


def _heights(kind: Kind, parts: int) -> list[int]:
    return [rows for rows in range(2, kind.rows + 1, 2) if parts & height_bit(rows)]


def _window_heights(kind: Kind, parts: int) -> list[int]:
    return [rows for rows in range(2, kind.rows + 1, 2) if parts & window_bit(rows)]


def _narrow_heights(kind: Kind, parts: int) -> list[int]:
    """Heights of the tiles of one vector, if the core needs them apart from the others."""
    if not parts & Part.NARROW or kind.vectors == 1:
        return []
    wide = _heights(kind, parts)
    return wide if len(wide) <= len(FEW_HEIGHTS) else sorted({*FEW_HEIGHTS, kind.rows})


def _emit_pack_a(core: Core) -> str:
    if core.turns and not core.kind.bundles:
        emit_transpose(core)
    return emit_pack_a(core)


def _emit_pack_b(core: Core) -> str:
    if core.turns:
        emit_transpose_bundles(core) if core.kind.bundles else emit_transpose(core)
    return emit_pack_b_bundles(core) if core.kind.bundles else emit_pack_b(core)


@forgotten
@functools.cache
def _fill(kind: Kind, hardware: Hardware) -> Module:
    """What fills tables: those of the windows of convolutions are long."""
    table = Core(kind, hardware)
    emit_offset(table)
    return _exported(table, emit_fill(table), inner=False)


@forgotten
@functools.cache
def _walk(kind: Kind, hardware: Hardware) -> Module:
    """What all contractions of a data type begin with."""
    core = Core(kind, hardware)
    emit_offset(core)
    return _exported(core, _emit_run(core), inner=False)


@forgotten
@functools.cache
def _rows(kind: Kind, hardware: Hardware) -> Module:
    """A few rows of C."""
    return _with_tables(Core(kind, hardware), (*_SHARED, emit_vector))


@forgotten
@functools.cache
def _panels(kind: Kind, hardware: Hardware) -> Module:
    """A block of C, by panels and tiles."""
    core = Core(kind, hardware)
    lanes = (emit_lane_strip, emit_lane_pack) if core.reads_windows else ()
    panels = emit_pack_columns, emit_make, emit_strip, *lanes, emit_sweep, emit_block
    return _with_tables(core, (*_SHARED, *panels))


def _with_tables(core: Core, emitters: Sequence[Callable[[Core], object]]) -> Module:
    """Functions that fill tables by a module of its own; the last of them is exported."""
    fill = _fill(core.kind, core.hardware).symbol
    core.declared.add(f"declare void @{fill}({', '.join(of for of, _ in FILL_ARGUMENTS)})")
    for emit in emitters:
        emit(core)
    for name, text in core.functions.items():
        core.functions[name] = text.replace("@fill(", f"@{fill}(")
    return _exported(core, name, inner=False)


def _exported(core: Core, name: str, inner: bool) -> Module:
    """The module of a core's functions so far, of which one gets a name that no other text has."""
    text = core.module()
    symbol = f"graphc_{core.kind.name}_{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    text = re.sub(rf"define internal (\w+) @{name}\(", rf"define \1 @{symbol}(", text)
    return Module(symbol, text, inner)


def _emit_run(core: Core) -> str:
    """Walk the work units, merging neighbours in rows."""
    body = Body("walk", [TABLE, *ABI, *HOOKS], "i32")
    frame = Frame(body)
    row_units, column_units = frame.get(Word.ROW_UNITS), frame.get(Word.COLUMN_UNITS)
    work = body.at(frame.buffer(3), body.mul("%thread", frame.get(Word.WORKSPACE)))
    a = body.at(frame.buffer(0), frame.get(Word.OFFSET_A))
    b = body.at(frame.buffer(1), frame.get(Word.OFFSET_B))
    c = body.at(frame.buffer(2), frame.get(Word.OFFSET_C))
    flags = frame.get(Word.FLAGS)
    vector = body.test("ne", body.new(f"and i64 {flags}, {Flag.DOTS | Flag.ROWS}"), 0)
    function = frame.function(body.choose(vector, "i64", Slot.VECTOR, Slot.BLOCK))
    packed = frame.has(Flag.PACKED_B)
    unit, status = body.local("i64", "%lo"), body.local("i32", 0)
    first = body.local("i1", "true")
    with body.during(lambda: body.test("slt", unit.get(), "%hi")):
        here = unit.get()
        row, rest = body.rem(here, row_units), body.div(here, row_units)
        column, batch = body.rem(rest, column_units), body.div(rest, column_units)
        count = body.least(body.sub(row_units, row), body.sub("%hi", here))
        i0 = body.mul(row, frame.get(Word.UNIT_ROWS))
        i1 = body.mul(body.add(row, count), frame.get(Word.UNIT_ROWS))
        i1 = body.least(i1, frame.get(Word.M))
        j0 = body.mul(column, frame.get(Word.UNIT_COLUMNS))
        j1 = body.least(body.add(j0, frame.get(Word.UNIT_COLUMNS)), frame.get(Word.N))
        ahead = body.at(frame.buffer(1), body.mul(batch, frame.get(Word.PACKED_STEP)))
        in_b = body.choose(packed, "ptr", ahead, frame.batch(b, Field.B, batch))
        operands = (
            f"ptr %core, ptr %bufs, ptr %params, ptr {work}, i64 %thread, ptr %epilogue,"
            f" i64 {batch}, i1 {first.get()},"
            f" ptr {frame.batch(a, Field.A, batch)}, ptr {in_b},"
            f" ptr {frame.batch(c, Field.C, batch)}, i64 {i0}, i64 {i1}, i64 {j0}, i64 {j1},"
            " ptr %prologue_a, ptr %prologue_b"
        )
        result = body.new(f"call i32 {function}({operands})")
        status.set(body.new(f"or i32 {status.get()}, {result}"))
        unit.set(body.add(here, count))
        first.set("false")
    body.do(f"ret i32 {status.get()}")
    return core.finish(body)


def _entry(
    kind: Kind, hardware: Hardware, parts: int, symbols: dict[int, str], walk: str
) -> Module:
    """The table, and the entries that hand it to the walk: with an epilogue, and the plain one."""
    core, name = Core(kind, hardware), core_name(kind.name, parts)
    names = dict(symbols) | _stand_ins(core, parts, symbols)
    slots = ", ".join(f"ptr @{names[s]}" if s in names else "ptr null" for s in range(Slot.COUNT))
    fused = Body(f"{name}_fused", [*ABI, *HOOKS], "i32")
    operands = ", ".join(f"{of} %{argument}" for of, argument in [*ABI, *HOOKS])
    fused.do(f"ret i32 {fused.new(f'call i32 @{walk}(ptr @table, {operands})')}")
    plain = Body(name, ABI, "i32")
    operands = ", ".join([*(f"{of} %{argument}" for of, argument in ABI), *["ptr null"] * 3])
    plain.do(f"ret i32 {plain.new(f'call i32 @{name}_fused({operands})')}")
    for body in (fused, plain):
        core.finish(body, "")
    kinds = ", ".join(of for of, _ in [TABLE, *ABI, *HOOKS])
    core.declared.add(f"declare i32 @{walk}({kinds})")
    for slot, symbol in symbols.items():
        tile = LANE_TILE_ARGUMENTS if slot > Slot.LANES else TILE_ARGUMENTS
        is_tile = Slot.TILES < slot < Slot.VECTOR
        kinds = ", ".join(of for of, _ in tile) if is_tile else ""
        core.declared.add(f"declare void @{symbol}({kinds})")
    table = f"@table = internal constant [{Slot.COUNT} x ptr] [{slots}]\n"
    return Module(name, table + core.module(), False)


def _stand_ins(core: Core, parts: int, symbols: dict[int, str]) -> dict[int, str]:
    """What fills the slots of narrow tiles that have no function of their own.

    Wide tiles do if no plan needs narrow ones; else two of those that exist are put together.
    """
    there, made = _narrow_heights(core.kind, parts), {}
    for rows in _heights(core.kind, parts):
        slot = Slot.NARROW + rows // 2
        if not there:
            made[slot] = symbols[Slot.TILES + rows // 2]
        elif slot not in symbols:
            made[slot] = _emit_joined(core, rows, tile_parts(there, rows), symbols)
    for rows in _window_heights(core.kind, parts):
        slot = Slot.NARROW_WINDOWS + rows // 2
        if slot not in symbols:
            made[slot] = symbols[Slot.WINDOWS + rows // 2]
    return made


def _emit_joined(core: Core, rows: int, heights: tuple[int, ...], symbols: dict[int, str]) -> str:
    """A tile of one vector that runs others one below the other."""
    body = Body(tile_name(rows, 1), TILE_ARGUMENTS)
    start = 0
    for height in heights:
        below = {name: body.at(f"%{name}", start, "i64") for name in ("row_a", "row_c")}
        operands = ", ".join(f"{of} {below.get(name, f'%{name}')}" for of, name in TILE_ARGUMENTS)
        body.do(f"call void @{symbols[Slot.NARROW + height // 2]}({operands})")
        start += height
    body.do("ret void")
    return core.finish(body)
