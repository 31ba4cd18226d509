"""Blocks of a contraction in generated code: tiles of a panel, panels of a block, finishing.

block: for each row block:  for each k block:  pack A;  sweep
sweep: for each panel: strip                            last k block: finish per column group
strip: row tiles
"""

from graphc.codegen.gemm.emit import Body, Local, Operand
from graphc.codegen.gemm.frame import OPERAND, Frame
from graphc.codegen.gemm.layout import Field, Flag, Slot, Word
from graphc.codegen.gemm.vector import Core
from graphc.codegen.tuning import tuned

CANCELLED = -1  # the status of a contraction that saw the cancel flag, whose address is `bufs[-1]`

BLOCK_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "bufs"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("i64", "thread"),
    ("ptr", "epilogue"),
    ("i64", "batch"),
    ("i1", "first"),
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "c"),
    ("i64", "i0"),
    ("i64", "i1"),
    ("i64", "j0"),
    ("i64", "j1"),
    ("ptr", "prologue_a"),
    ("ptr", "prologue_b"),
    ("i1", "new_a"),
]

STRIP_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "a"),
    ("ptr", "row_a"),
    ("i64", "step_a"),
    ("ptr", "k_a"),
    ("ptr", "b"),
    ("i64", "step_b"),
    ("i64", "count"),
    ("ptr", "c"),
    ("ptr", "row_c"),
    ("i64", "columns"),
    ("i64", "add"),
    ("i64", "rows"),
    ("i64", "tiles"),
    ("ptr", "ahead"),
    ("i64", "ahead_step"),
    ("i64", "ahead_shift"),
    ("i1", "fetches"),
]


def emit_strip(core: Core) -> None:
    """All row tiles of one panel. Rows are dealt evenly, so no tile is left with a thin remainder.

    Tiles have an even number of rows. If the number of rows is odd, the tables have one entry
    more: a row of A that exists and a row of C that is scratch.
    """
    kind = core.kind
    body = Body("strip", STRIP_ARGUMENTS, "i32")
    frame = Frame(body)
    pairs = body.div(body.add("%rows", 1), 2)
    base, longer = body.div(pairs, "%tiles"), body.rem(pairs, "%tiles")
    windows = body.new("icmp ne ptr %k_a, null")
    wide = body.choose(windows, "i64", Slot.WINDOWS, Slot.TILES)
    narrow = body.test("sle", "%columns", kind.lanes)
    tiles = body.add(wide, body.choose(narrow, "i64", Slot.NARROW - Slot.TILES, 0))
    first, status = body.local("i64", 0), body.local("i32", 0)
    with body.loop(0, "%tiles") as tile:
        start = first.get()
        more = body.new(f"zext i1 {body.test('slt', tile, longer)} to i64")
        half = body.add(base, more)
        height = body.mul(half, 2)
        first.set(body.add(start, height))
        table_a = body.at("%row_a", start, "i64")
        table_c = body.at("%row_c", start, "i64")
        with body.when("%fetches"):
            _prefetch_rows(core, body, table_c, height)
        ahead = body.at("%ahead", body.mul(tile, "%ahead_shift"))
        chosen = frame.function(body.add(tiles, half))
        if kind.halves:
            chosen = _half_tile(core, frame, windows, half, chosen)
        absent = body.new(f"icmp eq ptr {chosen}, null")
        missing = _run_tile(
            body,
            body.choose(absent, "ptr", frame.function(body.add(wide, half)), chosen),
            f"ptr %a, ptr {table_a}, i64 %step_a, ptr %k_a, ptr %b, i64 %step_b, i64 %count,"
            f" ptr %c, ptr {table_c}, i64 %columns, i64 %add, ptr {ahead}, i64 %ahead_step",
        )
        status.set(body.new(f"or i32 {status.get()}, {missing}"))
    body.do(f"ret i32 {status.get()}")
    core.finish(body)


def _half_tile(core: Core, frame: Frame, windows: str, half: str, chosen: str) -> str:
    """The tile that ends with half a vector, if that holds the last columns and there is one."""
    body, lanes = frame.body, core.kind.lanes
    function = chosen
    for least, last, plain, of_windows in (
        (0, lanes // 2, Slot.HALF_NARROW, Slot.HALF_NARROW_WINDOWS),
        (lanes, lanes + lanes // 2, Slot.HALF_TILES, Slot.HALF_WINDOWS),
    ):
        slots = body.choose(windows, "i64", of_windows, plain)
        there = frame.function(body.add(slots, half))
        ends = body.both(body.test("sgt", "%columns", least), body.test("sle", "%columns", last))
        fits = body.both(ends, body.new(f"icmp ne ptr {there}, null"))
        function = body.choose(fits, "ptr", there, function)
    return function


def _prefetch_rows(core: Core, body: Body, table: str, height: str) -> None:
    """Fetch the rows of C that a tile will write when it is done."""
    kind = core.kind
    with body.loop(0, height) as row:
        place = body.at("%c", body.word(table, row))
        for part in range(kind.vectors):
            core.prefetch(body, body.at(place, part * kind.lanes, kind.element), True)


def _run_tile(body: Body, tile: str, arguments: str) -> str:
    """Call a register tile; the status says if the core has none of this height."""
    status = body.local("i32", 1)
    with body.when(body.new(f"icmp ne ptr {tile}, null")):
        body.do(f"call void {tile}({arguments})")
        status.set(0)
    return status.get()


SWEEP_ARGUMENTS = [
    *BLOCK_ARGUMENTS[:7],
    ("i1", "copies"),
    ("ptr", "source"),
    ("ptr", "c"),
    ("i64", "i"),
    ("i64", "rows"),
    ("i64", "j0"),
    ("i64", "j1"),
    ("i64", "k"),
    ("i64", "count"),
    ("ptr", "a"),
    ("ptr", "row_a"),
    ("i64", "step_a"),
    ("ptr", "k_a"),
    ("ptr", "b"),
    ("i64", "step_b"),
    ("i64", "panel_step"),
    ("i64", "origin"),
]


def emit_sweep(core: Core) -> None:
    """All panels of one row block and k block; after the last k block, finish by groups."""
    body = Body("sweep", SWEEP_ARGUMENTS, "i32")
    frame = Frame(body)
    kind = core.kind
    staged = frame.has(Flag.TILE)
    base = body.choose(staged, "ptr", frame.work(Word.TILE), "%c")
    left = body.choose(staged, "i64", "%j0", 0)
    last = body.test("sge", body.add("%k", "%count"), frame.get(Word.K))
    odd = body.test("ne", body.rem("%rows", 2), 0)
    tiles, ahead_step, ahead_shift = _fetching(body, frame, kind.columns * core.size)
    stream = frame.has(Flag.STREAM)
    group = frame.get(Word.FINISH_COLUMNS)
    fetches = body.test("sgt", "%count", frame.get(Word.FETCHED_SUM))
    status = body.local("i32", 0)
    with body.loop("%j0", "%j1", group) as first:
        stop = body.least("%j1", body.add(first, group))
        end = stop
        if core.reads_windows:
            lanes = frame.has(Flag.LANES)
            _sweep_lanes(body, frame, lanes, (base, left), (first, stop), status)
            end = body.choose(lanes, "i64", first, stop)
        with body.loop(first, end, kind.columns) as j:
            number = body.div(body.sub(j, "%origin"), kind.columns)
            b = body.at("%b", body.mul(number, "%panel_step"))
            c = body.at(base, body.sub(j, left), kind.element)
            with body.when(odd):
                scratch = body.new(f"ptrtoint ptr {frame.work(Word.SCRATCH)} to i64")
                there = body.new(f"ptrtoint ptr {c} to i64")
                body.put(frame.work(Word.ROW_C), "%rows", body.sub(scratch, there))
            made = body.local("i64", 0)
            with body.when("%copies"):
                made.set(_make_panel(core, body, frame, (b, c, j), tiles))
            table_a = body.at("%row_a", made.get(), "i64")
            table_c = body.at(frame.work(Word.ROW_C), made.get(), "i64")
            rest = body.sub("%rows", made.get())
            fewer = body.new(f"zext i1 {body.test('ne', made.get(), 0)} to i64")
            with body.when(stream):
                missing = _run_stream(body, frame, (table_a, b, c, table_c), j)
                status.set(body.new(f"or i32 {status.get()}, {missing}"))
            with body.when(body.both(body.test("sgt", rest, 0), body.negate(stream))):
                missing = body.new(
                    f"call i32 @strip(ptr %core, ptr %a, ptr {table_a}, i64 %step_a, ptr %k_a,"
                    f" ptr {b}, i64 %step_b, i64 %count, ptr {c}, ptr {table_c},"
                    f" i64 {body.sub('%j1', j)}, i64 %k, i64 {rest}, i64 {body.sub(tiles, fewer)},"
                    f" ptr {body.at(b, '%panel_step')}, i64 {ahead_step}, i64 {ahead_shift},"
                    f" i1 {fetches})"
                )
                status.set(body.new(f"or i32 {status.get()}, {missing}"))
        with body.when(last):
            result = body.new(
                f"call i32 {frame.function(Slot.FINISH)}(ptr %core, ptr %bufs, ptr %params,"
                " ptr %work, i64 %thread, ptr %epilogue, i64 %batch, ptr %c, i64 %i,"
                f" i64 {body.add('%i', '%rows')}, i64 {first}, i64 {stop}, i64 %j0)"
            )
            status.set(body.new(f"or i32 {status.get()}, {result}"))
    body.do(f"ret i32 {status.get()}")
    core.finish(body)


def _fetching(body: Body, frame: Frame, panel_row: int) -> tuple[str, str, str]:
    """How many row tiles share the fetching of the next panel, while they use one; the step from
    row to row of what each fetches, and from tile to tile.
    """
    most = frame.get(Word.TILE_ROWS)
    tiles = body.div(body.add("%rows", body.sub(most, 1)), most)
    share = body.div(body.add(panel_row - 1, tiles), tiles)
    packed = body.test("eq", "%step_b", panel_row)
    step = body.choose(packed, "i64", share, "%step_b")
    return tiles, step, body.choose(packed, "i64", body.mul(share, "%count"), 64)


def _run_stream(body: Body, frame: Frame, place: tuple[str, str, str, str], j: str) -> str:
    """The rows of a block times one panel of a stream; the status says if the core has no tile."""
    table_a, b, c, table_c = place
    return _run_tile(
        body,
        frame.function(body.add("%rows", Slot.STREAM)),
        f"ptr %a, ptr {table_a}, i64 %step_a, ptr null, ptr {b}, i64 %step_b, i64 %count,"
        f" ptr {c}, ptr {table_c}, i64 {body.sub('%j1', j)}, i64 %k, ptr null, i64 0",
    )


def _sweep_lanes(
    body: Body,
    frame: Frame,
    lanes: str,
    base: tuple[str, str],
    columns: tuple[str, str],
    status: Local,
) -> None:
    """A group of columns, where rows of A are in lanes."""
    with body.when(lanes):
        missing = body.new(
            f"call i32 {frame.function(Slot.LANE_STRIP)}(ptr %core, ptr %params, ptr %work, ptr %b,"
            f" ptr {base[0]}, i64 %rows, i64 {columns[0]}, i64 {columns[1]}, i64 %j0,"
            f" i64 {base[1]}, i64 %count, i64 %k)"
        )
        status.set(body.new(f"or i32 {status.get()}, {missing}"))


def _make_panel(
    core: Core, body: Body, frame: Frame, place: tuple[str, str, str], tiles: str
) -> str:
    """Make the panel of columns from j on; returns the rows that were computed meanwhile.

    The first tile reads B in place and leaves a copy, which hides the time that reading takes. A
    panel that no tile of this core can make is packed.
    """
    kind, (panel, c, j) = core.kind, place
    pairs = body.div(body.add("%rows", 1), 2)
    half = body.div(body.add(pairs, body.sub(tiles, 1)), tiles)
    step, columns = frame.get(Word.STEP_B), body.sub("%j1", j)
    source = body.at(body.at("%source", body.mul("%k", step)), j, kind.memory)
    ahead = body.at(source, body.mul(step, tuned.rows_ahead))
    least = kind.columns - kind.lanes + 1 if core.hardware.masked else kind.columns
    wide = body.test("sge", columns, least)
    made = body.local("i64", 0)
    tile = frame.function(body.add(half, Slot.COPIES))
    with body.when(body.both(wide, body.new(f"icmp ne ptr {tile}, null"))):
        made.set(body.least(body.mul(half, 2), "%rows"))
        body.do(
            f"call void {tile}(ptr %a, ptr %row_a, i64 %step_a, ptr null, ptr {source},"
            f" i64 {step}, i64 %count, ptr {c}, ptr {frame.work(Word.ROW_C)}, i64 {columns},"
            f" i64 %k, ptr {ahead}, i64 {step}, ptr {panel})"
        )
    with body.when(body.test("eq", made.get(), 0)):
        stop = body.least(body.add(j, kind.columns), "%j1")
        _call_pack(
            body, frame, "%source", panel, (j, stop), ("%k", body.add("%k", "%count")), "true"
        )
    return made.get()


def emit_block(core: Core) -> str:
    """Rows i0..i1, columns j0..j1 of one batch element: pack, then blocks of rows and of k."""
    body = Body("block", BLOCK_ARGUMENTS, "i32")
    frame = Frame(body)
    depth = frame.get(Word.K)
    early, late = frame.has(Flag.PACK_B), frame.has(Flag.LATE)
    store = frame.work(Word.PANELS_B)
    origin = body.local("i64", 0)
    panel_shift, row_shift = _shifts(body, frame, core.kind.columns * core.size)
    copied = body.new(f"or i1 {early}, {late}")
    with body.when(copied):
        origin.set("%j0")
    copies = frame.has(Flag.COPIES)
    with body.when(body.both(early, body.negate(copies))):
        _call_pack(body, frame, "%b", store, ("%j0", "%j1"), (0, depth))
    status = body.local("i32", 0)
    pack_a = frame.has(Flag.PACK_A)
    with body.loop("%i0", "%i1", frame.get(Word.ROW_BLOCK)) as i:
        rows = body.least(frame.get(Word.ROW_BLOCK), body.sub("%i1", i))
        row_a = frame.rows(i, rows)
        going = body.new(f"icmp ne i32 {status.get()}, {CANCELLED}")
        k, more = body.local("i64", 0), body.local("i1", going)
        with body.during(more.get):
            here = k.get()
            count = body.least(frame.get(Word.K_BLOCK), body.sub(depth, here))
            following = body.add(here, count)
            in_a, in_b = frame.operands((i, rows), (here, count), status)
            panels = body.choose(copied, "ptr", store, in_b)
            with body.when(body.both(late, body.negate(copies))):
                _call_pack(body, frame, in_b, store, ("%j0", "%j1"), (here, following))
            a = body.local("ptr", body.at(in_a, body.mul(here, frame.get(Word.STEP_A))))
            with body.when(pack_a):
                frame.pack_rows(rows, here, count)
                a.set(frame.work(Word.BLOCK_A))
            k_a = _window_steps(core, body, frame, (here, count))
            if core.reads_windows:
                _pack_lanes(body, frame, rows, (here, count))
            step_a = body.choose(pack_a, "i64", core.size, frame.get(Word.STEP_A))
            ready = body.choose(late, "i64", here, 0)
            new = body.new(f"or i1 {late}, {body.both(early, body.test('eq', i, '%i0'))}")
            b = body.at(panels, body.mul(body.sub(here, ready), row_shift.get()))
            result = body.new(
                "call i32 @sweep(ptr %core, ptr %bufs, ptr %params, ptr %work, i64 %thread,"
                f" ptr %epilogue, i64 %batch, i1 {body.both(new, copies)}, ptr %b, ptr %c,"
                f" i64 {i}, i64 {rows}, i64 %j0, i64 %j1, i64 {here},"
                f" i64 {count}, ptr {a.get()}, ptr {row_a}, i64 {step_a}, ptr {k_a},"
                f" ptr {b}, i64 {row_shift.get()}, i64 {panel_shift.get()}, i64 {origin.get()})"
            )
            status.set(body.new(f"or i32 {status.get()}, {result}"))
            k.set(following)
            more.set(body.test("slt", following, depth))
            _look(body, status, more)
    body.do(f"ret i32 {status.get()}")
    return core.finish(body)


def _shifts(body: Body, frame: Frame, panel_row: int) -> tuple[Local, Local]:
    """From panel to panel of B, and from row to row in one, in bytes. In place, "panels" are
    `columns` elements apart and rows of B are the matrix's own.
    """
    panel, row = body.local("i64", panel_row), body.local("i64", frame.get(Word.STEP_B))
    flags = frame.get(Word.FLAGS)
    packed = body.new(f"and i64 {flags}, {Flag.PACK_B | Flag.LATE | Flag.PACKED_B}")
    with body.when(body.test("ne", packed, 0)):
        panel.set(frame.get(Word.PANEL_STEP))
        row.set(panel_row)
    return panel, row


def _window_steps(core: Core, body: Body, frame: Frame, k: tuple[str, str]) -> str:
    """The table of these steps of k (first, count) of A, if tiles read that through one."""
    table = body.local("ptr", "null")
    with body.when(frame.has(Flag.WINDOWS)):
        table.set(frame.work(Word.K_A))
        with body.when(frame.fresh(Flag.SAME_COLUMNS)):
            span = frame.steps(*k, core.kind.together)
            frame.fill(Word.K_A, 0, Word.K_DIMS, Field.A, *span)
    return table.get()


def _pack_lanes(body: Body, frame: Frame, rows: str, k: tuple[str, str]) -> None:
    """Pack a block of A whose rows are in lanes, if they are."""
    with body.when(frame.has(Flag.LANES)):
        body.do(
            f"call void {frame.function(Slot.LANE_PACK)}(ptr %core, ptr %params, ptr %work,"
            f" i1 %first, i1 %new_a, ptr %a, i64 {rows}, i64 %j0, i64 %j1, i64 {k[0]}, i64 {k[1]})"
        )


def _look(body: Body, status: Local, more: Local) -> None:
    """Go on no more if the run is cancelled: there may be any number of blocks."""
    flag = body.load("ptr", body.at("%bufs", -1, OPERAND), 8)
    now = body.new(f"load atomic i64, ptr {flag} monotonic, align 8")
    with body.when(body.test("ne", now, 0)):
        status.set(CANCELLED)
        more.set("false")


def _call_pack(
    body: Body,
    frame: Frame,
    b: str,
    store: str,
    columns: tuple[str, str],
    span: tuple[Operand, Operand],
    first: str = "%first",
) -> None:
    """Pack these columns and rows of B, each given as first and end."""
    body.do(
        f"call void {frame.function(Slot.PACK_COLUMNS)}(ptr %core, ptr %params, ptr %work,"
        f" i1 {first}, ptr {b}, ptr {store}, i64 {columns[0]}, i64 {columns[1]}, i64 {span[0]},"
        f" i64 {span[1]})"
    )
