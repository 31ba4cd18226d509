"""Curves as text.

2.31 |•
     | ••
0.48 |   •○○
     |     ••○○○○
0.1  |        •••••••
     +----------------
      epoch 1 to 17, • loss, ○ val_loss, logarithmic
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MARKS = "•○×+"
LEAST = 4  # rows, and columns of the curves
FROM_LOGARITHMIC = 100.0  # between the largest and the smallest of positive figures


def drawn(curves: Mapping[str, Sequence[float]], width: int, height: int) -> str:
    """The curves of figures, one for each epoch, as text; where two meet, the first is seen."""
    arrays = [np.asarray(values, np.float64) for values in curves.values()]
    finite = np.concatenate([each[np.isfinite(each)] for each in arrays])
    epochs = max(map(len, arrays), default=0)
    if not finite.size:
        return f"{', '.join(curves)}: {epochs} epochs, and no finite figure to draw"
    low, high = float(finite.min()), float(finite.max())
    is_logarithmic = low > 0 and high / low > FROM_LOGARITHMIC
    height = max(LEAST, height)
    labels = _labels(low, high, height, is_logarithmic)
    margin = max(map(len, labels))
    cells = [[" "] * max(LEAST, width - margin - 2) for _ in range(height)]
    bounds = (_scaled(low, is_logarithmic), _scaled(high, is_logarithmic))
    for mark, values in reversed([*zip(MARKS, arrays)]):
        _mark(cells, mark, _scaled(values, is_logarithmic), epochs, bounds)
    rows = [f"{label:>{margin}} |{''.join(row)}" for label, row in zip(labels, cells)]
    names = ", ".join(f"{mark} {name}" for mark, name in zip(MARKS, curves))
    about = f"epoch 1 to {epochs}, {names}{', logarithmic' if is_logarithmic else ''}"
    below = [f"{'':{margin}} +{'-' * len(cells[0])}", f"{'':{margin}}  {about}"]
    return "\n".join(line[:width].rstrip() for line in (*rows, *below))


def _scaled(values: Any, is_logarithmic: bool) -> Any:
    """The figures as heights, halved so that no difference of two overflows."""
    if not is_logarithmic:
        return values / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(values) / 2


def _labels(low: float, high: float, height: int, is_logarithmic: bool) -> list[str]:
    """What stands beside the rows: the top, the middle and the bottom."""
    middle = height // 2
    share = middle / (height - 1)
    between = (
        high ** (1 - share) * low**share if is_logarithmic else high + share * low - share * high
    )
    named = {0: high, middle: between, height - 1: low}
    return [f"{named[row]:.3g}" if row in named else "" for row in range(height)]


def _mark(
    cells: list[list[str]], mark: str, values: Any, epochs: int, bounds: tuple[float, float]
) -> None:
    """Mark a curve in every column that lies between its first and its last finite figure."""
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return
    rows, columns = len(cells), len(cells[0])
    low, high = bounds
    at = np.linspace(0, max(1, epochs - 1), columns)
    found = np.interp(at, known, values[known], left=np.nan, right=np.nan)
    share = (found - low) / (high - low) if high > low else np.where(np.isnan(found), np.nan, 0.5)
    for column in np.flatnonzero(np.isfinite(share)):
        cells[round((1 - share[column]) * (rows - 1))][column] = mark
