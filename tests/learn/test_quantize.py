"""Weights in few bits: products, looked-up rows and trees of them, compiled or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError

RNG = np.random.default_rng(3)


def normal(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype("f4")


def close(made: Any, wanted: Any) -> bool:
    return bool(
        np.abs(np.asarray(made) - wanted).max(initial=0) <= 1e-5 * np.abs(wanted).max(initial=1)
    )


# Bits, how many numbers share a scale, and the part of the largest of them that may be lost.
FORMS = [(8, None, 1 / 253), (8, 20, 1 / 253), (4, None, 1 / 8), (4, 8, 1 / 8)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("lead", [(), (1,), (2,), (3,), (64,), (300,), (2, 1), (0,)])
def test_products_are_those_of_the_matrix_it_stands_for(axis: int, lead: tuple[int, ...]) -> None:
    w, x = normal(150, 130), normal(*lead, 150)
    back = normal(*lead, 130)
    for bits, group, most in FORMS[axis :: 1 if lead == (3,) else 2]:
        q = gc.quantize(w, axis=axis, bits=bits, group=group)
        assert q.shape == (150, 130) and q.T.shape == (130, 150) and q.bits == bits
        dense = np.asarray(q.dense())
        line = np.abs(w).max(axis=axis, keepdims=True)
        assert (np.abs(dense - w) <= line * most).all()
        for run in (lambda x, q: x @ q, gc.compile(lambda x, q: x @ q)):
            assert close(run(x, q), x @ dense)
        assert close(gc.compile(lambda x, q: x @ q.T)(back, q), back @ dense.T)


@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 32)])
def test_rows_of_a_table(bits: int, group: int | None) -> None:
    q = gc.quantize(normal(200, 96), axis=1, bits=bits, group=group)
    ids = np.array([[0, 7], [199, -1]])
    dense = np.asarray(q.dense())
    assert close(gc.compile(lambda q, ids: q[ids])(q, ids), dense[ids])
    for rows in (ids, 3, [5, 6], slice(180, None, 3), dense[:, 0] > 0):
        assert close(q[rows], dense[rows])
    for row in (200, -201):
        with pytest.raises(IndexError):
            gc.compile(lambda q, ids: q[ids])(q, np.array([0, row]))
        with pytest.raises(IndexError):
            q[[row]]
    with pytest.raises(GraphError, match="axis=1"):
        q.T[ids]


def test_a_matrix_of_few_bits_is_few_bytes_and_is_saved(tmp_path: Path) -> None:
    w, x = normal(256, 160), normal(2, 256)
    eight, four = (gc.quantize(w, bits=bits) for bits in (8, 4))
    assert (eight.nbytes, four.nbytes) == (w.size + 4 * 160, w.size // 2 + 4 * w.size // 32)
    model = gc.compile(lambda x: np.tanh(x @ four) @ eight.T)
    model.save(str(tmp_path / "m.gir"), x)
    assert (tmp_path / "m.safetensors").stat().st_size < 1.05 * (eight.nbytes + four.nbytes)
    loaded = gc.load(str(tmp_path / "m.gir"))
    assert close(loaded(x), np.tanh(x @ np.asarray(four.dense())) @ np.asarray(eight.dense()).T)


def test_trees_keep_what_is_no_large_matrix() -> None:
    tree = {
        "w": normal(128, 129),
        "b": normal(129),
        "n": 3,
        "small": normal(4, 4),
        "d": normal(128, 128).astype("f8"),
    }
    made = gc.quantize(tree)
    assert type(made["w"]).__name__ == "Quantized"
    assert all(made[name] is tree[name] for name in ("b", "n", "small", "d"))
    layer = gc.compile(lambda p, x: np.tanh(x @ p["w"] + p["b"]))
    assert np.abs(layer(made, normal(5, 128)) - 0).max() <= 1
    assert len(layer.compiles) == 1


@pytest.mark.parametrize("bits", [8, 4])
def test_gradients_by_what_it_multiplies(bits: int) -> None:
    q, x = gc.quantize(normal(140, 130), bits=bits), normal(3, 140)
    slope = gc.compile(gc.grad(lambda x, q: ((x @ q) ** 2).sum()))(x, q)
    dense = np.asarray(q.dense())
    assert close(slope, 2 * (x @ dense) @ dense.T)


def test_odd_matrices() -> None:
    zero = gc.quantize(np.zeros((128, 128), "f4"))
    assert not np.asarray(zero.dense()).any()
    with pytest.raises(GraphError, match="NaN or infinite"):
        gc.quantize(np.full((128, 128), np.nan, "f4"))
    with pytest.raises(GraphError, match="axis must be 0 or 1"):
        gc.quantize(normal(128, 128), axis=2)
    with pytest.raises(GraphError, match="bits must be 8 or 4"):
        gc.quantize(normal(128, 128), bits=3)
    with pytest.raises(GraphError, match="a multiple of 8"):
        gc.quantize(normal(128, 128), bits=4, group=12)
    huge = gc.quantize(np.full((128, 128), 3e38, "f4"))
    assert np.isfinite(np.asarray(huge.dense())).all()
    assert gc.quantize(np.empty((0, 9), "f4"), least=0).shape == (0, 9)
    with np.errstate(divide="raise", invalid="raise"):
        tiny = gc.quantize(np.full((1, 2), 1e-45, "f4"), least=0)
    assert np.asarray(tiny.dense()).max() <= 1e-45


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(), (1,), (4, 1), (4, 63)])
def test_operands_of_another_depth_are_refused(axis: int, shape: tuple[int, ...]) -> None:
    q, x = gc.quantize(normal(64, 32), axis=axis, least=0), np.ones(shape, "f4")
    for product in (lambda x, q: x @ q, gc.compile(lambda x, q: x @ q)):
        with pytest.raises(GraphError, match=r"takes x\[\.\.\., 64\]"):
            product(x, q)


@pytest.mark.parametrize("function", [np.dot, np.inner, lambda x, q: np.einsum("ij,jk", x, q)])
def test_other_functions_say_what_a_quantized_matrix_takes_part_in(function):
    held = gc.quantize(np.ones((256, 128), np.float32))
    for call in (function, gc.compile(function)):
        with pytest.raises(gc.GraphError, match="is not an array") as caught:
            call(np.ones((2, 256), np.float32), held)
        assert "q.dense()" in str(caught.value)


def test_what_takes_part_in_products_does_so_under_their_names_and_is_no_array():
    x = normal(3, 64)
    q = gc.quantize(normal(64, 32), least=0)
    a = gc.sparse.csr(np.ones(1, "f4"), np.array([1]), np.array([0, 1] + [1] * 63), (64, 5))
    for factor in (q, a):
        product = gc.compile(lambda x, w: (np.matmul(x, w), x @ w))
        for given in (np.matmul(x, factor), *product(x, factor)):
            np.testing.assert_allclose(given, x @ factor, rtol=1e-3)
        for refused in (np.add, np.minimum, lambda x, w: x + w):
            for call in (refused, gc.compile(refused)):
                with pytest.raises(GraphError, match="is not an array"):
                    call(x, factor)
