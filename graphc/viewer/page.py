"""The page: data and assets in one HTML file that asks nobody for anything.

The data are JSON, packed and in base64, so that no text of a model is part of the page's own text;
what the page shows of it, it shows as text.  Its policy lets it load nothing at all.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from graphc.errors import GraphError, printable
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import hint_of
from graphc.runtime.files.files import write_atomically
from graphc.viewer.story import Subject, story

SCRIPTS = (
    "dagre.min.js",
    "data.js",
    "groups.js",
    "elements.js",
    "graph.js",
    "stages.js",
    "kernels.js",
    "charts.js",
    "memory.js",
    "lanes.js",
    "timeline.js",
    "main.js",
)
_POLICY = "default-src 'none'; {allowed}; img-src data:; form-action 'none'; base-uri 'none'"
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
"""


class Page:
    """A page of a compilation: `save` writes it, a notebook shows it, `html` is its text."""

    def __init__(self, subject: Subject) -> None:
        self.name = subject.name
        with by_example():
            self.html = page(subject.name, story(subject))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, which is returned. Raises GraphError when it cannot."""
        target = Path(path)
        try:
            write_atomically(target, [self.html.encode()])
        except OSError as error:
            raise GraphError(f"cannot write {target}: {error.strerror}") from None
        return target

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which may run its script and nothing else."""
        inside = html.escape(self.html)
        style = "width:100%;height:640px;border:1px solid #8884;border-radius:6px"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{inside}"></iframe>'

    def __repr__(self) -> str:
        return f"<graphc page of {printable(self.name)}: {len(self.html):,} bytes>"


def page(title: str, data: dict[str, Any]) -> str:
    """The text of a page."""
    return document(title, "page.html", data_element(data), ("style.css",), SCRIPTS)


def editor(start: dict[str, str]) -> str:
    """The text of the page that `graphc explore` shows: an editor, and a frame for pages."""
    text = json.dumps(start).replace("<", "\\u003c")  # nothing in it may end the script
    given = f'<script type="application/json" id="start">{text}</script>\n'
    styles, scripts = ("style.css", "explore.css"), ("elements.js", "explore.js")
    return document(
        "graphc explore",
        "explore.html",
        given,
        styles,
        scripts,
        "connect-src 'self'; frame-src 'self'; ",
    )


def document(
    title: str,
    body: str,
    data: str,
    styles: tuple[str, ...],
    scripts: tuple[str, ...],
    more: str = "",
) -> str:
    """A page of assets and data, which may run and load no more than what is named."""
    style, texts = "".join(map(asset, styles)), list(map(asset, scripts))
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in texts)
    allowed = f"{more}script-src {hashes}; style-src 'sha256-{_digest(style)}'"
    head = _HEAD.format(title=html.escape(printable(title)), policy=_POLICY.format(allowed=allowed))
    inside = [f"<style>{style}</style>\n</head>\n{asset(body)}", data]
    inside += [f"<script>{text}</script>\n" for text in texts]
    return head + "".join(inside) + "</body>\n</html>\n"


def data_element(data: dict[str, Any]) -> str:
    """The element that holds a page's data."""
    return f'<script type="application/octet-stream" id="data">{packed(data)}</script>\n'


def packed(data: dict[str, Any]) -> str:
    """Data as base64 of packed JSON; sizes that are left open are those of the first arrays."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=hint_of)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def asset(name: str) -> str:
    """A file of the page's own."""
    return (files("graphc.viewer") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
