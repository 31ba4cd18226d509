"""Devices that compute nothing: what they send and return is zeros, at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.codegen.spec import Spec
from graphc.codegen.table.messages import message_bytes, recv_rows
from graphc.codegen.table.steps import TableWriter
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.regions import talks
from graphc.ir.types import leaves
from graphc.runtime.load.table import CONSTANTS

if TYPE_CHECKING:
    from graphc.codegen.compiler import Compiler
    from graphc.codegen.gpu.build import CudaCompiler


class NullWriter(TableWriter):
    """Only messages have rows; the constants are as many zeros as the largest value has bytes."""

    def __init__(
        self,
        graph: Graph,
        config: Config,
        compiler: Compiler | CudaCompiler,
        channels: dict[str, int],
    ) -> None:
        super().__init__(graph, config, compiler, channels)
        self.variables = {}
        self.donated = ()

    def specs(self) -> Iterator[Spec]:
        return iter(())

    def node_rows(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.op.traits.send:
                channel = self.channels[node.attrs["channel"]]
                self.note(self.table.send(message_bytes(node), channel, (CONSTANTS, 0)), node)
            elif node.op.traits.recv:
                recv_rows(self, node)
            elif talks(node):
                raise GraphError(
                    f"{node.op.name} spans {self.graph.device}, which computes no conditions",
                    details=node.describe(),
                    location=node.loc,
                )

    def result_rows(self, graph: Graph) -> None:
        for number, result in enumerate(graph.results):
            self.table.copy(nbytes_of(result), self.scope[f"r{number}"], (CONSTANTS, 0))

    def assign_rows(self) -> None:
        """Variables keep their values."""

    def constants(self) -> np.ndarray[Any, Any]:
        sent = [message_bytes(node) for node in self.graph.nodes if node.op.traits.send]
        return np.zeros(max([*sent, *map(nbytes_of, self.graph.results)], default=0), np.uint8)


def nbytes_of(node: Node) -> int:
    return sum(leaf.nbytes for leaf in leaves(node.type))
