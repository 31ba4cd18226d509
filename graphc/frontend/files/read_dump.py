"""A dump folder read back: its stages in order, what index.txt says of them, and its kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.base.record import replace
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.files.gir_files import graph_of_text, read_text
from graphc.frontend.files.page_sources import sources_in
from graphc.ir.graph import Graph, Program
from graphc.ir.place import device_of
from graphc.viewer.kernels import Dumped
from graphc.viewer.page import Page
from graphc.viewer.story import Subject

if TYPE_CHECKING:
    from graphc.passes.pipeline import StageResult

_FILE = re.compile(r"(\d\d(?:\.\d\d)?)-(\w+)\.gir")
_STAGE = re.compile(r"(\d\d(?:\.\d\d)?|--) +(\w+) +(\d{1,12}\.\d+) +(\d+)  ?(.*)")
_KERNEL = re.compile(r" +(\w+) +\d+ x +%(\d+)\b.*")
_TEXT = re.compile(r"(\w{1,80})(\.py|\.ll|\.s)")
_REASON = re.compile(r" {40,}%(\d+): (.*)")


def is_dump(path: Path) -> bool:
    """Is it a folder that a dump was written to?"""
    return path.is_dir()


def dumped_page(folder: Path, sources: Path | None = None) -> Page:
    """The page of a dump. Raises GraphError for a folder that holds none."""
    stages = list(dumped_stages(folder))
    if not stages:
        raise GraphError(
            f"{folder} holds no dumped stage", hint="graphc compile --dump DIR writes such a folder"
        )
    last = stages[-1].value
    config = replace(Config(), devices=_devices(last))
    texts = sources_in(sources, stages[0].value) if sources is not None else None
    return Page(Subject(last.name, stages, config, sources=texts, dumped=dumped_kernels(folder)))


def dumped_kernels(folder: Path) -> list[Dumped]:
    """The kernels of a dump, by the names of their files; the index tells of some what they do."""
    told = {m[1]: int(m[2]) for line in _index(folder) if (m := _KERNEL.fullmatch(line))}
    found: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("kernels/*")):
        if match := _TEXT.fullmatch(path.name):
            found.setdefault(match[1], {})[match[2]] = read_text(path)
    return [Dumped(symbol, texts, told.get(symbol, -1)) for symbol, texts in found.items()]


def dumped_stages(folder: Path) -> Iterator[StageResult]:
    """Every stage that was written, in order, with its seconds and reasons."""
    from graphc.passes.pipeline import Note, StageResult

    files = sorted((m[1], m[2], p) for p in folder.iterdir() if (m := _FILE.fullmatch(p.name)))
    told = _told(_index(folder))
    for number, name, path in files:
        read = graph_of_text(path, read_text(path), weights=False, share=False)
        seconds, text, reasons = told.get(number, (0.0, "", []))
        note = Note(text or f"{len(read.value)} nodes")
        note.reasons = tuple(reasons)
        yield StageResult(name, read.value, seconds, note)


def _index(folder: Path) -> list[str]:
    path = folder / "index.txt"
    return read_text(path).splitlines() if path.is_file() else []


def _told(index: list[str]) -> dict[str, tuple[float, str, list[tuple[int, str]]]]:
    """What an index says of each stage: seconds, what happened and the first reasons."""
    found: dict[str, tuple[float, str, list[tuple[int, str]]]] = {}
    latest: list[Any] = []
    for line in index:
        if match := _STAGE.fullmatch(line):
            latest = []
            found[match[1]] = float(match[3]) / 1e3, match[5], latest
        elif match := _REASON.fullmatch(line):
            latest.append((int(match[1]), match[2]))
    return found


def _devices(value: Graph | Program) -> tuple[str, ...]:
    graphs = value.graphs if isinstance(value, Program) else (value,)
    places = [g.device for g in graphs] + [device_of(n.place) for g in graphs for n in g.nodes]
    found = tuple(dict.fromkeys(place.short for place in places if place is not None))
    return found or Config().devices
