"""The workers that this user runs on this machine, seen from any process.

They are found among the processes by their command line, and looked at through the memory of their
bell, which the system shows to their user.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from graphc.runtime.cluster.link_table import BELL_BYTES, links_of
from graphc.runtime.cluster.local_workers import MODULE, resident_bytes
from graphc.runtime.load.layouts import BellWords


def workers_of_this_machine() -> dict[int, dict[str, Any]]:
    """By number of the process: its client, its memory, its links, and what its bell says."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has ended, or is not ours to look at
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if len(words) > 5 and MODULE in words[2]:
                found[int(folder.name)] = _look(folder, int(words[5]))
    return dict(sorted(found.items()))


def _look(folder: Path, descriptor: int) -> dict[str, Any]:
    file = os.open(folder / "fd" / str(descriptor), os.O_RDONLY)
    try:
        data = os.pread(file, BELL_BYTES, 0)
    finally:
        os.close(file)
    words = np.frombuffer(data, np.int64)
    text = (folder / "stat").read_text()
    names = "asked", "step", "done", "beat", "sent"
    return {
        "pid": int(folder.name),
        "client": int(text.rpartition(")")[2].split()[1]),
        "memory": resident_bytes(int(folder.name)),
        "links": links_of(int(folder.name), words),
        **{name: int(words[getattr(BellWords, name)]) for name in names},
    }
