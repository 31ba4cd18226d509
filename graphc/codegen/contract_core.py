"""The contraction core as LLVM IR: blocking, work units and entry points around tiles and packing.

    unit range -> (batch, columns j0..j1, rows i0..i1)          consecutive row units run as one range
      pack B[all k, j0..j1] into panels                         unless read in place or packed ahead
      for each row block:  for each k block:  pack A;  tiles    panels outside, row tiles inside
                                              last k block: epilogue or scatter per column group

k is never split between calls, so results do not depend on threads. Blocking after Goto and van de Geijn,
"Anatomy of high-performance matrix multiplication" (2008).
"""

from graphc.codegen.contract_emit import Body, Operand
from graphc.codegen.contract_layout import DIMS, MAX_EXTRAS, Field, Flag, Word
from graphc.codegen.contract_pack import (
    DIM_WORDS,
    emit_fill,
    emit_offset,
    emit_pack_a,
    emit_pack_b,
    emit_scatter,
    emit_transpose,
)
from graphc.codegen.contract_target import Kind, Target, kind_of
from graphc.codegen.contract_tile import emit_dots, emit_rows, emit_tile, tile_name
from graphc.codegen.contract_vector import Core

ABI = [("ptr", "bufs"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("i64", "thread")]
DOT_COLUMNS = 4
ROW_GROUP = 8


def core_name(dtype: str) -> str:
    """Exported name of the core of a data type (already mapped by `core_dtype`)."""
    return f"graphc_contract_{dtype}"


def build_core(dtype: str, target: Target) -> str:
    """LLVM IR text of the whole core module of one data type."""
    kind = kind_of(dtype, target)
    core = Core(kind, target)
    emit_offset(core)
    emit_fill(core)
    if kind.transpose:
        emit_transpose(core)
    emit_pack_a(core)
    emit_pack_b(core)
    emit_scatter(core)
    for vectors in sorted({1, kind.vectors}):
        for rows in range(1, kind.rows + 1):
            emit_tile(core, rows, vectors)
    emit_dots(core, DOT_COLUMNS, 2)
    emit_dots(core, 1, 8)
    emit_rows(core, ROW_GROUP)
    emit_rows(core, 1)
    _emit_finish(core)
    _emit_rows_of_tiles(core)
    _emit_pack_columns(core)
    _emit_vector(core)
    _emit_block(core)
    _emit_run(core)
    _emit_entry(core)
    _emit_pack_entry(core)
    return core.module()


class Frame:
    """Typed access to `params`, the buffers and the workspace inside a function body."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def get(self, word: Word) -> str:
        """A scalar of `params`."""
        return self.body.word("%params", int(word))

    def has(self, flag: Flag) -> str:
        """Whether a flag is set."""
        bits = self.body.new(f"and i64 {self.get(Word.FLAGS)}, {int(flag)}")
        return self.body.test("ne", bits, 0)

    def buffer(self, index: int) -> str:
        """A data pointer."""
        return self.body.load("ptr", self.body.at("%bufs", index, "ptr"), 8)

    def work(self, word: Word) -> str:
        """A region of this thread's workspace; the function has an argument `work`."""
        return self.body.at("%work", self.get(word))

    def dims(self, group: Word) -> tuple[str, str]:
        """Address and number of the dims of a group."""
        body = self.body
        before: Operand = 0
        for earlier in (Word.BATCH_DIMS, Word.M_DIMS, Word.N_DIMS, Word.K_DIMS):
            if earlier == group:
                break
            before = body.add(before, self.get(earlier))
        first = body.add(body.mul(before, DIM_WORDS), DIMS)
        return body.at("%params", first, "i64"), self.get(group)

    def fill(
        self, table: Word, run: Word | None, group: Word, field: Field, start: Operand, count: Operand
    ) -> None:
        """Fill a table of the workspace with the offsets of a range of a group."""
        dims, number = self.dims(group)
        runs = self.work(run) if run is not None else "null"
        self.body.do(
            f"call void @fill(ptr {self.work(table)}, ptr {runs}, ptr {dims}, i64 {number},"
            f" i64 {int(field)}, i64 {start}, i64 {count})"
        )

    def batch(self, pointer: str, field: Field, index: Operand) -> str:
        """A base pointer moved to a batch element."""
        dims, number = self.dims(Word.BATCH_DIMS)
        offset = self.body.new(
            f"call i64 @offset(ptr {dims}, i64 {number}, i64 {int(field)}, i64 {index})"
        )
        return self.body.at(pointer, offset)


FINISH_ARGUMENTS = [
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


def _emit_finish(core: Core) -> None:
    """Hand finished rows i0..i1, columns j0..j1 to the epilogue, or scatter them from the workspace tile.

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
    pointers = body.slot("ptr", MAX_EXTRAS + 2)
    numbers = body.slot("i64", 4)
    with body.when(called):
        tile = body.choose(staged, "ptr", shifted, "%c")
        body.store("ptr", tile, pointers, 8)
        body.store("ptr", frame.buffer(2), body.at(pointers, 1, "ptr"), 8)
        with body.loop(0, frame.get(Word.EXTRAS)) as extra:
            source = body.at("%bufs", body.add(extra, 4), "ptr")
            place = body.at(pointers, body.add(extra, 2), "ptr")
            body.store("ptr", body.load("ptr", source, 8), place, 8)
        for index, value in enumerate(("%batch", "%j0", "%j1", lead)):
            body.put(numbers, index, value)
        result = body.new(
            f"call i32 %epilogue(ptr {pointers}, ptr {numbers}, i64 %i0, i64 %i1, i64 %thread)"
        )
        status.set(result)
    with body.when(body.both(staged, body.new(f"xor i1 {called}, true"))):
        rows, columns = body.sub("%i1", "%i0"), body.sub("%j1", "%j0")
        frame.fill(Word.ROW_OUT, None, Word.M_DIMS, Field.C, "%i0", rows)
        frame.fill(Word.COLUMN_C, Word.COLUMN_C_RUN, Word.N_DIMS, Field.C, "%j0", columns)
        corner = body.add(body.mul("%i0", lead), "%j0")
        source = body.at(shifted, body.mul(corner, core.size))
        body.do(
            f"call void @scatter(ptr {source}, i64 {body.mul(lead, core.size)}, ptr %c,"
            f" ptr {frame.work(Word.ROW_OUT)}, ptr {frame.work(Word.COLUMN_C)},"
            f" ptr {frame.work(Word.COLUMN_C_RUN)}, i64 {rows}, i64 {columns})"
        )
    body.do(f"ret i32 {status.get()}")
    core.finish(body)


STRIP_ARGUMENTS = [
    ("ptr", "a"),
    ("ptr", "row_a"),
    ("i64", "step_a"),
    ("ptr", "b"),
    ("i64", "step_b"),
    ("i64", "count"),
    ("ptr", "c"),
    ("ptr", "row_c"),
    ("i64", "columns"),
    ("i64", "add"),
    ("i64", "rows"),
]


def _emit_rows_of_tiles(core: Core) -> None:
    """All row tiles of one panel. Rows are dealt evenly, so no tile is left with a thin remainder."""
    kind = core.kind
    body = Body("strip", STRIP_ARGUMENTS)
    tiles = body.div(body.add("%rows", kind.rows - 1), kind.rows)
    base = body.div("%rows", tiles)
    longer = body.rem("%rows", tiles)
    narrow = body.test("sle", "%columns", kind.lanes)
    first = body.local("i64", 0)
    with body.loop(0, tiles) as tile:
        start = first.get()
        more = body.new(f"zext i1 {body.test('slt', tile, longer)} to i64")
        height = body.add(base, more)
        first.set(body.add(start, height))
        table_a = body.at("%row_a", start, "i64")
        table_c = body.at("%row_c", start, "i64")
        operands = (
            f"ptr %a, ptr {table_a}, i64 %step_a, ptr %b, i64 %step_b, i64 %count,"
            f" ptr %c, ptr {table_c}, i64 %columns, i64 %add"
        )
        widths = sorted({1, kind.vectors})
        variants = [(rows, width) for width in widths for rows in range(1, kind.rows + 1)]
        thin = body.choose(narrow, "i64", 0, (len(widths) - 1) * kind.rows)
        index = body.add(body.sub(height, 1), thin)
        cases = " ".join(
            f"i64 {number}, label %tile{rows}x{width}"
            for number, (rows, width) in enumerate(variants)
        )
        body.do(f"switch i64 {index}, label %next [{cases}]")
        for rows, width in variants:
            body.label(f"tile{rows}x{width}")
            body.do(f"call void @{tile_name(rows, width)}({operands})")
            body.do("br label %next")
        body.label("next")
    body.do("ret void")
    core.finish(body)


def _emit_pack_columns(core: Core) -> None:
    """`pack_columns(params, work, b, to, j0, j1)`: all k of columns j0..j1 of B, as panels."""
    arguments = [("ptr", "params"), ("ptr", "work"), ("ptr", "b"), ("ptr", "to")]
    body = Body("pack_columns", [*arguments, ("i64", "j0"), ("i64", "j1")])
    frame = Frame(body)
    columns = body.sub("%j1", "%j0")
    block = frame.get(Word.K_BLOCK)
    depth = frame.get(Word.K)
    frame.fill(Word.COLUMN_B, Word.COLUMN_B_RUN, Word.N_DIMS, Field.B, "%j0", columns)
    with body.loop(0, depth, block) as k:
        count = body.least(block, body.sub(depth, k))
        frame.fill(Word.K_B, Word.K_B_RUN, Word.K_DIMS, Field.B, k, count)
        target = body.at("%to", body.mul(k, core.kind.columns * core.size))
        body.do(
            f"call void @pack_b(ptr {target}, i64 {frame.get(Word.PANEL_STEP)}, ptr %b,"
            f" ptr {frame.work(Word.COLUMN_B)}, ptr {frame.work(Word.COLUMN_B_RUN)},"
            f" i64 {columns}, ptr {frame.work(Word.K_B)}, ptr {frame.work(Word.K_B_RUN)},"
            f" i64 {count})"
        )
    body.do("ret void")
    core.finish(body)


BLOCK_ARGUMENTS = [
    ("ptr", "bufs"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("i64", "thread"),
    ("ptr", "epilogue"),
    ("i64", "batch"),
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "c"),
    ("i64", "i0"),
    ("i64", "i1"),
    ("i64", "j0"),
    ("i64", "j1"),
]


def _emit_vector(core: Core) -> None:
    """One row of C: matrix-vector product, as dot products or as sums of scaled rows of B."""
    body = Body("vector", BLOCK_ARGUMENTS, "i32")
    frame = Frame(body)
    size, memory = core.size, core.kind.memory_bytes
    depth, columns = frame.get(Word.K), body.sub("%j1", "%j0")
    x = body.local("ptr", "%a")
    with body.when(frame.has(Flag.PACK_A)):
        frame.fill(Word.K_A, Word.K_A_RUN, Word.K_DIMS, Field.A, 0, depth)
        frame.fill(Word.ROW_A, Word.ROW_A_RUN, Word.M_DIMS, Field.A, 0, 1)
        body.do(
            f"call void @pack_a(ptr {frame.work(Word.BLOCK_A)}, i64 0, ptr %a,"
            f" ptr {frame.work(Word.ROW_A)}, ptr {frame.work(Word.ROW_A_RUN)}, i64 1,"
            f" ptr {frame.work(Word.K_A)}, ptr {frame.work(Word.K_A_RUN)}, i64 {depth})"
        )
        x.set(frame.work(Word.BLOCK_A))
    straight = body.at("%c", body.mul("%j0", size))
    y = body.choose(frame.has(Flag.TILE), "ptr", frame.work(Word.TILE), straight)
    with body.when(frame.has(Flag.DOTS)):
        frame.fill(Word.COLUMN_B, None, Word.N_DIMS, Field.B, "%j0", columns)
        main = body.mul(body.div(columns, DOT_COLUMNS), DOT_COLUMNS)
        tail = f"i64 {depth}, ptr {y}"
        common = f"ptr {x.get()}, ptr %b, ptr {frame.work(Word.COLUMN_B)}"
        with body.loop(0, main, DOT_COLUMNS) as column:
            body.do(f"call void @dots_{DOT_COLUMNS}({common}, i64 {column}, {tail})")
        with body.loop(main, columns) as column:
            body.do(f"call void @dots_1({common}, i64 {column}, {tail})")
    with body.when(frame.has(Flag.ROWS)):
        step = frame.get(Word.STEP_B)
        origin = body.at("%b", body.mul("%j0", memory))
        main = body.mul(body.div(depth, ROW_GROUP), ROW_GROUP)
        for rows, start, stop in ((ROW_GROUP, "0", main), (1, main, depth)):
            with body.loop(start, stop, rows) as k:
                factors = body.at(x.get(), k, core.kind.element)
                source = body.at(origin, body.mul(k, step))
                body.do(
                    f"call void @rows_{rows}(ptr {factors}, ptr {source}, i64 {step}, ptr {y},"
                    f" i64 {columns}, i64 {k})"
                )
    result = body.new(
        "call i32 @finish(ptr %bufs, ptr %params, ptr %work, i64 %thread, ptr %epilogue,"
        " i64 %batch, ptr %c, i64 0, i64 1, i64 %j0, i64 %j1, i64 %j0)"
    )
    body.do(f"ret i32 {result}")
    core.finish(body)


def _emit_block(core: Core) -> None:
    """Rows i0..i1, columns j0..j1 of one batch element: pack, then blocks of rows and of k."""
    body = Body("block", BLOCK_ARGUMENTS, "i32")
    frame = Frame(body)
    size, panel_row = core.size, core.kind.columns * core.size
    depth, panel_step = frame.get(Word.K), frame.get(Word.PANEL_STEP)
    # In place, "panels" are `columns` elements apart and rows of B are the matrix's own.
    panels, origin = body.local("ptr", "%b"), body.local("i64", 0)
    panel_shift, row_shift = body.local("i64", panel_row), body.local("i64", frame.get(Word.STEP_B))
    with body.when(frame.has(Flag.PACK_B)):
        target = frame.work(Word.PANELS_B)
        body.do(
            f"call void @pack_columns(ptr %params, ptr %work, ptr %b, ptr {target},"
            " i64 %j0, i64 %j1)"
        )
        panels.set(target)
        origin.set("%j0")
    packed = body.new(f"and i64 {frame.get(Word.FLAGS)}, {Flag.PACK_B | Flag.PACKED_B}")
    with body.when(body.test("ne", packed, 0)):
        panel_shift.set(panel_step)
        row_shift.set(panel_row)
    status = body.local("i32", 0)
    staged, pack_a = frame.has(Flag.TILE), frame.has(Flag.PACK_A)
    with body.loop("%i0", "%i1", frame.get(Word.ROW_BLOCK)) as i:
        rows = body.least(frame.get(Word.ROW_BLOCK), body.sub("%i1", i))
        row_a, a_step = _prepare_rows(core, body, frame, i, rows, (staged, pack_a))
        k = body.local("i64", 0)
        more = body.local("i1", "true")
        with body.during(more.get):
            here = k.get()
            count = body.least(frame.get(Word.K_BLOCK), body.sub(depth, here))
            source = body.local("ptr", body.at("%a", body.mul(here, a_step)))
            with body.when(pack_a):
                _pack_rows(core, body, frame, rows, here, count)
                source.set(frame.work(Word.BLOCK_A))
            step_a = body.choose(pack_a, "i64", size, a_step)
            following = body.add(here, count)
            again = body.test("slt", following, depth)
            group = frame.get(Word.FINISH_COLUMNS)
            with body.loop("%j0", "%j1", group) as first:
                stop = body.least("%j1", body.add(first, group))
                with body.loop(first, stop, core.kind.columns) as j:
                    number = body.div(body.sub(j, origin.get()), core.kind.columns)
                    b = body.at(panels.get(), body.mul(number, panel_shift.get()))
                    b = body.at(b, body.mul(here, row_shift.get()))
                    inside = body.sub(j, "%j0")
                    place = body.choose(staged, "i64", inside, j)
                    base = body.choose(staged, "ptr", frame.work(Word.TILE), "%c")
                    c = body.at(base, place, core.kind.element)
                    body.do(
                        f"call void @strip(ptr {source.get()}, ptr {row_a}, i64 {step_a}, ptr {b},"
                        f" i64 {row_shift.get()}, i64 {count}, ptr {c},"
                        f" ptr {frame.work(Word.ROW_C)}, i64 {body.sub('%j1', j)}, i64 {here},"
                        f" i64 {rows})"
                    )
                with body.when(body.new(f"xor i1 {again}, true")):
                    result = body.new(
                        "call i32 @finish(ptr %bufs, ptr %params, ptr %work, i64 %thread,"
                        f" ptr %epilogue, i64 %batch, ptr %c, i64 {i}, i64 {body.add(i, rows)},"
                        f" i64 {first}, i64 {stop}, i64 %j0)"
                    )
                    status.set(body.new(f"or i32 {status.get()}, {result}"))
            k.set(following)
            more.set(again)
    body.do(f"ret i32 {status.get()}")
    core.finish(body)


def _prepare_rows(
    core: Core, body: Body, frame: Frame, i: str, rows: str, flags: tuple[str, str]
) -> tuple[str, str]:
    """Fill the row tables of a block; returns the table that tiles read A through and A's k step."""
    staged, pack_a = flags
    frame.fill(Word.ROW_A, Word.ROW_A_RUN, Word.M_DIMS, Field.A, i, rows)
    with body.when(body.new(f"xor i1 {staged}, true")):
        frame.fill(Word.ROW_C, None, Word.M_DIMS, Field.C, i, rows)
    with body.when(staged):
        step = body.mul(frame.get(Word.TILE_LEAD), core.size)
        _steps(body, frame.work(Word.ROW_C), rows, step)
    with body.when(pack_a):
        _steps(body, frame.work(Word.ROW_PACKED), rows, frame.get(Word.ROW_STEP))
    plain, packed = frame.work(Word.ROW_A), frame.work(Word.ROW_PACKED)
    return body.choose(pack_a, "ptr", packed, plain), frame.get(Word.STEP_A)


def _steps(body: Body, table: str, count: str, step: str) -> None:
    """Equally spaced offsets."""
    with body.loop(0, count) as row:
        body.put(table, row, body.mul(row, step))


def _pack_rows(core: Core, body: Body, frame: Frame, rows: str, k: str, count: str) -> None:
    """Pack one block of A."""
    frame.fill(Word.K_A, Word.K_A_RUN, Word.K_DIMS, Field.A, k, count)
    body.do(
        f"call void @pack_a(ptr {frame.work(Word.BLOCK_A)}, i64 {frame.get(Word.ROW_STEP)}, ptr %a,"
        f" ptr {frame.work(Word.ROW_A)}, ptr {frame.work(Word.ROW_A_RUN)}, i64 {rows},"
        f" ptr {frame.work(Word.K_A)}, ptr {frame.work(Word.K_A_RUN)}, i64 {count})"
    )


def _emit_run(core: Core) -> None:
    """The core with an epilogue pointer: walk the range of work units, merging neighbours in rows."""
    body = Body(f"{core_name(core.kind.name)}_fused", [*ABI, ("ptr", "epilogue")], "i32")
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
        ahead = body.at(b, body.mul(batch, frame.get(Word.PACKED_STEP)))
        in_b = body.choose(packed, "ptr", ahead, frame.batch(b, Field.B, batch))
        operands = (
            f"ptr %bufs, ptr %params, ptr {work}, i64 %thread, ptr %epilogue, i64 {batch},"
            f" ptr {frame.batch(a, Field.A, batch)}, ptr {in_b},"
            f" ptr {frame.batch(c, Field.C, batch)}, i64 {i0}, i64 {i1}, i64 {j0}, i64 {j1}"
        )
        result = body.new(f"call i32 {function}({operands})")
        status.set(body.new(f"or i32 {status.get()}, {result}"))
        unit.set(body.add(here, count))
    body.do(f"ret i32 {status.get()}")
    core.finish(body, "")


def _emit_entry(core: Core) -> None:
    """The plain kernel: the core without an epilogue."""
    name = core_name(core.kind.name)
    body = Body(name, ABI, "i32")
    operands = ", ".join(f"{kind} %{argument}" for kind, argument in ABI)
    result = body.new(f"call i32 @{name}_fused({operands}, ptr null)")
    body.do(f"ret i32 {result}")
    core.finish(body, "")


def _emit_pack_entry(core: Core) -> None:
    """Pack a constant B once: bufs = [unused, B, panels, workspace], units = batch x column units."""
    body = Body(f"{core_name(core.kind.name)}_pack", ABI, "i32")
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
            f"call void @pack_columns(ptr %params, ptr {work}, ptr {frame.batch(b, Field.B, batch)},"
            f" ptr {body.at(frame.buffer(2), shift)}, i64 {j0}, i64 {j1})"
        )
    body.do("ret i32 0")
    core.finish(body, "")


__all__ = ["ABI", "Kind", "build_core", "core_name"]
