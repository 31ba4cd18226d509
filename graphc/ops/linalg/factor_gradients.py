"""Cotangents of factorisations and of what is solved with them (Giles, 2008; de Hoog et al., 2011).

With x[perm] = P x = L U, both factors in one array and D the cotangent of that array:

    lu        P' L^-T (tril(L' tril(D), -1) + triu(triu(D) U')) U^-T
    lu_solve  y = A^-1 b:   b takes  A^-T ct,   the factors  -tril(p (U q)', -1) - triu(L' p q')
              with  p = P A^-T ct,  q = y                    (A^-T b:  p = P y,  q = A^-1 ct)
    cholesky  S = L^-T tril(L' ct) L^-1 with half the diagonal; S + S' for the triangle that is read
"""

from __future__ import annotations

from typing import Any

from graphc.ops.autodiff.adjoints import sum_to
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.dims import shape_of
from graphc.ops.record.value import Value, emit, functions


def _transposed(x: ArrayLike) -> Any:
    return functions.swapaxes(x, -1, -2)


def _unit_lower(packed: Value) -> Any:
    """L of packed factors, with its diagonal of ones."""
    f = functions
    return f.add(f.tril(packed, -1), f.eye(shape_of(packed)[-1], dtype=packed.element))


def upper_solve(upper: Value, b: ArrayLike) -> Any:
    """upper^-1 b for upper triangular matrices, as factors whose L is the unit matrix."""
    f, dims = functions, shape_of(upper)
    order = f.broadcast_to(f.arange(dims[-1]), dims[:-1])
    return emit("lu_solve", upper, order, b)


def lu_gradient(ct: tuple[Any, ...], result: tuple[Any, ...], x: Value) -> tuple[Any]:
    f, (packed, perm, _), change = functions, result, ct[0]
    if change is None:
        return (None,)
    lower, upper = _unit_lower(packed), f.triu(packed)
    below = f.tril(f.matmul(_transposed(lower), f.tril(change, -1)), -1)
    above = f.triu(f.matmul(f.triu(change), _transposed(upper)))
    right = _transposed(upper_solve(upper, _transposed(f.add(below, above))))
    # The packed factors of L alone: U is the unit matrix.
    return (emit("lu_solve", lower, perm, right, transposed=True),)


def lu_solve_gradient(
    ct: Value, result: Value, packed: Value, perm: Value, b: Value, *, transposed: bool
) -> tuple[Any, None, Any]:
    f = functions
    to_b = emit("lu_solve", packed, perm, ct, transposed=not transposed)
    p, q = (result, to_b) if transposed else (to_b, result)
    p = f.take_along_axis(p, f.expand_dims(perm, -1), -2)
    lower, upper = _unit_lower(packed), f.triu(packed)
    below = f.matmul(p, _transposed(f.matmul(upper, q)))
    above = f.matmul(f.matmul(_transposed(lower), p), _transposed(q))
    return f.negative(f.add(f.tril(below, -1), f.triu(above))), None, to_b


def cholesky_gradient(ct: Value, result: Value, x: Value) -> tuple[Any]:
    """Only the lower triangle of x is read, so the upper one of its cotangent is zero."""
    f, upper = functions, _transposed(result)
    inner = f.tril(f.matmul(upper, ct))
    half = f.multiply(f.add(inner, f.tril(inner, -1)), 0.5)
    left = upper_solve(upper, half)
    whole = upper_solve(upper, _transposed(left))
    return (f.add(f.tril(whole), f.tril(_transposed(whole), -1)),)


def solve_gradient(ct: Value, result: Value, a: Value, b: Value) -> tuple[Any, Any]:
    """b takes A^-T ct, solved with the factors that the forward pass has made, and a takes minus
    its product with the solution."""
    f = functions
    to_b = emit("lu_solve", *factors(a, shape_of(ct)[:-2]), ct, transposed=True)
    to_a = f.negative(f.matmul(to_b, _transposed(result)))
    return sum_to(to_a, shape_of(a)), sum_to(to_b, shape_of(b))


def factors(a: Value, stack: Any) -> tuple[Any, Any]:
    """The LU factors and the row orders of matrices, for each of a stack of systems."""
    f = functions
    packed, perm, _ = emit("lu", a)
    packed = f.broadcast_to(packed, (*stack, *shape_of(packed)[-2:]))
    return packed, f.broadcast_to(perm, (*stack, shape_of(perm)[-1]))
