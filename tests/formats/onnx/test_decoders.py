"""Operators of com.microsoft that language models are exported with, beside NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
from onnx_operators import floats, rng, run, softmax

HEADS, SHARED, SIZE = 4, 2, 8
ANGLES = rng.uniform(-3, 3, (16, SIZE // 2))


def turned(x: Any, places: Any, interleaved: bool) -> Any:
    """x[..., length, size] as complex numbers times those of the angles."""
    half = x.shape[-1] // 2
    real, other = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    made = (real + 1j * other) * np.exp(1j * ANGLES[places])
    parts = [made.real, made.imag]
    return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("more", [0, 4])
@pytest.mark.parametrize("rank", [3, 4])
def test_columns_are_turned_by_the_angles_of_their_places(
    interleaved: int, more: int, rank: int
) -> None:
    x = floats(2, HEADS, 5, SIZE + more)
    places = rng.integers(0, 16, (2, 5))
    wanted = x.copy()
    wanted[..., :SIZE] = turned(x[..., :SIZE], places[:, None], bool(interleaved))
    attributes = {"interleaved": interleaved}
    if rank == 3:
        x, wanted = (a.swapaxes(1, 2).reshape(2, 5, -1) for a in (x, wanted))
        attributes |= {"num_heads": HEADS, "rotary_embedding_dim": SIZE}
    tables = [f(ANGLES).astype(np.float32) for f in (np.cos, np.sin)]
    (made,) = run("RotaryEmbedding", [x, places, *tables], **attributes)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def attended(q: Any, k: Any, v: Any, window: int, cap: float) -> Any:
    """Causal attention [batch, length, heads * size] of all rows at once."""
    q, k, v = (x.reshape(*x.shape[:2], -1, SIZE).swapaxes(1, 2) for x in (q, k, v))
    at = np.arange(q.shape[2])
    q, k = turned(q, at, False), turned(k, at, False)
    k, v = (x.repeat(HEADS // SHARED, 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(SIZE)
    scores = cap * np.tanh(scores / cap) if cap else scores
    seen = at <= at[:, None]
    if window > 0:
        seen &= at > at[:, None] - window
    made = softmax(np.where(seen, scores, -np.inf)) @ v
    return made.swapaxes(1, 2).reshape(*q.shape[:1], q.shape[2], -1)


@pytest.mark.parametrize(("window", "cap"), [(-1, 0.0), (3, 0.0), (-1, 2.0)])
@pytest.mark.parametrize("packed", [False, True])
def test_a_text_read_in_parts_is_attended_as_a_whole(window: int, cap: float, packed: bool) -> None:
    widths = [n * SIZE for n in (HEADS, SHARED, SHARED)]
    q, k, v = (floats(2, 7, width) for width in widths)
    wanted = attended(q, k, v, window, cap)
    tables = [f(ANGLES).astype(np.float32) for f in (np.cos, np.sin)]
    past = [floats(2, SHARED, 0, SIZE)] * 2
    for first, last in pairwise((0, 4, 5, 7)):
        parts = [x[:, first:last] for x in (q, k, v)]
        given = [np.concatenate(parts, -1), None, None] if packed else parts
        made, *past = run(
            "GroupQueryAttention",
            [*given, *past, np.full(2, last - 1, np.int32), np.asarray(last, np.int32), *tables],
            3,
            num_heads=HEADS,
            kv_num_heads=SHARED,
            do_rotary=1,
            local_window_size=window,
            softcap=cap,
        )
        np.testing.assert_allclose(made, wanted[:, first:last], rtol=1e-3, atol=1e-5)


def test_shorter_texts_of_a_batch_go_on_where_they_ended() -> None:
    q, k, v = (floats(2, 1, n * SIZE) for n in (HEADS, SHARED, SHARED))
    past = [floats(2, SHARED, 5, SIZE) for _ in range(2)]
    names = {"num_heads": HEADS, "kv_num_heads": SHARED}
    both = [q, k, v, *past, np.array([5, 3], np.int32), np.asarray(6, np.int32)]
    made = run("GroupQueryAttention", both, 3, **names)[0]
    short = [x[1:] for x in (q, k, v)] + [x[1:, :, :3] for x in past]
    alone = [*short, np.array([3], np.int32), np.asarray(4, np.int32)]
    wanted = run("GroupQueryAttention", alone, 3, **names)[0]
    np.testing.assert_allclose(made[1:], wanted, rtol=1e-4, atol=1e-6)


def few_bits(rows: int, depth: int, bits: int, block: int) -> tuple[Any, Any]:
    """Integers [rows, depth filled up] and the bytes that hold them, the lowest bits first."""
    full = -(-depth // block) * block
    integers = rng.integers(0, 1 << bits, (rows, full)).astype(np.uint8)
    parts = integers.reshape(rows, -1, 8 // bits) << (np.arange(8 // bits) * bits).astype(np.uint8)
    return integers, np.bitwise_or.reduce(parts, -1).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("depth", "block"), [(64, 16), (50, 32)])
@pytest.mark.parametrize("zeros", ["", "few bits", "numbers", "bfloat16"])
def test_products_by_blocks_of_few_bits(bits: int, depth: int, block: int, zeros: str) -> None:
    integers, data = few_bits(20, depth, bits, block)
    blocks = integers.shape[1] // block
    scales, bias = floats(20, blocks), floats(20)
    starts, held = np.full((20, blocks), 1 << (bits - 1)), None
    if zeros == "few bits":
        whole, held = few_bits(20, blocks, bits, 8 // bits)
        starts = whole[:, :blocks].astype(np.int64)
    elif zeros:
        held = floats(20, blocks).astype(np.float32 if zeros == "numbers" else ml_dtypes.bfloat16)
        starts = held.astype(np.float32)
    dense = (integers - starts.repeat(block, 1)) * scales.repeat(block, 1)
    x = floats(2, 3, depth)
    (made,) = run(
        "MatMulNBits",
        [x, data.reshape(20, blocks, -1), scales, held, None, bias],
        constants=(1, 2, 3, 5),
        K=depth,
        N=20,
        bits=bits,
        block_size=block,
    )
    np.testing.assert_allclose(made, x @ dense[:, :depth].T + bias, rtol=1e-3, atol=1e-3)


def test_rows_of_a_table_of_few_bits() -> None:
    integers, data = few_bits(10, 64, 4, 32)
    scales, rows = floats(10, 2), rng.integers(0, 10, (2, 3))
    (made,) = run("GatherBlockQuantized", [data, rows, scales], constants=(0, 2), block_size=32)
    dense = (integers - 8.0) * scales.repeat(32, 1)
    np.testing.assert_allclose(made, dense[rows], rtol=1e-6)


def test_a_mask_of_first_and_last_keys() -> None:
    x, w, b = floats(2, 5, 8), floats(8, 24), floats(24)
    ends = np.array([5, 3, 0, 1], np.int32)
    at = np.arange(5)
    kept = ((at < ends[:2, None]) & (at >= ends[2:, None])).astype(np.int32)
    made = [run("Attention", [x, w, b, m], num_heads=2)[0] for m in (ends, kept)]
    np.testing.assert_allclose(*made, rtol=1e-5, atol=1e-6)


def test_a_product_with_its_activation() -> None:
    a, b, c = floats(3, 4), floats(5, 4), floats(5)
    (made,) = run("FusedGemm", [a, b, c], transB=1, alpha=0.5, activation="Relu")
    np.testing.assert_allclose(made, np.maximum(a @ b.T / 2 + c, 0), rtol=1e-5, atol=1e-6)
