"""PyTorch's promotion: arrays with axes decide before those without, and both before numbers.

i64[3] + f32[]  ->  f32      f32[3] + f64[]  ->  f32      i64[3] + 1.5  ->  f32 (the default)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from graphc.errors import GraphError
from graphc.ir.sizes import Size
from graphc.ops.record.value import as_value
from graphc.ops.record.value import functions as f

DType = np.dtype[Any]
BFLOAT16: DType = np.dtype(ml_dtypes.bfloat16)


_FLOAT32 = np.dtype(np.float32)
_default: ContextVar[DType] = ContextVar("default", default=_FLOAT32)


def default_float() -> DType:
    """The type of floats that nothing says the type of: what torch.set_default_dtype set where the
    program that is imported was made."""
    return _default.get()


@contextmanager
def with_default(name: str) -> Iterator[None]:
    """Have programs imported whose default is the type of this name."""
    token = _default.set(BFLOAT16 if name == "bfloat16" else np.dtype(name))
    try:
        yield
    finally:
        _default.reset(token)


def _complex(kind: DType) -> DType:
    """The complex type whose parts are of this one, or of the narrowest that has one."""
    wide: DType = np.promote_types(_FLOAT32 if kind == BFLOAT16 else kind, np.complex64)
    return wide


def dtype_of(x: Any) -> DType:
    kind: DType = np.dtype(x.dtype)
    return kind


def category(kind: DType) -> int:
    """0 bools, 1 integers, 2 floats, 3 complex numbers."""
    return 2 if kind == BFLOAT16 else {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[kind.kind]


def is_float(x: Any) -> bool:
    return category(dtype_of(x)) >= 2


def _wider(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if category(a) != category(b):
        low, high = sorted((a, b), key=category)
        return np.promote_types(low, high) if category(low) == 2 else high
    if BFLOAT16 in (a, b):
        return max(np.dtype(np.float32), *(k for k in (a, b) if k != BFLOAT16))
    made = np.promote_types(a, b)
    if category(made) > category(a):
        raise GraphError(f"{a} and {b} have no common type")
    return made


def _number_type(value: Any) -> DType:
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, complex):
        return _complex(default_float())
    return default_float() if isinstance(value, float) else np.dtype(np.int64)


def _combined(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if category(higher) == 2 and category(lower) == 3:
        return _complex(higher)
    if category(higher) >= category(lower):
        return higher
    return lower if category(higher) < 2 else _wider(higher, lower)


def common(*operands: Any) -> DType:
    """The type in which an operator computes on these arrays and numbers."""
    groups: list[list[DType]] = [[], [], []]
    for x in operands:
        if isinstance(x, bool | int | float | complex | Size):
            groups[2].append(_number_type(x))
        elif x is not None:
            groups[0 if x.ndim else 1].append(dtype_of(x))
    axes, none, numbers = (reduce(_wider, group) if group else None for group in groups)
    made = _combined(axes, _combined(none, numbers))
    assert made is not None
    return made


def cast(x: Any, kind: DType) -> Any:
    """x in a type; a number becomes an array without axes."""
    if isinstance(x, Size):
        x = as_value(x)
    if isinstance(x, bool | int | float | complex):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(kind)
    return x if dtype_of(x) == kind else f.astype(x, kind)


def promoted(*operands: Any, floats: bool = False) -> list[Any]:
    """The operands in their common type; with `floats`, integers become the default float."""
    kind = common(*operands)
    if floats and category(kind) < 2:
        kind = default_float()
    return [cast(x, kind) for x in operands]


def as_float(x: Any) -> Any:
    """An array as one of floats."""
    return x if is_float(x) else f.astype(x, default_float())
