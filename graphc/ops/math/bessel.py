"""Modified Bessel functions of orders 0 and 1, of real numbers: I, which grows, and K."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.types import F64
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.families import require
from graphc.ops.record.value import element_of, functions, public

# Chebyshev coefficients of exp(-x) I0(x) and exp(-x) I1(x) / x over 0..8 in x/4 - 1, and of
# exp(-x) sqrt(x) I0(x) and exp(-x) sqrt(x) I1(x) from 8 on in 16/x - 1: cosine sums over 80 points,
# in 40 digits and more.
_EDGE = 8
_I0_NEAR = (
    0.6767952744094761,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
)
_I0_FAR = (
    0.8044904110141088,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
)
_I1_NEAR = (
    0.25258718644363365,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
)
_I1_FAR = (
    0.7785762350182801,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
)


# K0(x) + log(x/2) I0(x) and x (K1(x) - log(x/2) I1(x)) over 0..2 in x**2/2 - 1, and exp(x) sqrt(x)
# times K0(x) and K1(x) from 2 on in 4/x - 1.
_K_EDGE = 2
_K0_NEAR = (
    -0.5353273932339028,
    0.3442898999246285,
    0.0359799365153615,
    0.001264615411446926,
    2.286212103119452e-05,
    2.5347910790261494e-07,
    1.904516377220209e-09,
    1.0349695257633625e-11,
    4.2598161427910826e-14,
    1.3744654358807508e-16,
)
_K0_FAR = (
    2.4403030820659555,
    -0.0314481013119645,
    0.0015698838857300533,
    -0.00012849549581627802,
    1.39498137188765e-05,
    -1.8317555227191195e-06,
    2.766813639445015e-07,
    -4.660489897687948e-08,
    8.574034017414225e-09,
    -1.6975345093890614e-09,
    3.5773972814003283e-10,
    -7.957489244477396e-11,
    1.8559491149549264e-11,
    -4.514597883374519e-12,
    1.1403405882073441e-12,
    -2.9800969231481784e-13,
    8.032890775068375e-14,
    -2.2275133267462965e-14,
    6.340076476276646e-15,
    -1.848593377920907e-15,
    5.5120559994043335e-16,
    -1.6782311257549006e-16,
)
_K1_NEAR = (
    1.5253002273389478,
    -0.3531559607765449,
    -0.12261118082265715,
    -0.006975723859639864,
    -0.0001730288957513052,
    -2.4334061415659684e-06,
    -2.213387630734726e-08,
    -1.4114883926335278e-10,
    -6.666901694199329e-13,
    -2.427449850519366e-15,
)
_K1_FAR = (
    2.7206261904844427,
    0.10392373657681724,
    -0.002857816859622779,
    0.00019521551847135162,
    -1.936197974166083e-05,
    2.406484947837217e-06,
    -3.5019606030878126e-07,
    5.7410841254500495e-08,
    -1.0345762465678097e-08,
    2.0150497551970347e-09,
    -4.1903547593419254e-10,
    9.218315187605315e-11,
    -2.129967838427791e-11,
    5.139639673482343e-12,
    -1.2891739609498229e-12,
    3.348419666052243e-13,
    -8.976705182010146e-14,
    2.4771544242195988e-14,
    -7.0198370892147685e-15,
    2.038703166239861e-15,
    -6.057047270643018e-16,
    1.8380935752430455e-16,
)


def chebyshev(x: ArrayLike, coefficients: tuple[float, ...]) -> Any:
    """Half the first coefficient, and the others times T1(x), T2(x), ... by Clenshaw's rule."""
    f, (first, *rest) = functions, coefficients
    above: Any = 0.0
    here = f.full_like(x, 0.0)
    for c in reversed(rest):
        here, above = f.subtract(f.add(f.multiply(f.multiply(x, 2), here), c), above), here
    return f.subtract(f.add(f.multiply(x, here), first / 2), above)


def sides(x: Any, edge: float) -> tuple[Any, Any, Any]:
    """Whether |x| is at most the edge, x where it is, and |x| where it is not: else the edge.

    Chosen, as minimum and maximum would share the gradient with the edge where both are equal.
    """
    f, size = functions, functions.absolute(x)
    inside = f.less_equal(size, edge)
    return inside, f.where(inside, x, edge), f.where(inside, edge, size)


def _scaled(size: Any, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Any, Any, Any]:
    """Whether a number from 0 on is below the edge, its series there and that from there on."""
    f, (inside, close, wide) = functions, sides(size, _EDGE)
    inner = chebyshev(f.subtract(f.divide(close, _EDGE / 2), 1), near)
    outer = f.divide(chebyshev(f.subtract(f.divide(2.0 * _EDGE, wide), 1), far), f.sqrt(wide))
    return inside, inner, outer


def real(name: str, x: ArrayLike) -> Any:
    element = element_of(x)[0]
    require(not element.is_complex, f"{name} takes real numbers")
    return functions.astype(x, element if element.is_float else F64)


def _even(size: Any) -> Any:
    return functions.where(*_scaled(size, _I0_NEAR, _I0_FAR))


def _odd(x: Any) -> Any:
    f = functions
    inside, near, far = _scaled(f.absolute(x), _I1_NEAR, _I1_FAR)
    return f.where(inside, f.multiply(x, near), f.multiply(f.sign(x), far))


@public(np.i0)
def i0(x: ArrayLike) -> Any:
    """The modified Bessel function of the first kind of order 0, of real numbers."""
    size = functions.absolute(real("i0", x))
    return functions.multiply(functions.exp(size), _even(size))


def i0e(x: ArrayLike) -> Any:
    """exp(-|x|) I0(x)."""
    return _even(functions.absolute(real("i0e", x)))


def i1(x: ArrayLike) -> Any:
    """The modified Bessel function of the first kind of order 1, of real numbers."""
    x = real("i1", x)
    return functions.multiply(functions.exp(functions.absolute(x)), _odd(x))


def i1e(x: ArrayLike) -> Any:
    """exp(-|x|) I1(x)."""
    return _odd(real("i1e", x))


def _k(name: str, x: ArrayLike, scaled: bool, near: Any, far: tuple[float, ...]) -> Any:
    """A K of a positive number, with exp(x) where it is scaled; 0 gives infinity, less NaN."""
    f, x = functions, real(name, x)
    inside, close, wide = sides(f.where(f.less_equal(x, 0), 1.0, x), _K_EDGE)
    inner = near(close, chebyshev_place(close, _K_EDGE), f.log(close / 2))
    outer = f.divide(chebyshev(2 * _K_EDGE / wide - 1, far), f.sqrt(wide))
    inner = f.multiply(inner, f.exp(close)) if scaled else inner
    outer = outer if scaled else f.multiply(outer, f.exp(-wide))
    made = f.where(inside, inner, outer)
    return f.where(f.equal(x, 0), np.inf, f.where(f.less(x, 0), np.nan, made))


def chebyshev_place(x: Any, edge: float) -> Any:
    """Where an even function's series is read: 2 (x/edge)**2 - 1."""
    return 2 * functions.square(x / edge) - 1


def _k0_near(x: Any, place: Any, log: Any) -> Any:
    return chebyshev(place, _K0_NEAR) - log * i0(x)


def _k1_near(x: Any, place: Any, log: Any) -> Any:
    return chebyshev(place, _K1_NEAR) / x + log * i1(x)


def k0(x: ArrayLike) -> Any:
    """The modified Bessel function of the second kind of order 0."""
    return _k("k0", x, False, _k0_near, _K0_FAR)


def k0e(x: ArrayLike) -> Any:
    """exp(x) K0(x)."""
    return _k("k0e", x, True, _k0_near, _K0_FAR)


def k1(x: ArrayLike) -> Any:
    """The modified Bessel function of the second kind of order 1."""
    return _k("k1", x, False, _k1_near, _K1_FAR)


def k1e(x: ArrayLike) -> Any:
    """exp(x) K1(x)."""
    return _k("k1e", x, True, _k1_near, _K1_FAR)
