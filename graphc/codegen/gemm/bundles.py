"""Packing for CPUs that multiply bundles: an element of a panel is a few neighbours in k.

    B   k0  [ a b c d ]          panel   [ ae bf cg dh ]      tiles: c += a0 * b0 + a1 * b1
        k1  [ e f g h ]

Two bf16 are such a bundle, or four i8. Bits are moved, never converted; but A may change the signs
of its i8 (`Kind.flips`). A last bundle that lacks rows is filled with zeros. The multiply-add of
bf16 takes subnormal numbers as zero, products are exact in f32, and the two products of a pair are
added to the sum one after the other, rounding each time; that of i8 is exact.
"""

from functools import reduce

from graphc.codegen.gemm.emit import Body, Operand
from graphc.codegen.gemm.packing import (
    Load,
    load_near,
    load_spread,
    pack_a,
    pack_b,
    spread_run,
    transpose,
    transposed,
)
from graphc.codegen.gemm.vector import FLIP, Core


def emit_transpose_bundles(core: Core) -> None:
    """`transpose(to, to_step, from, offsets, limit, part)`: columns of bundles to rows of a panel.

    Source vector u lies at from + offsets[min(u, limit-1)] and has `part` valid elements.
    """
    elements = core.kind.together * core.kind.lanes

    def read(body: Body, place: str) -> str:
        value = core.load_part(body, elements, place, "%part", core.kind.memory)
        return _as_sums(core, body, value, f"<{elements} x {core.kind.memory}>")

    transpose(core, read)


def _as_sums(core: Core, body: Body, value: str, kind: str) -> str:
    """Bundles as a vector of the register type, bit by bit."""
    return body.new(f"bitcast {kind} {value} to {core.vector(core.kind.lanes)}")


def _bundle(core: Core, body: Body, places: list[str]) -> str:
    """Numbers of neighbouring rows side by side in one word."""
    memory, size, parts = core.kind.memory, core.kind.memory_bytes, []
    for number, place in enumerate(places):
        part = body.new(f"zext {memory} {body.load(memory, place, size)} to i32")
        if number:
            part = body.new(f"shl i32 {part}, {8 * size * number}")
        parts.append(part)
    return reduce(lambda made, part: body.new(f"or i32 {made}, {part}"), parts)


def _interleaved(body: Body, lanes: int, bits: int, rows: list[str]) -> str:
    """Vectors of neighbouring rows as one, element by element, in log2 rounds."""
    order = ", ".join(f"i32 {row * lanes + lane}" for lane in range(lanes) for row in (0, 1))
    while len(rows) > 1:
        kind, pairs = f"<{lanes} x i{bits}>", zip(rows[::2], rows[1::2], strict=True)
        mixed = [
            body.new(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{order}>")
            for a, b in pairs
        ]
        kind, bits = f"<{2 * lanes} x i{bits}>", 2 * bits
        rows = [body.new(f"bitcast {kind} {value} to <{lanes} x i{bits}>") for value in mixed]
    return rows[0]


def _neighbours(core: Core, body: Body, source: str, k: Operand, cut: bool = False) -> list[str]:
    """Where each row of a bundle lies; in one that is `cut` zeros are what lies behind the last."""
    size = 2 * core.kind.columns * core.kind.memory_bytes
    core.declared.add(f"@zeros = internal constant [{size} x i8] zeroinitializer")
    last, found = body.sub("%count", 1), []
    for step in range(core.kind.together):
        row = body.add(k, step)
        place = body.at(source, body.word("%k", body.least(row, last) if cut else row))
        exists = body.test("sle", row, last)
        found.append(body.choose(exists, "ptr", place, "@zeros") if cut else place)
    return found


def _load_bundles(
    core: Core, body: Body, lanes: int, places: list[str], part: Operand, load: Load
) -> str:
    """The rows of a bundle that lie at these places, of a strip of columns."""
    rows = [load(core, body, lanes, place, part) for place in places]
    return _interleaved(body, lanes, 8 * core.kind.memory_bytes, rows)


def emit_pack_b_bundles(core: Core) -> str:
    """As `pack_b`, with `count` steps of k in memory."""

    def whole(body: Body, first: str, stop: str) -> str:
        return body.test("sge", body.word("%k_run", first), body.sub(stop, first))

    return pack_b(core, whole, _turn_columns, _bundle_columns)


def _turn_columns(
    core: Core, body: Body, panel: str, line: str, width: str, span: tuple[str, str]
) -> None:
    """Columns that are contiguous in k: bundles lie ready, squares of them are transposed."""
    lanes, step, together = core.kind.lanes, core.kind.columns * core.size, core.kind.together
    with body.loop(span[0], span[1], together * lanes) as k:
        part = body.least(body.sub(span[1], k), together * lanes)
        source = body.at("%from", body.word("%k", k))
        with body.loop(0, width, lanes) as column:
            shift = body.add(body.mul(body.div(k, together), step), body.mul(column, core.size))
            offsets = body.at("%line", body.add(line, column), "i64")
            body.do(
                f"call void @transpose(ptr {body.at(panel, shift)}, i64 {step}, ptr {source},"
                f" ptr {offsets}, i64 {body.sub(width, column)}, i64 {part})"
            )


def _bundle_columns(
    core: Core, body: Body, panel: str, line: str, width: str, span: tuple[str, str]
) -> None:
    """Columns in runs, contiguous or every second element: rows of k become bundles."""
    lanes, together = core.kind.columns, core.kind.together
    position = body.local("i64", 0)
    with body.during(lambda: body.test("slt", position.get(), width)):
        column = position.get()
        place = body.add(line, column)
        part = body.least(body.word("%line_run", place), body.sub(width, column))
        source = body.at("%from", body.word("%line", place))
        spread = spread_run(core, body, line, column, width)
        lone = body.test("eq", part, 1)
        apart = body.both(lone, body.test("sgt", spread, 1))
        single = body.both(lone, body.negate(apart))
        strips: list[tuple[str, Operand, Load | None]] = [
            (single, 1, None),
            (body.negate(lone), part, load_near),
            (apart, spread, load_spread),
        ]
        whole = body.mul(body.div(span[1], together), together)
        for condition, count, load in strips:
            for ends, cut in (((span[0], whole), False), ((whole, span[1]), True)):
                with body.when(condition), body.loop(*ends, together) as k:
                    places = _neighbours(core, body, source, k, cut)
                    here = body.add(body.mul(body.div(k, together), lanes), column)
                    target = body.at(panel, here, "i32")
                    if load is None:
                        body.store("i32", _bundle(core, body, places), target, 4)
                    else:
                        bundles = _load_bundles(core, body, lanes, places, count, load)
                        core.store_part(body, lanes, bundles, target, count, "i32")
        position.set(body.add(column, body.choose(apart, "i64", spread, part)))


def emit_pack_a_bundles(core: Core) -> str:
    """As `pack_a`, with `count` steps of k in memory; the last bundle ends with zeros."""
    return pack_a(core, "pack_a_bundles", _turn_rows if core.turns else None, _copy_row)


def _turn_rows(core: Core, body: Body, line: str, group: str) -> None:
    """Rows that are neighbours in memory: a square of bundles through registers."""
    lanes, together = core.kind.lanes, core.kind.together
    wide = f"<{lanes} x i32>"
    source = body.at("%from", body.word("%line", line))
    with body.loop(0, "%count", together * lanes) as k:
        columns = []
        for bundle in range(lanes):
            start = body.add(k, together * bundle)
            places = _neighbours(core, body, source, start, cut=True)
            value = _load_bundles(core, body, lanes, places, group, load_near)
            if core.kind.flips:
                value = body.new(f"xor {wide} {value}, splat (i32 {FLIP})")
            columns.append(_as_sums(core, body, value, wide))
        for number, row in enumerate(transposed(core, body, columns)):
            shift = body.mul(body.add(line, number), "%to_step")
            target = body.at("%to", body.add(shift, body.mul(k, core.kind.memory_bytes)))
            body.store(core.vector(lanes), row, target, core.size)


def _copy_row(core: Core, body: Body, line: str) -> None:
    """One row, run by run, a vector at a time."""
    memory, lanes = core.kind.memory, core.kind.together * core.kind.lanes
    source = body.at("%from", body.word("%line", line))
    target = body.at("%to", body.mul(line, "%to_step"))
    position = body.local("i64", 0)
    with body.during(lambda: body.test("slt", position.get(), "%count")):
        k = position.get()
        run = body.word("%k_run", k)
        start, to = body.at(source, body.word("%k", k)), body.at(target, k, memory)
        with body.loop(0, run, lanes) as step:
            part = body.sub(run, step)
            value = core.load_part(body, lanes, body.at(start, step, memory), part, memory)
            if core.kind.flips:
                value = body.new(f"xor <{lanes} x {memory}> {value}, splat ({memory} -128)")
            core.store_part(body, lanes, value, body.at(to, step, memory), part, memory)
        position.set(body.add(k, run))
    end = body.at(target, "%count", memory)
    for spare in range(core.kind.together - 1):
        body.store(memory, 0, body.at(end, spare, memory), core.kind.memory_bytes)
