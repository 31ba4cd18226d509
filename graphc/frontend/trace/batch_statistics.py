"""What is said of a whole batch while only a chunk of it is there: see `gc.parallel.pipeline`.

batch     x0 x1 x2 x3                      running mean of a batch: moves towards mean(x)
chunks    mean(x0 x1)   mean(x2 x3)   ->   moves once, towards the mean of both
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphc.base.record import record

Finish = Callable[[Sequence[float], Sequence[Sequence[Any]], Sequence[Any]], list[Any]]


@record(frozen=True, eq=False)
class Pending:
    """`values` are what a chunk alone has: those of the batch are made of the `parts` of all."""

    values: list[Any]
    parts: Sequence[Any]
    steady: Sequence[Any]
    finish: Finish


class _Chunks(threading.local):
    def __init__(self) -> None:
        self.pending: list[list[Pending]] = []


_CHUNKS = _Chunks()


@contextmanager
def in_chunks() -> Iterator[list[Pending]]:
    """A function traced inside sees one chunk of a batch; what it leaves for the whole batch."""
    found: list[Pending] = []
    _CHUNKS.pending.append(found)
    try:
        yield found
    finally:
        _CHUNKS.pending.pop()


def is_chunk() -> bool:
    """Is a function being traced on a part of a batch?"""
    return bool(_CHUNKS.pending)


def of_whole_batch(finish: Finish, parts: Sequence[Any], steady: Sequence[Any]) -> list[Any]:
    """finish([1.0], [parts], steady); in a pipeline finish(shares, parts of every chunk, steady).

    shares     of the rows of the batch, that each chunk has
    parts      what is known of this chunk
    steady     values that do not depend on the batch

    The values are those of the batch once they have become results of the function beside its
    loss; within it they are those of the chunk.
    """
    values = finish([1.0], [parts], steady)
    if _CHUNKS.pending:
        _CHUNKS.pending[-1].append(Pending(values, parts, steady, finish))
    return values
