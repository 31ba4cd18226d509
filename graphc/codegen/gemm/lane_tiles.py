"""Tiles whose lanes are rows of A, for a B that is read where it lies: windows of images.

A is packed, so many rows at a time, and what tiles broadcast are elements of B, through one table
of its columns and one of its steps of k.  Nothing of an image is copied, whatever the windows and
their steps are; the price is that finished sums are turned:

        A  k -> |  a0 a1  |            rows in lanes: one load per vector
       B |      +---------+
   column| b_j  | c_0j c_1j            one broadcast per column, one multiply-add per accumulator
         v      +---------+   ->   rows of C, a few columns at a time

Products are added in the order of k as in other tiles, so the bits are the same.  Such kernels, on
channels that lie apart as images, follow Zhang, Franchetti and Low, "High performance zero-memory
overhead direct convolutions" (2018).
"""

from graphc.codegen.gemm.emit import Body
from graphc.codegen.gemm.frame import Frame
from graphc.codegen.gemm.layout import Field, Flag, Slot, Word
from graphc.codegen.gemm.packing import transposed
from graphc.codegen.gemm.vector import Core, powers

LANE_TILE_ARGUMENTS = [
    ("ptr", "a"),
    ("ptr", "k_b"),
    ("i64", "count"),
    ("ptr", "b"),
    ("ptr", "column_b"),
    ("ptr", "c"),
    ("ptr", "row_c"),
    ("i64", "rows"),
    ("i64", "columns"),
    ("i64", "add"),
    ("i64", "ahead"),
    ("i64", "beyond"),
]


def emit_lane_tile(core: Core, columns: int, lanes: int) -> str:
    """A panel of `rows` rows, at most so many lanes, times so many columns of C, of which `columns`
    count.

    `add` not zero: add to what C holds. The tables have an entry for each column. What the next
    tile reads, from its column at `ahead` of b to that at `beyond`, is fetched meanwhile.
    """
    size, element = core.size, core.kind.element
    vector = core.vector(lanes)
    body = Body(f"lane_tile_{lanes}x{columns}", LANE_TILE_ARGUMENTS)
    sums = [body.local(vector, "zeroinitializer") for _ in range(columns)]
    starts = [body.at("%b", body.word("%column_b", column)) for column in range(columns)]
    ahead, beyond = (body.local("ptr", body.at("%b", place)) for place in ("%ahead", "%beyond"))
    panel, offset = body.local("ptr", "%a"), body.local("i64", body.word("%k_b", 0))
    with body.loop(0, "%count") as k:
        place, source = panel.get(), offset.get()
        values = body.load(vector, place, size)
        if lanes >= core.kind.lanes:  # tiles of half a vector have no loads to spare
            edge = ahead.get()  # in turn with the other: steps of k along a row share lines
            core.prefetch(body, body.at(edge, source), False)
            ahead.set(beyond.get())
            beyond.set(edge)
        for start, total in zip(starts, sums, strict=True):
            scalar = body.load(element, body.at(start, source), size)
            spread = core.splat(body, lanes, scalar)
            total.set(core.multiply_add(body, lanes, spread, values, total.get()))
        panel.advance(body.at(place, core.kind.columns * size))
        offset.advance(body.word("%k_b", body.add(k, 1)))
    results = [total.get() for total in sums]
    all_rows = body.test("eq", "%rows", lanes)
    full = body.both(all_rows, body.test("eq", "%columns", columns))
    with body.when(full):
        _turn_out(core, body, results, lanes)
    with body.when(body.negate(full)):
        _store_part(core, body, results, lanes)
    body.do("ret void")
    return core.finish(body)


def _turn_out(core: Core, body: Body, sums: list[str], wide: int) -> None:
    """Store a whole tile: squares are turned in registers, rows go out in powers of two."""
    lanes = core.kind.lanes
    more = body.test("ne", "%add", 0)
    for first in range(0, len(sums), lanes):
        few = sums[first : first + lanes]
        for half in range(0, wide, lanes):
            order = [min(lane, wide - 1) for lane in range(half, half + lanes)]
            square = [core.pick(body, wide, value, value, order) for value in few]
            square += [square[-1]] * (lanes - len(few))
            rows = transposed(core, body, square)[: wide - half]
            words = [body.word("%row_c", half + row) for row in range(len(rows))]
            places = [body.at("%c", word) for word in words]
            if core.hardware.masked:
                _store_masked(core, body, rows, [(p, first) for p in places], len(few), more)
                continue
            for place, value in zip(places, rows, strict=True):
                _store_pieces(core, body, value, (place, first), len(few), more)


def _store_masked(
    core: Core, body: Body, rows: list[str], places: list[tuple[str, int]], count: int, more: str
) -> None:
    """Store, or add to what is there, the first `count` lanes of each vector."""
    lanes, element = core.kind.lanes, core.kind.element
    mask = core.mask(body, lanes, str(count))
    targets = [body.at(place, start, element) for place, start in places]
    with body.when(more):
        for target, value in zip(targets, rows, strict=True):
            old = core.load_masked(body, lanes, target, mask, element)
            total = core.plus(body, lanes, old, value)
            core.store_masked(body, lanes, total, target, mask, element)
    with body.when(body.negate(more)):
        for target, value in zip(targets, rows, strict=True):
            core.store_masked(body, lanes, value, target, mask, element)


def _store_pieces(
    core: Core, body: Body, value: str, place: tuple[str, int], count: int, more: str
) -> None:
    """Store, or add to what is there, the first `count` lanes of a vector."""
    lanes, start = core.kind.lanes, 0
    for few in reversed(powers(lanes)):
        if not count & few:
            continue
        piece = core.pick(body, lanes, value, value, list(range(start, start + few)))
        target = body.at(place[0], place[1] + start, core.kind.element)
        total = body.local(core.vector(few), piece)
        with body.when(more):
            old = body.load(core.vector(few), target, core.size)
            total.set(core.plus(body, few, old, piece))
        body.store(core.vector(few), total.get(), target, core.size)
        start += few


def _store_part(core: Core, body: Body, sums: list[str], wide: int) -> None:
    """Store the rows and columns of a tile that count, one by one."""
    element, size = core.kind.element, core.size
    room = body.slot(core.vector(wide), len(sums))
    for number, value in enumerate(sums):
        body.store(core.vector(wide), value, body.at(room, number, core.vector(wide)), size)
    with body.loop(0, "%rows") as row:
        line = body.at("%c", body.word("%row_c", row))
        with body.loop(0, "%columns") as column:
            place = body.at(room, body.add(body.mul(column, wide), row), element)
            total = body.local(core.vector(1), body.load(core.vector(1), place, size))
            target = body.at(line, column, element)
            with body.when(body.test("ne", "%add", 0)):
                old = body.load(core.vector(1), target, size)
                total.set(core.plus(body, 1, old, total.get()))
            body.store(core.vector(1), total.get(), target, size)


LANE_STRIP_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("ptr", "b"),
    ("ptr", "c"),
    ("i64", "rows"),
    ("i64", "first"),
    ("i64", "stop"),
    ("i64", "origin"),
    ("i64", "left"),
    ("i64", "count"),
    ("i64", "add"),
]


def emit_lane_strip(core: Core) -> str:
    """All panels of a block of A times columns first .. stop-1, which are dealt to tiles evenly.

    `origin` is the column that the table of columns begins with, `left` the one that lies at `c`;
    `add` are the steps of k that C holds.
    """
    kind = core.kind
    body = Body("lane_strip", LANE_STRIP_ARGUMENTS, "i32")
    frame = Frame(body)
    width = body.sub("%stop", "%first")
    pairs = body.div(body.add(width, 1), 2)
    most = body.div(frame.get(Word.TILE_ROWS), 2)
    tiles = body.div(body.add(pairs, body.sub(most, 1)), most)
    base, longer = body.div(pairs, tiles), body.rem(pairs, tiles)
    status = body.local("i32", 0)
    block = _block_of(frame, core, "%add")
    with body.loop(0, "%rows", kind.columns) as row:
        panel = body.mul(body.div(row, kind.columns), frame.get(Word.ROW_STEP))
        a = body.at(block, panel)
        table_c = body.at(frame.work(Word.ROW_C), row, "i64")
        rows = body.least(body.sub("%rows", row), kind.columns)
        narrow, half_full = (body.test("sle", rows, n) for n in (kind.lanes, kind.lanes // 2))
        slots = body.choose(narrow, "i64", Slot.NARROW_LANES, Slot.LANES)
        least = body.choose(half_full, "i64", Slot.HALF_LANES, slots)
        column = body.local("i64", "%first")
        with body.loop(0, tiles) as tile:
            start = column.get()
            more = body.new(f"zext i1 {body.test('slt', tile, longer)} to i64")
            half = body.add(base, more)
            table_b = body.at(frame.work(Word.COLUMN_B), body.sub(start, "%origin"), "i64")
            c = body.at("%c", body.sub(start, "%left"), kind.element)
            columns = body.least(body.mul(half, 2), body.sub("%stop", start))
            next_column = body.add(start, columns)
            ahead, beyond = _edges(frame, next_column, body.add(next_column, columns))
            function = frame.function(body.add(half, least))
            for wider in (slots, Slot.LANES):
                absent = body.new(f"icmp eq ptr {function}, null")
                function = body.choose(
                    absent, "ptr", frame.function(body.add(half, wider)), function
                )
            there = body.new(f"icmp ne ptr {function}, null")
            with body.when(there):
                body.do(
                    f"call void {function}(ptr {a}, ptr {frame.work(Word.K_B)}, i64 %count, ptr %b,"
                    f" ptr {table_b}, ptr {c}, ptr {table_c}, i64 {rows}, i64 {columns}, i64 %add,"
                    f" i64 {ahead}, i64 {beyond})"
                )
            missing = body.new(f"zext i1 {body.negate(there)} to i32")
            status.set(body.new(f"or i32 {status.get()}, {missing}"))
            column.set(next_column)
    body.do(f"ret i32 {status.get()}")
    return core.finish(body)


def _edges(frame: Frame, first: str, end: str) -> tuple[str, str]:
    """Where the first and the last of some columns lie in B, or the last of the strip before
    them."""
    body = frame.body
    final = body.sub("%stop", 1)
    table = frame.work(Word.COLUMN_B)
    edges = body.least(first, final), body.least(body.sub(end, 1), final)
    first, last = (body.word(table, body.sub(column, "%origin")) for column in edges)
    return first, last


LANE_PACK_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("i1", "first"),
    ("i1", "new_a"),
    ("ptr", "a"),
    ("i64", "rows"),
    ("i64", "j0"),
    ("i64", "j1"),
    ("i64", "k"),
    ("i64", "count"),
]


def emit_lane_pack(core: Core) -> str:
    """`lane_pack(...)`: a block of A as panels, and the tables of B for these columns and steps."""
    body = Body("lane_pack", LANE_PACK_ARGUMENTS)
    frame = Frame(body)
    with body.when(frame.fresh(Flag.SAME_COLUMNS)):
        columns = body.sub("%j1", "%j0")
        frame.fill(Word.COLUMN_B, 0, Word.N_DIMS, Field.B, "%j0", columns)
        table = frame.work(Word.COLUMN_B)
        with body.when(body.test("ne", body.rem(columns, 2), 0)):
            body.put(table, columns, body.word(table, body.sub(columns, 1)))
        frame.fill(Word.K_A, Word.K_A_RUN, Word.K_DIMS, Field.A, "%k", "%count")
        frame.fill(Word.K_B, Word.K_B_RUN, Word.K_DIMS, Field.B, "%k", "%count")
    with body.when(frame.new_block()):
        body.do(
            f"call void {frame.function(Slot.PACK_B)}(ptr {_block_of(frame, core, '%k')},"
            f" i64 {frame.get(Word.ROW_STEP)}, ptr %a, ptr {frame.work(Word.ROW_A)},"
            f" ptr {frame.work(Word.ROW_A_RUN)}, i64 %rows, ptr {frame.work(Word.K_A)},"
            f" ptr {frame.work(Word.K_A_RUN)}, i64 %count)"
        )
    body.do("ret void")
    return core.finish(body)


def _block_of(frame: Frame, core: Core, k: str) -> str:
    """Where the panels of A have the steps from k on: those of all k are kept for other units."""
    body = frame.body
    shift = body.choose(
        frame.has(Flag.SAME_A), "i64", body.mul(k, core.kind.columns * core.size), 0
    )
    return body.at(frame.work(Word.BLOCK_A), shift)
