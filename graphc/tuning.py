"""Tuned numbers: thresholds, block sizes and limits that change how fast, never what is computed.

Each room keeps its own in a `tuning.py`, a class of fields that read like what they are:

    class PassesTuning(Tuning):
        block_rows = number(16, 1, 1 << 20, "rows", "minilm", "blocks that stay near against ...")

    tuned = PassesTuning("passes")     # tuned.block_rows is 16

A number is tuned if any value between `least` and `most` gives the same results but for rounding:
the tests compile random graphs with many of them at their ends and between.  What is refused
(`graphc.limits`), what files and objects hold, what a type rule reads, and what follows from
mathematics is not tuned; it stands where it is used.

GRAPHC_TUNING="codegen.unit_work=65536,passes.block_rows=32" sets numbers for a process.  Whatever
keeps what was made with one set of numbers has `changes()` in its keys, or is `forgotten`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from graphc.errors import GraphError

T = TypeVar("T")
Changes = tuple[tuple[str, Any], ...]


class Number(NamedTuple):
    """A tuned number: `case` is what judges it in `make tune`, `trades` what it weighs."""

    value: Any
    least: Any
    most: Any
    unit: str
    case: str
    trades: str


def number(value: T, least: T, most: T, unit: str, case: str, trades: str) -> T:
    """A field of a `Tuning`; of an instance it is the value."""
    return Number(value, least, most, unit, case, trades)  # type: ignore[return-value]


# Where the tables are; a name that is looked up imports them all.
TABLES = {
    "loops": "graphc.loops.tuning",
    "ops": "graphc.ops.tuning",
    "passes": "graphc.passes.tuning",
    "codegen": "graphc.codegen.tuning",
    "native": "graphc.codegen.runtime.tuning",
    "gpu": "graphc.codegen.gpu.tuning",
    "runtime": "graphc.runtime.tuning",
}
ROOMS: dict[str, Tuning] = {}
_changes: Changes = ()
_forgets: list[Callable[[], object]] = []


class Tuning:
    """The tuned numbers of a room, as attributes."""

    def __init__(self, room: str) -> None:
        found = {k: v for k, v in vars(type(self)).items() if isinstance(v, Number)}
        vars(self).update({name: known.value for name, known in found.items()})
        vars(self).update(room=room, numbers=found)
        ROOMS[room] = self
        for name, value in _wishes()[room]:
            self._wish(name, value)
        vars(self).update(at_first={name: getattr(self, name) for name in found})

    room: str
    numbers: dict[str, Number]
    at_first: dict[str, Any]  # as the code and the environment say

    def __setattr__(self, name: str, value: Any) -> None:
        """Change a number for this process, whatever its range."""
        global _changes
        known = self.numbers[name]
        vars(self)[name] = value
        others = dict(_changes)
        others.pop(f"{self.room}.{name}", None)
        if value != known.value:
            others[f"{self.room}.{name}"] = value
        _changes = tuple(sorted(others.items()))
        for drop in _forgets:
            drop()

    def _wish(self, name: str, text: str) -> None:
        """Follow the environment, or warn of what cannot be followed."""
        try:
            setattr(self, name, parsed(f"{self.room}.{name}", self.numbers.get(name), text))
        except GraphError as error:
            warnings.warn(f"GRAPHC_TUNING: {error}", RuntimeWarning, stacklevel=2)


def changes() -> Changes:
    """The numbers that are not as they stand in the code: part of the keys of what they make."""
    return _changes


def changes_here() -> Changes:
    """The numbers that are not as the code and the environment say, whatever is imported by now."""
    rooms = [(name, room, vars(room)) for name, room in sorted(ROOMS.items())]
    return tuple(
        (f"{name}.{field}", now[field])
        for name, room, now in rooms
        for field, first in room.at_first.items()
        if now[field] != first
    )


def forgotten(function: T) -> T:
    """A decorator of a cached function that reads tuned numbers: a change empties its cache."""
    _forgets.append(function.cache_clear)  # type: ignore[attr-defined]
    return function


def numbers() -> dict[str, Number]:
    """Every tuned number, by "room.name"."""
    for module in TABLES.values():
        import_module(module)
    return {f"{r}.{n}": known for r, room in ROOMS.items() for n, known in room.numbers.items()}


@contextmanager
def chosen(values: Mapping[str, Any]) -> Iterator[None]:
    """Other numbers, by "room.name", for what is compiled inside.

    Other threads see them, too.  What the native runtime reads was read when graphc was imported.
    Raises GraphError for a name that there is not and for a value out of its range.
    """
    known = numbers()
    for name, value in values.items():
        check(name, known.get(name), value)
    before = {name: getattr(*_place(name)) for name in values}
    try:
        for name, value in values.items():
            setattr(*_place(name), value)
        yield
    finally:
        for name, value in before.items():
            setattr(*_place(name), value)


def parsed(name: str, known: Number | None, text: str) -> Any:
    """The value of a number from text. Raises GraphError for none, or one out of range."""
    kind = type(known.value) if known else int
    try:
        value = kind(text)
    except (TypeError, ValueError):
        raise GraphError(f"{name}={text}: {text!r} is no {kind.__name__}") from None
    check(name, known, value)
    return value


def check(name: str, known: Number | None, value: Any) -> None:
    """Raise GraphError unless there is such a number and it may have the value."""
    if known is None:
        raise GraphError(f"there is no tuned number {name!r}", hint="they are in docs/tuning.md")
    if isinstance(known.value, tuple):
        ends: tuple[Any, ...] = (known.value, known.least, known.most)
        if value not in ends:
            raise GraphError(f"{name} may be one of {ends}, not {value!r}")
    elif not known.least <= value <= known.most:
        raise GraphError(f"{name} may be {known.least} to {known.most}, not {value}")


def _place(name: str) -> tuple[Tuning, str]:
    room, _, field = name.partition(".")
    return ROOMS[room], field


@cache
def _wishes() -> dict[str, list[tuple[str, str]]]:
    """What GRAPHC_TUNING says, by room: names and values."""
    found: dict[str, list[tuple[str, str]]] = {room: [] for room in TABLES}
    for item in filter(None, os.environ.get("GRAPHC_TUNING", "").split(",")):
        name, _, value = item.partition("=")
        room, _, field = name.strip().partition(".")
        if room in TABLES:
            found[room].append((field, value.strip()))
        else:
            warnings.warn(f"GRAPHC_TUNING: no tuned number {name!r}", RuntimeWarning, stacklevel=2)
    return found
