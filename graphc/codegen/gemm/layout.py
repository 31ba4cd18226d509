"""Layout of the `params` array shared by the planner (Python) and the core (generated code).

All strides, offsets and steps are in bytes; sizes and blockings in elements. Plain integers rather
than enumerations: planning runs for every shape and reads them a hundred times.
"""


class Word:
    """Position of each scalar in `params`; the dims follow from `DIMS` on, four words each."""

    FLAGS = 0
    M = 1
    N = 2
    K = 3
    ROW_BLOCK = 4
    K_BLOCK = 5
    UNIT_COLUMNS = 6
    UNIT_ROWS = 7
    ROW_UNITS = 8
    COLUMN_UNITS = 9
    FINISH_COLUMNS = 10
    WORKSPACE = 11
    OFFSET_A = 12
    OFFSET_B = 13
    OFFSET_C = 14
    EXTRAS = 15
    ROW_STEP = 16
    PANEL_STEP = 17
    TILE_LEAD = 18
    PACKED_STEP = 19
    STEP_A = 20
    STEP_B = 21
    LEAD_C = 22
    BATCH_DIMS = 23
    M_DIMS = 24
    N_DIMS = 25
    K_DIMS = 26
    ROW_A = 27
    ROW_A_RUN = 28
    ROW_C = 29
    ROW_PACKED = 30
    ROW_OUT = 31
    COLUMN_B = 32
    COLUMN_B_RUN = 33
    COLUMN_C = 34
    COLUMN_C_RUN = 35
    K_A = 36
    K_A_RUN = 37
    K_B = 38
    K_B_RUN = 39
    BLOCK_A = 40
    TILE = 41
    PANELS_B = 42
    SCRATCH = 43
    # Where the dims of each group start; in the order of the four counts above.
    BATCH_AT = 44
    M_AT = 45
    N_AT = 46
    K_AT = 47
    # Steps of k in memory; `K` counts bundles where tiles multiply bundles.
    DEPTH = 48
    # Most rows of a register tile: an even number, the tallest there is or less.
    TILE_ROWS = 49
    # Of operands that are computed block by block: where in the workspace, from which buffer on
    # what they are computed from, and how far apart rows (of B: columns) are.
    MADE_A = 50
    MADE_B = 51
    SOURCES_A = 52
    SOURCES_B = 53
    LINE_A = 54
    LINE_B = 55
    # C is fetched while a tile runs if sums are of more steps of k.
    FETCHED_SUM = 56
    # So many products of a batch, one after the other, multiply the same A.
    A_RUN = 57
    # Where in the workspace finished columns of a panel lie as rows, and how far apart in bytes.
    TURNED = 58
    TURNED_STEP = 59


DIMS = 60
DIM_WORDS = 4
STREAM_ROWS = 4  # most rows of tiles for panels that are one stream of memory
MAX_EXTRAS = 160  # nodes of the largest group as results and in scratch, and its operands


class Flag:
    """Bits of `Word.FLAGS`: which of the routes of the core a plan takes."""

    PACK_A = 1
    PACK_B = 2
    PACKED_B = 4
    TILE = 8
    DOTS = 16
    ROWS = 32
    LATE = 64
    SAME_ROWS = 128
    SAME_COLUMNS = 256
    MADE_A = 512
    MADE_B = 1024
    COPIES = 2048  # the first tiles read B in place and make its panels
    LANES = 4096  # rows of A lie in lanes, and B is read in place through tables
    SAME_A = 8192  # units of `A_RUN` products multiply the same block of A: one copy for them
    WINDOWS = 16384  # A is read in place, through a table of its steps of k, too
    TURNED = 65536  # an epilogue gets columns of finished tiles as rows: those lie together in C
    STREAM = 32768  # few rows: panels packed ahead are read once, as one stream of memory
    VECTOR = DOTS | ROWS


class Part:
    """Bits that say which functions a core is made of: a program compiles what its plans need."""

    DOTS = 1  # matrix-vector kernels
    ROWS = 2
    TILES = 4  # register tiles as wide as a panel
    NARROW = 8  # those of one vector
    PACK_A = 16
    PACK_B = 32
    TURNS = 64  # copies that transpose squares in registers
    DOT_TILES = 128  # dot products of several rows
    SCATTER = 256  # finished tiles that go to C from the workspace
    BRISK = 1 << 24  # no function: what is around the tiles is worth LLVM's time
    BRISK_ROWS = 1 << 27  # no function: and what is around the matrix-vector kernels
    TABLES = 1 << 25  # no function: the tables of offsets are, too
    MADE = 1 << 26  # operands that prologues compute
    TURN = 1 << 60  # finished tiles whose columns become rows
    ORDERED = 1 << 16  # no function: sums in the order of k
    ALL = -1


def height_bit(rows: int) -> int:
    """The part that is the register tiles of an even number of rows."""
    return Part.SCATTER << rows // 2


def copy_bit(rows: int) -> int:
    """The part that is the register tile of an even number of rows that also makes a panel."""
    return Part.ORDERED << rows // 2


def window_bit(rows: int) -> int:
    """The part that is the register tile of an even number of rows of windows."""
    return Part.BRISK_ROWS << rows // 2


def stream_bit(rows: int) -> int:
    """The part that is the tile of 1 to 4 rows for panels that are one stream of memory."""
    return window_bit(14) << rows


def lane_bit(columns: int) -> int:
    """The part that is the tile of an even number of columns whose lanes are rows of A."""
    return stream_bit(STREAM_ROWS) << columns // 2


def narrow_lane_bit(columns: int) -> int:
    """The same whose lanes are one vector."""
    return lane_bit(14) << columns // 2


def half_lane_bit(columns: int) -> int:
    """The same whose lanes are half of one."""
    return narrow_lane_bit(14) << columns // 2


def half_of(tile: int, narrow: bool) -> int:
    """The part that is the tile of these rows, or windows, whose last vector is half of one: it
    ends with the second, or, `narrow`, is the first."""
    return tile << (128 if narrow else 64)


class Slot:
    """Place of each function in the table through which the walk calls them."""

    PACK_A = 0
    PACK_A_BUNDLES = 1
    PACK_B = 2
    SCATTER = 3
    DOTS = 4
    DOT = 5
    DOT_TILE = 6
    DOT_ROW = 7
    ROWS = 8
    ROW = 9
    TILES = 9  # these three: plus half the number of rows, 1 to 7
    NARROW = 16
    COPIES = 23
    WINDOWS = 30  # as TILES and NARROW, and as far from one another
    NARROW_WINDOWS = 37
    LANES = 44  # plus half the number of columns
    NARROW_LANES = 51
    HALF_LANES = 58
    VECTOR = 66  # what calls DOTS to ROW
    BLOCK = 67  # what calls the tiles
    STREAM = 67  # plus the number of rows, 1 to 4
    # Steps of VECTOR and of BLOCK.
    FILL = 72
    FILL_ROWS = 73
    PACK_ROWS = 74
    PACK_COLUMNS = 75
    MAKE = 76
    FINISH = 77
    LANE_STRIP = 78
    LANE_PACK = 79
    TURN = 80
    HALF_TILES = 80  # as TILES to NARROW_WINDOWS, but for COPIES
    HALF_NARROW = 87
    HALF_WINDOWS = 94
    HALF_NARROW_WINDOWS = 101
    COUNT = 109


class Field:
    """Position of a stride inside the four words of a dim (0 is the extent)."""

    A = 1
    B = 2
    C = 3
