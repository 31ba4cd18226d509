"""Indexing: every form of x[index] against NumPy, gathers, writes and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from op_harness import check_samples, lowered, same, traced

from graphc.errors import RunError, TraceError
from graphc.ir.op import OPS
from graphc.ops.index import gather, indexing
from graphc.ops.record.value import NUMPY

X = np.arange(120.0).reshape(2, 3, 4, 5)
V = np.arange(7, dtype=np.int32)
ROWS = np.array([[0, 2], [-1, 1]])
MASK = np.array([True, False, True])


@pytest.mark.parametrize("name", ["gather", "take_along"])
def test_samples(name: str) -> None:
    check_samples(OPS[name])


INDICES: list[Any] = [
    0, -1, (1, -2), (slice(None), 1), ..., (..., 0), (0, ..., -1), None, (None, ..., None, 2),
    slice(1, None), (slice(None), slice(None, None, 2)), (slice(None), slice(None, None, -1)),
    (..., slice(4, 0, -2)), (..., slice(-1, None, -3)), (..., slice(2, 2)), (..., slice(3, 1)),
    (..., slice(-100, 100)), (..., slice(1, None, -1)), (0, 1, 2, 3), (0, slice(None), None, 2),
    np.int64(1), np.array(1), [0, 1, 0], (slice(None), ROWS), (slice(None), ROWS, [[1], [3]]),
    (0, ROWS), (0, slice(None), ROWS), (slice(None), 0, ROWS), (slice(None), 0, slice(None), ROWS),
    ([0, 1], slice(None), [1, 2]), (slice(None), ROWS, slice(None), ROWS), (..., [0, 4]),
    (slice(None), ROWS, None, ROWS), (None, [0, 1]), (slice(None), None, ROWS, slice(1, 3)),
    (slice(None), MASK), (slice(None), MASK, 1), X[0, :, :, 0] > 30, (0, MASK, slice(None, 2)),
    (slice(None), [0, 1], ..., [0, 1]), (slice(None), [0, 1], [1, 2], ..., [0, 1]), (0, [], 1),
    (slice(None), [0, 1], 1, ..., [0, 1]), (1, [0, 2], ..., 3), np.zeros((2, 3), bool),
]  # fmt: skip
INDICES = [i for i in INDICES if not (isinstance(i, np.ndarray) and i.shape == (3, 4))]


@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", ""))
def test_getitem_is_numpys(index: Any) -> None:
    same(traced(lambda v: v[index], X, lower=True), X[index])


def test_traced_indices() -> None:
    def function(x: Any, i: Any, rows: Any) -> Any:
        return x[i], x[:, rows], x[i, :, rows], x[0, i], x[rows[0], i]

    i, rows = np.array(-1), np.array([[0, -2], [1, 1]], np.int32)
    expected = (X[i], X[:, rows], X[i, :, rows], X[0, i], X[rows[0], i])
    same(traced(function, X, i, rows, lower=True), expected)


def test_out_of_range_is_reported_by_the_kernel() -> None:
    rows = np.array([0, 3])
    with pytest.raises((RunError, IndexError)):
        traced(lambda x, r: x[:, r], X, rows, lower=True)
    with pytest.raises(RunError):
        lowered("gather", (V, np.array([9])), {"axes": (0,)})


REFUSED: list[tuple[Any, str]] = [
    (2, "out of range"),
    ((0, -4), "axis 1"),
    ((0, 0, 0, 0, 0), "too many"),
    ((..., ...), "ellipsis"),
    ([0, 2], "out of range"),
    (1.5, "not an index"),
    ("name", "not an index"),
    (True, "not indices"),
    (slice(None, None, 0), "step"),
    (np.zeros((2, 2), bool), "mask of extent"),
]


@pytest.mark.parametrize(("index", "message"), REFUSED)
def test_bad_index_is_refused(index: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        traced(lambda v: v[index], X)


def test_traced_mask_names_the_way_out() -> None:
    with pytest.raises(TraceError) as caught:
        traced(lambda x, m: x[m], X, X > 3)
    assert "np.where" in str(caught.value)
    assert "size=" in str(caught.value)
    with pytest.raises(TraceError, match="dynamic_slice"):
        traced(lambda x, i: x[i:], X, np.array(1))


def test_take() -> None:
    for named in ({}, {"axis": 1}, {"axis": -1, "mode": "wrap"}, {"axis": 2, "mode": "clip"}):
        high = 9 if "mode" in named else 2
        index = np.array([[0, high], [1, 0]])
        same(
            traced(partial(NUMPY[np.take], **named), X, index, lower=True),
            np.take(X, index, **named),
        )
    same(gather.take(X, [1, 0], axis=0), X[[1, 0]])


def test_take_along_axis() -> None:
    order = np.argsort(-X, axis=2)
    same(
        traced(lambda x, i: gather.take_along_axis(x, i, 2), X, order, lower=True), -np.sort(-X, 2)
    )
    one = np.array([[[[1]]]])
    same(traced(lambda x: gather.take_along_axis(x, one, 3), X), np.take_along_axis(X, one, 3))
    assert indexing.parse_index(0, (3,)).layout == ["drop"]
