"""Attention on a GPU equals the reference: shapes, masks, shared heads, values that are no numbers.

How far it may be off, relative to the largest value: weights are rounded to the type of values
before they are multiplied (2 ** -9 of each for bf16, 2 ** -12 for f16), results once more; scores
are f32 (2 ** -21 of the largest one), and a weight is off by as much as its score.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_harness import GPU, SIMULATED, need_gpu, rng, sized

import graphc as gc
from graphc.ir.op import OPS
from graphc.ir.types import dtype as dtype_of
from graphc.passes.normalise import choose_attention

need_gpu()
pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]

KINDS = ["f32"] if SIMULATED else ["f32", "f16", "bf16"]
NEAR = {"f32": 1e-6, "f16": 2e-3, "bf16": 1.6e-2}


def drawn(shape: tuple[int, ...], kind: str, seed: int) -> Array:
    made = rng(seed, *shape).standard_normal(shape)
    return made.astype(dtype_of(kind).numpy)


def equal(operands: list[Array], causal: bool = False, scale: float | None = None) -> None:
    step = gc.compile(lambda *a: gc.attention(*a, causal=causal, scale=scale), devices=GPU)
    got = np.asarray(step(*operands)).astype(np.float64)
    with np.errstate(all="ignore"):
        want = np.asarray(
            OPS["attention"].reference(*operands, causal=causal, scale=scale), np.float64
        )
    assert "fused_attention" in gc.show(step.stages(*operands)[-1].value)
    kind, size = (
        dtype_of(operands[0].dtype).name,
        np.abs(want[np.isfinite(want)]).max(initial=1e-30),
    )
    near = NEAR[kind] + largest_score(operands[0], operands[1], scale) * 2.0**-21
    np.testing.assert_allclose(got, want, rtol=0, atol=near * size, equal_nan=True)


def largest_score(q: Array, k: Array, scale: float | None) -> float:
    """A bound of the scores of numbers that are finite."""
    sizes = [
        np.linalg.norm(np.nan_to_num(x.astype(np.float64), posinf=0), axis=-1).max() for x in (q, k)
    ]
    return float(sizes[0] * sizes[1] * abs(q.shape[-1] ** -0.5 if scale is None else scale))


def shapes(number: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Queries, keys and values of a random case."""
    random = rng(77, number)
    lead = [(), (2,), (2, 4), (1, 2, 2)][number % 4]
    shared = [*lead]
    if lead and random.random() < 0.5:
        shared[-1] = random.choice([n for n in (1, 2, lead[-1]) if lead[-1] % n == 0])
    rows, keys = (int(n) for n in random.integers(1, sized(10, 300), 2))
    width, depth = (int(n) for n in random.integers(1, sized(12, 129), 2))
    if number % 3 == 0:
        width = depth = sized(8, 64)
    return (*lead, rows, width), (*shared, keys, width), (*shared, keys, depth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(sized(8, 24)))
def test_random_shapes_and_masks(number: int, kind: str) -> None:
    q, k, v = shapes(number)
    operands = [drawn(shape, kind, place) for place, shape in enumerate((q, k, v))]
    random = rng(5, number)
    scores = (*q[:-1], k[-2])
    part = scores[int(random.integers(0, len(scores))) :]
    part = tuple(1 if random.random() < 0.3 else n for n in part)
    if number % 3 == 1:
        operands.append(random.random(part) < 0.5)
    elif number % 3 == 2:
        operands.append(drawn(part, kind, 3))
    equal(operands, causal=bool(number & 4), scale=[None, 0.5, -1.5][number % 3])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", sized([1, 5], [1, 12, 70]))
def test_few_queries_of_many_keys(queries: int, kind: str) -> None:
    keys = sized(70, 4001)
    q, k, v = (drawn((2, 2, n, 8), kind, n) for n in (queries, keys, keys))
    equal([q, k, v])
    mask = rng(3).random((keys,)) < 0.1
    mask[: keys // 2] = False
    equal([q, k, v, mask])
    equal([q, k, v, np.zeros(1, bool)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [(2, 2), (2, 1), (1, 1), (1, 8), (2, 8)])
def test_queries_of_heads_that_share_keys(shared: tuple[int, int], kind: str) -> None:
    q, keys = drawn((2, 8, 1, 8), kind, 1), sized(12, 700)
    k, v = (drawn((*shared, keys, 8), kind, n) for n in (2, 3))
    equal([q, k, v], causal=True)
    for part in ((8, 1, keys), (2, 1, 1, keys), (2, 8, 1, 1)):
        equal([q, k, v, rng(4, *part).random(part) < 0.7])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_see_nothing_are_the_mean(kind: str) -> None:
    q, k, v = (drawn((2, sized(9, 200), 8), kind, n) for n in range(3))
    mask = rng(1).random((q.shape[1], k.shape[1])) < 0.5
    mask[::3] = False
    for causal in (False, True):
        equal([q, k, v, mask], causal)
    fewer = [x[:, : x.shape[1] // 2] for x in (k, v)]
    equal([q, *fewer], causal=True)


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_no_numbers(kind: str) -> None:
    q, k, v = (drawn((3, sized(9, 150), 8), kind, n) for n in range(3))
    q[0, 2, 1] = np.nan
    k[1, 3, 2] = np.inf
    v[2, 4, 5] = np.nan
    equal([q, k, v])
    bias = drawn((q.shape[1], k.shape[1]), kind, 4)
    bias[1], bias[3, ::2], bias[5] = -np.inf, -np.inf, -6e4 if kind == "f16" else -1.7e38
    clean = [drawn(x.shape, kind, 9) for x in (q, k, v)]
    equal([*clean, bias])


def kernels_of(step: Any, *operands: Array) -> int:
    return str(gc.show(step.stages(*operands)[-1].value)).count("fused(")


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_read_as_they_lie(kind: str) -> None:
    rows = sized(5, 70)
    q, k, v = (drawn((2, rows, 3, 8), kind, n) for n in range(3))

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.swapaxes(1, 2) for x in (q, k[:, 1:], v[:, ::-1][:, 1:]))
        return gc.attention(q, k, v, causal=True).swapaxes(1, 2)

    def packed(x: Any) -> Any:
        q, k, v = x.reshape(2, rows, 3, 3, 8).transpose(2, 0, 3, 1, 4)
        return gc.attention(q, k, v)

    for function, operands in ((attend, (q, k, v)), (packed, (drawn((2, rows, 72), kind, 4),))):
        want = np.asarray(gc.compile(function, devices=["cpu:0"])(*operands)).astype(np.float64)
        step = gc.compile(function, devices=GPU)
        got = np.asarray(step(*operands)).astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=0, atol=NEAR[kind] * np.abs(want).max())
        assert kernels_of(step, *operands) == 1


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def plain(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return softmax(q @ k.swapaxes(-1, -2) * 0.3) @ v


def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return gc.softmax(bias + q @ k.swapaxes(-1, -2) / 3, axis=-1) @ v


def with_weights(q: Any, k: Any, v: Any, bias: Any) -> Any:
    weights = softmax(q @ k.swapaxes(-1, -2) + bias)
    return np.concatenate([weights @ v, weights], axis=-1)


def late_factor(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return softmax((q @ k.swapaxes(-1, -2) + bias) * 0.5) @ v


def other_axis(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return gc.softmax(q @ k.swapaxes(-1, -2), axis=-2) @ v


@pytest.mark.parametrize("function", [plain, biased, with_weights, late_factor, other_axis])
def test_attention_that_is_written_out(function: Any) -> None:
    lengths = sized((5, 9, 9), (50, 90, 90))
    q, k, v = (drawn((2, 2, n, 8), "f32", place) for place, n in enumerate(lengths))
    bias = drawn((2, 1, 1, lengths[1]), "f32", 3)
    step = gc.compile(function, devices=GPU)
    want = gc.compile(function, devices=["cpu:0"])(q, k, v, bias)
    np.testing.assert_allclose(step(q, k, v, bias), want, rtol=1e-4, atol=1e-5)
    shown = gc.show(step.stages(q, k, v, bias)[-1].value)
    assert ("fused_attention" in shown) == (function in (plain, biased))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(sized(3, 12)))
def test_gradients(number: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_attention, "GRADIENTS", True)
    dims = shapes(number)
    q, k, v = (drawn(shape, kind, place) for place, shape in enumerate(dims))
    ct = drawn((*q.shape[:-1], v.shape[-1]), kind, 4)
    seen = rng(5, number).random((q.shape[-2], k.shape[-2])) < 0.7
    mask = (seen,) if number % 3 == 2 else ()
    attrs: dict[str, Any] = {"causal": bool(number & 2), "scale": [None, 0.5][number % 2]}

    def pulled(q: Any, k: Any, v: Any, ct: Any) -> Any:
        return gc.vjp(lambda q, k, v: gc.attention(q, k, v, *mask, **attrs), q, k, v)[1](ct)

    step = gc.compile(pulled, devices=GPU)
    found = step(q, k, v, ct)
    made = OPS["attention"].reference(q, k, v, *mask, **attrs)
    wants = OPS["attention_backward"].reference(ct, made, q, k, v, *mask, **attrs)
    near = 16 * NEAR[kind] + largest_score(q, k, attrs["scale"]) * 2.0**-20
    largest = max(np.abs(want).max() for want in wants)
    for got, want in zip(found, wants, strict=True):
        np.testing.assert_allclose(
            np.asarray(got).astype(np.float64), want, rtol=0, atol=near * largest
        )
    whole = "fused_attention_backward" in gc.show(step.stages(q, k, v, ct)[-1].value)
    assert whole == (kind != "f32")


WARPS: list[tuple[tuple[int, int, int], int, bool, bool]] = [
    ((1, 20, 70), 16, False, True),
    ((1, 70, 20), 16, False, True),
    ((2, 18, 20), 20, True, False),
]


@pytest.mark.skipif(not SIMULATED, reason="a GPU has tensor cores")
@pytest.mark.parametrize(("lengths", "width", "masked", "causal"), WARPS)
def test_kernels_for_tensor_cores(
    lengths: tuple[int, int, int], width: int, masked: bool, causal: bool
) -> None:
    from attention_warps import BRAIN, drawn, run

    heads, rows, keys = lengths
    q, k, v = drawn([(heads, n, width) for n in (rows, keys, keys)], rows)
    mask = [rng(rows).random((rows, keys)) < 0.6] if masked else []
    attrs: dict[str, Any] = {"causal": causal, "scale": 0.3}
    made = np.zeros((heads, rows, width), BRAIN)
    run("fused_attention", [q, k, v, *mask], [made], **attrs)
    want = OPS["attention"].reference(q, k, v, *mask, **attrs)
    np.testing.assert_allclose(made.astype(np.float64), want, rtol=0, atol=0.02)
    (ct,) = drawn([made.shape], 9)
    found = [np.zeros(x.shape, BRAIN) for x in (q, k, v)]
    run("fused_attention_backward", [ct, made, q, k, v, *mask], found, **attrs)
    wants = OPS["attention_backward"].reference(ct, made, q, k, v, *mask, **attrs)
    for got, want in zip(found, wants, strict=True):
        near = 0.02 * np.abs(want).max()
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=near)
