"""Arrays of NumPy that are more than numbers in a shape: no part of the compiler takes them."""

from __future__ import annotations

import sys

import numpy as np


def odd_kind(value: object) -> str:
    """What to call such an array: a matrix or a masked array; "" for anything else.

    Masked arrays are not imported for the question, which would take 8 ms of a first call: a
    process that has not done so has none.
    """
    if isinstance(value, np.matrix):
        return "matrix"
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    return "masked array" if isinstance(value, masked) else ""
