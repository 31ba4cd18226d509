"""The table of vector math functions: name -> branch-free expression, for f32 and f64.

A function takes the expression builder and operands of one float type and gives an expression of
that type made of primitive ops; `docs/ulp.md` has the errors.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.loops.nest import Expr
from graphc.loops.vecmath import arc, exp, gamma, hyperbolic, log, pow, root, special, trig

FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "acos": arc.acos,
    "acosh": hyperbolic.acosh,
    "asin": arc.asin,
    "asinh": hyperbolic.asinh,
    "atan": arc.atan,
    "atan2": arc.atan2,
    "atanh": hyperbolic.atanh,
    "cbrt": root.cbrt,
    "cos": trig.cos,
    "cosh": hyperbolic.cosh,
    "digamma": gamma.digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "exp": exp.exp,
    "exp2": exp.exp2,
    "exp_below_zero": exp.exp_below_zero,
    "expm1": exp.expm1,
    "hypot": root.hypot,
    "lgamma": gamma.lgamma,
    "log": log.log,
    "log10": log.log10,
    "log1p": log.log1p,
    "log2": log.log2,
    "log_sigmoid": hyperbolic.log_sigmoid,
    "logaddexp": hyperbolic.logaddexp,
    "pow": pow.pow,
    "rsqrt": root.rsqrt,
    "sigmoid": exp.sigmoid,
    "sin": trig.sin,
    "sinc": trig.sinc,
    "sinh": hyperbolic.sinh,
    "softplus": hyperbolic.softplus,
    "tan": trig.tan,
    "tanh": exp.tanh,
}
