"""Prologues: an operand of a contraction that is computed block by block, just before it is read.

The core asks for a block of A (rows i, steps k) or of B (columns j, steps k) when tiles are about
to read it. The prologue is a loop kernel over the block that evaluates the region's element-wise
nodes, as the epilogue does over a tile, so only a block of the operand ever exists:

    buffers   block, operands                     (x * s) @ w      for block of x * s:
    params    batch, first, last, lead                                 block = x * s;  tiles
"""

from __future__ import annotations

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Word
from graphc.codegen.lowering.contraction import EPILOGUE_PARAMS, Form, index_at, sum_of
from graphc.codegen.lowering.evaluate import Elements, store_element, tensor_type
from graphc.ir.graph import Graph, Node
from graphc.loops.nest import Buffer, Kernel, Scalars

PARAMS = EPILOGUE_PARAMS


def params_behind(region: Graph, value: Node) -> list[Node]:
    """Region params that a value is computed from."""
    seen: set[Node] = set()
    pending = [value]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(node.inputs)
    return [p for p in region.params if p in seen]


def prologue(
    region: Graph, form: Form, plan: contract.Plan, position: int, strict: bool, sizes: list[int]
) -> tuple[Kernel, list[Node]]:
    """The kernel that computes blocks of an operand (0 or 1), and the parameters that it reads.

    Its sizes lie behind those that other kernels are given already, and are added to them.
    """
    operand = form.node.inputs[position]
    kind = tensor_type(operand)
    sources = params_behind(region, operand)
    b = Scalars()
    elements = Elements(b)
    buffers = [Buffer(0, kind.dtype, kind.size, "out")]
    for param in sources:
        found = tensor_type(param)
        buffers.append(Buffer(len(buffers), found.dtype, found.size, "in"))
        elements.bind_buffer(param, buffers[-1])
    batch, first, last, lead = (b.param(k) for k in range(PARAMS))
    line, inner = lines_of(form, plan, position)
    units = sum_of(plan, line)
    with b.loop(units, "parallel") as outer, b.loop(last, "vector", first) as along:
        places = {"batch": batch, line: outer, inner: along}
        index = index_at(b, form, position, plan, places)
        place = outer * lead + along
        store_element(b, buffers[0], place, elements.at(operand, index))
    kernel = Kernel(
        "kernel",
        tuple(buffers),
        PARAMS,
        b.body,
        units=units,
        strict=strict,
        sizes=tuple(b.sizes),
        sizes_at=len(plan.params) + len(sizes),
    )
    sizes += kernel.sizes
    return kernel, sources


def lines_of(form: Form, plan: contract.Plan, position: int) -> tuple[str, str]:
    """What the lines of a block of an operand run over, and what lies along them."""
    first = (position == 0) is not plan.swapped
    name, line = ("i", Word.LINE_A) if first else ("j", Word.LINE_B)
    turned = plan.params[line] == form.element.itemsize
    return ("k", name) if turned else (name, "k")
