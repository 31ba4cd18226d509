"""Math functions of f32 and f64, vectorisable: branch-free expressions made of primitive ops."""

from __future__ import annotations

from graphc.loops.vecmath.arc import acos, asin, atan, atan2
from graphc.loops.vecmath.exponential import exp, exp2, exp_below_zero, expm1, sigmoid
from graphc.loops.vecmath.gamma import digamma, lgamma
from graphc.loops.vecmath.hyperbolic import (
    acosh,
    asinh,
    atanh,
    cosh,
    log_sigmoid,
    logaddexp,
    sinh,
    softplus,
    tanh,
)
from graphc.loops.vecmath.logarithm import log, log1p, log2, log10
from graphc.loops.vecmath.power import pow
from graphc.loops.vecmath.root import cbrt, hypot, rsqrt
from graphc.loops.vecmath.special import erf, erfc, erfinv
from graphc.loops.vecmath.trig import cos, sin, sinc, tan
from graphc.loops.vecmath.vocabulary import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "exp_below_zero",
    "expm1",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_sigmoid",
    "logaddexp",
    "pow",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "softplus",
    "tan",
    "tanh",
]
