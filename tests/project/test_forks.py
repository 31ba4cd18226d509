"""Forks while other threads compile or import: no child waits for a thread that it has not."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from project import environment

from graphc.base.garbage_collection import collector_paused
from graphc.forks import fork_safe_lock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def in_child(test: Callable[[], bool]) -> bool:
    """What a test says in a forked child; a child that waits for ever is ended."""
    child = os.fork()
    if not child:
        import signal

        signal.alarm(60)
        os._exit(0 if test() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def elsewhere(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """Another thread is inside of something: it sets the first event and waits for the second."""
    inside, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(inside, go))
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        go.set()
        thread.join()


def test_a_child_finds_locks_of_other_threads_open_and_its_own_held() -> None:
    ours, theirs = fork_safe_lock(), fork_safe_lock()

    def hold(inside: threading.Event, go: threading.Event) -> None:
        with theirs:
            inside.set()
            go.wait()

    def are_as_they_should_be() -> bool:
        ours.release()  # raises where it is not held
        return theirs.acquire(blocking=False)

    with elsewhere(hold), ours:
        assert in_child(are_as_they_should_be)


def test_the_collector_is_on_in_a_child_of_another_thread() -> None:
    def pause(inside: threading.Event, go: threading.Event) -> None:
        with collector_paused():
            inside.set()
            go.wait()

    with elsewhere(pause):
        assert not gc.isenabled()
        assert in_child(gc.isenabled)
    with collector_paused():
        assert in_child(lambda: not gc.isenabled())
    assert gc.isenabled()


IMPORT = """
import os, signal, sys, threading
from pathlib import Path
import graphc

folder = Path(sys.argv[1])
(folder / "late.py").write_text("import __main__\\n__main__.import_late()\\n")
graphc.__path__.append(str(folder))
inside, finished = threading.Event(), []

def import_late():
    inside.set()
    threading.Event().wait(0.3)  # so long the fork must wait
    finished.append(True)

thread = threading.Thread(target=__import__, args=("graphc.late",))
thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    import graphc.late
    os._exit(0 if finished else 1)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

COMPILE = """
import faulthandler, os, threading
import numpy as np
import graphc as gc

x = np.ones(3, np.float32)
stop = threading.Event()

def compile_another(number):
    made = gc.compile(lambda a: a * number + number)(x)
    return made.tolist() == [2 * number] * 3

def work(number):
    while not stop.is_set():
        number += 1
        compile_another(number)

thread = threading.Thread(target=work, args=(1000.0,))
thread.start()
statuses = set()
for number in range(20):
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(60, exit=True)
        os._exit(0 if compile_another(0.5 + number) else 2)
    statuses.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
thread.join()
print(*statuses)
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [IMPORT, COMPILE], ids=["import", "compile"])
def test_a_child_of_a_process_that_compiles_compiles(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0\n", done.stderr
