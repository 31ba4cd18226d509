"""`gc.linalg`: products of matrices, norms, factors and solvers."""

from __future__ import annotations

from graphc.hints import missing
from graphc.ops.linalg.products import (
    cholesky,
    cross,
    det,
    diagonal,
    inv,
    matmul,
    matrix_norm,
    matrix_power,
    multi_dot,
    norm,
    outer,
    slogdet,
    solve,
    tensordot,
    trace,
    vecdot,
    vector_norm,
)

__all__ = [
    "cholesky", "cross", "det", "diagonal", "inv", "matmul", "matrix_norm", "matrix_power",
    "multi_dot", "norm", "outer", "slogdet", "solve", "tensordot", "trace", "vecdot",
    "vector_norm",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise missing("graphc.linalg", name, __all__)
