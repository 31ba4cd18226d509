"""Compiled files whose metadata say something else and have digests that fit: whatever they say
of sizes and phases, they are refused with a GraphError, or a run is, or they run.

What holes and calls of functions leave out cannot be seen: the code itself says which words depend
on sizes.  Such files are only loaded.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import case

import graphc as gc
from graphc.errors import GraphError
from graphc.runtime.files.gcx_reader import digest

RUN = ("phased", "formulas")
SECTIONS = (*RUN, "holes", "hosts")
VALUES = (
    0,
    1,
    -1,
    2,
    7,
    100,
    1 << 31,
    1 << 40,
    1 << 62,
    -(1 << 63),
    None,
    "x",
    [],
    True,
    1.5,
    "f64",
)
Tensors = dict[str, tuple[str, bytes]]


def taken_apart(data: bytes) -> tuple[dict[str, Any], Tensors]:
    """The metadata of a file and its tensors."""
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    metadata = json.loads(entries.pop("__metadata__")["graphc"])
    tensors = {}
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        tensors[name] = entry["dtype"], data[start + begin : start + end]
    return metadata, tensors


def put_together(metadata: dict[str, Any], tensors: Tensors) -> bytes:
    """A file of them with digests that fit."""
    told = {name: hashlib.sha256(data).hexdigest() for name, (_, data) in tensors.items()}
    metadata = {**metadata, "contents": told}
    metadata["digest"] = digest(metadata)
    entries: dict[str, Any] = {"__metadata__": {"graphc": json.dumps(metadata)}}
    position = 0
    for name, (dtype, data) in tensors.items():
        offsets, size = [position, position + len(data)], len(data) // (8 if dtype == "I64" else 1)
        entries[name] = {"dtype": dtype, "shape": [size], "data_offsets": offsets}
        position += len(data)
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(data for _, data in tensors.values())


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in it."""
    if at:
        yield at
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            yield from places(part, (*at, key))


def other(draw: random.Random, value: Any) -> Any:
    """Something that may stand in its place."""
    if isinstance(value, list) and value and draw.random() < 0.8:
        made = list(value)
        change = draw.randrange(3)
        if change == 0:
            made.pop(draw.randrange(len(made)))
        elif change == 1:
            made.append(draw.choice(value))
        else:
            draw.shuffle(made)
        return made
    if type(value) is int and draw.random() < 0.5:
        return value + draw.choice((1, -1, 8, -8, 64))
    return draw.choice(VALUES)


def changed(draw: random.Random, data: bytes) -> tuple[bytes, tuple[Any, ...]]:
    """The file with one thing changed, in it or in one of the files within; and where that was."""
    metadata, tensors = taken_apart(data)
    within = [name for name in tensors if name.startswith(("body.", "program."))]
    if within and draw.random() < 0.6:
        name = draw.choice(within)
        inner, at = changed(draw, tensors[name][1])
        tensors[name] = tensors[name][0], inner
        return put_together(metadata, tensors), at
    known = {name: metadata[name] for name in SECTIONS if metadata.get(name)}
    found = [at for at in places(known) if at[-1] not in ("name", "lines")]
    if not found:
        return put_together(metadata, tensors), ("nothing",)
    at = draw.choice(found)
    home: Any = known
    for key in at[:-1]:
        home = home[key]
    home[at[-1]] = other(draw, home[at[-1]])
    return put_together(metadata | known, tensors), at


def in_phases(x: Any) -> Any:
    chosen = x[x > 0]
    return np.sort(chosen), np.concatenate([chosen, x])


def with_a_body(x: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        return np.sort(c[c > row.min()]), (row[row > 0] * 2).sum()

    return gc.scan(body, x[0], x)


def open_sizes(x: Any) -> Any:
    return np.concatenate([x, x[::-1]]), np.cumsum(x)


PROGRAMS = {
    "open sizes": (open_sizes, ("n",), ((50,), (7,))),
    "phases": (in_phases, ("n",), ((50,), (7,))),
    "a body": (with_a_body, ("n", "m"), ((6, 50), (3, 7))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_files_say_of_sizes_and_phases_is_checked(name: str, tmp_path: Path) -> None:
    function, spec, shapes = PROGRAMS[name]
    text, path = tmp_path / "model.gir", tmp_path / "model.gcx"
    gc.compile(function).save(text, gc.spec(spec, "f64"))
    gc.load(text).build().save(path, text.read_text())
    data = path.read_bytes()
    arrays = [np.random.default_rng(0).standard_normal(shape) for shape in shapes]
    path.write_bytes(put_together(*taken_apart(data)))
    for x in arrays:
        gc.load(path)(x)  # digests that fit are taken
    draw, found = random.Random(0), Counter[str]()
    for _ in range(300):
        made, (section, *where) = changed(draw, data)
        path.write_bytes(made)
        with case(section, *where):
            try:
                loaded = gc.load(path)
                for x in arrays if section in RUN else ():
                    loaded(x)
                found["taken"] += 1
            except GraphError:
                found["refused"] += 1
    assert found["refused"] > 100
