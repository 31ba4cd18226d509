"""Contractions: matmul, einsum and convolution in one normal form with one generated core.

    C[batch..., m..., n...] = sum over k of A[batch, m, k] * B[batch, k, n]

Each group is a short list of `Dim`s: an extent and its stride in A, B and C in elements, zero where
the operand does not have it. Addresses are separable (row offset + column offset), which is all
that the core asks: a convolution is m = (image, row, column), k = (channel, kernel row, kernel
column) over a padded image, and nothing is unfolded in memory.

`plan` turns a `NormalForm` into the `params` of the core (`core_of`), which is compiled once per
data type and serves every shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from graphc.codegen.gemm.blocking import (
    Sizes,
    block,
    fetched_sum,
    grain_of,
    in_lanes,
    made_in_place,
    packed_batches,
    put_dims,
    put_panels,
    put_strides,
    put_workspace,
    route,
    same_a,
    same_tables,
    sizes_of,
    staged,
    thin_route,
    tile_rows,
    together,
    turning_rows,
)
from graphc.codegen.gemm.form import (
    Axis,
    Dim,
    Groups,
    NormalForm,
    axes_of,
    in_known_runs,
    in_roles,
    joined_and_apart,
    normalise,
    run_of,
    runs_apart,
    short_runs,
    turns_out,
)
from graphc.codegen.gemm.hardware import Hardware, hardware_of, host_target
from graphc.codegen.gemm.layout import DIMS, MAX_EXTRAS, Flag, Part, Word
from graphc.codegen.gemm.parts import Module, core_name, parts_of
from graphc.codegen.gemm.tile_choice import TURNED, core_dtype, even_rows, kind_of
from graphc.codegen.llvm.target import Target, machine, parse
from graphc.codegen.tuning import tuned
from graphc.ir.sizes import Size, alike, either, greatest, least
from graphc.seams import llvmlite as unlocked
from graphc.tuning import forgotten

if TYPE_CHECKING:
    import llvmlite.binding as llvm

__all__ = [
    "Dim",
    "Hardware",
    "Module",
    "NormalForm",
    "Part",
    "Plan",
    "compile_core",
    "compiled_core",
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
    is (which // divisor) % extent, or the sum of several such. `packed` is the size in bytes of B
    packed ahead of time (0 if B is not). `core` is the data type whose core runs it, `parts` the
    `Part`s that it needs. Columns may go on from run to run of C, each `run` long (0 if they do
    not, or nobody needs to know): column j is then "j" = j % run of "run" = j // run. Where sizes
    decide, `ways` says in words by what between which ways of running it. An epilogue of one that
    is `turned` sees columns as rows: rows i are along vectors, and may go on from run to run.
    """

    params: tuple[int, ...]
    units: int
    grain: int
    workspace: int
    swapped: bool
    axes: dict[str, tuple[tuple[Axis, ...], ...]]
    packed: int
    core: str
    parts: int
    run: int = 0
    ways: tuple[str, ...] = ()
    turned: bool = False


def core_of(dtype: str, hardware: Hardware, parts: int = Part.ALL) -> tuple[Module, ...]:
    """The modules of the core of a data type, each after those it calls; the last is the entry.

    It exports `contract_symbol(dtype, entry)`: the plain entry and the fused one (three more
    arguments: the epilogue and the prologues). Raises KeyError for a complex type.
    """
    from graphc.codegen.gemm.core import core_modules  # programs without products need none of it

    return core_modules(core_dtype(dtype), hardware, parts)


def compile_core(texts: Sequence[str], inner: bool, target: Target) -> bytes:
    """Object code of modules of a core.

    The texts are nearly final code: three cheap passes give the speed of LLVM's full pipeline in a
    twentieth of its time, and code generation at level 1 the same `inner` loops as level 2. What is
    around those runs too seldom to deserve even that: its registers are left in memory.
    """
    if not inner:
        return unlocked.emit_object(machine(target, 0), parse(texts, target))
    builder = machine(target, 1)
    return unlocked.emit_object(builder, compiled_core(texts, target, builder))


def compiled_core(
    texts: Sequence[str],
    target: Target,
    builder: llvm.TargetMachine,
    context: llvm.ContextRef | None = None,
) -> llvm.ModuleRef:
    """The optimised module of modules of a core."""
    import llvmlite.binding as llvm

    module = parse(texts, target, context)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    unlocked.run(passes, module, llvm.create_pass_builder(builder, options))
    return module


def contract_symbol(dtype: str, entry: str = "") -> str:
    """Exported symbol of the core of a data type; `entry` is "" or "fused"."""
    name = core_name(core_dtype(dtype))
    return f"{name}_{entry}" if entry else name


def emit_fused(
    name: str, dtype: str, epilogue: str, prologue_a: str = "", prologue_b: str = ""
) -> str:
    """LLVM IR of kernel `name`: the core of `dtype` with kernel `epilogue` on its finished tiles,
    and prologues for blocks of A and of B; "" is none.

    The symbols may live in different objects; all callees are declared here.
    """
    core = contract_symbol(dtype, "fused")
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


def panels_of(contraction: NormalForm, hardware: Hardware) -> Panels | None:
    """The operand that `plan(packed_b=True)` expects as panels; None if it changes format."""
    kind = kind_of(contraction.dtype, hardware)
    if kind.converts and not kind.bundles:
        return None
    groups = normalise(contraction, kind.columns, kind.lanes, kind.together)
    words = [0] * DIMS
    words[Word.FLAGS] = Flag.PACKED_B
    sizes = sizes_of(groups)
    put_panels(words, kind, groups, sizes._replace(k=-(-sizes.k // kind.together)))
    batch = groups.batch if packed_batches(groups, sizes) > 1 else []
    offset = contraction.offset_a if groups.swapped else contraction.offset_b
    each, k, n = (
        tuple(v for loop in g for v in (loop.extent, loop.b)) for g in (batch, groups.k, groups.n)
    )
    step = words[Word.PANEL_STEP] // kind.memory_bytes
    operand, columns = 1 - groups.swapped, kind.columns
    return Panels(operand, sizes.m, each, k, n, offset, columns, step, kind.together)


class Asked(NamedTuple):
    """What `plan` is asked for."""

    contraction: NormalForm
    hardware: Hardware
    threads: int
    epilogue: bool
    extras: int
    packed_b: bool
    stage: bool
    sources: tuple[int, int]


@forgotten
@functools.lru_cache(maxsize=4096)
def plan(
    contraction: NormalForm,
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
    asked = Asked(contraction, hardware, threads, epilogue, extras, packed_b, stage, sources)
    groups = in_roles(contraction, kind.columns, kind.lanes, kind.together)
    if packed_b or any(sources) or contraction.whole_rows:
        return _of_groups(asked, in_known_runs(groups, short_runs(groups, kind.columns)))
    short = _joined_runs(asked, groups)
    if not isinstance(short, Size):
        return _of_groups(asked, in_known_runs(groups, short))
    few, many = joined_and_apart(groups)
    # Short runs are several, of some tiles together; a run that is a product has some of its own.
    joined = _of_groups(asked, few, lambda n: 8 * kind.columns)
    apart = _of_groups(asked, many, lambda n: max(n, 2 * kind.columns))
    run = run_of(groups.n)
    axes = {g: _axes_of_runs(short, run, joined.axes[g], apart.axes[g]) for g in joined.axes}
    most = f"{2 * kind.columns} side by side"
    ways = (f"columns in runs of {run}: of fewer than {most} one product, else a product for each",)
    return _either(short, joined, apart)._replace(axes=axes, run=run, ways=ways)


def _joined_runs(asked: Asked, groups: Groups) -> int:
    """Positive where columns that lie in several short runs of C are those of one product.

    Not where rows in lanes read windows in place: a run fills tiles of so few columns.
    """
    kind = kind_of(core_in(asked.contraction, groups), asked.hardware)
    short = short_runs(groups, kind.columns)
    if not isinstance(short, Size) and short <= 0:
        return 0
    apart = runs_apart(groups)
    lanes = in_lanes(kind, asked.hardware, apart, sizes_of(apart))
    return least(short, greatest(1 - lanes, kind.rows - run_of(groups.n)))  # type: ignore[no-any-return]


def _of_groups(asked: Asked, groups: Groups, expected: Callable[[int], int] = lambda n: n) -> Plan:
    """The plan of a contraction in these roles, for as many columns as are `expected`."""
    contraction, hardware = asked.contraction, asked.hardware
    kind = kind_of(core_in(contraction, groups), hardware)
    sizes = sizes_of(groups)
    sources = asked.sources[::-1] if groups.swapped else asked.sources
    made = (Flag.MADE_A if sources[0] else 0) | (Flag.MADE_B if sources[1] else 0)
    thin, few = thin_route(kind, hardware, groups, sizes, asked.packed_b, made)
    flags = Flag.TILE if staged(kind, groups, asked.epilogue) or asked.stage else 0
    finishes = asked.epilogue and not contraction.whole_rows and not any(sources)
    if flags and finishes and turns_out(groups.m, groups.n):
        flags |= Flag.TURNED

    def made_for(near: Sizes, lanes: bool = False) -> Plan:
        tiles = Flag.LANES if lanes else route(kind, hardware, groups, near, asked.packed_b, made)
        chosen = flags | (thin if near.m <= few else tiles)
        chosen = chosen & ~Flag.TURNED if chosen & Flag.VECTOR else chosen
        return _planned(asked, groups, sources, chosen, near)

    lanes = 0 if asked.packed_b or made else in_lanes(kind, hardware, groups, sizes)
    near = sizes.at_hand._replace(n=expected(sizes.at_hand.n))
    many = near._replace(m=max(near.m, kind.columns), n=max(near.n, tuned.lane_columns))
    if not isinstance(lanes, Size) and lanes > 0:
        return made_for(near, lanes=True)
    if isinstance(sizes.m, Size):
        ends = [few, *turning_rows(kind, hardware, near)]
        copied = _for_any_rows(sizes.m, near, made_for, ends)
    else:
        copied = made_for(near)
    return _either(lanes, made_for(many, lanes=True), copied) if isinstance(lanes, Size) else copied


def core_in(contraction: NormalForm, groups: Groups) -> str:
    """The data type whose core runs a contraction, by the places that its operands got."""
    dtype = contraction.dtype
    return TURNED.get(dtype, dtype) if groups.swapped else dtype


def _for_any_rows(
    rows: Size, near: Sizes, made_for: Callable[[Sizes], Plan], ends: list[int]
) -> Plan:
    """A plan that runs as one made for about so many rows: those change at these `ends`."""
    ends = sorted(set(ends))
    made = made_for(near._replace(m=max(near.m, ends[-1] + 1)))
    below = made
    for start, end in reversed(list(pairwise([-1, *ends]))):
        plan = made_for(near._replace(m=near.m if start < near.m <= end else end))
        if not alike(plan.params, below.params):
            made, below = _either(end + 1 - rows, plan, made), plan
    return made


def _either(condition: int, first: Plan, second: Plan) -> Plan:
    """A plan that runs as the first one where the condition is positive, else as the second."""

    def choose(yes: int, no: int) -> int:
        return either(condition, yes, no)

    return first._replace(
        params=tuple(map(choose, first.params, second.params)),
        units=choose(first.units, second.units),
        grain=choose(first.grain, second.grain),
        workspace=choose(first.workspace, second.workspace),
        packed=choose(first.packed, second.packed),
        parts=first.parts | second.parts,
    )


def _axes_of_runs(
    short: int, run: int, joined: tuple[tuple[Axis, ...], ...], apart: tuple[tuple[Axis, ...], ...]
) -> tuple[tuple[Axis, ...], ...]:
    """Where the dims of a group lie, be it where columns go on from run to run or where they do
    not: the runs are of extent one in either the batch or among the columns."""
    made: list[tuple[Axis, ...]] = []
    for ((name, step, extent),), ((where, divisor, extent_apart),) in zip(
        joined, apart, strict=True
    ):
        if name == where:
            made.append(((name, either(short, step, divisor), extent),))
        else:
            one = (where, divisor, either(short, 1, extent_apart))
            made.append((one, ("run", step // run, either(short, extent, 1))))
    return tuple(made)


def _planned(
    asked: Asked, groups: Groups, sources: tuple[int, int], flags: int, near: Sizes
) -> Plan:
    """The plan of a route, by the sizes that are expected."""
    contraction, hardware = asked.contraction, asked.hardware
    core = core_in(contraction, groups)
    kind = kind_of(core, hardware)
    sizes = sizes_of(groups)
    words = [0] * DIMS
    words[Word.FLAGS], words[Word.DEPTH] = flags, sizes.k
    highest = tile_rows(flags, kind, hardware, groups)
    if not flags & (Flag.VECTOR | Flag.STREAM):
        highest = even_rows(highest, sizes.n if flags & Flag.LANES else sizes.m)
    kind = kind._replace(rows=highest)
    words[Word.TILE_ROWS] = kind.rows
    words[Word.FETCHED_SUM] = fetched_sum(flags, kind, hardware, sizes)
    count = together(words, kind)
    if count > 1:
        sizes, near = (s._replace(k=-(-s.k // count)) for s in (sizes, near))
    words[Word.M], words[Word.N], words[Word.K] = sizes.m, sizes.n, sizes.k
    words[Word.EXTRAS], words[Word.SOURCES_A], words[Word.SOURCES_B] = asked.extras, *sources
    block(words, kind, hardware, sizes, near, asked.threads, contraction.whole_rows)
    groups = made_in_place(words, kind, sizes, groups)
    put_strides(words, kind, contraction, groups)
    packed = put_panels(words, kind, groups, sizes)
    same = same_a(words, kind, hardware, groups)
    workspace = put_workspace(words, kind, sizes, same)
    for word, loops in zip(
        (Word.BATCH_DIMS, Word.M_DIMS, Word.N_DIMS, Word.K_DIMS), groups[:4], strict=True
    ):
        put_dims(words, word, loops, kind)
    units = words[Word.ROW_UNITS] * words[Word.COLUMN_UNITS] * sizes.batch
    parts = parts_of(words, kind, groups, hardware.ordered)
    words[Word.FLAGS] += same_tables(words) + same
    found = axes_of(contraction, groups)
    turned = bool(flags & Flag.TURNED)
    run = run_of(groups.m) if turned and run_of(groups.m) < sizes.m else 0
    if run:
        found = {g: tuple(_of_run(run, axis) for axis in axes) for g, axes in found.items()}
    return Plan(
        params=tuple(words),
        units=units,
        grain=grain_of(kind, sizes, units),
        workspace=workspace,
        swapped=groups.swapped,
        axes={g: tuple((axis,) for axis in axes) for g, axes in found.items()},
        packed=packed if flags & Flag.PACKED_B else 0,
        core=core,
        parts=parts,
        run=run,
        turned=turned,
    )


def _of_run(run: int, axis: Axis) -> Axis:
    """Where a dim lies if rows i are "i" = i % run of "run" = i // run."""
    which, divisor, extent = axis
    return ("run", divisor // run, extent) if which == "i" and divisor >= run else axis
