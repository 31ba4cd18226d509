"""Floats of 4 and 8 bits beside those of ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.ops.linalg.small_floats import FORMS, codes, rounded, values

KINDS = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("name", FORMS)
def test_values_and_rounding_are_the_formats(name: str) -> None:
    """Every code, the middles between them, and numbers of every size."""
    form, kind, rng = FORMS[name], KINDS[name], np.random.default_rng(0)
    known = np.arange(2**form.bits, dtype=np.uint8).view(kind).astype("f4")
    ours, finite = values(form.bits, form.exponent), np.isfinite(known)
    assert np.array_equal(ours[finite], known[finite]) and known[finite].max() == form.most
    middles = (known[finite][1:] + known[finite][:-1]) / 2
    x = rng.standard_normal(9999) * 10.0 ** rng.integers(-9, 6, 9999)
    x = np.concatenate([known[finite], middles, x]).clip(-form.most, form.most).astype("f4")
    made: Any = gc.compile(lambda x: rounded(x, form))(x)
    assert np.array_equal(made, x.astype(kind).astype("f4"))
    assert np.array_equal(rounded(x, form), made)
    assert np.array_equal(ours[codes(made, form)], made)
    beyond = np.array([1e30, -np.inf], "f4")
    assert np.array_equal(rounded(beyond, form), [form.most, -form.most])
