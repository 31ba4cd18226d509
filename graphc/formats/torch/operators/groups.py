"""Groups of rows: products of each with a matrix of its own (experts of a mixture), reductions.

`offs` says where each group of rows ends.  Every matrix is multiplied with all rows, and each row
takes its own: what the groups are is known when it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.promotion import cast, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f


def _members(offs: Any, rows: Any) -> Any:
    """Whether a row is in a group: [group, row]."""
    ends = f.reshape(cast(offs, np.dtype(np.int64)), (-1, 1))
    starts = f.concatenate([f.zeros((1, 1), np.int64), ends[:-1]])
    places = f.arange(rows, dtype=np.int64)
    return (places >= starts) & (places < ends)


def _rows_by_matrix(rows: Any, matrices: Any, offs: Any) -> Any:
    """[row, k], [group, k, n] -> [row, n]; zeros for rows behind the last group."""
    members = f.expand_dims(_members(offs, rows.shape[0]), -1)
    return f.sum(f.where(members, f.matmul(rows, matrices), 0), axis=0)


def _by_group(left: Any, right: Any, offs: Any) -> Any:
    """[row, k], [row, n] -> the sum over the rows of each group: [group, k, n]."""
    members = f.expand_dims(_members(offs, left.shape[0]), -1)
    chosen = f.where(members, left, 0)
    return f.matmul(f.swapaxes(chosen, -1, -2), f.where(members, right, 0))


@aten("_grouped_mm")
def grouped_mm(
    x: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Element | None = None
) -> Any:
    refuse(bias is None, "a bias of groups")
    ranks = (x.ndim, mat2.ndim)
    refuse(ranks == (3, 3) or offs is not None, "groups without their ends")
    if ranks == (2, 3):
        made = _rows_by_matrix(x, mat2, offs)
    elif ranks == (2, 2):
        made = _by_group(f.swapaxes(x, 0, 1), mat2, offs)
    else:
        refuse(ranks == (3, 3), f"groups of columns: ranks {ranks}")
        made = f.matmul(x, mat2)
    return cast(made, element_of(out_dtype, dtype_of(x)))


@aten("grouped_mm_fallback", space="transformers")
def fallback(x: Any, weight: Any, offs: Any) -> Any:
    return _rows_by_matrix(x, weight, offs)


@aten("grouped_mm_fallback_backward", space="transformers")
def fallback_backward(x: Any, weight: Any, offs: Any, grad_output: Any) -> tuple[Any, Any]:
    turned = f.swapaxes(weight, -1, -2)
    return _rows_by_matrix(grad_output, turned, offs), _by_group(x, grad_output, offs)


# How a reduction writes, and what it starts from.
_REDUCTIONS = {
    "sum": ("add", 0), "mean": ("add", 0), "prod": ("mul", 1),
    "max": ("max", -np.inf), "min": ("min", np.inf),
}  # fmt: skip


@aten("segment_reduce")
def segment_reduce(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """[segment, ...] of runs of rows, whose lengths or ends are told."""
    told = offsets if lengths is None else lengths
    plain = told is not None and indices is None and told.ndim == 1 and axis in (0, -data.ndim)
    refuse(plain and reduce in _REDUCTIONS, "segments are runs of rows, of whole arrays")
    if lengths is not None:
        ends = f.cumsum(cast(lengths, np.dtype(np.int64)), axis=0)
        offsets = f.concatenate([f.zeros(1, np.int64), ends])
    counts = offsets[1:] - offsets[:-1]
    kind, (mode, neutral) = dtype_of(data), _REDUCTIONS[reduce]
    places = f.searchsorted(offsets, f.arange(data.shape[0], dtype=np.int64), side="right")
    # Rows before the first segment and behind the last fall into one more on either side.
    start = cast(neutral if initial is None else initial, kind)
    into = f.full((counts.shape[0] + 2, *data.shape[1:]), start, dtype=kind)
    made = f.index_update(into, (places,), data, mode)[1:-1]
    if reduce != "mean":
        return made
    divisor = f.reshape(cast(counts, kind), (-1,) + (1,) * (data.ndim - 1))
    empty = np.nan if initial is None else start
    return f.where(divisor == 0, cast(empty, kind), made / f.maximum(divisor, cast(1, kind)))
