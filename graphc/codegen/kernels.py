"""From a fused node to its `Spec`: what it needs to run, the same wherever regions are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphc.codegen.gpu.launch import Operand
from graphc.codegen.llvm.target import target_of
from graphc.codegen.lowering.check_kernels import check_kernel
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.in_place_update import patched_param
from graphc.codegen.lowering.lower import lower_loops, lower_patch, lower_written
from graphc.codegen.lowering.windows import windowed
from graphc.codegen.spec import Spec, copy_spec, loop_spec, poll_of, rules
from graphc.codegen.table.copies import pieces_of
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.errors import UNCOMPUTABLE, GraphError, uncomputable
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Library, looks_itself
from graphc.ir.regions import has_workspace
from graphc.ir.size_answers import by_example
from graphc.ir.types import Type, leaves
from graphc.tuning import changes

if TYPE_CHECKING:
    from graphc.codegen.native import Native

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


def computing(node: Node) -> Graph:
    """The region without the workspace."""
    region, params = node.regions[0], data_params(node)
    return region if len(params) == len(region.params) else region.replace(params=params)


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
        from graphc.codegen.native import native_of

        native = native_of(region.nodes[-1], target_of(config))
        if native is not None:
            return _native_spec(region, native, config)
    if kind == "library" and not written(region):
        return _library_spec(region)
    if kind in ("contract", "staged"):
        from graphc.codegen.contract_specs import contract_spec

        return contract_spec(region, config, staged=kind == "staged")
    if kind == "loop" and (pieces := pieces_of(region)) is not None:
        return copy_spec(pieces)
    if kind in ("nest", "library"):
        kernel, grain = lower_written(region, "kernel", **rules(config))
    else:
        kernel, grain = lower_loops(region, "kernel", **rules(config), parity=config.parity)
    patch = None
    if kind == "loop" and (param := patched_param(region)) is not None:
        part = lower_patch(region, "kernel", **rules(config))
        patch = param, loop_spec(*part, region, config)
    return loop_spec(kernel, grain, region, config, patch)


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
        poll=poll_of(region, units) if lower.units is not None and native.is_cut else 0,
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
