"""Bessel functions of the first and second kind, J and Y, and Airy's Ai, of real numbers.

Near 0 they are series, far out waves whose amplitudes P and Q hardly change:

    J(x) = sqrt(2 / (pi x)) (P cos(x - phase) - Q sin(x - phase)),  Y with sin and cos in turn

All is computed in 64 bits: a phase of 32 would leave nothing of a number of a few millions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.types import F64
from graphc.ops.math.bessel import chebyshev, chebyshev_place, real, sides
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.value import element_of, functions

# Chebyshev coefficients: cosine sums over 90 points, in 45 digits.  J0(x), J1(x) / x,
# Y0(x) - 2/pi log(x) J0(x) and (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x over 0..8 in 2 (x/8)**2 - 1.
_EDGE = 8
_J0_NEAR = (
    0.31545594294978024,
    -0.008723442352852221,
    0.2651786132033368,
    -0.37009499387264977,
    0.15806710233209725,
    -0.034893769411408884,
    0.004819180069467605,
    -0.00046062616620627504,
    3.246032882100508e-05,
    -1.7619469077621507e-06,
    7.608163592418782e-08,
    -2.679253530557673e-09,
    7.848696314479465e-11,
    -1.9438346867370164e-12,
    4.125320595634374e-14,
    -7.588508125447546e-16,
)
_Y0_NEAR = (
    -0.06629222640656988,
    -0.2744743055297453,
    0.17903431407718265,
    0.26156734625504663,
    -0.17730201278114358,
    0.04719668959576339,
    -0.007287962479552079,
    0.0007531135932577742,
    -5.632079141056987e-05,
    3.206532537654801e-06,
    -1.44072332740187e-07,
    5.248794787330516e-09,
    -1.5837552541812015e-10,
    4.02633081830612e-12,
    -8.747341203310769e-14,
    1.6434898714919468e-15,
    -2.6977881152566837e-17,
)
_J1_NEAR = (
    0.16208969265131623,
    -0.1489751450676521,
    0.1609992623572097,
    -0.08268049176681791,
    0.022213639654966037,
    -0.003646940600769276,
    0.0004050337728354822,
    -3.255554866857259e-05,
    1.9858774049915165e-06,
    -9.521984756750436e-08,
    3.687133759097148e-09,
    -1.178026622695885e-10,
    3.160154580348003e-12,
    -7.221755239651773e-14,
    1.4232144003513942e-15,
    -2.4441972916190464e-17,
)
_Y1_NEAR = (
    0.005076026471483563,
    -0.01608717304766875,
    -0.09591204536083074,
    0.08445197259652346,
    -0.028328123944594365,
    0.005289897544167113,
    -0.0006414551451326356,
    5.505982873338744e-05,
    -3.53808001868935e-06,
    1.7707804556154404e-07,
    -7.11055004989928e-09,
    2.344337905911516e-10,
    -6.4651518414115946e-12,
    1.51429151205002e-13,
    -3.0511859694473254e-15,
    5.34668038572867e-17,
)
# P and x Q from 8 on, in 2 (8/x)**2 - 1.
_P0 = (
    1.9989206986950374,
    -0.0005365220468132117,
    3.0751847875194745e-06,
    -5.1705945376060975e-08,
    1.6306464635151382e-09,
    -7.86409137723707e-11,
    5.168262387349193e-12,
    -4.3045788699253914e-13,
    4.3265957431549404e-14,
    -5.069034095935236e-15,
    6.748072215733873e-16,
    -1.0011513723467786e-16,
)
_Q0 = (
    -0.24889367368539214,
    0.0005470815954089319,
    -5.9315987288485175e-06,
    1.4377965798375193e-07,
    -5.817532749493056e-09,
    3.376097523734991e-10,
    -2.565397936797308e-11,
    2.404916100281365e-12,
    -2.6690625482579414e-13,
    3.4041800321963686e-14,
    -4.87994410531204e-15,
    7.729703176242605e-16,
    -1.3348852171502517e-16,
    2.4865952389390515e-17,
)
_P1 = (
    2.0018060817200274,
    0.0008989898330859408,
    -3.987284300488908e-06,
    6.177633960644299e-08,
    -1.8718907491063067e-09,
    8.816898659582339e-11,
    -5.704863640395645e-12,
    4.699195515230542e-13,
    -4.6842237839904895e-14,
    5.452674896044717e-15,
    -7.221180842274018e-16,
    1.0667689114335412e-16,
)
_Q1 = (
    0.7484445931125652,
    -0.0007702178839325664,
    7.3108922063643636e-06,
    -1.676782510726674e-07,
    6.583354662120443e-09,
    -3.749090950541556e-10,
    2.8121750359748866e-11,
    -2.61145253946232e-12,
    2.8774212663332235e-13,
    -3.649001916061838e-14,
    5.206626366226707e-15,
    -8.215318025458595e-16,
    1.4141084390211833e-16,
)
# Ai(x) over -4..4 in x/4; with z = 2/3 |x|**(3/2), 2 sqrt(pi) x**(1/4) exp(z) Ai(x) from 4 on in
# 2 z(4)/z - 1, and P and z Q in 2 (z(4)/z)**2 - 1 below -4, where
# sqrt(pi) |x|**(1/4) Ai(x) = P cos(z - pi/4) + Q sin(z - pi/4).
_AIRY_EDGE = 4
_Z_EDGE = 16 / 3
_AI_NEAR = (
    0.06509076122455226,
    0.09439601807945978,
    -0.2398181243417839,
    0.06900545569582738,
    0.15465262172975722,
    -0.16163926232777537,
    0.04281378021236704,
    0.028911542674828466,
    -0.027546755168174036,
    0.00700160555775314,
    0.0022620764055913023,
    -0.0021852808430583384,
    0.0005316775980791098,
    9.792739054967832e-05,
    -0.0001009381853675059,
    2.3539940062029843e-05,
    2.6753769656817565e-06,
    -3.0606102084651644e-06,
    6.860495066144505e-07,
    4.968936931361923e-08,
    -6.569927472538063e-08,
    1.4196601560933446e-08,
    6.542818923223979e-10,
    -1.0518690031771204e-09,
    2.197182241849868e-10,
    6.194046214824015e-12,
    -1.3050654645505535e-11,
    2.6418164375184958e-12,
    4.088659087604871e-14,
    -1.2921374447667754e-13,
    2.540436787301888e-14,
    1.5582552188111634e-16,
    -1.0448923427545402e-15,
    1.9991828262773915e-16,
)
_AI_RIGHT = (
    1.987831294241683,
    -0.005951682172853521,
    0.0001274938119525643,
    -4.894874499654238e-06,
    2.6272119491152297e-07,
    -1.773298261745699e-08,
    1.42042295392101e-09,
    -1.302155351703022e-10,
    1.3330073810572014e-11,
    -1.4970901449937875e-12,
    1.8203436185566892e-13,
    -2.371883033299006e-14,
    3.2849509195621373e-15,
    -4.803859779328941e-16,
)
_AI_P = (
    1.9987417781485557,
    -0.0006216836584374116,
    7.181193774368645e-06,
    -2.316269813501758e-07,
    1.3216283888528755e-08,
    -1.0938736172758127e-09,
    1.1794620737908535e-10,
    -1.5518841909929856e-11,
    2.386927411492466e-12,
    -4.16552889201035e-13,
    8.071678110741467e-14,
    -1.708757321110567e-14,
    3.902945148540815e-15,
    -9.523976784907064e-16,
    2.4632810885752603e-16,
)
_AI_Q = (
    0.13764341112616002,
    -0.0006089151840832694,
    1.3174151014089972e-05,
    -6.014071912908298e-07,
    4.327537342298499e-08,
    -4.247731732954726e-09,
    5.232285376834493e-10,
    -7.672290975115024e-11,
    1.2923809452698712e-11,
    -2.43852975710829e-12,
    5.059047237872084e-13,
    -1.1378513792256329e-13,
    2.7441377308322258e-14,
    -7.03448211263258e-15,
    1.9032114367198917e-15,
    -5.403040541409308e-16,
    1.6016711026585234e-16,
    -4.9375274403528065e-17,
    1.5773435797781153e-17,
)


def _wide(name: str, x: ArrayLike) -> tuple[Any, Any]:
    """A real number in 64 bits, and the element type of the result."""
    x = real(name, x)
    return functions.astype(x, F64), element_of(x)[0]


def _amplitudes(x: Any, edge: float, p: tuple[float, ...], q: tuple[float, ...]) -> tuple[Any, Any]:
    place = chebyshev_place(edge / x, 1)
    return chebyshev(place, p), chebyshev(place, q) / x


def _turned(x: Any) -> tuple[Any, Any]:
    """sqrt(2) times the cosine and the sine of x - pi/4: of an infinite x, which has none, 0."""
    f, is_finite = functions, functions.isfinite(x)
    sine, cosine = (
        f.where(is_finite, wave(f.where(is_finite, x, 0.0)), 0.0) for wave in (f.sin, f.cos)
    )
    return cosine + sine, sine - cosine


def _j0(x: Any) -> Any:
    f, (inside, close, far) = functions, sides(x, _EDGE)
    p, q = _amplitudes(far, _EDGE, _P0, _Q0)
    cosine, sine = _turned(far)
    near = chebyshev(chebyshev_place(close, _EDGE), _J0_NEAR)
    return f.where(inside, near, (p * cosine - q * sine) / f.sqrt(math.pi * far))


def _j1(x: Any) -> Any:
    """Its phase is a quarter of a turn later."""
    f, (inside, close, far) = functions, sides(x, _EDGE)
    p, q = _amplitudes(far, _EDGE, _P1, _Q1)
    cosine, sine = _turned(far)
    near = close * chebyshev(chebyshev_place(close, _EDGE), _J1_NEAR)
    outer = (p * sine + q * cosine) / f.sqrt(math.pi * far)
    return f.where(inside, near, f.sign(x) * outer)


def j0(x: ArrayLike) -> Any:
    """The Bessel function of the first kind of order 0."""
    x, element = _wide("j0", x)
    return functions.astype(_j0(x), element)


def j1(x: ArrayLike) -> Any:
    """The Bessel function of the first kind of order 1."""
    x, element = _wide("j1", x)
    return functions.astype(_j1(x), element)


def _second(x: Any, made: Any) -> Any:
    """A Y: minus infinity at 0, NaN below."""
    f = functions
    return f.where(f.equal(x, 0), -np.inf, f.where(x < 0, np.nan, made))


def y0(x: ArrayLike) -> Any:
    """The Bessel function of the second kind of order 0."""
    f, (given, element) = functions, _wide("y0", x)
    inside, close, far = sides(f.where(given <= 0, 1.0, given), _EDGE)
    p, q = _amplitudes(far, _EDGE, _P0, _Q0)
    cosine, sine = _turned(far)
    series = chebyshev(chebyshev_place(close, _EDGE), _Y0_NEAR)
    near = series + 2 / math.pi * f.log(close) * _j0(close)
    made = f.where(inside, near, (p * sine + q * cosine) / f.sqrt(math.pi * far))
    return f.astype(_second(given, made), element)


def y1(x: ArrayLike) -> Any:
    """The Bessel function of the second kind of order 1."""
    f, (given, element) = functions, _wide("y1", x)
    inside, close, far = sides(f.where(given <= 0, 1.0, given), _EDGE)
    p, q = _amplitudes(far, _EDGE, _P1, _Q1)
    cosine, sine = _turned(far)
    series = close * chebyshev(chebyshev_place(close, _EDGE), _Y1_NEAR)
    near = series + 2 / math.pi * (f.log(close) * _j1(close) - 1 / close)
    made = f.where(inside, near, (q * sine - p * cosine) / f.sqrt(math.pi * far))
    return f.astype(_second(given, made), element)


def airy_ai(x: ArrayLike) -> Any:
    """Airy's function Ai: it falls to the right of 0, and waves to its left."""
    f, (given, element) = functions, _wide("airy_ai", x)
    inside, close, far = sides(given, _AIRY_EDGE)
    z = 2 / 3 * far * f.sqrt(far)
    root = math.sqrt(math.pi) * f.sqrt(f.sqrt(far))
    right = chebyshev(2 * _Z_EDGE / z - 1, _AI_RIGHT) * f.exp(-z) / (2 * root)
    p, q = _amplitudes(z, _Z_EDGE, _AI_P, _AI_Q)
    cosine, sine = _turned(z)
    left = (p * cosine + q * sine) / (math.sqrt(2) * root)
    outer = f.where(given > 0, right, left)
    made = f.where(inside, chebyshev(close / _AIRY_EDGE, _AI_NEAR), outer)
    return f.astype(made, element)
