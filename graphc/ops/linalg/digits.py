"""Products by matrices of few bits in bytes: rows are written with digits of base 256.

    x[r, k]  =  step[r] * (d0 + 256 d1 + 65536 d2)          digits of -128 to 127, in i8

Three digits keep 24 bits of the largest number of a row, as many as f32 has, so sums are as near as
those of f32; two keep 16, twice as many as bf16.  A machine with VNNI multiplies four u8 by four i8
and adds them to i32 in an instruction, and sums of integers are exact: three products of bytes take
the place of four of f32.  Integers of the matrix are read as u8, half of their range more; what
that adds to a sum is known ahead.  Of rows whose largest number is below 2**-103 fewer bits are
kept: their steps are 2**-127.

    x[rows, depth]  ->  byte_digits  ->  i32[rows, n]  ->  digits_matmul  ->  f32[rows, columns]

    a row of digits:   d0 d1 d2 of the first four, of the next four ...    bytes of a word each
                       for each group of the matrix: what sums of d0 d1 d2 begin with
                       step, an f32

Which four numbers share a word, `packed` of the matrix says: w >> bits f & mask holds the rows
f, f + 8 / bits, f + 16 / bits and f + 24 / bits of the word w.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Loops, Range, Sample
from graphc.ir.types import F32, I32, AnyType, DType, Type, tensor
from graphc.loops.nest import Buffer, Expr, Register, Scalars
from graphc.loops.scalars import maximum, minimum, quads, rint
from graphc.ops.linalg.few_bits import (
    BITS,
    LANES,
    MOST_ROWS,
    WORD,
    Tiles,
    check,
    sample_operands,
    unpacked,
)
from graphc.ops.record.arguments import Applied, Array, ReadAt, Write
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import tensor_type
from graphc.ops.record.families import define, require, require_dtype, sample_array

BYTES = 4  # in a word
MOST_DIGITS = 3
SIGNS = -(1 << 31) | 0x808080  # the sign bits of four bytes, as an i32
FEWEST, GREATEST = 2.0**-149, 2.0**127  # what numbers are multiplied by to be integers
LONGEST = 1 << 15  # rows that a sum of products of bytes has room for
AHEAD = 64  # words of each column: a page
CHUNK = 32  # rows of the matrix that are written out


def row_words(depth: int, groups: int, digits: int) -> int:
    """Words of a row of digits."""
    return (depth // BYTES + groups) * digits + 1


def largest_of(digits: int) -> int:
    """The greatest number that has so many digits."""
    return sum(127 << 8 * digit for digit in range(digits))


def positive(digits: int) -> int:
    """What makes digits those of a positive number, 128 more each."""
    return sum(128 << 8 * digit for digit in range(digits))


# ------------------------------------------------------------------------------------------ digits


def _infer_digits(x: AnyType, *, bits: int, groups: int, digits: int) -> Type:
    name = "byte_digits"
    kind = tensor_type(name, x)
    require_dtype(name, kind, ("f32",))
    require(kind.rank == 2, f"{name} takes a matrix, got {kind}")
    depth = kind.dims[1]
    require(isinstance(depth, int), f"{name}: {kind} has rows of unknown length")
    require(bits in BITS, f"{name}: integers have 2, 4 or 8 bits, got {bits}")
    whole = depth > 0 and depth % (WORD // bits * groups) == 0
    require(whole, f"{name}: rows of {depth} are no {groups} groups of words of {bits} bits")
    require(depth // groups <= LONGEST, f"{name}: groups of {depth // groups} rows are too long")
    return tensor(I32, (kind.shape[0], row_words(depth, groups, digits)))


def _digits(x: Array, bits: int, groups: int, digits: int) -> Any:
    """The digits as NumPy makes them."""
    rows, most = x.shape[0], np.float32(largest_of(digits))
    with np.errstate(all="ignore"):
        size = np.abs(x).max(axis=1, initial=0, keepdims=True)
        factor = np.minimum(np.maximum(most / size, np.float32(FEWEST)), np.float32(GREATEST))
        step = np.maximum(size / most, np.float32(1 / GREATEST))
        whole = np.clip(np.rint(x * factor), -most, most)
    whole = np.where(np.isnan(whole), 0, whole).astype(np.int32) + positive(digits)
    shifts = (np.arange(digits) * 8).astype(np.int32)
    made = ((whole[:, :, None] >> shifts) & 255) - 128
    parts = made.reshape(rows, -1, BYTES, 8 // bits, digits).transpose(0, 1, 3, 4, 2)
    words = np.ascontiguousarray(parts.astype(np.int8)).view(np.int32).reshape(rows, -1)
    sums = made.reshape(rows, groups, -1, digits).sum(axis=2).reshape(rows, -1)
    first = (-(2 ** (bits - 1)) * sums).astype(np.int32)
    return np.concatenate([words, first, step.view(np.int32)], axis=1)


class Split:
    """The loops that write rows with digits."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: list[Buffer]
    ) -> None:
        self.b, self.read, self.write, (self.whole,) = b, read, write, scratch
        self.rows, self.depth = node.inputs[0].type.dims
        self.bits, self.groups = node.attrs["bits"], node.attrs["groups"]
        self.digits = node.attrs["digits"]
        self.most = largest_of(self.digits)
        self.per = WORD // self.bits

    def nest(self) -> None:
        b = self.b
        with b.loop(self.rows, "parallel") as row:
            start = row * self.depth
            largest = b.register(b.const(0.0, F32))
            with b.loop(self.depth, "vector") as k:
                b.update(largest, "max", abs(self.read(0, start + k)))
            size = b.read(largest)
            factor = minimum(maximum(size.like(self.most) / size, FEWEST), GREATEST)
            with b.loop(self.depth, "vector") as k:
                near = rint(self.read(0, start + k) * factor)
                b.store(
                    self.whole,
                    k,
                    minimum(maximum(near, -self.most), self.most).cast(I32) + positive(self.digits),
                )
            self.words(row)
            self.sums(row)
            step = maximum(size / self.most, 1 / GREATEST)
            last = b.integer((self.depth // BYTES + self.groups) * self.digits)
            self.write((row, last), step.bitcast(I32))

    def digit(self, k: Expr, digit: int) -> Expr:
        """A digit of a number, 128 more."""
        return (self.b.load(self.whole, k) >> 8 * digit) & 255

    def words(self, row: Expr) -> None:
        b, fields = self.b, 8 // self.bits
        with b.loop(self.depth // self.per, "vector") as word:
            for field in range(fields):
                for digit in range(self.digits):
                    made = b.const(SIGNS, I32)
                    for byte in range(BYTES):
                        k = word * self.per + (field + fields * byte)
                        made = made ^ (self.digit(k, digit) << 8 * byte)
                    self.write(
                        (row, word * (fields * self.digits) + (field * self.digits + digit)), made
                    )

    def sums(self, row: Expr) -> None:
        b, count = self.b, self.depth // self.groups
        with b.loop(self.groups) as group:
            for digit in range(self.digits):
                total = b.register(b.const(-128 * count, I32))
                with b.loop(count, "vector") as k:
                    b.update(total, "add", self.digit(group * count + k, digit))
                place = group * self.digits + (self.depth // BYTES * self.digits + digit)
                self.write((row, place), b.read(total) * -(2 ** (self.bits - 1)))


# ----------------------------------------------------------------------------------------- product


def _infer_product(
    rows: AnyType, words: AnyType, scales: AnyType, *, bits: int, columns: int, digits: int
) -> Type:
    name = "digits_matmul"
    depth = check(name, words, scales, bits, columns)
    kind, groups = tensor_type(name, rows), tensor_type(name, scales).dims[1]
    require_dtype(name, kind, ("i32",))
    require_dtype(name, tensor_type(name, scales), ("f32",))
    known = kind.rank == 2 and kind.dims[1] == row_words(depth, groups, digits)
    require(known, f"{name}: {kind} are no digits of rows of {depth} in {groups} groups")
    require(depth // groups <= LONGEST, f"{name}: groups of {depth // groups} rows are too long")
    return tensor(F32, (kind.shape[0], columns))


def _product(rows: Array, words: Array, scales: Array, bits: int, columns: int, digits: int) -> Any:
    count, depth = len(rows), words.shape[1] * (WORD // bits)
    step = np.ascontiguousarray(rows[:, -1:]).view(np.float32)
    parts = np.ascontiguousarray(rows[:, : depth // BYTES * digits]).view(np.int8)
    parts = parts.reshape(count, -1, 8 // bits, digits, BYTES).transpose(0, 1, 4, 2, 3)
    whole = parts.reshape(count, depth, digits) @ 256.0 ** np.arange(digits)
    with np.errstate(all="ignore"):
        made = whole @ unpacked(words, scales, bits)[:, :columns].astype(np.float64) * step
        return made.astype(np.float32)


class DigitsProduct(Tiles):
    """The loops: blocks of columns, a few rows of digits for each, groups of rows of the matrix."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: list[Buffer]
    ) -> None:
        self.b, self.read, self.write, (self.totals,) = b, read, write, scratch
        self.rows, self.length = node.inputs[0].type.dims
        self.count = node.inputs[1].type.dims[1]
        self.groups = node.inputs[2].type.dims[1]
        self.bits, self.columns = node.attrs["bits"], node.attrs["columns"]
        self.digits = node.attrs["digits"]
        self.fields, self.per = 8 // self.bits, WORD // self.bits

    def tile(self, block: Expr, row: Expr, height: int) -> None:
        """Rows of digits times one block of columns."""
        b = self.b
        with b.loop(LANES, "vector") as lane:
            for r in range(height):
                b.store(self.totals, lane + r * LANES, b.const(0.0, F32))
        with b.loop(self.groups) as group:
            self.group(block, group, row, height)
        first = block * LANES
        last = minimum(first + LANES, self.columns)
        for r in range(height):
            step = self.read(0, (row + r) * self.length + (self.length - 1)).bitcast(F32)
            with b.loop(last, "vector", first) as column:
                total = b.load(self.totals, column - first + r * LANES)
                self.write((row + r, column), total * step)

    def group(self, block: Expr, group: Expr, row: Expr, height: int) -> None:
        """One group of rows of the matrix: sums of integers in registers, added to the totals."""
        b, words, most = self.b, self.count // self.groups, CHUNK // self.per
        start = group * words
        with b.loop(LANES, "vector") as lane:
            sums = [
                [b.register(self.known(row + r, group, digit)) for digit in range(self.digits)]
                for r in range(height)
            ]
            if words >= most:
                with b.loop(words // most, "within") as part:
                    self.chunk(lane, block, start + part * most, most, row, sums)
            if words % most:
                rest = start + words // most * most
                self.chunk(lane, block, rest, words % most, row, sums)
            scale = self.read(2, b.affine([(block, self.groups)], group) * LANES + lane)
            for r, digits in enumerate(sums):
                made = self.number(*map(b.read, digits))
                total = b.load(self.totals, lane + r * LANES)
                b.store(self.totals, lane + r * LANES, total + scale * made)

    def number(self, *digits: Expr) -> Expr:
        """What sums of digits, the lowest first, stand for; of few rows that is an i32, too."""
        most = largest_of(self.digits) * 2 ** (self.bits - 1)
        if most * self.count * self.per // self.groups < 2**31:
            return functools.reduce(lambda made, digit: (made << 8) + digit, digits[::-1]).cast(F32)
        return functools.reduce(
            lambda made, digit: made * 256.0 + digit, (d.cast(F32) for d in digits[::-1])
        )

    def known(self, row: Expr, group: Expr, digit: int) -> Expr:
        """What a sum begins with."""
        place = row * self.length + (self.count * self.fields * self.digits + digit)
        first: Expr = self.read(0, place + group * self.digits)
        return first

    def chunk(
        self, lane: Expr, block: Expr, word: Expr, count: int, row: Expr, sums: list[list[Register]]
    ) -> None:
        """A few words of each column, times the digits of the rows.

        Where that takes longer than memory, the words to come are asked for: processors fetch along
        a page by themselves, and wait at each new one.
        """
        b, is_long = self.b, len(sums) > 2 or self.fields > 1
        for k in range(count):
            line = b.affine([(block, self.count)], word + k)
            if is_long:
                b.prefetch_behind(self.read(1, line * LANES), AHEAD * LANES, LANES)
            numbers = self.read(1, line * LANES + lane) ^ self.half()
            for field in range(self.fields):
                four = (numbers >> self.bits * field) & self.mask() if self.bits < 8 else numbers
                for r, digit in np.ndindex(len(sums), self.digits):
                    place = b.affine(
                        [(row + r, self.length), (word, self.fields * self.digits)],
                        (k * self.fields + field) * self.digits + digit,
                    )
                    register = sums[r][digit]
                    b.assign(register, quads(four, self.read(0, place), b.read(register)))

    def half(self) -> int:
        """Makes integers positive: the sign bits of all of a word, as an i32."""
        return _signed(sum(1 << self.bits * (k + 1) - 1 for k in range(self.per)))

    def mask(self) -> int:
        return sum((2**self.bits - 1) << 8 * k for k in range(BYTES))


def _signed(word: int) -> int:
    return word - (1 << WORD) if word >> (WORD - 1) else word


# ----------------------------------------------------------------------------------------- records


def _split_samples() -> list[Sample]:
    def case(rows: int, depth: int, bits: int, groups: int, digits: int = 3) -> Sample:
        x = sample_array("f32", (rows, depth), (-4, 4), 0)
        return Sample((x,), {"bits": bits, "groups": groups, "digits": digits})

    wrong = [
        Sample((sample_array("f32", (3, 36), (-4, 4), 0),), {"bits": 4, "groups": 2}, False),
        Sample((sample_array("f64", (3, 32), (-4, 4), 0),), {"bits": 4, "groups": 2}, False),
        Sample((sample_array("f32", (3, 32), (-4, 4), 0),), {"bits": 5, "groups": 2}, False),
    ]
    made = [case(1, 64, 4, 2), case(3, 96, 8, 3), case(10, 32, 2, 1), case(2, 36, 8, 1, 2)]
    return made + wrong


def _product_samples() -> list[Sample]:
    def case(
        rows: int, depth: int, columns: int, bits: int, groups: int, digits: int = 3
    ) -> Sample:
        x, words, scales = sample_operands(rows, depth, columns, bits, groups)
        given = _digits(x, bits, groups, digits), words, scales
        named = {"bits": bits, "columns": columns, "digits": digits}
        return Sample(given, named, tolerance=16)

    made = [
        case(1, 64, 16, 4, 2),
        case(3, 96, 37, 4, 3),
        case(10, 48, 20, 8, 1),
        case(1, 36, 5, 8, 1),
        case(2, 128, 33, 8, 4),
        case(9, 64, 16, 2, 1),
        case(2, 1040, 18, 8, 1),
        case(3, 96, 20, 4, 3, 2),
    ]
    digits, words, scales = made[0].operands
    named = {"bits": 4, "columns": 16}
    wrong: Sequence[Any] = [
        ((digits[:, 1:], words, scales), named),
        ((digits.astype("i8"), words, scales), named),
        ((digits, words, scales), {"bits": 8, "columns": 16}),
        ((digits, words, scales.astype("f8")), named),
    ]
    return made + [Sample(operands, attrs, False) for operands, attrs in wrong]


def _workspace(node: Applied) -> tuple[tuple[DType, int], ...]:
    return ((F32, MOST_ROWS * LANES),)


BITS_OF_MATRIX = Attr("bits", "int", within=Range(2, 8))
DIGITS = Attr("digits", "int", MOST_DIGITS, within=Range(2, MOST_DIGITS))

byte_digits = define(
    "byte_digits",
    batch=lane_by_lane,
    infer=_infer_digits,
    reference=_digits,
    lower=Loops(
        lambda *given: Split(*given).nest(),
        lambda node: node.inputs[0].type.dims[0],
        lambda node: ((I32, node.inputs[0].type.dims[1]),),
    ),
    attrs=(BITS_OF_MATRIX, Attr("groups", "int", within=POSITIVE), DIGITS),
    dtypes=("f32",),
    differentiable=False,
    samples=_split_samples,
    doc="Rows in digits of base 256, in the order in which `digits_matmul` reads them.",
)

digits_matmul = define(
    "digits_matmul",
    batch=lane_by_lane,
    infer=_infer_product,
    reference=_product,
    lower=Loops(
        lambda *given: DigitsProduct(*given).nest(),
        lambda node: -(-node.attrs["columns"] // LANES),
        _workspace,
    ),
    attrs=(BITS_OF_MATRIX, Attr("columns", "int", within=POSITIVE), DIGITS),
    dtypes=("i32",),
    differentiable=False,
    samples=_product_samples,
    doc="Rows in digits times a matrix of few bits, by products of bytes: see `byte_digits`.",
)
