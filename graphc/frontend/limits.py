"""Budgets: nothing is allocated that the machine cannot hold."""

from __future__ import annotations

import os
from pathlib import Path

from graphc.errors import LimitError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.types import Type, leaves


def available_bytes() -> int:
    """Memory that can be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(value: Graph | Program, *, every_node: bool = False) -> None:
    """Raise LimitError when arguments and results are more than the available memory.

    `every_node` also refuses a single value larger than that: the interpreter stores each one.
    """
    check_bytes(value.name, _declared(*value.params, *value.results), "arguments and results")
    graphs = value.graphs if isinstance(value, Program) else (value,)
    for node in (node for graph in graphs if every_node for node in graph.nodes):
        check_bytes(f"%{node.id} = {node.op.name}", _declared(node), "its result")


def _declared(*nodes: Node) -> int:
    kinds = (kind for node in nodes for kind in leaves(node.type))
    return sum(kind.nbytes for kind in kinds if isinstance(kind, Type) and kind.is_static)


def check_bytes(name: str, needed: int, what: str) -> None:
    """Raise LimitError when this many bytes are not available."""
    available = available_bytes()
    if needed > available:
        raise LimitError(
            f"{name} needs {needed / 2**30:.1f} GiB for {what}; "
            f"{available / 2**30:.1f} GiB are available"
        )
