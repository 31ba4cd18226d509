"""Models in 8 bits on both sides: ranges from samples, errors that are told, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen import gemm
from graphc.errors import GraphError

RNG = np.random.default_rng(5)


def normal(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype("f4")


W = [normal(40, 48) / 6, normal(48, 32) / 7]
KERNEL = normal(6, 3, 3, 3) / 5


def layers(x: Any) -> Any:
    hidden = np.maximum(x @ W[0], 0)
    return {"y": hidden @ W[1], "sum": hidden.sum(axis=-1)}


def images(x: Any) -> Any:
    return np.maximum(gc.conv(x, KERNEL, padding=1), 0)


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_every_method_is_close_and_says_how_close(method: str) -> None:
    samples = [normal(16, 40) for _ in range(3)]
    made = gc.quantize(layers, samples=samples, method=method)
    assert len(made.layers) == 2 and all(0 < e < 0.03 for e in made.layers.values())
    assert 0 < made.error < 0.03
    result, exact = made(samples[0]), gc.compile(layers)(samples[0])
    for name in ("y", "sum"):
        scale = np.abs(exact[name]).max()
        assert np.abs(np.asarray(result[name]) - np.asarray(exact[name])).max() < 0.05 * scale


def test_convolutions_of_samples_of_several_arguments() -> None:
    sample = normal(2, 3, 8, 9)
    made = gc.quantize(lambda x, y: images(x) + y, samples=[(sample, np.float32(1))])
    exact = np.asarray(gc.compile(images)(sample)) + 1
    assert np.abs(np.asarray(made(sample, np.float32(1))) - exact).max() < 0.05 * exact.max()


def test_outliers_cost_percentiles_less() -> None:
    sample = normal(64, 40)
    sample[3, 5] = 400.0
    found = {
        m: gc.quantize(layers, samples=[sample], method=m, percentile=99.9)
        for m in ("minmax", "percentile")
    }
    usual = np.arange(64) != 3
    exact = np.asarray(gc.compile(layers)(sample)["y"])[usual]
    errors = {m: np.abs(np.asarray(q(sample)["y"])[usual] - exact).max() for m, q in found.items()}
    assert errors["percentile"] < errors["minmax"] / 4


@pytest.mark.skipif(
    not gemm.host_target().fast_bytes, reason="this CPU does not multiply bytes fast"
)
def test_the_bytes_themselves_are_multiplied() -> None:
    made = gc.quantize(layers, samples=[normal(16, 40)])
    stages = {name: note for name, _, _, note in made.compiled.stages(normal(16, 40))}
    assert sum("byte product" in text for _, text in stages["choose_integers"].reasons) == 2


def test_zeros_and_constant_samples() -> None:
    made = gc.quantize(layers, samples=[np.zeros((4, 40), "f4")])
    assert np.asarray(made(np.zeros((4, 40), "f4"))["y"]).tolist() == np.zeros((4, 32)).tolist()
    assert made.error == 0


def test_refusals() -> None:
    with pytest.raises(GraphError, match="method"):
        gc.quantize(layers, samples=[normal(2, 40)], method="best")
    for percentile in (10, 0, "99", [99.0], float("nan")):
        with pytest.raises(GraphError, match="percentile"):
            gc.quantize(layers, samples=[normal(2, 40)], percentile=percentile)
    for function, samples in ((layers, []), (layers, 5), (layers, "ab"), (None, [normal(2, 40)])):
        with pytest.raises(GraphError, match="samples"):
            gc.quantize(function, samples=samples)
    with pytest.raises(GraphError, match="samples"):
        gc.quantize(layers)
    with pytest.raises(GraphError, match="constant"):
        gc.quantize(lambda x, w: x @ w, samples=[(normal(2, 4), normal(4, 3))])
    with pytest.raises(GraphError, match="NaN"):
        gc.quantize(layers, samples=[np.full((2, 40), np.nan, "f4")])


def test_other_batches_and_dtypes_are_told_of_the_samples() -> None:
    model = gc.quantize(layers, samples=[normal(4, 40)])
    for wrong in (normal(2, 40), normal(4, 40).astype(np.float64)):
        with pytest.raises(gc.FeedError, match=r"x is .*, the graph takes f32\[4,40\]") as caught:
            model(wrong)
        assert "samples" in (caught.value.hint or "")


def test_a_saved_model_returns_what_the_model_does(tmp_path: Path) -> None:
    x = normal(4, 40)
    model = gc.quantize(layers, samples=[x])
    model.save(tmp_path / "model.gir")
    made = gc.load(tmp_path / "model.gir")(x)
    for name, wanted in model(x).items():
        np.testing.assert_array_equal(made[name], wanted)


def test_models_that_were_loaded(tmp_path: Path) -> None:
    """Their products lie in a graph of their own, which the function calls."""
    x = normal(4, 40)
    gc.compile(layers).save(tmp_path / "model.gir", x)
    model = gc.load(tmp_path / "model.gir")
    exact = model(x)["y"]
    for function in (model, lambda x: model(x)):
        made = gc.quantize(function, samples=[x])
        assert len(made.layers) == 2
        assert np.abs(made(x)["y"] - exact).max() < 0.05 * np.abs(exact).max()
