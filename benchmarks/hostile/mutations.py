"""What becomes of a dump: number `seed` of the mutations."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.hostile.models import Dump, dumps
from benchmarks.hostile.nodes import Retyped
from benchmarks.hostile.texts import TEXTUAL
from graphc.ir.graph import Graph, Program
from graphc.ir.text import show


def retyped(draw: random.Random, dump: Dump) -> str:
    """The text of a stage with a node changed."""
    value = dump.value
    if isinstance(value, Graph):
        return show(Retyped(draw, value).made())
    graphs = list(value.graphs)
    k = draw.randrange(len(graphs))
    graphs[k] = Retyped(draw, graphs[k]).made()
    return show(Program(value.name, tuple(graphs)))


def mutated(draw: random.Random, models: Sequence[str]) -> tuple[Dump, str]:
    """A stage and what became of its text. Raises GraphError where no types fit."""
    dump = draw.choice(dumps(draw.choice(models)))
    text = dump.text
    if draw.random() < 0.7:
        text = retyped(draw, dump)
    if text is dump.text or draw.random() < 0.1:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            text = draw.choice(TEXTUAL)(draw, text)
    return dump, text
