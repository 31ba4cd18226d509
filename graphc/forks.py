"""A fork in the middle of work: what it waits for, and which locks a child finds open.

A forked child has the thread that forked and no other, but every lock as it was: one that another
thread held would stay held for ever.

    ours (`fork_safe_lock`)        open in the child: what they guard is changed in single steps
    Numba's, LLVM's, importlib's   a fork waits until no other thread is inside: what they guard is
                                   half done, and the child goes on with it

It waits PATIENCE seconds at most: another thread may wait for the fork in its turn.
"""

from __future__ import annotations

import _thread
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from graphc.seams import locks

PATIENCE = 20.0  # more than the longest function takes Numba or LLVM
# What compiling imports when it is needed. An application's own modules may be imported as long as
# the application runs.
PACKAGES = sys.stdlib_module_names | {
    "graphc",
    "lark",
    "llvmlite",
    "ml_dtypes",
    "numba",
    "numpy",
    "platformdirs",
    "safetensors",
    "scipy",
}

_ours: WeakSet[Any] = WeakSet()
_held: dict[int, list[Callable[[], None]]] = {}  # by threads that fork: what lets go again


def fork_safe_lock() -> Any:
    """A lock that a forked child finds open, unless the thread that forked holds it."""
    made = locks.new_lock()
    _ours.add(made)
    return made


def _before() -> None:
    deadline = time.monotonic() + PATIENCE
    with _without_log():
        while not _hold_all(deadline) and time.monotonic() < deadline:
            _let_go()


def _hold_all(deadline: float) -> bool:
    """Hold what other threads compile and import with. False: one of them imports after all."""
    while locks.others_import(PACKAGES) and time.monotonic() < deadline:
        time.sleep(0.001)
    held = _held.setdefault(_thread.get_ident(), [])
    for each in locks.of_compilers():
        if each.acquire(timeout=max(0.0, deadline - time.monotonic())):
            held.append(each.release)
    held.append(locks.hold_imports())
    return not locks.others_import(PACKAGES)


@contextmanager
def _without_log() -> Iterator[None]:
    """Give up the lock of `logging`, which it may hold during a fork: who imports may wait for it.

    After the fork it is released; also where it was imported inside.
    """
    before, is_held = locks.of_logging(), False
    if before is not None:
        with suppress(RuntimeError):  # it is not this thread's
            before.release()
            is_held = True
    try:
        yield
    finally:
        after = locks.of_logging()
        if is_held or after is not before:
            after.acquire()


def _let_go() -> None:
    for release in reversed(_held.pop(_thread.get_ident(), [])):
        release()


def _after_in_child() -> None:
    _let_go()
    _held.clear()
    for each in (*locks.of_compilers(), *_ours):
        locks.reopen(each)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_let_go, after_in_child=_after_in_child)
