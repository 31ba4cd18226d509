"""Register tiles of the contraction core, and the two matrix-vector kernels: how they are written.

Their sizes are chosen in `blocking` and, for a type and a CPU, in `tile_choice`.

A tile keeps `rows` x `vectors` accumulators in registers while it walks k:

        B  k -> |  b0 b1  |            one load per vector of the row
       A |      +---------+
    row  | a_i  | c_i0 c_i1            one broadcast per row, one fused multiply-add per accumulator
         v      +---------+

Rows of A are addressed through a table of byte offsets plus one running k offset, so the same
code reads a packed block, a plain or transposed matrix, or any other separable layout in place.
Windows of images have no running offset: tiles of their own read a table of k offsets.
Where the CPU multiplies pairs of bf16, "a_i" and each lane of a row of B are two neighbours in k;
four where it multiplies u8 with i8. If A had to change its signs for that, one more row of sums
counts what is too much.
Every variant adds the products of one element in order of k, so a result does not depend on how
the rows were cut into tiles or threads; tiles of streams (`Flag.STREAM`), which run whole
products, do so in chunks, whatever their height.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from graphc.codegen.gemm.emit import Body, Local, Operand
from graphc.codegen.gemm.vector import FLIP, Core

TILE_ARGUMENTS = [
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
    ("ptr", "ahead"),
    ("i64", "ahead_step"),
]


STREAM_STEPS = 4  # of k that the tile of a stream has written out
STREAM_CHUNK = 256  # steps of k that it adds up before it adds them to the others


def tile_name(
    rows: int, vectors: int, copies: bool = False, windows: bool = False, half: bool = False
) -> str:
    """Name of a register tile."""
    ways = {"_copy": copies, "_windows": windows, "_half": half}
    return f"tile_{rows}x{vectors}{''.join(way for way, is_so in ways.items() if is_so)}"


def tile_parts(heights: list[int], rows: int) -> tuple[int, ...]:
    """The tiles that make up an even number of rows, out of those that exist."""
    first = max(height for height in heights if height <= rows)
    return (first, *tile_parts(heights, rows - first)) if first < rows else (first,)


class Columns(NamedTuple):
    """Columns of a tile that one type of vectors holds: the first, how many, a sum for each row,
    and which of them count."""

    first: int
    lanes: int
    sums: list[Local]
    mask: str


def emit_tile(
    core: Core,
    rows: int,
    vectors: int,
    copies: bool = False,
    windows: bool = False,
    half: bool = False,
) -> str:
    """`rows` rows times `columns` <= `vectors` vectors of C, from `count` steps of k.

    `add` not zero: add to what C holds; where sums are ordered, go on from it. Columns past the
    last one are read from B only if B is packed or reads are masked. `copies`: what is read goes to
    a panel, too, and so many bytes are fetched ahead, wherever lines begin. `windows`: steps of k
    of A lie where a table says. `half`: of the last vector only so much counts.
    """
    element, size = core.kind.element, core.size
    arguments = [*TILE_ARGUMENTS, ("ptr", "panel")] if copies else TILE_ARGUMENTS
    body = Body(tile_name(rows, vectors, copies, windows, half), arguments)
    parts = [*_columns(core, body, rows, vectors, half)]
    starts = [body.at("%a", body.word("%row_a", row)) for row in range(rows)]
    row_b = body.local("ptr", "%b")
    offset = body.local("i64", body.word("%k_a", 0) if windows else 0)
    excess = None
    if core.kind.flips:
        excess = body.local(core.vector(parts[0].lanes), "zeroinitializer")
    ahead = body.local("ptr", "%ahead")
    panel = body.local("ptr", "%panel" if copies else "null")
    with body.loop(0, "%count") as k:
        soon = ahead.get()
        core.prefetch(body, soon, False)
        core.prefetch(body, body.at(soon, 64), False)
        ahead.advance(body.at(soon, "%ahead_step"))
        source, here = row_b.get(), offset.get()
        values = [_row_of(core, body, source, part) for part in parts]
        if copies:
            lanes = parts[0].lanes
            core.prefetch(body, body.at(soon, lanes * size - 1), False)
            body.store(core.vector(lanes), values[0], panel.get(), size)
            panel.advance(body.at(panel.get(), lanes * size))
        for row, start in enumerate(starts):
            scalar = body.load(element, body.at(start, here), size)
            for part, value in zip(parts, values, strict=True):
                spread, total = core.splat(body, part.lanes, scalar), part.sums[row]
                total.set(core.accumulate(body, part.lanes, spread, value, total.get()))
        if excess is not None:
            flip = core.splat(body, parts[0].lanes, FLIP)
            excess.set(core.accumulate(body, parts[0].lanes, flip, values[0], excess.get()))
        row_b.advance(body.at(source, "%step_b"))
        if windows:
            step = body.add(k, 1)
            step = body.mul(step, core.kind.together) if core.kind.bundles else step
            offset.advance(body.word("%k_a", step))
        else:
            offset.advance(body.add(here, "%step_a"))
    for part in parts:
        _finish_tile(core, body, part, excess)
    body.do("ret void")
    return core.finish(body)


def _columns(core: Core, body: Body, rows: int, vectors: int, half: bool) -> Iterator[Columns]:
    """The columns of a tile: all together, or half a vector behind the others."""
    kind, first = core.kind, 0
    widths = ((vectors - 1) * kind.lanes, kind.lanes // 2) if half else (vectors * kind.lanes,)
    for lanes in filter(None, widths):
        sums = [body.local(core.vector(lanes), "zeroinitializer") for _ in range(rows)]
        left = body.sub("%columns", first) if first else "%columns"
        mask = core.mask(body, lanes, left) if core.hardware.masked else ""
        if core.hardware.ordered:
            _continue_sums(core, body, lanes, sums, mask)
        yield Columns(first, lanes, sums, mask)
        first += lanes


def _row_of(core: Core, body: Body, source: str, part: Columns) -> str:
    """Columns of a row of B."""
    place = body.at(source, part.first * core.size) if part.first else source
    if core.hardware.masked:
        return core.load_masked(body, part.lanes, place, part.mask, core.kind.element)
    return body.load(core.vector(part.lanes), place, core.size)


def emit_stream_tile(core: Core, rows: int) -> str:
    """`rows` rows of C times a panel: what a tile does, at the rate at which memory is read.

    Panels are one stream that is read once, for these rows alone. Nothing is fetched ahead:
    hardware fetches more of a stream than may be asked for. Steps that are written out add to sums
    of their own, which neither wait for one another nor grow long: after `STREAM_CHUNK` steps they
    are added up.
    """
    lanes, flips = core.kind.columns, core.kind.flips
    body = Body(f"stream_{rows}", TILE_ARGUMENTS)
    mask = core.mask(body, lanes, "%columns") if core.hardware.masked else ""

    def zeros(count: int) -> list[Local]:
        return [body.local(core.vector(lanes), "zeroinitializer") for _ in range(count)]

    totals, excess = zeros(rows), zeros(1)[0] if flips else None
    steps = min(STREAM_STEPS, core.kind.rows // rows)
    sums = [totals] * steps
    if core.hardware.ordered:
        _continue_sums(core, body, lanes, totals, mask)
    else:
        sums = [zeros(rows) for _ in range(steps)]
    starts = [body.at("%a", body.word("%row_a", row)) for row in range(rows)]
    panel = body.local("ptr", "%b")
    with body.loop(0, "%count", STREAM_CHUNK) as first:
        stop = body.least("%count", body.add(first, STREAM_CHUNK))
        main = body.sub(stop, body.rem(body.sub(stop, first), steps))
        _add_steps(core, body, (first, main), starts, panel, sums, excess)
        _add_steps(core, body, (main, stop), starts, panel, sums[:1], excess)
        if not core.hardware.ordered:
            for total, *partial in zip(totals, *sums, strict=True):
                for one in partial:
                    total.set(core.plus(body, lanes, total.get(), one.get()))
                    one.set("zeroinitializer")
    _finish_tile(core, body, Columns(0, lanes, totals, mask), excess)
    body.do("ret void")
    return core.finish(body)


def _add_steps(
    core: Core,
    body: Body,
    span: tuple[str, str],
    starts: list[str],
    panel: Local,
    sums: list[list[Local]],
    excess: Local | None,
) -> None:
    """Rows that start at `starts` times a panel, in turns to each of the sums."""
    lanes, size = core.kind.columns, core.size
    with body.loop(*span, len(sums)) as k:
        source, offset = panel.get(), body.mul(k, "%step_a")
        for step, totals in enumerate(sums):
            place = body.at(source, step * lanes * size)
            values = body.load(core.vector(lanes), place, size)
            here = body.add(offset, body.mul("%step_a", step))
            for start, total in zip(starts, totals, strict=True):
                scalar = body.load(core.kind.element, body.at(start, here), size)
                spread = core.splat(body, lanes, scalar)
                total.set(core.accumulate(body, lanes, spread, values, total.get()))
            if excess is not None:
                flip = core.splat(body, lanes, FLIP)
                excess.set(core.accumulate(body, lanes, flip, values, excess.get()))
        panel.advance(body.at(source, len(sums) * lanes * size))


def _finish_tile(core: Core, body: Body, part: Columns, excess: Local | None) -> None:
    """Store the sums of a tile, less what signs that were changed add to them."""
    _, lanes, sums, mask = part
    vector = core.vector(lanes)
    targets = [body.at("%c", body.word("%row_c", row)) for row in range(len(sums))]
    if part.first:
        targets = [body.at(target, part.first, core.kind.element) for target in targets]
    results = [total.get() for total in sums]
    if excess is not None:
        results = [body.new(f"sub {vector} {value}, {excess.get()}") for value in results]
    add: Operand = 0 if core.hardware.ordered else "%add"
    if core.hardware.masked:
        _finish_masked(core, body, lanes, targets, results, mask, add)
    else:
        _finish_plain(core, body, lanes, targets, results, add)


def _continue_sums(core: Core, body: Body, lanes: int, sums: list[Local], mask: str) -> None:
    """Begin with what C holds, if asked."""
    element, more = core.kind.element, body.test("ne", "%add", 0)
    full = body.test("sge", "%columns", lanes)

    def begin(when: str, load: Callable[[str], str]) -> None:
        with body.when(body.both(more, when)):
            for row, total in enumerate(sums):
                total.set(load(body.at("%c", body.word("%row_c", row))))

    if core.hardware.masked:
        begin("true", lambda target: core.load_masked(body, lanes, target, mask, element))
        return
    begin(full, lambda target: body.load(core.vector(lanes), target, core.size))
    begin(body.negate(full), lambda t: core.load_part(body, lanes, t, "%columns", element))


def _finish_masked(
    core: Core,
    body: Body,
    lanes: int,
    targets: list[str],
    results: list[str],
    mask: str,
    add: Operand,
) -> None:
    """Store the sums under a mask, after adding what is there if asked."""
    element = core.kind.element
    sums = [body.local(core.vector(lanes), value) for value in results]
    with body.when(body.test("ne", add, 0)):
        for target, total in zip(targets, sums, strict=True):
            old = core.load_masked(body, lanes, target, mask, element)
            total.set(core.plus(body, lanes, old, total.get()))
    for target, total in zip(targets, sums, strict=True):
        core.store_masked(body, lanes, total.get(), target, mask, element)


def _finish_plain(
    core: Core, body: Body, lanes: int, targets: list[str], results: list[str], add: Operand
) -> None:
    """Store full tiles with plain stores and partial ones through the out-of-line helpers."""
    vector, element, size = core.vector(lanes), core.kind.element, core.size
    sums = [body.local(vector, value) for value in results]
    full = body.test("sge", "%columns", lanes)
    with body.when(body.both(full, body.test("ne", add, 0))):
        for target, total in zip(targets, sums, strict=True):
            total.set(core.plus(body, lanes, body.load(vector, target, size), total.get()))
    with body.when(full):
        for target, total in zip(targets, sums, strict=True):
            body.store(vector, total.get(), target, size)
    with body.when(body.test("slt", "%columns", lanes)):
        for target, total in zip(targets, sums, strict=True):
            with body.when(body.test("ne", add, 0)):
                old = core.load_part(body, lanes, target, "%columns", element)
                total.set(core.plus(body, lanes, old, total.get()))
            core.store_part(body, lanes, total.get(), target, "%columns", element)


DOT_ARGUMENTS = [
    ("ptr", "x"),
    ("ptr", "b"),
    ("ptr", "column_b"),
    ("i64", "first"),
    ("i64", "stop"),
    ("i64", "apart"),
    ("i64", "count"),
    ("ptr", "y"),
]


def emit_dots(core: Core, columns: int, unroll: int) -> str:
    """`y[c] = sum_k x[k] * B[k, c]` for c in first..stop and the columns `apart`, 2 `apart` ...
    behind each of them, contiguous in k.

    Each column goes on where the one before it ended: few streams, which the prefetcher likes.
    Sums in `unroll` vector accumulators per column and a final tree: short error chains.
    """
    body = Body(f"dots_{columns}", DOT_ARGUMENTS)
    lanes, element = core.kind.lanes, core.kind.element
    main = body.mul(body.div("%count", lanes * unroll), lanes * unroll)
    with body.loop("%first", "%stop") as first:
        places = [body.add(first, body.mul("%apart", column)) for column in range(columns)]
        starts = [body.at("%b", body.word("%column_b", place)) for place in places]
        results = _dot_products(core, body, starts, main, unroll)
        totals = core.totals(body, results)
        for lane, place in enumerate(places):
            total = body.new(f"extractelement {core.vector(columns)} {totals}, i64 {lane}")
            body.store(element, total, body.at("%y", place, element), core.size)
    body.do("ret void")
    return core.finish(body)


def _dot_products(core: Core, body: Body, starts: list[str], main: str, unroll: int) -> list[str]:
    """One vector of partial sums per column."""
    lanes, element, memory = core.kind.lanes, core.kind.element, core.kind.memory
    vector = core.vector(lanes)
    sums = [[body.local(vector, "zeroinitializer") for _ in range(unroll)] for _ in starts]
    with body.loop(0, main, lanes * unroll) as k:
        for part in range(unroll):
            here = body.add(k, part * lanes)
            x = body.load(vector, body.at("%x", here, element), core.size)
            for start, totals in zip(starts, sums):
                place = body.at(start, here, memory)
                raw = body.load(core.vector(lanes, memory), place, core.kind.memory_bytes)
                value = core.widen(body, lanes, raw)
                totals[part].set(core.multiply_add(body, lanes, x, value, totals[part].get()))
    with body.loop(main, "%count", lanes) as k:
        rest = body.sub("%count", k)
        x = core.load_part(body, lanes, body.at("%x", k, element), rest, element)
        for start, totals in zip(starts, sums):
            raw = core.load_part(body, lanes, body.at(start, k, memory), rest, memory)
            value = core.widen(body, lanes, raw)
            totals[0].set(core.multiply_add(body, lanes, x, value, totals[0].get()))
    results = []
    for totals in sums:
        first, *others = (total.get() for total in totals)
        for other in others:
            first = core.plus(body, lanes, first, other)
        results.append(first)
    return results


DOT_TILE_ARGUMENTS = [
    ("ptr", "x"),
    ("ptr", "row_a"),
    ("ptr", "b"),
    ("ptr", "column_b"),
    ("i64", "count"),
    ("ptr", "y"),
    ("ptr", "row_c"),
]


def emit_dot_tile(core: Core, rows: int) -> str:
    """`y[r, c] = sum_k x[r, k] * B[k, c]` for a few rows and columns, contiguous in k.

    One vector accumulator per sum, whatever the height: a sum does not depend on its neighbours.
    """
    columns, lanes = core.kind.dots, core.kind.lanes
    element, memory = core.kind.element, core.kind.memory
    body = Body(f"dot_tile_{rows}", DOT_TILE_ARGUMENTS)
    left = [body.at("%x", body.word("%row_a", row)) for row in range(rows)]
    right = [body.at("%b", body.word("%column_b", column)) for column in range(columns)]
    kind = core.vector(lanes)
    sums = [[body.local(kind, "zeroinitializer") for _ in right] for _ in left]
    main = body.mul(body.div("%count", lanes), lanes)

    def step(k: str, load: Callable[[str, str, int], str]) -> None:
        values = [
            core.widen(body, lanes, load(body.at(start, k, memory), memory, core.kind.memory_bytes))
            for start in right
        ]
        for start, totals in zip(left, sums, strict=True):
            x = load(body.at(start, k, element), element, core.size)
            for value, total in zip(values, totals, strict=True):
                total.set(core.multiply_add(body, lanes, x, value, total.get()))

    with body.loop(0, main, lanes) as k:
        step(k, lambda place, of, align: body.load(core.vector(lanes, of), place, align))
    with body.when(body.test("slt", main, "%count")):
        rest = body.sub("%count", main)
        step(main, lambda place, of, align: core.load_part(body, lanes, place, rest, of))
    for row, totals in enumerate(sums):
        made = core.totals(body, [total.get() for total in totals])
        body.store(core.vector(columns), made, body.at("%y", body.word("%row_c", row)), core.size)
    body.do("ret void")
    return core.finish(body)


ROWS_ARGUMENTS = [
    ("ptr", "x"),
    ("ptr", "b"),
    ("i64", "step"),
    ("i64", "apart"),
    ("ptr", "y"),
    ("i64", "columns"),
    ("i64", "add"),
]


def emit_rows(core: Core, rows: int) -> str:
    """`y[j] (+)= sum_r x[r apart] * B[r apart, j]` over `rows` rows of B that are contiguous in j.

    Each row is one forward stream, which is what the prefetcher likes.
    """
    lanes, element, size = core.kind.columns, core.kind.element, core.size
    vector, memory = core.vector(lanes), core.kind.memory
    body = Body(f"rows_{rows}", ROWS_ARGUMENTS)
    factors, starts = [], []
    for row in range(rows):
        place = body.mul("%apart", row)
        scalar = body.load(element, body.at("%x", place, element), size)
        factors.append(core.splat(body, lanes, scalar))
        starts.append(body.at("%b", body.mul("%step", place)))
    main = body.mul(body.div("%columns", lanes), lanes)
    fresh = body.test("eq", "%add", 0)
    with body.loop(0, main, lanes) as j:
        place = body.at("%y", j, element)
        old = body.load(vector, place, size)
        total = body.choose(fresh, vector, "zeroinitializer", old)
        for factor, start in zip(factors, starts, strict=True):
            raw = body.load(
                core.vector(lanes, memory), body.at(start, j, memory), core.kind.memory_bytes
            )
            total = core.multiply_add(body, lanes, factor, core.widen(body, lanes, raw), total)
        body.store(vector, total, place, size)
    with body.when(body.test("slt", main, "%columns")):
        rest = body.sub("%columns", main)
        place = body.at("%y", main, element)
        old = core.load_part(body, lanes, place, rest, element)
        total = body.choose(fresh, vector, "zeroinitializer", old)
        for factor, start in zip(factors, starts, strict=True):
            raw = core.load_part(body, lanes, body.at(start, main, memory), rest, memory)
            total = core.multiply_add(body, lanes, factor, core.widen(body, lanes, raw), total)
        core.store_part(body, lanes, total, place, rest, element)
    body.do("ret void")
    return core.finish(body)
