"""Whether summaries are recorded now; a trace that asks is for one answer alone.

recorder on     trace with summaries       rows that call Python, and what they are given
recorder off    trace without them         the kernels of a model that never heard of any
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from graphc.ops.control.host_calls import recorders


class _UnderWay(threading.local):
    """For each trace of this thread, outermost first, the answers that it was given."""

    def __init__(self) -> None:
        self.answers: list[list[bool]] = []


_under_way = _UnderWay()


def is_recording() -> bool:
    """Whether summaries are taken now; every trace under way has asked, also those around."""
    answer = any(recorder.is_on for recorder in recorders[-1:])
    for answers in _under_way.answers:
        answers.append(answer)
    return answer


@contextmanager
def noticing() -> Iterator[list[bool]]:
    """Around a trace: the answers that it is given."""
    answers: list[bool] = []
    _under_way.answers.append(answers)
    try:
        yield answers
    finally:
        _under_way.answers.pop()
