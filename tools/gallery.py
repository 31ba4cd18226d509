"""Runs the examples and draws the pictures of docs/gallery.md.

    python -m tools.gallery            all of them, some minutes
    python -m tools.gallery digits     some of them

Losses and times are those of the run, so nothing checks that the pictures are current.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.picture import HEAD, text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs/pictures"
COLOURS = {"kernel": "#6a8f6a", "wait": "#eeeeee", "transfer": "#c2703d", "send": "#8899aa"}


def example(name: str, *arguments: object) -> str:
    """What an example prints."""
    command = [sys.executable, str(ROOT / f"examples/{name}.py"), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def digits(folder: Path) -> None:
    example("digits", "--fresh", "--folder", folder)
    shutil.copy(folder / "loss.png", PICTURES / "digits.png")


def char_lstm(folder: Path) -> None:
    example("char_lstm", "--fresh", "--folder", folder)
    shutil.copy(folder / "loss.png", PICTURES / "char_lstm.png")


def takion(folder: Path) -> None:
    example("takion", "--plot", PICTURES / "takion.png")


def sentence_similarity(folder: Path) -> None:
    """A row and a column for each sentence, darker where two mean the same."""
    lines = (
        "A man is eating food.",
        "Someone has a meal.",
        "The girl carries a baby.",
        "A child is carried by a girl.",
        "It rains in the mountains.",
    )
    found = json.loads(example("sentence_similarity", "--json", *lines))["similarity"]
    drawn = ""
    for i, (line, row) in enumerate(zip(lines, found)):
        drawn += text(16, 40 + 40 * i, f"{i + 1}  {line}")
        for j, value in enumerate(row):
            shade = round(255 - 150 * max(value, 0))
            x, y = 250 + 60 * j, 15 + 40 * i
            drawn += (
                f'<rect x="{x}" y="{y}" width="58" height="38" fill="rgb({shade},{shade},255)"/>\n'
            )
            drawn += text(x + 15, y + 24, f"{value:.2f}")
    size = {"width": 250 + 60 * len(lines) + 16, "height": 30 + 40 * len(lines)}
    (PICTURES / "sentence_similarity.svg").write_text(HEAD.format(**size) + drawn + "</svg>\n")


def two_devices(folder: Path) -> None:
    """The timeline of one run: what each device did when."""
    example("two_devices", "--folder", folder)
    events = json.loads((folder / "two_devices.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["cat"] in COLOURS]
    end = max(event["ts"] + event["dur"] for event in spans)
    drawn = "".join(span(event, 760 / end) for event in spans)
    for number in (0, 1):
        drawn += text(16, 50 + 60 * number, f"cpu:{number}", "bold")
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x = 80 + 110 * number
        drawn += f'<rect x="{x}" y="150" width="12" height="12" fill="{colour}" stroke="#555"/>\n'
        drawn += text(x + 18, 161, kind)
    drawn += text(700, 161, f"{end / 1000:.1f} ms in all")
    page = HEAD.format(width=860, height=175) + drawn + "</svg>\n"
    (PICTURES / "two_devices.svg").write_text(page)


def span(event: dict[str, Any], scale: float) -> str:
    x, width = 80 + event["ts"] * scale, max(event["dur"] * scale, 0.5)
    y, height = 25 + 60 * event["tid"], 40 if event["cat"] in ("kernel", "wait") else 12
    colour = COLOURS[event["cat"]]
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>\n'


DRAWN = (digits, char_lstm, takion, sentence_similarity, two_devices)


def main() -> None:
    chosen = sys.argv[1:]
    for draw in DRAWN:
        if not chosen or draw.__name__ in chosen:
            with tempfile.TemporaryDirectory() as name:
                draw(Path(name))
            print(draw.__name__)


if __name__ == "__main__":
    main()
