"""Householder's reflections: factors of matrices as LAPACK packs them, and products with them.

Reflection k is 1 - tau v v^H; v is 1 in row k, 0 above it, and lies below the diagonal of column k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.promotion import cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.frontend.transforms.control import scan
from graphc.ops.record.value import functions as f


@aten("geqrf")
def geqrf(x: Any) -> Any:
    """The triangular factor over the vectors of the reflections, and their factors tau."""
    kind = dtype_of(x)
    rows, columns = (np.arange(n) for n in x.shape[-2:])

    def step(left: Any, k: Any) -> tuple[Any, Any]:
        column = f.take(left, k, axis=-1)
        first = f.expand_dims(f.take(column, k, axis=-1), -1)
        tail = f.where(f.greater(rows, k), column, cast(0, kind))
        rest = f.max(_size(tail), axis=-1, keepdims=True)
        done = f.logical_and(f.equal(rest, 0), f.equal(f.imag(first), 0))
        largest = f.maximum(rest, _size(first))
        unit = f.where(f.equal(largest, 0), cast(1, dtype_of(largest)), largest)
        head, tail = f.divide(first, unit), f.divide(tail, unit)  # whose squares are finite
        length = f.sqrt(f.add(f.sum(_square(tail), axis=-1, keepdims=True), _square(head)))
        made = cast(f.negative(f.copysign(length, f.real(head))), kind)
        tau = f.where(done, 0, f.divide(f.subtract(made, head), f.where(done, 1, made)))
        v = f.divide(tail, f.where(done, 1, f.subtract(head, made)))
        made = f.multiply(made, unit)
        v = f.where(f.equal(rows, k), cast(1, kind), v)
        kept = f.where(f.equal(rows, k), f.where(done, first, made), v)
        kept = f.expand_dims(f.where(f.less(rows, k), column, kept), -1)
        after = f.where(f.greater(columns, k), _reflected(left, v, f.conj(tau)), left)
        return f.where(f.equal(columns, k), kept, after), f.squeeze(tau, -1)

    steps = min(x.shape[-2:])
    if not steps:
        return x.copy(), f.zeros((*x.shape[:-2], 0), kind)
    packed, taus = scan(step, x, np.arange(steps))
    return packed, f.moveaxis(taus, 0, -1)


@aten("ormqr")
def ormqr(x: Any, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Any:
    """The product of all reflections (input2: their tau), or its adjoint, times input3, on either
    side of it."""
    if left:
        return _product(x, input2, input3, transpose)
    turned = _product(x, input2, f.conj(f.swapaxes(input3, -1, -2)), not transpose)
    return f.conj(f.swapaxes(turned, -1, -2))


@aten("linalg_householder_product")
def linalg_householder_product(x: Any, tau: Any) -> Any:
    """The first columns of the product of all reflections."""
    return _product(
        x, tau, f.broadcast_to(np.eye(*x.shape[-2:], dtype=dtype_of(x)), x.shape), False
    )


aten("orgqr")(lambda x, input2: linalg_householder_product(x, input2))


def _product(x: Any, tau: Any, other: Any, adjoint: bool) -> Any:
    refuse(x.shape[-2] == other.shape[-2], f"reflections of {x.shape[-2]} rows")
    if not tau.shape[-1]:
        return other.copy()
    rows, order = np.arange(x.shape[-2]), np.arange(tau.shape[-1])
    kind = dtype_of(x)

    def step(left: Any, k: Any) -> tuple[Any, None]:
        below = f.where(f.greater(rows, k), f.take(x, k, axis=-1), cast(0, kind))
        v = f.where(f.equal(rows, k), cast(1, kind), below)
        factor = f.expand_dims(f.take(tau, k, axis=-1), -1)
        return _reflected(left, v, f.conj(factor) if adjoint else factor), None

    return scan(step, other, order if adjoint else order[::-1].copy())[0]


def _reflected(x: Any, v: Any, tau: Any) -> Any:
    """(1 - tau v v^H) x for v[..., rows] and tau[..., 1]."""
    column = f.expand_dims(v, -1)
    along = f.sum(f.multiply(f.conj(column), x), axis=-2, keepdims=True)
    return f.subtract(x, f.multiply(f.multiply(f.expand_dims(tau, -1), column), along))


def _size(x: Any) -> Any:
    """The larger magnitude of both parts, which no square is needed for."""
    return f.maximum(f.abs(f.real(x)), f.abs(f.imag(x)))


def _square(x: Any) -> Any:
    return f.add(f.multiply(f.real(x), f.real(x)), f.multiply(f.imag(x), f.imag(x)))
