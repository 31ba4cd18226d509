"""The step table of a planned graph: a row per kernel, base registers as in runtime/table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.codegen.blocks import block_rows
from graphc.codegen.kernels import Spec, data_params, spec_of
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, scheduled_graphs
from graphc.ir.op import STORED
from graphc.ir.place import Buffer, Region
from graphc.ir.types import Type
from graphc.runtime.image import Origin
from graphc.runtime.table import ARENA, CONSTANTS, FIRST_PARAM, Operand, TableBuilder

if TYPE_CHECKING:
    from graphc.codegen.build import Compiler


class TableWriter:
    """Writes the rows of one graph."""

    def __init__(self, graph: Graph, config: Config, compiler: Compiler) -> None:
        self.graph = graph
        self.config = config
        self.compiler = compiler
        self.table = TableBuilder()
        self.words: list[int] = []
        self.word_offsets: dict[tuple[int, ...], int] = {}
        self.kernels: dict[str, int] = {}
        self.origins: dict[int, Origin] = {}
        self.registers = 0
        self.inside: dict[str, Operand] | None = None  # where the bases of a block's kernels lie

    def write(self) -> None:
        scheduled = [n for graph in scheduled_graphs(self.graph) for n in graph.nodes]
        kernels = [node for node in scheduled if node.op.name == "fused"]
        self.compiler.need([spec_of(node, self.config) for node in kernels])
        for node in self.graph.nodes:
            if node.op.name == "fused":
                self.kernel_row(node, spec_of(node, self.config))
            elif node.op.name == "blocked":
                block_rows(self, node)
        for number, result in enumerate(self.graph.results):
            self.result_row(number, result)
        self.table.end()

    def base(self, region: Region, extra: int = 0) -> tuple[int, int]:
        offset = region.offset + extra
        if self.inside is not None:
            register, start = self.inside[region.base]
            return register, start + offset
        if region.base == "arena":
            return ARENA, offset
        if region.base == "c":
            return CONSTANTS, offset
        number = int(region.base[1:])
        first = 0 if region.base[0] == "p" else len(self.graph.params)
        return FIRST_PARAM + first + number, offset

    def register(self, number: int) -> int:
        """A scratch base register."""
        self.registers = max(self.registers, number + 1)
        return FIRST_PARAM + len(self.graph.params) + len(self.graph.results) + number

    def kernel_row(self, node: Node, spec: Spec) -> None:
        inputs = data_params(node)
        regions = {
            "in": [buffer_of(n).regions[0] for n in node.inputs[: len(inputs)]],
            "out": list(buffer_of(node).regions),
        }
        operands = []
        if spec.workspace > workspace_bytes(node):
            raise GraphError(
                f"%{node.id} needs {spec.workspace} bytes of workspace", details=node.describe()
            )
        for kind, index, extra in spec.operands:
            if kind == "work":
                scratch = node.inputs[-1] if spec.workspace else node
                operands.append(self.base(buffer_of(scratch).regions[0], index))
            else:
                operands.append(self.base(regions[kind][index], extra))
        if all(r.nbytes == 0 for r in regions["out"]):
            return
        file, line = node.loc or ("", 0)
        for row in self.rows_of(spec, operands):
            self.origins[row] = Origin(repr(node), file, line)

    def rows_of(self, spec: Spec, operands: list[Operand]) -> list[int]:
        if spec.kind == "copy":
            sources, targets = operands[: len(spec.params)], operands[len(spec.params) :]
            return list(map(self.table.copy, spec.params, targets, sources))
        symbol = self.compiler.add(spec)
        row = self.table.call(
            self.kernels.setdefault(symbol, len(self.kernels)), operands,
            units=spec.units, grain=spec.grain, params=self.params(spec.params),
        )  # fmt: skip
        return [row]

    def params(self, values: tuple[int, ...]) -> int:
        if not values:
            return 0
        found = self.word_offsets.get(values)
        if found is None:
            found = self.word_offsets[values] = len(self.words)
            self.words.extend(values)
        return found

    def result_row(self, number: int, result: Node) -> None:
        """Copy a result that lies elsewhere (an argument, a constant, or an earlier result)."""
        region = buffer_of(result).regions[0]
        if region.base == f"r{number}" or region.nbytes == 0:
            return
        target = FIRST_PARAM + len(self.graph.params) + number
        self.table.copy(region.nbytes, (target, 0), self.base(region))

    def constants(self) -> np.ndarray[Any, Any]:
        """All constants at their offsets, 64-byte aligned."""
        nodes = [n for n in self.graph.nodes if n.op.name in STORED]
        size = max((end_of(n) for n in nodes), default=0)
        blob = np.empty(size + 64, np.uint8)
        start = -blob.__array_interface__["data"][0] % 64
        blob = blob[start : start + size]
        for node in nodes:
            region = buffer_of(node).regions[0]
            if region.nbytes:
                made = node.op.reference(**node.attrs.values_dict)
                data = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
                blob[region.offset : region.offset + region.nbytes] = data
        return blob


def workspace_bytes(node: Node) -> int:
    """The scratch memory a kernel was given."""
    last = node.inputs[-1] if node.inputs else None
    if last is None or last.op.name != "workspace" or not isinstance(last.type, Type):
        return 0
    return last.type.nbytes


def buffer_of(node: Node) -> Buffer:
    assert isinstance(node.place, Buffer), f"{node!r} has no buffer"
    return node.place


def end_of(node: Node) -> int:
    region = buffer_of(node).regions[0]
    return region.offset + region.nbytes
