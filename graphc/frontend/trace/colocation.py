"""What `gc.colocate` says of variables: kept by the trace, for the reads and assigns to come."""

from __future__ import annotations

from graphc.frontend.trace.trace import FunctionTrace
from graphc.ir.graph import Node
from graphc.ir.op import OPS
from graphc.ir.place import Constraint
from graphc.ops.record.effects import Key
from graphc.ops.record.value import Trace

_TOUCHES = (OPS["read"], OPS["assign"])


def root_of(trace: Trace) -> FunctionTrace:
    """The trace of the function around all regions."""
    while isinstance(outer := getattr(trace, "outer", None), Trace):
        trace = outer
    assert isinstance(trace, FunctionTrace)
    return trace


def join(node: Node, group: str) -> None:
    """The node is in a colocation group, too."""
    # Nodes do not change once a graph is made of them; these are still being traced.
    before = node.place if isinstance(node.place, Constraint) else Constraint()
    node.place = before.beside(group)


def tie(trace: Trace, key: Key, group: str) -> None:
    """What touches a variable, before or from here on, is in a colocation group."""
    root_of(trace).ties.setdefault(key, []).append(group)
    around: Trace | None = trace
    while around is not None:
        for node in around.builder.nodes:
            if node.op in _TOUCHES and (node.attrs["container"], node.attrs["name"]) == key:
                join(node, group)
        around = getattr(around, "outer", None)


def tied(trace: Trace, node: Node, key: Key) -> None:
    """A node that touches a variable joins the groups that the variable is in."""
    if isinstance(trace, FunctionTrace):
        for group in root_of(trace).ties.get(key, ()):
            join(node, group)
