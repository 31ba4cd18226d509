"""dtype promotion: NumPy 2 / array-API rules, by type alone, never by value."""

from __future__ import annotations

from functools import cache

import numpy as np

from graphc.ir.types import BF16, C64, C128, F32, F64, DType, dtype


@cache
def promote(a: DType, b: DType) -> DType:
    """The common type of two strongly typed operands: NumPy 2 / array-API rules, no value
    inspection.

    bf16 with f16 gives f32; bf16 with an integer of up to 8 bits stays bf16 (as f16 does), wider
    integers follow NumPy's rule for f16.
    """
    if a is b:
        return a
    if {a.name, b.name} == {"f16", "bf16"}:
        return F32
    if BF16 in (a, b):
        other = b if a is BF16 else a
        if other.kind in "fc" or other.kind == "b":
            return BF16 if other.kind == "b" else other
        return BF16 if other.itemsize == 1 else (F32 if other.itemsize == 2 else F64)
    return dtype(np.promote_types(a.numpy, b.numpy))


_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def weak_promote(strong: DType, weak: DType) -> DType:
    """The common type of a tensor and a Python number: the number adapts unless its kind is
    higher.
    """
    if _RANK[weak.kind] <= _RANK[strong.kind]:
        return strong
    if weak.kind == "c":
        return {"f32": C64, "f16": C64, "bf16": C64}.get(strong.name, C128)
    return weak if weak.kind in "iu" else F64
