"""What repeated work leaves behind: references, and blocks of memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence

ROUNDS = 5


def assert_nothing_is_left(
    work: Callable[[], object], objects: Sequence[object] = (), *, references: int = 0
) -> None:
    """Work of hundreds of calls leaves no block of memory for each, nor references to objects.

    One round without suffices: in any other one another thread may allocate, or what earlier
    tests have left may be freed. What is there before stays, so that a collection takes no time.
    """
    found = []
    gc.freeze()
    for _ in range(ROUNDS):
        gc.collect()
        before = [*map(sys.getrefcount, objects)], sys.getallocatedblocks()
        work()
        gc.collect()
        counts, blocks = [*map(sys.getrefcount, objects)], sys.getallocatedblocks()
        held = [after - old for after, old in zip(counts, before[0])]
        if max(map(abs, held), default=0) <= references and blocks - before[1] < 200:
            return
        found.append((held, blocks - before[1]))
    raise AssertionError(f"references and blocks that are left: {found}")
