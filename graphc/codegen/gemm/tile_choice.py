"""Which register tile computes the products of a data type on a machine, by `kind_of`."""

import functools
from typing import NamedTuple

from graphc.codegen.gemm.hardware import Hardware
from graphc.codegen.tuning import tuned
from graphc.ir.sizes import Size


class Kind(NamedTuple):
    """One data type: LLVM element type in memory and in registers, sizes, and its register tile.

    `rows` x `vectors` accumulators of `lanes` elements form the micro tile; `transpose` says
    whether square blocks are worth transposing in registers while packing. `together`: an element
    of packed A and B holds so many neighbours in k, which tiles multiply and add as one. `unsigned`
    says for A and B how integers widen. `whole`: C holds the sums as they are in registers.
    """

    name: str
    memory: str
    element: str
    memory_bytes: int
    bytes: int
    lanes: int
    rows: int
    vectors: int
    transpose: bool
    together: int = 1
    unsigned: tuple[bool, bool] = (False, False)
    whole: bool = False

    @property
    def columns(self) -> int:
        """Width of the micro tile in elements."""
        return self.lanes * self.vectors

    @property
    def dots(self) -> int:
        """Columns that the dot product kernel takes together; their sums fit one vector."""
        return min(4, self.lanes)

    @property
    def dot_rows(self) -> int:
        """Rows of a tile of dot products: as many sums as leave registers for the operands."""
        return 4 if self.rows > 6 else 2

    @property
    def floating(self) -> bool:
        """Whether sums are floating point."""
        return self.element in ("float", "double")

    @property
    def converts(self) -> bool:
        """Whether elements change format between memory and registers."""
        return self.memory != self.element

    @property
    def bundles(self) -> bool:
        """Whether tiles multiply several neighbours in k as one."""
        return self.together > 1

    @property
    def halves(self) -> bool:
        """Whether tiles of the last columns may end with half a vector: some machines multiply
        pairs of bf16 in long vectors in two steps."""
        return self.together == 2

    @property
    def flips(self) -> bool:
        """Whether packing A changes its signs, because the machine multiplies u8 with i8 alone.

        x ^ 128 of an i8 is the u8 x + 128 and of a u8 the i8 x - 128: in both cases, as numbers of
        the other sign, 128 taken the same way times the sum of a column of B is too much.
        """
        return self.together == 4 and self.unsigned[0] == self.unsigned[1]

    @property
    def result_bytes(self) -> int:
        """Bytes of an element of C."""
        return self.bytes if self.whole else self.memory_bytes


# name -> (memory type, register type, bytes in memory, bytes in registers)
FORMATS = {
    "f32": ("float", "float", 4, 4),
    "f64": ("double", "double", 8, 8),
    "f16": ("i16", "float", 2, 4),
    "bf16": ("i16", "float", 2, 4),
    "i8": ("i8", "i8", 1, 1),
    "i16": ("i16", "i16", 2, 2),
    "i32": ("i32", "i32", 4, 4),
    "i64": ("i64", "i64", 8, 8),
    "bool": ("i8", "i8", 1, 1),
    # Small integers whose products are summed in i32; of A and of B where these differ.
    "i8_i32": ("i8", "i32", 1, 4),
    "u8_i32": ("i8", "i32", 1, 4),
    "i8u8_i32": ("i8", "i32", 1, 4),
    "u8i8_i32": ("i8", "i32", 1, 4),
    "i16_i32": ("i16", "i32", 2, 4),
    "u16_i32": ("i16", "i32", 2, 4),
}
UNSIGNED = {"u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64"}
TURNED = {"i8u8_i32": "u8i8_i32", "u8i8_i32": "i8u8_i32"}  # if A and B change places


def core_dtype(dtype: str) -> str:
    """The data type whose core computes `dtype`: wrap-around sums do not depend on signedness."""
    return UNSIGNED.get(dtype, dtype)


def may_read_windows(kind: Kind, hardware: Hardware) -> bool:
    """Whether windows of images may be read in place, with rows of A in lanes."""
    return kind.floating and not kind.converts and not hardware.ordered


@functools.cache
def kind_of(dtype: str, hardware: Hardware) -> Kind:
    """The `Kind` of a data type on a machine; KeyError for a type without a core (complex)."""
    name = core_dtype(dtype)
    memory, element, memory_bytes, size = FORMATS[name]
    lanes = hardware.vector // size
    floating = element in ("float", "double")
    rows = 14 if hardware.registers >= 32 else 6
    together = 2 if name == "bf16" and hardware.brain else 1
    if not floating:
        return _integers(
            Kind(name, memory, element, memory_bytes, size, lanes, 6, 1 + (size >= 4), False),
            rows,
            hardware,
        )
    return Kind(name, memory, element, memory_bytes, size, lanes, rows, 2, True, together)


def _integers(kind: Kind, rows: int, hardware: Hardware) -> Kind:
    """The kind with what the names of operands and result say of it."""
    operands, _, sums = kind.name.partition("_")
    if not sums:
        return kind
    kind = kind._replace(unsigned=(operands[0] == "u", "u" in operands[-3:]), whole=True)
    if kind.memory != "i8" or not hardware.fast_bytes:
        return kind
    kind = kind._replace(transpose=True, together=4)
    # Signs that change take two more vectors of sums and one that is the same for all.
    return kind._replace(rows=rows - 2 if kind.flips else rows)


def even_rows(most: int, rows: int) -> int:
    """Rows of the tiles, `most` at most, of a product of so many rows (or of columns, where rows
    are in lanes): the height of which they are a multiple, so that one tile serves them all.

    A tile takes LLVM half a millisecond a row, and tiles of `tuned.even_tile` rows or more are as
    fast as higher ones: they have sums enough not to wait for each other. An open number of rows
    takes tiles of every height up to the highest.
    """
    if isinstance(rows, Size):
        return min(most, tuned.open_tile)
    whole = 2 * -(-rows // 2)
    heights = range(most, tuned.even_tile - 1, -2)
    return next((height for height in heights if whole % height == 0), most)
