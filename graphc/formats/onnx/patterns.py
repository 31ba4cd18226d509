"""Patterns of tokens: characters, classes of them and word boundaries, one of them repeated.

A file chooses its patterns, and how long Python's matcher takes for `a*b` grows with the square of
a text.  Here every part of a pattern is compared with all places of all texts at once, so that the
time is at most that for each character and part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.formats.deciding_values import refuse

Array = np.ndarray[Any, Any]
Span = tuple[int, int]

_ONE = (
    r"(?:\[\^?(?:[^][\\&|~-]|[^][\\&|~-]-[^][\\&|~-]|\\[^a-zA-Z]|\\[wWdDsStnr])+-?\]"
    r"|\\[wWdDsSbBtnr]|\\[^a-zA-Z0-9]|\.|[^][\\(){}*+?^$|.])"
)
_TIMES = r"[*+?]|\{\d{1,3}(?:,\d{0,3})?\}"
_PATTERN = re.compile(rf"({_ONE}*?)(?:({_ONE})({_TIMES}))?({_ONE}*)")
_PART = re.compile(_ONE)
_BOUNDARIES = (r"\b", r"\B")
_NAMED = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@record(frozen=True)
class Pattern:
    """What comes before a repeated part, that part and how often it may come, what comes after."""

    head: tuple[str, ...]
    repeated: str
    least: int
    most: int | None
    tail: tuple[str, ...]

    @staticmethod
    def read(text: str) -> Pattern:
        """Raises GraphError for what else regular expressions have."""
        found = _PATTERN.fullmatch(text) if len(text) <= 1000 else None
        if found is None or not _compiles(text):
            refuse(
                False, f"{text[:80]!r} is more than characters and classes, one of them repeated"
            )
        assert found is not None
        head, repeated, times, tail = found.groups(default="")
        least, most = _times(times) if times else (0, 0)
        return Pattern(
            tuple(_PART.findall(head)), repeated, least, most, tuple(_PART.findall(tail))
        )

    def found(self, texts: Sequence[str]) -> list[list[Span]]:
        """Where it is found in each text: the first places, each as long as can be, none of which
        overlap.
        """
        places = _Places(texts)
        ends = self._ends(places)
        starts = _next(ends >= 0).tolist()
        last = ends.tolist()
        rows = []
        for first, stop in places.bounds:
            row: list[Span] = []
            at = first
            while at <= stop and (start := starts[at]) <= stop:
                row.append((start - first, last[start] - first))
                at = max(last[start], start + 1)
            rows.append(row)
        return rows

    def is_all_of(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is what it describes, from the first character to the last."""
        places = _Places(texts)
        head, tail = places.row(self.head), places.row(self.tail)
        begins, farthest = self._reach(places)

        def is_whole(first: int, stop: int) -> bool:
            split = stop - _width(self.tail)
            fits = begins[first] + self.least <= split <= farthest[first]
            return bool(fits and head[first] and tail[split])

        return [is_whole(first, stop) for first, stop in places.bounds]

    def _ends(self, places: _Places) -> Array:
        """Where what begins at each place ends at last, -1 where nothing does."""
        begins, farthest = self._reach(places)
        head, tail = places.row(self.head), places.row(self.tail)
        split = np.maximum.accumulate(np.where(tail, places.index, -1))[farthest]
        return np.where(head & (split >= begins + self.least), split + _width(self.tail), -1)

    def _reach(self, places: _Places) -> tuple[Array, Array]:
        """Of each place where the repeated part begins and where it ends at last."""
        begins = np.minimum(places.index + _width(self.head), len(places.index) - 1)
        if not self.repeated:
            return begins, begins
        farthest = _next(~places.part(self.repeated))[begins]
        return begins, farthest if self.most is None else np.minimum(farthest, begins + self.most)


def _times(text: str) -> tuple[int, int | None]:
    """How often a part may come: at least and, unless there is no end, at most."""
    if text in _NAMED:
        return _NAMED[text]
    least, comma, most = text.strip("{}").partition(",")
    return int(least), int(most) if most else None if comma else int(least)


def _compiles(text: str) -> bool:
    try:
        re.compile(text, re.ASCII)
    except re.error:
        return False
    return True


def _width(parts: Sequence[str]) -> int:
    """Of how many characters parts are: word boundaries are of none."""
    return sum(part not in _BOUNDARIES for part in parts)


def _next(holds: Array) -> Array:
    """The first place at or after each where this holds; one beyond the last where none does."""
    index = np.arange(len(holds))
    return np.minimum.accumulate(np.where(holds, index, len(holds))[::-1])[::-1]


class _Places:
    """The characters of all texts in a row, behind each text a place that is no character.

    index    the numbers of all places
    bounds   of each text, its first place and the one behind it
    """

    def __init__(self, texts: Sequence[str]) -> None:
        ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int64) - 1
        self.bounds = [(int(end) - len(text), int(end)) for text, end in zip(texts, ends)]
        self.index = np.arange(int(ends[-1]) + 1 if len(texts) else 0)
        codes = np.zeros(len(self.index), np.uint32)
        self.inside = np.ones(len(self.index), bool)
        self.inside[ends] = False
        codes[self.inside] = _codes("".join(texts))
        self.alphabet, self.letters = np.unique(codes, return_inverse=True)
        self._known: dict[str, Array] = {}

    def part(self, part: str) -> Array:
        """Where a part is found."""
        if part not in self._known:
            self._known[part] = self._boundary(part) if part in _BOUNDARIES else self._in(part)
        return self._known[part]

    def _in(self, part: str) -> Array:
        spelled = self.alphabet.tobytes().decode("utf-32-le", "surrogatepass")
        members = _codes("".join(re.findall(part, spelled, re.ASCII)))
        return np.isin(self.alphabet, members)[self.letters] & self.inside

    def _boundary(self, part: str) -> Array:
        word = np.concatenate([[False], self.part(r"\w")])
        at_one: Array = word[1:] != word[:-1]
        return at_one if part == r"\b" else ~at_one

    def row(self, parts: Sequence[str]) -> Array:
        """Where parts are found one after another."""
        made = np.ones(len(self.index), bool)
        ahead = 0
        for part in parts:
            there = self.part(part)[ahead:]
            made[: len(there)] &= there
            made[len(there) :] = False
            ahead += part not in _BOUNDARIES
        return made


def _codes(text: str) -> Array:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
