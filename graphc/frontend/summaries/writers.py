"""What a summary becomes, and files that any program reads: CSV and lines of JSON."""

from __future__ import annotations

import csv
import json
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.text import show

Array = np.ndarray[Any, Any]
BINS = 64  # of a histogram
_COLOURS = {1: 0, 3: 2, 4: 6}  # what PNG calls so many channels


@record(frozen=True, eq=False)
class Histogram:
    """How numbers are spread: `counts[k]` of them lie between `edges[k]` and `edges[k + 1]`, of
    which the last one counts as inside.  NaN and infinities are counted apart.
    """

    low: float
    high: float
    count: int
    sum: float
    squares: float
    edges: Array
    counts: Array
    not_finite: int = 0

    @staticmethod
    def of(values: Array) -> Histogram:
        """The histogram of an array of any shape."""
        flat = np.asarray(values, np.float64).reshape(-1)
        kept = flat[np.isfinite(flat)]
        apart = flat.size - kept.size
        if not kept.size:
            return Histogram(0.0, 0.0, 0, 0.0, 0.0, np.zeros(1), np.zeros(0, np.int64), apart)
        low, high = float(kept.min()), float(kept.max())
        edges = _edges(low, high)
        counts, _ = np.histogram(kept, edges)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = float(kept.sum()), float(kept @ kept)
        return Histogram(low, high, kept.size, *sums, edges, counts, apart)


def _edges(low: float, high: float) -> Array:
    """The edges of up to BINS bins: fewer where floats have no more steps between."""
    if low == high:
        wide = max(0.5, abs(low) * 1e-6)
        return np.array([low - wide, low + wide])
    inner = 2 * np.linspace(low / 2, high / 2, BINS + 1)[1:-1]  # high - low may overflow
    return np.unique([low, *np.clip(inner, low, high), high])


@record(frozen=True, eq=False)
class Picture:
    """An image as PNG makes it: u8 of [height, width, channels]."""

    pixels: Array

    @staticmethod
    def of(values: Array) -> Picture:
        """From [height, width] or [height, width, channels]: integers are 0 to 255, floats 0 to 1.

        Raises GraphError for an image without pixels, or of a number of channels that none has.
        """
        values = values[..., None] if values.ndim == 2 else values
        if not values.size or values.shape[-1] not in _COLOURS:
            raise GraphError(f"an image of shape {list(values.shape)} cannot be shown")
        if values.dtype.kind in "iu":
            return Picture(np.clip(values, 0, 255).astype(np.uint8))
        scaled = np.nan_to_num(np.asarray(values, np.float64), posinf=1.0, neginf=0.0)
        return Picture(np.round(np.clip(scaled, 0.0, 1.0) * 255).astype(np.uint8))

    def png(self) -> bytes:
        """The file."""
        height, width, channels = self.pixels.shape
        header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
        rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter
        rows[:, 1:] = self.pixels.reshape(height, -1)
        parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
        chunks = (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in parts
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@record(frozen=True, eq=False)
class Entry:
    """One summary: `value` is a number, a Histogram, a Picture, a text or a Graph, as `kind` says.

    `time` is in seconds since 1970.
    """

    kind: str
    tag: str
    step: int
    value: Any
    time: float


class Writer(Protocol):
    """What `gc.summary.to` takes beside names of files."""

    def write(self, entry: Entry) -> None:
        """Take one summary."""

    def close(self) -> None:
        """There are no more."""


class _TextFile:
    """A file, in a folder that may have to be made."""

    @refusing
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("w", encoding="utf-8", newline="", errors="backslashreplace")

    def close(self) -> None:
        self.file.close()


class CSV(_TextFile):
    """Numbers as rows of a CSV file: time, step, tag, value. Other summaries are left out."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._row = csv.writer(self.file).writerow
        self._row(("time", "step", "tag", "value"))

    def write(self, entry: Entry) -> None:
        if entry.kind == "scalar":
            self._row((entry.time, entry.step, entry.tag, repr(entry.value)))


class JSONL(_TextFile):
    """Summaries as lines of JSON; images as PNG files in a folder beside them.

    A number that JSON has none for is the text "nan", "inf" or "-inf".
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._images = 0

    def write(self, entry: Entry) -> None:
        line = {"kind": entry.kind, "tag": entry.tag, "step": entry.step, "time": entry.time}
        self.file.write(json.dumps({**line, **self._fields(entry.value)}, allow_nan=False) + "\n")

    def _fields(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Histogram):
            return {
                **{name: plain(getattr(value, name)) for name in ("low", "high", "sum", "squares")},
                "count": value.count,
                "not_finite": value.not_finite,
                "edges": value.edges.tolist(),
                "counts": value.counts.tolist(),
            }
        if isinstance(value, Picture):
            return {"file": self._saved(value), "shape": list(value.pixels.shape)}
        return {"value": show(value) if isinstance(value, Graph) else plain(value)}

    def _saved(self, picture: Picture) -> str:
        folder = self.path.with_name(f"{self.path.stem}-images")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self._images:06}.png"
        path.write_bytes(picture.png())
        self._images += 1
        return f"{folder.name}/{path.name}"


def plain(value: Any) -> Any:
    """A value for JSON."""
    return value if not isinstance(value, float) or math.isfinite(value) else repr(value)
