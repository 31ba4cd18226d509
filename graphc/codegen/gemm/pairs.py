"""Packing of bf16 for CPUs that multiply pairs: an element of a panel is two neighbours in k.

    B   k0  [ a b c d ]          panel   [ ae bf cg dh ]      tiles: c += a0 * b0 + a1 * b1
        k1  [ e f g h ]

Bits are moved, never converted. A last row without a partner is paired with zeros. The multiply-add
takes subnormal numbers as zero, products are exact in f32, and the two products of a pair are added
to the sum one after the other, rounding each time.
"""

from graphc.codegen.gemm.emit import Body, Operand
from graphc.codegen.gemm.packing import pack_a, pack_b, transpose, transposed
from graphc.codegen.gemm.vector import Core

MEMORY = "i16"


def emit_transpose_pairs(core: Core) -> None:
    """`transpose(to, to_step, from, offsets, limit, part)`: columns of pairs to rows of a panel.

    Source vector u lies at from + offsets[min(u, limit-1)] and has `part` valid halves.
    """
    halves = 2 * core.kind.lanes

    def read(body: Body, place: str) -> str:
        value = core.load_part(body, halves, place, "%part", MEMORY)
        return _as_sums(core, body, value, f"<{halves} x i16>")

    transpose(core, read)


def _as_sums(core: Core, body: Body, value: str, kind: str) -> str:
    """Pairs as a vector of the register type, bit by bit."""
    return body.new(f"bitcast {kind} {value} to {core.vector(core.kind.lanes)}")


def _couple(body: Body, lanes: int, even: str, odd: str) -> str:
    """Two vectors of halves as one vector of pairs."""
    halves, pairs = f"<{lanes} x i16>", f"<{lanes} x i32>"
    low = body.new(f"zext {halves} {even} to {pairs}")
    high = body.new(f"shl {pairs} {body.new(f'zext {halves} {odd} to {pairs}')}, splat (i32 16)")
    return body.new(f"or {pairs} {low}, {high}")


def _load_pair(core: Core, body: Body, lanes: int, source: str, k: Operand, part: Operand) -> str:
    """Rows k and k + 1 of a strip of columns as pairs; zeros for a row past the last one."""
    last = body.sub("%count", 1)
    halves = []
    for step in (0, 1):
        row = body.add(k, step)
        place = body.at(source, body.word("%k", body.least(row, last)))
        value = core.load_part(body, lanes, place, part, MEMORY)
        exists = body.test("sle", row, last)
        halves.append(body.choose(exists, f"<{lanes} x i16>", value, "zeroinitializer"))
    return _couple(body, lanes, *halves)


def emit_pack_b_pairs(core: Core) -> str:
    """As `pack_b`, with `count` steps of k in memory."""

    def whole(body: Body, first: str, stop: str) -> str:
        return body.test("sge", body.word("%k_run", first), body.sub(stop, first))

    return pack_b(core, whole, _turn_columns, _couple_columns)


def _turn_columns(
    core: Core, body: Body, panel: str, line: str, width: str, span: tuple[str, str]
) -> None:
    """Columns that are contiguous in k: pairs lie ready, squares of them are transposed."""
    lanes, step = core.kind.lanes, core.kind.columns * core.size
    with body.loop(span[0], span[1], 2 * lanes) as k:
        part = body.least(body.sub(span[1], k), 2 * lanes)
        source = body.at("%from", body.word("%k", k))
        with body.loop(0, width, lanes) as column:
            shift = body.add(body.mul(body.div(k, 2), step), body.mul(column, core.size))
            offsets = body.at("%line", body.add(line, column), "i64")
            body.do(
                f"call void @transpose(ptr {body.at(panel, shift)}, i64 {step}, ptr {source},"
                f" ptr {offsets}, i64 {body.sub(width, column)}, i64 {part})"
            )


def _couple_columns(
    core: Core, body: Body, panel: str, line: str, width: str, span: tuple[str, str]
) -> None:
    """Columns in contiguous runs: two rows of k become one row of pairs."""
    lanes = core.kind.columns
    position = body.local("i64", 0)
    with body.during(lambda: body.test("slt", position.get(), width)):
        column = position.get()
        place = body.add(line, column)
        part = body.least(body.word("%line_run", place), body.sub(width, column))
        source = body.at("%from", body.word("%line", place))
        single = body.test("eq", part, 1)
        with body.when(single), body.loop(span[0], span[1], 2) as k:
            target = body.at(panel, body.add(body.mul(body.div(k, 2), lanes), column), "i32")
            body.store("i32", _single_pair(body, source, k), target, 4)
        with body.when(body.negate(single)), body.loop(span[0], span[1], 2) as k:
            pairs = _load_pair(core, body, lanes, source, k, part)
            target = body.at(panel, body.add(body.mul(body.div(k, 2), lanes), column), "i32")
            core.store_part(body, lanes, pairs, target, part, "i32")
        position.set(body.add(column, part))


def _single_pair(body: Body, source: str, k: Operand) -> str:
    """Rows k and k + 1 of one column as a pair."""
    last = body.sub("%count", 1)
    halves = []
    for step in (0, 1):
        row = body.add(k, step)
        place = body.at(source, body.word("%k", body.least(row, last)))
        half = body.new(f"zext i16 {body.load(MEMORY, place, 2)} to i32")
        halves.append(body.choose(body.test("sle", row, last), "i32", half, 0))
    return body.new(f"or i32 {halves[0]}, {body.new(f'shl i32 {halves[1]}, 16')}")


def emit_pack_a_pairs(core: Core) -> str:
    """As `pack_a`, with `count` steps of k in memory; an odd row ends with a zero."""
    return pack_a(core, "pack_a_pairs", _turn_rows if core.turns else None, _copy_row)


def _turn_rows(core: Core, body: Body, line: str, group: str) -> None:
    """Rows that are neighbours in memory: a square of pairs through registers."""
    lanes = core.kind.lanes
    source = body.at("%from", body.word("%line", line))
    with body.loop(0, "%count", 2 * lanes) as k:
        columns = [
            _as_sums(
                core,
                body,
                _load_pair(core, body, lanes, source, body.add(k, 2 * pair), group),
                f"<{lanes} x i32>",
            )
            for pair in range(lanes)
        ]
        for number, row in enumerate(transposed(core, body, columns)):
            shift = body.mul(body.add(line, number), "%to_step")
            target = body.at("%to", body.add(shift, body.mul(k, core.kind.memory_bytes)))
            body.store(core.vector(lanes), row, target, core.size)


def _copy_row(core: Core, body: Body, line: str) -> None:
    """One row, run by run, a vector at a time."""
    lanes = 2 * core.kind.lanes
    source = body.at("%from", body.word("%line", line))
    target = body.at("%to", body.mul(line, "%to_step"))
    position = body.local("i64", 0)
    with body.during(lambda: body.test("slt", position.get(), "%count")):
        k = position.get()
        run = body.word("%k_run", k)
        start, to = body.at(source, body.word("%k", k)), body.at(target, k, MEMORY)
        with body.loop(0, run, lanes) as step:
            part = body.sub(run, step)
            value = core.load_part(body, lanes, body.at(start, step, MEMORY), part, MEMORY)
            core.store_part(body, lanes, value, body.at(to, step, MEMORY), part, MEMORY)
        position.set(body.add(k, run))
    body.store(MEMORY, 0, body.at(target, "%count", MEMORY), 2)
