"""An ONNX file as plain records: graphs, their nodes, what attributes hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.formats.kinds import Kind

Array = np.ndarray[Any, Any]


@record(frozen=True)
class Reference:
    """An attribute of a function's body that takes the value of an attribute of its call."""

    name: str


@record(frozen=True)
class Node:
    """One node: where it stands, what it computes from which names."""

    index: int
    name: str
    domain: str
    op: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    overload: str = ""
    source: bytes = b""  # the node of the file, where the format makes a function of its graphs

    @property
    def title(self) -> str:
        """How messages call it: the operator, its version and the node's name."""
        domain = f"{self.domain}." if self.domain else ""
        return f"{domain}{self.op}-{self.version} (node {self.name or f'#{self.index}'!r})"

    def graphs(self) -> Iterator[Subgraph]:
        """The graphs in its attributes. A list, which may be long, holds things of one kind."""
        for value in self.attributes.values():
            if isinstance(value, Subgraph):
                yield value
            elif isinstance(value, tuple) and value and isinstance(value[0], Subgraph):
                yield from value


@record(frozen=True)
class Subgraph:
    """A graph, a body of a control-flow node, or the body of a function."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    kinds: Mapping[str, Kind]
    defaults: Mapping[str, Any] = field(default_factory=dict)  # attributes of a function


Functions = Mapping[tuple[str, str, str], Subgraph]


@record(frozen=True)
class File:
    """What a file holds."""

    name: str
    graph: Subgraph
    functions: Functions
    versions: Mapping[str, int]
    beside: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)  # files of its data
