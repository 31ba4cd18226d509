"""Attention on tensor cores, from sm_80 on: products of fragments in registers, and what the
gradient makes of them.

Weights are in the place of sums where the left operand of tensor cores has to be: they go from one
product to the other without leaving the registers (Dao, FlashAttention-2, 2023).  Shapes and lanes
are those of `device`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.codegen.gpu.attention import plain
from graphc.codegen.gpu.attention.device import (
    INDEX,
    REAL,
    assembled,
    long,
    power_of,
    unpacked,
    word,
)
from graphc.codegen.gpu.attention.plain import column_of, row_of, rows_apart
from graphc.codegen.gpu.contraction.device import (
    UniTuple,
    cgutils,
    data_of,
    device,
    ir,
    literal,
    types,
)
from graphc.codegen.gpu.contraction.mma import Lanes, multiply, read

Device = Callable[..., Any]
PACK = {"bf16": "cvt.rn.bf16x2.f32 $0, $2, $1;", "f16": "cvt.rn.f16x2.f32 $0, $2, $1;"}


def packed(builder: Any, name: str, low: Any, high: Any) -> Any:
    """Two sums as one register of narrow numbers."""
    return assembled(builder, PACK[name], ir.IntType(32), [low, high], "=r,f,f")


@device(plain.absent)
def rows_of(
    context: Any, pointer: Any, first: Any, second: Any, step: Any, lane: Any, width: Any
) -> Any:
    """The lane's part of 16 rows of memory as left operands; rows g and g + 8 begin at `first` and
    `second`.  Columns from `width` on are zeros."""
    if not literal(width):
        return None
    count = width.literal_value
    blocks = -(-count // 16)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b = builder
        t = b.mul(b.and_(args[4], long(3)), long(2))

        def number(row: Any, column: int) -> Any:
            at = b.add(t, long(column))
            inside = None
            if column + 6 >= count:
                inside = b.icmp_signed("<", at, long(count))
                at = b.select(inside, at, long(0))
            value = b.load(b.gep(args[0], [b.add(row, b.mul(at, args[3]))]))
            if inside is not None:
                value = b.select(inside, value, ir.Constant(value.type, 0))
            return b.zext(value, ir.IntType(32))

        made = []
        for block in range(blocks):
            for column in (16 * block, 16 * block + 8):
                for row in args[1:3]:
                    high = b.shl(number(row, column + 1), word(16))
                    made.append(b.or_(number(row, column), high))
        return cgutils.pack_array(b, made)

    made = UniTuple(types.uint32, 4 * blocks)
    return made(pointer, INDEX, INDEX, INDEX, INDEX, width), emit


def scoring(name: str) -> Device:
    """The typing function of products with keys, which lie in lines of shared memory."""

    def typed(
        context: Any,
        rows: Any,
        memory: Any,
        start: Any,
        lane: Any,
        across: Any,
        lead: Any,
        down: Any,
    ) -> Any:
        if not literal(across, lead, down):
            return None
        wide, apart, high = (v.literal_value for v in (across, lead, down))

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            left, lanes = unpacked(builder, args[0]), Lanes(builder, args[3])
            pointer = data_of(context, builder, memory, args[1])
            at = builder.add(args[2], lanes.offset(apart, 1, lanes.second, lanes.first))
            sums = [ir.Constant(ir.FloatType(), 0.0)] * (4 * wide * high)
            share = len(left) // high
            for k in range(0, share, 4):
                first = builder.add(at, long(4 * k))
                found = read(builder, pointer, first, wide // 2, apart, turned=False)
                rows = [left[n + k : n + k + 4] for n in range(0, len(left), share)]
                fragments(builder, name, sums, rows, found)
            return cgutils.pack_array(builder, sums)

        made = UniTuple(REAL, 4 * wide * high)
        return made(rows, memory, INDEX, INDEX, across, lead, down), emit

    return typed


def fragments(builder: Any, name: str, sums: list[Any], rows: list[Any], found: Any) -> None:
    """Add the products of left operands below each other with the right ones of a row of
    squares."""
    columns = [half for square in found for half in (square[:2], square[2:])]
    for n, column in enumerate(columns):
        for m, left in enumerate(rows):
            at = 4 * (m * len(columns) + n)
            sums[at : at + 4] = multiply(builder, name, left, column, sums[at : at + 4])


scores_bf16 = device(plain.absent)(scoring("bf16"))
scores_f16 = device(plain.absent)(scoring("f16"))


def weighing(name: str) -> Device:
    """The typing function of products of weights with values, which lie in lines of shared
    memory, one for each key."""

    def typed(
        context: Any,
        total: Any,
        weights: Any,
        memory: Any,
        start: Any,
        lane: Any,
        lead: Any,
        down: Any,
    ) -> Any:
        if not literal(lead, down):
            return None
        apart, high = lead.literal_value, down.literal_value

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            sums, p = unpacked(builder, args[0]), unpacked(builder, args[1])
            pointer, lanes = data_of(context, builder, memory, args[2]), Lanes(builder, args[4])
            at = builder.add(args[3], lanes.offset(apart, 0, lanes.second, lanes.first))
            share = len(p) // high
            for k in range(0, share, 8):
                rows = [
                    [packed(builder, name, *p[n + k + e : n + k + e + 2]) for e in (0, 2, 4, 6)]
                    for n in range(0, len(p), share)
                ]
                first = builder.add(at, long(2 * apart * k))
                count = len(sums) // (8 * high)
                found = read(builder, pointer, first, count, apart, turned=True)
                fragments(builder, name, sums, rows, found)
            return cgutils.pack_array(builder, sums)

        return total(total, weights, memory, INDEX, INDEX, lead, down), emit

    return typed


weigh_bf16 = device(plain.absent)(weighing("bf16"))
weigh_f16 = device(plain.absent)(weighing("f16"))


# ------------------------------------------------------------------------------------ the gradient


def half_of(builder: Any, word_of_two: Any, number: int, brain: bool) -> Any:
    """One of two narrow numbers in a register."""
    b = builder
    if brain:
        bits = b.and_(word_of_two, word(-65536)) if number else b.shl(word_of_two, word(16))
        return b.bitcast(bits, ir.FloatType())
    bits = b.lshr(word_of_two, word(16)) if number else word_of_two
    return b.fpext(b.bitcast(b.trunc(bits, ir.IntType(16)), ir.HalfType()), ir.FloatType())


@device(plain.absent)
def row_products(context: Any, a: Any, b: Any, kind: Any) -> Any:
    """Sums of products of two left operands, for the lane's columns of each of its two rows; of
    bf16 for kind 0, of f16 for 1."""
    if not literal(kind):
        return None
    brain = kind.literal_value == 0

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums: list[Any] = [ir.Constant(ir.FloatType(), 0.0)] * 2
        pairs = zip(unpacked(builder, args[0]), unpacked(builder, args[1]), strict=True)
        for number, (x, y) in enumerate(pairs):
            for half in (0, 1):
                left, right = (half_of(builder, value, half, brain) for value in (x, y))
                sums[number % 2] = builder.fma(left, right, sums[number % 2])
        return cgutils.pack_array(builder, sums)

    return UniTuple(REAL, 2)(a, b, kind), emit


@device(plain.absent)
def slopes(context: Any, weights: Any, values: Any, drops: Any, shape: Any) -> Any:
    """weight * (value - drop of its row)."""
    if not literal(shape):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        p, d, drop = (unpacked(builder, x) for x in args[:3])
        rows = [row_of(e, len(p), shape.literal_value) for e in range(len(p))]
        made = [
            builder.fmul(x, builder.fsub(y, drop[row]))
            for x, y, row in zip(p, d, rows, strict=True)
        ]
        return cgutils.pack_array(builder, made)

    return weights(weights, values, drops, shape), emit


def column_number(e: int) -> int:
    """Which of the lane's columns of fragments an element is of."""
    return e // 4 * 2 + e % 2


@device(plain.absent)
def columns_of(context: Any, pointer: Any, start: Any, count: Any, across: Any) -> Any:
    """What is noted of each of the lane's columns, from its first one at `start` on; zeros where
    there are no more than `count`."""
    if not literal(across):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, made = builder, []
        for number in range(2 * across.literal_value):
            column = long(number // 2 * 8 + number % 2)
            inside = b.icmp_signed("<", column, args[2])
            place = b.select(inside, b.add(args[1], column), long(0))
            value = b.load(b.gep(args[0], [place]))
            made.append(b.select(inside, value, ir.Constant(value.type, 0.0)))
        return cgutils.pack_array(b, made)

    return UniTuple(REAL, 2 * across.literal_value)(pointer, INDEX, INDEX, across), emit


@device(plain.absent)
def column_powers(context: Any, scores: Any, tops: Any, parts: Any, factor: Any) -> Any:
    """2 ** (score * factor - top of its column) * part of its column."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, made = builder, []
        found, top, part = (unpacked(b, x) for x in args[:3])
        minus = [b.fmul(x, ir.Constant(ir.FloatType(), -1.0)) for x in top]
        for e, x in enumerate(found):
            less = minus[column_number(e)]
            plain_factor = isinstance(factor, types.NoneType)
            x = b.fadd(x, less) if plain_factor else b.fma(x, args[3], less)
            made.append(b.fmul(power_of(b, x), part[column_number(e)]))
        return cgutils.pack_array(b, made)

    return scores(scores, tops, parts, factor), emit


@device(plain.absent)
def column_slopes(context: Any, weights: Any, values: Any, drops: Any) -> Any:
    """weight * (value - drop of its column)."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        p, d, drop = (unpacked(builder, x) for x in args)
        made = [
            builder.fmul(x, builder.fsub(y, drop[column_number(e)]))
            for e, (x, y) in enumerate(zip(p, d, strict=True))
        ]
        return cgutils.pack_array(builder, made)

    return weights(weights, values, drops), emit


@device(plain.absent)
def from_on(context: Any, scores: Any, first: Any, hidden: Any, shape: Any, lanes: Any) -> Any:
    """Scores of columns, counted from the lane's first one, from `first` on in its first row and
    from one more in each row below; and what hides those before."""
    if not literal(shape, lanes):
        return None
    kind, near = shape.literal_value, lanes.literal_value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, made = builder, []
        begin, found = b.trunc(args[1], ir.IntType(32)), unpacked(builder, args[0])
        for e, x in enumerate(found):
            row = rows_apart(kind) * row_of(e, len(found), kind)
            column = column_of(e, len(found), kind, near)
            seen = b.icmp_signed(">=", word(column - row), begin)
            made.append(b.select(seen, x, args[2]))
        return cgutils.pack_array(b, made)

    return scores(scores, INDEX, REAL, shape, lanes), emit
