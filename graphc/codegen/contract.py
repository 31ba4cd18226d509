"""Contractions: matmul, einsum and convolution in one normal form with one generated core.

    C[batch..., m..., n...] = sum over k of A[batch, m, k] * B[batch, k, n]

Each group is a short list of `Dim`s: an extent and its stride in A, B and C in elements, zero where
the operand does not have it. Addresses are separable (row offset + column offset), which is all
that the core asks: a convolution is m = (image, row, column), k = (channel, kernel row, kernel
column) over a padded image, and nothing is unfolded in memory.

`plan` turns a `Contraction` into the `params` of the core (`core_ir`), which is compiled once per
data type and serves every shape.
"""

import functools
from typing import NamedTuple

import llvmlite.binding as llvm

from graphc.codegen.contract_core import build_core, core_name
from graphc.codegen.contract_form import (
    Axis,
    Contraction,
    Dim,
    Groups,
    Loop,
    axes_of,
    normalise,
    step_of,
    total,
)
from graphc.codegen.contract_hardware import (
    Hardware,
    Kind,
    core_dtype,
    hardware_of,
    host_target,
    kind_of,
)
from graphc.codegen.contract_layout import DIMS, MAX_EXTRAS, Flag, Word
from graphc.codegen.target import Target, machine, parse

__all__ = [
    "Contraction",
    "Dim",
    "Hardware",
    "Plan",
    "contract_symbol",
    "core_ir",
    "core_object",
    "emit_fused",
    "hardware_of",
    "host_target",
    "plan",
]


class Plan(NamedTuple):
    """How the core runs one contraction.

    `swapped`: A and B trade places, so the data pointers must be given as [B, A, C, ...].
    `axes[group][d]` says where dim d of a group of the *contraction* lies in the indices an
    epilogue sees: (which, divisor, extent) with which one of "batch", "i", "j", so that its index
    is (which // divisor) % extent. `packed` is the size in bytes of B packed ahead of time (0 if
    B is not).
    """

    params: tuple[int, ...]
    units: int
    grain: int
    workspace: int
    swapped: bool
    axes: dict[str, tuple[Axis, ...]]
    packed: int
    pack_units: int


@functools.cache
def core_ir(dtype: str, hardware: Hardware) -> str:
    """LLVM IR text of the core of a data type: a whole module, to be parsed and linked.

    Exports `graphc_contract_<dtype>`, `..._fused` (one more argument: the epilogue) and
    `..._pack`. Raises KeyError for a complex type.
    """
    return build_core(core_dtype(dtype), hardware)


def core_object(dtype: str, target: Target) -> bytes:
    """Object code of the core of a data type for a CPU.

    The text is nearly final code: three cheap passes give the speed of LLVM's full pipeline in a
    twentieth of its time, and code generation at level 1 the same inner loops as level 2.
    """
    module = parse([core_ir(dtype, hardware_of(target))], target)
    builder = machine(target, 1)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    passes.run(module, llvm.create_pass_builder(builder, options))
    made: bytes = builder.emit_object(module)
    return made


def contract_symbol(dtype: str, entry: str = "") -> str:
    """Exported symbol of the core of a data type; `entry` is "", "fused" or "pack"."""
    name = core_name(core_dtype(dtype))
    return f"{name}_{entry}" if entry else name


def emit_fused(name: str, dtype: str, epilogue: str) -> str:
    """LLVM IR of kernel `name`: the core of `dtype` with kernel `epilogue` on its finished tiles.

    The three symbols may live in three objects; both callees are declared here.
    """
    core = contract_symbol(dtype, "fused")
    arguments = "ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread"
    return (
        f"declare i32 @{core}(ptr, ptr, i64, i64, i64, ptr)\n"
        f"declare i32 @{epilogue}(ptr, ptr, i64, i64, i64)\n"
        f"define i32 @{name}({arguments}) nounwind {{\n"
        f"  %status = call i32 @{core}({arguments}, ptr @{epilogue})\n"
        f"  ret i32 %status\n}}\n"
    )


# -- planning ----------------------------------------------------------------------------------


class _Sizes(NamedTuple):
    """Extents of the groups and cost of the whole contraction."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.n * self.k


@functools.lru_cache(maxsize=4096)
def plan(
    contraction: Contraction,
    hardware: Hardware,
    *,
    threads: int = 1,
    epilogue: bool = False,
    extras: int = 0,
    packed_b: bool = False,
    stage: bool = False,
) -> Plan:
    """Decide roles, route, blocking and work units of a contraction.

    `epilogue`: it will run through `emit_fused`, with `extras` operands after the workspace.
    `packed_b`: the second operand (the first one if `swapped`) is given as the panels of the pack
    entry. `stage`: the sums must not touch C (C has another format than the sums, or the epilogue
    reads what C held before). Raises ValueError for too many operands.
    """
    if extras > MAX_EXTRAS:
        raise ValueError(f"an epilogue takes at most {MAX_EXTRAS} operands, not {extras}")
    kind = kind_of(contraction.dtype, hardware)
    groups = normalise(contraction, kind.columns)
    sizes = _Sizes(total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
    flags = _route(kind, hardware, groups, sizes, packed_b)
    if _staged(kind, groups, epilogue) or stage:
        flags |= Flag.TILE
    words = [0] * DIMS
    words[Word.FLAGS] = flags
    words[Word.M], words[Word.N], words[Word.K] = sizes.m, sizes.n, sizes.k
    words[Word.EXTRAS] = extras
    _block(words, kind, hardware, sizes, threads)
    _strides(words, kind, contraction, groups)
    packed = _panels(words, kind, groups, sizes)
    workspace = _workspace(words, kind, sizes)
    for word, loops in zip(
        (Word.BATCH_DIMS, Word.M_DIMS, Word.N_DIMS, Word.K_DIMS), groups[:4], strict=True
    ):
        _dims(words, word, loops, kind.memory_bytes)
    tiles = words[Word.ROW_UNITS] * words[Word.COLUMN_UNITS]
    units = tiles * sizes.batch
    unit_work = max(1, sizes.work // max(1, units))
    return Plan(
        params=tuple(words),
        units=units,
        grain=max(1, min(units, GRAIN_WORK // unit_work)),
        workspace=workspace,
        swapped=groups.swapped,
        axes=axes_of(contraction, groups),
        packed=packed if packed_b else 0,
        pack_units=words[Word.COLUMN_UNITS] * _packed_batches(groups, sizes),
    )


GRAIN_WORK = 1 << 18
UNIT_WORK = 1 << 20
VECTOR_COLUMNS = 4096
DOT_ROWS = 8
# Rows a multiple of 1/128 of the second level apart share an eighth of its sets or less.
WAYS = 128
LATE_BYTES = 2 << 20
DEEPEST_BLOCK = 512


def _route(kind: Kind, hardware: Hardware, groups: Groups, sizes: _Sizes, packed_b: bool) -> int:
    """Flags: matrix-vector or tiles, and which operands are packed."""
    n, k = groups.n, groups.k
    step_a, step_b = step_of(k, "a"), step_of(k, "b")
    plain_n = not n or step_of(n, "b") == 1
    if sizes.m <= DOT_ROWS and sizes.k > 0 and step_b is not None and not packed_b:
        pack_x = Flag.PACK_A if kind.converts or (k and step_a != 1) else 0
        if not k or (step_b == 1 and not (plain_n and n)):
            return Flag.DOTS | pack_x
        if plain_n and sizes.m == 1 and sizes.n >= kind.columns:
            return Flag.ROWS | pack_x
    flags = 0
    if packed_b:
        flags |= Flag.PACKED_B
    elif (
        kind.converts
        or step_b is None
        or not plain_n
        or _worth_b(kind, hardware, sizes)
        or (not hardware.masked and sizes.n % kind.columns)
    ):
        flags |= Flag.PACK_B
    if kind.converts or step_a is None or _worth_a(kind, hardware, groups, sizes):
        flags |= Flag.PACK_A
    return flags


def _worth_b(kind: Kind, hardware: Hardware, sizes: _Sizes) -> bool:
    """Whether B is read often enough, from badly enough, for a packed copy to pay."""
    tiles = -(-sizes.m // kind.rows)
    if tiles <= 3:
        return False
    return sizes.k * sizes.n * kind.bytes > hardware.l2 // 2


def _worth_a(kind: Kind, hardware: Hardware, groups: Groups, sizes: _Sizes) -> bool:
    """Whether rows (or steps of k) of A lie so that they evict each other from the second level.

    Otherwise a copy gains nothing: tiles read A in short streams that fetch themselves.
    """
    if sizes.n <= 4 * kind.columns or sizes.m <= 2 * kind.rows:
        return False
    apart = hardware.l2 // WAYS
    strides = [loop.a * kind.bytes for loop in (*groups.m[-1:], *groups.k)]
    return any(stride and stride % apart == 0 for stride in strides)


def _staged(kind: Kind, groups: Groups, epilogue: bool) -> bool:
    """Whether sums need a workspace tile: C is not rows of contiguous sums."""
    if kind.converts or (groups.n and step_of(groups.n, "c") != 1):
        return True
    return epilogue and step_of(groups.m, "c") is None


def _block(words: list[int], kind: Kind, hardware: Hardware, sizes: _Sizes, threads: int) -> None:
    """Cache blocks and work units. The k block depends on k alone: it shapes rounding."""
    flags, size = words[Word.FLAGS], kind.bytes
    deepest = min(DEEPEST_BLOCK, max(64, hardware.l1 * 4 // 3 // (kind.columns * size)))
    pieces = max(1, -(-sizes.k // deepest))
    depth = max(1, -(-sizes.k // pieces))
    rows = max(kind.rows, hardware.l2 * 9 // 20 // (depth * size) // kind.rows * kind.rows)
    rows = min(rows, 256 // kind.rows * kind.rows)
    columns = _round(sizes.n, kind.columns)
    if flags & (Flag.DOTS | Flag.ROWS):
        columns = min(columns, VECTOR_COLUMNS)
    if flags & Flag.PACK_B:
        fitting = hardware.l3 // 8 // (sizes.k * size + 1) // kind.columns * kind.columns
        if sizes.m <= rows or fitting < 4 * kind.columns:
            words[Word.FLAGS] = flags = flags ^ Flag.PACK_B | Flag.LATE
            fitting = LATE_BYTES // (depth * size) // kind.columns * kind.columns
        columns = min(columns, max(kind.columns, fitting))
    if flags & Flag.TILE:
        columns = min(columns, 512)
    wanted = min(4 * threads, sizes.work // UNIT_WORK) if threads > 1 else 1
    unit_rows = max(1, sizes.m)
    have = max(1, sizes.batch * -(-sizes.n // columns))
    if have < wanted:
        share = -(-wanted // have)
        if sizes.m >= share * 4 * kind.rows or sizes.m >= sizes.n:
            unit_rows = _round(-(-sizes.m // share), kind.rows)
        else:
            columns = _round(-(-columns // share), kind.columns)
    words[Word.ROW_BLOCK] = rows
    words[Word.K_BLOCK] = depth
    words[Word.UNIT_COLUMNS] = columns
    words[Word.UNIT_ROWS] = unit_rows
    words[Word.ROW_UNITS] = -(-sizes.m // unit_rows)
    words[Word.COLUMN_UNITS] = -(-sizes.n // columns)
    words[Word.FINISH_COLUMNS] = min(columns, 8 * kind.columns)
    if words[Word.ROW_UNITS] == 1 and sizes.m <= rows:
        words[Word.FLAGS] |= Flag.SAME_ROWS
    if words[Word.COLUMN_UNITS] == 1 and sizes.k <= depth:
        words[Word.FLAGS] |= Flag.SAME_COLUMNS


def _round(value: int, step: int) -> int:
    """The next multiple of `step`, at least one."""
    return max(step, -(-value // step) * step)


def _strides(words: list[int], kind: Kind, contraction: Contraction, groups: Groups) -> None:
    """Offsets and single-dim steps in bytes. In-place operands are stepped by these."""
    size = kind.memory_bytes
    first, second = contraction.offset_a, contraction.offset_b
    if groups.swapped:
        first, second = second, first
    words[Word.OFFSET_A], words[Word.OFFSET_B] = first * size, second * size
    words[Word.OFFSET_C] = contraction.offset_c * size
    words[Word.STEP_A] = (step_of(groups.k, "a") or 0) * size
    words[Word.STEP_B] = (step_of(groups.k, "b") or 0) * size
    words[Word.LEAD_C] = step_of(groups.m, "c") or 0


def _panels(words: list[int], kind: Kind, groups: Groups, sizes: _Sizes) -> int:
    """Panel layout of B; returns its bytes. Spare rows take the overhang of transposition."""
    depth = words[Word.K_BLOCK] if words[Word.FLAGS] & Flag.LATE else sizes.k
    step = (depth + kind.lanes) * kind.columns * kind.bytes + 64
    words[Word.PANEL_STEP] = step
    one = _round(sizes.n, kind.columns) // kind.columns * step
    batches = _packed_batches(groups, sizes)
    words[Word.PACKED_STEP] = one if batches > 1 else 0
    return batches * one


def _packed_batches(groups: Groups, sizes: _Sizes) -> int:
    """Number of different B matrices."""
    return sizes.batch if any(loop.b for loop in groups.batch) else 1


def _workspace(words: list[int], kind: Kind, sizes: _Sizes) -> int:
    """Lay out one thread's workspace and return its bytes; unused regions are empty."""
    flags = words[Word.FLAGS]
    vector = flags & (Flag.DOTS | Flag.ROWS)
    rows = min(words[Word.ROW_BLOCK], max(1, sizes.m))
    depth = sizes.k if vector else words[Word.K_BLOCK]
    columns = min(words[Word.UNIT_COLUMNS], _round(sizes.n, kind.columns))
    padded = rows + kind.lanes
    row_step = (_round(depth, kind.lanes) + kind.lanes) * kind.bytes
    lead = columns + kind.lanes
    words[Word.ROW_STEP], words[Word.TILE_LEAD] = row_step, lead
    packs_b = flags & (Flag.PACK_B | Flag.LATE)
    tile = rows * lead * kind.bytes if flags & Flag.TILE else 0
    panels = columns // kind.columns * words[Word.PANEL_STEP] if packs_b else 0
    packed_a = padded * row_step if flags & Flag.PACK_A else 0
    tables_k = depth * 8 if flags & ~(Flag.TILE | Flag.DOTS | Flag.ROWS) else 0
    position = 0
    for word, extent in (
        *((word, rows * 8 + 8) for word in _ROW_TABLES),
        *((word, columns * 8) for word in _COLUMN_TABLES),
        *((word, tables_k) for word in _K_TABLES),
        (Word.SCRATCH, kind.columns * kind.bytes),
        (Word.BLOCK_A, packed_a),
        (Word.TILE, tile),
        (Word.PANELS_B, panels),
    ):
        words[word] = position
        position += -(-extent // 64) * 64
    # An odd number of lines keeps the threads' regions out of each other's cache sets.
    words[Word.WORKSPACE] = position = (position // 64 | 1) * 64
    return position


_ROW_TABLES = (Word.ROW_A, Word.ROW_A_RUN, Word.ROW_C, Word.ROW_PACKED, Word.ROW_OUT)
_COLUMN_TABLES = (Word.COLUMN_B, Word.COLUMN_B_RUN, Word.COLUMN_C, Word.COLUMN_C_RUN)
_K_TABLES = (Word.K_A, Word.K_A_RUN, Word.K_B, Word.K_B_RUN)


def _dims(words: list[int], word: int, loops: list[Loop], size: int) -> None:
    """Append the dims of a group in bytes; an empty group is one dim of extent one."""
    words[word] = max(1, len(loops))
    words[word - Word.BATCH_DIMS + Word.BATCH_AT] = len(words)
    if not loops:
        words += (1, 0, 0, 0)
    for loop in loops:
        words += (loop.extent, loop.a * size, loop.b * size, loop.c * size)
