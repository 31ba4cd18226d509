"""The samples of the op table, compiled, beside the reference."""

from __future__ import annotations

import numpy as np

import graphc as gc
from graphc.ir.op import OPS
from graphc.ir.types import TupleType
from graphc.ops.record.value import emit, literal_type

SAMPLED = sorted(n for n, op in OPS.items() if op.samples is not None)
RTOL = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6, "f64": 2e-14, "c64": 4e-6, "c128": 4e-14}


def good_samples(op):
    with np.errstate(all="ignore"):
        return [s for s in op.samples() if s.good]


def expected(op, sample):
    """(result types, reference results) of one sample, as lists."""
    arrays = [np.asarray(o) for o in sample.operands]
    attrs = op.coerce(sample.attrs)
    kind = op.result_type(tuple(map(literal_type, arrays)), attrs)
    with np.errstate(all="ignore"):
        made = op.reference(*arrays, **attrs.values_dict)
    several = isinstance(kind, TupleType)
    kinds = list(kind.elements) if several else [kind]
    values = list(made) if several else [made]
    return kinds, [np.asarray(v, k.dtype.numpy) for v, k in zip(values, kinds)]


def samples_function(op, samples, **options):
    """A compiled function of the operands of all samples."""

    def apply_all(operands):
        return [emit(op, *given, **s.attrs) for given, s in zip(operands, samples)]

    return gc.compile(apply_all, **options)


def check(got, kinds, wants, tolerance, where):
    got = list(got) if isinstance(got, tuple | list) else [got]
    for made, kind, want in zip(got, kinds, wants, strict=True):
        assert made.dtype == kind.dtype.numpy, where
        assert made.shape == kind.shape == want.shape, where
        if kind.dtype.kind in "biu":
            np.testing.assert_array_equal(made, want, err_msg=where)
            continue
        wide = np.complex128 if kind.dtype.is_complex else np.float64
        rtol = RTOL[kind.dtype.name] * tolerance
        np.testing.assert_allclose(
            made.astype(wide), want.astype(wide), rtol=rtol, atol=rtol, err_msg=where
        )
