"""Pages of compilations: what a page is made of, and what it may read of the user's files.

A function of this process comes from files that are open to it.  A graph from a file only says that
it does: what its lines name is read where a folder of sources is given, and lies in that.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.build import Built
from graphc.ir.graph import Graph, Program
from graphc.viewer.page import Page
from graphc.viewer.story import MOST_SOURCE, Subject

if TYPE_CHECKING:
    from graphc.frontend.files.loaded_graph import LoadedGraph
    from graphc.runtime.observe.trace import Trace

MOST_RUNS = 100


def page_of(
    built: Built,
    config: Config,
    runs: Sequence[Trace] = (),
    sources: Mapping[str, str] | None = None,
) -> Page:
    """The page of a compilation and of its traced runs."""
    name = built.stages[0].value.name
    return Page(Subject(name, built.stages, config, built.image, built.kernels, runs, sources))


def page_of_graph(loaded: LoadedGraph, sources: Mapping[str, str] | None = None) -> Page:
    """The page of a graph with dimensions that are not known yet: there is only its first stage."""
    from graphc.passes.pipeline import NO_CHANGE, StageResult

    stage = StageResult(loaded.stage or "trace", loaded.graph, 0.0, NO_CHANGE)
    return Page(Subject(loaded.name, [stage], loaded.config, sources=sources))


def traced_runs(built: Built, arrays: Sequence[Any], count: int) -> list[Trace]:
    """So many traced runs. Every one counts: variables change."""
    from graphc.runtime.observe.trace import trace

    if not isinstance(count, int) or not 0 <= count <= MOST_RUNS:
        raise GraphError(f"runs must be a number from 0 to {MOST_RUNS}, got {count!r}")
    return [trace(built.executable, list(arrays))[1] for _ in range(count)]


def own_sources(value: Graph | Program) -> dict[str, str]:
    """The text of the files that the nodes of a traced graph come from."""
    found = {file: "".join(linecache.getlines(file)) for file in set(_files(value))}
    return {file: text for file, text in found.items() if text and len(text) <= MOST_SOURCE}


def sources_in(folder: Path, value: Graph | Program) -> dict[str, str]:
    """The text of those files that lie in a folder, links followed."""
    root, found = folder.resolve(), {}
    for file in sorted(set(_files(value))):
        try:
            path = (root / file).resolve()
            if path.is_relative_to(root) and path.is_file() and path.stat().st_size <= MOST_SOURCE:
                found[file] = path.read_text(encoding="utf-8")
        except (OSError, ValueError):  # not there, or no text
            continue
    return found


def _files(value: Graph | Program) -> Iterator[str]:
    pending = list(value.graphs if isinstance(value, Program) else (value,))
    while pending:
        for node in (graph := pending.pop()).nodes:
            pending += node.regions
            if node.loc is not None:
                yield node.loc[0]
        for node in graph.params:
            if node.loc is not None:
                yield node.loc[0]
