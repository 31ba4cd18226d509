"""Weights of PyTorch in the layers of gc.nn: names, shapes, transposes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import CheckpointError
from graphc.runtime.files.tensors import encode_header, raw_bytes


def arrays(**shapes: tuple[int, ...]) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return {
        name.replace("__", "."): generator.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


WEIGHTS = {"0__weight": (4, 3), "0__bias": (4,), "2__weight": (2, 4), "2__bias": (2,)}
NET = nn.Sequential(nn.Dense(3, 4), nn.relu, nn.Dense(4, 2))


def reference(x: Any, w: dict[str, Any], one: str = "0", two: str = "2") -> Any:
    h = np.maximum(x @ w[f"{one}.weight"].T + w[f"{one}.bias"], 0)
    return h @ w[f"{two}.weight"].T + w[f"{two}.bias"]


def test_parts_are_called_by_their_places_or_by_given_names(tmp_path: Path) -> None:
    weights = arrays(**WEIGHTS)
    x = np.ones((2, 3), np.float32)
    params, state = nn.load_state_dict(NET, weights)
    assert state is None
    np.testing.assert_allclose(NET(params, x), reference(x, weights), rtol=1e-5)
    renamed = {f"net.{'in' if n[0] == '0' else 'out'}{n[1:]}": w for n, w in weights.items()}
    params, _ = nn.load_state_dict(NET, renamed, ["net.in", None, "net.out"])
    np.testing.assert_allclose(NET(params, x), reference(x, weights), rtol=1e-5)
    path = tmp_path / "w.safetensors"
    items = list(renamed.items())
    path.write_bytes(encode_header(items) + b"".join(raw_bytes(w) for _, w in items))
    params, _ = nn.load_state_dict(NET, path, ["net.in", None, "net.out"])
    np.testing.assert_allclose(NET(params, x), reference(x, weights), rtol=1e-5)


def test_what_does_not_fit_is_listed_at_once() -> None:
    weights = arrays(**{**WEIGHTS, "0__weight": (5, 3), "extra": (1,)})
    del weights["2.bias"]
    with pytest.raises(CheckpointError) as caught:
        nn.load_state_dict(NET, weights)
    text = str(caught.value)
    assert "0: weight is [3, 5], wanted is [3, 4]" in text
    assert "2: bias is nothing, wanted is [2]" in text and "extra is not wanted" in text


def test_running_statistics_become_state() -> None:
    weights = arrays(b__weight=(3,), b__bias=(3,), b__running_mean=(3,), b__running_var=(3,))
    weights["b.num_batches_tracked"] = np.array(7)
    params, state = nn.load_state_dict(nn.BatchNorm(3), weights, "b")
    assert sorted(params) == ["bias", "weight"] and sorted(state) == ["mean", "variance"]
    with pytest.raises(CheckpointError, match="running_var is missing"):
        nn.load_state_dict(nn.BatchNorm(3), {"b.running_mean": weights["b.running_mean"]}, "b")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"\x05" * 40)
    with pytest.raises(gc.GraphError, match="damaged"):
        nn.load_state_dict(NET, path)


def test_layers_of_a_live_module() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    images, rows = torch.randn(2, 3, 6, 6), torch.randn(2, 5, 8)
    pairs: list[tuple[Any, nn.Layer, Any]] = [
        (torch.nn.Conv2d(3, 4, 3), nn.Conv(3, 4, 3), images),
        (torch.nn.BatchNorm2d(3).eval(), nn.BatchNorm(3), images),
        (torch.nn.LayerNorm(8), nn.LayerNorm(8), rows),
        (torch.nn.Embedding(7, 3), nn.Embedding(7, 3), torch.arange(4)),
        (torch.nn.LSTM(8, 4, batch_first=True), nn.LSTM(8, 4), rows),
        (torch.nn.GRU(8, 4, batch_first=True), nn.GRU(8, 4), rows),
        (torch.nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiHeadAttention(8, 2), rows),
    ]
    for module, layer, x in pairs:
        params, state = nn.load_state_dict(layer, module)
        many = isinstance(module, torch.nn.MultiheadAttention)
        wanted = module(x, x, x) if many else module(x)
        wanted = wanted[0] if isinstance(wanted, tuple) else wanted
        made, _ = layer.apply(params, x.numpy(), state)
        np.testing.assert_allclose(made, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
