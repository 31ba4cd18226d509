"""Weights in few bits: products, looked-up rows and trees of them, compiled or not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from effort import slow

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
@pytest.mark.parametrize("lead", [(), (2,), (3,), (300,), (0,), *map(slow, ((1,), (64,), (2, 1)))])
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
    assert close(gc.compile(lambda ids: q[ids])(ids), dense[ids])
    assert close(gc.compile(lambda q: q[ids])(q), dense[ids])
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


# Formats, how many numbers share a scale, and the part of a number, or of the largest beside it,
# that may be lost.
FLOATS = [
    ("e4m3", None, 1 / 16, 2**-10 / 448),
    slow("e5m2", None, 1 / 8, 2**-17 / 57344),
    ("e4m3", 20, 1 / 16, 2**-10 / 448),
    slow("mxfp8", None, 1 / 16 + 1 / 8, 2**-10 / 256),
    ("mxfp4", None, 1 / 4, 1 / 16),
]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("format", "group", "part", "least"), FLOATS)
def test_floats_of_few_bits(
    axis: int, format: str, group: int | None, part: float, least: float
) -> None:
    w = normal(150, 130) * np.exp(normal(150, 1))
    q = gc.quantize(w, axis=axis, format=format, group=group)
    dense, line = np.asarray(q.dense()), np.abs(w).max(axis=axis, keepdims=True)
    assert (np.abs(dense - w) <= np.maximum(np.abs(w) * part, line * least)).all()
    faked = gc.compile(lambda w: gc.fake_quantize(w, axis=axis, format=format, group=group))(w)
    np.testing.assert_allclose(faked, dense, rtol=2e-7)
    for rows in (1, 3, 9, 300):
        x, back = normal(rows, 150), normal(rows, 130)
        for run in (lambda x, q: x @ q, gc.compile(lambda x, q: x @ q)):
            assert close(run(x, q), x @ dense)
        assert close(gc.compile(lambda x, q: x @ q.T)(back, q), back @ dense.T)
    slope = gc.compile(gc.grad(lambda x, q: (x @ q).sum()))(x, q)
    assert close(slope, np.ones((300, 130)) @ dense.T)
    if axis == 1:
        ids = np.array([[3], [-1]])
        assert np.array_equal(gc.compile(lambda q: q[ids])(q), dense[ids])


@pytest.mark.parametrize(("format", "power"), [("mxfp8", 8), ("mxfp4", 2)])
def test_scales_of_microscaling_are_powers_of_two(format: str, power: int, tmp_path: Path) -> None:
    """2 to the exponent of the largest of 32, less that of the largest of the format."""
    w, x = normal(64, 256), normal(2, 256)
    parts = w.reshape(64, 8, 32)
    step = 2.0 ** (np.floor(np.log2(np.abs(parts).max(axis=2, keepdims=True))) - power)
    kind, most = (ml_dtypes.float8_e4m3fn, 448) if power == 8 else (ml_dtypes.float4_e2m1fn, 6)
    numbers = np.clip(parts / step, -most, most).astype("f4").astype(kind).astype("f4")
    q = gc.quantize(w, axis=1, format=format)
    dense = np.asarray(q.dense())
    assert np.array_equal(dense, (numbers * step).reshape(64, 256))
    assert q.scales.dtype == np.uint8 and q.nbytes == w.size * q.bits // 8 + w.size // 32
    gc.compile(lambda x: x @ q.T).save(str(tmp_path / "m.gir"), x)
    loaded = gc.load(str(tmp_path / "m.gir"))
    assert close(loaded(x), x @ dense.T)


def test_files_of_one_format_are_not_read_as_another(tmp_path: Path) -> None:
    w, x = normal(32, 48), normal(2, 32)
    held = [gc.quantize(w, least=0), *(gc.quantize(w, least=0, format=f) for f in ("e4m3", "e5m2"))]
    for k, q in enumerate(held):
        gc.save_checkpoint(tmp_path / "c.safetensors", {"q": q})
        for other in held:
            if other is q:
                tree, _ = gc.load_checkpoint(tmp_path / "c.safetensors", {"q": q})
                assert np.array_equal(x @ tree["q"], x @ q), k
            else:
                with pytest.raises(gc.CheckpointError):
                    gc.load_checkpoint(tmp_path / "c.safetensors", {"q": other})


@pytest.mark.parametrize("format", ["e4m3", "e5m2", "mxfp8", "mxfp4"])
def test_sums_are_as_large_as_those_of_the_matrix(format: str) -> None:
    q = gc.quantize(normal(32, 48), least=0, format=format)
    x = np.full((1, 32), 1e37, "f4")
    assert np.isfinite(x @ np.asarray(q.dense())).all()
    assert np.allclose(
        gc.compile(lambda x, q: x @ q)(x, q), x @ np.asarray(q.dense()), rtol=1e-4, atol=1e33
    )


@pytest.mark.parametrize("format", ["e4m3", "e5m2", "mxfp8", "mxfp4"])
def test_odd_matrices_as_floats(format: str) -> None:
    for fill in (0, 3e38, 1e-45, -1e-38, 2.0**-120):
        w = np.full((128, 128), fill, "f4")
        w[::2] /= 3
        dense = np.asarray(gc.quantize(w, format=format).dense())
        assert (np.abs(dense.astype("f8") - w) <= np.abs(w).max() / 4 + 2.0**-128).all()
    for shape, axis in (((0, 9), 0), ((9, 0), 1), ((1, 1), 0)):
        q = gc.quantize(np.ones(shape, "f4"), axis, least=0, format=format)
        product = gc.compile(lambda x, q: x @ q)(np.ones((3, shape[0]), "f4"), q)
        assert np.array_equal(product, np.ones((3, shape[0])) @ np.ones(shape))
    with pytest.raises(GraphError, match="NaN or infinite"):
        gc.quantize(np.full((128, 128), np.inf, "f4"), format=format)
    with pytest.raises(GraphError, match=f"in {format}, got 2"):
        gc.quantize(normal(128, 128), format=format, bits=2)
    with pytest.raises(GraphError, match="a multiple of"):
        gc.quantize(normal(128, 128), format=format, group=2)
    with pytest.raises(GraphError, match="to bytes"):
        gc.fake_quantize(normal(8, 8), format=format, limits=(0, 1))
    with pytest.raises(GraphError, match="to bytes"):
        gc.quantize(lambda x: x, samples=[normal(2)], format=format)
    with pytest.raises(GraphError, match="format must be one of e4m3"):
        gc.quantize(normal(128, 128), format="fp8")


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
    for shape, axis in (((0, 9), 0), ((9, 0), 0), ((0, 9), 1), ((9, 0), 1), ((0, 0), 0)):
        q = gc.quantize(np.empty(shape, "f4"), axis, least=0)
        assert q.shape == shape
        for n, held in zip(shape, (q, q.T)):
            product = gc.compile(lambda x, q: x @ q)(np.ones((3, n), "f4"), held)
            assert np.array_equal(product, np.zeros((3, held.shape[1]), "f4"))
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
            assert close(given, x @ factor)
        for refused in (np.add, np.minimum, lambda x, w: x + w):
            for call in (refused, gc.compile(refused)):
                with pytest.raises(GraphError, match="is not an array"):
                    call(x, factor)


@pytest.mark.slow
def test_layers_take_their_matrices_in_few_bits() -> None:
    net = gc.nn.Sequential(
        gc.nn.Embedding(30, 64), gc.nn.LSTM(64, 32), gc.nn.GRU(32, 48), gc.nn.Dense(48, 30)
    )
    params = net.init(gc.random.key(1))
    table, *others = params
    for bits in (8, 4):
        by_rows = gc.quantize(table, axis=1, bits=bits, least=1000)
        made = [by_rows, *gc.quantize(others, bits=bits, least=1000)]
        exact = [{k: getattr(w, "dense", lambda w=w: w)() for k, w in p.items()} for p in made]
        ids = RNG.integers(0, 30, (2, 7))
        run = gc.compile(lambda p, ids: net(p, ids))
        assert close(run(made, ids), run(exact, ids))


# ------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("bits", "group"), [(8, None), (8, 12), (4, None), (4, 16)])
@pytest.mark.parametrize("shape", [(50, 70), (1, 1), (0, 5), (33, 8)])
def test_training_sees_what_will_be_kept(
    axis: int, bits: int, group: int | None, shape: tuple[int, int]
) -> None:
    w = normal(*shape)
    kept = np.asarray(gc.quantize(w, axis=axis, bits=bits, group=group, least=0).dense())

    def loss(w: Any) -> Any:
        made = gc.fake_quantize(w, bits, axis, group)
        return (made * np.arange(w.size, dtype="f4").reshape(shape)).sum(), made

    slope, made = gc.compile(gc.grad(loss, has_aux=True))(w)
    assert close(made, kept) and close(gc.fake_quantize(w, bits, axis, group), kept)
    assert np.array_equal(slope, np.arange(w.size).reshape(shape))


def test_numbers_beyond_the_limits_become_their_ends_without_gradient() -> None:
    x = np.array([-3, -1, -0.2, 0, 0.3, 2, 5, 2.0001], "f4")
    made, slope = gc.compile(
        lambda x: (
            gc.fake_quantize(x, limits=(-1, 2)),
            gc.grad(lambda x: gc.fake_quantize(x, limits=(-1, 2)).sum())(x),
        )
    )(x)
    assert np.abs(made - np.clip(x, -1, 2)).max() < 3 / 255 and made[3] == 0
    assert np.array_equal(slope[[0, 2, 4, 6]], [0, 1, 1, 0])
    for bits, limits in ((4, (0, 1)), (8, (1, 1)), (8, (0, np.nan))):
        with pytest.raises(GraphError, match="two finite numbers"):
            gc.fake_quantize(x, bits, limits=limits)
    with pytest.raises(GraphError, match="limits="):
        gc.fake_quantize(x)


@pytest.mark.parametrize(
    "limits", [(1, 0), (0, 0), (0, 1e300), (0, 1e-40), (0, np.nan), (0,), 3, "ab"]
)
def test_limits_that_are_none_are_refused(limits: Any) -> None:
    with pytest.raises(GraphError):
        gc.fake_quantize(normal(2, 2), limits=limits)


def test_training_with_rounded_weights_ends_with_better_ones() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((256, 8)) @ rng.standard_normal((8, 32))).astype("f4")
    exact = rng.standard_normal((32, 24)).astype("f4")
    y = x @ exact

    def loss(w: Any, rounding: bool) -> Any:
        made = x @ (gc.fake_quantize(w, 4) if rounding else w) - y
        return (made * made).mean()

    step = gc.compile(lambda w: w - np.float32(0.01) * gc.grad(lambda w: loss(w, True))(w))
    w = exact
    for _ in range(60):
        w = step(w)
    before, after = (
        loss(np.asarray(gc.quantize(m, bits=4, least=0).dense()), False) for m in (exact, w)
    )
    assert after < 0.8 * before


@pytest.mark.parametrize("option", [{"method": "mse"}, {"percentile": 99.0}])
def test_what_is_said_of_samples_wants_samples(option: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match="there are none"):
        gc.quantize({"w": np.ones((256, 256), np.float32)}, **option)


@pytest.mark.parametrize("option", [{"bits": 4}, {"group": 32}, {"format": "mxfp4"}])
def test_functions_are_quantized_to_bytes_alone(option: dict[str, Any]) -> None:
    w, x = (np.ones((8, 8), np.float32) for _ in range(2))
    with pytest.raises(GraphError, match="to bytes, not to"):
        gc.quantize(lambda x: x @ w, samples=[x], **option)


def test_options_that_do_not_exist_are_named() -> None:
    for tree in ([normal(256, 64)], lambda x: x):
        with pytest.raises(GraphError, match="there is no option 'bit'") as caught:
            gc.quantize(tree, bit=4)
        assert "bits" in (caught.value.hint or "")
    with pytest.raises(GraphError, match="there is no option 'methd'") as caught:
        gc.quantize(lambda x: x, samples=[normal(2, 2)], methd="mse")
    assert "method" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ([np.ones((256, 64), np.int32)], "1 is of int32"),
        ({"w": np.ones((256, 64))}, "1 is of float64"),
        ([normal(3), normal(4)], "2 are of rank 1"),
        ((normal(16, 16),), "1 is of fewer than least=16384 numbers"),
        ([], "holds no array"),
    ],
)
def test_a_tree_of_which_nothing_is_quantized_says_why(tree: Any, text: str) -> None:
    with pytest.warns(gc.GraphHint, match=f"nothing was quantized: .*{text}") as caught:
        gc.quantize(tree)
    assert caught[0].filename.endswith("test_quantize.py")


def test_a_tree_of_which_something_is_quantized_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.quantize([normal(256, 64), normal(3), np.arange(3)])
