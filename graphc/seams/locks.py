"""Locks of CPython, Numba and llvmlite, which decide whether a fork is safe (see `graphc.forks`).

They buy no time: without them a child could find a compiler, or a module, half done for ever.  All
are looked for among what is loaded; nothing is imported here.
"""

from __future__ import annotations

import _thread
import importlib
import sys
from collections.abc import Callable, Collection
from typing import Any

_IMPORTLIB = "<frozen importlib._bootstrap>"


class PlainLock:
    """A reentrant lock that can be opened by making it anew: for a Python whose own cannot."""

    def __init__(self) -> None:
        self.inner: Any = _thread.RLock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return bool(self.inner.acquire(blocking, timeout))

    def release(self) -> None:
        self.inner.release()

    def _at_fork_reinit(self) -> None:
        self.inner = _thread.RLock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def new_lock() -> Any:
    """A reentrant lock that `reopen` can open.

    CPython's own takes 120 ns to take and release; where it has no `_at_fork_reinit`, `PlainLock`
    takes 245.
    """
    made = _thread.RLock()
    return made if hasattr(made, "_at_fork_reinit") else PlainLock()


def reopen(lock: Any) -> None:
    """Open a lock, in a forked child, that a thread held which does not exist there.

    One of another project that cannot be opened stays as it is.
    """
    if lock.acquire(blocking=False):  # open, or this thread's
        lock.release()
    elif hasattr(lock, "_at_fork_reinit"):
        lock._at_fork_reinit()


def of_compilers() -> list[Any]:
    """The locks of the compilers that are loaded, in the order in which one thread takes them.

    Without them a fork does not wait for compilers that other threads are in.
    """
    numba: Any = getattr(_loaded("numba.core.compiler_lock"), "global_compiler_lock", None)
    llvm: Any = getattr(getattr(_loaded("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    return [each._lock for each in (numba, llvm) if hasattr(each, "_lock")]


def of_logging() -> Any:
    """The lock of `logging`, which it holds during a fork; None if it is not found.

    A fork waits as long as it can, then, for a thread that imports and logs.
    """
    return getattr(_loaded("logging"), "_lock", None)


def _loaded(name: str) -> Any:
    return sys.modules.get(name)


def others_import(packages: Collection[str]) -> bool:
    """Whether another thread imports a module of these packages, or is about to.

    importlib has a lock for each module that is being imported.  Where these are not found, any
    import of another thread counts, seen in what it is executing: forks wait longer.
    """
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", None)
    if locks is None:
        return _others_execute(_IMPORTLIB)
    for name, reference in list(locks.items()):
        found = reference()
        is_ours = name.partition(".")[0] in packages
        if is_ours and getattr(found, "owner", None) != _thread.get_ident() and found is not None:
            return True
    return False


def _others_execute(file: str) -> bool:
    """Whether another thread is inside of code of a file."""
    for thread, frame in sys._current_frames().items():
        walked: Any = frame if thread != _thread.get_ident() else None
        while walked is not None:
            if walked.f_code.co_filename == file:
                return True
            walked = walked.f_back
    return False


def hold_imports() -> Callable[[], None]:
    """Have nobody begin an import; what is returned lets them again.

    Without the lock an import may begin in the moment between the last look and the fork.
    """
    try:
        import _imp
    except ImportError:
        return lambda: None
    _imp.acquire_lock()
    return _imp.release_lock
