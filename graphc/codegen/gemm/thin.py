"""A few rows of C in generated code: the loops around the two matrix-vector kernels."""

from graphc.codegen.gemm.emit import Body
from graphc.codegen.gemm.frame import Frame
from graphc.codegen.gemm.layout import Field, Flag, Slot, Word
from graphc.codegen.gemm.panels import BLOCK_ARGUMENTS
from graphc.codegen.gemm.vector import Core
from graphc.codegen.tuning import tuned


def emit_vector(core: Core) -> str:
    """A few rows of C: matrix-vector products, as dot products or as sums of scaled rows of B.

    Dot products take a few columns at a time through all rows, so B comes from memory once.
    """
    body = Body("vector", BLOCK_ARGUMENTS, "i32")
    frame = Frame(body)
    depth, rows = frame.get(Word.K), body.sub("%i1", "%i0")
    pack_a, staged = frame.has(Flag.PACK_A), frame.has(Flag.TILE)
    row_a = frame.rows("%i0", rows)
    x = body.local("ptr", "%a")
    with body.when(pack_a):
        frame.pack_rows(rows, 0, depth)
        x.set(frame.work(Word.BLOCK_A))
    straight = body.at("%c", "%j0", core.kind.element)
    y = body.choose(staged, "ptr", frame.work(Word.TILE), straight)
    with body.when(frame.has(Flag.DOTS)):
        _all_dots(core, body, frame, rows, (x.get(), row_a, y))
    with body.when(frame.has(Flag.ROWS)):
        _all_rows(core, body, frame, rows, (x.get(), row_a, y))
    result = body.new(
        f"call i32 {frame.function(Slot.FINISH)}(ptr %core, ptr %bufs, ptr %params, ptr %work,"
        " i64 %thread, ptr %epilogue, i64 %batch, ptr %c, i64 %i0, i64 %i1, i64 %j0, i64 %j1,"
        " i64 %j0)"
    )
    body.do(f"ret i32 {result}")
    return core.finish(body)


def _all_dots(
    core: Core, body: Body, frame: Frame, rows: str, pointers: tuple[str, str, str]
) -> None:
    """Dot products of all rows with columns j0..j1, in groups of columns and then one by one."""
    x, row_a, y = pointers
    columns = body.sub("%j1", "%j0")
    with body.when(frame.fresh(Flag.SAME_COLUMNS)):
        frame.fill(Word.COLUMN_B, 0, Word.N_DIMS, Field.B, "%j0", columns)
    group = core.kind.dots
    main = body.mul(body.div(columns, group), group)
    alone = body.test("eq", frame.get(Word.M), 1)
    table = frame.work(Word.COLUMN_B)
    with body.when(body.negate(alone)):
        _dot_tiles(core, body, frame, rows, main, pointers)
    spread = body.div(columns, group)
    for slot, start, stop, apart in (
        (Slot.DOTS, "0", spread, spread),
        (Slot.DOT, main, columns, 0),
    ):
        # One row runs through all columns; of several rows only the last few columns are left.
        least = body.choose(alone, "i64", 0, start if slot == Slot.DOT else columns)
        first = body.new(f"call i64 @llvm.smax.i64(i64 {start}, i64 {least})")
        with body.when(body.test("slt", first, stop)), body.loop(0, rows) as row:
            source = body.at(x, body.word(row_a, row))
            target = body.at(y, body.word(frame.work(Word.ROW_C), row))
            body.do(
                f"call void {frame.function(slot)}(ptr {source}, ptr %b, ptr {table}, i64 {first},"
                f" i64 {stop}, i64 {apart}, i64 {frame.get(Word.K)}, ptr {target})"
            )


def _dot_tiles(
    core: Core, body: Body, frame: Frame, rows: str, main: str, pointers: tuple[str, str, str]
) -> None:
    """A few columns at a time through all rows, a few rows at a time, and then one by one."""
    x, row_a, y = pointers
    tall = body.mul(body.div(rows, core.kind.dot_rows), core.kind.dot_rows)
    with body.loop(0, main, core.kind.dots) as column:
        tiles = (Slot.DOT_TILE, core.kind.dot_rows, "0", tall), (Slot.DOT_ROW, 1, tall, rows)
        for slot, height, start, stop in tiles:
            with body.loop(start, stop, height) as row:
                table_a = body.at(row_a, row, "i64")
                table_c = body.at(frame.work(Word.ROW_C), row, "i64")
                table_b = body.at(frame.work(Word.COLUMN_B), column, "i64")
                target = body.at(y, column, core.kind.element)
                body.do(
                    f"call void {frame.function(slot)}(ptr {x}, ptr {table_a}, ptr %b,"
                    f" ptr {table_b}, i64 {frame.get(Word.K)}, ptr {target}, ptr {table_c})"
                )


def _all_rows(
    core: Core, body: Body, frame: Frame, rows: str, pointers: tuple[str, str, str]
) -> None:
    """Sums of scaled rows of B, columns j0..j1: a group of its rows at a time for all rows of C.

    Rows of a group lie far apart: the prefetcher fetches twice as much of these as of neighbours.
    Where sums are ordered they are neighbours: all come in the order of k.  The first group
    overwrites C; where k is 0 there is none.
    """
    x, row_a, y = pointers
    depth, columns = frame.get(Word.K), body.sub("%j1", "%j0")
    core.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    with body.when(body.test("eq", depth, 0)), body.loop(0, rows) as row:
        target = body.at(y, body.word(frame.work(Word.ROW_C), row))
        nbytes = body.mul(columns, core.kind.bytes)
        body.do(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {nbytes}, i1 false)")
    step = frame.get(Word.STEP_B)
    origin = body.at("%b", body.mul("%j0", core.kind.memory_bytes))
    spread = body.div(depth, tuned.row_group)
    main = body.mul(spread, tuned.row_group)
    together = (Slot.ROWS, spread, "0", spread, 1)
    if core.hardware.ordered:
        together = (Slot.ROWS, "1", "0", main, tuned.row_group)
    for slot, apart, start, stop, stride in (together, (Slot.ROW, "0", main, depth, 1)):
        with body.loop(start, stop, stride) as k, body.loop(0, rows) as row:
            factors = body.at(body.at(x, body.word(row_a, row)), k, core.kind.element)
            source = body.at(origin, body.mul(k, step))
            target = body.at(y, body.word(frame.work(Word.ROW_C), row))
            body.do(
                f"call void {frame.function(slot)}(ptr {factors}, ptr {source}, i64 {step},"
                f" i64 {apart}, ptr {target}, i64 {columns}, i64 {k})"
            )
