"""A fork in the middle of work: what it waits for, and which locks a child finds open.

A forked child has the thread that forked and no other, but every lock as it was: one that another
thread held would stay held for ever.

    ours (`fork_safe_lock`)        open in the child: what they guard is changed in single steps
    Numba's, LLVM's, importlib's   a fork waits until no other thread is inside: what they guard is
                                   half done, and the child goes on with it

It waits PATIENCE seconds at most: another thread may wait for the fork in its turn.
"""

from __future__ import annotations

import _imp
import _thread
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

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


def fork_safe_lock() -> _thread.RLock:
    """A lock that a forked child finds open, unless the thread that forked holds it."""
    made = _thread.RLock()
    _ours.add(made)
    return made


def _compilers() -> list[Any]:
    """The locks of the compilers that are loaded, in the order in which one thread takes them."""
    modules: Any = sys.modules
    numba: Any = getattr(modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    llvm: Any = getattr(getattr(modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    return [each._lock for each in (numba, llvm) if hasattr(each, "_lock")]


def _is_importing() -> bool:
    """Whether another thread imports a module that compiling takes.

    importlib has a lock for each module that is being imported, owned or about to be.
    """
    me = _thread.get_ident()
    locks = getattr(importlib._bootstrap, "_module_locks", {})
    for name, reference in list(locks.items()):
        found = reference()
        if name.partition(".")[0] in PACKAGES and found is not None and found.owner != me:
            return True
    return False


def _before() -> None:
    deadline = time.monotonic() + PATIENCE
    with _without_log():
        while not _hold_all(deadline) and time.monotonic() < deadline:
            _let_go()


def _hold_all(deadline: float) -> bool:
    """Hold what other threads compile and import with. False: one of them imports after all."""
    while _is_importing() and time.monotonic() < deadline:
        time.sleep(0.001)
    held = _held.setdefault(_thread.get_ident(), [])
    for each in _compilers():
        if each.acquire(timeout=max(0.0, deadline - time.monotonic())):
            held.append(each.release)
    _imp.acquire_lock()  # nobody begins an import
    held.append(_imp.release_lock)
    return not _is_importing()


@contextmanager
def _without_log() -> Iterator[None]:
    """Give up the lock of `logging`, which it may hold during a fork: who imports may wait for it.

    After the fork it is released; also where it was imported inside.
    """
    before = _log_lock()
    is_held = before is not None and before._is_owned()
    if is_held:
        before.release()
    try:
        yield
    finally:
        after = _log_lock()
        if is_held or after is not before:
            after.acquire()


def _log_lock() -> Any:
    return getattr(sys.modules.get("logging"), "_lock", None)


def _let_go() -> None:
    for release in reversed(_held.pop(_thread.get_ident(), [])):
        release()


def _after_in_child() -> None:
    _let_go()
    _held.clear()
    for each in (*_compilers(), *_ours):
        if not each._is_owned():
            each._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_let_go, after_in_child=_after_in_child)
