"""Casts that a contraction makes while it reads: what it computes, and that nothing is stored."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.ir.graph import Graph, Node

NARROW = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def kernels(function: Any, *arguments: Any, **options: Any) -> list[Node]:
    graph: Graph = gc.compile(function, **options).stages(*arguments)[-1][1].graphs[0]
    return [n for n in graph.nodes if n.op.name == "fused"]


def draw(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    return rng.normal(size=shape).astype(NARROW[name])


def product(x: Any, w: Any) -> Any:
    return x.astype("f4") @ w.astype("f4")


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("layout", ["plain", "turned", "both"])
def test_one_kernel_reads_the_narrow_operands(name: str, layout: str) -> None:
    rng = np.random.default_rng(1)
    x, w = draw(rng, (37, 65), name), draw(rng, (65, 50), name)
    b = rng.normal(size=50).astype("f4")

    def function(x: Any, w: Any, b: Any) -> Any:
        x = x.astype("f4").T if layout == "both" else x.astype("f4")
        w = w.T.astype("f4") if layout != "plain" else w.astype("f4")
        return gc.relu(x @ w + b)

    given_x = np.ascontiguousarray(x.T) if layout == "both" else x
    given_w = np.ascontiguousarray(w.T) if layout != "plain" else w
    (kernel,) = kernels(function, given_x, given_w, b)
    assert kernel.attrs["kind"] == "contract"
    expected = np.maximum(x.astype("f8") @ w.astype("f8") + b, 0)
    got = gc.compile(function)(given_x, given_w, b)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-5)


@examples(20)
@given(
    m=st.integers(1, 40),
    k=st.integers(0, 70),
    n=st.integers(1, 40),
    batch=st.lists(st.integers(1, 3), max_size=2),
    name=st.sampled_from(sorted(NARROW)),
    constant=st.booleans(),
    threads=st.integers(1, 2),
)
def test_any_shape(
    m: int, k: int, n: int, batch: list[int], name: str, constant: bool, threads: int
) -> None:
    rng = np.random.default_rng(m * k + n)
    x, w = draw(rng, (*batch, m, k), name), draw(rng, (k, n), name)
    expected = x.astype("f8") @ w.astype("f8")
    if constant:
        got = gc.compile(lambda x: product(x, w), threads=threads)(x)
    else:
        got = gc.compile(product, threads=threads)(x, w)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-5)


def test_a_cast_that_is_read_elsewhere_is_stored() -> None:
    x, w = np.ones((8, 16), np.float16), np.ones((16, 4), np.float16)

    def function(x: Any, w: Any) -> Any:
        wide = x.astype("f4")
        return wide @ w.astype("f4"), wide + 1

    made = kernels(function, x, w)
    assert len(made) > 1
    first, second = gc.compile(function)(x, w)
    assert (first == 16).all()
    assert (second == 2).all()


def test_operands_of_two_types_are_cast_before() -> None:
    x, w = np.ones((8, 16), np.float16), np.ones((16, 4), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(gc.compile(product)(x, w), np.full((8, 4), 16.0))


def test_the_numba_backend_and_strict_order_agree() -> None:
    rng = np.random.default_rng(3)
    x, w = draw(rng, (9, 33), "bf16"), draw(rng, (33, 7), "bf16")
    expected = x.astype("f8") @ w.astype("f8")
    for options in ({"backend": "numba"}, {"fast_math": False}, {"opt": 0}):
        got = gc.compile(product, **options)(x, w)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_gradients_of_a_widened_product() -> None:
    rng = np.random.default_rng(4)
    x, w = draw(rng, (6, 20), "bf16"), draw(rng, (20, 5), "bf16")
    dx, dw = gc.compile(gc.grad(lambda x, w: product(x, w).sum(), wrt=(0, 1)))(x, w)
    wide_x, wide_w = x.astype("f8"), w.astype("f8")
    ones = np.ones((6, 5))
    np.testing.assert_allclose(dx.astype("f8"), ones @ wide_w.T, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(dw.astype("f8"), wide_x.T @ ones, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
@examples(20)
@given(
    m=st.integers(1, 40),
    k=st.integers(0, 90),
    n=st.integers(1, 70),
    name=st.sampled_from(["i1", "u1", "i2", "u2"]),
    turned=st.booleans(),
    constant=st.booleans(),
    threads=st.integers(1, 2),
)
def test_small_integers_are_summed_in_i32(
    m: int, k: int, n: int, name: str, turned: bool, constant: bool, threads: int
) -> None:
    rng = np.random.default_rng(m * k + n)
    info = np.iinfo(name)
    x, w = (
        rng.integers(info.min, info.max + 1, shape).astype(name)
        for shape in ((m, k), (n, k) if turned else (k, n))
    )

    def function(x: Any, w: Any) -> Any:
        w = w.T if turned else w
        return x.astype("i4") @ w.astype("i4")

    expected = (x.astype("i8") @ (w.T if turned else w).astype("i8")).astype("i4")  # sums wrap
    if constant:
        got = gc.compile(lambda x: function(x, np.asarray(w)), threads=threads)(x)
    else:
        got = gc.compile(function, threads=threads)(x, w)
        assert len(kernels(function, x, w)) == 1
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, expected)
