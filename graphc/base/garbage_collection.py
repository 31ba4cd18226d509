"""Python's cyclic garbage collector, kept out of the way while many objects come to stay."""

from __future__ import annotations

import gc
import os
import sys
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager

_pausing: list[int] = []  # the threads that will turn it on again


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside: it costs two to four times a pass over a million small objects, and a
    fifth of the time to import the compiler.

    Where modules were imported inside, what is young afterwards joins the oldest generation unseen:
    most of it stays as long as the process, and to find that out costs 5 to 15 ms.
    """
    enabled = gc.isenabled()
    modules = len(sys.modules)
    if enabled:
        _pausing.append(get_ident())
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _pausing.remove(get_ident())
            if len(sys.modules) > modules and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _after_fork() -> None:
    """In a forked child a thread that turned the collector off does not turn it on again."""
    if _pausing and get_ident() not in _pausing:
        _pausing.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
