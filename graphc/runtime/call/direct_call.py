"""Makes calls of an object native: its class's `__call__` becomes `graphc_call`.

Python's own costs 0.3 us for packing arguments and a frame, as much as the run of a small program.
The class keeps a method of Python for all calls but those like recent ones (see
`graphc.codegen.runtime.emit_direct_call`), and that is its `__call__` where native code cannot be
used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from graphc.forks import fork_safe_lock
from graphc.runtime.call.entry import Context
from graphc.runtime.call.memory import address_of
from graphc.runtime.call.native_support import present
from graphc.runtime.load.layouts import CallWords, DirectWords, WatchedWords
from graphc.seams import cpython

_lock = fork_safe_lock()


class Known(Protocol):
    """Something with a native entry, which is for calls while cells and dicts hold what they did.

    Of a cell the key is None, and so is that of a place of which the address is known; a dict
    without a key stands for how many entries it has.
    """

    @property
    def native(self) -> Any: ...

    @property
    def places(self) -> Iterable[tuple[tuple[object, Any], object]]: ...


class DirectEntries(Context):
    """The words of native entries that answer what a call returns, or the code of a failure."""

    keep: tuple[Any, ...]
    watched: list[np.ndarray[Any, Any]]

    @staticmethod
    def of(known: Iterable[Known]) -> DirectEntries:
        kept = tuple(known)
        words = np.zeros((len(kept) + 1, len(DirectWords.fields)), np.int64)
        watched = [_watched(each) for each in kept]
        for row, each, places in zip(words, kept, watched, strict=False):
            row[DirectWords.code] = cpython.address_of_builtin(each.native)
            row[DirectWords.context] = id(each.native.__self__)
            row[DirectWords.watched] = address_of(places)
        made = words.reshape(-1).view(DirectEntries)
        made.keep, made.watched = kept, watched
        return made


def _watched(known: Known) -> np.ndarray[Any, Any]:
    """The words of what must be as it was; the objects are alive as long as `known` is."""
    rows = [_words(*place, value) for place, value in known.places]
    return np.array([*rows, (0,) * len(WatchedWords.fields)], np.int64)


def _words(holder: object, key: object, value: object) -> tuple[int, int, int]:
    """The words of one place; a word of memory is read as if a cell lay around it."""
    if key is not None:
        return id(holder), id(key), id(value)
    around = -8 * cpython.CellWords.content
    if isinstance(holder, int):
        return holder + around, 0, id(value)
    if isinstance(holder, dict):
        assert isinstance(value, int)
        return id(holder) + 8 * cpython.ObjectWords.length + around, 0, value
    return id(holder), 0, id(value)


def call_natively(owner: Any, slot: str, traces: np.ndarray[Any, Any]) -> None:
    """Have instances of a class called by native code; there is one such class in a process.

    `slot` is the attribute, one of `__slots__`, with the `DirectEntries` of an instance, or None;
    `traces` a word that counts active traces, in which calls go to Python.  The class has a method
    `_failed(code, entries, number, *args)` to raise the error of a run by the entry of this number.
    """
    with _lock:
        support, called, failed = present(), owner.__call__, owner._failed
        if support is None or support.call_words[CallWords.called]:
            return
        place = cpython.place_of_slot(owner, slot)
        if not place:
            return
        cpython.keep_for_ever((traces, called, failed))
        words = support.call_words
        words[CallWords.place], words[CallWords.traces] = place, address_of(traces)
        words[CallWords.none], words[CallWords.integer] = id(None), id(int)
        words[CallWords.called], words[CallWords.failed] = id(called), id(failed)
        address = support.addresses["graphc_call"]
        owner.__call__ = cpython.native_method(owner, "__call__", address, called.__doc__)
