"""Cotangents of orthogonal factors, singular values and eigenvalues, real and complex.

With ' for the conjugate transpose, * for the product of elements, g_y the cotangent of y:

    qr      B = q' dx r^-1 parts into what turns q (its lower triangle L, as L - L', and the phases
            of the diagonal) and what is left for r:
            x takes (g_q + q (K - q' g_q)) r^-1'          C = q' g_q - g_r r'
            K = g_r r' + tril(C - C', -1) + i imag(diag C)
    svd     x takes u (diag(g_s) + J s + s K + i imag(diag X) / s) v'
                  + (g_u - u X) / s v' + u / s (g_v - v Y)'
            X = u' g_u, Y = v' g_v, J = F * (X - X'), K = F * (Y - Y'), F_ij = 1 / (s_j^2 - s_i^2)
    eigh    H = v (diag(g_w) + F * (v' g_v)) v', folded on the triangle that is read
            F_ij = 1 / (w_j - w_i)
    eig     x takes v^-1' (diag(g_w) + conj(F) * (v' g_v - v' v real(diag(v' g_v)))) v'

Where two values are equal F is zero: right for what does not depend on how their vectors are
chosen, and nothing else has a derivative there.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from graphc.errors import GraphError
from graphc.ops.linalg.factor import solve
from graphc.ops.linalg.factor_gradients import upper_solve
from graphc.ops.record.arguments import Tensor
from graphc.ops.record.dims import shape_of
from graphc.ops.record.value import Value, element_of, emit, functions


def adjoint(x: Tensor) -> Any:
    """The conjugate transposes of matrices."""
    f = functions
    turned = f.swapaxes(x, -1, -2)
    return f.conj(turned) if element_of(x)[0].is_complex else turned


def _columns(x: Value, factors: Value) -> Any:
    """x diag(factors)."""
    return functions.multiply(x, functions.expand_dims(factors, -2))


def _rows(factors: Value, x: Value) -> Any:
    """diag(factors) x."""
    return functions.multiply(functions.expand_dims(factors, -1), x)


def _diagonal(x: Value) -> Any:
    return functions.diagonal(x, 0, -2, -1)


def _with_diagonal(x: Value, values: Value) -> Any:
    """x + diag(values)."""
    f, n = functions, shape_of(x)[-1]
    return f.add(x, _rows(values, f.eye(n, dtype=x.element.real)))


def _imaginary(x: Value) -> Any:
    """i imag(x) of complex numbers."""
    f = functions
    return f.complex(f.zeros_like(f.real(x)), f.imag(x))


def inverse_or_zero(x: Value) -> Any:
    """1 / x, and zero for zero."""
    f = functions
    nothing = f.equal(x, 0)
    return f.where(nothing, 0, f.divide(1, f.where(nothing, 1, x)))


def _gaps(values: Value) -> Any:
    """1 / (v_j - v_i), and zero where they are equal."""
    f = functions
    return inverse_or_zero(f.subtract(f.expand_dims(values, -2), f.expand_dims(values, -1)))


def _over(x: Value, r: Value) -> Any:
    """x r^-1' for upper triangles r."""
    return adjoint((solve if r.element.is_complex else upper_solve)(r, adjoint(x)))


# ------------------------------------------------------------------------------------ qr


def qr_gradient(ct: Any, result: Any, x: Value, *, complete: bool, alone: bool) -> Any:
    if alone:
        ct, result = (None, ct), emit("qr", x, complete=complete)
    f, (q, r) = functions, result
    m, n = x.type.dims[-2:]
    if complete and m > n:
        raise GraphError(
            "the columns that complete q have no derivative", hint='use mode="reduced"'
        )
    to_q = f.zeros_like(q) if ct[0] is None else ct[0]
    to_r = f.zeros_like(r) if ct[1] is None else ct[1]
    if m >= n:
        return (_tall(q, r, to_q, to_r),)
    # x = q [r1 r2]: q and r1 belong to the first columns, and r2 = q' x2.
    first, rest = r[..., :m], x[..., m:]
    to_q = f.add(to_q, f.matmul(rest, adjoint(to_r[..., m:])))
    made = _tall(q, first, to_q, to_r[..., :m])
    return (f.concatenate([made, f.matmul(q, to_r[..., m:])], -1),)


def _tall(q: Value, r: Value, to_q: Value, to_r: Value) -> Any:
    f = functions
    turned, left = f.matmul(adjoint(q), to_q), f.matmul(to_r, adjoint(r))
    change = f.subtract(turned, left)
    inner = f.add(left, f.tril(f.subtract(change, adjoint(change)), -1))
    if q.element.is_complex:
        inner = _with_diagonal(inner, _imaginary(_diagonal(change)))
    return _over(f.add(to_q, f.matmul(q, f.subtract(inner, turned))), r)


# ------------------------------------------------------------------------------------ svd


def svd_gradient(ct: tuple[Any, ...], result: tuple[Any, ...], x: Value, *, full: bool) -> Any:
    f, (to_u, to_s, to_vh), (u, s, vh) = functions, ct, result
    m, n = x.type.dims[-2:]
    if full and m != n:
        _refuse_vectors(to_u, to_vh)
        k = min(m, n)
        u, vh = u[..., :k], vh[..., :k, :]
    over, gaps = inverse_or_zero(s), _gaps(f.square(s))
    inner, outer = [], []
    if to_s is not None:
        inner.append(f.astype(_rows(to_s, f.eye(min(m, n), dtype=s.element)), x.element))
    if to_u is not None:
        turned = f.matmul(adjoint(u), to_u)
        inner.append(_columns(_turn(gaps, turned), s))
        if x.element.is_complex:
            phases = f.multiply(_imaginary(_diagonal(turned)), over)
            inner[-1] = _with_diagonal(inner[-1], phases)
        if m > n:
            beyond = f.subtract(to_u, f.matmul(u, turned))
            outer.append(f.matmul(_columns(beyond, over), vh))
    if to_vh is not None:
        turned = f.matmul(vh, adjoint(to_vh))
        inner.append(_rows(s, _turn(gaps, turned)))
        if n > m:
            beyond = f.subtract(to_vh, f.matmul(adjoint(turned), vh))
            outer.append(f.matmul(u, _rows(over, beyond)))
    made = f.matmul(f.matmul(u, reduce(f.add, inner)), vh)
    return (reduce(f.add, outer, made),)


def _refuse_vectors(*cotangents: Value | None) -> None:
    if any(ct is not None for ct in cotangents):
        raise GraphError(
            "the vectors that complete u or vh have no derivative", hint="use full_matrices=False"
        )


def _turn(gaps: Value, turned: Value) -> Any:
    return functions.multiply(gaps, functions.subtract(turned, adjoint(turned)))


def svdvals_gradient(ct: Value, result: Value, x: Value) -> Any:
    u, _, vh = emit("svd", x)
    return (functions.matmul(_columns(u, ct), vh),)


# ------------------------------------------------------------------------------------ eigh


def _folded(x: Value) -> Any:
    """The cotangent of a Hermitian matrix as one of the triangle that is read."""
    f = functions
    below = f.tril(f.add(x, adjoint(x)), -1)
    return _with_diagonal(below, f.real(_diagonal(x)) if x.element.is_complex else _diagonal(x))


def eigh_gradient(ct: tuple[Any, ...], result: tuple[Any, ...], x: Value) -> Any:
    f, (to_w, to_v), (w, v) = functions, ct, result
    if to_v is None:
        return (_of_values(v, to_w),)
    inner = f.multiply(_gaps(w), f.matmul(adjoint(v), to_v))
    inner = inner if to_w is None else _with_diagonal(inner, to_w)
    return (_folded(f.matmul(f.matmul(v, inner), adjoint(v))),)


def eigvalsh_gradient(ct: Value, result: Value, x: Value) -> Any:
    return (_of_values(emit("eigh", x)[1], ct),)


def _of_values(v: Value, to_w: Value) -> Any:
    return _folded(functions.matmul(_columns(v, to_w), adjoint(v)))


# ------------------------------------------------------------------------------------ eig


def eig_gradient(ct: tuple[Any, ...], result: tuple[Any, ...], x: Value) -> Any:
    f, (to_w, to_v), (w, v) = functions, ct, result
    inner = None
    if to_v is not None:
        turned = f.matmul(adjoint(v), to_v)
        along = _columns(f.matmul(adjoint(v), v), f.real(_diagonal(turned)))
        inner = f.multiply(f.conj(_gaps(w)), f.subtract(turned, along))
    if to_w is not None:
        unit = _rows(to_w, f.eye(shape_of(w)[-1], dtype=x.element.real))
        inner = unit if inner is None else f.add(inner, unit)
    made = solve(adjoint(v), f.matmul(inner, adjoint(v)))
    return (made if x.element.is_complex else f.real(made),)


def eigvals_gradient(ct: Value, result: Value, x: Value) -> Any:
    return eig_gradient((ct, None), emit("eig", x), x)
