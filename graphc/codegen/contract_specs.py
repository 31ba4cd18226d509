"""Specs of products: by the contraction core, with a row in each lane, or one of a stack at a time.

Only programs with products need this and what it imports.
"""

from __future__ import annotations

from typing import Any

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.gemm.packed import check_packed, hardware_for, stored_in
from graphc.codegen.gpu.launch import Operand
from graphc.codegen.llvm.target import target_of
from graphc.codegen.llvm.vector_facts import has_masks
from graphc.codegen.lowering.contraction import EpilogueLowering, Form, form_of, reduces
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.lower import grain_of
from graphc.codegen.lowering.plain_contraction import direct
from graphc.codegen.lowering.prologue import prologue
from graphc.codegen.lowering.row_epilogue import FinishedRows
from graphc.codegen.lowering.row_products import RowProducts, inner_axes
from graphc.codegen.lowering.space import Space
from graphc.codegen.lowering.split_k import PartialSums, parts_of, plan_parts, whole_plan
from graphc.codegen.lowering.stacked_products import Small, StackedProducts, small_product
from graphc.codegen.spec import Spec, loop_spec, poll_of, rules
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.sizes import hint_of
from graphc.loops.facts import bytes_of_threads, work_bytes
from graphc.loops.nest import Kernel

FIRST_EXTRA = 4  # buffers of a contraction after A, B, C and the workspace


def contract_spec(region: Graph, config: Config, staged: bool) -> Spec:
    """The Spec of a region around one product."""
    if config.backend != "llvm":
        kernel = direct(region, "kernel", **rules(config), parity=config.parity)
        return loop_spec(kernel, 1, region, config)
    if not staged and sums_rows(region, config):
        nest = RowProducts(region, Space((), frozenset(), ()), "kernel", **rules(config))
        return loop_spec(nest.lower(), grain_of(nest), region, config)
    if not staged and (small := stacked(region, config)):
        stack = StackedProducts(region, Space((), frozenset(), ()), "kernel", **rules(config))
        stack.small = small
        return loop_spec(stack.lower(), grain_of(stack), region, config)
    return _core_spec(region, config, staged)


def sums_rows(region: Graph, config: Config) -> bool:
    """Is a product better computed with a row in each lane than by the contraction core?"""
    return not (config.strict or config.parity) and inner_axes(region) is not None


def stacked(region: Graph, config: Config) -> Small | None:
    """One product of a stack that is better computed without the contraction core."""
    if config.strict or config.parity:
        return None
    target = target_of(config)
    small = small_product(region, target.lanes(form_of(region).element.itemsize))
    fills = small is not None and (has_masks(target) or small.columns % target.lanes(8) == 0)
    return small if fills else None


def results_in_order(region: Graph, form: Form) -> list[int]:
    """Numbers of the results, one that is computed from the sums first.

    The sums may lie in the first result's memory: its store must come after they are read.
    """
    reached = {form.node}
    for node in region.nodes:
        if any(n in reached for n in node.inputs):
            reached.add(node)
    numbers = range(len(region.results))
    return sorted(numbers, key=lambda k: region.results[k] not in reached)


def _core_spec(region: Graph, config: Config, staged: bool) -> Spec:
    form = form_of(region)
    order = results_in_order(region, form)
    names = tuple(region.result_names[k] for k in order)
    region = region.replace(results=tuple(region.results[k] for k in order), result_names=names)
    rows = reduces(region)
    packed = check_packed(form, config)
    plain = _plan(form, config, packed_b=packed)
    parts = 1 if rows else parts_of(form, plain, config)
    if parts > 1:
        return _partial_spec(region, form, order, parts, config)
    bare = len(region.results) == 1 and behind_transposes(region.results[0]) is form.node
    fused = not bare or config.check_finite or form.rounds or turns(plain)
    fused = fused or _plan(form, config, packed_b=packed, epilogue=True).turned
    other = tensor_type(region.results[0]).dtype is not tensor_type(form.node).dtype
    options = {"epilogue": fused, "stage": staged or rows or (fused and other), "packed_b": packed}
    plan = _plan(form, config, sources=form.computed, **options)
    tail, workspace = [], plan.workspace * config.thread_count
    hooks: list[Kernel | None] = [None, None, None]  # the epilogue, and what computes A and B
    sizes: list[int] = []
    position = {p: k for k, p in enumerate(region.params)}
    if fused:
        kernel, params = _epilogue(region, form, plan, config)
        hooks[0], sizes = kernel, [*kernel.sizes]
        tail = [("out", k, 0) for k in order[1:]]
        tail += [("in", position[param], 0) for param in params]
        for buffer in kernel.buffers[len(tail) + 2 :]:
            tail.append(("work", workspace, 0))
            workspace += bytes_of_threads(buffer, config.thread_count)
    starts = [0, 0]
    for k in (k for k in (0, 1) if form.computed[k]):
        hooks[k + 1], params = prologue(region, form, plan, k, config.strict, sizes)
        starts[k] = FIRST_EXTRA + len(tail)
        tail += [("in", position[param], 0) for param in params]
    if tail:
        plan = _plan(form, config, extras=len(tail), sources=(starts[0], starts[1]), **options)
    sources = [
        ("work", 0, 0) if known else ("in", position[stored_in(read.source)], 0)
        for known, read in zip(form.computed, form.reads, strict=True)
    ]
    if plan.swapped:
        sources.reverse()
        hooks[1:] = hooks[:0:-1]
    operands = (*sources, ("out", order[0], 0), ("work", 0, 0), *tail)
    return Spec(
        "contract",
        operands,
        plan.units,
        plan.grain,
        (*plan.params, *sizes),
        workspace,
        hooks[0],
        (hooks[1], hooks[2]),
        plan.core,
        parts=plan.parts,
        poll=poll_of(region, plan.units),
        ways=plan.ways,
    )


def turns(plan: contract.Plan) -> bool:
    """Do dot products make a few columns as rows, which an epilogue had better turn?"""
    flags = hint_of(plan.params[Word.FLAGS])
    return plan.swapped and bool(flags & Flag.DOTS) and bool(flags & Flag.TILE)


def _partial_spec(region: Graph, form: Form, order: list[int], parts: int, config: Config) -> Spec:
    """A product of few sums as a batch of parts, and the kernel that adds them up."""
    plan = plan_parts(form, parts, config)
    position = {p: k for k, p in enumerate(region.params)}
    sources: list[Operand] = [("in", position[stored_in(read.source)], 0) for read in form.reads]
    if plan.swapped:
        sources.reverse()
    threads = plan.workspace * config.thread_count
    last = PartialSums(region, form, whole_plan(form, config), "kernel", parts)
    kernel = last.lower(**rules(config))
    sums = kernel.buffers[0]
    workspace = threads + work_bytes(sums)
    operands: list[Operand] = [("work", threads, 0), *(("out", k, 0) for k in order)]
    operands += [("in", position[param], 0) for param in last.operands]
    rows = hint_of(last.plan.params[Word.M])
    width = tensor_type(form.node).size // rows
    then = Spec("loop", tuple(operands), rows, rows, (0, 0, width, width), workspace, kernel)
    return Spec(
        "contract",
        (*sources, ("work", threads, 0), ("work", 0, 0)),
        plan.units,
        plan.grain,
        plan.params,
        workspace,
        core=plan.core,
        parts=plan.parts,
        poll=poll_of(region, plan.units),
        then=then,
    )


def behind_transposes(node: Node) -> Node:
    while node.op.traits.permutes:
        node = node.inputs[0]
    return node


def _epilogue(
    region: Graph, form: Form, plan: contract.Plan, config: Config
) -> tuple[Kernel, list[Node]]:
    """The kernel over finished tiles, and the parameters that it reads."""
    if reduces(region):
        rows = FinishedRows(region, form, plan, "kernel", **rules(config))
        return rows.lower(), rows.operands
    tiles = EpilogueLowering(region, form, plan, "kernel")
    return tiles.lower(**rules(config)), tiles.operands


def _plan(form: Form, config: Config, **options: Any) -> contract.Plan:
    target = hardware_for(config)
    return contract.plan(form.normal(), target, threads=config.thread_count, **options)
