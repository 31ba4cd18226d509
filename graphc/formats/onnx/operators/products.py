"""Products: MatMul, Gemm, Einsum, determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.table import MICROSOFT, operator
from graphc.ops.record.value import functions as f


@operator("MatMul")
def mat_mul(a: Any, b: Any) -> Any:
    return f.matmul(a, b)


@operator("Gemm", since=7)
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    refuse(a.ndim == b.ndim == 2, "takes matrices")
    left = f.transpose(a, (1, 0)) if transA else a
    right = f.transpose(b, (1, 0)) if transB else b
    made = _times(f.matmul(left, right), alpha)
    return made if c is None or not beta else f.add(made, _times(c, beta))


@operator("Gemm")
def gemm_with_broadcast(a: Any, b: Any, c: Any, *, broadcast: int = 0, **how: Any) -> Any:
    return gemm(a, b, c, **how)


def _times(x: Any, factor: float) -> Any:
    return x if factor == 1.0 else f.multiply(x, np.asarray(factor).astype(x.dtype))


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_mat_mul(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Any:
    """With transposed batches the first dimension of an operand follows those of its batch."""
    left = f.moveaxis(a, 0, -2) if transBatchA else a
    right = f.moveaxis(b, 0, -2) if transBatchB else b
    left = f.swapaxes(left, -1, -2) if transA else left
    right = f.swapaxes(right, -1, -2) if transB else right
    return _times(f.matmul(left, right), alpha)


@operator("Einsum")
def einsum(*operands: Any, equation: str) -> Any:
    return f.einsum(equation.replace(" ", ""), *operands)


@operator("Det")
def det(x: Any) -> Any:
    return getattr(f, "linalg.det")(x)
