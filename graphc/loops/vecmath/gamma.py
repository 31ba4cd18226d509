"""lgamma (the logarithm of |gamma|) and digamma.

Both are entire functions of log(x) apart from poles far from the real axis (at log(n) +- i pi), so
between 1/2 and 8 one polynomial in log(x) serves, times the factors that vanish at the roots;
Stirling's series beyond 8, with coefficients fitted to where it is used; the reflection formulas
for negative x.
"""

from __future__ import annotations

import math

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, where
from graphc.loops.vecmath.logarithm import log
from graphc.loops.vecmath.trig import sin_cos_pi
from graphc.loops.vecmath.vocabulary import Real, function, split

_PI = "3.141592653589793238462643383279502884197"
_DIGAMMA_ROOT = "1.461632144968362341262659542325721328468"
_HALF_LOG_2PI = 0.9189385332046727

# lgamma(x) / (log(x) (x - 2)) in log(x) - 0.6875 for 1/2 <= x <= 8; errors 2**-24.98 and 2**-53.39
_MIDDLE_32 = (
    0.6096639633178711,
    0.05043072625994682,
    0.003753703087568283,
    -0.0014457209035754204,
    -5.290329863782972e-05,
    5.800871076644398e-05,
    -5.496573976415675e-06,
    -1.6742816342230071e-06,
    5.260508828541788e-07,
    -4.847919399253442e-09,
)
_MIDDLE_64 = (
    0.6096639527706136,
    0.05043072245807652,
    0.003753652170872587,
    -0.0014456724710221523,
    -5.2685055339903695e-05,
    5.788437658229227e-05,
    -5.824875011152817e-06,
    -1.536078785472352e-06,
    7.302697103019393e-07,
    -7.898177150031869e-08,
    -4.67270899029232e-08,
    1.878118658524089e-08,
    7.231740915576951e-10,
    -2.0710349639628314e-09,
    3.0233695704466153e-10,
    1.6412635569253567e-10,
    -5.5776014581151604e-11,
    -8.812196956024167e-12,
    6.119329755310775e-12,
    1.705298382321965e-13,
    -4.372237155784471e-13,
    1.0530425527330789e-14,
    1.627657415833546e-14,
)
# lgamma(1 + x) / x for 0 <= x <= 1/2; errors 2**-27.17 and 2**-55.83
_LOW_32 = (
    -0.5772156715393066,
    0.8224678635597229,
    -0.40069955587387085,
    0.27056923508644104,
    -0.20582528412342072,
    0.15706750750541687,
    -0.09823595732450485,
    0.03349260240793228,
)
_LOW_64 = (
    -0.5772156649015329,
    0.8224670334241055,
    -0.40068563438468685,
    0.27058080828449077,
    -0.20738554548843655,
    0.16955705012290914,
    -0.14404800507295618,
    0.12549020811211511,
    -0.11119081860116113,
    0.09932292193584491,
    -0.08781689606066653,
    0.07380079260671167,
    -0.05485705991733034,
    0.032419547580380306,
    -0.013009893993751784,
    0.002579356938068002,
)
# x (lgamma(x) - Stirling's leading terms) in x**-2 for x >= 8; errors 2**-33.52 and 2**-63.16
_STIRLING_32 = (0.08333323895931244, -0.0027598021551966667)
_STIRLING_64 = (
    0.08333333333333245,
    -0.0027777777768032367,
    0.0007936504182814685,
    -0.0005951697990276907,
    0.0008353167977481968,
    -0.001608943103075843,
)
# digamma(x) / (x - root) in log(x) - 1 for 1 <= x <= 8; errors 2**-24.61 and 2**-54.20
_PSI_32 = (
    0.6405335664749146,
    -0.42590662837028503,
    0.13823218643665314,
    -0.03401273116469383,
    0.008801570162177086,
    -0.0023414830211549997,
    0.0004935589386150241,
    -5.839868390467018e-05,
)
_PSI_64 = (
    0.6405335433083205,
    -0.42590655135745537,
    0.1382327310969687,
    -0.034013849884526465,
    0.008799415030952483,
    -0.002337706253484854,
    0.0004964035815309433,
    -6.303994206682573e-05,
    -1.2387567324167161e-06,
    2.1314957481176945e-06,
    -2.5332381037051306e-08,
    -2.3681536800217127e-07,
    6.996950637981736e-08,
    5.046642498559819e-09,
    -8.408512305249643e-09,
    1.4598002726655978e-09,
    5.509385781287698e-10,
    -2.379440910308378e-10,
    -1.1665856033872268e-11,
    1.4175259135421234e-11,
)
# x**2 (log(x) - 1 / (2 x) - digamma(x)) in x**-2 for x >= 8; errors 2**-30.72 and 2**-58.89
_PSI_STIRLING_32 = (0.08333292603492737, -0.008248544298112392)
_PSI_STIRLING_64 = (
    0.08333333333332583,
    -0.00833333332389773,
    0.003968250005897834,
    -0.0041658978643980184,
    0.0074995279063179675,
    -0.017270625351079448,
)


def _lgamma_positive(r: Real, x: Expr, logarithm: Expr) -> Expr:
    """lgamma(x) for x > 0."""
    two = r.c(2.0)
    low = x * r.polynomial(x, _LOW_32 if r.single else _LOW_64)
    low = low - logarithm
    shifted = logarithm - 0.6875
    middle = r.polynomial(shifted, _MIDDLE_32 if r.single else _MIDDLE_64)
    middle = logarithm * (x - two) * middle
    inverse = 1.0 / x
    series = r.polynomial(inverse * inverse, _STIRLING_32 if r.single else _STIRLING_64)
    rest = fma(inverse, series, _HALF_LOG_2PI - 0.5)
    high = fma(x - 0.5, logarithm - 1.0, rest)
    high = where(x == math.inf, x, high)
    return where(x < 0.5, low, where(x < 8.0, middle, high))


@function
def lgamma(x: Expr) -> Expr:
    """log(pi / (|x| |sin(pi x)|)) - lgamma(-x) for negative x; poles and infinities give inf."""
    r = Real(x)
    size = abs(x)
    positive = _lgamma_positive(r, size, log.body(size))
    sine, _ = sin_cos_pi(r, size)
    reflected = log.body(r.c(math.pi) / (size * abs(sine))) - positive
    reflected = where(sine == 0.0, math.inf, reflected)
    # Near zero both logarithms are large and opposite, and pi |x| / sin(pi x) is 1.
    near = x > r.pick(-(2.0**-30), -(2.0**-60))
    value = where((x > 0.0) | near, positive, reflected)
    return where(size == math.inf, size, value)


@function
def digamma(x: Expr) -> Expr:
    """digamma(1 - x) - pi / tan(pi x) for negative x, digamma(x + 1) - 1 / x below 1.

    Poles give NaN, but zeros give infinity of the opposite sign.
    """
    r = Real(x)
    one = r.c(1.0)
    negative, small = x < 0.0, x < one
    y = where(negative, one - x, where(small, x + one, x))
    logarithm = log.body(y)
    high, low = split(_DIGAMMA_ROOT, r.dtype)
    middle = r.polynomial(logarithm - one, _PSI_32 if r.single else _PSI_64)
    middle = (y - high - low) * middle
    inverse = one / y
    square = inverse * inverse
    series = r.polynomial(square, _PSI_STIRLING_32 if r.single else _PSI_STIRLING_64)
    far = logarithm - fma(square, series, inverse * 0.5)
    value = where(y < 8.0, middle, far)
    sine, cosine = sin_cos_pi(r, x)
    numerator = where(negative, cosine * math.pi, one)
    denominator = where(negative, sine, x)
    reflected = value - numerator / denominator
    pole = negative & (sine == 0.0)
    reflected = where(pole, math.nan, reflected)
    return where(small, reflected, value)
