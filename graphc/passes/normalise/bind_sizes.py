"""bind_sizes: symbols become the sizes that a compilation is for.

    %2 = add(%0, %1) : f32[n,4]       n = 32       ->       %2 = add(%0, %1) : f32[32,4]

A size may stay open: then it is a formula over the arguments' sizes (`graphc.ir.sizes`), with an
example by which later stages decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.sizes import scope_of
from graphc.ir.specialise import specialise


def bind_sizes(graph: Graph, config: Config, sizes: Mapping[str, int] | None = None) -> Graph:
    """The graph with numbers, or open sizes, for its symbols.

    Raises TypeRuleError where an equality that was not decided turns out false, GraphError for a
    symbol without a value.
    """
    if not sizes:
        return graph
    made = specialise(graph, sizes)
    scope = scope_of(sizes.values())
    if scope is not None:
        scope.typing = False  # what is asked from here on decides how to compute, not what
    return made
