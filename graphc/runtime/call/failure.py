"""From the status that a run ended with to the error that is raised."""

from __future__ import annotations

from itertools import count

from numpy.linalg import LinAlgError

from graphc.errors import (
    INDEFINITE,
    INDEX,
    SINGULAR,
    UNCONVERGED,
    EndOfData,
    GraphError,
    LimitError,
    OutOfRangeError,
    RunError,
    also,
)
from graphc.runtime.load.program import Image

# Statuses of native code itself: a stack is EMPTY, or all stacks have taken what they may (FULL).
CANCELLED, BAD_ROW, NO_MEMORY, EMPTY, NO_WORKER, GONE, FULL, ENDED, FAILED = range(-1, -10, -1)
_WALKER_REASONS = {
    CANCELLED: "the run was cancelled",
    NO_MEMORY: "no memory for a stack to grow",
    EMPTY: "pop from an empty stack",
    ENDED: "there is no more data",
    FAILED: "a queue or reader failed",
}
_LINEAR_ALGEBRA = {  # what NumPy raises LinAlgError for, and what to do next
    SINGULAR: "pinv and lstsq of np.linalg take such matrices; det tells them apart",
    INDEFINITE: "np.linalg.eigvalsh shows how far it is from that; a multiple of the unit matrix "
    "may be added",
    UNCONVERGED: "there may be NaN or infinity in what is decomposed: np.isfinite tells",
}
_FIRST_RAISED = 1 << 20
_MOST_RAISED = 256

_raised: dict[int, BaseException] = {}
_numbers = count()


def explain(image: Image, status: int, row: int) -> GraphError:
    """The error of a row of an image that ended with a nonzero status."""
    origin = image.origins.get(row)
    details = (origin.node,) if origin else ()
    location = origin.location if origin else None
    if status == FULL:
        return LimitError(
            f"the stacks of loops are limited to {image.stack_bytes} bytes, and need more",
            details=details,
            location=location,
            hint="memory_limit (--memory-limit) counts them; a larger one lets them grow",
        )
    reason = _WALKER_REASONS.get(status)
    if reason is None and status < 0:
        return RunError(f"the step table is damaged at word {row}", details=details)
    if reason is None:
        reason = image.reasons.get(status, f"a kernel failed with status {status}")
    kind = {INDEX: OutOfRangeError, ENDED: EndOfData}.get(status, RunError)
    error = kind(reason, details=details, location=location, hint=_LINEAR_ALGEBRA.get(status))
    return also(error, LinAlgError) if status in _LINEAR_ALGEBRA else error


def keep(error: BaseException) -> int:
    """A status that stands for an error raised below native code, which cannot pass it on."""
    status = -_FIRST_RAISED - next(_numbers) % _FIRST_RAISED
    _raised[status] = error
    while len(_raised) > _MOST_RAISED:  # nobody asks for that of a run which had failed before
        _raised.pop(next(iter([*_raised]), status), None)
    return status


def in_words(status: int) -> tuple[int, str]:
    """A status that other processes know, and the reason, for one that stands for an error here."""
    error = take_error(status)
    if error is None:
        return status, ""
    reason = error.message if isinstance(error, GraphError) else f"{type(error).__name__}: {error}"
    return ENDED if isinstance(error, EndOfData) else FAILED, reason


def take_error(status: int) -> BaseException | None:
    """The error that a status stands for, once; None for other statuses."""
    return _raised.pop(status, None)
