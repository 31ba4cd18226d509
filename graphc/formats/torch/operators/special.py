"""Functions of torch.special that nothing else is called by: those of probability, and polynomials.

What has a name of its own elsewhere ("special_digamma" is "digamma") is found under that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.promotion import as_float, cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.ops.math import bessel, bessel_waves
from graphc.ops.record.value import functions as f

_ASYMPTOTIC = 20.0
_HIGHEST = 1000


@aten("special_entr")
def entr(x: Any) -> Any:
    x = as_float(x)
    made = f.where(f.equal(x, 0), 0, -x * f.log(f.where(x > 0, x, 1)))
    return f.where(x < 0, -np.inf, f.where(f.isnan(x), x, made)).astype(dtype_of(x))


def _of_the_right(x: Any) -> Any:
    """exp(x**2) erfc(x) for x >= 0 in 64 bits; far out by its asymptotic series."""
    inside, near, far = bessel.sides(x, _ASYMPTOTIC)
    step = 0.5 / (far * far)
    series = 1.0
    for odd in (11, 9, 7, 5, 3, 1):
        series = 1 - odd * step * series
    tail = series / (far * math.sqrt(math.pi))
    return f.where(inside, f.exp(near * near) * f.erfc(near), tail)


def _scaled_tail(x: Any) -> Any:
    right = _of_the_right(f.where(x < 0, -x, x))
    return f.where(x < 0, 2 * f.exp(x * x) - right, right)


@aten("special_erfcx")
def erfcx(x: Any) -> Any:
    kind = dtype_of(as_float(x))
    return cast(_scaled_tail(cast(x, np.dtype(np.float64))), kind)


@aten("special_log_ndtr")
def log_ndtr(x: Any) -> Any:
    """The logarithm of the normal distribution function, to the far left, too."""
    kind = dtype_of(as_float(x))
    z = cast(x, np.dtype(np.float64)) * math.sqrt(0.5)
    left, right = f.where(z < 0, z, 0), f.where(z < 0, 0, z)
    below = f.log(_of_the_right(-left) * 0.5) - left * left
    above = f.log1p(f.erfc(right) * -0.5)
    return cast(f.where(z < 0, below, above), kind)


@aten("special_ndtr")
def ndtr(x: Any) -> Any:
    x = as_float(x)
    return f.erfc(x * -math.sqrt(0.5)) * 0.5


@aten("special_ndtri")
def ndtri(x: Any) -> Any:
    kind = dtype_of(as_float(x))
    twice = 2 * cast(x, np.dtype(np.float64)) - 1
    return cast(f.erfinv(twice) * math.sqrt(2), kind)


def _bessel(function: Callable[[Any], Any], *names: str) -> None:
    """The names of a Bessel function: of the operator, and of the primitive below it, if any."""
    for name, space in zip(names, ("aten", "prims")):
        aten(name, space=space)(lambda x: function(as_float(x)))


aten("bessel_i0", space="prims")(lambda x: f.i0(as_float(x)))
_bessel(bessel.i0e, "special_i0e", "bessel_i0e")
_bessel(bessel.i1, "special_i1", "bessel_i1")
_bessel(bessel.i1e, "special_i1e", "bessel_i1e")
_bessel(bessel_waves.j0, "special_bessel_j0", "bessel_j0")
_bessel(bessel_waves.j1, "special_bessel_j1", "bessel_j1")
for _order, _functions in enumerate(
    (
        (bessel_waves.y0, bessel.i0, bessel.k0, bessel.k0e),
        (bessel_waves.y1, bessel.i1, bessel.k1, bessel.k1e),
    )
):
    for _kind, _function in zip(
        ("bessel_y", "modified_bessel_i", "modified_bessel_k", "scaled_modified_bessel_k"),
        _functions,
    ):
        _bessel(_function, f"special_{_kind}{_order}")
_bessel(bessel_waves.airy_ai, "special_airy_ai")


@aten("special_spherical_bessel_j0")
@aten("spherical_bessel_j0", space="prims")
def spherical_bessel_j0(x: Any) -> Any:
    """sin(x) / x."""
    x = as_float(x)
    small = f.less(f.abs(x), cast(0.5, dtype_of(x)))
    near = f.sinc(f.where(small, x, cast(0, dtype_of(x))) * (1 / math.pi))
    far = f.divide(f.sin(f.where(f.isinf(x), cast(0, dtype_of(x)), x)), x)
    return f.where(small, near, far)


@aten("special_multigammaln", "mvlgamma")
def multigammaln(x: Any, p: int) -> Any:
    refuse(1 <= p <= _HIGHEST, f"a multivariate gamma function of order {p}")
    x = as_float(x)
    steps = (np.arange(p) * 0.5).astype(dtype_of(x))
    halves = f.subtract(f.expand_dims(x, -1), steps)
    return f.sum(f.lgamma(halves), axis=-1) + p * (p - 1) / 4 * math.log(math.pi)


# ------------------------------------------------------------------------------------ polynomials
#
# p(k + 1) = (a(k) x + b(k)) p(k) - c(k) p(k - 1), from p(0) = 1 and p(1) = first x + offset.

_POLYNOMIALS: dict[str, tuple[float, float, Any]] = {
    "chebyshev_polynomial_t": (1, 0, lambda k: (2, 0, 1)),
    "chebyshev_polynomial_u": (2, 0, lambda k: (2, 0, 1)),
    "chebyshev_polynomial_v": (2, -1, lambda k: (2, 0, 1)),
    "chebyshev_polynomial_w": (2, 1, lambda k: (2, 0, 1)),
    "shifted_chebyshev_polynomial_t": (2, -1, lambda k: (4, -2, 1)),
    "shifted_chebyshev_polynomial_u": (4, -2, lambda k: (4, -2, 1)),
    "shifted_chebyshev_polynomial_v": (4, -3, lambda k: (4, -2, 1)),
    "shifted_chebyshev_polynomial_w": (4, -1, lambda k: (4, -2, 1)),
    "hermite_polynomial_h": (2, 0, lambda k: (2, 0, 2 * k)),
    "hermite_polynomial_he": (1, 0, lambda k: (1, 0, k)),
    "laguerre_polynomial_l": (-1, 1, lambda k: (-1 / (k + 1), (2 * k + 1) / (k + 1), k / (k + 1))),
    "legendre_polynomial_p": (1, 0, lambda k: ((2 * k + 1) / (k + 1), 0, k / (k + 1))),
}


def _polynomial(first: float, offset: float, steps: Any) -> Any:
    def run(x: Any, n: Any) -> Any:
        refuse(isinstance(n, int) and n <= _HIGHEST, f"a polynomial of degree {n}")
        x = as_float(x)
        before, made = f.zeros(x.shape, dtype_of(x)), f.ones(x.shape, dtype_of(x))
        if n < 0:
            return before
        for k in range(n):
            slope, constant, back = steps(k) if k else (first, offset, 0)
            before, made = made, (x * slope + constant) * made - before * back
        return made

    return run


for _name, _terms in _POLYNOMIALS.items():
    aten(f"special_{_name}")(_polynomial(*_terms))
