"""Rows of a `blocked` node: nested loops whose base registers move over the operands.

set    r = operand ...                 set    n1 = count
loop1: set n2 = count
loop2: call ... call ...               the kernels of a block; what they share is scratch memory
       bump r ... ; loop n2            bump r ... ; loop n1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.lowering.check_kernels import check_blocked
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.operands import read_of
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Node
from graphc.ir.liveness import peak_bytes
from graphc.ir.op import Contraction, Loops, Reduction, Scalar
from graphc.ir.size_answers import by_example
from graphc.ops.record.structural import moves_of
from graphc.runtime.cuda.interface import ALIGNMENT
from graphc.runtime.load.table import ABSENT

if TYPE_CHECKING:
    from graphc.codegen.table.steps import TableWriter


def block_rows(writer: TableWriter, node: Node) -> None:
    """Write the loops of a blocked node.  Raises GraphError if a window leaves its operand."""
    region = node.regions[0]
    counts = node.attrs["counts"]
    moves = moves_of(counts, node.attrs["steps"])
    with by_example():
        check_blocked(node)
        check_scratch(node)
        for param, move in zip(region.params, moves[1:], strict=True):
            reach = sum((n - 1) * step for n, step in zip(counts, move, strict=True))
            check_window(node, param, reach)
    values = (node, *node.inputs)
    places = [writer.place(value) for value in values]
    travel: dict[int, tuple[int, ...]] = {}  # register -> bytes per loop
    outer = writer.used
    for k, (value, move) in enumerate(zip(values, moves, strict=True)):
        if any(move):
            register = writer.register()
            writer.table.set(register, places[k])
            places[k] = register, 0
            travel[register] = tuple(step * tensor_type(value).dtype.itemsize for step in move)
            check_vectors(node, travel[register], writer.config)
    scope = {"r0": places[0], "arena": places[-1]}
    scope |= {f"p{k}": place for k, place in enumerate(places[1:])}
    with writer.inside(scope), writer.counting(False):
        loop_rows(writer, node, travel)
    writer.used = outer


def loop_rows(writer: TableWriter, node: Node, travel: dict[int, tuple[int, ...]]) -> None:
    table, counts = writer.table, node.attrs["counts"]
    counters = [writer.register() for _ in counts]
    starts = []
    for counter, count in zip(counters, counts, strict=True):
        table.set(counter, (ABSENT, count))
        starts.append(table.position)
    writer.graph_rows(node.regions[0])
    for level in reversed(range(len(counts))):
        for register, move in travel.items():
            amount = move[level]
            if level + 1 < len(counts):  # the inner loop has moved it already
                amount -= counts[level + 1] * move[level + 1]
            if amount:
                table.bump(register, amount)
        table.loop(counters[level], starts[level])


# ------------------------------------------------------------------------------------ bounds


def check_scratch(node: Node) -> None:
    """The memory of one block lies in the last operand."""
    needed = peak_bytes(node.regions[0])
    last = node.inputs[-1] if node.inputs else node
    given = tensor_type(last).nbytes if last.op.traits.workspace else 0
    if needed > given:
        raise GraphError(f"%{node.id} needs {needed} bytes of workspace", details=node.describe())


def check_vectors(node: Node, moves: tuple[int, ...], config: Config) -> None:
    """Kernels of GPUs read vectors: what they are given begins at a multiple of a vector."""
    if config.backend == "cuda" and any(move % ALIGNMENT for move in moves):
        raise GraphError(
            f"%{node.id} has blocks for a CPU: they move by {moves} bytes",
            details=node.describe(),
            hint="compile the graph anew, from a stage before tile",
        )


def check_window(node: Node, param: Node, reach: int) -> None:
    """Whatever the kernels read of a window stays inside its operand, however far it moves."""
    if not reach:
        return
    size = tensor_type(param).size
    for kernel in node.regions[0].nodes:
        for position, source in enumerate(kernel.inputs):
            if source is param:
                inner = kernel.regions[0].params[position]
                if last_read(kernel, inner) + reach >= size:
                    raise GraphError(
                        f"%{node.id} reads %{param.id} beyond its end", details=node.describe()
                    )


def last_read(kernel: Node, param: Node) -> int:
    """The greatest position of a parameter that a kernel can read; all of it if unknown."""
    region = kernel.regions[0]
    reaches = {param}  # the views of the parameter
    used = set(region.results)
    for inner in region.nodes:
        if isinstance(inner.op.lower, Scalar | Reduction | Contraction | Loops):
            used.update(inner.inputs)
        elif not reaches.isdisjoint(inner.inputs):
            reaches.add(inner)
    last = 0
    for view in reaches & used:
        read = read_of(view, set(region.params).__contains__)
        if read is None or kernel.attrs["kind"] not in ("loop", "contract", "nest"):
            return tensor_type(param).size
        pairs = zip(read.strides, tensor_type(view).dims, strict=True)
        last = max(last, read.offset + sum(max(0, s) * (extent - 1) for s, extent in pairs))
    return last
