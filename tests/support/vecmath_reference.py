"""What the vector math functions are compared with: sample points, reference values, errors in ulp.

f32 results are compared with float64 NumPy; where NumPy has no such function, with our own f64 one,
which in turn is compared, as every f64 function, with mpmath at 150 bits.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from functools import cache

import llvmlite.binding as llvm
import mpmath as mp
import numpy as np

from graphc.codegen.llvm import kernel as llvm_emitter
from graphc.codegen.llvm import target as targets
from graphc.codegen.numba import route as numba_route
from graphc.ir.types import F32, F64, DType
from graphc.loops.nest import Buffer, For, Kernel, Scalars, postorder
from graphc.loops.vecmath import FUNCTIONS

BLOCK = 1024
Pairs = tuple[np.ndarray, np.ndarray]  # a value as the sum of two float64
Mp = Callable[..., "mp.mpf"]
Kind = type[np.float32] | type[np.float64]


# ------------------------------------------------------------------------------------ running


def arity(name: str) -> int:
    return len(inspect.signature(FUNCTIONS[name]).parameters)


def operations(name: str, dtype: DType) -> int:
    """Instructions of the expression, literals and reinterpretations not counted."""
    scalars = Scalars()
    inputs = [scalars.make("reg", dtype, (), (k, 0, 0)) for k in range(arity(name))]
    made = postorder([FUNCTIONS[name](*inputs)])
    return sum(e.op not in ("const", "reg", "bitcast") for e in made)


def kernel(name: str, dtype: DType) -> Kernel:
    """Blocks of BLOCK elements: a_n[i] = name(a_0[i], ...)."""
    scalars, count = Scalars(), arity(name)
    modes = ["in"] * count + ["out"]
    buffers = tuple(Buffer(k, dtype, 1 << 40, mode) for k, mode in enumerate(modes))
    with scalars.loop(1 << 30, "parallel") as block, scalars.loop(BLOCK, "vector") as lane:
        index = scalars.affine([(block, BLOCK), (lane, 1)])
        values = [scalars.load(buffer, index) for buffer in buffers[:-1]]
        scalars.store(buffers[-1], index, scalars.call(name, *values))
    assert isinstance(scalars.body[0], For)
    return Kernel(f"each_{name}_{dtype}", buffers, 0, scalars.body, units=1 << 30)


@cache
def optimised() -> llvm.ModuleRef:
    """Every function in both types, compiled by the product's emitter."""
    kernels = [kernel(name, dtype) for name in FUNCTIONS for dtype in (F32, F64)]
    text = llvm_emitter.emit_module(kernels, targets.host())
    return targets.compiled([text], targets.host())


@cache
def _linked() -> tuple[llvm.LLJIT, llvm.ResourceTracker]:
    """The loaded code. That it links shows that nothing calls the C library."""
    builder = llvm.JITLibraryBuilder()
    builder.add_object_img(targets.machine(targets.host()).emit_object(optimised()))
    for name in FUNCTIONS:
        builder.export_symbol(f"each_{name}_f32").export_symbol(f"each_{name}_f64")
    compiler = llvm.create_lljit_compiler(use_jit_link=True)
    return compiler, builder.link(compiler, "vecmath")


def run(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The function over float arrays of one type and length."""
    dtype = F32 if arrays[0].dtype == np.float32 else F64
    return call(_linked()[1][f"each_{name}_{dtype}"], arrays)


def call(address: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The output of the kernel at an address."""
    pointer, word = ctypes.c_void_p, ctypes.c_int64
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, word, word, word)(address)
    size = arrays[0].size
    blocks = -(-size // BLOCK)
    padded = [np.pad(a, (0, blocks * BLOCK - size)) for a in arrays]
    out = np.empty_like(padded[0])
    table = (pointer * (len(padded) + 1))(*[a.ctypes.data for a in padded], out.ctypes.data)
    assert entry(ctypes.cast(table, pointer), None, 0, blocks, 0) == 0
    return out[:size]


def run_by_numba(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The same from the readable source, through Numba."""
    made = kernel(name, F32 if arrays[0].dtype == np.float32 else F64)
    builder = llvm.JITLibraryBuilder().add_object_img(
        numba_route.emitted(numba_route.kernel_module(made))
    )
    compiler = llvm.create_lljit_compiler(use_jit_link=True)
    library = builder.export_symbol(made.name).link(compiler, made.name)
    return call(library[made.name], arrays)


# ------------------------------------------------------------------------------------ points


def special_points(kind: Kind) -> np.ndarray:
    limits = np.finfo(kind)
    numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 1e10, 88.7, 103.9, 127.9, 709.7, 745.1]
    numbers += [np.inf, *map(float, (limits.max, limits.tiny, limits.smallest_subnormal))]
    numbers += [2.0**63, 2.0**24 + 2]
    numbers += [float(np.nextafter(kind(1), kind(k))) for k in (0, 2)] + [1 / 3, 1e-30]
    return np.array([*numbers, *(-v for v in numbers), np.nan], kind)


def points(kind: Kind, count: int, seed: int) -> np.ndarray:
    """Random bit patterns, interesting linear ranges, binades around 1, values close to 1."""
    random = np.random.default_rng(seed)
    words = np.dtype(f"u{np.dtype(kind).itemsize}")
    share = count // 4
    sign = random.choice(np.array([-1, 1], kind), (2, share))
    exponents = random.uniform(-52, 0, share)
    every = [
        random.integers(0, np.iinfo(words).max, share, dtype=words, endpoint=True).view(kind),
        (random.uniform(-1, 1, share) * random.choice([1, 2, 10, 100, 700], share)).astype(kind),
        np.exp2(random.uniform(-30, 12, share)).astype(kind) * sign[0],
        (1 + random.choice([-1, 1], share) * np.exp2(exponents)).astype(kind) * sign[1],
    ]
    joined = np.concatenate(every)
    random.shuffle(joined)
    return joined


def edges(name: str, kind: type, count: int, seed: int) -> list[np.ndarray]:
    """Arguments of exp, pow, sin, cos and tan for results of any magnitude, both ends of the range
    included; of the last three any magnitude, and values close to multiples of pi / 4."""
    random, limits = np.random.default_rng(seed), np.finfo(kind)
    magnitudes = random.uniform(-limits.maxexp - limits.nmant, limits.maxexp, count)
    if name == "exp":
        return [(magnitudes * np.log(2)).astype(kind)]
    if name == "pow":
        x = points(kind, count, seed)
        with np.errstate(all="ignore"):
            powers = magnitudes[: x.size] / np.log2(np.abs(x.astype(np.float64)))
            return [x, powers.astype(kind)]
    quarters = np.rint(np.exp2(random.uniform(0, 20, count // 2))) * (np.pi / 4)
    far: np.ndarray = np.exp2(random.uniform(-1, limits.maxexp, count // 2)).astype(kind)
    return [np.concatenate([quarters.astype(kind), far])]


# ------------------------------------------------------------------------------------ references


def _real(x: mp.mpf) -> mp.mpf:
    return x if isinstance(x, mp.mpf) else mp.mpf("nan")


def _softplus(x: mp.mpf) -> mp.mpf:
    return max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x)))


def _logaddexp(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    return max(x, y) + mp.log1p(mp.exp(-abs(x - y)))


def _power(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    return mp.mpf("nan") if x < 0 and y != mp.floor(y) else mp.power(x, y)


def _inside(function: Mp, low: float, high: float) -> Mp:
    """NaN outside the domain."""
    return lambda x: function(x) if low <= x <= high else mp.mpf("nan")


MPMATH: dict[str, Mp] = {
    "acos": _inside(mp.acos, -1, 1),
    "acosh": _inside(mp.acosh, 1, mp.inf),
    "asin": _inside(mp.asin, -1, 1),
    "asinh": mp.asinh,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "atanh": _inside(mp.atanh, -1, 1),
    "cbrt": lambda x: mp.cbrt(abs(x)) * mp.sign(x),
    "cos": mp.cos,
    "cosh": mp.cosh,
    "digamma": mp.digamma,
    "erf": mp.erf,
    "erfc": lambda x: mp.erfc(max(min(x, mp.mpf(40)), mp.mpf(-40))),
    "erfinv": _inside(mp.erfinv, -1, 1),
    "exp": mp.exp,
    "exp2": lambda x: mp.power(2, x),
    "exp_below_zero": mp.exp,
    "expm1": mp.expm1,
    "hypot": mp.hypot,
    "lgamma": lambda x: mp.re(mp.loggamma(x)),
    "log": _inside(mp.log, 0, mp.inf),
    "log10": _inside(mp.log10, 0, mp.inf),
    "log1p": _inside(mp.log1p, -1, mp.inf),
    "log2": _inside(lambda x: mp.log(x, 2), 0, mp.inf),
    "log_sigmoid": lambda x: -_softplus(-x),
    "logaddexp": _logaddexp,
    "pow": _power,
    "rsqrt": lambda x: 1 / mp.sqrt(x) if x > 0 else mp.mpf("nan"),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "sin": mp.sin,
    "sinc": mp.sincpi,
    "sinh": mp.sinh,
    "softplus": _softplus,
    "tan": mp.tan,
    "tanh": mp.tanh,
}
NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp_below_zero": np.exp,
    "expm1": np.expm1,
    "hypot": np.hypot,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "log_sigmoid": lambda x: -np.logaddexp(0.0, -x),
    "logaddexp": np.logaddexp,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "tan": np.tan,
    "tanh": np.tanh,
}


def reference(name: str, arrays: Sequence[np.ndarray]) -> Pairs:
    """The value as high + low: NumPy or our f64 function for f32, mpmath for f64."""
    if arrays[0].dtype == np.float32:
        with np.errstate(all="ignore"):
            wide = [a.astype(np.float64) for a in arrays]
            high = NUMPY[name](*wide) if name in NUMPY else run(name, *wide)
        return high, np.zeros_like(high)
    with mp.workprec(150):
        exact = [_value(MPMATH[name], xs) for xs in zip(*(a.tolist() for a in arrays))]
        high = np.array([_float(v) for v in exact])
        return high, np.array([_float(v - mp.mpf(h)) for v, h in zip(exact, high.tolist())])


def _value(function: Mp, numbers: tuple[float, ...]) -> mp.mpf:
    try:
        return _real(function(*map(mp.mpf, numbers)))
    except (ValueError, ZeroDivisionError):
        return mp.mpf("nan")  # a pole or outside the domain


def _float(value: mp.mpf) -> float:
    return (
        float(value)
        if abs(value) < mp.mpf(2) ** 1024 or mp.isnan(value)
        else float(mp.sign(value) * mp.inf)
    )


# ------------------------------------------------------------------------------------ errors


def ulp_errors(got: np.ndarray, exact: Pairs, scale: np.ndarray | float = 0.0) -> np.ndarray:
    """|got - exact| in units of the last place of the exact value, or of `scale` if larger.

    An exact value that rounds to infinity counts as infinity; a wrong NaN or infinity is an
    infinite error.
    """
    limits = np.finfo(got.dtype)
    high, low = exact
    with np.errstate(all="ignore"):
        rounded = high.astype(got.dtype)
        reach = np.maximum(np.abs(high), scale)
        exponent = np.frexp(np.where(np.isfinite(reach) & (reach > 0), reach, 1.0))[1] - 1
        unit = np.maximum(exponent, limits.minexp) - limits.nmant
        error = np.abs(np.ldexp((got.astype(np.float64) - high) - low, -unit))
        same = (got == rounded) & ~np.isfinite(rounded) | np.isnan(got) & np.isnan(high)
        error = np.where(same, 0.0, error)
    return np.where(np.isnan(error), np.inf, error)
