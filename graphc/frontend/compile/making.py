"""The thread that compiles a variant while an interpreter answers its calls (`tiered.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from graphc.forks import fork_safe_lock

# Seconds for the interpreter: Python runs one thread at a time. What it is good for is measured by
# `python -m benchmarks.first_calls`.
HEAD_START = 0.25


class Making(threading.Thread):
    """Compiles once the first call is answered, or has had its head start; `calls` were answered by
    the interpreter since it was made.
    """

    def __init__(self, name: str, compile: Callable[[], Any]) -> None:
        super().__init__(name=f"graphc-compile-{name}")
        self._compile = compile
        self.calls = 0
        self.lock = fork_safe_lock()  # of who compiles: this thread, or a call that needs code
        self.answered = threading.Event()

    def run(self) -> None:
        self.answered.wait(HEAD_START)
        with suppress(Exception):  # the next call finds no thread: it compiles, and raises it
            self._compile()
