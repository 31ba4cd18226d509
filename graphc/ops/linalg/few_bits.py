"""Products by matrices of few bits: numbers with a scale for every few of them in a column.

    words[b, w, lane]     32 / bits numbers of column 16 b + lane: rows 32 / bits * w and on, the
                          lowest bits first
    scales[b, g, lane]    what the numbers of the g-th group of rows of that column count in: a
                          float, or the exponent of f32 of a power of two, in u8 (0 is 0)

Numbers are integers, or floats with so many bits of exponent (`small_floats`).

The product reads sixteen columns at a time, one vector or two, and widens them in registers: what
it waits for is memory, and that holds few bits.  Up to `MOST_ROWS` rows share what is widened.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Loops, Op, Range, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import F32, I32, U8, AnyType, Type, definitely_different, tensor
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import minimum
from graphc.ops.linalg.small_floats import FORMS, FRACTION, decoded, unit_of, values
from graphc.ops.record.arguments import Applied, Array, ReadAt, Write
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import tensor_type
from graphc.ops.record.families import define, require, require_dtype, sample_array
from graphc.ops.record.value import Value, common_element, emit, functions

LANES = 16  # columns side by side
WORD = 32  # bits
BITS = (2, 4, 8)
DTYPES = ("f32", "f64")  # of what is multiplied, and of scales
POWERS = "u8"  # of scales that are powers of two
MOST_ROWS = 8  # that are multiplied while integers are in registers
CHUNK = 32  # rows of the matrix that are written out
CHAINS = 4  # sums that do not wait for one another

# -------------------------------------------------------------------------------------- type rules


def _sizes(name: str, kind: AnyType, *names: str) -> tuple[int, ...]:
    held = tensor_type(name, kind)
    require_dtype(name, held, names)
    sizes = tuple(d for d in held.shape if isinstance(d, int))
    known = len(sizes) == held.rank == 3 and sizes[2] == LANES
    require(known, f"{name}: words and scales have known sizes [blocks, n, 16], got {held}")
    return sizes


def check(name: str, words: AnyType, scales: AnyType, bits: int, columns: int) -> int:
    """The rows of the matrix, those that fill it up included. Raises TypeRuleError."""
    require(bits in BITS, f"{name}: numbers have 2, 4 or 8 bits, got {bits}")
    blocks, count, _ = _sizes(name, words, "i32")
    others, groups, _ = _sizes(name, scales, *DTYPES, POWERS)
    require(blocks == others, f"{name}: {words} and {scales} differ in blocks")
    whole = groups > 0 and count % groups == 0 and count > 0
    require(whole, f"{name}: {count} words are no whole number of {groups} groups")
    most = LANES * blocks
    require(most - LANES < columns <= most, f"{name}: {words} does not hold {columns} columns")
    return count * (WORD // bits)


def _infer(
    x: AnyType, words: AnyType, scales: AnyType, *, bits: int, columns: int, exponent: int
) -> Type:
    name = "packed_matmul"
    depth = check(name, words, scales, bits, columns)
    given, steps = tensor_type(name, x), tensor_type(name, scales).dtype
    require_dtype(name, given, DTYPES)
    require(steps in (given.dtype, U8), f"{name}: {x} and {scales}")
    known = exponent == 0 or (bits, exponent) in {form[:2] for form in FORMS.values()}
    require(known, f"{name}: no floats of {bits} bits have {exponent} bits of exponent")
    require(given.rank == 2, f"{name} takes a matrix, got {given}")
    require(
        not definitely_different(given.shape[1], depth),
        f"{name}: {given} times a matrix of {depth} rows",
    )
    return tensor(given.dtype, (given.shape[0], columns))


# ---------------------------------------------------------------------------------------- the words


def packed(integers: Array, bits: int) -> Any:
    """Words of integers[columns, depth], of which whole blocks and words are filled up with 0."""
    per, (columns, depth) = WORD // bits, integers.shape
    full = np.zeros((-(-columns // LANES) * LANES, -(-depth // per) * per), np.uint32)
    full[:columns, :depth] = integers.astype(np.int32).view(np.uint32) & np.uint32(2**bits - 1)
    parts = full.reshape(-1, LANES, full.shape[1] // per, per)
    places = (np.arange(per) * bits).astype(np.uint32)
    words = np.bitwise_or.reduce(parts << places, axis=3, initial=0).astype(np.uint32)
    return np.ascontiguousarray(words.swapaxes(1, 2)).view(np.int32)


def numbers_of(words: Any, bits: int, exponent: int = 0, dtype: str = "f32") -> Any:
    """The numbers of words[..., w, 16] as [..., depth, 16]."""
    per = WORD // bits
    ahead = np.arange(WORD - bits, -1, -bits, dtype=np.int32)[:, None]
    *outer, count, lanes = words.shape
    wide = functions.reshape(words, (*outer, count, 1, lanes))
    last = functions.right_shift(functions.left_shift(wide, ahead), np.int32(WORD - bits))
    made = functions.reshape(last, (*outer, count * per, lanes))
    if exponent:
        made = functions.take(values(bits, exponent), functions.bitwise_and(made, 2**bits - 1))
    return functions.astype(made, dtype)


def steps_of(scales: Any) -> Any:
    """Scales as floats."""
    if common_element(scales)[0] is not U8:
        return scales
    powers = (np.arange(256, dtype=np.int32) << FRACTION).view(np.float32)
    return functions.take(powers, functions.astype(scales, "i32"))


def unpacked(words: Any, scales: Any, bits: int, exponent: int = 0) -> Any:
    """The matrix [depth, columns], with the columns and rows that fill it up."""
    steps = steps_of(scales)
    numbers = numbers_of(words, bits, exponent, common_element(steps)[0].name)
    blocks, depth, lanes = numbers.shape
    groups = scales.shape[1]
    parts = functions.reshape(numbers, (blocks, groups, depth // groups, lanes))
    made = functions.reshape(parts * steps[:, :, None], (blocks, depth, lanes))
    return functions.reshape(functions.swapaxes(made, 0, 1), (depth, blocks * lanes))


def _reference(
    x: Array, words: Array, scales: Array, bits: int, columns: int, exponent: int
) -> Any:
    return x @ unpacked(words, scales, bits, exponent)[:, :columns].astype(x.dtype)


# -------------------------------------------------------------------------------------------- loops


class Tiles:
    """Loops over blocks of columns, and over a few rows for each."""

    b: Scalars
    rows: Any
    columns: int

    def nest(self) -> None:
        b, rows = self.b, self.rows
        known = isinstance(rows, int)
        height = max(1, min(rows, MOST_ROWS)) if known else MOST_ROWS
        with b.loop(-(-self.columns // LANES), "parallel") as block:
            whole = b.integer(rows) // height
            with b.loop(whole) as tile:
                self.tile(block, tile * height, height)
            if known and rows % height:
                self.tile(block, b.integer(rows - rows % height), rows % height)
            elif not known:
                with b.loop(b.integer(rows), "serial", whole * height) as row:
                    self.tile(block, row, 1)

    def tile(self, block: Expr, row: Expr, height: int) -> None:
        """So many rows times one block of columns."""
        raise NotImplementedError


class FewBitsProduct(Tiles):
    """The loops: blocks of columns, a few rows of x for each, groups of rows of the matrix."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: list[Buffer]
    ) -> None:
        self.b, self.read, self.write, self.totals = b, read, write, scratch[0]
        self.zero = b.const(0.0, node.type.dtype)
        (self.rows, self.depth), (_, self.words, _) = (n.type.dims for n in node.inputs[:2])
        self.bits, self.columns = node.attrs["bits"], node.attrs["columns"]
        self.exponent = node.attrs["exponent"]
        self.per = WORD // self.bits
        self.groups = node.inputs[2].type.dims[1]

    def tile(self, block: Expr, row: Expr, height: int) -> None:
        """Rows of x times one block of columns."""
        b = self.b
        with b.loop(LANES, "vector") as lane:
            for r in range(height):
                b.store(self.totals, lane + r * LANES, self.zero)
        words, most = self.words // self.groups, CHUNK // self.per
        with b.loop(self.groups) as group:
            start = group * words
            if words >= most:
                with b.loop(words // most) as part:
                    self.chunk(block, group, start + part * most, most, row, height)
            if words % most:
                rest = start + words // most * most
                self.chunk(block, group, rest, words % most, row, height)
        first = block * LANES
        last = minimum(first + LANES, self.columns)
        for r in range(height):
            with b.loop(last, "vector", first) as column:
                self.write((row + r, column), b.load(self.totals, column - first + r * LANES))

    def chunk(
        self, block: Expr, group: Expr, word: Expr, count: int, row: Expr, height: int
    ) -> None:
        """A few words of each column of one group, added to the totals."""
        b, chains = self.b, -(-CHAINS // height)
        with b.loop(LANES, "vector") as lane:
            sums = [[b.register(self.zero) for _ in range(chains)] for _ in range(height)]
            for k in range(count * self.per):
                line = b.affine([(block, self.words)], word + k // self.per)
                number = self.number(self.read(1, line * LANES + lane), k % self.per)
                for r in range(height):
                    place = b.affine([(row + r, self.depth), (word, self.per)], k)
                    b.update(sums[r][k % chains], "add", number * self.read(0, place))
            scale = self.step(b.affine([(block, self.groups)], group) * LANES + lane)
            for r in range(height):
                total = b.load(self.totals, lane + r * LANES)
                for register in sums[r][1:]:
                    b.update(sums[r][0], "add", b.read(register))
                b.store(self.totals, lane + r * LANES, total + scale * b.read(sums[r][0]))

    def step(self, place: Expr) -> Expr:
        """What the numbers of a group of a column count in."""
        scale: Expr = self.read(2, place)
        if scale.dtype is U8:
            scale = (scale.cast(I32) << FRACTION).bitcast(F32)
        unit = unit_of(self.bits, self.exponent)
        return scale.cast(self.zero.dtype) * unit if unit != 1 else scale.cast(self.zero.dtype)

    def number(self, word: Expr, place: int) -> Expr:
        """One number of a word, as f32; of floats by their unit."""
        if self.exponent:
            ahead = WORD - self.bits * (place + 1)
            return decoded(word, ahead, self.bits, self.exponent).cast(self.zero.dtype)
        ahead, last = WORD - self.bits * (place + 1), WORD - self.bits
        b, kind = self.b, word.dtype
        if ahead:
            word = b.op("shl", word, b.const(ahead, kind))
        return b.op("shr", word, b.const(last, kind)).cast(self.zero.dtype)


def _nest(*given: Any) -> None:
    FewBitsProduct(*given).nest()


def _workspace(node: Applied) -> tuple[Any, ...]:
    return ((node.type.dtype, MOST_ROWS * LANES),)


# --------------------------------------------------------------------- gradients, lanes, samples


def _gradient(
    ct: Value,
    result: Value,
    x: Value,
    words: Value,
    scales: Value,
    *,
    bits: int,
    columns: int,
    exponent: int,
) -> list[Any]:
    dense = functions.astype(unpacked(words, scales, bits, exponent)[:, :columns], x.dtype)
    of_scales = None
    if common_element(scales)[0] is not U8:
        of_scales = _of_scales(x.T @ ct, words, scales, bits, exponent)
    return [ct @ dense.T, None, of_scales]


def _of_scales(slope: Value, words: Value, scales: Value, bits: int, exponent: int) -> Any:
    """The gradient of the scales, from that of the matrix."""
    blocks, groups, lanes = scales.shape
    depth, columns = slope.shape
    spare = blocks * lanes - columns
    full = functions.pad(slope, ((0, 0), (0, spare))) if spare else slope
    parts = functions.swapaxes(functions.reshape(full, (depth, blocks, lanes)), 0, 1)
    terms = functions.reshape(
        parts * numbers_of(words, bits, exponent, scales.dtype.name), (blocks, groups, -1, lanes)
    )
    return functions.sum(terms, axis=2)


def _batch(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """One matrix for all lanes is multiplied by the rows of all of them."""
    if any(lanes.mapped[1:]):
        return NotImplemented
    x, words, scales = values
    count, rows, depth = x.shape
    made = emit(op, functions.reshape(x, (count * rows, depth)), words, scales, **attrs)
    return functions.reshape(made, (count, rows, made.shape[1]))


def sample_operands(
    rows: int,
    depth: int,
    columns: int,
    bits: int,
    groups: int,
    kind: str = "f32",
    steps: str | None = None,
) -> tuple[Array, Array, Array]:
    """Rows and a matrix of so many bits, with its scales."""
    most = 2 ** (bits - 1)
    words = packed(np.random.default_rng(depth).integers(-most, most, (columns, depth)), bits)
    span = (120, 131) if steps == POWERS else (-2, 2)
    scales = sample_array(steps or kind, (words.shape[0], groups, LANES), span, 1)
    return sample_array(kind, (rows, depth), (-4, 4), 0), words, scales


def _samples() -> list[Sample]:
    def case(
        rows: int,
        depth: int,
        columns: int,
        bits: int,
        groups: int,
        kind: str = "f32",
        exponent: int = 0,
        steps: str | None = None,
    ) -> Sample:
        operands = sample_operands(rows, depth, columns, bits, groups, kind, steps)
        named = {"bits": bits, "columns": columns, "exponent": exponent}
        return Sample(operands, named, tolerance=16)

    made = [
        case(1, 64, 16, 4, 2),
        case(3, 96, 37, 4, 3),
        case(10, 48, 20, 8, 1),
        case(1, 36, 5, 8, 1),
        case(2, 128, 33, 8, 4),
        case(9, 64, 16, 2, 1),
        case(2, 64, 18, 4, 2, "f64"),
        case(3, 64, 18, 4, 2, exponent=2, steps=POWERS),
        case(2, 36, 5, 8, 1, exponent=4),
        case(9, 64, 33, 8, 2, exponent=5),
        case(1, 64, 17, 8, 2, "f64", exponent=4, steps=POWERS),
    ]
    x, words, scales = made[0].operands
    named = {"bits": 4, "columns": 16}
    wrong = [
        ((x[:, :32], words, scales), named),
        ((x, words[:, :, :8], scales), named),
        ((x, words, scales[:, [0, 0, 0]]), named),
        ((x, words, scales), {"bits": 3, "columns": 16}),
        ((x, words, scales), {"bits": 4, "columns": 17}),
        ((x, words, scales), {"bits": 4, "columns": 16, "exponent": 3}),
        ((x[0], words, scales), named),
        ((x.astype("f8"), words, scales), named),
        ((x, words.astype("i8"), scales), named),
        ((x.astype("i4"), words, scales.astype("u1")), named),
        ((x.astype("f2"), words, scales.astype("u1")), named),
    ]
    return made + [Sample(operands, attrs, False) for operands, attrs in wrong]


packed_matmul = define(
    "packed_matmul",
    batch=_batch,
    infer=_infer,
    gradient=_gradient,
    reference=_reference,
    lower=Loops(_nest, lambda node: -(-node.attrs["columns"] // LANES), _workspace),
    attrs=(
        Attr("bits", "int", within=Range(2, 8)),
        Attr("columns", "int", within=POSITIVE),
        Attr("exponent", "int", default=0, within=Range(0, 5)),  # bits of it; integers have none
    ),
    dtypes=DTYPES,
    samples=_samples,
    traits=Traits(few_bits=True),
    doc="Rows times a matrix whose columns are numbers of few bits in words, and scales.",
)
