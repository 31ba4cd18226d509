"""erf, erfc, erfinv."""

from __future__ import annotations

import math

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, sqrt, where
from graphc.loops.vecmath.exponential import (
    exp_lacking,
    exp_lower_bound,
    exp_parts,
    scale_once,
    scale_twice,
)
from graphc.loops.vecmath.logarithm import natural_log, reduce
from graphc.loops.vecmath.vocabulary import Real, function

# erf(x) / x - 1 in x**2 for |x| <= 0.92 and 1; errors of erf 2**-26.0 and 2**-55.7
_ERF_32 = (
    0.12837915122509003,
    -0.3761250078678131,
    0.11281877011060715,
    -0.026768578216433525,
    0.004995847586542368,
    -0.0006003753514960408,
)
_ERF_64 = (
    0.12837916709551256,
    -0.37612638903183343,
    0.11283791670936949,
    -0.026866170641958426,
    0.005223977596726144,
    -0.0008548325484328236,
    0.00012055280470011091,
    -1.4924464998823216e-05,
    1.6444141007850195e-06,
    -1.6183905126199234e-07,
    1.3616271816480594e-08,
    -7.606912784116671e-10,
)
# -log(erfc(x)) / x - 1 to where erf(x) rounds to 1; error of erf 2**-27.8
_LOG_ERFC_32 = (
    0.12837916612625122,
    0.6366195678710938,
    0.10277630388736725,
    -0.019147826358675957,
    -0.00016948443953879178,
    0.0016756390687078238,
    -0.0006373313372023404,
    0.00011884852574439719,
    -9.386046258441638e-06,
)
# log(erfc(x)) from 1 to there; error of erf 2**-56.8
_LOG_ERFC_64 = (
    -5.029938425806693e-07,
    -1.1283740881350004,
    -0.6366436338903345,
    -0.102703424022489,
    0.018990150234233217,
    0.0004106667269305718,
    -0.00191598343091979,
    0.0007706754142724265,
    -0.0001350707323284928,
    -2.0256478544715794e-05,
    2.2818480968586763e-05,
    -8.665917051970451e-06,
    2.135377385282839e-06,
    -3.732479998231364e-07,
    4.641552017828574e-08,
    -3.933576996678081e-09,
    2.0445731835493602e-10,
    -4.9275926383544755e-12,
)

# (x + k) exp(x**2) erfc(x) in (x - k) / (x + k) for x >= 0.45, k = 2.25 and 3.125; errors
# 2**-25.8 and 2**-55.5
_ERFC_32 = (
    1.0398926734924316,
    -0.7519590258598328,
    0.37151744961738586,
    -0.1012100800871849,
    -0.0036102565936744213,
    0.011654408648610115,
    -0.000801835092715919,
    -0.0016126011032611132,
    9.620138735044748e-05,
    0.00023058339138515294,
)
_ERFC_64 = (
    1.077777200638585,
    -0.8988621140851463,
    0.6189338554379652,
    -0.3433576147584025,
    0.1454814205723984,
    -0.04090900786207153,
    0.0033575664295306894,
    0.0028286883139901366,
    -0.0010904569600881438,
    -0.0001020705131968988,
    0.0001540298355186121,
    -4.4935768461937195e-06,
    -2.176115278836537e-05,
    1.5858817664555515e-06,
    3.444028426067403e-06,
    -1.7437000408880096e-07,
    -5.91786426185173e-07,
    -2.091850144641683e-08,
    9.379282971997549e-08,
    1.814227049172315e-08,
    -9.013573436812906e-09,
    -4.551503449005829e-09,
)
# erfinv(x) / x with w = -log(1 - x**2), in w - 1 for w < 5; error 2**-25.8
_ERFINV_NEAR_32 = (
    1.1273744106292725,
    0.24783289432525635,
    0.004250642843544483,
    -0.002376442775130272,
    0.00010028128599515185,
    3.82289981644135e-05,
    -4.401564638101263e-06,
    -5.247038643574342e-07,
    1.419136026470369e-07,
    -8.791197991797617e-09,
)
# the same in sqrt(w) - 3 beyond; error 2**-25.70
_ERFINV_FAR_32 = (
    2.832976818084717,
    1.001674771308899,
    0.009444303810596466,
    -0.007634258829057217,
    0.00569500494748354,
    -0.003611010266467929,
    0.0014651190722361207,
    -3.208752241334878e-05,
    -0.00029438926139846444,
    9.959401359083131e-05,
)
# f64: in w - 3.125 for w < 6.25, sqrt(w) - 3.25 for w < 16, sqrt(w) - 5; errors 2**-54.4,
# 2**-55.0, 2**-55.0
ERFINV_NEAR_64 = (
    1.6536545626831027,
    0.24015818242558826,
    -0.006033670871427754,
    -0.0007407025341539536,
    0.00018673420802425714,
    -1.388252339579381e-05,
    -1.3654691844359703e-06,
    4.2347881907958614e-07,
    -2.9070382773936797e-08,
    -4.112661978758872e-09,
    1.0512183979640348e-09,
    -5.41423896935631e-11,
    -1.2976958152556e-11,
    2.6303545312837532e-12,
    -8.117011025492646e-14,
    -3.9989776166959556e-14,
    6.5947025693842625e-15,
    -4.286539310424028e-17,
    -1.3003924346173351e-16,
    1.5759734307034586e-17,
    1.1444179646488937e-18,
    -3.5754708399406575e-19,
    -1.0091806512084589e-21,
    3.3756859147578095e-21,
)
ERFINV_MIDDLE_64 = (
    3.0838856104922208,
    1.005258967694165,
    0.005370914553524192,
    -0.0037512085081856756,
    0.0024914420997583144,
    -0.0016882755366370706,
    0.0009532893007676023,
    -0.0003550377973656135,
    2.4031982403699545e-05,
    6.828699457161767e-05,
    -4.732378330838903e-05,
    1.2465567510722655e-05,
    2.9450591340599743e-06,
    -3.987136048439131e-06,
    1.4505262579164454e-06,
    -2.5365142024753927e-08,
    -1.9875311585817273e-07,
    1.296488359385127e-07,
    -5.984870522227484e-08,
    -1.460393235549794e-08,
    2.146231014175765e-08,
)
ERFINV_FAR_64 = (
    4.849906401408584,
    1.0103004648645468,
    -0.00013871931839212743,
    -0.0002150301199019831,
    7.599527839242423e-05,
    -1.9681769629984197e-05,
    4.526049700994444e-06,
    -9.93036281574802e-07,
    2.290664250696783e-07,
    -6.753273554458529e-08,
    2.898159612037929e-08,
    -1.5300160030784677e-08,
    7.881079882420429e-09,
    -3.4221470298587622e-09,
    1.2596975245429014e-09,
    -4.659334060585382e-10,
    9.838555429151044e-11,
    4.958843547900507e-11,
    -2.657060659780562e-11,
)


def _erf_near(r: Real, x: Expr) -> Expr:
    return fma(x, r.polynomial(x * x, _ERF_32 if r.single else _ERF_64), x)


@function
def erf(x: Expr) -> Expr:
    """1 - exp(Q(|x|)) where erfc(x) = exp(Q(x)); near zero, of f64, x + x P(x**2) instead."""
    r = Real(x)
    size = abs(x)
    if r.single:
        bounded = r.at_most(size, 3.95)
        exponent = fma(-bounded, r.polynomial(bounded, _LOG_ERFC_32), -bounded)
        return r.with_sign(exp_lacking(r, exponent), x)
    near, is_far = _erf_near(r, size), size >= 1.0  # NaN is not
    exponent = r.polynomial(r.at_most(size, 5.95), _LOG_ERFC_64)
    far = 1.0 - scale_once(r, *exp_parts(r, exponent, 0))
    return r.with_sign(where(is_far, far, near), x)


@function
def erfc(x: Expr) -> Expr:
    """exp(-x**2) P(t) / (x + k) for x >= 1/2, t = (x - k) / (x + k); 2 - erfc(-x) for negative x.

    x**2 is split into its rounded value and the rest, which would cost most of the digits. Near
    zero 1 - erf(x) is more accurate.
    """
    r = Real(x)
    size = r.at_most(abs(x), 10.6 if r.single else 28.0)
    square, rest = r.two_product(size, size)
    k = r.pick(2.25, 3.125)
    total = size + k
    factor = r.polynomial((size - k) / total, _ERFC_32 if r.single else _ERFC_64)
    exponent = r.at_least(-square, exp_lower_bound(r) - 60.0)
    p, bits = exp_parts(r, exponent, 2 * r.format.bias, -rest)
    p = p * factor / total
    value = scale_twice(r, p, bits)
    value = where(x < 0.0, 2.0 - value, value)
    return where(size < 0.5, r.c(1.0) - _erf_near(r, x), value)


@function
def erfinv(x: Expr) -> Expr:
    """x P(w) with w = -log((1 - x) (1 + x)), for large w in sqrt(w)."""
    r = Real(x)
    size = abs(x)
    e, f = reduce(r, (1.0 - size) * (1.0 + size))
    w = -natural_log(r, e, f)
    root = sqrt(w)
    if r.single:
        near = r.polynomial(w - 1.0, _ERFINV_NEAR_32)
        far = r.polynomial(root - 3.0, _ERFINV_FAR_32)
        factor = where(w < 5.0, near, far)
    else:
        near = r.polynomial(w - 3.125, ERFINV_NEAR_64)
        middle = r.polynomial(root - 3.25, ERFINV_MIDDLE_64)
        far = r.polynomial(root - 5.0, ERFINV_FAR_64)
        factor = where(w < 6.25, near, where(w < 16.0, middle, far))
    value = x * factor
    value = where(size == 1.0, r.with_sign(r.c(math.inf), x), value)
    return where(size > 1.0, math.nan, value)
