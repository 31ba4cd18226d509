"""The contraction core as LLVM IR: a walk over blocks, and the functions in which time is spent.

    unit range -> (batch, columns j0..j1, rows i0..i1)          neighbouring row units run as one
      pack B[all k, j0..j1] into panels                         unless read in place or packed ahead
      for each row block:  for each k block:  pack A;  tiles    panels outside, row tiles inside
                                              last k block: epilogue or scatter per column group

Windows of images may be read in place, with panels of A in place of those of B (`lane_tiles`).

The walk is the same for all contractions of a data type; everything that it leads to is called
through a table (`Slot`). The table names all functions that there may be, weakly: those that a
program does not need are null. So each function, the walk and the table are compiled once and serve
every program.

k is never split between calls, so results do not depend on threads. Blocking after Goto and van
de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
"""

import functools
import re
from collections.abc import Callable, Collection, Iterator

from graphc.codegen.gemm.bundles import (
    emit_pack_a_bundles,
    emit_pack_b_bundles,
    emit_transpose_bundles,
)
from graphc.codegen.gemm.emit import Body
from graphc.codegen.gemm.finish import emit_finish, emit_scatter, emit_turn
from graphc.codegen.gemm.frame import (
    Frame,
    emit_fill_rows,
    emit_make,
    emit_pack_columns,
    emit_pack_rows,
)
from graphc.codegen.gemm.hardware import Hardware
from graphc.codegen.gemm.lane_tiles import emit_lane_pack, emit_lane_strip, emit_lane_tile
from graphc.codegen.gemm.layout import (
    STREAM_ROWS,
    Field,
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
from graphc.codegen.gemm.packing import (
    emit_fill,
    emit_offset,
    emit_pack_a,
    emit_pack_b,
    emit_transpose,
)
from graphc.codegen.gemm.panels import emit_block, emit_strip, emit_sweep
from graphc.codegen.gemm.parts import Module, core_name, function_name
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
HALVES = sum(
    half_of(tile(rows), narrow)
    for tile in (height_bit, window_bit)
    for rows in range(2, 16, 2)
    for narrow in (False, True)
)
STREAMS = sum(stream_bit(rows) for rows in range(1, STREAM_ROWS + 1))
LANES = sum(
    bit(columns)
    for columns in range(2, 16, 2)
    for bit in (lane_bit, narrow_lane_bit, half_lane_bit)
)

Emitter = Callable[[Core], str]


@forgotten
@functools.cache
def core_modules(dtype: str, hardware: Hardware, parts: int) -> tuple[Module, ...]:
    """The core of one data type with the given `Part`s; modules come after those that they call.

    The last one defines `core_name(dtype)` and, taking an epilogue and prologues, that name with
    "_fused" behind it.
    """
    kind = kind_of(dtype, hardware)
    made = []
    for slot, emit in _functions(kind, hardware, parts):
        core = Core(kind, hardware, bool(parts & Part.TURNS), 0 if slot == Slot.PACK_A else 1)
        made.append(_exported(core, slot, emit(core), inner=True))
    made += [_joined(kind, hardware, rows, parts) for rows in _joined_heights(kind, parts)]
    for slot, emit, inner in _steps(parts):
        made.append(_step(kind, hardware, slot, emit)._replace(inner=bool(inner)))
    entry = _entry(kind, hardware)._replace(inner=bool(parts & (Part.BRISK | Part.BRISK_ROWS)))
    return *made, entry


def _steps(parts: int) -> Iterator[tuple[int, Emitter, int]]:
    """What is around the functions in which time is spent: slot, what emits it, and whether it is
    worth LLVM's time.
    """
    brisk = parts & (Part.BRISK | Part.BRISK_ROWS)
    yield Slot.FILL, emit_fill, parts & Part.TABLES  # tables of the windows of convolutions: long
    yield Slot.FILL_ROWS, emit_fill_rows, brisk
    yield Slot.FINISH, emit_finish, brisk
    if parts & Part.PACK_A:
        yield Slot.PACK_ROWS, emit_pack_rows, brisk
    if parts & Part.PACK_B:
        yield Slot.PACK_COLUMNS, emit_pack_columns, parts & Part.BRISK
    if parts & Part.MADE:
        yield Slot.MAKE, emit_make, parts & Part.BRISK
    if parts & (Part.DOTS | Part.ROWS):
        yield Slot.VECTOR, emit_vector, parts & Part.BRISK_ROWS
    if parts & (Part.TILES | Part.NARROW | STREAMS | LANES | HALVES):
        yield Slot.BLOCK, _emit_panels, parts & Part.BRISK
    if parts & LANES:
        yield Slot.LANE_STRIP, emit_lane_strip, parts & Part.BRISK
        yield Slot.LANE_PACK, emit_lane_pack, parts & Part.BRISK


@forgotten
@functools.cache
def _step(kind: Kind, hardware: Hardware, slot: int, emit: Emitter) -> Module:
    core = Core(kind, hardware)
    if slot == Slot.FILL:
        emit_offset(core)
    return _exported(core, slot, emit(core), inner=False)


def _emit_panels(core: Core) -> str:
    """A block of C, by panels and tiles."""
    emit_strip(core)
    emit_sweep(core)
    return emit_block(core)


def _functions(kind: Kind, hardware: Hardware, parts: int) -> Iterator[tuple[int, Emitter]]:
    """The functions of a core of these parts in which time is spent: slot, and what emits it."""
    if parts & Part.PACK_A and (not kind.bundles or parts & (Part.DOTS | Part.ROWS)):
        yield Slot.PACK_A, _emit_pack_a
    if parts & Part.PACK_A and kind.bundles:
        yield Slot.PACK_A_BUNDLES, emit_pack_a_bundles
    if parts & Part.PACK_B:
        yield Slot.PACK_B, _emit_pack_b
    if parts & Part.SCATTER:
        yield Slot.SCATTER, emit_scatter
    if parts & Part.TURN:
        yield Slot.TURN, emit_turn
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
    if parts & (Part.TILES | Part.NARROW):
        yield from _tiles(kind, parts)
    if kind.halves:
        yield from _half_tiles(kind, parts)
    for columns in range(2, kind.rows + 1, 2) if may_read_windows(kind, hardware) else ():
        emit = functools.partial(emit_lane_tile, columns=columns)
        if parts & lane_bit(columns):
            yield Slot.LANES + columns // 2, functools.partial(emit, lanes=kind.columns)
        if parts & narrow_lane_bit(columns):
            yield Slot.NARROW_LANES + columns // 2, functools.partial(emit, lanes=kind.lanes)
        if parts & half_lane_bit(columns):
            yield Slot.HALF_LANES + columns // 2, functools.partial(emit, lanes=kind.lanes // 2)


def _tiles(kind: Kind, parts: int) -> Iterator[tuple[int, Emitter]]:
    """The register tiles. One vector is for the last columns only: few heights do, put together."""
    for rows in _heights(kind, parts) if parts & Part.TILES else ():
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
        if parts & Part.TILES:
            yield Slot.WINDOWS + rows // 2, functools.partial(emit, vectors=kind.vectors)
        if parts & Part.NARROW and kind.vectors > 1:
            yield Slot.NARROW_WINDOWS + rows // 2, functools.partial(emit, vectors=1)


def _half_tiles(kind: Kind, parts: int) -> Iterator[tuple[int, Emitter]]:
    """Those whose last vector is half of one."""
    slots = {
        (False, False): Slot.HALF_TILES,
        (False, True): Slot.HALF_NARROW,
        (True, False): Slot.HALF_WINDOWS,
        (True, True): Slot.HALF_NARROW_WINDOWS,
    }
    for rows in range(2, kind.rows + 1, 2):
        for (windows, narrow), slot in slots.items():
            tile = window_bit(rows) if windows else height_bit(rows)
            if parts & half_of(tile, narrow):
                vectors = 1 if narrow else kind.vectors
                emit = functools.partial(emit_tile, rows=rows, vectors=vectors, half=True)
                yield slot + rows // 2, functools.partial(emit, windows=windows)


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


def _exported(core: Core, slot: int, name: str, inner: bool) -> Module:
    """The module of a core's functions so far, of which one is what fills a slot."""
    symbol = function_name(core.kind.name, slot)
    text = re.sub(rf"define internal (\w+) @{name}\(", rf"define \1 @{symbol}(", core.module())
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
        next_run = body.test("eq", body.rem(batch, frame.get(Word.A_RUN)), 0)
        new_a = body.new(f"or i1 {first.get()}, {next_run}")
        ahead = body.at(frame.buffer(1), body.mul(batch, frame.get(Word.PACKED_STEP)))
        in_b = body.choose(packed, "ptr", ahead, frame.batch(b, Field.B, batch))
        operands = (
            f"ptr %core, ptr %bufs, ptr %params, ptr {work}, i64 %thread, ptr %epilogue,"
            f" i64 {batch}, i1 {first.get()},"
            f" ptr {frame.batch(a, Field.A, batch)}, ptr {in_b},"
            f" ptr {frame.batch(c, Field.C, batch)}, i64 {i0}, i64 {i1}, i64 {j0}, i64 {j1},"
            f" ptr %prologue_a, ptr %prologue_b, i1 {new_a}"
        )
        result = body.new(f"call i32 {function}({operands})")
        status.set(body.new(f"or i32 {status.get()}, {result}"))
        unit.set(body.add(here, count))
        first.set("false")
    body.do(f"ret i32 {status.get()}")
    return core.finish(body)


@forgotten
@functools.cache
def _entry(kind: Kind, hardware: Hardware) -> Module:
    """The table, the walk, and the entries that hand the table to it: with an epilogue, and the
    plain one."""
    core, name = Core(kind, hardware), core_name(kind.name)
    emit_offset(core)
    walk = _emit_run(core)
    fused = Body(f"{name}_fused", [*ABI, *HOOKS], "i32")
    operands = ", ".join(f"{of} %{argument}" for of, argument in [*ABI, *HOOKS])
    fused.do(f"ret i32 {fused.new(f'call i32 @{walk}(ptr @table, {operands})')}")
    plain = Body(name, ABI, "i32")
    operands = ", ".join([*(f"{of} %{argument}" for of, argument in ABI), *["ptr null"] * 3])
    plain.do(f"ret i32 {plain.new(f'call i32 @{name}_fused({operands})')}")
    for body in (fused, plain):
        core.finish(body, "")
    functions = [function_name(kind.name, slot) for slot in range(Slot.COUNT)]
    core.declared |= {f"declare extern_weak void @{function}()" for function in functions}
    slots = ", ".join(f"ptr @{function}" for function in functions)
    table = f"@table = internal constant [{Slot.COUNT} x ptr] [{slots}]\n"
    return Module(name, table + core.module(), False)


def closed(entry: str, there: Collection[str]) -> str:
    """The text of an entry for a program that has these functions and gets no others."""
    for function in re.findall(r"declare extern_weak void @(\w+)\(\)", entry):
        if function not in there:
            entry = entry.replace(f"declare extern_weak void @{function}()\n", "")
            entry = re.sub(rf"ptr @{function}\b", "ptr null", entry)
    return entry


def _joined_heights(kind: Kind, parts: int) -> list[int]:
    """Heights of the tiles of one vector that others are put together to."""
    there = _narrow_heights(kind, parts)
    return [rows for rows in _heights(kind, parts) if there and rows not in there]


def _joined(kind: Kind, hardware: Hardware, rows: int, parts: int) -> Module:
    """A tile of one vector that runs others one below the other."""
    core = Core(kind, hardware)
    body = Body(tile_name(rows, 1), TILE_ARGUMENTS)
    start = 0
    for height in tile_parts(_narrow_heights(kind, parts), rows):
        below = {name: body.at(f"%{name}", start, "i64") for name in ("row_a", "row_c")}
        operands = ", ".join(f"{of} {below.get(name, f'%{name}')}" for of, name in TILE_ARGUMENTS)
        tile = function_name(kind.name, Slot.NARROW + height // 2)
        core.declared.add(f"declare void @{tile}({', '.join(of for of, _ in TILE_ARGUMENTS)})")
        body.do(f"call void @{tile}({operands})")
        start += height
    body.do("ret void")
    return _exported(core, Slot.NARROW + rows // 2, core.finish(body), inner=False)
