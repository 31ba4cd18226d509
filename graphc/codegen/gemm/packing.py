"""Index tables and packing for the contraction core.

A group of dims (say the n of a convolution: image, row, column) is one linear index to the tiles.
`fill` turns a range of it into a table of byte offsets and, beside it, how many entries from each
one on are contiguous. Packing and scattering read those runs, so plain matrices move whole
vectors, patches of an image move row segments, and anything else still moves element by element.

    panel p of B:   k0: [ 32 columns ]  k1: [ 32 columns ] ...   columns past the end: anything
    block of A:     row 0: [ k0 k1 ... kc ] pad   row 1: ...      the pad spreads cache sets
"""

from collections.abc import Callable

from graphc.codegen.gemm.emit import Body, Local, Operand
from graphc.codegen.gemm.layout import DIM_WORDS, Field, Word
from graphc.codegen.gemm.vector import Core
from graphc.codegen.tuning import tuned

TurnRows = Callable[[Core, Body, str, str], None]  # (.., line, group of lines)
CopyRow = Callable[[Core, Body, str], None]  # (.., line)
Load = Callable[[Core, Body, int, str, Operand], str]  # (.., lanes, place, how many)
PackColumns = Callable[[Core, Body, str, str, str, tuple[str, str]], None]  # panel line width span
ROW_CHUNK = 64


def emit_offset(core: Core) -> None:
    """`offset(params, group, field, index)`: byte offset of a linear index over a group of dims."""
    arguments = [("ptr", "params"), ("i64", "group"), ("i64", "field"), ("i64", "index")]
    body = Body("offset", arguments, "i64")
    dims, count = _dims(body)
    rest, total = body.local("i64", "%index"), body.local("i64", 0)
    with body.loop(1, count) as position:
        dim = body.mul(body.sub(count, position), DIM_WORDS)
        extent = body.word(dims, dim)
        stride = body.word(dims, body.add(dim, "%field"))
        linear = rest.get()
        total.set(body.add(total.get(), body.mul(body.rem(linear, extent), stride)))
        rest.set(body.div(linear, extent))
    # What is left is the index of the outermost dim.
    outermost = body.mul(rest.get(), body.word(dims, "%field"))
    body.do(f"ret i64 {body.add(total.get(), outermost)}")
    core.finish(body)


def _dims(body: Body) -> tuple[str, str]:
    """Address and number of the dims of group `%group` (the word that holds their number)."""
    start = body.word("%params", body.add("%group", Word.BATCH_AT - Word.BATCH_DIMS))
    return body.at("%params", start, "i64"), body.word("%params", "%group")


FILL_ARGUMENTS = [
    ("ptr", "params"),
    ("ptr", "work"),
    *[("i64", name) for name in ("table", "run", "group", "field", "start", "count")],
]


def emit_fill(core: Core) -> str:
    """Offsets of indices start .. start+count-1 into a table, contiguous runs into another.

    `table` and `run` are the words of `params` that say where in the workspace; run 0 is none.
    """
    body = Body("fill", FILL_ARGUMENTS)
    table = body.at("%work", body.word("%params", "%table"))
    dims, number = _dims(body)
    last = body.mul(body.sub(number, 1), DIM_WORDS)
    several = body.test("sgt", number, 1)
    outer = body.choose(several, "i64", body.sub(last, DIM_WORDS), last)
    extent, stride = body.word(dims, last), body.word(dims, body.add(last, "%field"))
    rows = body.choose(several, "i64", body.word(dims, outer), 1)
    apart = body.word(dims, body.add(outer, "%field"))
    done = body.local("i64", 0)
    with body.during(lambda: body.test("slt", done.get(), "%count")):
        # Only the first index of so many rows of the innermost dim is divided by all extents.
        linear = body.add("%start", done.get())
        inner = body.local("i64", body.rem(linear, extent))
        row = body.local("i64", body.rem(body.div(linear, extent), rows))
        first = body.new(f"call i64 @offset(ptr %params, i64 %group, i64 %field, i64 {linear})")
        base = body.local("i64", first)

        def goes_on(row: Local = row) -> str:
            inside = body.test("slt", row.get(), rows)
            return body.both(inside, body.test("slt", done.get(), "%count"))

        with body.during(goes_on):
            here, start, skipped = done.get(), base.get(), inner.get()
            length = body.least(body.sub(extent, skipped), body.sub("%count", here))
            with body.loop(0, length) as step:
                value = body.add(start, body.mul(step, stride))
                body.put(table, body.add(here, step), value)
            done.set(body.add(here, length))
            base.set(body.add(start, body.sub(apart, body.mul(skipped, stride))))
            row.set(body.add(row.get(), 1))
            inner.set(0)
    with body.when(body.test("ne", "%run", 0)):
        runs = body.at("%work", body.word("%params", "%run"))
        with body.when(several):
            _fill_runs(core, body, table, runs)
        with body.when(body.negate(several)), body.loop(0, "%count") as step:
            near = body.test("eq", stride, _neighbour(core, body))
            body.put(runs, step, body.choose(near, "i64", body.sub("%count", step), 1))
    body.do("ret void")
    return core.finish(body)


def _neighbour(core: Core, body: Body) -> str:
    """The bytes from an element to the next in memory."""
    in_c = body.test("eq", "%field", Field.C)
    return body.choose(in_c, "i64", core.kind.result_bytes, core.kind.memory_bytes)


def _fill_runs(core: Core, body: Body, table: str, runs: str) -> None:
    """Walk the table backwards: a run grows while neighbours are one element apart."""
    run = body.local("i64", 0)
    following = body.local("i64", 0)
    with body.loop(0, "%count") as step:
        position = body.sub(body.sub("%count", 1), step)
        value = body.word(table, position)
        near = body.test("eq", body.sub(following.get(), value), _neighbour(core, body))
        near = body.both(near, body.test("ne", step, 0))
        length = body.choose(near, "i64", body.add(run.get(), 1), 1)
        body.put(runs, position, length)
        run.set(length)
        following.set(value)


TRANSPOSE_ARGUMENTS = [
    ("ptr", "to"),
    ("i64", "to_step"),
    ("ptr", "from"),
    ("ptr", "offsets"),
    ("i64", "limit"),
    ("i64", "part"),
]


def emit_transpose(core: Core) -> None:
    """`transpose(to, to_step, from, offsets, limit, part)`: a square block, columns to rows.

    Source vector u lies at from + offsets[min(u, limit-1)] and has `part` valid lanes; lane r of
    all sources becomes row r at to + r * to_step.
    """
    lanes, memory = core.kind.lanes, core.kind.memory

    def read(body: Body, place: str) -> str:
        core.prefetch(body, body.at(place, tuned.transpose_ahead), False)
        return core.widen(body, lanes, core.load_part(body, lanes, place, "%part", memory))

    transpose(core, read)


def transpose(core: Core, read: Callable[[Body, str], str]) -> None:
    """`emit_transpose` where `read` gives the source vector at a place."""
    body = Body("transpose", TRANSPOSE_ARGUMENTS)
    last = body.sub("%limit", 1)
    rows = []
    for source in range(core.kind.lanes):
        place = body.at("%from", body.word("%offsets", body.least(source, last)))
        rows.append(read(body, place))
    for number, row in enumerate(transposed(core, body, rows)):
        target = body.at("%to", body.mul("%to_step", number))
        body.store(core.vector(core.kind.lanes), row, target, core.size)
    body.do("ret void")
    core.finish(body)


def transposed(core: Core, body: Body, rows: list[str]) -> list[str]:
    """Transpose a square of vectors: inside 16-byte blocks first, then whole blocks.

    Both kinds of shuffle are cheap single instructions, which arbitrary permutations are not.
    """
    lanes = core.kind.lanes
    block = min(lanes, 16 // core.size)
    groups = [
        _turn_blocks(core, body, rows[start : start + block], block)
        for start in range(0, lanes, block)
    ]
    made = [""] * lanes
    for column, vectors in enumerate(zip(*groups)):
        for position, value in enumerate(_swap_blocks(core, body, list(vectors), block)):
            made[position * block + column] = value
    return made


def _turn_blocks(core: Core, body: Body, rows: list[str], block: int) -> list[str]:
    """Transpose every 16-byte block of as many rows as a block has lanes, in log2 rounds."""
    width = 1
    while width < block:
        mixed = [""] * block
        for start in range(0, block, 2 * width):
            for step in range(width):
                pair = rows[start + step], rows[start + step + width]
                for half in (0, 1):
                    order = _interleaved(core.kind.lanes, block, half * block // 2, width)
                    mixed[start + 2 * step + half] = core.pick(body, core.kind.lanes, *pair, order)
        rows, width = mixed, 2 * width
    return rows


def _interleaved(lanes: int, block: int, half: int, width: int) -> list[int]:
    """Lane order that interleaves runs of `width` lanes from one half of every block of a pair."""
    return [
        source + run + lane
        for base in range(half, lanes, block)
        for run in range(base, base + block // 2, width)
        for source in (0, lanes)
        for lane in range(width)
    ]


def _swap_blocks(core: Core, body: Body, vectors: list[str], block: int) -> list[str]:
    """Transpose a square of 16-byte blocks: result q holds block q of every vector."""
    if len(vectors) == 1:
        return vectors
    lanes = core.kind.lanes
    halves = []
    for odd in (0, block):
        order = [
            source + start + lane
            for source in (0, lanes)
            for start in range(odd, lanes, 2 * block)
            for lane in range(block)
        ]
        pairs = zip(vectors[::2], vectors[1::2])
        halves.append([core.pick(body, lanes, a, b, order) for a, b in pairs])
    swapped = (_swap_blocks(core, body, half, block) for half in halves)
    return [value for pair in zip(*swapped) for value in pair]


PACK_ARGUMENTS = [
    ("ptr", "to"),
    ("i64", "to_step"),
    ("ptr", "from"),
    ("ptr", "line"),
    ("ptr", "line_run"),
    ("i64", "lines"),
    ("ptr", "k"),
    ("ptr", "k_run"),
    ("i64", "count"),
]


def emit_pack_a(core: Core) -> str:
    """Copy `lines` rows of A, `count` steps of k each, to rows that are `to_step` bytes apart."""
    turn = _transpose_a if core.turns and not core.kind.bundles else None
    return pack_a(core, "pack_a", turn, _copy_row)


def pack_a(core: Core, name: str, turn: TurnRows | None, copy: CopyRow) -> str:
    """The function that packs A: rows that are neighbours in memory turn, others are copied."""
    body = Body(name, PACK_ARGUMENTS)
    start = body.local("i64", 0)
    scattered = body.test("eq", body.word("%k_run", 0), 1)
    with body.during(lambda: body.test("slt", start.get(), "%lines")):
        line = start.get()
        group = body.least(body.sub("%lines", line), core.kind.lanes)
        enough = body.test("sge", body.word("%line_run", line), group)
        square = body.both(scattered, body.both(enough, body.test("sgt", group, 1)))
        if turn is None:
            square = "false"
        advance = body.local("i64", 1)
        with body.when(square):
            if turn is not None:
                turn(core, body, line, group)
            advance.set(group)
        with body.when(body.negate(square)):
            copy(core, body, line)
        start.set(body.add(line, advance.get()))
    body.do("ret void")
    return core.finish(body)


def _transpose_a(core: Core, body: Body, line: str, group: str) -> None:
    """Rows that are neighbours in memory: square blocks through registers."""
    source = body.at("%from", body.word("%line", line))
    with body.loop(0, "%count", core.kind.lanes) as k:
        target = body.at("%to", body.add(body.mul(line, "%to_step"), body.mul(k, core.size)))
        offsets = body.at("%k", k, "i64")
        body.do(
            f"call void @transpose(ptr {target}, i64 %to_step, ptr {source}, ptr {offsets},"
            f" i64 {body.sub('%count', k)}, i64 {group})"
        )


def _copy_row(core: Core, body: Body, line: str) -> None:
    """One row, run by run, a vector at a time."""
    lanes, memory = core.kind.lanes, core.kind.memory
    source = body.at("%from", body.word("%line", line))
    target = body.at("%to", body.mul(line, "%to_step"))
    position = body.local("i64", 0)
    with body.during(lambda: body.test("slt", position.get(), "%count")):
        k = position.get()
        run = body.word("%k_run", k)
        start = body.at(source, body.word("%k", k))
        to = body.at(target, k, core.kind.element)
        main = body.mul(body.div(run, lanes), lanes)
        with body.loop(0, main, lanes) as step:
            place = body.at(start, step, memory)
            value = body.load(core.vector(lanes, memory), place, core.kind.memory_bytes)
            value = core.widen(body, lanes, value)
            body.store(core.vector(lanes), value, body.at(to, step, core.kind.element), core.size)
        rest = body.sub(run, main)
        with body.when(body.test("sgt", rest, 0)):
            value = core.load_part(body, lanes, body.at(start, main, memory), rest, memory)
            value = core.widen(body, lanes, value)
            body.store(core.vector(lanes), value, body.at(to, main, core.kind.element), core.size)
        position.set(body.add(k, run))


def emit_pack_b(core: Core) -> str:
    """Copy `lines` columns of B, `count` steps of k, to panels that are `to_step` bytes apart.

    Where columns are contiguous, a few rows of k at a time go to all panels, so the source is
    read as long forward streams.  Columns two elements apart are copied, too: what they have in
    k, a window of a convolution, is shorter than the blocks that are turned.
    """

    def runs(body: Body, first: str, stop: str) -> str:
        return body.test("sgt", body.word("%k_run", first), 1)

    return pack_b(core, runs, _transpose_b, _copy_panel)


def pack_b(
    core: Core, runs: Callable[[Body, str, str], str], turn: PackColumns, copy: PackColumns
) -> str:
    """The function that packs B: columns that run along k turn, others are copied."""
    columns = core.kind.columns
    body = Body("pack_b", PACK_ARGUMENTS)
    wide = body.test("sgt", body.word("%line_run", 0), 1)
    chunk = body.choose(wide, "i64", ROW_CHUNK * core.kind.together, "%count")
    with body.loop(0, "%count", chunk) as first:
        stop = body.least("%count", body.add(first, chunk))
        with body.loop(0, "%lines", columns) as line:
            width = body.least(columns, body.sub("%lines", line))
            panel = body.at("%to", body.mul(body.div(line, columns), "%to_step"))
            alone = body.test("eq", body.word("%line_run", line), 1)
            least = core.kind.lanes if core.hardware.masked else 2  # parts are blended
            near = body.test("sge", spread_run(core, body, line, "0", width), least)
            square = body.both(body.both(alone, body.negate(near)), runs(body, first, stop))
            if not core.turns:
                square = "false"
            with body.when(square):
                if core.turns:
                    turn(core, body, panel, line, width, (first, stop))
            with body.when(body.negate(square)):
                copy(core, body, panel, line, width, (first, stop))
    body.do("ret void")
    return core.finish(body)


def _transpose_b(
    core: Core, body: Body, panel: str, line: str, width: str, span: tuple[str, str]
) -> None:
    """Columns contiguous in k: square blocks; the next run overwrites rows past this one."""
    lanes, step = core.kind.lanes, core.kind.columns * core.size
    position = body.local("i64", span[0])
    with body.during(lambda: body.test("slt", position.get(), span[1])):
        k = position.get()
        part = body.least(body.word("%k_run", k), lanes)
        source = body.at("%from", body.word("%k", k))
        with body.loop(0, width, lanes) as column:
            shift = body.add(body.mul(k, step), body.mul(column, core.size))
            offsets = body.at("%line", body.add(line, column), "i64")
            body.do(
                f"call void @transpose(ptr {body.at(panel, shift)}, i64 {step}, ptr {source},"
                f" ptr {offsets}, i64 {body.sub(width, column)}, i64 {part})"
            )
        position.set(body.add(k, part))


def _copy_panel(
    core: Core, body: Body, panel: str, line: str, width: str, span: tuple[str, str]
) -> None:
    """Columns in runs, contiguous or every second element: one vector per row of k, without masks
    where a run is all of the panel.
    """
    lanes, element = core.kind.columns, core.kind.element
    position = body.local("i64", 0)
    with body.during(lambda: body.test("slt", position.get(), width)):
        column = position.get()
        place = body.add(line, column)
        part = body.least(body.word("%line_run", place), body.sub(width, column))
        source = body.at("%from", body.word("%line", place))
        spread = spread_run(core, body, line, column, width)
        lone = body.test("eq", part, 1)
        apart = body.both(lone, body.test("sgt", spread, 1))
        ways: list[tuple[str, Operand, int, Load, Load]] = [
            (body.negate(lone), part, 1, load_near, load_near_whole),
            (apart, spread, 2, load_spread, load_spread_whole),
        ]
        with body.when(body.both(lone, body.negate(apart))), body.loop(span[0], span[1]) as k:
            value = load_one(core, body, body.at(source, body.word("%k", k)))
            target = body.at(panel, body.add(body.mul(k, lanes), column), element)
            body.store(core.vector(1), core.widen(body, 1, value), target, core.size)
        for condition, count, step, load, load_whole in ways:
            whole = body.test("eq", count, lanes)
            with body.when(body.both(condition, whole)), body.loop(span[0], span[1]) as k:
                value = load_whole(core, body, lanes, body.at(source, body.word("%k", k)), count)
                target = body.at(panel, body.mul(k, lanes), element)
                body.store(core.vector(lanes), core.widen(body, lanes, value), target, core.size)
            partial = body.both(condition, body.negate(whole))
            if not core.hardware.masked:
                inside = _vector_lies_inside(core, body, (line, column, width), step)
                with body.when(body.both(partial, inside)):
                    _blend_run(core, body, (panel, source, column), step, load_whole, span)
                partial = body.both(partial, body.negate(inside))
            if load is load_near and not core.hardware.masked:
                first = body.test("eq", column, 0)
                with body.when(body.both(partial, first)):
                    _copy_first_part(core, body, (panel, source), count, span)
                partial = body.both(partial, body.negate(first))
            with body.when(partial), body.loop(span[0], span[1]) as k:
                value = load(core, body, lanes, body.at(source, body.word("%k", k)), count)
                target = body.at(panel, body.add(body.mul(k, lanes), column), element)
                core.store_part(body, lanes, core.widen(body, lanes, value), target, count, element)
        position.set(body.add(column, body.choose(apart, "i64", spread, part)))


def _vector_lies_inside(core: Core, body: Body, place: tuple[str, str, str], step: int) -> str:
    """Whether a whole vector whose lane `column` is this column of a panel, in steps of so many
    elements, lies between the first and the last column of the panel, and all columns exist.
    """
    (line, column, width), lanes = place, core.kind.columns
    size = step * core.kind.memory_bytes
    start = body.sub(body.word("%line", body.add(line, column)), body.mul(column, size))
    last = body.word("%line", body.add(line, body.sub(width, 1)))
    behind = body.test("sge", start, body.word("%line", line))
    before = body.test("sle", body.add(start, (lanes - 1) * size), last)
    return body.both(body.test("eq", width, lanes), body.both(behind, before))


def _blend_run(
    core: Core,
    body: Body,
    place: tuple[str, str, str],
    step: int,
    load: Load,
    span: tuple[str, str],
) -> None:
    """The columns of a panel from one on as parts of whole vectors: what lies before stays, what
    lies behind the run is overwritten by those that follow.
    """
    (panel, source, column), lanes = place, core.kind.columns
    bits, vector = core.vector(lanes, f"i{8 * core.size}"), core.vector(lanes)
    start = body.at(source, body.mul(column, -step * core.kind.memory_bytes))
    before = body.new(f"sext <{lanes} x i1> {core.mask(body, lanes, column)} to {bits}")
    behind = body.new(f"xor {bits} {before}, splat (i{8 * core.size} -1)")
    with body.loop(span[0], span[1]) as k:
        value = load(core, body, lanes, body.at(start, body.word("%k", k)), lanes)
        target = body.at(panel, body.mul(k, lanes), core.kind.element)
        # As bits: a selected vector would be stored under a mask, which takes AVX2 far longer.
        new = body.new(f"bitcast {vector} {core.widen(body, lanes, value)} to {bits}")
        new = body.new(f"and {bits} {new}, {behind}")
        old = body.new(f"and {bits} {body.load(bits, target, core.size)}, {before}")
        body.store(bits, body.new(f"or {bits} {old}, {new}"), target, core.size)


def _copy_first_part(
    core: Core, body: Body, place: tuple[str, str], count: Operand, span: tuple[str, str]
) -> None:
    """The first columns of a panel as whole vectors, where the last row says that B goes on for as
    long. What lies behind them in the panel is overwritten, or belongs to no column.
    """
    (panel, source), lanes, size = place, core.kind.columns, core.kind.memory_bytes
    vector = core.vector(lanes, core.kind.memory)
    value = body.local(vector, "zeroinitializer")
    last = body.word("%k", body.sub(span[1], 1))
    missing = body.mul(body.sub(lanes, count), size)
    with body.loop(span[0], span[1]) as k:
        here = body.word("%k", k)
        row, fits = body.at(source, here), body.test("sge", body.sub(last, here), missing)
        with body.when(fits):
            value.set(body.load(vector, row, size))
        with body.when(body.negate(fits)):
            value.set(core.load_part(body, lanes, row, count, core.kind.memory))
        target = body.at(panel, body.mul(k, lanes), core.kind.element)
        wide = core.widen(body, lanes, value.get())
        body.store(core.vector(lanes), wide, target, core.size)


def spread_run(core: Core, body: Body, line: str, column: str, width: str) -> str:
    """How many columns from one on lie two elements apart, as those of a convolution of stride 2,
    of no more than a panel has.
    """
    lanes, step = core.kind.columns, 2 * core.kind.memory_bytes
    place, left = body.add(line, column), body.sub(width, column)
    if core.hardware.masked:
        return _spread_lanes(core, body, (place, left), lanes, step)
    most, first = body.least(left, lanes), body.word("%line", place)
    length = body.local("i64", 1)

    def goes_on() -> str:
        here = length.get()
        last = body.least(here, body.sub(most, 1))
        apart = body.sub(body.word("%line", body.add(place, last)), first)
        regular = body.test("eq", apart, body.mul(here, step))
        return body.both(body.test("slt", here, most), regular)

    with body.during(goes_on):
        length.set(body.add(length.get(), 1))
    return length.get()


def _spread_lanes(core: Core, body: Body, span: tuple[str, str], lanes: int, step: int) -> str:
    """The same for all columns at once."""
    kind, bits, table = f"<{lanes} x i64>", f"i{lanes}", body.at("%line", span[0], "i64")
    there = core.mask(body, lanes, span[1])
    found = core.load_masked(body, lanes, table, there, "i64")
    first = core.splat(body, lanes, body.load("i64", table, 8), "i64")
    apart = body.new(f"sub {kind} {found}, {first}")
    wanted = ", ".join(f"i64 {lane * step}" for lane in range(lanes))
    regular = body.new(f"icmp eq {kind} {apart}, <{wanted}>")
    regular = body.new(f"and <{lanes} x i1> {regular}, {there}")
    others = body.new(f"xor {bits} {body.new(f'bitcast <{lanes} x i1> {regular} to {bits}')}, -1")
    core.declared.add(f"declare {bits} @llvm.cttz.{bits}({bits}, i1)")
    length = body.new(f"call {bits} @llvm.cttz.{bits}({bits} {others}, i1 false)")
    return length if lanes == 64 else body.new(f"zext {bits} {length} to i64")


def load_near(core: Core, body: Body, lanes: int, place: str, count: Operand) -> str:
    """`count` elements from a place on, in memory format."""
    return core.load_part(body, lanes, place, count, core.kind.memory)


def load_spread(core: Core, body: Body, lanes: int, place: str, count: Operand) -> str:
    """`count` elements, every second one from a place on, in memory format."""
    memory = core.kind.memory
    read = body.sub(body.mul(count, 2), 1)  # no element past the last one is touched
    both = core.load_part(body, 2 * lanes, place, read, memory)
    order = ", ".join(f"i32 {lane}" for lane in range(0, 2 * lanes, 2))
    kind = f"<{2 * lanes} x {memory}>"
    return body.new(f"shufflevector {kind} {both}, {kind} poison, <{lanes} x i32> <{order}>")


def load_one(core: Core, body: Body, place: str) -> str:
    return body.load(core.vector(1, core.kind.memory), place, core.kind.memory_bytes)


def load_near_whole(core: Core, body: Body, lanes: int, place: str, _: Operand) -> str:
    """All lanes, from a place on."""
    return body.load(core.vector(lanes, core.kind.memory), place, core.kind.memory_bytes)


def load_spread_whole(core: Core, body: Body, lanes: int, place: str, _: Operand) -> str:
    """All lanes, every second element from a place on: the second load ends with the last one."""
    memory, kind = core.kind.memory, core.vector(lanes, core.kind.memory)
    later = body.at(place, lanes - 1, memory)
    low, high = (body.load(kind, at, core.kind.memory_bytes) for at in (place, later))
    even = (e if e < lanes else e + 1 for e in range(0, 2 * lanes, 2))
    order = ", ".join(f"i32 {lane}" for lane in even)
    return body.new(f"shufflevector {kind} {low}, {kind} {high}, <{lanes} x i32> <{order}>")
