"""Contractions: matmul, einsum and convolution in one normal form with one generated core.

    C[batch..., m..., n...] = sum over k of A[batch, m, k] * B[batch, k, n]

Each group is a short list of `Dim`s: an extent and its stride in A, B and C in elements, zero where
the operand does not have it. Addresses are separable (row offset + column offset), which is all
that the core asks: a convolution is m = (image, row, column), k = (channel, kernel row, kernel
column) over a padded image, and nothing is unfolded in memory.

`plan` turns a `Contraction` into the `params` of the core (`core_of`), which is compiled once per
data type and serves every shape.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from graphc.codegen.gemm.blocking import (
    Sizes,
    block,
    grain_of,
    in_pairs,
    made_in_place,
    packed_batches,
    put_dims,
    put_panels,
    put_strides,
    put_workspace,
    route,
    same_tables,
    staged,
    thin_route,
    tile_rows,
)
from graphc.codegen.gemm.core import Module, core_modules, core_name
from graphc.codegen.gemm.form import Axis, Contraction, Dim, Groups, axes_of, normalise, total
from graphc.codegen.gemm.hardware import Hardware, core_dtype, hardware_of, host_target, kind_of
from graphc.codegen.gemm.layout import DIMS, MAX_EXTRAS, Flag, Part, Word
from graphc.codegen.gemm.parts import parts_of
from graphc.codegen.llvm.target import Target, machine, parse
from graphc.ir.sizes import Size, either
from graphc.seams import llvmlite as unlocked
from graphc.tuning import forgotten

__all__ = [
    "Contraction",
    "Dim",
    "Hardware",
    "Module",
    "Part",
    "Plan",
    "compile_core",
    "contract_symbol",
    "core_of",
    "emit_fused",
    "hardware_of",
    "host_target",
    "plan",
]


class Panels(NamedTuple):
    """How an operand is packed ahead: dims as pairs of extent and stride, all in elements.

    `operand` is 0 for A and 1 for B of the contraction; `rows` how many rows meet each panel;
    `together` how many neighbours in k lie side by side.
    """

    operand: int
    rows: int
    batch: tuple[int, ...]
    k: tuple[int, ...]
    n: tuple[int, ...]
    offset: int
    columns: int
    step: int
    together: int


class Plan(NamedTuple):
    """How the core runs one contraction.

    `swapped`: A and B trade places, so the data pointers must be given as [B, A, C, ...].
    `axes[group][d]` says where dim d of a group of the *contraction* lies in the indices an
    epilogue sees: (which, divisor, extent) with which one of "batch", "i", "j", so that its index
    is (which // divisor) % extent. `packed` is the size in bytes of B packed ahead of time (0 if
    B is not). `parts` are the `Part`s that a core needs to run it.
    """

    params: tuple[int, ...]
    units: int
    grain: int
    workspace: int
    swapped: bool
    axes: dict[str, tuple[Axis, ...]]
    packed: int
    parts: int


def core_of(dtype: str, hardware: Hardware, parts: int = Part.ALL) -> tuple[Module, ...]:
    """The modules of the core of a data type, each after those it calls; the last is the entry.

    It exports `contract_symbol(dtype, entry, parts)`: the plain entry and the fused one (three more
    arguments: the epilogue and the prologues). Raises KeyError for a complex type.
    """
    return core_modules(core_dtype(dtype), hardware, parts)


def compile_core(texts: Sequence[str], inner: bool, target: Target) -> bytes:
    """Object code of modules of a core.

    The texts are nearly final code: three cheap passes give the speed of LLVM's full pipeline in a
    twentieth of its time, and code generation at level 1 the same `inner` loops as level 2. What is
    around those runs too seldom to deserve even that.
    """
    module = parse(texts, target)
    builder = machine(target, 1 if inner else 0)
    import llvmlite.binding as llvm

    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    unlocked.run(passes, module, llvm.create_pass_builder(builder, options))
    return unlocked.emit_object(builder, module)


def contract_symbol(dtype: str, entry: str = "", parts: int = Part.ALL) -> str:
    """Exported symbol of the core of a data type; `entry` is "" or "fused"."""
    name = core_name(core_dtype(dtype), parts)
    return f"{name}_{entry}" if entry else name


def emit_fused(
    name: str,
    dtype: str,
    epilogue: str,
    parts: int = Part.ALL,
    prologue_a: str = "",
    prologue_b: str = "",
) -> str:
    """LLVM IR of kernel `name`: the core of `dtype` with kernel `epilogue` on its finished tiles,
    and prologues for blocks of A and of B; "" is none.

    The symbols may live in different objects; all callees are declared here.
    """
    core = contract_symbol(dtype, "fused", parts)
    arguments = "ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread"
    callees = [f"@{callee}" if callee else "null" for callee in (epilogue, prologue_a, prologue_b)]
    passed = ", ".join(f"ptr {callee}" for callee in callees)
    declared = "".join(
        f"declare i32 {callee}(ptr, ptr, i64, i64, i64)\n" for callee in callees if callee != "null"
    )
    return (
        f"declare i32 @{core}(ptr, ptr, i64, i64, i64, ptr, ptr, ptr)\n{declared}"
        f"define i32 @{name}({arguments}) nounwind {{\n"
        f"  %status = call i32 @{core}({arguments}, {passed})\n"
        f"  ret i32 %status\n}}\n"
    )


# -- planning ----------------------------------------------------------------------------------


def panels(contraction: Contraction, hardware: Hardware) -> Panels | None:
    """The operand that `plan(packed_b=True)` expects as panels; None if it changes format."""
    kind = kind_of(contraction.dtype, hardware)
    if kind.converts and not kind.pairs:
        return None
    together = 2 if kind.pairs else 1
    groups = normalise(contraction, kind.columns)
    words = [0] * DIMS
    sizes = Sizes(total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
    put_panels(words, kind, groups, sizes._replace(k=-(-sizes.k // together)))
    batch = groups.batch if packed_batches(groups, sizes) > 1 else []
    offset = contraction.offset_a if groups.swapped else contraction.offset_b
    dims = [
        tuple(v for loop in g for v in (loop.extent, loop.b)) for g in (batch, groups.k, groups.n)
    ]
    step = words[Word.PANEL_STEP] // kind.memory_bytes
    return Panels(
        1 - groups.swapped, sizes.m, dims[0], dims[1], dims[2], offset, kind.columns, step, together
    )


@forgotten
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
    sources: tuple[int, int] = (0, 0),
) -> Plan:
    """Decide roles, route, blocking and work units of a contraction.

    `epilogue`: it will run through `emit_fused`, with `extras` operands after the workspace.
    `packed_b`: the second operand (the first one if `swapped`) is given as `panels`. `stage`: the
    sums must not touch C (C has another format than the sums, or the epilogue reads what C held
    before).
    `sources`: not 0 for an operand that a prologue computes, from the buffers from there on.
    Raises ValueError for too many operands.
    """
    if extras > MAX_EXTRAS:
        raise ValueError(f"an epilogue takes at most {MAX_EXTRAS} operands, not {extras}")
    kind = kind_of(contraction.dtype, hardware)
    groups = normalise(contraction, kind.columns)
    sizes = Sizes(total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
    sources = sources[::-1] if groups.swapped else sources
    made = (Flag.MADE_A if sources[0] else 0) | (Flag.MADE_B if sources[1] else 0)
    thin, few = thin_route(kind, hardware, groups, sizes, packed_b, made)
    tiles = functools.partial(route, kind, hardware, groups, sizes, packed_b, made)
    rest = contraction, hardware, groups, threads, extras, sources, packed_b
    flags = Flag.TILE if staged(kind, groups, epilogue) or stage else 0
    if few and isinstance(sizes.m, Size):
        made_for_few = _planned(*rest, flags | thin)
        return _either(sizes.m, few, made_for_few, _planned(*rest, flags | tiles()))
    return _planned(*rest, flags | (thin if sizes.m <= few else tiles()))


def _either(rows: Size, few: int, thin: Plan, tiles: Plan) -> Plan:
    """A plan that takes the route for few rows where there are few."""
    condition = few + 1 - rows

    def choose(yes: int, no: int) -> int:
        return either(condition, yes, no)

    return thin._replace(
        params=tuple(map(choose, thin.params, tiles.params)),
        units=choose(thin.units, tiles.units),
        grain=choose(thin.grain, tiles.grain),
        workspace=choose(thin.workspace, tiles.workspace),
        packed=0,
        parts=thin.parts | tiles.parts,
    )


def _planned(
    contraction: Contraction,
    hardware: Hardware,
    groups: Groups,
    threads: int,
    extras: int,
    sources: tuple[int, int],
    packed_b: bool,
    flags: int,
) -> Plan:
    """The plan of a route."""
    kind = kind_of(contraction.dtype, hardware)
    sizes = Sizes(total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
    words = [0] * DIMS
    words[Word.FLAGS], words[Word.DEPTH] = flags, sizes.k
    kind = kind._replace(rows=tile_rows(flags, kind, hardware, groups, sizes))
    words[Word.TILE_ROWS] = kind.rows
    if in_pairs(words, kind):
        sizes = sizes._replace(k=-(-sizes.k // 2))
    words[Word.M], words[Word.N], words[Word.K] = sizes.m, sizes.n, sizes.k
    words[Word.EXTRAS], words[Word.SOURCES_A], words[Word.SOURCES_B] = extras, *sources
    block(words, kind, hardware, sizes, threads, contraction.whole_rows)
    groups = made_in_place(words, kind, sizes, groups)
    put_strides(words, kind, contraction, groups)
    packed = put_panels(words, kind, groups, sizes)
    workspace = put_workspace(words, kind, sizes)
    for word, loops in zip(
        (Word.BATCH_DIMS, Word.M_DIMS, Word.N_DIMS, Word.K_DIMS), groups[:4], strict=True
    ):
        put_dims(words, word, loops, kind.memory_bytes)
    units = words[Word.ROW_UNITS] * words[Word.COLUMN_UNITS] * sizes.batch
    parts = parts_of(words, kind, groups, hardware.ordered)
    words[Word.FLAGS] += same_tables(words)
    return Plan(
        params=tuple(words),
        units=units,
        grain=grain_of(sizes, units),
        workspace=workspace,
        swapped=groups.swapped,
        axes=axes_of(contraction, groups),
        packed=packed if packed_b else 0,
        parts=parts,
    )
