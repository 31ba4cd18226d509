"""Products of bytes summed in i32, as programs: any signs, shapes, threads and epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed

import graphc as gc

SHAPES = [
    ((1, 7), (7, 5)),
    ((2, 300), (300, 1)),
    ((33, 65), (65, 70)),
    ((3, 20, 13), (13, 40)),
    ((2, 3, 20, 18), (2, 3, 18, 33)),
    ((4, 0), (0, 6)),
    ((0, 5), (5, 6)),
]


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


def wide(x: Any) -> Any:
    return x.astype(np.int32)


@pytest.mark.parametrize(
    ("signs", "shapes"), crossed([("i1", "i1"), ("i1", "u1"), ("u1", "i1"), ("u1", "u1")], SHAPES)
)
def test_products_are_exact(signs: tuple[str, str], shapes: Any) -> None:
    a, b = (drawn(s, d, k) for k, (s, d) in enumerate(zip(shapes, signs, strict=True)))
    product = gc.compile(lambda a, b: wide(a) @ wide(b), threads=2)
    np.testing.assert_array_equal(product(a, b), wide(a) @ wide(b))
    turned = gc.compile(lambda a, b: wide(a) @ wide(b).swapaxes(-1, -2))
    np.testing.assert_array_equal(turned(a, np.swapaxes(b, -1, -2).copy()), wide(a) @ wide(b))


@pytest.mark.parametrize("sign", ["i1", "u1"])
def test_extreme_sums(sign: str) -> None:
    for left, right in ((-128, -128), (-128, 127), (127, 127)):
        a = np.full((9, 4099), left).astype(sign)
        b = np.full((4099, 37), right).astype("i1")
        product = gc.compile(lambda a, b: wide(a) @ wide(b))
        np.testing.assert_array_equal(product(a, b), wide(a) @ wide(b))


def test_a_result_of_bytes_is_rounded_in_the_tiles() -> None:
    a, b = drawn((50, 70), "u1", 1), drawn((70, 90), "i1", 2)
    scale = np.random.default_rng(3).uniform(1e-4, 1e-2, 90).astype("f4")

    def layer(a: Any, b: Any, scale: Any) -> Any:
        units = np.rint((wide(a) @ wide(b)).astype(np.float32) * scale)
        return np.clip(units, -128, 127).astype(np.int8)

    made = gc.compile(layer)
    np.testing.assert_array_equal(made(a, b, scale), layer(a, b, scale))
    kernels = [n for n in made.stages(a, b, scale)[-1][1].graphs[0].nodes if n.op.traits.kernel]
    assert len(kernels) == 1


@pytest.mark.parametrize("signs", [("u1", "i1"), ("i1", "i1")])
def test_convolutions_of_bytes(signs: tuple[str, str]) -> None:
    x, w = drawn((2, 6, 11, 13), signs[0], 1), drawn((8, 6, 3, 3), signs[1], 2)
    conv = gc.compile(lambda x, w: gc.conv(wide(x), wide(w), padding=1, stride=(1, 2)))
    np.testing.assert_array_equal(conv(x, w), gc.conv(wide(x), wide(w), padding=1, stride=(1, 2)))
