"""Draws the pictures of docs/architecture.md from the code: the stages of the pipeline by folder,
the folders of each room, and which room imports which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from itertools import groupby
from pathlib import Path

from graphc.passes.pipeline import STAGES

ROOT = Path(__file__).parents[1]
WIDTH, LEFT, ROW, CHIP, LETTER = 900, 190, 34, 24, 7.9
# Rooms in the order in which they may import one another: each only what stands above it.
ROOMS = (
    "ir",
    "loops",
    "ops",
    "runtime",
    "codegen",
    "passes",
    "frontend",
    "formats",
    "learn",
    "cli",
)
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    'font-family="sans-serif" font-size="13">\n'
    "<style>.box{{fill:#fff;stroke:#555}} .room{{fill:#eef2f7;stroke:#8899aa}} "
    ".chip{{fill:#dcebdc;stroke:#6a8f6a}} .line{{fill:none;stroke:#555}} "
    ".bold{{font-weight:bold}}</style>\n"
    '<rect width="{width}" height="{height}" fill="#fff"/>\n'
)


def text(x: float, y: float, shown: str, kind: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{escape(shown)}</text>\n'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5" '
        f'class="{kind}"/>\n'
    )


def arrow(x: float, y: float, length: float) -> str:
    """Downwards."""
    end = y + length
    return f'<path d="M{x:.0f} {y:.0f}V{end:.0f}m-4 -6l4 6l4 -6" class="line"/>\n'


def chips(y: float, label: str, names: Iterable[str]) -> tuple[str, float]:
    """A label and small boxes beside it, in as many lines as they need; the picture, where it
    ends."""
    drawn, x = text(24, y + 16, label, "bold"), float(LEFT)
    for name in names:
        width = 16 + LETTER * len(name)
        if x + width > WIDTH - 20:
            x, y = float(LEFT), y + CHIP + 5
        drawn += box(x, y, width, CHIP, "chip") + text(x + 8, y + 16, name)
        x += width + 7
    return drawn, y + ROW


# ------------------------------------------------------------------------------------- the compiler


def runs() -> list[tuple[str, list[str]]]:
    """Neighbouring stages of one folder: (folder, their names)."""
    rows = []
    for stage in STAGES:
        parts = stage.run.__module__.split(".")
        folder = parts[2] if parts[1] == "passes" and len(parts) > 3 else "pipeline"
        rows.append((folder, stage.name))
    return [(folder, [name for _, name in row]) for folder, row in groupby(rows, lambda r: r[0])]


def folders(room: str) -> list[str]:
    paths = (ROOT / "graphc" / room).iterdir()
    return sorted(p.name for p in paths if p.is_dir() and any(p.glob("*.py")))


def panel(y: float, title: str, rows: Iterable[tuple[str, list[str]]]) -> tuple[str, float]:
    """A room: its title and its rows of boxes."""
    drawn, inner = "", y + 32
    for label, names in rows:
        row, inner = chips(inner, label, names)
        drawn += row
    frame = box(10, y, WIDTH - 20, inner - y, "room")
    return frame + text(24, y + 20, title, "bold") + drawn, inner


def compiler() -> str:
    """From a Python function to a call: every stage in order, under its folder."""
    rooms = [
        ("frontend: NumPy code, or a file, becomes a graph", [("", folders("frontend"))]),
        ("passes: graph to graph; every row reads and writes the text form", runs()),
        ("codegen: a planned graph becomes machine code", [("", folders("codegen"))]),
        ("runtime: objects are loaded and called", [("", folders("runtime"))]),
    ]
    drawn, y = "", 10.0
    ways = ("@gc.compile", "model.gir", "graphc run / compile", "gc.Session")
    for number, way in enumerate(ways):
        x = 20 + number * 220
        drawn += box(x, y, 200, 30, "box") + text(x + 14, y + 20, way) + arrow(x + 100, y + 30, 18)
    y += 50
    for title, rows in rooms:
        room, end = panel(y, title, rows)
        drawn += room
        if title != rooms[-1][0]:
            drawn += arrow(WIDTH / 2, end, 18)
        y = end + 20
    return HEAD.format(width=WIDTH, height=round(y)) + drawn + "</svg>\n"


# ------------------------------------------------------------------------------------- the imports


def imports() -> set[tuple[str, str]]:
    """(room, what it imports), of all imports at any depth, those for types included."""
    found = set()
    pattern = re.compile(r"^ *(?:from|import) graphc\.(\w+)", re.MULTILINE)
    for room in ROOMS:
        home = ROOT / "graphc" / room
        for path in home.rglob("*.py") if home.is_dir() else [home.with_suffix(".py")]:
            found |= {(room, other) for other in pattern.findall(path.read_text())}
    return {(a, b) for a, b in found if a != b and b in ROOMS}


def rooms() -> str:
    """The rooms from top to bottom; an arc leads from each to every room that it imports."""
    height, drawn = 20 + 46 * len(ROOMS), ""
    place = {room: 20 + 46 * number for number, room in enumerate(ROOMS)}
    for room, y in place.items():
        drawn += box(20, y, 150, 30, "room") + text(34, y + 20, room, "bold")
    for room, other in sorted(imports()):
        start, end = place[room] + 15, place[other] + 15
        reach = 170 + 24 + 0.55 * abs(start - end)
        drawn += (
            f'<path d="M170 {start - 4:.0f}C{reach:.0f} {start - 4:.0f} {reach:.0f} {end + 4:.0f} '
            f'174 {end + 4:.0f}m7 -4l-7 4l7 4" class="line"/>\n'
        )
    return HEAD.format(width=470, height=height) + drawn + "</svg>\n"


def pictures() -> dict[Path, str]:
    """Every picture and its text."""
    folder = ROOT / "docs/pictures"
    return {folder / "compiler.svg": compiler(), folder / "rooms.svg": rooms()}
