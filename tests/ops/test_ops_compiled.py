"""Ops in company, compiled: combinations whose index maps, constants and failures meet in one
kernel. Equal to the reference at both levels, and reported at the user's line where they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_harness import same

import graphc as gc
from graphc.errors import RunError

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 5))
C = RNG.standard_normal((2, 3, 4))
COLUMN = np.array([1.0, 2, 3]).reshape(3, 1, 1)

MODELS: list[tuple[Any, tuple[Any, ...]]] = [
    (lambda x, y: x + y, (COLUMN, RNG.standard_normal((3, 1, 2)))),
    (lambda x: np.where(x > 1, x, np.ones((3, 1, 2))) * 2, (COLUMN,)),
    (lambda x, w: (x + 1j) @ (w - 2j), (A, B)),
    (lambda x, w: x @ (w + 1j), (A, B)),
    (lambda x: x @ np.full((4, 2), 3.0), (A,)),
    (lambda x: x @ np.broadcast_to(x[0, 0], (4, 2)), (A,)),
    (lambda x: np.concatenate([x, x[::-1]])[1:5, ::2].T @ x[:1].T.repeat(4).reshape(4, 4), (A,)),
    (lambda x: x.transpose(2, 0, 1)[::-1, 1].reshape(-1)[2:9:3] + 1, (C,)),
    (lambda x: np.pad(x, ((1, 1), (0, 0), (2, 0)), "reflect")[:, ::2].sum(1), (C,)),
    (lambda x: np.sort(x, 0)[np.argsort(x[:, 0])], (A,)),
    (lambda x: np.einsum("bij,bkj,k->bi", x, x, x[0, :, 0]), (C,)),
    (lambda x: np.cumsum(np.roll(x, 1, 0)[:, None] * np.eye(3)[:, :, None], 1), (A,)),
    (lambda x: np.stack(np.unstack(x, axis=2)[::-1], 1), (C,)),
]


def written(x: Any) -> Any:
    x = x * 1
    x[0, ::2] = 7
    x[[1, 2], [0, 3]] += x[0, 1]
    x[x < 0] = 0
    return x


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("number", range(len(MODELS)))
def test_compiled_equals_numpy(number: int, opt: int) -> None:
    function, arrays = MODELS[number]
    same(gc.compile(function, opt=opt)(*arrays), function(*arrays), 1e-12)


@pytest.mark.parametrize("opt", [0, 2])
def test_writes(opt: int) -> None:
    same(gc.compile(written, opt=opt)(A), written(A))


def test_index_out_of_range_is_an_error_at_the_users_line() -> None:
    positions = np.array([0, 3])
    for function in (lambda x, i: x[i], lambda x, i: np.take_along_axis(x, i[:, None], 0)):
        compiled = gc.compile(function)
        same(compiled(A, positions - 1), function(A, positions - 1))
        with pytest.raises(RunError, match="out of range") as caught:
            compiled(A, positions)
        assert "test_ops_compiled.py" in str(caught.value)


@pytest.mark.slow
def test_custom_ops_run_natively() -> None:
    @gc.custom_op("scaled_for_test")
    def scaled(x: Any, factor: Any, out: Any) -> int:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = x[i, j] * factor[()]
        return 9 if factor[()] < 0 else 0

    compiled = gc.compile(lambda x: scaled(x + 1, 2.5).T)
    same(compiled(A), (A + 1).T * 2.5)
    with pytest.raises(RunError):
        gc.compile(lambda x, s: scaled(x, s))(A, -1.0)
