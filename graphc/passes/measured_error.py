"""measured_error: what a rewrite that loses precision changes about the results, on sample data.

The error of a result is its largest difference, relative to its largest magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

import numpy as np

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import Effect
from graphc.ir.verify import graphs_of
from graphc.ops.reference.interpreter import check_arguments
from graphc.passes.tuning import tuned
from graphc.runtime.call.variable import container

Key = TypeVar("Key")


def check_sample(params: Sequence[Node], sample: Sequence[Any]) -> None:
    """Raise FeedError unless the sample is what a call is compiled for."""
    hint = "sample= has arguments as in the calls: compile again, with a sample of these sizes"
    check_arguments(params, sample, of=" of the sample", hint=hint)


def affordable(
    gains: Mapping[Key, float], error: Callable[[Iterable[Key]], float], budget: float | None
) -> tuple[list[Key], dict[Key, str]]:
    """Which of several losses of precision together stay within the budget, and a text for each
    that was measured alone.

    `error` measures some together, `gains` says what each saves.  If all are too much each is
    measured alone, the cheapest per gain first while their errors add up (to first order they do)
    to no more than the budget; what is chosen is measured again as a whole.
    """
    everything = list(gains)
    total = error(everything)
    share = f"all together change the results by {total:.2g}"
    if budget is None or total <= budget:
        return everything, dict.fromkeys(everything, share)
    first = sorted(everything, key=lambda k: gains[k], reverse=True)[: tuned.measured_channels]
    alone = {key: error([key]) for key in first}
    taken = _cheapest(alone, gains, budget)
    while taken and (total := error(taken)) > budget:
        taken = taken[: len(taken) // 2]  # the errors of these add up to more than their sum
    text = {key: f"alone it changes the results by {e:.2g}" for key, e in alone.items()}
    left = dict.fromkeys(
        everything, f"not among the {tuned.measured_channels} largest, so not measured alone"
    )
    return taken, left | text


def _cheapest(alone: Mapping[Key, float], gains: Mapping[Key, float], budget: float) -> list[Key]:
    """Those with the least error per gain whose errors add up to the budget."""
    taken, spent = [], 0.0
    for key in sorted(alone, key=lambda k: alone[k] / gains[k]):
        if spent + alone[key] <= budget:
            taken.append(key)
            spent += alone[key]
    return taken


def result_error(want: Any, got: Any) -> float:
    """The largest difference of two results relative to the largest magnitude of the first."""
    want, got = np.asarray(want), np.asarray(got)
    if not want.size or want.dtype.kind not in "fc":
        return 0.0 if np.array_equal(want, got) else inf
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = want.astype(wide), got.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    size = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        difference = float(np.where(same, 0.0, np.abs(a - b)).max())
    return inf if np.isnan(difference) else difference / size if size else difference


def variables_of(value: Graph | Program) -> dict[tuple[str, str], Any]:
    """The present values of the variables that a program reads."""
    found = {}
    for graph in graphs_of(value):
        for node in graph.nodes:
            if node.op.effect is Effect.READ:
                key = node.attrs["container"], node.attrs["name"]
                cell = container(key[0]).cells.get(key[1])
                if cell is not None and cell.ready:
                    found[key] = np.array(cell.value())
    return found
