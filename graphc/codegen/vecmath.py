"""The table of vector math functions: name -> branch-free expression, for f32 and f64.

A function takes the expression builder and operands of one float type and gives an expression of
that type made of primitive ops; `docs/ulp.md` has the errors.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen import vecmath_arc as arc
from graphc.codegen import vecmath_exp as exponential
from graphc.codegen import vecmath_gamma as gamma
from graphc.codegen import vecmath_hyperbolic as hyperbolic
from graphc.codegen import vecmath_log as logarithm
from graphc.codegen import vecmath_pow as power
from graphc.codegen import vecmath_root as root
from graphc.codegen import vecmath_special as special
from graphc.codegen import vecmath_trig as trigonometric
from graphc.codegen.loops import Expr

FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "acos": arc.acos,
    "acosh": hyperbolic.acosh,
    "asin": arc.asin,
    "asinh": hyperbolic.asinh,
    "atan": arc.atan,
    "atan2": arc.atan2,
    "atanh": hyperbolic.atanh,
    "cbrt": root.cbrt,
    "cos": trigonometric.cos,
    "cosh": hyperbolic.cosh,
    "digamma": gamma.digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "hypot": root.hypot,
    "lgamma": gamma.lgamma,
    "log": logarithm.log,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "log_sigmoid": hyperbolic.log_sigmoid,
    "logaddexp": hyperbolic.logaddexp,
    "pow": power.pow,
    "rsqrt": root.rsqrt,
    "sigmoid": exponential.sigmoid,
    "sin": trigonometric.sin,
    "sinc": trigonometric.sinc,
    "sinh": hyperbolic.sinh,
    "softplus": hyperbolic.softplus,
    "tan": trigonometric.tan,
    "tanh": exponential.tanh,
}
