"""Branches that the device decides: which rows of a table they span, and what happens there.

    while      test ...                                 cond       then ... jump end
         top:  branch verdict, exit      one act,         else:    else ...               one act,
               body ... test ...         a loop            end:                           a choice
               jump top

A run of a loop's body must be the one before again, address for address: the second one is compared
with the first.  What needs the host (messages, variables that are guarded) leaves the branch to it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from graphc.runtime.cuda.interface import Decision
from graphc.runtime.load.table import JUMP, rows

if TYPE_CHECKING:
    from graphc.runtime.cuda.interpreter import Walk
    from graphc.runtime.cuda.row_runners import Capture

_NOWHERE = -1 << 62  # a register that differs from way to way; nothing may be there


class NeedsHost(Exception):
    """What follows a branch cannot be left to the device."""


def decided_there(
    capture: Capture, walk: Walk, row: int, verdict: int, following: int
) -> tuple[Decision, int]:
    """What the device does from a branch on, and the row where it goes on. Raises NeedsHost."""
    target = walk.words[row + 2]
    starts = list(rows(walk.words))
    last = starts[bisect_left(starts, target) - 1]
    if walk.words[last] != JUMP:
        raise NeedsHost
    end = walk.words[last + 2]
    if end <= row:
        return _loop(capture, walk, row, verdict, following), target
    return _choice(capture, walk, row, verdict, (following, target), end), end


def _loop(capture: Capture, walk: Walk, row: int, verdict: int, following: int) -> Decision:
    before = list(walk.bases)
    first = capture.region(walk, following, row)
    after = list(walk.bases)
    body = capture.region(walk, following, row)
    same = [act.key for act in first] == [act.key for act in body]
    if not same or walk.bases != after or walk.at(row + 3) != verdict:
        raise NeedsHost
    _join(walk, before, after)
    return capture.decision(row, verdict, (body,))


def _choice(
    capture: Capture, walk: Walk, row: int, verdict: int, begins: tuple[int, int], end: int
) -> Decision:
    before, ends, ways = list(walk.bases), [], []
    for begin in begins:
        walk.bases[:] = before
        ways.append(capture.region(walk, begin, end))
        ends.append(list(walk.bases))
    _join(walk, *ends)
    return capture.decision(row, verdict, tuple(ways))


def _join(walk: Walk, one: list[int], other: list[int]) -> None:
    """The registers after either of two ways: those that differ are set before they are read."""
    walk.bases[:] = [a if a == b else _NOWHERE for a, b in zip(one, other, strict=True)]
