"""What attention does in registers: PTX and LLVM IR behind tuples, from sm_80 on.

A tuple holds what a lane has of a tile of scores or of results.  `shape` says which part that is,
`lanes` how many lanes share a row:

    64 n of 16 rows its own two, g = lane / 4 and g + 8, in fragments of 16 x 8 of tensor cores
         (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
         element e in row g + 8 * (e % 4 / 2), column e / 4 * 8 + 2 * (lane % 4) + e % 2;
         and the same of the n - 1 squares of 16 rows below it
    n    scores of n rows below each other, column by column; its columns are `lanes` apart
    -n   results of n rows, row by row; its columns in runs of four, 4 * `lanes` apart

What the functions compute is said once more, in plain Python for the simulator, in
`plain`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.codegen.gpu.attention import plain
from graphc.codegen.gpu.attention.plain import column_of, row_of, rows_apart
from graphc.codegen.gpu.contraction.device import cgutils, data_of, device, ir, literal, types

Device = Callable[..., Any]
INDEX, REAL = types.int64, types.float32


def word(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def long(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def unpacked(builder: Any, value: Any) -> list[Any]:
    found: list[Any] = cgutils.unpack_tuple(builder, value)
    return found


def assembled(builder: Any, text: str, kind: Any, operands: list[Any], letters: str) -> Any:
    """The result of an instruction that does nothing else."""
    signature = ir.FunctionType(kind, [x.type for x in operands])
    return builder.call(ir.InlineAsm(signature, text, letters), operands)


def larger(builder: Any, x: Any, y: Any) -> Any:
    """The larger of two numbers, or the one that is no NaN."""
    return assembled(builder, "max.f32 $0, $1, $2;", x.type, [x, y], "=f,f,f")


def exchanged(builder: Any, x: Any, step: int) -> Any:
    """x of the lane whose number differs by `step`."""
    text = f"shfl.sync.bfly.b32 $0, $1, {step}, 0x1f, 0xffffffff;"
    kind = ir.FunctionType(x.type, [x.type])
    return builder.call(ir.InlineAsm(kind, text, "=f,f", side_effect=True), [x])


# ------------------------------------------------------------------------------------ scores


@device(plain.times)
def times(context: Any, scores: Any, factor: Any) -> Any:
    """Every score by a factor."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = [builder.fmul(x, args[1]) for x in unpacked(builder, args[0])]
        return cgutils.pack_array(builder, made)

    return scores(scores, REAL), emit


@device(plain.up_to)
def up_to(
    context: Any, scores: Any, last: Any, further: Any, hidden: Any, shape: Any, lanes: Any
) -> Any:
    """Scores of columns, counted from the lane's first one, up to `last` and `further` for each
    row below its first; and what hides those beyond."""
    if not literal(further, shape, lanes):
        return None
    kind, near, more = (v.literal_value for v in (shape, lanes, further))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, made = builder, []
        end, found = b.trunc(args[1], ir.IntType(32)), unpacked(builder, args[0])
        for e, x in enumerate(found):
            row = rows_apart(kind) * row_of(e, len(found), kind)
            column = column_of(e, len(found), kind, near)
            seen = b.icmp_signed("<=", word(column - more * row), end)
            made.append(b.select(seen, x, args[3]))
        return cgutils.pack_array(b, made)

    return scores(scores, INDEX, further, REAL, shape, lanes), emit


def masking(combine: Device) -> Device:
    """The typing function of a change of scores by elements of a mask."""

    def typed(
        context: Any,
        scores: Any,
        pointer: Any,
        start: Any,
        rows: Any,
        down: Any,
        columns: Any,
        step: Any,
        hidden: Any,
        shape: Any,
        lanes: Any,
    ) -> Any:
        if not literal(shape, lanes):
            return None
        kind, near = shape.literal_value, lanes.literal_value

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            b, made, found = builder, [], unpacked(builder, args[0])

            def nearest(place: int, last: Any) -> Any:
                return b.select(b.icmp_signed("<", long(place), last), long(place), last)

            for e, x in enumerate(found):
                row = rows_apart(kind) * row_of(e, len(found), kind)
                at = b.add(args[2], b.mul(nearest(row, args[3]), args[4]))
                column = nearest(column_of(e, len(found), kind, near), args[5])
                at = b.add(at, b.mul(column, args[6]))
                made.append(combine(b, x, b.load(b.gep(args[1], [at])), args[7]))
            return cgutils.pack_array(b, made)

        given = (scores, pointer, *[INDEX] * 5, REAL, shape, lanes)
        return scores(*given), emit

    return typed


def kept_or_hidden(builder: Any, score: Any, seen: Any, hidden: Any) -> Any:
    sees = builder.icmp_unsigned("!=", seen, ir.Constant(seen.type, 0))
    return builder.select(sees, score, hidden)


def added_f32(builder: Any, score: Any, value: Any, _: Any) -> Any:
    return builder.fadd(score, value)


def added_f16(builder: Any, score: Any, bits: Any, _: Any) -> Any:
    half = builder.bitcast(bits, ir.HalfType())
    return builder.fadd(score, builder.fpext(half, ir.FloatType()))


def added_bf16(builder: Any, score: Any, bits: Any, _: Any) -> Any:
    high = builder.shl(builder.zext(bits, ir.IntType(32)), word(16))
    return builder.fadd(score, builder.bitcast(high, ir.FloatType()))


# The mask's element of the lane's first row and column is at `start`; further rows and columns are
# `down` and `step` apart.  Beyond so many `rows` and `columns` below and beside it, it is the last
# one again: nobody looks at those scores.
mask_bool = device(plain.mask_bool)(masking(kept_or_hidden))
mask_f32 = device(plain.mask_f32)(masking(added_f32))
mask_f16 = device(plain.absent)(masking(added_f16))
mask_bf16 = device(plain.absent)(masking(added_bf16))


# ------------------------------------------------------------------------------------ the softmax


@device(plain.row_maxima)
def row_maxima(context: Any, scores: Any, tops: Any, factor: Any, shape: Any, lanes: Any) -> Any:
    """The largest score of each of the lane's rows, over the lanes that share it, by a factor; or
    what was the largest so far."""
    if not literal(shape, lanes):
        return None
    kind, near = shape.literal_value, lanes.literal_value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, given, known = builder, unpacked(builder, args[0]), unpacked(builder, args[1])
        found: list[Any] = [None for _ in known]
        for e, x in enumerate(given):
            row = row_of(e, len(given), kind)
            found[row] = x if found[row] is None else larger(b, found[row], x)
        step = 1
        while step < near:
            found = [larger(b, x, exchanged(b, x, step)) for x in found]
            step *= 2
        if not isinstance(factor, types.NoneType):
            found = [b.fmul(x, args[2]) for x in found]
        pairs = zip(found, known, strict=True)
        return cgutils.pack_array(b, [larger(b, x, top) for x, top in pairs])

    return tops(scores, tops, factor, shape, lanes), emit


@device(plain.row_sums)
def row_sums(context: Any, sums: Any, lanes: Any) -> Any:
    """Sums of lanes added over the lanes that share a row."""
    if not literal(lanes):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found, step = unpacked(builder, args[0]), 1
        while step < lanes.literal_value:
            found = [builder.fadd(x, exchanged(builder, x, step)) for x in found]
            step *= 2
        return cgutils.pack_array(builder, found)

    return sums(sums, lanes), emit


@device(plain.or_zero)
def or_zero(context: Any, tops: Any) -> Any:
    """Tops to subtract: 0 for those that are -inf, from which nothing can be subtracted."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, zero = (ir.Constant(ir.FloatType(), x) for x in (float("-inf"), 0.0))
        found = unpacked(builder, args[0])
        made = [builder.select(builder.fcmp_ordered("==", x, low), zero, x) for x in found]
        return cgutils.pack_array(builder, made)

    return tops(tops), emit


def power_of(builder: Any, x: Any) -> Any:
    return assembled(builder, "ex2.approx.ftz.f32 $0, $1;", x.type, [x], "=f,f")


@device(plain.powers)
def powers(context: Any, scores: Any, tops: Any, factor: Any, shape: Any) -> Any:
    """2 ** ((score - top of its row) * factor)."""
    if not literal(shape):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        top, found, made = unpacked(builder, args[1]), unpacked(builder, args[0]), []
        for e, x in enumerate(found):
            x = builder.fsub(x, top[row_of(e, len(found), shape.literal_value)])
            if not isinstance(factor, types.NoneType):
                x = builder.fmul(x, args[2])
            made.append(power_of(builder, x))
        return cgutils.pack_array(builder, made)

    return scores(scores, tops, factor, shape), emit


@device(plain.scaled_powers)
def scaled_powers(context: Any, scores: Any, tops: Any, factor: Any, shape: Any) -> Any:
    """2 ** (score * factor - top of its row)."""
    if not literal(shape):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, found, made = builder, unpacked(builder, args[0]), []
        minus = [b.fmul(x, ir.Constant(ir.FloatType(), -1.0)) for x in unpacked(b, args[1])]
        for e, x in enumerate(found):
            x = b.fma(x, args[2], minus[row_of(e, len(found), shape.literal_value)])
            made.append(power_of(b, x))
        return cgutils.pack_array(b, made)

    return scores(scores, tops, REAL, shape), emit


@device(plain.added)
def added(context: Any, sums: Any, weights: Any, shape: Any) -> Any:
    """The sums of rows with more weights."""
    if not literal(shape):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found, given = unpacked(builder, args[0]), unpacked(builder, args[1])
        for e, x in enumerate(given):
            row = row_of(e, len(given), shape.literal_value)
            found[row] = builder.fadd(found[row], x)
        return cgutils.pack_array(builder, found)

    return sums(sums, weights, shape), emit


@device(plain.rescaled)
def rescaled(context: Any, values: Any, factors: Any, shape: Any) -> Any:
    """Every value by the factor of its row."""
    if not literal(shape):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        by, found = unpacked(builder, args[1]), unpacked(builder, args[0])
        rows = [row_of(e, len(found), shape.literal_value) for e in range(len(found))]
        made = [builder.fmul(x, by[row]) for row, x in zip(rows, found, strict=True)]
        return cgutils.pack_array(builder, made)

    return values(values, factors, shape), emit


@device(plain.shares)
def shares(context: Any, sums: Any) -> Any:
    """1 / x of every sum."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = ir.Constant(ir.FloatType(), 1.0)
        return cgutils.pack_array(
            builder, [builder.fdiv(one, x) for x in unpacked(builder, args[0])]
        )

    return sums(sums), emit


# ------------------------------------------------------------------------------------ results


def as_half(builder: Any, x: Any) -> Any:
    return builder.bitcast(builder.fptrunc(x, ir.HalfType()), ir.IntType(16))


def as_brain(builder: Any, x: Any) -> Any:
    return assembled(builder, "cvt.rn.bf16.f32 $0, $1;", ir.IntType(16), [x], "=h,f")


def storing(convert: Device) -> Device:
    """The typing function of storing a lane's part of a tile."""

    def typed(
        context: Any,
        pointer: Any,
        start: Any,
        down: Any,
        values: Any,
        first: Any,
        rows: Any,
        width: Any,
        shape: Any,
        lanes: Any,
    ) -> Any:
        if not literal(down, width, shape, lanes):
            return None
        kind, near = shape.literal_value, lanes.literal_value

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            b, found = builder, unpacked(builder, args[3])
            base = b.gep(args[0], [b.add(args[1], args[4])])
            places = [(row_of(e, len(found), kind), e) for e in range(len(found))]
            for row in range(max(places)[0] + 1):
                below = rows_apart(kind) * row
                with b.if_then(b.icmp_signed(">", args[5], long(below))):
                    for e in (e for own, e in places if own == row):
                        column = column_of(e, len(found), kind, near)
                        value = convert(b, found[e])
                        place = b.gep(base, [long(below * down.literal_value + column)])
                        inside = b.icmp_signed("<", args[4], long(width.literal_value - column))
                        with b.if_then(inside):
                            b.store(value, place)
            return context.get_dummy_value()

        given = (pointer, INDEX, down, values, INDEX, INDEX, width, shape, lanes)
        return types.void(*given), emit

    return typed


# Rows of `width` elements, `down` apart, from the lane's first one on: so many `rows` as there
# are.  `first` is the lane's first column.
store_bf16 = device(plain.absent)(storing(as_brain))
store_f16 = device(plain.absent)(storing(as_half))
store_f32 = device(plain.store_f32)(storing(lambda builder, x: x))


def narrowing(convert: Device, kind: Any) -> Device:
    def typed(context: Any, x: Any) -> Any:
        return kind(REAL), lambda context, builder, signature, args: convert(builder, args[0])

    return typed


narrow_bf16 = device(plain.absent)(narrowing(as_brain, types.uint16))
narrow_f16 = device(plain.absent)(narrowing(as_half, types.uint16))
narrow_f32 = device(plain.as_it_is)(narrowing(lambda builder, x: x, REAL))


@device(plain.power)
def power(context: Any, x: Any) -> Any:
    """2 ** x."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return power_of(builder, args[0])

    return REAL(REAL), emit


@device(plain.zero_lines)
def zero_lines(
    context: Any,
    memory: Any,
    begin: Any,
    first: Any,
    end: Any,
    lines: Any,
    lead: Any,
    start: Any,
    step: Any,
) -> Any:
    """Zeros in columns from `first` to `end` of lines `start`, `start` + `step` ... of shared
    memory from `begin` on; lines are `lead` apart."""
    fixed = (begin, first, end, lines, lead)
    if not literal(*fixed):
        return None
    base, column, stop, count, apart = (v.literal_value for v in fixed)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, pointer = builder, data_of(context, builder, memory, args[0])
        pointer = b.gep(pointer, [long(base)])
        zero = ir.Constant(context.get_value_type(memory.dtype), 0)
        with cgutils.for_range_slice(b, args[6], long(count), args[7]) as (line, _):
            at = b.gep(pointer, [b.mul(line, long(apart))])
            for number in range(column, stop):
                b.store(zero, b.gep(at, [long(number)]))
        return context.get_dummy_value()

    return types.void(memory, *fixed, INDEX, INDEX), emit
