"""erf and its relatives."""

from __future__ import annotations

from graphc.codegen.loops import Expr, Scalars
from graphc.codegen.vecmath_base import Real
from graphc.codegen.vecmath_exp import exp_parts

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
# log(erfc(x)) from there to where erf(x) rounds to 1; errors of erf 2**-28.8 and 2**-56.8
_LOG_ERFC_32 = (
    -0.00019572247401811182,
    -1.1276754140853882,
    -0.6371826529502869,
    -0.10393117368221283,
    0.022226670756936073,
    -0.003043136326596141,
    0.00019592615717556328,
)
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


def erf(b: Scalars, x: Expr) -> Expr:
    """x + x P(x**2) near zero, 1 - exp(Q(|x|)) beyond, where erfc(x) = exp(Q(x)) is small."""
    r = Real(b, x.dtype)
    size = r.abs(x)
    tail = r.polynomial(r.mul(x, x), _ERF_32 if r.single else _ERF_64)
    near = r.fma(size, tail, size)
    bounded = r.at_most(size, 3.95 if r.single else 5.95)
    exponent = r.polynomial(bounded, _LOG_ERFC_32 if r.single else _LOG_ERFC_64)
    p, bits = exp_parts(r, exponent, r.format.bias)
    small = r.mul(p, r.float(r.shift_left(bits, r.format.mantissa)))
    far = r.sub(r.c(1.0), small)
    return r.with_sign(r.where(r.lt(size, r.pick(0.92, 1.0)), near, far), x)
