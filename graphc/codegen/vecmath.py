"""The table of vector math functions: name -> branch-free expression, f32 and f64."""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen import vecmath_exp as exponential
from graphc.codegen import vecmath_log as logarithm
from graphc.codegen import vecmath_pow as power
from graphc.codegen import vecmath_special as special
from graphc.codegen import vecmath_trig as trigonometric
from graphc.codegen.loops import Expr

FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "cos": trigonometric.cos,
    "erf": special.erf,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "pow": power.pow,
    "sigmoid": exponential.sigmoid,
    "sin": trigonometric.sin,
    "tan": trigonometric.tan,
    "tanh": exponential.tanh,
}
