"""How graphs and ops are copied and pickled: graphs as their text, ops by their names.

Loading one of them imports this module, and with it every op.
"""

from __future__ import annotations

import copyreg
from typing import Any

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Program
from graphc.ir.op import OPS, Op


def op_named(name: str) -> Op:
    """The op of this name. Raises GraphError for one that this process does not have."""
    if name not in OPS:
        raise GraphError(
            f"there is no op named {name!r}",
            hint="a custom op must be registered before what uses it is loaded",
        )
    return OPS[name]


def graph_of(text: str, tensors: dict[str, Any]) -> Graph | Program:
    """The graph of a text and its big constants."""
    from graphc.ir.parse import parse

    return parse(text, tensors)


def _reduced(value: Graph | Program) -> tuple[Any, ...]:
    from graphc.ir.text import literals, show

    return graph_of, (show(value), {item.digest: item.array for item in literals(value)})


copyreg.pickle(Op, lambda op: (op_named, (op.name,)))
copyreg.pickle(Graph, _reduced)
copyreg.pickle(Program, _reduced)
