"""The ops: importing this package fills the op table. Every family is named here, once."""

from __future__ import annotations

from graphc.ops import (  # noqa: F401
    arrange,
    casts,
    cumulative,
    elementwise,
    gather,
    indexing,
    linalg,
    logic,
    reduce,
    rounding,
    shape,
    slicing,
    statistics,
    structural,
    transcendental,
)
