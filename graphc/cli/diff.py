"""`graphc diff`: what changed between two graphs, node by node.

Nodes keep their ids from stage to stage, so two stages of one model are compared by id.
"""

from __future__ import annotations

import re
import sys
from dataclasses import field
from pathlib import Path
from typing import Any

import click

from graphc.base.record import record
from graphc.cli.commands import Mismatch
from graphc.cli.common import MODEL, json_option, load_graph, print_json

_NODE = re.compile(r"( *)%(\d+) = ")
_STATEMENT = re.compile(r" *(return|name|mark)\b")
_GRAPH = re.compile(r" *graph @(.*?)\(")
_MOST_LINES = 400

Key = tuple[str, str]


@record
class Difference:
    """Texts of nodes that are only left, only right, or changed; headers count as nodes."""

    removed: list[tuple[Key, str]] = field(default_factory=list)
    added: list[tuple[Key, str]] = field(default_factory=list)
    changed: list[tuple[Key, str, str]] = field(default_factory=list)
    moved: int = 0

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed or self.moved)


def chunks(text: str) -> dict[Key, str]:
    """The text of every top-level node (with its regions), by graph and id; headers and returns."""
    found: dict[Key, list[str]] = {}
    graph, key, indent = "", ("", "file"), ""
    for line in text.splitlines()[1:]:  # after the version
        header, node = _GRAPH.match(line), _NODE.match(line)
        top = not graph or len(line) - len(line.lstrip()) <= len(indent)
        if header and (not graph or len(line) - len(line.lstrip()) < len(indent)):
            graph, key = header[1], (header[1], "graph")
            indent = " " * (len(line) - len(line.lstrip()) + 2)
        elif top and node:
            key = (graph, f"%{node[2]}")
        elif top and (found_word := _STATEMENT.match(line)):
            key = (graph, "return" if found_word[1] == "return" else line.split("=")[0].strip())
        elif top and line.strip() == "}" and len(line) < len(indent):
            continue
        margin = len(line) - len(line.lstrip())
        found.setdefault(key, []).append(line[min(margin, len(indent)) :])
    return {key: "\n".join(lines) for key, lines in found.items()}


def compare(left: str, right: str) -> Difference:
    """The difference of two graph texts."""
    a, b = chunks(left), chunks(right)
    made = Difference()
    made.removed = [(key, text) for key, text in a.items() if key not in b]
    made.added = [(key, text) for key, text in b.items() if key not in a]
    made.changed = [(key, a[key], b[key]) for key in a if key in b and a[key] != b[key]]
    before = [key for key in a if key in b]
    after = [key for key in b if key in a]
    made.moved = sum(x != y for x, y in zip(before, after))
    return made


@click.command("diff")
@click.argument("left", type=MODEL)
@click.argument("right", type=MODEL)
@click.option("--locations", is_flag=True, help="Compare file and line of nodes too.")
@json_option
def diff_command(left: Path, right: Path, locations: bool, as_json: bool) -> None:
    """Compare LEFT.gir and RIGHT.gir node by node; exit 3 if they differ."""
    from graphc.frontend.files.gir_files import show

    texts = [
        show(load_graph(path, weights=False).graph, locations=locations) for path in (left, right)
    ]
    found = compare(*texts)
    if as_json:
        print_json(_record(found))
    elif found:
        _print(found)
    if found:
        raise Mismatch


def _record(found: Difference) -> dict[str, Any]:
    return {
        "equal": not found,
        "removed": [text for _, text in found.removed],
        "added": [text for _, text in found.added],
        "changed": [{"left": a, "right": b} for _, a, b in found.changed],
        "moved": found.moved,
    }


def _print(found: Difference) -> None:
    lines = [(f"- {line}", "red") for _, text in found.removed for line in text.splitlines()]
    lines += [(f"+ {line}", "green") for _, text in found.added for line in text.splitlines()]
    for _, before, after in found.changed:
        lines += [(f"- {line}", "red") for line in before.splitlines()]
        lines += [(f"+ {line}", "green") for line in after.splitlines()]
    colour = sys.stdout.isatty()
    for text, style in lines[:_MOST_LINES]:
        click.echo(click.style(text, fg=style) if colour else text)
    if len(lines) > _MOST_LINES:
        click.echo(f"... and {len(lines) - _MOST_LINES} more lines")
    click.echo(
        f"{len(found.removed)} removed, {len(found.added)} added, {len(found.changed)} changed, "
        f"{found.moved} in another place"
    )
