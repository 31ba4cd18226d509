"""Reading `params`, buffers and workspace in generated code, and steps built on them alone."""

from graphc.codegen.gemm.emit import Body, Local, Operand
from graphc.codegen.gemm.layout import MAX_EXTRAS, Field, Flag, Slot, Word
from graphc.codegen.gemm.vector import Core

OPERAND = "i64"  # an address among operands takes a word, also where a pointer is shorter


class Frame:
    """Typed access to `params`, the buffers and the workspace inside a function body."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def get(self, word: int) -> str:
        """A scalar of `params`."""
        return self.body.word("%params", word)

    def has(self, flag: int) -> str:
        """Whether a flag is set."""
        bits = self.body.new(f"and i64 {self.get(Word.FLAGS)}, {flag}")
        return self.body.test("ne", bits, 0)

    def fresh(self, same: int) -> str:
        """Whether to fill tables: not if the units of a call share them and one came before."""
        return self.body.new(f"or i1 %first, {self.body.negate(self.has(same))}")

    def new_block(self) -> str:
        """Whether to copy a block of A: not if the products of its run share it."""
        return self.body.new(f"or i1 %new_a, {self.body.negate(self.has(Flag.SAME_A))}")

    def function(self, slot: Operand) -> str:
        """A function of the core; null if no plan of the program needs it."""
        return self.body.load("ptr", self.body.at("%core", slot, "ptr"), 8)

    def buffer(self, index: int) -> str:
        """A data pointer."""
        return self.body.load("ptr", self.body.at("%bufs", index, OPERAND), 8)

    def work(self, word: Operand) -> str:
        """A region of this thread's workspace; the function has an argument `work`."""
        return self.body.at("%work", self.body.word("%params", word))

    def fill(
        self, table: int, run: Operand, group: int, field: int, start: Operand, count: Operand
    ) -> None:
        """Fill a table of the workspace with the offsets of a range of a group; run 0 is none."""
        self.body.do(
            f"call void {self.function(Slot.FILL)}(ptr %params, ptr %work, i64 {table}, i64 {run},"
            f" i64 {group}, i64 {field}, i64 {start}, i64 {count})"
        )

    def steps(
        self, k: Operand, count: Operand, together: int, plain: str = "false"
    ) -> tuple[Operand, Operand]:
        """A range of k in steps of memory: those of whole bundles, of which the last may lack some.

        `plain`: whether the range is in steps of memory already.
        """
        if together == 1:
            return k, count
        body = self.body
        factor = body.choose(plain, "i64", 1, together)
        first = body.mul(k, factor)
        left = body.sub(self.get(Word.DEPTH), first)
        return first, body.least(left, body.mul(count, factor))

    def batch(self, pointer: str, field: int, index: Operand) -> str:
        """A base pointer moved to a batch element."""
        offset = self.body.new(
            f"call i64 @offset(ptr %params, i64 {Word.BATCH_DIMS}, i64 {field}, i64 {index})"
        )
        return self.body.at(pointer, offset)

    def rows(self, i: str, rows: str) -> str:
        """Fill the row tables of a block; returns the table that tiles read A through."""
        self.body.do(
            f"call void {self.function(Slot.FILL_ROWS)}(ptr %core, ptr %params, ptr %work,"
            f" i1 %first, i64 {i}, i64 {rows})"
        )
        packed = self.has(Flag.PACK_A)
        return self.work(self.body.choose(packed, "i64", Word.ROW_PACKED, Word.ROW_A))

    def pack_rows(self, rows: str, k: Operand, count: Operand) -> None:
        """Pack `count` steps of k of all rows of a block of A."""
        self.body.do(
            f"call void {self.function(Slot.PACK_ROWS)}(ptr %core, ptr %params, ptr %work,"
            f" i1 %first, i1 %new_a, ptr %a, i64 {rows}, i64 {k}, i64 {count})"
        )

    def operands(self, rows: tuple[str, str], k: tuple[str, str], status: Local) -> tuple[str, str]:
        """Where A and B lie, with these (first, count) rows and steps of k computed if need be."""
        body = self.body
        in_a, in_b = body.local("ptr", "%a"), body.local("ptr", "%b")
        self.make("a", in_a, status, rows, k)
        self.make("b", in_b, status, ("%j0", body.sub("%j1", "%j0")), k)
        return in_a.get(), in_b.get()

    def make(
        self, which: str, place: Local, status: Local, lines: tuple[str, str], k: tuple[str, str]
    ) -> None:
        """If operand "a" or "b" is computed, do so for (first, count) of rows or columns and of k.

        `place` becomes the address that the operand would have if all of it lay as the block does.
        """
        body, name = self.body, which.upper()
        with body.when(self.has(getattr(Flag, f"MADE_{name}"))):
            step, line = (self.get(getattr(Word, f"{word}_{name}")) for word in ("STEP", "LINE"))
            shift = body.add(body.mul(lines[0], line), body.mul(k[0], step))
            origin = self.work(getattr(Word, f"MADE_{name}"))
            place.set(body.at(origin, body.sub(0, shift)))
            bounds = [lines[0], body.add(*lines), k[0], body.add(*k)]
            numbers = ", ".join(f"i64 {n}" for n in (line, step, *bounds))
            sources = self.get(getattr(Word, f"SOURCES_{name}"))
            made = body.new(
                f"call i32 {self.function(Slot.MAKE)}(ptr %bufs, ptr %params, i64 %thread,"
                f" ptr %prologue_{which}, i64 %batch, ptr {place.get()}, i64 {sources},"
                f" i64 {self.get(Word.EXTRAS)}, {numbers})"
            )
            status.set(body.new(f"or i32 {status.get()}, {made}"))


def operands(body: Body, count: int) -> str:
    """Room for the operands of a kernel that is called from here.

    The address of the cancel flag lies before them, as it does before ours: loops may look at it.
    """
    room = body.slot(OPERAND, count + 1)
    body.store("ptr", body.load("ptr", body.at("%bufs", -1, OPERAND), 8), room, 8)
    return body.at(room, 1, OPERAND)


MAKE_ARGUMENTS = [
    ("ptr", "bufs"),
    ("ptr", "params"),
    ("i64", "thread"),
    ("ptr", "prologue"),
    ("i64", "batch"),
    ("ptr", "to"),
    *[("i64", name) for name in ("sources", "extras", "line", "step", "x0", "x1", "k0", "k1")],
]


def emit_make(core: Core) -> str:
    """`make(...)`: have a prologue compute x0..x1, k0..k1 of an operand.

    The prologue runs over rows of memory: k of an x, or the x of one k if those are neighbours.
    """
    body = Body("make", MAKE_ARGUMENTS, "i32")
    pointers, numbers = operands(body, MAX_EXTRAS + 1), body.slot("i64", 5)
    body.store("ptr", "%to", pointers, 8)
    with body.loop("%sources", body.add("%extras", 4)) as source:
        pointer = body.load("ptr", body.at("%bufs", source, OPERAND), 8)
        place = body.at(pointers, body.add(body.sub(source, "%sources"), 1), OPERAND)
        body.store("ptr", pointer, place, 8)
    turned = body.test("eq", "%line", core.size)

    def either(across: str, along: str) -> str:
        return body.choose(turned, "i64", across, along)

    lead = body.div(either("%step", "%line"), core.size)
    for index, value in enumerate(("%batch", either("%x0", "%k0"), either("%x1", "%k1"), lead)):
        body.put(numbers, index, value)
    body.put(numbers, 4, body.new("ptrtoint ptr %params to i64"))
    result = body.new(
        f"call i32 %prologue(ptr {pointers}, ptr {numbers}, i64 {either('%k0', '%x0')},"
        f" i64 {either('%k1', '%x1')}, i64 %thread)"
    )
    body.do(f"ret i32 {result}")
    return core.finish(body)


def emit_fill_rows(core: Core) -> str:
    """`fill_rows(...)`: tables of rows i .. i+rows-1 of A, of packed A, and of C or the tile."""
    pointers = [("ptr", name) for name in ("core", "params", "work")]
    body = Body("fill_rows", [*pointers, ("i1", "first"), ("i64", "i"), ("i64", "rows")])
    frame = Frame(body)
    with body.when(frame.fresh(Flag.SAME_ROWS)):
        staged, pack_a = frame.has(Flag.TILE), frame.has(Flag.PACK_A)
        unread = body.both(body.negate(pack_a), body.negate(frame.has(Flag.LANES)))
        run = body.choose(unread, "i64", 0, Word.ROW_A_RUN)
        frame.fill(Word.ROW_A, run, Word.M_DIMS, Field.A, "%i", "%rows")
        with body.when(body.negate(staged)):
            frame.fill(Word.ROW_C, 0, Word.M_DIMS, Field.C, "%i", "%rows")
        with body.when(staged):
            step = body.mul(frame.get(Word.TILE_LEAD), core.size)
            _steps(body, frame.work(Word.ROW_C), "%rows", step)
        with body.when(pack_a):
            _steps(body, frame.work(Word.ROW_PACKED), "%rows", frame.get(Word.ROW_STEP))
        for word in (Word.ROW_A, Word.ROW_PACKED):
            table = frame.work(word)
            body.put(table, "%rows", body.word(table, 0))
    body.do("ret void")
    return core.finish(body)


def _steps(body: Body, table: str, count: str, step: str) -> None:
    """Equally spaced offsets."""
    with body.loop(0, count) as row:
        body.put(table, row, body.mul(row, step))


PACK_ROWS_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("i1", "first"),
    ("i1", "new_a"),
    ("ptr", "a"),
    ("i64", "rows"),
    ("i64", "k"),
    ("i64", "count"),
]


def emit_pack_rows(core: Core) -> str:
    """`pack_rows(...)`: pack one block of A."""
    body = Body("pack_rows", PACK_ROWS_ARGUMENTS)
    frame = Frame(body)
    vector = body.test("ne", body.new(f"and i64 {frame.get(Word.FLAGS)}, {Flag.VECTOR}"), 0)
    k, count = frame.steps("%k", "%count", core.kind.together, vector)
    with body.when(frame.fresh(Flag.SAME_COLUMNS)):
        frame.fill(Word.K_A, Word.K_A_RUN, Word.K_DIMS, Field.A, k, count)
    pack = frame.function(Slot.PACK_A)
    if core.kind.bundles:
        pack = body.choose(vector, "ptr", pack, frame.function(Slot.PACK_A_BUNDLES))
    with body.when(frame.new_block()):
        body.do(
            f"call void {pack}(ptr {frame.work(Word.BLOCK_A)}, i64 {frame.get(Word.ROW_STEP)},"
            f" ptr %a, ptr {frame.work(Word.ROW_A)}, ptr {frame.work(Word.ROW_A_RUN)}, i64 %rows,"
            f" ptr {frame.work(Word.K_A)}, ptr {frame.work(Word.K_A_RUN)}, i64 {count})"
        )
    body.do("ret void")
    return core.finish(body)


PACK_COLUMNS_ARGUMENTS = [
    ("ptr", "core"),
    ("ptr", "params"),
    ("ptr", "work"),
    ("i1", "first"),
    ("ptr", "b"),
    ("ptr", "to"),
    ("i64", "j0"),
    ("i64", "j1"),
    ("i64", "k0"),
    ("i64", "k1"),
]


def emit_pack_columns(core: Core) -> str:
    """`pack_columns(...)`: columns j0..j1, rows k0..k1 of B, as panels."""
    body = Body("pack_columns", PACK_COLUMNS_ARGUMENTS)
    frame = Frame(body)
    columns = body.sub("%j1", "%j0")
    block = frame.get(Word.K_BLOCK)
    fresh = frame.fresh(Flag.SAME_COLUMNS)
    with body.when(fresh):
        frame.fill(Word.COLUMN_B, Word.COLUMN_B_RUN, Word.N_DIMS, Field.B, "%j0", columns)
    with body.loop("%k0", "%k1", block) as k:
        steps = body.least(block, body.sub("%k1", k))
        first, count = frame.steps(k, steps, core.kind.together)
        with body.when(fresh):
            frame.fill(Word.K_B, Word.K_B_RUN, Word.K_DIMS, Field.B, first, count)
        row = body.mul(body.sub(k, "%k0"), core.kind.columns * core.size)
        target, step = body.at("%to", row), frame.get(Word.PANEL_STEP)
        body.do(
            f"call void {frame.function(Slot.PACK_B)}(ptr {target}, i64 {step}, ptr %b,"
            f" ptr {frame.work(Word.COLUMN_B)}, ptr {frame.work(Word.COLUMN_B_RUN)},"
            f" i64 {columns}, ptr {frame.work(Word.K_B)}, ptr {frame.work(Word.K_B_RUN)},"
            f" i64 {count})"
        )
    body.do("ret void")
    return core.finish(body)
