"""Weights between worlds: Keras, PyTorch and gc.nn hold the same model."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from effort import crossed, rounds
from tensor_bundle import write_checkpoint

import graphc as gc

nn = gc.nn


def part_of(name: str, width: int) -> tuple[Any, Any, tuple[int, ...]]:
    """A layer, its twin in PyTorch and the shape of its input."""
    heads = 2 if width == 10 else 4
    return {
        "dense": (nn.Dense(width, 20), torch.nn.Linear(width, 20), (10, width)),
        "norm": (nn.LayerNorm(width, 1e-6), torch.nn.LayerNorm(width, 1e-6), (10, width)),
        "batch": (nn.BatchNorm(width), torch.nn.BatchNorm1d(width), (10, width)),
        "conv": (nn.Conv(3, 4, 3), torch.nn.Conv2d(3, 4, 3), (10, 3, 6, width)),
        "gru": (nn.GRU(width, 7), torch.nn.GRU(width, 7, batch_first=True), (10, 3, width)),
        "lstm": (nn.LSTM(width, 7), torch.nn.LSTM(width, 7, batch_first=True), (10, 3, width)),
        "attention": (
            nn.MultiHeadAttention(width, heads),
            torch.nn.MultiheadAttention(width, heads, batch_first=True),
            (10, 3, width),
        ),
    }[name]


def two_biases(name: str) -> bool:
    return name == "lstm"  # Keras keeps their sum


@pytest.mark.parametrize(
    ("name", "width"),
    crossed(["dense", "norm", "batch", "conv", "gru", "lstm", "attention"], [10, 100]),
)
def test_there_and_back(name: str, width: int) -> None:
    """PyTorch -> gc.nn -> Keras -> gc.nn -> PyTorch: the same bits, and the same results."""
    layer, twin, shape = part_of(name, width)
    twin.eval()
    given = {key: value.numpy() for key, value in twin.state_dict().items()}
    params, state = nn.load_state_dict(layer, given)
    there = nn.keras_weights(layer, params, state)
    again = nn.load_keras(layer, there)
    back = nn.state_dict(layer, *again)
    for key, array in back.items():
        if not two_biases(name) or "bias" not in key:
            assert np.array_equal(array, given[key]), key
    direct = nn.state_dict(layer, params, state)
    assert all(np.array_equal(direct[key], given[key]) for key in direct)

    call = gc.compile(lambda params, state, x: layer(params, x, state))
    rng = np.random.default_rng(0)
    for _ in range(rounds(20)):
        x = rng.standard_normal(shape).astype(np.float32)
        with torch.no_grad():
            inputs = (torch.from_numpy(x),) * (3 if name == "attention" else 1)
            wanted = twin(*inputs)
        wanted = (wanted[0] if isinstance(wanted, tuple) else wanted).numpy()
        np.testing.assert_allclose(call(*again, x), wanted, rtol=1e-5, atol=1e-6)


def model() -> tuple[Any, Any, Any]:
    made = nn.Sequential(
        nn.Embedding(9, 4),
        nn.GRU(4, 3),
        nn.LSTM(3, 3),
        nn.GRU(3, 3, reset_after=False),
        nn.LayerNorm(3),
        nn.Dense(3, 4),
        nn.BatchNorm(4, axis=2),
        nn.MultiHeadAttention(4, 2),
        nn.Dense(4, 2, bias=False),
    )
    return made, made.init(gc.random.key(1)), made.state()


def h5_bytes(weights: list[Any]) -> bytes:
    """The weights of `model` as Keras groups them."""
    h5py = pytest.importorskip("h5py", reason="h5py reads weights of Keras")
    buffer = io.BytesIO()
    groups = (
        *("embedding", "gru/cell", "lstm/cell", "gru_1/cell"),
        *("layer_normalization", "dense", "batch_normalization"),
        *(f"multi_head_attention/{part}_dense" for part in ("query", "key", "value", "output")),
        "dense_1",
    )
    counts = (1, 3, 3, 3, 2, 2, 4, 2, 2, 2, 2, 1)
    rest = iter(weights)
    with h5py.File(buffer, "w") as file:
        for group, count in zip(groups, counts, strict=True):
            held = file.create_group(f"layers/{group}/vars")
            for k in range(count):
                held[str(k)] = next(rest)
    return buffer.getvalue()


def test_files_of_keras(tmp_path: Path) -> None:
    layer, params, state = model()
    weights = nn.keras_weights(layer, params, state)
    data = h5_bytes(weights)
    (tmp_path / "m.weights.h5").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("model.weights.h5", data)
    for name in ("m.weights.h5", "m.keras"):
        found = nn.keras_weights(layer, *nn.load_keras(layer, tmp_path / name))
        assert len(found) == len(weights)
        assert all(np.array_equal(a, b) for a, b in zip(found, weights))
    rng = np.random.default_rng(0)
    for _ in range(10):  # damaged files
        changed = bytearray(data)
        for at in rng.integers(0, len(data), 8):
            changed[at] = rng.integers(256)
        (tmp_path / "m.weights.h5").write_bytes(bytes(changed))
        with suppress(gc.GraphError):
            nn.load_keras(layer, tmp_path / "m.weights.h5")


def test_bf16_in_files_of_keras(tmp_path: Path) -> None:
    """HDF5 has no such type: arrays lie there as two bytes of no type, and a word beside them."""
    h5py = pytest.importorskip("h5py", reason="h5py reads weights of Keras")
    weight, bias = np.arange(6).reshape(3, 2).astype("bfloat16"), np.ones(2, "bfloat16")
    with h5py.File(tmp_path / "m.weights.h5", "w") as file:
        for k, array in enumerate((weight, bias)):
            file[f"layers/dense/vars/{k}"] = array.view("V2")
            file[f"layers/dense/vars/{k}"].attrs["dtype"] = "bfloat16"
    params, _ = nn.load_keras(nn.Dense(3, 2), tmp_path / "m.weights.h5")
    for found, wanted in ((params["weight"], weight), (params["bias"], bias)):
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


def test_checkpoints_and_misfits(tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Dense(3, 4), nn.relu, nn.Dense(4, 2))
    params = layer.init(gc.random.key(0))
    weights = nn.keras_weights(layer, params)
    names = [f"model/_operations/{k}/{n}" for k in (1, 3) for n in ("_kernel", "bias")]
    named = {f"{n}/.ATTRIBUTES/VARIABLE_VALUE": w for n, w in zip(names, weights)}
    extra = {"optimizer/_operations/1/_kernel/.ATTRIBUTES/VARIABLE_VALUE": weights[0]}
    write_checkpoint(tmp_path / "ckpt", {**named, **extra})
    found, _ = nn.load_keras(layer, tmp_path / "ckpt.index")
    assert np.array_equal(found[2]["weight"], params[2]["weight"])
    with pytest.raises(gc.CheckpointError, match="do not fit"):
        nn.load_keras(nn.Sequential(nn.Dense(3, 5), nn.Dense(4, 2)), tmp_path / "ckpt.index")
    with pytest.raises(gc.CheckpointError, match="do not fit"):
        nn.load_keras(layer, [*weights, weights[0]])
