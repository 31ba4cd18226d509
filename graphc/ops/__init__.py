"""The ops: importing this package fills the op table. Every family is named here, once."""

from __future__ import annotations

from graphc.ops import (  # noqa: F401
    arrange,
    casts,
    conv,
    creation,
    cumulative,
    einsum,
    elementwise,
    gather,
    indexing,
    linalg,
    logic,
    padding,
    pooling,
    products,
    random,
    reduce,
    rounding,
    shape,
    slicing,
    statistics,
    structural,
    transcendental,
)
