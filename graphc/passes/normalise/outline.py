"""outline: a region that counts sizes of its own becomes a program of its own, which is called.

    %3 = phased(%1) {counts=["count0"]} { ... }       ->       %3 = outlined(%1) {function="f#7"}

It is compiled once, for all counts and for all sizes of its operands, as a function whose data
decides sizes is, when a run first comes to it.  What is around it goes on as if it were one op.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.op import OPS, Effect
from graphc.ir.types import leaves
from graphc.ops.control.host_calls import function_of
from graphc.ops.control.phased import described
from graphc.passes.reasons import explain

# A program of its own is made by the whole compiler, this pass included: it is asked for by name.
COMPILER = "graphc.frontend.compile.outlined"


def outline(graph: Graph, config: Config) -> Graph:
    """The graph without `phased` nodes. Raises GraphError where it cannot be compiled so."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.phased:
            made = map_regions(node, lambda region: outline(region, config))
            if made is not node:
                r.nodes.append(made)
                return made
            return None
        check(node, config)
        (region,), counts = node.regions, node.attrs["counts"]
        program: Any = import_module(COMPILER).OutlinedProgram(region, counts, config)
        attrs = {"function": function_of(program), **described(leaves(node.type))}
        made = r.emit(OPS["outlined"], node.inputs, attrs)
        explain(made.id, f"a program of its own, which counts {', '.join(counts)}")
        return made

    return rebuild(graph, rewrite)


def check(node: Node, config: Config) -> None:
    """Raise GraphError for what cannot be in a region that counts sizes."""
    reason = hint = ""
    if config.backend != "llvm" or config.target.startswith("cuda"):
        reason, hint = "is for CPUs, through LLVM", "give the sizes (size=)"
    elif node.regions[0].effect > Effect.PURE:
        reason = "neither calls Python nor talks to other devices"
        hint = "do it before or after, with what it returns, or give the sizes (size=)"
    if reason:
        raise GraphError(
            f"a part of a loop or a branch that finds sizes of its own {reason}",
            location=node.loc,
            hint=hint,
        )
