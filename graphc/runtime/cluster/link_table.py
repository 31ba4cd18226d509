"""The links of a worker as other processes of its user see them: a table behind its bell.

A row says where a link lies, and which tasks it joins; `LinkWords` there counts bytes and waits all
the time.  So looking costs the worker nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from graphc.runtime.cluster.memory import Block
from graphc.runtime.load.layouts import BellWords, LinkRow, LinkWords

MOST_ROWS = 1024
BELL_BYTES = BellWords.nbytes + MOST_ROWS * LinkRow.nbytes
Row = tuple[int, int, int, int]  # as `LinkRow`


def write_links(bell: Block, rows: Sequence[Row]) -> None:
    """Have the table hold these; what there is no room for is left out."""
    words, count = bell.words(0, BELL_BYTES // 8), min(len(rows), MOST_ROWS)
    words[BellWords.links] = 0
    place = BellWords.nbytes // 8
    words[place : place + 4 * count] = np.array(rows[:count], np.int64).reshape(-1)
    words[BellWords.links] = count


def links_of(pid: int, bell: Any) -> list[dict[str, int]]:
    """Of each pair of tasks, by the words of a bell: the bytes sent, and the nanoseconds that its
    ends have waited."""
    found: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for source, target, words in _read(pid, bell):
        told = words[[LinkWords.sent, LinkWords.sender_waited, LinkWords.taker_waited]]
        pair = found[source, target]
        pair[:] = [a + int(b) for a, b in zip(pair, told, strict=True)]
    names = "source", "target", "bytes", "sender_waited", "taker_waited"
    return [dict(zip(names, (*pair, *told), strict=True)) for pair, told in sorted(found.items())]


def _read(pid: int, bell: Any) -> Iterator[tuple[int, int, Any]]:
    """The tasks and the words of each link; of a program that goes at the moment, none."""
    place, count = BellWords.nbytes // 8, min(int(bell[BellWords.links]), MOST_ROWS)
    rows: Iterable[list[int]] = bell[place : place + 4 * count].reshape(-1, 4).tolist()
    for descriptor, at, source, target in rows:
        with suppress(OSError):
            file = os.open(Path(f"/proc/{pid}/fd/{descriptor}"), os.O_RDONLY)
            try:
                data = os.pread(file, LinkWords.nbytes, at)
            finally:
                os.close(file)
            if len(data) == LinkWords.nbytes:
                yield source, target, np.frombuffer(data, np.int64)
