"""Element-wise ops: expression against reference on every sample, result dtypes against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from expand import traced
from expr_numpy import Operands, evaluate

from graphc.errors import GraphError
from graphc.ir.op import OPS, Scalar
from graphc.ir.types import DTYPES, dtype
from graphc.ops.value import NUMPY, PUBLIC, literal_type

SCALAR = [name for name, op in OPS.items() if isinstance(op.lower, Scalar)]
RTOL = {"f16": 1e-3, "bf16": 8e-3, "f32": 5e-7, "f64": 4e-15, "c64": 2e-6, "c128": 2e-14}


def run_expression(op, operands, attrs):
    builder = Operands()
    arrays = [np.asarray(o) for o in operands]
    exprs = [builder.operand(a, dtype(a.dtype)) for a in arrays]
    made = op.lower.expression(builder, *exprs, **attrs.values_dict)
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


@pytest.mark.parametrize("name", SCALAR)
def test_bad_samples_raise(name):
    op = OPS[name]
    for sample in op.samples():
        if not sample.good:
            types = tuple(literal_type(np.asarray(o)) for o in sample.operands)
            with pytest.raises(GraphError):
                op.result_type(types, op.coerce(sample.attrs))


# ---------------------------------------------------------------------------------------- promotion

NAMES = [n for n in DTYPES if n != "bf16"]
# ldexp's operands do not promote together.
UFUNCS = [f for f in NUMPY if isinstance(f, np.ufunc) and not f.signature and f is not np.ldexp]
PROMOTED = sorted(UFUNCS, key=lambda f: f.__name__)
# NumPy orders complex numbers; graphc, like the array API, does not.
UNORDERED = {np.less, np.less_equal, np.greater, np.greater_equal, np.maximum, np.minimum, np.fmax,
             np.fmin, np.sign}  # fmt: skip
# No complex form, or no f16 form, on purpose.
NARROWER = {np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh, np.rint,
            np.nextafter}  # fmt: skip


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
    for x, y in ((small, 300), (small, -1), (255, small), (signed, 2**63), (-1, unsigned),
                 (signed, unsigned), (unsigned, signed)):  # fmt: skip
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
