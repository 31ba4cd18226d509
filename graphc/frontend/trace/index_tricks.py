"""np.r_[...] and np.c_[...] of traced arrays.

np.r_[0, x, 1:4]      the pieces one after the other
np.c_[x, y]           vectors as columns
np.r_["0,2", x, y]    along axis 0, of rank 2 at least
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.frontend.trace.operands import any_unknown, plain
from graphc.frontend.trace.standins import stacked
from graphc.ops.record.value import common_element, functions

CONCATENATORS = (type(np.r_), type(np.c_))


class Concatenator:
    """What stands for np.r_ or np.c_ in a function that is traced."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getitem__(self, index: Any) -> Any:
        if not any_unknown(index):
            return self._own[plain(index)]
        pieces = index if isinstance(index, tuple) else (index,)
        form = self._own.axis, self._own.ndmin, self._own.trans1d
        if isinstance(pieces[0], str):
            form, pieces = _directive(pieces[0], form), pieces[1:]
        element, _ = common_element(*(_plain_piece(p) for p in pieces))
        parts = [functions.astype(_piece(p, form), element) for p in pieces]
        return functions.concatenate(parts, form[0])


def _directive(text: str, form: tuple[int, int, int]) -> tuple[int, int, int]:
    """The axis, the least rank and where vectors go, as a text at the head says."""
    try:
        numbers = tuple(map(int, text.split(",")))
    except ValueError:
        raise TraceError(
            f"{text!r} makes a matrix of traced arrays",
            hint="np.r_[...] and np.c_[...] make arrays",
        ) from None
    return (*numbers, *form[len(numbers) :])[:3]  # type: ignore[return-value]


def _plain_piece(piece: Any) -> Any:
    """A piece as an operand, of which the dtype is that of the array."""
    if isinstance(piece, slice):
        return np.r_[piece]
    return stacked(piece) if isinstance(piece, list | tuple) else piece


def _piece(piece: Any, form: tuple[int, int, int]) -> Any:
    """A piece with the rank that is asked for."""
    _, least, place = form
    if not any_unknown(piece):
        return np.r_[",".join(map(str, form)), plain(piece)]
    made = _plain_piece(piece)
    missing = least - made.ndim
    if missing <= 0:
        return made
    made = functions.reshape(made, (1,) * missing + tuple(made.shape))
    if place == -1:
        return made
    first = place if place >= 0 else place + missing + 1
    axes = [*range(least)]
    order = axes[:first] + axes[missing:] + axes[first:missing]
    return functions.transpose(made, order)
