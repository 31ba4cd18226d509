"""np.bitwise_or.reduce and its like: ufuncs that may be folded in any grouping, by halves.

reduce        0 1 2 3 4  ->  0|2 1|3 4  ->  0|2|4 1|3  ->  all      each step halves what is left
accumulate    a step joins what stands 1, 2, 4 ... before (Hillis and Steele)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.ops.record.families import as_dtype, normalise_axis
from graphc.ops.record.value import NUMPY, as_value, element_of, functions

_BITS = (np.bitwise_or, np.bitwise_and, np.bitwise_xor)
_TRUTH = (np.logical_or, np.logical_and, np.logical_xor)
FOLDS = frozenset((*_BITS, *_TRUTH, np.gcd, np.lcm, np.fmax, np.fmin))


def fold(
    ufunc: np.ufunc,
    x: Any,
    axis: int | None = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    where: Any = True,
) -> Any:
    """ufunc.reduce(x) along an axis, or over everything. Raises ValueError where there is nothing
    and the ufunc has no identity."""
    _require_plain(ufunc, "reduce", axis, out, where)
    x = _operand(ufunc, x, dtype)
    rank = x.ndim
    if axis is None:
        rows, kept = functions.reshape(x, (-1,)), (1,) * rank
    else:
        place = normalise_axis(axis, rank, f"np.{ufunc.__name__}.reduce")
        rows = functions.moveaxis(x, place, 0)
        kept = tuple(1 if k == place else extent for k, extent in enumerate(x.shape))
    made = _folded(ufunc, rows)
    return functions.reshape(made, kept) if keepdims else made


def _folded(ufunc: np.ufunc, rows: Any) -> Any:
    if rows.shape[0] == 0:
        if ufunc.identity is None:
            name = ufunc.__name__
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        return functions.full(rows.shape[1:], ufunc.identity, rows.element)
    while (count := rows.shape[0]) > 1:
        half = (count + 1) // 2
        met = NUMPY[ufunc](rows[: count - half], rows[half:])
        rows = functions.concatenate([met, rows[count - half : half]], 0)
    return rows[0]


def accumulate(ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """ufunc.accumulate(x): the folds of all beginnings along an axis."""
    _require_plain(ufunc, "accumulate", axis, out, True)
    x = _operand(ufunc, x, dtype)
    place = normalise_axis(axis, x.ndim, f"np.{ufunc.__name__}.accumulate")
    rows, distance = functions.moveaxis(x, place, 0), 1
    while distance < rows.shape[0]:
        met = NUMPY[ufunc](rows[:-distance], rows[distance:])
        rows = functions.concatenate([rows[:distance], met], 0)
        distance *= 2
    return functions.moveaxis(rows, 0, place)


def _operand(ufunc: np.ufunc, x: Any, dtype: Any) -> Any:
    """The operand in the dtype that the ufunc folds."""
    own = (element_of(x)[0] if dtype is None else as_dtype(dtype)).numpy
    element = as_dtype(ufunc.resolve_dtypes((own, own, None), reduction=True)[0])
    return functions.astype(as_value(x), element)


def _require_plain(ufunc: np.ufunc, method: str, axis: Any, out: Any, where: Any) -> None:
    if isinstance(axis, tuple) or out is not None or where is not True:
        raise TraceError(
            f"np.{ufunc.__name__}.{method} of a traced array takes one axis, no out= and no where="
        )
