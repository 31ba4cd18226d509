"""Polynomials as NumPy's functions write them: vectors of coefficients, the highest power first.

Coefficients are not looked at while tracing: leading zeros stay, where NumPy drops them.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.types import F64, Dim
from graphc.limits import check_within
from graphc.ops.linalg.spectral import computed, lstsq
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import require
from graphc.ops.record.value import Value, as_value, common_element, element_of, functions, public


def _coefficients(name: str, *given: ArrayLike) -> list[Any]:
    made = [functions.atleast_1d(as_value(p)) for p in given]
    for p in made:
        require(rank_of(p) == 1, f"{name} takes vectors of coefficients")
    return made


def _count(name: str, p: Value) -> int:
    (count,) = shape_of(p)
    if isinstance(count, Dim):
        raise TypeRuleError(f"{name}: the number of coefficients {count} is not known")
    return count


@public(np.polyval)
def polyval(p: ArrayLike, x: ArrayLike) -> Any:
    """The polynomial with coefficients p, highest power first, at x."""
    made = functions.zeros_like(x)
    for coefficient in functions.unstack(p):
        made = made * x + coefficient
    return made


def _aligned(name: str, a: Value, b: Value) -> tuple[Any, Any]:
    a, b = _coefficients(name, a, b)
    have = [_count(name, v) for v in (a, b)]
    first, second = (functions.pad(v, (max(have) - n, 0)) for v, n in zip((a, b), have))
    return first, second


@public(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    """The coefficients of a sum of polynomials."""
    return functions.add(*_aligned("polyadd", a1, a2))


@public(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    """The coefficients of a difference of polynomials."""
    return functions.subtract(*_aligned("polysub", a1, a2))


@public(np.polymul)
def polymul(a1: ArrayLike, a2: ArrayLike) -> Any:
    """The coefficients of a product of polynomials."""
    given = _coefficients("polymul", a1, a2)
    zero = functions.zeros
    return functions.convolve(
        *(zero(1, common_element(p)[0]) if 0 in shape_of(p) else p for p in given)
    )


@public(np.polydiv)
def polydiv(u: Any, v: Any) -> tuple[Any, Any]:
    """(quotient, remainder) of polynomials, the remainder as long as v less one."""
    f, (u, v) = functions, _coefficients("polydiv", u, v)
    element = common_element(u, v)[0]
    element = element if element.kind in "fc" else F64
    rest, divisor = f.astype(u, element), f.astype(v, element)
    size = _count("polydiv", v)
    require(0 not in (size, _count("polydiv", u)), "polydiv of no coefficients")
    steps = _count("polydiv", u) - size + 1
    quotient = []
    for _ in range(steps):
        quotient.append(rest[:1] / divisor[:1])
        head = rest[1:size] - quotient[-1] * divisor[1:]
        rest = f.concatenate([head, rest[size:]])
    made = f.concatenate(quotient) if quotient else f.zeros((1,), element)
    return made, rest if shape_of(rest)[0] else f.zeros((1,), element)


@public(np.polyder)
def polyder(p: ArrayLike, m: int = 1) -> Any:
    """The coefficients of the m-th derivative."""
    require(operator.index(m) >= 0, f"polyder of order {m}")
    (made,) = _coefficients("polyder", p)
    for _ in range(min(m, _count("polyder", made))):  # after which nothing is left
        powers = np.arange(_count("polyder", made) - 1, 0, -1)
        made = functions.multiply(made[:-1], powers)
    return made


@public(np.polyint)
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Any:
    """The coefficients of the m-th integral, with the constants k (0 by default)."""
    require(operator.index(m) >= 0, f"polyint of order {m}")
    check_within("results", m, f"polyint of order {m}")
    (made,) = _coefficients("polyint", p)
    constants = functions.atleast_1d(as_value(0.0 if k is None else k))
    if _count("polyint", constants) == 1:
        constants = functions.broadcast_to(constants, (m,))
    have = _count("polyint", constants)
    require(have >= m, f"polyint: {have} constants of {m}")
    for step in range(m):
        powers = np.arange(_count("polyint", made), 0, -1)
        made = functions.concatenate([functions.divide(made, powers), constants[step : step + 1]])
    return made


@public(np.poly)
def poly(seq_of_zeros: ArrayLike) -> Any:
    """The coefficients of the polynomial with these roots."""
    roots = functions.atleast_1d(as_value(seq_of_zeros))
    require(rank_of(roots) == 1, "poly takes a vector of roots")
    if shape_of(roots)[0] == 0:
        return functions.ones((), F64)
    element = common_element(roots)[0]
    element = element if element.kind in "fc" and element.itemsize > 2 else F64
    made, roots = functions.ones((1,), element), functions.astype(roots, element)
    for root in functions.unstack(roots):
        tail = functions.pad(functions.multiply(made, functions.negative(root)), (1, 0))
        made = functions.add(functions.pad(made, (0, 1)), tail)
    return made


@public(np.polyfit)
def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool = False,
) -> Any:
    """Coefficients, the highest power first, of the polynomial of a degree that is closest to y at
    x, weighted by w; `full` and `cov` are refused."""
    require(not full and not cov, "polyfit returns coefficients alone", hint="leave full and cov")
    f, degree = functions, operator.index(deg)
    require(degree >= 0, f"polyfit: the degree {degree} is negative")
    x, y = computed(x, y), computed(y, x)
    require(rank_of(x) == 1 and rank_of(y) in (1, 2), "polyfit takes a vector x, and y as long")
    powers = f.vander(x, degree + 1)
    if w is not None:
        powers = f.multiply(powers, f.expand_dims(w, -1))
        y = f.multiply(y, f.expand_dims(w, -1) if rank_of(y) == 2 else w)
    sizes = f.sqrt(f.sum(f.square(powers), axis=0))
    if rcond is None:
        rcond = _count("polyfit", x) * float(np.finfo(element_of(x)[0].numpy).eps)
    made = lstsq(f.divide(powers, sizes), y, rcond)[0]
    return f.divide(made, f.expand_dims(sizes, -1) if rank_of(y) == 2 else sizes)
