"""Finished tiles of a contraction: what an epilogue gets, and where else sums go.

Sums lie in C or in a tile of the workspace.  An epilogue sees rows of either; where rows of C are
columns of the tile, squares of it are turned before.
"""

from graphc.codegen.gemm.emit import Body, Operand
from graphc.codegen.gemm.frame import OPERAND, Frame, operands
from graphc.codegen.gemm.layout import MAX_EXTRAS, Field, Flag, Slot, Word
from graphc.codegen.gemm.packing import transposed
from graphc.codegen.gemm.vector import Core

FINISH_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "bufs"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("i64", "thread"),
    ("ptr", "epilogue"),
    ("i64", "batch"),
    ("ptr", "c"),
    ("i64", "i0"),
    ("i64", "i1"),
    ("i64", "j0"),
    ("i64", "j1"),
    ("i64", "unit_j"),
]


def emit_finish(core: Core) -> str:
    """Hand finished rows i0..i1, columns j0..j1 to the epilogue, or scatter the workspace tile.

    `c` is C of this batch element; `unit_j` the column at which the workspace tile starts.
    """
    body = Body("finish", FINISH_ARGUMENTS, "i32")
    frame = Frame(body)
    staged = frame.has(Flag.TILE)
    lead = body.choose(staged, "i64", frame.get(Word.TILE_LEAD), frame.get(Word.LEAD_C))
    corner = body.add(body.mul("%i0", lead), "%unit_j")
    shifted = body.at(frame.work(Word.TILE), body.mul(body.sub(0, corner), core.size))
    status = body.local("i32", 0)
    called = body.new("icmp ne ptr %epilogue, null")
    numbers = body.slot("i64", 5)
    with body.when(called):
        pointers = operands(body, MAX_EXTRAS + 2)
        turned = frame.has(Flag.TURNED)
        tile = body.local("ptr", body.choose(staged, "ptr", shifted, "%c"))
        with body.when(turned):
            tile.set(_turn(core, body, frame, shifted, lead))
        body.store("ptr", tile.get(), pointers, 8)
        body.store("ptr", frame.buffer(2), body.at(pointers, 1, OPERAND), 8)
        with body.loop(0, frame.get(Word.EXTRAS)) as extra:
            source = body.at("%bufs", body.add(extra, 4), OPERAND)
            place = body.at(pointers, body.add(extra, 2), OPERAND)
            body.store("ptr", body.load("ptr", source, 8), place, 8)

        def either(across: Operand, along: Operand) -> str:
            return body.choose(turned, "i64", across, along)

        apart = body.div(frame.get(Word.TURNED_STEP), core.size)
        places = "%batch", either("%i0", "%j0"), either("%i1", "%j1"), either(apart, lead)
        for index, value in enumerate(places):
            body.put(numbers, index, value)
        body.put(numbers, 4, body.new("ptrtoint ptr %params to i64"))
        result = body.new(
            f"call i32 %epilogue(ptr {pointers}, ptr {numbers}, i64 {either('%j0', '%i0')},"
            f" i64 {either('%j1', '%i1')}, i64 %thread)"
        )
        status.set(result)
    with body.when(body.both(staged, body.negate(called))):
        rows, columns = body.sub("%i1", "%i0"), body.sub("%j1", "%j0")
        frame.fill(Word.ROW_OUT, 0, Word.M_DIMS, Field.C, "%i0", rows)
        frame.fill(Word.COLUMN_C, Word.COLUMN_C_RUN, Word.N_DIMS, Field.C, "%j0", columns)
        corner = body.add(body.mul("%i0", lead), "%j0")
        source = body.at(shifted, body.mul(corner, core.size))
        body.do(
            f"call void {frame.function(Slot.SCATTER)}(ptr {source},"
            f" i64 {body.mul(lead, core.size)}, ptr %c, ptr {frame.work(Word.ROW_OUT)},"
            f" ptr {frame.work(Word.COLUMN_C)}, ptr {frame.work(Word.COLUMN_C_RUN)},"
            f" i64 {rows}, i64 {columns})"
        )
    body.do(f"ret i32 {status.get()}")
    return core.finish(body)


def _turn(core: Core, body: Body, frame: Frame, tile: str, lead: str) -> str:
    """The address that C would have if its columns lay as the rows into which these are turned."""
    step = frame.get(Word.TURNED_STEP)
    to = frame.work(Word.TURNED)
    source = body.at(tile, body.add(body.mul("%i0", lead), "%j0"), core.kind.element)
    body.do(
        f"call void {frame.function(Slot.TURN)}(ptr {to}, i64 {step}, ptr {source},"
        f" i64 {body.mul(lead, core.size)}, i64 {body.sub('%i1', '%i0')},"
        f" i64 {body.sub('%j1', '%j0')})"
    )
    shift = body.add(body.mul("%j0", step), body.mul("%i0", core.size))
    return body.at(to, body.sub(0, shift))


TURN_ARGUMENTS = [
    ("ptr", "to"),
    ("i64", "to_step"),
    ("ptr", "tile"),
    ("i64", "step"),
    ("i64", "rows"),
    ("i64", "columns"),
]


def emit_turn(core: Core) -> str:
    """Columns of a finished tile as rows, squares at a time.

    The tile has whole vectors of columns; what is written has room for whole squares.
    """
    kind, lanes = core.kind, core.kind.lanes
    body = Body("turn", TURN_ARGUMENTS)
    final = body.sub("%rows", 1)
    with body.loop(0, "%columns", lanes) as column, body.loop(0, "%rows", lanes) as row:
        place = body.at("%tile", column, kind.element)
        lines = [body.least(body.add(row, line), final) for line in range(lanes)]
        sources = [body.at(place, body.mul(line, "%step")) for line in lines]
        square = [body.load(core.vector(lanes), source, core.size) for source in sources]
        target = body.at("%to", body.add(body.mul(column, "%to_step"), body.mul(row, core.size)))
        for number, value in enumerate(transposed(core, body, square)):
            to = body.at(target, body.mul("%to_step", number))
            body.store(core.vector(lanes), value, to, core.size)
    body.do("ret void")
    return core.finish(body)


SCATTER_ARGUMENTS = [
    ("ptr", "tile"),
    ("i64", "step"),
    ("ptr", "c"),
    ("ptr", "row"),
    ("ptr", "column"),
    ("ptr", "column_run"),
    ("i64", "rows"),
    ("i64", "columns"),
]


def emit_scatter(core: Core) -> str:
    """Write a finished tile to C wherever its rows and columns lie, in C's memory format."""
    kind, lanes = core.kind, core.kind.lanes
    memory = kind.element if kind.whole else kind.memory
    body = Body("scatter", SCATTER_ARGUMENTS)
    with body.loop(0, "%rows") as row:
        source = body.at("%tile", body.mul(row, "%step"))
        target = body.at("%c", body.word("%row", row))
        position = body.local("i64", 0)
        with body.during(lambda: body.test("slt", position.get(), "%columns")):
            column = position.get()
            part = body.least(body.word("%column_run", column), lanes)
            place = body.at(source, column, core.kind.element)
            value = core.load_part(body, lanes, place, part, core.kind.element)
            value = value if kind.whole else core.narrow(body, lanes, value)
            place = body.at(target, body.word("%column", column))
            core.store_part(body, lanes, value, place, part, memory)
            position.set(body.add(column, part))
    body.do("ret void")
    return core.finish(body)
