"""Files of a traced run: a page that needs nothing else, or JSON for other people's viewers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from graphc.errors import GraphError
from graphc.runtime.files.files import write_atomically
from graphc.runtime.observe.trace import Trace, chrome
from graphc.viewer.page import data_element, document

SCRIPTS = ("data.js", "elements.js", "charts.js", "lanes.js", "trace.js")


def write_trace(found: Trace, path: str | Path, titles: Mapping[str, str] | None = None) -> None:
    """Write a trace: a page of lanes over time (.html), or JSON for chrome://tracing and Perfetto.

    `titles` are better names of nodes, by their text. Raises GraphError for another ending and
    when the file cannot be written.
    """
    path = Path(path)
    if path.suffix not in (".json", ".html"):
        raise GraphError(f"{path.name} is neither a .json nor a .html file")
    told = chrome(found, titles or {})
    text = trace_page(found.name, told) if path.suffix == ".html" else json.dumps(told)
    try:
        write_atomically(path, [text.encode()])
    except OSError as error:
        raise GraphError(f"cannot write {path.name}: {error.strerror}") from None


def trace_page(title: str, told: dict[str, object]) -> str:
    """The page of a run that is told in Chrome's Trace Event Format."""
    return document(title, "trace.html", data_element(told), ("style.css",), SCRIPTS)
