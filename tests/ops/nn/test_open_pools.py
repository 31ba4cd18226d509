"""Pools whose windows, strides and dilations are as large as the sizes of an image say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError

Sizes = tuple[int, int]


def by_numpy(x: Any, reduce: Any, window: Sizes, stride: Sizes, dilation: Sizes = (1, 1)) -> Any:
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    views = views[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    return reduce(views, axis=(4, 5))


def padded(x: Any) -> Any:
    return np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)


# Of x[b, c, h, w]: the pool, and the same by NumPy, for numbers.
POOLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "half of the height": (
        lambda x: gc.max_pool(x, (x.shape[2] // 2, 2)),
        lambda x, h, w: by_numpy(x, np.max, (h // 2, 2), (h // 2, 2)),
    ),
    "squares": (
        lambda x: gc.avg_pool(x, x.shape[2] // 2),
        lambda x, h, w: by_numpy(x, np.mean, (h // 2, h // 2), (h // 2, h // 2)),
    ),
    "all but one": (
        lambda x: gc.min_pool(x, (2, x.shape[3] - 1), stride=1),
        lambda x, h, w: by_numpy(x, np.min, (2, w - 1), (1, 1)),
    ),
    "stride": (
        lambda x: gc.max_pool(x, 2, stride=(x.shape[2] // 3, 1)),
        lambda x, h, w: by_numpy(x, np.max, (2, 2), (h // 3, 1)),
    ),
    "dilation": (
        lambda x: gc.max_pool(x, 2, stride=1, dilation=(x.shape[2] // 3, 1)),
        lambda x, h, w: by_numpy(x, np.max, (2, 2), (1, 1), (h // 3, 1)),
    ),
    "padding": (
        lambda x: gc.max_pool(x, (x.shape[2] // 2, 2), padding=1),
        lambda x, h, w: by_numpy(padded(x), np.max, (h // 2, 2), (h // 2, 2)),
    ),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_open_windows_are_compiled_once(name: str) -> None:
    function, want = POOLS[name]
    made = gc.compile(function, sizes={"x": ("n", 2, "h", "w")})
    rng = np.random.default_rng(0)
    for n, h, w in ((2, 8, 9), (1, 10, 8), (3, 5, 6), (2, 31, 33)):
        x = rng.standard_normal((n, 2, h, w)).astype("f4")
        np.testing.assert_allclose(made(x), want(x, h, w), rtol=1e-5, atol=1e-6)
    assert len(made.compiles) == 1


def test_all_of_a_cotangent_goes_to_the_first_of_the_largest() -> None:
    made = gc.compile(
        lambda x: gc.grad(lambda v: gc.max_pool(v, (v.shape[2] // 2, v.shape[3])).sum())(x),
        sizes={"x": (1, 1, "h", "w")},
    )
    for h, w in ((4, 3), (6, 2), (8, 5)):
        x = np.random.default_rng(h).integers(0, 3, (1, 1, h, w)).astype(float)
        want = np.zeros(x.shape)
        for half in (slice(None, h // 2), slice(h // 2, None)):
            place = np.unravel_index(x[0, 0, half].argmax(), (h // 2, w))
            want[0, 0, half][place] = 1
        np.testing.assert_array_equal(made(x), want)
    assert len(made.compiles) == 1


def test_a_window_of_nothing_is_refused() -> None:
    made = gc.compile(lambda x: gc.max_pool(x, (x.shape[2] // 2, 1)), sizes={"x": (1, 1, "h", 4)})
    made(np.ones((1, 1, 6, 4)))
    with pytest.raises(GraphError, match="window of pool must lie in 1"):
        made(np.ones((1, 1, 1, 4)))
