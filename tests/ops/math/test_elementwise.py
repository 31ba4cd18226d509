"""Element-wise ops: expression against reference on every sample, result dtypes against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from expand import traced
from expr_numpy import Operands, evaluate

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.op import OPS, Scalar
from graphc.ir.types import DTYPES, dtype
from graphc.ops.record.value import NUMPY, PUBLIC, literal_type

SCALAR = [name for name, op in OPS.items() if isinstance(op.lower, Scalar)]
RTOL = {"f16": 1e-3, "bf16": 8e-3, "f32": 5e-7, "f64": 4e-15, "c64": 2e-6, "c128": 2e-14}


def run_expression(op, operands, attrs):
    builder = Operands()
    arrays = [np.asarray(o) for o in operands]
    exprs = [builder.operand(a, dtype(a.dtype), op.lower.stored) for a in arrays]
    made = op.lower.expression(*exprs, **attrs.values_dict)
    result = op.result_type(tuple(map(literal_type, arrays)), attrs)
    value = evaluate(builder, made)
    return np.broadcast_to(value, result.shape).astype(result.dtype.numpy), result


def close(got, want, element, tolerance):
    assert got.dtype == want.dtype
    if element.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if element.is_complex else np.float64
    rtol = RTOL[element.name] * tolerance
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=rtol * 0.1)


@pytest.mark.parametrize("name", SCALAR)
def test_expression_equals_reference(name):
    op = OPS[name]
    samples = op.samples()
    assert any(s.good for s in samples)
    for sample in samples:
        if sample.good:
            attrs = op.coerce(sample.attrs)
            got, result = run_expression(op, sample.operands, attrs)
            with np.errstate(all="ignore"):
                want = op.reference(*map(np.asarray, sample.operands), **attrs.values_dict)
                want = np.asarray(want).astype(result.dtype.numpy)
            assert want.shape == result.shape
            close(got, want, result.dtype, sample.tolerance)


# ---------------------------------------------------------------------------------------- promotion

NAMES = [n for n in DTYPES if n != "bf16"]
# ldexp's operands do not promote together.
UFUNCS = [f for f in NUMPY if isinstance(f, np.ufunc) and not f.signature and f is not np.ldexp]
PROMOTED = sorted(UFUNCS, key=lambda f: f.__name__)
# NumPy orders complex numbers; graphc, like the array API, does not.
UNORDERED = {
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.maximum,
    np.minimum,
    np.fmax,
    np.fmin,
    np.sign,
}
# No complex form, or no f16 form, on purpose.
NARROWER = {np.rint, np.nextafter, np.spacing}


def result_of(function, operands):
    try:
        with np.errstate(all="ignore"):
            made = function(*operands)
    except (TypeError, GraphError, OverflowError):
        return None
    return (
        [np.asarray(m).dtype for m in made] if isinstance(made, tuple) else np.asarray(made).dtype
    )


def check(function, operands):
    want = result_of(function, operands)
    got = result_of(NUMPY[function], operands)
    skipped = function in UNORDERED | NARROWER and got is None
    if not skipped:
        kinds = [getattr(o, "dtype", o) for o in operands]
        assert got == want, (function.__name__, kinds)


@pytest.mark.parametrize("function", PROMOTED, ids=lambda f: f.__name__)
def test_result_dtype_is_numpys(function):
    ones = [np.ones(2, DTYPES[n].numpy) for n in NAMES]
    for operands in itertools.product(ones, repeat=function.nin):
        check(function, operands)
    if function.nin == 2:
        for array, number in itertools.product(ones, (True, 2, 2.0, 2j)):
            check(function, (array, number))
            check(function, (number, array))


def test_where_promotes_like_numpy():
    ones = [np.ones(2, DTYPES[n].numpy) for n in NAMES]
    for x, y in itertools.product(ones, ones):
        assert PUBLIC["where"](True, x, y).dtype == np.where(True, x, y).dtype


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_one_operand(name):
    x = np.array([0, 1, 2, 3]).astype(DTYPES[name].numpy)
    for function in (np.round, np.sinc, np.angle, np.real, np.imag, np.nan_to_num, np.fix, np.conj):
        got, want = result_of(NUMPY[function], (x,)), result_of(function, (x,))
        assert got == want or (function is np.angle and name == "bool") or got is None, function


COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


@pytest.mark.parametrize("function", COMPARISONS, ids=lambda f: f.__name__)
def test_integers_compare_by_value(function):
    handler = NUMPY[function]
    small, signed = np.array([0, 7, 255], np.uint8), np.array([-1, 2**62, 2**63 - 1])
    unsigned = np.array([2**64 - 1, 2**62 + 1, 2**63 - 1], np.uint64)
    for x, y in (
        (small, 300),
        (small, -1),
        (255, small),
        (signed, 2**63),
        (-1, unsigned),
        (signed, unsigned),
        (unsigned, signed),
    ):
        np.testing.assert_array_equal(handler(x, y), function(x, y))


def traced_types(function, operands):
    """The dtypes a function gives over Values of the array operands, without running anything."""
    arrays = [o for o in operands if isinstance(o, np.ndarray)]

    def rebuilt(*values):
        left = iter(values)
        return function(*(next(left) if isinstance(o, np.ndarray) else o for o in operands))

    return [r.type.dtype.numpy for r in traced(rebuilt, arrays).results]


@pytest.mark.parametrize("function", PROMOTED, ids=lambda f: f.__name__)
def test_traced_dtypes_are_the_eager_ones(function):
    ones = [np.ones(2, DTYPES[n].numpy) for n in DTYPES]
    numbers = (True, 2, 2.0, 2j) if function.nin == 2 else ()
    pairs = [*itertools.product(ones, repeat=function.nin), *itertools.product(ones, numbers)]
    for operands in [*pairs, *((y, x) for x, y in itertools.product(ones, numbers))]:
        want = result_of(NUMPY[function], operands)
        if want is None:
            with pytest.raises(GraphError):
                traced_types(NUMPY[function], operands)
        else:
            got = traced_types(NUMPY[function], operands)
            assert got == (want if isinstance(want, list) else [want]), (function, operands)


# --------------------------------------------------------------------------- complex special values

COMPLEX_FUNCTIONS = (
    np.exp, np.exp2, np.expm1, np.log, np.sqrt, np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh,
    np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh,
)  # fmt: skip


def complex_grid(kind):
    """Every pair of parts among the values where formulas break, and some that are usual."""
    largest, smallest = np.finfo(kind).max, np.finfo(kind).tiny
    parts = [0.0, 1e-30, smallest, 0.1, 0.5, 1 - 1e-7, 1.0, 1 + 1e-7, 2.0, 30.0, 88.9, 95.0, 709.9]
    parts += [715.0, 1e10, 1e30, float(largest), np.inf, np.nan]
    signed = np.array(parts + [-part for part in parts[:-1]], kind)
    grid = np.empty((len(signed),) * 2, np.result_type(kind, np.complex64))
    grid.real, grid.imag = signed[:, None], signed
    return grid.ravel()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_complex_functions_on_cuts_at_infinity_and_near_overflow(kind):
    """NumPy is the oracle, part by part, also where one part is 0 or infinite (of expm1 the
    reference, which has limits where NumPy has NaN); signs of infinities that C leaves open are
    not compared."""
    x, loose = complex_grid(kind), 100 * np.finfo(kind).eps
    compiled = gc.compile(lambda x: tuple(f(x) for f in COMPLEX_FUNCTIONS))(x)
    for function, made in zip(COMPLEX_FUNCTIONS, compiled, strict=True):
        with np.errstate(all="ignore"):
            want = OPS["expm1"].reference(x) if function is np.expm1 else function(x)
        for got, right in ((made.real, want.real), (made.imag, want.imag)):
            open_ = ~np.isfinite(x) & np.isinf(got) & np.isinf(right)
            tiny = loose * np.finfo(kind).tiny  # some digits of what is subnormal
            close = np.isclose(got, right, rtol=loose, atol=tiny, equal_nan=True)
            wrong = np.flatnonzero(~close & ~open_)
            assert not wrong.size, (function, x[wrong[:3]], got[wrong[:3]], right[wrong[:3]])


def test_signs_on_the_branch_cuts_are_numpys():
    x = np.array([complex(re, im) for re in (2.0, -2.0, 0.5, 0.0, -0.0) for im in (0.0, -0.0)])
    x = np.concatenate([x, x.imag + 1j * x.real])
    for function in COMPLEX_FUNCTIONS[11:]:
        made = gc.compile(lambda x, f=function: f(x))(x)
        want = function(x)
        for part in ("real", "imag"):
            got, right = getattr(made, part), getattr(want, part)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(right), function.__name__)


def test_expm1_of_infinities_is_the_limit():
    x = np.array([complex(re, im) for re in (np.inf, -np.inf) for im in (0.0, np.inf, np.nan)])
    assert PUBLIC["expm1"](x[0]) == np.inf  # of no rank
    for made in (gc.compile(np.expm1)(x), PUBLIC["expm1"](x)):
        np.testing.assert_array_equal(made.real, [np.inf] * 3 + [-1] * 3)
        np.testing.assert_array_equal(made.imag, [0, np.nan, np.nan, 0, 0, 0])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_remainders_are_exact_for_every_quotient(kind):
    """Any bits at all: quotients from 2**-2000 to 2**2000, subnormal numbers, NaN, infinity."""
    rng = np.random.default_rng(3)
    bits = {np.float32: np.uint32, np.float64: np.uint64}[kind]
    x, y = rng.integers(0, np.iinfo(bits).max, (2, 20000), bits).view(kind)
    scale = rng.choice([1.0, 1.0, 3.0, 2.0**40, 2.0**60], (2, 20000))
    near = (rng.integers(1, 2**53, (2, 20000)) * scale).astype(kind)
    edges = np.array([0, -0.0, 1, -3, np.inf, np.nan, np.finfo(kind).max], kind)
    edges = np.append(edges, [np.finfo(kind).tiny, -np.finfo(kind).smallest_subnormal])
    pairs = [v.ravel() for v in np.meshgrid(edges, edges)]
    unit = near[1] / 2
    times = unit * rng.integers(1, 99, 20000).astype(kind)  # whole quotients, and those beside them
    times = np.nextafter(times, rng.choice([0, 1, np.inf], 20000).astype(kind) * times)
    x = np.concatenate([x, near[0], pairs[0], times])
    y = np.concatenate([y, near[1], pairs[1], unit])
    functions = (np.fmod, np.remainder, np.floor_divide)
    made = gc.compile(lambda x, y: tuple(f(x, y) for f in functions))(x, y)
    for function, got in zip(functions, made, strict=True):
        with np.errstate(all="ignore"):
            want = function(x, y)
        np.testing.assert_array_equal(got, want, function.__name__)
        signed = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[signed]), np.signbit(want[signed]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_rare_is_found_in_any_lane(kind):
    """A far quotient among near ones, at every place of arrays with and without whole vectors."""
    rng = np.random.default_rng(4)
    for count in (1, 3, 8, 17, 33):
        x = np.tile(rng.uniform(1, 9, count).astype(kind), (count, 1))
        np.fill_diagonal(x, 1e30)
        y = rng.uniform(1, 2, count).astype(kind)
        for opt in (0, 2):
            made = gc.compile(lambda x, y: np.fmod(x, y), opt=opt)(x, y)
            np.testing.assert_array_equal(made, np.fmod(x, y))
        total = gc.compile(lambda x, y: np.fmod(x, y).max(1))(x, y)
        np.testing.assert_array_equal(total, np.fmod(x, y).max(1))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_bits_of_narrow_floats_are_kept(name):
    """All 65536 of them, NaNs with what they carry."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    floats = bits.view(dtype(name).numpy)
    view: Any = gc.view
    flip = gc.compile(lambda x: view(view(x, "u16") ^ np.uint16(1 << 15), name))
    np.testing.assert_array_equal(flip(floats).view(np.uint16), bits ^ (1 << 15))
    np.testing.assert_array_equal(gc.compile(lambda x: view(x, name))(bits).view(np.uint16), bits)
