"""Attention on a GPU: which kernels run it, and their sources.

matrix   on tensor cores, for f16 and bf16      tile   sums in registers, for f32
"""

from __future__ import annotations

from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.attention_matrix import MatrixAttention
from graphc.codegen.gpu.attention_plan import Cut, attention_of, cut_of, has_kernel
from graphc.codegen.gpu.attention_source import AttentionSource, joining
from graphc.codegen.gpu.attention_tile import TileAttention
from graphc.codegen.gpu.contract_plan import ceiling
from graphc.codegen.gpu.emit import maker
from graphc.codegen.gpu.launch import Launch, Operand
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.ir.graph import Graph
from graphc.ir.types import F32

HEADER = """\
import numpy as np

from graphc.codegen.gpu.attention_device import added, mask_bf16, mask_bool, mask_f16, mask_f32
from graphc.codegen.gpu.attention_device import narrow_bf16, narrow_f16, narrow_f32, or_zero, power
from graphc.codegen.gpu.attention_device import powers, rescaled, row_maxima, row_sums, rows_of
from graphc.codegen.gpu.attention_device import scaled_powers, scores_bf16, scores_f16, shares
from graphc.codegen.gpu.attention_device import store_bf16, store_f16, store_f32, times, up_to
from graphc.codegen.gpu.attention_device import weigh_bf16, weigh_f16, zero_lines
from graphc.codegen.gpu.contract_device import dots, is_aligned, outer, read, repeat, write
from graphc.codegen.gpu.contract_fragments import copy, wait_for_copies
from graphc.gpu import cuda, device

helper = device
"""


def attention_launches(
    region: Graph, chip: Chip, cut: Cut | None = None
) -> tuple[tuple[Launch, ...], int] | None:
    """The launches that run a region with attention, and the bytes of workspace they share; None
    where the chip has no kernel for it."""
    if not has_kernel([tensor_type(n) for n in region.nodes[-1].inputs], chip):
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

    def launch(text: str, blocks: int, threads: int) -> Launch:
        text = HEADER + text
        given = tuple(buffers), tuple(operands)
        return Launch(text, maker(text), *given, blocks, threads, resident=cut.resident)

    source = kind(made, cut, names, chip.simulated)
    first = launch(source.text(), blocks, cut.threads)
    if cut.splits == 1:
        return (first,), 0
    threads = min(chip.threads, tuned.join_threads)
    blocks = min(ceiling(rows * made.depth, threads), tuned.join_blocks, chip.blocks)
    text = joining(made, cut, names, blocks * threads, source.exponent)
    return (first, launch(text, blocks, threads)), nbytes
