"""For the docs site: tables of arguments in docstrings become lists.

static    names of arguments            - `static`: names of arguments whose values
          whose values specialise         specialise
donate    names of arguments       ->   - `donate`: names of arguments
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROW = re.compile(r"^(\S+(?: \S+){,3}?(?<!\.)) {2,}(\S.*)$")  # "x, y  text", no sentence


def listed(text: str) -> str:
    """The docstring with its tables as lists; other paragraphs and examples as they are."""
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    first = _ROW.match(lines[0])
    if first is None or lines[0].startswith(" "):
        return text
    column, made = first.start(2), []
    for line in lines:
        row = _ROW.match(line)
        if row is not None and row.start(2) == column:
            made.append(f"- `{row[1]}`: {row[2]}")
        elif line.startswith(" "):
            made.append(f"  {line.strip()}")
        else:
            return text
    return "\n".join(made)


class Tables(griffe.Extension):  # type: ignore[misc]
    """Rewrites every docstring that the site shows."""

    def on_instance(self, *, obj: Any, **others: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)
