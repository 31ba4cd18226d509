"""Ctrl-C stops native loops; handlers of the user's own are respected."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDLESS = """
import os, signal, threading, time
import numpy as np
import graphc as gc

endless = gc.compile(lambda x: gc.while_loop(lambda s: s > -1, lambda s: s * 0.5, x))
finite = gc.compile(lambda x, n: gc.fori(0, n, lambda i, s: s * 0.5, x))
{handler}
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {call}
    print("done")
except BaseException as error:
    print(type(error).__name__)
assert finite(np.float64(8), np.int64(3)) == 1
"""


@pytest.mark.parametrize(
    ("handler", "call", "said"),
    [
        ("", "endless(np.float64(1))", "KeyboardInterrupt"),
        (
            "signal.signal(signal.SIGINT, lambda *_: print('seen'))",
            "[finite(np.float64(1), np.int64(60_000_000)), time.sleep(1)]",
            "seen\ndone",
        ),
    ],
    ids=["default", "own"],
)
def test_interrupt(handler: str, call: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS.format(handler=handler, call=call)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.strip() == said, done.stderr
    assert done.returncode == 0, done.stderr
