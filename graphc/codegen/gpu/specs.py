"""What a fused node needs to run on a GPU."""

from __future__ import annotations

from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.attention.kernels import attention_launches, backward_launches
from graphc.codegen.gpu.columns import Columns, LongRows
from graphc.codegen.gpu.contraction.kernels import contract_launches
from graphc.codegen.gpu.contraction.product import product_of
from graphc.codegen.gpu.emit import launches_of
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.gpu.library import library_spec
from graphc.codegen.gpu.nests import nest_launches
from graphc.codegen.gpu.ordered import OrderedRows, WideColumns
from graphc.codegen.gpu.turned_tiles import TurnedTiles
from graphc.codegen.lowering.in_place_update import patched_param
from graphc.codegen.lowering.lower import folds_columns, lower_patch, lower_written
from graphc.codegen.lowering.plain_contraction import direct
from graphc.codegen.lowering.rows import Rows
from graphc.codegen.lowering.space import space_of
from graphc.codegen.lowering.tiles import crossing_loop
from graphc.codegen.spec import Spec, copy_spec, rules
from graphc.codegen.table.copies import pieces_of
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.op import Loops, Reduction
from graphc.ir.types import leaves
from graphc.loops.nest import Kernel
from graphc.runtime.cuda.gemm import Gemm

TEMPLATES = {
    "attention": attention_launches,
    "attention_backward": backward_launches,
}  # of ops that write their own loops


def cuda_spec(region: Graph, kind: str, config: Config) -> Spec:
    """The launches of a region of the given kind of fused node."""
    if kind == "loop" and (pieces := pieces_of(region)) is not None:
        return copy_spec(pieces)
    if kind == "library":
        return library_spec(region, config)
    if kind in ("contract", "staged"):
        made = contract_launches(
            region,
            chip_of(config.target),
            **rules(config),
            ordered=config.parity,
            tf32=config.precision == "tf32" and not reads_in_full(region),
        )
        if made is not None:
            return spec(*made, product=product_of(region, config, made[0]))
        options = {**rules(config), "parity": config.parity}
        kernel = direct(region, "kernel", **options, many_threads=True)
        return loop_spec(kernel, region, config)
    if kind == "nest":
        made = template_launches(region, config) or nest_launches(region, config, loop_kernel)
        if made is not None:
            return spec(*made)
        return loop_spec(lower_written(region, "kernel", **rules(config))[0], region, config)
    patch = None
    if (param := patched_param(region)) is not None:
        changed = lower_patch(region, "kernel", **rules(config))[0]
        patch = param, loop_spec(changed, region, config)
    return loop_spec(loop_kernel(region, config), region, config, patch)


def template_launches(region: Graph, config: Config) -> tuple[tuple[Launch, ...], int] | None:
    """The launches of what has a template here, and the bytes of workspace; None where it is run by
    its own loops."""
    lower = next(n.op.lower for n in region.nodes if isinstance(n.op.lower, Loops))
    loose = not (config.strict or config.parity or config.check_finite)
    if not (lower.template and loose):
        return None
    return TEMPLATES[lower.template](region, chip_of(config.target))


def reads_in_full(region: Graph) -> bool:
    """Is something marked that products must not round?"""
    return any(node.op.traits.wide for node in region.nodes)


def loop_kernel(region: Graph, config: Config) -> Kernel:
    """The loops of a region in the shape that lanes can share."""
    space = space_of(region)
    folds = any(isinstance(n.op.lower, Reduction) for n in region.nodes)
    columns = bool(space.loops) and (not folds or folds_columns(region, space))
    if config.parity:
        shape: type[Rows] = WideColumns if columns else OrderedRows
    else:
        shape = Columns if columns else LongRows
        if columns and not folds and crossing_loop(region, space) is not None:
            shape = TurnedTiles
    return shape(region, space, "kernel", *rules(config).values()).lower()


def loop_spec(
    kernel: Kernel, region: Graph, config: Config, patch: tuple[int, Spec] | None = None
) -> Spec:
    """The launches of a loop kernel."""
    operands = [("in", k, 0) for k in range(len(region.params))]
    results = sum(len(leaves(result.type)) for result in region.results)
    operands += [("out", k, 0) for k in range(results)]
    launches, workspace = launches_of(kernel, tuple(operands), chip_of(config.target))
    return spec(launches, workspace, patch)


def spec(
    launches: tuple[Launch, ...],
    workspace: int,
    patch: tuple[int, Spec] | None = None,
    product: Gemm | None = None,
) -> Spec:
    """What runs launches one after another."""
    operands = tuple(operand for launch in launches for operand in launch.operands)
    return Spec(
        "cuda", operands, 1, 0, (), workspace, launches=launches, patch=patch, product=product
    )
