"""Damaged .gcx and weights files: is one ever taken for what was saved?

    python -m benchmarks.damaged --count 100000

The header of a file, its metadata and its data are changed: bits, bytes, numbers, words, pieces
that are left out or doubled.  What is read must be refused with a GraphError, or be what was saved.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from graphc.errors import GraphError
from graphc.frontend.files.weights import Weights, write_weights
from graphc.ir.literal import literal
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.files.gcx_phases import PhasedFile
from graphc.runtime.files.gcx_reader import File
from graphc.runtime.load.program import Image

NUMBERS = (b"0", b"1", b"-1", b"64", b"4096", b"9223372036854775807", b"1e30", b"true", b"null")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def a_bit(draw: random.Random, data: bytearray) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def some_bytes(draw: random.Random, data: bytearray) -> None:
    start = draw.randrange(len(data))
    data[start : start + draw.choice((1, 2, 8))] = draw.randbytes(draw.choice((1, 2, 8)))


def a_piece(draw: random.Random, data: bytearray) -> None:
    """Left out, or doubled."""
    start = draw.randrange(len(data))
    end = min(len(data), start + draw.choice((1, 8, 64, 1000)))
    data[start:end] = data[start:end] * draw.choice((0, 2))


def an_end(draw: random.Random, data: bytearray) -> None:
    del data[draw.randrange(len(data)) :]


def a_number(draw: random.Random, data: bytearray) -> None:
    """A number of the header, which stays as long as it was, or says how long it is now."""
    end = 8 + int.from_bytes(data[:8], "little")
    numbers = list(re.finditer(rb"-?\d{1,18}", bytes(data[8:end])))
    if not numbers:
        return
    found = draw.choice(numbers)
    new = draw.choice((*NUMBERS, str(int(found[0]) + draw.choice((-1, 1))).encode()))
    data[8 + found.start() : 8 + found.end()] = new
    if draw.random() < 0.8:
        data[:8] = longer(end, len(new) - len(found[0]))


def a_word(draw: random.Random, data: bytearray) -> None:
    end = 8 + int.from_bytes(data[:8], "little")
    words = list(re.finditer(rb"[\w.]+", bytes(data[8:end])))
    if not words:
        return
    found, other = draw.choice(words), draw.choice(words)
    data[8 + found.start() : 8 + found.end()] = other[0]
    data[:8] = longer(end, len(other[0]) - len(found[0]))


def longer(end: int, more: int) -> bytes:
    """The length of a header that ended there, as a file says it."""
    return ((end - 8 + more) % (1 << 64)).to_bytes(8, "little")


CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    a_bit,
    a_bit,
    some_bytes,
    a_piece,
    an_end,
    a_number,
    a_number,
    a_word,
)


def damaged(draw: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if len(made) > 8:
            draw.choice(CHANGES)(draw, made)
    return bytes(made)


def model(folder: Path) -> Path:
    """A compiled file with constants, two devices and the text of its graph."""

    def function(x: Any) -> Any:
        with gc.device("cpu:1"):
            h = np.tanh(x @ np.arange(80, dtype=np.float32).reshape(4, 20))
        return h + np.arange(20, dtype=np.float32), np.cumsum(x, axis=0)

    path = folder / "model.gcx"
    compiled = gc.compile(function, devices=("cpu:0", "cpu:1"), threads=1)
    image = compiled.executable(X).image
    gcx_writer.save(image, path)
    return path


def parts(image: Image) -> list[object]:
    """All that an image holds, to be compared."""
    fields = [name for name in Image.__slots__ if name not in ("others", "origins")]
    values = [getattr(each, name) for each in image.images for name in fields]
    plain = [v.tobytes() if isinstance(v, np.ndarray) else v for v in values]
    return [*plain, *(dict(each.origins) for each in image.images)]


def compiled_files(draw: random.Random, folder: Path) -> Callable[[], str]:
    """Damages one compiled file more and tells what became of it."""
    path = model(folder)
    data, wanted = path.read_bytes(), parts(gcx_files.read(path))

    def once() -> str:
        made = damaged(draw, data)
        path.write_bytes(made)
        try:
            return "equal" if parts(gcx_files.read(path)) == wanted else "TAKEN"
        except GraphError:
            return "refused"

    return once


def phased_files(draw: random.Random, folder: Path) -> Callable[[], str]:
    """The same for one whose data decides a size: a file of files."""
    text, path = folder / "phased.gir", folder / "phased.gcx"
    gc.compile(lambda x: (x[x > 0], np.cumsum(x)[::2])).save(text, gc.spec(("n",), "f32"))
    gc.load(text).build().save(path, text.read_text())
    data, wanted = path.read_bytes(), phases(path)

    def once() -> str:
        path.write_bytes(damaged(draw, data))
        try:
            return "equal" if phases(path) == wanted else "TAKEN"
        except GraphError:
            return "refused"

    return once


def phases(path: Path) -> list[object]:
    """All that such a file holds, to be compared."""
    file = PhasedFile(File(path))
    images = [parts(image) for own in file.images for image in own]
    return [file.params, file.results, file.steps, file.gives, file.formulas, file.lines, images]


def weights_files(draw: random.Random, folder: Path) -> Callable[[], str]:
    """The same for a file of weights."""
    path = folder / "model.safetensors"
    found = [literal(np.arange(k, dtype=kind)) for k, kind in ((40, "f4"), (7, "i8"), (300, "u1"))]
    write_weights(path, found)
    data = path.read_bytes()

    def once() -> str:
        path.write_bytes(damaged(draw, data))
        try:
            made = Weights(path)
            known = [item for item in found if item.digest in made]
            same = [made[i.digest].tobytes() == i.array.tobytes() for i in known]
            kinds = [made[i.digest].nbytes == i.array.nbytes for i in known]
        except GraphError:
            return "refused"
        return "equal" if all(same) and all(kinds) else "TAKEN"

    return once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for kind in (compiled_files, phased_files, weights_files):
            once = kind(random.Random(options.seed), Path(folder))
            totals = Counter(once() for _ in range(options.count))
            print(f"{kind.__name__}: {dict(totals)}", flush=True)
            bad |= "TAKEN" in totals
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
