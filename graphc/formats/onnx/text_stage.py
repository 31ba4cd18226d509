"""Operators that look into strings that are fed, or make new ones, run before what is compiled.

Which strings a text is cut into differs from call to call, and with them how many there are.  So
these operators compute at once, in every call, and the rest of the file is a model of its own: it
takes their results, and one compilation of it serves all texts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.base.record import record, replace
from graphc.formats.deciding_values import is_known
from graphc.formats.encoded_values import STRINGS, Carried, restored, text_of
from graphc.formats.kinds import Kind
from graphc.formats.onnx.interpret import Importer
from graphc.formats.onnx.order import reads
from graphc.formats.onnx.records import File, Node
from graphc.formats.onnx.table import find
from graphc.frontend.trace.trace import FunctionTrace
from graphc.ops.record.value import tracing


@record(frozen=True)
class TextStage:
    """The operators on strings that a file begins with, and what is left of it.

    file  their file, whose results are what the rest reads of them
    rest  the nodes behind them
    """

    file: File
    rest: File

    def results(self, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the rest takes: arrays. None where some of it is not known without a run."""
        graph = self.file.graph
        scope = {
            name: text_of(feeds[name]) for name in graph.inputs if _is_text(graph.kinds.get(name))
        }
        trace = FunctionTrace()
        trace.locate = None
        with tracing(trace):
            made = Importer(self.file).run(graph, ChainMap(scope))
        if not is_known(made):
            return None
        plain = [
            restored(v.form, np.asarray(v.value)) if isinstance(v, Carried) else v for v in made
        ]
        given = {name: feeds[name] for name in feeds if name in self.rest.graph.inputs}
        return given | dict(zip(graph.outputs, plain))

    def file_for(self, feeds: Mapping[str, Any]) -> File:
        """The rest as a file whose inputs have the types and ranks of feeds."""
        graph = self.rest.graph
        new = {
            name: Kind(
                "tensor",
                "string" if array.dtype == object else str(array.dtype),
                (None,) * array.ndim,
            )
            for name, array in feeds.items()
            if name in self.file.graph.outputs
        }
        return replace(self.rest, graph=replace(graph, kinds={**graph.kinds, **new}))


def text_stage(file: File) -> TextStage | None:
    """None for a file that does not begin with such operators."""
    graph = file.graph
    texts = {name for name in graph.inputs if _is_text(graph.kinds.get(name))}
    known = texts | graph.constants.keys()
    first: list[Node] = []
    spells = False
    for node in graph.nodes:
        rule = find(node.domain, node.op, node.version)
        taken = set(reads(node))
        if rule is None or not (rule.spells or rule.moves is not None) or not taken <= known:
            continue
        if taken.isdisjoint(texts):
            continue
        spells = spells or rule.spells
        first.append(node)
        texts.update(node.outputs)
        known |= set(node.outputs)
    if not spells:
        return None
    made = {name for node in first for name in node.outputs if name}
    behind = tuple(node for node in graph.nodes if node not in first)
    wanted = {name for node in behind for name in reads(node)} | {*graph.outputs}
    bounds = tuple(name for name in sorted(made & wanted))
    own = tuple(name for name in graph.inputs if name in wanted and name not in made)
    return TextStage(
        replace(file, graph=replace(graph, nodes=tuple(first), outputs=bounds)),
        replace(file, graph=replace(graph, nodes=behind, inputs=(*own, *bounds))),
    )


def _is_text(kind: Kind | None) -> bool:
    return kind is not None and kind.form == "tensor" and kind.element in STRINGS
