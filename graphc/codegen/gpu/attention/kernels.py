"""Attention on a GPU: which kernels run it, and their sources.

matrix   on tensor cores, for f16 and bf16      tile   sums in registers, for f32
"""

from __future__ import annotations

from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.attention.backward import NOTES, KeyPass, QueryPass
from graphc.codegen.gpu.attention.matrix import MatrixAttention
from graphc.codegen.gpu.attention.plan import (
    Cut,
    attending,
    attention_of,
    cut_of,
    gradient_cuts,
    gradient_of,
    has_gradient,
    has_kernel,
)
from graphc.codegen.gpu.attention.source import AttentionSource, joining
from graphc.codegen.gpu.attention.tile import TileAttention
from graphc.codegen.gpu.contraction.tile_choice import ceiling
from graphc.codegen.gpu.emit import maker
from graphc.codegen.gpu.launch import Launch, Operand
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.ir.graph import Graph
from graphc.ir.types import F32, Type, leaves

HEADER = """\
import numpy as np

from graphc.codegen.gpu.attention.device import added, mask_bf16, mask_bool, mask_f16, mask_f32
from graphc.codegen.gpu.attention.device import narrow_bf16, narrow_f16, narrow_f32, or_zero, power
from graphc.codegen.gpu.attention.device import powers, rescaled, row_maxima, row_sums
from graphc.codegen.gpu.attention.device import scaled_powers, shares, store_bf16, store_f16
from graphc.codegen.gpu.attention.device import store_f32, times, up_to, zero_lines
from graphc.codegen.gpu.contraction.device import dots, is_aligned, outer, read, repeat, write
from graphc.codegen.gpu.contraction.mma import copy, wait_for_copies
from graphc.gpu import cuda, device

helper = device
"""
MATRIX = """\
from graphc.codegen.gpu.attention.fragments import rows_of, scores_bf16, scores_f16, weigh_bf16
from graphc.codegen.gpu.attention.fragments import weigh_f16
"""
BACKWARD = """\
from graphc.codegen.gpu.attention.fragments import column_powers, column_slopes, columns_of, from_on
from graphc.codegen.gpu.attention.fragments import row_products, slopes
"""


def whole(text: str, *imports: str) -> str:
    """The source of a kernel with what it imports."""
    return HEADER.replace("\nhelper =", f"\n{''.join(imports)}\nhelper =", 1) + text


def attention_launches(
    region: Graph, chip: Chip, cut: Cut | None = None
) -> tuple[tuple[Launch, ...], int] | None:
    """The launches that run a region with attention, and the bytes of workspace they share; None
    where the chip has no kernel for it."""
    if not has_kernel([tensor_type(n) for n in attending(region).inputs], chip):
        return None
    made = attention_of(region)
    cut = cut or cut_of(made, chip)
    kind: type[AttentionSource] = TileAttention if made.element is F32 else MatrixAttention
    count = len(region.params)
    names = [f"a{k}" for k in range(count + 1)]
    kinds = [tensor_type(n) for n in (*region.params, *region.results)]
    buffers = [(kind.dtype, kind.size) for kind in kinds]
    operands: list[Operand] = [*(("in", k, 0) for k in range(count)), ("out", 0, 0)]
    blocks = made.heads * ceiling(made.queries, cut.rows) * cut.splits
    rows, nbytes = made.heads * made.queries, 0
    if cut.splits > 1:
        size = cut.splits * rows * (made.depth + 2)
        names, nbytes = [*names, "work"], 4 * size
        buffers.append((F32, size))
        operands.append(("work", 0, 0))

    def launch(text: str, blocks: int, threads: int, shared: int = 0) -> Launch:
        text = whole(text, MATRIX)
        given = (tuple(buffers), tuple(operands), blocks, threads)
        return Launch(text, maker(text), *given, resident=cut.resident, shared=shared)

    source = kind(made, cut, names, chip.simulated)
    first = launch(source.text(), blocks, cut.threads, source.shared)
    if cut.splits == 1:
        return (first,), 0
    threads = min(chip.threads, tuned.join_threads)
    blocks = min(ceiling(rows * made.depth, threads), tuned.join_blocks, chip.blocks)
    text = joining(made, cut, names, blocks * threads, source.exponent)
    return (first, launch(text, blocks, threads)), nbytes


def backward_launches(region: Graph, chip: Chip) -> tuple[tuple[Launch, ...], int] | None:
    """The same for a region with the gradient of attention."""
    node = attending(region)
    if not has_gradient([tensor_type(n) for n in node.inputs[2:]], chip):
        return None
    made = gradient_of(region)
    count, forward = len(region.params), made.forward
    size = len(NOTES) * forward.heads * forward.queries
    kinds = [tensor_type(n) for n in region.params]
    kinds += [kind for kind in leaves(node.type) if isinstance(kind, Type)]
    buffers = (*((kind.dtype, kind.size) for kind in kinds), (F32, size))
    operands: list[Operand] = [("in", k, 0) for k in range(count)]
    operands += [*(("out", k, 0) for k in range(3)), ("work", 0, 0)]
    names = [*(f"a{k}" for k in range(count + 3)), "work"]
    launches = []
    rows = (QueryPass, forward.queries), (KeyPass, forward.keys)
    for (kind, extent), cut in zip(rows, gradient_cuts(made), strict=True):
        source = kind(made, cut, names)
        text = whole(source.text(), MATRIX, BACKWARD)
        blocks = forward.heads * ceiling(extent, cut.rows)
        given = (buffers, tuple(operands), blocks, cut.threads)
        launches.append(Launch(text, maker(text), *given, shared=source.shared))
    return tuple(launches), 4 * size
