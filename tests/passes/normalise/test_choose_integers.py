"""choose_integers: products of dequantised numbers against the same in full, and which are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed

import graphc as gc
from graphc.codegen import gemm
from graphc.config import Config
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.dce import dce

pytestmark = pytest.mark.skipif(
    not gemm.host_target().fast_bytes, reason="this CPU does not multiply bytes fast"
)
F4, I4 = np.float32, np.int32


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


def made_integers(function: Any, *args: Any) -> int:
    """How many products the stage has made of bytes."""
    note = next(r for r in function.stages(*args) if r[0] == "choose_integers")[3]
    return sum("byte product" in text for _, text in note.reasons)


ZEROS = [None, 7, (40, 1), (1, 24)]


@pytest.mark.parametrize(
    ("signs", "zeros"),
    crossed(
        [("i1", "i1"), ("u1", "i1"), ("u1", "u1")],
        [(a, b) for a in ZEROS[:3] for b in ZEROS if b != (40, 1)],
    ),
)
def test_zero_points_of_products(signs: tuple[str, str], zeros: Any) -> None:
    a, b = drawn((40, 70), signs[0], 1), drawn((70, 24), signs[1], 2)
    p, q = (
        np.zeros((), I4) if z is None else np.asarray(drawn(z if z != 7 else (), s, 3), I4)
        for z, s in zip(zeros, signs, strict=True)
    )

    def product(a: Any, b: Any, p: Any, q: Any) -> Any:
        return (a.astype(I4) - p) @ (b.astype(I4) - q)

    compiled = gc.compile(product)
    np.testing.assert_array_equal(compiled(a, b, p, q), product(a, b, p, q))
    assert made_integers(compiled, a, b, p, q) == 1


@pytest.mark.parametrize("rows", [1, 2, 33])
def test_scales_of_products(rows: int) -> None:
    random = np.random.default_rng(rows)
    a, w = drawn((3, rows, 65), "u1", 1), drawn((30, 65), "i1", 2)
    s, t = F4(0.031), random.uniform(1e-3, 1e-2, (30, 1)).astype(F4)
    bias = random.standard_normal(30).astype(F4)

    def whole(a: Any, w: Any) -> Any:
        x = (a.astype(I4) - np.int32(120)).astype(F4) * s
        return np.maximum(x @ (w.astype(F4) * t).T + bias, 0)

    compiled = gc.compile(whole)
    expected = np.maximum(
        ((a.astype(float) - 120) * float(s)) @ (w.astype(float) * t.astype(float)).T + bias, 0
    )
    np.testing.assert_allclose(compiled(a, w), expected, rtol=2e-6, atol=2e-5)
    assert made_integers(compiled, a, w) == 1


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_convolutions_are_padded_with_their_zero(groups: int) -> None:
    x, w = drawn((2, 6, 9, 8), "u1", 1), drawn((12, 6 // groups, 3, 3), "i1", 2)
    t = np.random.default_rng(3).uniform(1e-3, 1e-2, (12, 1, 1, 1)).astype(F4)

    def layer(x: Any, w: Any, zero: Any) -> Any:
        image = (x.astype(I4) - zero.astype(I4)).astype(F4) * F4(0.02)
        return gc.conv(image, w.astype(F4) * t, padding=1, groups=groups, stride=2)

    zero = np.uint8(131)
    compiled = gc.compile(layer)
    (expected,) = interpret(compiled.graph(x, w, zero), (x, w, zero))
    np.testing.assert_allclose(compiled(x, w, zero), expected, rtol=1e-5, atol=1e-4)
    assert made_integers(compiled, x, w, zero) == 1


@pytest.mark.parametrize("kind", ["i4", "f4"])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("shape", [(), (9, 1, 1, 1)])
@pytest.mark.parametrize("sign", ["u1", "i1"])
def test_weights_of_convolutions_have_zeros(
    sign: str, shape: tuple[int, ...], window: int, kind: str
) -> None:
    """What a window reads, times the zero, is taken off its sum."""
    x, w = drawn((2, 6, 9, 8), "u1", 1), drawn((9, 6, window, window), sign, 2)
    zeros = drawn(shape, sign, 3)

    def layer(x: Any, zero: Any, w: Any = w, zeros: Any = zeros) -> Any:
        image = x.astype(I4) - zero.astype(I4)
        weights = gc.reshape(w, w.shape).astype(I4) - zeros.astype(I4)
        padding, step = window // 2, 3 - window // 2
        return gc.conv(image.astype(kind), weights.astype(kind), padding=padding, stride=step)

    zero = np.uint8(131)
    for given in ((x, zero), (x, zero, w, zeros)):
        compiled = gc.compile(layer)
        (expected,) = interpret(compiled.graph(*given), given)
        np.testing.assert_array_equal(compiled(*given), expected)
        assert made_integers(compiled, *given) == 1


@pytest.mark.parametrize("zero", [0, -7])
@pytest.mark.parametrize("padding", [0, 1])
def test_what_is_rounded_to_i8_is_rounded_to_u8(zero: int, padding: int) -> None:
    x = np.random.default_rng(1).uniform(-9, 9, (2, 4, 6, 5)).astype(F4)
    w = drawn((40, 4, 3, 3), "i1", 2)

    def layer(x: Any, w: Any) -> Any:
        numbers = np.clip(np.rint(x / F4(0.05)) + F4(zero), -128, 127).astype(np.int8)
        image = (numbers.astype(I4) - I4(zero)).astype(F4) * F4(0.05)
        return gc.conv(image, w.astype(F4) * F4(0.01), padding=padding)

    compiled = gc.compile(layer)
    (expected,) = interpret(compiled.graph(x, w), (x, w))
    np.testing.assert_allclose(compiled(x, w), expected, rtol=1e-5, atol=1e-5)
    made = next(r for r in compiled.stages(x, w) if r[0] == "fold")[1]
    (product,) = [n for n in made.nodes if n.op.name == "conv"]
    assert str(product.inputs[0].inputs[0].type.dtype) == "u8"


def test_what_i8_makes_of_any_number_stays_what_it_is() -> None:
    x, w = np.random.default_rng(1).uniform(-200, 200, (8, 32)).astype(F4), drawn((32, 16), "i1", 2)
    x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf

    def layer(x: Any, w: Any, low: int) -> Any:
        return np.clip(x, F4(low), F4(127)).astype(np.int8).astype(I4) @ w.astype(I4)

    for low in (-128, -5):  # cut off towards zero, and not rounded
        compiled = gc.compile(lambda x, w, low=low: layer(x, w, low))
        (expected,) = interpret(compiled.graph(x, w), (x, w))
        np.testing.assert_array_equal(compiled(x, w), expected)


@pytest.mark.parametrize("zero", [300, 1 << 30])
def test_sums_of_zeros_that_are_no_bytes_do_not_overflow(zero: int) -> None:
    a, w = drawn((4, 30_000), "u1", 1), drawn((30_000, 8), "i1", 2)

    def product(a: Any, w: Any, zero: Any) -> Any:
        return (a.astype(I4) - zero).astype(F4) @ (w.astype(F4) * F4(0.01))

    for given in (product, lambda a, w, _: product(a, w, I4(zero))):
        compiled = gc.compile(given)
        wide = (a.astype(float) - zero) @ (w.astype(float) * 0.01)
        got = compiled(a, w, np.full(1, zero, I4))
        np.testing.assert_allclose(got, wide, rtol=1e-4, atol=1e-4 * np.abs(wide).max())
        assert made_integers(compiled, a, w, np.full(1, zero, I4)) == 0


def test_steps_of_a_result_are_within_one_of_a_division() -> None:
    a, b, step = drawn((40, 70), "u1", 1), drawn((70, 24), "i1", 2), F4(0.0301)
    bias = np.linspace(-3, 3, 24, dtype=F4)

    def layer(a: Any, b: Any) -> Any:
        sums = (a.astype(F4) * F4(0.01)) @ (b.astype(F4) * F4(0.003)) + bias
        return np.clip(np.rint(sums / step), 0, 255).astype(np.uint8)

    compiled = gc.compile(layer)
    far = np.abs(compiled(a, b).astype(int) - layer(a, b).astype(int))
    assert far.max() <= 1 and far.mean() < 0.01
    made = next(r for r in compiled.stages(a, b) if r[0] == "choose_integers")[1]
    (rounded,) = [n for n in made.nodes if n.op.name == "rint"]
    assert rounded.inputs[0].op.name == "mul"


@pytest.mark.parametrize("kind", ["i4", "f4"])
def test_depthwise_convolutions_read_bytes(kind: str) -> None:
    """Their sums are exact in f32; what lies around an image is its zero."""
    x, w = drawn((2, 5, 9, 8), "u1", 1), drawn((5, 1, 3, 3), "i1", 2)

    def layer(x: Any, w: Any) -> Any:
        return gc.conv(x.astype(kind) - np.array(131, kind), w.astype(kind), padding=1, groups=5)

    def from_integers(x: Any, w: Any) -> Any:
        return (
            layer(x.astype(I4), w)
            if kind == "i4"
            else gc.conv((x.astype(I4) - I4(131)).astype(F4), w.astype(F4), padding=1, groups=5)
        )

    compiled = gc.compile(from_integers)
    (expected,) = interpret(compiled.graph(x, w), (x, w))
    np.testing.assert_array_equal(compiled(x, w), expected)
    made = next(r for r in compiled.stages(x, w) if r[0] == "choose_integers")[1]
    (windows,) = [n for n in made.nodes if n.op.name == "conv_windows"]
    assert windows.inputs[0] is made.params[0]
    assert windows.attrs["zero"] == 131


def pools_of(function: Any, x: Any) -> set[str]:
    """The types of what is pooled behind the stage."""
    made = next(stage[1] for stage in function.stages(x) if stage[0] == "choose_integers")
    return {n.type.dtype.name for n in dce(made, Config.create()).nodes if n.op.traits.pools}


@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize(
    ("window", "stride", "padding"),
    [(3, 2, 1), (2, 2, 0), ((1, 4), (1, 3), ((0, 0), (3, 2))), ((5, 2), (3, 1), ((4, 0), (0, 1)))],
)
def test_largest_of_numbers_are_chosen_among_their_bytes(
    kind: str, window: Any, stride: Any, padding: Any
) -> None:
    x = drawn((2, 5, 11, 9), kind, 1)

    def pooled(x: Any) -> Any:
        return gc.max_pool((x.astype(I4) - 7).astype(F4) * F4(0.3), window, stride, padding)

    compiled = gc.compile(pooled)
    made = compiled(x)
    (expected,) = interpret(compiled.graph(x), [x])
    np.testing.assert_array_equal(made, expected)
    assert pools_of(compiled, x) == {x.dtype.name.replace("uint", "u").replace("int", "i")}


ONES: Any = {"constant_values": 1.0}


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: gc.max_pool(x * F4(-0.3), 3, 2, 1),  # larger bytes are smaller numbers
        lambda x: gc.max_pool(x * F4(0.3), 2, 2, 2),  # the first windows see padding alone
        lambda x: gc.max_pool(x * F4(0.3), 2, 3, ((0, 4), (0, 4))),  # the last ones
        lambda x: gc.max_pool(x * F4(0.3), 3, 1, 1, dilation=2),
        lambda x: gc.max_pool(x * np.arange(1, 6, dtype=F4).reshape(5, 1, 1), 3, 2, 1),
        lambda x: gc.avg_pool(x * F4(0.3), 3, 2, 1),
        lambda x: gc.max_pool(np.pad(x * F4(0.3), ((0, 0), (0, 0), (1, 1), (1, 1)), **ONES), 3, 2),
    ],
)
def test_other_pools_stay_as_they_are(pool: Any) -> None:
    x = drawn((2, 5, 10, 10), "u1", 1)
    compiled = gc.compile(lambda x: pool(x.astype(F4)))
    made = compiled(x)
    (expected,) = interpret(compiled.graph(x), [x])
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    assert pools_of(compiled, x) == {"f32"}


def test_operands_are_looked_into_for_a_few_nodes() -> None:
    def squared(x: Any) -> Any:
        for _ in range(400):
            x = (x * x).T
        return x @ x

    x = np.full((1, 1), 1, F4)
    assert made_integers(gc.compile(squared), x) == 0


def test_what_stays_as_it_is() -> None:
    a, b, long = drawn((8, 16), "i1", 1), drawn((16, 8), "i1", 2), drawn((1, 40_000), "u1", 3)
    t = np.linspace(0.1, 1, 16, dtype=F4)

    def by_depth(a: Any, b: Any) -> Any:  # a scale for each term of a sum
        return (a.astype(F4) * t) @ b.astype(F4)

    def scaled(a: Any, b: Any) -> Any:
        return (a.astype(F4) * F4(0.5)) @ b.astype(F4)

    assert made_integers(gc.compile(by_depth), a, b) == 0
    np.testing.assert_allclose(gc.compile(by_depth)(a, b), by_depth(a, b), rtol=1e-5, atol=1e-3)
    assert made_integers(gc.compile(scaled, fast_math=False), a, b) == 0
    assert made_integers(gc.compile(scaled, parity=True), a, b) == 0
    assert made_integers(gc.compile(scaled), long, long.T.copy()) == 0
    assert made_integers(gc.compile(scaled), a, b) == 1
