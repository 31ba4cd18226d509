"""Call entries for nested arguments and results: what `graphc.codegen.runtime.emit_nesting` reads.

step({"w": w, "b": b}, x)       fetch 0   argument 0        a dict of 2
                                      1   "b" of object 0   an array
                                      2   "w" of object 0   an array
                                      3   argument 1        an array
-> {"w": w, "b": b}             build     2 results, dict of ("w", "b")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.runtime.call.entry import Context
from graphc.runtime.call.memory import address_of
from graphc.runtime.load.layouts import BuildWords, ContextWords, NestingWords
from graphc.seams import cpython

ARGUMENT, OF_DICT, OF_TUPLE, OF_LIST, ATTRIBUTE = range(5)  # how an object is taken out
ARRAY, CONTAINER, ITSELF, NUMBER, FOREIGN = range(5)  # what it has to be
RESULT, NOTHING, DICT, TUPLE, LIST, CALL = range(6)  # what is built
MOST_STEPS = 10_000  # fetches or builds; the entry has them on its stack


class Fetch(NamedTuple):
    """Takes the `key` (a position, if it is no dict or attribute) out of an earlier `parent`.

    `wanted` is its type, or the object itself; `detail` the length of a container (-1: none), or
    the function that makes an array of what is none or of a number, or the tuple of the children of
    a foreign container.
    """

    parent: int
    how: int
    key: Any
    test: int
    wanted: Any = None
    detail: Any = 0


class Build(NamedTuple):
    """Makes one object of the `taken` latest that no other has taken; `keys` of a dict, or the
    function to call.
    """

    how: int
    taken: int = 0
    keys: Any = ()


def nested(
    address: int, flat: Context, arguments: int, fetches: Sequence[Fetch], builds: Sequence[Build]
) -> Callable[..., Any] | None:
    """The entry at `address` over that of flat arrays; it takes so many arguments, and returns what
    the builds leave (without any, what the flat entry does).  None for too many steps.
    """
    if max(len(fetches), len(builds)) > MOST_STEPS or not cpython.lengths_are_known():
        return None
    fetch_words = np.array([_fetch_words(fetch) for fetch in fetches], np.int64)
    keys = [np.array([id(key) for key in b.keys] if b.how == DICT else [], "i8") for b in builds]
    build_words = np.zeros((len(builds), len(BuildWords.fields)), np.int64)
    for row, build, names in zip(build_words, builds, keys, strict=True):
        row[:] = build.how, build.taken, address_of(names) if build.how == DICT else id(build.keys)
    context = np.zeros(len(NestingWords.fields), np.int64).view(Context)
    context[:] = (
        address_of(flat),
        arguments,
        len(fetches),
        address_of(fetch_words),
        sum(fetch.test in (ARRAY, NUMBER) for fetch in fetches),
        len(builds),
        address_of(build_words),
        flat[ContextWords.results],
        id(None),
        id(Exception),
    )
    context.keep = (flat, tuple(fetches), tuple(builds), fetch_words, build_words, keys)
    return cpython.builtin(address, context)


def _fetch_words(fetch: Fetch) -> tuple[int, ...]:
    parent, how, key, test, wanted, detail = fetch
    place = id(key) if how in (OF_DICT, ATTRIBUTE) else key
    return parent, how, place, test, id(wanted), id(detail) if callable(detail) else detail
