"""From a fused node to its `Spec`: what it needs to run, the same wherever regions are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.gemm.packed import check_packed, hardware_for, stored_in
from graphc.codegen.gpu.launch import Operand
from graphc.codegen.llvm.target import target_of
from graphc.codegen.llvm.vector_facts import has_masks
from graphc.codegen.lowering.check_kernels import check_kernel
from graphc.codegen.lowering.contraction import EpilogueLowering, Form, form_of, reduces
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.in_place_update import patched_param
from graphc.codegen.lowering.lower import grain_of, lower_loops, lower_patch, lower_written
from graphc.codegen.lowering.plain_contraction import direct
from graphc.codegen.lowering.prologue import prologue
from graphc.codegen.lowering.row_epilogue import FinishedRows
from graphc.codegen.lowering.row_products import RowProducts, inner_axes
from graphc.codegen.lowering.space import Space
from graphc.codegen.lowering.split_k import PartialSums, parts_of, plan_parts, whole_plan
from graphc.codegen.lowering.stacked_products import Small, StackedProducts, small_product
from graphc.codegen.lowering.windows import windowed
from graphc.codegen.sorting import Native, native_of
from graphc.codegen.spec import Spec, copy_spec, rules
from graphc.codegen.table.copies import pieces_of
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.errors import UNCOMPUTABLE, GraphError, uncomputable
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Contraction, Library, looks_itself
from graphc.ir.regions import has_workspace
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import Type, leaves
from graphc.loops.facts import unit_work, work_stride
from graphc.loops.nest import Kernel
from graphc.loops.tuning import tuned as loops_tuned
from graphc.tuning import changes

FIRST_EXTRA = 4  # buffers of a contraction after A, B, C and the workspace
_SPECS: dict[Any, Spec] = {}


def region_key(node: Node) -> Any:
    """Equal for regions that compute the same thing on the same types.

    Ids are part of it: those of a file need not count from the parameters on.
    """
    region = node.regions[0]
    params = data_params(node)
    return (
        node.attrs,
        tuple([(p.id, p.type) for p in params]),
        tuple([(n.id, n.op, n.attrs, n.type, *[i.id for i in n.inputs]) for n in region.nodes]),
        tuple(r.id for r in region.results),
    )


def data_params(node: Node) -> tuple[Node, ...]:
    """The parameters that hold values, without the workspace."""
    params = node.regions[0].params
    return params[:-1] if has_workspace(node) else params


def spec_of(node: Node, config: Config) -> Spec:
    """The Spec of a fused node; equal regions share one.

    Raises VerifyError for a region that no kernel can be made of.
    """
    return _shared(node, config, check_kernel)


def _shared(node: Node, config: Config, check: Callable[[Node, Graph], None] | None) -> Spec:
    machine = config.backend, config.target, config.thread_count
    options = config.strict, config.parity, config.check_finite, config.precision
    key = (region_key(node), machine, options, changes())
    found = _SPECS.get(key)
    if found is None:
        if check is not None:
            with by_example():
                check(node, computing(node))
        if len(_SPECS) >= tuned.kept_specs:
            _SPECS.clear()
        try:
            found = _SPECS[key] = _made(node, config)
        except UNCOMPUTABLE as error:
            raise uncomputable(node.summary(), error).at(node.loc, node.describe()) from error
    return found


def _made(node: Node, config: Config) -> Spec:
    """What a fused node needs; regions that read other parts of an operand share a kernel."""
    if config.backend == "cuda":
        return _make(node, config)
    region, starts = windowed(node.regions[0])
    if region is node.regions[0]:
        return _make(node, config)
    return _begins(_shared(node.replace(regions=(region,)), config, None), starts)


def _begins(spec: Spec, starts: tuple[int, ...]) -> Spec:
    """The Spec for operands of which only what begins at these bytes is read."""
    operands = tuple(
        (kind, k, extra + starts[k] if kind == "in" else extra) for kind, k, extra in spec.operands
    )
    patch = spec.patch and (spec.patch[0], _begins(spec.patch[1], starts))
    then = spec.then and _begins(spec.then, starts)
    fields = {name: getattr(spec, name) for name in Spec.__match_args__}
    return Spec(**{**fields, "operands": operands, "patch": patch, "then": then})


def poll_of(region: Graph, units: int) -> int:
    """The units of a long kernel between two looks at the cancel flag."""
    busy = sum(
        n.op.estimate(n)[0]
        / (tuned.slow_flops if isinstance(n.op.lower, Contraction) else tuned.slow_steps)
        for n in region.nodes
    )
    kinds = [leaf for n in (*region.params, *region.results) for leaf in leaves(n.type)]
    nbytes = sum(kind.nbytes for kind in kinds if isinstance(kind, Type) and kind.is_static)
    is_told = all(
        n.op.cost is not None or not isinstance(n.op.lower, Library) for n in region.nodes
    )
    passes = 1 if is_told else tuned.untold_passes
    seconds = max(busy, hint_of(nbytes) * passes / tuned.slow_bytes)
    if isinstance(nbytes, Size):
        seconds *= loops_tuned.later_growth
    return (
        max(1, int(hint_of(units) * tuned.poll_seconds / seconds))
        if seconds > tuned.long_kernel
        else 0
    )


def computing(node: Node) -> Graph:
    """The region without the workspace."""
    region, params = node.regions[0], data_params(node)
    return region if len(params) == len(region.params) else region.replace(params=params)


def loops_poll(kernel: Kernel) -> int:
    """The same by what the loops of a kernel do."""
    work = unit_work(kernel)
    total = work * kernel.units
    growth = loops_tuned.later_growth if isinstance(total, Size) else 1
    if hint_of(total) * growth <= tuned.long_looks * loops_tuned.look_work:
        return 0
    each: int = hint_of(work)
    return max(1, loops_tuned.look_work // each)


def least_poll(*polls: int) -> int:
    return min((poll for poll in polls if poll), default=0)


def _make(node: Node, config: Config) -> Spec:
    region = computing(node)
    if config.backend != "llvm" and any(n.op.traits.unpacks for n in region.nodes):
        raise GraphError(
            f"%{node.id} reads constants that are packed for the LLVM backend",
            details=node.describe(),
            hint="compile the graph anew, from a stage before pack_constants",
        )
    kind = node.attrs["kind"]
    if config.backend == "cuda":
        from graphc.codegen.gpu.specs import cuda_spec

        return cuda_spec(region, kind, config)
    if kind == "library" and config.backend == "llvm":
        native = native_of(region.nodes[-1], target_of(config))
        if native is not None:
            return _native_spec(region, native, config)
    if kind == "library" and not written(region):
        return _library_spec(region)
    if kind == "contract" and config.backend == "llvm" and sums_rows(region, config):
        nest = RowProducts(region, Space((), frozenset(), ()), "kernel", **rules(config))
        return _loop_spec(nest.lower(), grain_of(nest), region, config)
    if kind == "contract" and config.backend == "llvm" and (small := stacked(region, config)):
        nest = StackedProducts(region, Space((), frozenset(), ()), "kernel", **rules(config))
        nest.small = small
        return _loop_spec(nest.lower(), grain_of(nest), region, config)
    if kind in ("contract", "staged") and config.backend == "llvm":
        return _contract_spec(region, config, staged=kind == "staged")
    if kind == "loop" and (pieces := pieces_of(region)) is not None:
        return copy_spec(pieces)
    if kind in ("contract", "staged"):
        kernel = direct(region, "kernel", **rules(config), parity=config.parity)
        return _loop_spec(kernel, 1, region, config)
    if kind in ("nest", "library"):
        kernel, grain = lower_written(region, "kernel", **rules(config))
    else:
        kernel, grain = lower_loops(region, "kernel", **rules(config), parity=config.parity)
    patch = None
    if kind == "loop" and (param := patched_param(region)) is not None:
        part = lower_patch(region, "kernel", **rules(config))
        patch = param, _loop_spec(*part, region, config)
    return _loop_spec(kernel, grain, region, config, patch)


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


def _loop_spec(
    kernel: Kernel, grain: int, region: Graph, config: Config, patch: tuple[int, Spec] | None = None
) -> Spec:
    operands: list[Operand] = [("in", k, 0) for k in range(len(region.params))]
    results = sum(len(leaves(result.type)) for result in region.results)
    operands += [("out", k, 0) for k in range(results)]
    workspace = 0
    for buffer in kernel.buffers[len(operands) :]:
        operands.append(("work", workspace, 0))
        workspace += work_stride(buffer) * (config.thread_count if buffer.mode == "work" else 1)
    units, then = kernel.units, None
    if kernel.then is not None:  # it folds what little each unit has made
        many = kernel.then.units
        then = Spec("loop", tuple(operands), many, many, kernel.then.sizes, workspace, kernel.then)
    return Spec(
        "loop",
        tuple(operands),
        units,
        grain,
        kernel.sizes,
        workspace,
        kernel,
        patch=patch,
        poll=least_poll(poll_of(region, units), loops_poll(kernel)),
        then=then,
    )


# ------------------------------------------------------------------------------------ contractions


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


def _contract_spec(region: Graph, config: Config, staged: bool) -> Spec:
    form = form_of(region)
    order = results_in_order(region, form)
    names = tuple(region.result_names[k] for k in order)
    region = region.replace(results=tuple(region.results[k] for k in order), result_names=names)
    rows = reduces(region)
    plain = _plan(form, config)
    parts = 1 if rows else parts_of(form, plain, config)
    if parts > 1:
        return _partial_spec(region, form, order, parts, config)
    bare = len(region.results) == 1 and behind_transposes(region.results[0]) is form.node
    fused = not bare or config.check_finite or form.rounds or turns(plain)
    other = tensor_type(region.results[0]).dtype is not tensor_type(form.node).dtype
    options = {
        "epilogue": fused,
        "stage": staged or rows or (fused and other),
        "packed_b": check_packed(form, config),
    }
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
            workspace += work_stride(buffer) * config.thread_count
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
    )


def turns(plan: contract.Plan) -> bool:
    """Do dot products make a few columns as rows, which an epilogue had better turn?"""
    flags = hint_of(plan.params[Word.FLAGS])
    return plan.swapped and bool(flags & Flag.DOTS) and bool(flags & Flag.TILE)


def _partial_spec(region: Graph, form: Form, order: list[int], parts: int, config: Config) -> Spec:
    """A product of one row as a batch of parts, and the kernel that adds them up."""
    plan = plan_parts(form, parts, config)
    position = {p: k for k, p in enumerate(region.params)}
    sources: list[Operand] = [("in", position[stored_in(read.source)], 0) for read in form.reads]
    if plan.swapped:
        sources.reverse()
    threads = plan.workspace * config.thread_count
    last = PartialSums(region, form, whole_plan(form, config), "kernel", parts)
    kernel = last.lower(**rules(config))
    sums = kernel.buffers[0]
    workspace = threads + work_stride(sums)
    operands: list[Operand] = [("work", threads, 0), *(("out", k, 0) for k in order)]
    operands += [("in", position[param], 0) for param in last.operands]
    width = tensor_type(form.node).size
    then = Spec("loop", tuple(operands), 1, 1, (0, 0, width, width), workspace, kernel)
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


# ---------------------------------------------------------------------------------- library kernels


def written(region: Graph) -> bool:
    """Does the library op of a region have loops for CPUs?"""
    node = region.nodes[-1]
    lower = node.op.lower
    return isinstance(lower, Library) and lower.loops(node) is not None


def _library_operands(region: Graph) -> list[Operand]:
    """The operands of the op, then its results."""
    node = region.nodes[-1]
    position = {p.id: k for k, p in enumerate(region.params)}
    operands: list[Operand] = [("in", position[n.id], 0) for n in node.inputs]
    return operands + [("out", k, 0) for k in range(len(leaves(node.type)))]


def _native_spec(region: Graph, native: Native, config: Config) -> Spec:
    node = region.nodes[-1]
    lower = node.op.lower
    assert isinstance(lower, Library)
    units = lower.units(node) if lower.units is not None else 1
    work: list[Operand] = [("work", 0, 0)] if native.has_scratch else []
    return Spec(
        "native",
        (*_library_operands(region), *work),
        units,
        int(lower.units is not None),
        native.params,
        native.scratch * config.thread_count,
        native=native.text,
        poll=poll_of(region, units) if lower.units is not None else 0,
    )


def _library_spec(region: Graph) -> Spec:
    node = region.nodes[-1]
    lower = node.op.lower
    assert isinstance(lower, Library)
    assert lower.kernel is not None
    types = [tensor_type(n) for n in node.inputs] + [
        t for t in leaves(node.type) if isinstance(t, Type)
    ]
    operands = _library_operands(region)
    kinds = [t.dtype for t in types]
    sizes = [t.size for t in types]
    workspace = 0
    for element, count in lower.workspace(node):
        operands.append(("work", workspace, 0))
        kinds.append(element)
        sizes.append(count)
        workspace += -(-count * element.itemsize // 64) * 64
    units = lower.units(node) if lower.units is not None else 1
    # Workspace of a library kernel is not per thread, so only kernels without any may be split.
    grain = 1 if lower.units is not None and not workspace else 0
    params = (*sizes, *lower.params(node))
    function = lower.kernel(node)
    is_cut = lower.units is not None and not looks_itself(function)
    return Spec(
        "library",
        tuple(operands),
        units,
        grain,
        params,
        workspace,
        library=(function, tuple(kinds), lower.units is not None),
        poll=poll_of(region, units) if is_cut else 0,
    )
