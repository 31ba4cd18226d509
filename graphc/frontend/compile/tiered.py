"""First calls that do not wait (`tiered=True`): NumPy answers while a thread compiles.

    caller   trace | interpret  answer      interpret  answer            run  answer
    thread         | ... HEAD_START ... | passes, kernels, LLVM ....... |

Only what interpreting cannot change is answered so: pure functions of one CPU, whose options ask
for nothing of how it is computed.  A call leaves the interpreter between two nodes as soon as the
code is there.  What the interpreter or the compilation refuses is compiled in the call itself,
which raises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.frontend.compile.variant import UNKNOWN, Variant
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Effect
from graphc.ir.types import Type
from graphc.ops.reference.interpreter import Interpreter

MOST_BYTES = 1 << 28  # of one value: a compiled program may never have it in memory


class _Compiled(Exception):
    """The code is there."""


class _Meanwhile(Interpreter):
    """Interprets until the variant is compiled."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(wide=False, state={})
        self._variant = variant

    def node(self, node: Node, inputs: list[Any]) -> Any:
        if self._variant.built is not None:
            raise _Compiled
        return super().node(node, inputs)


def can_be_tiered(variant: Variant, config: Config) -> bool:
    """Whether an interpreted call of a variant is as good as one of its code."""
    if variant.traced.counts or config.donate or config.strict or config.check_finite:
        return False
    if config.devices != ("cpu:0",) or config.constraints or config.precision != "f32":
        return False
    here = config.target == "cpu" and config.memory_limit is None
    return here and variant.graph.effect is Effect.PURE and _is_small(variant.graph)


def _is_small(graph: Graph) -> bool:
    """Whether all sizes are known, and no value is larger than MOST_BYTES."""
    kinds = (node.type for node in graph.nodes)
    good = (k.is_static and k.nbytes <= MOST_BYTES for k in kinds if isinstance(k, Type))
    return all(good) and all(_is_small(part) for node in graph.nodes for part in node.regions)


def interpreted(variant: Variant, leaves: Sequence[Any]) -> Any:
    """What a call returns, by the interpreter; UNKNOWN where the code is to make it."""
    making = variant.making
    if making is None or not making.is_alive():
        return UNKNOWN
    feeds = [np.asarray(each) for each in variant.feeds(leaves)]
    try:
        with np.errstate(all="ignore"):
            made = _Meanwhile(variant).graph(variant.graph, feeds)
    except Exception:  # noqa: BLE001 - it is compiled, or compiled code will say what is wrong
        return UNKNOWN
    finally:
        making.answered.set()
    making.calls += 1
    results = [np.array(each, order="C") for each in made]  # an operand may be a result
    return variant.nest(results[0] if len(results) == 1 else tuple(results))
