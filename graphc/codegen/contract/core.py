"""The contraction core as LLVM IR: blocking, work units and entry points around tiles and packing.

    unit range -> (batch, columns j0..j1, rows i0..i1)          neighbouring row units run as one
      pack B[all k, j0..j1] into panels                         unless read in place or packed ahead
      for each row block:  for each k block:  pack A;  tiles    panels outside, row tiles inside
                                              last k block: epilogue or scatter per column group

k is never split between calls, so results do not depend on threads. Blocking after Goto and van
de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
"""

from graphc.codegen.contract.emit import Body
from graphc.codegen.contract.frame import (
    PACK_COLUMNS_ARGUMENTS,
    PACK_ROWS_ARGUMENTS,
    Frame,
    emit_fill_rows,
    emit_make,
    emit_pack_columns,
    emit_pack_rows,
)
from graphc.codegen.contract.hardware import Hardware, kind_of
from graphc.codegen.contract.layout import Field, Flag, Part, Word
from graphc.codegen.contract.packing import (
    emit_fill,
    emit_offset,
    emit_pack_a,
    emit_pack_b,
    emit_scatter,
    emit_transpose,
)
from graphc.codegen.contract.pairs import (
    emit_pack_a_pairs,
    emit_pack_b_pairs,
    emit_transpose_pairs,
)
from graphc.codegen.contract.panels import (
    BLOCK_ARGUMENTS,
    emit_block,
    emit_finish,
    emit_strip,
    emit_sweep,
)
from graphc.codegen.contract.thin import emit_vector
from graphc.codegen.contract.tiles import ROW_GROUP, emit_dot_tile, emit_dots, emit_rows, emit_tile
from graphc.codegen.contract.vector import Core

HOOKS = [("ptr", "epilogue"), ("ptr", "prologue_a"), ("ptr", "prologue_b")]
ABI = [("ptr", "bufs"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("i64", "thread")]


def core_name(dtype: str, parts: int = Part.ALL) -> str:
    """Exported name of the core of a data type (already mapped by `core_dtype`)."""
    return f"graphc_contract_{dtype}" + ("" if parts == Part.ALL else f"_{parts}")


_OUTER = {"offset", "fill", "fill_rows", "finish", "pack_rows", "pack_columns"}
_OUTER |= {"vector", "strip", "sweep", "block", "make"}


def is_outer(name: str) -> bool:
    """Whether a function of the core only sets up and calls those in which time is spent."""
    return name in _OUTER or name.startswith("graphc_contract_")


def build_core(dtype: str, hardware: Hardware, parts: int) -> str:
    """LLVM IR text of the core module of one data type, made of the given `Part`s."""
    core = Core(kind_of(dtype, hardware), hardware, parts)
    emit_offset(core)
    emit_fill(core)
    emit_fill_rows(core)
    emit_scatter(core)
    emit_finish(core)
    if core.turns and parts & (Part.PACK_A | Part.PACK_B):
        emit_transpose_pairs(core) if core.kind.pairs else emit_transpose(core)
    if parts & Part.PACK_A:
        if not core.kind.pairs or parts & (Part.DOTS | Part.ROWS):
            emit_pack_a(core)
        if core.kind.pairs:
            emit_pack_a_pairs(core)
        emit_pack_rows(core)
    if parts & Part.PACK_B:
        emit_pack_b_pairs(core) if core.kind.pairs else emit_pack_b(core)
        emit_pack_columns(core)
    if parts & Part.MADE:
        emit_make(core)
    if parts & (Part.DOTS | Part.ROWS):
        _emit_vectors(core)
    if parts & Part.TILES:
        _emit_tiles(core)
    for name, arguments, result in _OPTIONAL:
        if name not in core.functions:
            _emit_absent(core, Body(name, arguments, result))
    _emit_run(core)
    _emit_entry(core)
    if parts & Part.AHEAD:
        _emit_pack_entry(core)
    return core.module()


def _emit_vectors(core: Core) -> None:
    """Matrix-vector kernels and the loops around them."""
    if core.parts & Part.DOTS:
        emit_dots(core, core.kind.dots, 2)
        emit_dots(core, 1, 8)
    if core.parts & Part.DOT_TILES:
        emit_dot_tile(core, core.kind.dot_rows)
        emit_dot_tile(core, 1)
    if core.parts & Part.ROWS:
        emit_rows(core, ROW_GROUP)
        emit_rows(core, 1)
    emit_vector(core)


def _emit_tiles(core: Core) -> None:
    """Register tiles and the loops around them."""
    for vectors in core.widths:
        for rows in core.heights(vectors):
            emit_tile(core, rows, vectors)
    for rows in core.copying:
        emit_tile(core, rows, core.kind.vectors, copies=True)
    emit_strip(core)
    emit_sweep(core)
    emit_block(core)


# Functions that others call on a route of their own.
_OPTIONAL = (
    ("pack_rows", PACK_ROWS_ARGUMENTS, "void"),
    ("pack_columns", PACK_COLUMNS_ARGUMENTS, "void"),
    ("vector", BLOCK_ARGUMENTS, "i32"),
    ("block", BLOCK_ARGUMENTS, "i32"),
)


def _emit_absent(core: Core, body: Body) -> None:
    """A function that no plan of this core reaches; plans of others get a status."""
    body.do("ret i32 1" if body.result == "i32" else "ret void")
    core.finish(body)


def _emit_run(core: Core) -> None:
    """The core with an epilogue pointer: walk the work units, merging neighbours in rows."""
    name = core_name(core.kind.name, core.parts)
    body = Body(f"{name}_fused", [*ABI, *HOOKS], "i32")
    frame = Frame(body)
    row_units, column_units = frame.get(Word.ROW_UNITS), frame.get(Word.COLUMN_UNITS)
    work = body.at(frame.buffer(3), body.mul("%thread", frame.get(Word.WORKSPACE)))
    a = body.at(frame.buffer(0), frame.get(Word.OFFSET_A))
    b = body.at(frame.buffer(1), frame.get(Word.OFFSET_B))
    c = body.at(frame.buffer(2), frame.get(Word.OFFSET_C))
    flags = frame.get(Word.FLAGS)
    vector = body.test("ne", body.new(f"and i64 {flags}, {Flag.DOTS | Flag.ROWS}"), 0)
    function = body.choose(vector, "ptr", "@vector", "@block")
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
            f"ptr %bufs, ptr %params, ptr {work}, i64 %thread, ptr %epilogue, i64 {batch},"
            f" i1 {first.get()},"
            f" ptr {frame.batch(a, Field.A, batch)}, ptr {in_b},"
            f" ptr {frame.batch(c, Field.C, batch)}, i64 {i0}, i64 {i1}, i64 {j0}, i64 {j1},"
            " ptr %prologue_a, ptr %prologue_b"
        )
        result = body.new(f"call i32 {function}({operands})")
        status.set(body.new(f"or i32 {status.get()}, {result}"))
        unit.set(body.add(here, count))
        first.set("false")
    body.do(f"ret i32 {status.get()}")
    core.finish(body, "")


def _emit_entry(core: Core) -> None:
    """The plain kernel: the core without an epilogue."""
    name = core_name(core.kind.name, core.parts)
    body = Body(name, ABI, "i32")
    operands = ", ".join(f"{kind} %{argument}" for kind, argument in ABI)
    result = body.new(f"call i32 @{name}_fused({operands}, ptr null, ptr null, ptr null)")
    body.do(f"ret i32 {result}")
    core.finish(body, "")


def _emit_pack_entry(core: Core) -> None:
    """Pack a constant B: bufs = [unused, B, panels, workspace], units = batch x columns."""
    body = Body(f"{core_name(core.kind.name, core.parts)}_pack", ABI, "i32")
    frame = Frame(body)
    column_units = frame.get(Word.COLUMN_UNITS)
    work = body.at(frame.buffer(3), body.mul("%thread", frame.get(Word.WORKSPACE)))
    b = body.at(frame.buffer(1), frame.get(Word.OFFSET_B))
    with body.loop("%lo", "%hi") as unit:
        column, batch = body.rem(unit, column_units), body.div(unit, column_units)
        j0 = body.mul(column, frame.get(Word.UNIT_COLUMNS))
        j1 = body.least(body.add(j0, frame.get(Word.UNIT_COLUMNS)), frame.get(Word.N))
        panel = body.mul(body.div(j0, core.kind.columns), frame.get(Word.PANEL_STEP))
        shift = body.add(body.mul(batch, frame.get(Word.PACKED_STEP)), panel)
        body.do(
            f"call void @pack_columns(ptr %params, ptr {work}, i1 true,"
            f" ptr {frame.batch(b, Field.B, batch)}, ptr {body.at(frame.buffer(2), shift)},"
            f" i64 {j0}, i64 {j1}, i64 0, i64 {frame.get(Word.K)})"
        )
    body.do("ret i32 0")
    core.finish(body, "")
