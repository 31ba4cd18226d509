"""The samples of the op table, compiled, beside the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from op_harness import tensors

import graphc as gc
from graphc.ir.op import OPS, Op, Sample
from graphc.ir.types import TupleType, Type
from graphc.ops.record.value import emit, literal_type

SAMPLED = sorted(n for n, op in OPS.items() if op.samples is not None)
RTOL = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6, "f64": 2e-14, "c64": 4e-6, "c128": 4e-14}


def good_samples(op: Op) -> list[Sample]:
    assert op.samples
    with np.errstate(all="ignore"):
        return [s for s in op.samples() if s.good]


def expected(op: Op, sample: Sample) -> tuple[list[Type], list[np.ndarray]]:
    """(result types, reference results) of one sample, as lists."""
    arrays = [np.asarray(o) for o in sample.operands]
    attrs = op.coerce(sample.attrs)
    kind = op.result_type(tuple(map(literal_type, arrays)), attrs)
    with np.errstate(all="ignore"):
        made = op.reference(*arrays, **attrs.values_dict)
    kinds = tensors(kind)
    values = list(made) if isinstance(kind, TupleType) else [made]
    return kinds, [np.asarray(v, k.dtype.numpy) for v, k in zip(values, kinds)]


def samples_function(op: Op, samples: Sequence[Sample], **options: Any) -> Any:
    """A compiled function of the operands of all samples."""

    def apply_all(operands: Any) -> list[Any]:
        return [emit(op, *given, **s.attrs) for given, s in zip(operands, samples)]

    return gc.compile(apply_all, **options)


def check(
    got: Any, kinds: Sequence[Type], wants: Sequence[np.ndarray], tolerance: float, where: str
) -> None:
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
