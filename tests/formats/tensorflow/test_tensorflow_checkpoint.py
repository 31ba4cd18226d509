"""Checkpoints of TensorFlow are read without it, and damaged ones refused."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tensor_bundle import write_checkpoint

import graphc as gc
from graphc.cli.common import _load
from graphc.formats.tensorflow.checkpoint import DTYPES, read_checkpoint


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {f"layer/{k}": rng.integers(0, 2, (2, k)).astype(e) for k, e in DTYPES.items()}
    return {**made, "layer": np.zeros((0, 3), np.float32), "scalar": np.float64(2.5).reshape(())}


def test_every_type(tmp_path: Path) -> None:
    wanted = arrays()
    write_checkpoint(tmp_path / "ckpt", wanted)
    for path in (tmp_path / "ckpt", tmp_path / "ckpt.index"):
        found = read_checkpoint(path)
        assert found.keys() == wanted.keys()
        for name, array in found.items():
            assert array.dtype == wanted[name].dtype and np.array_equal(array, wanted[name])


def test_mutated_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "ckpt", arrays())
    index = tmp_path / "ckpt.index"
    whole, rng = index.read_bytes(), np.random.default_rng(1)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        index.write_bytes(bytes(data[: rng.integers(len(data))] if rng.random() < 0.2 else data))
        with suppress(gc.GraphError):
            read_checkpoint(index)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(gc.GraphError, match="cannot read"):
        read_checkpoint(tmp_path / "ckpt")
    write_checkpoint(tmp_path / "ckpt", arrays())
    (tmp_path / "ckpt.data-00000-of-00001").write_bytes(b"short")
    with pytest.raises(gc.GraphError, match="is damaged"):
        read_checkpoint(tmp_path / "ckpt")


def test_weights_change_their_format(tmp_path: Path) -> None:
    """A checkpoint to .safetensors to .npz and back: the same bits under the same names."""
    wanted = {
        n: a for n, a in arrays().items() if a.dtype.kind != "c" and a.dtype.name != "bfloat16"
    }
    write_checkpoint(tmp_path / "ckpt", wanted)
    for source, target in (("ckpt.index", "a.safetensors"), ("a.safetensors", "b.npz")):
        gc.convert(tmp_path / source, tmp_path / target)
    with np.load(tmp_path / "b.npz") as found:
        assert set(found) == wanted.keys()
        assert all(
            np.array_equal(found[n], a) and found[n].dtype == a.dtype for n, a in wanted.items()
        )
    with pytest.raises(gc.GraphError, match="weights alone"):
        gc.convert(tmp_path / "b.npz", tmp_path / "c.onnx")
    whole, rng = (tmp_path / "b.npz").read_bytes(), np.random.default_rng(2)
    for _ in range(200):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(256)
        (tmp_path / "b.npz").write_bytes(bytes(data))
        with suppress(gc.GraphError):
            gc.convert(tmp_path / "b.npz", tmp_path / "d.safetensors")


def test_a_header_that_breaks_off_is_refused(tmp_path: Path) -> None:
    """NumPy's reader of headers raises an error of Python's tokenizer there."""
    header = b"{'descr': '<f4', 'shape': (3,\x0b".ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(12)
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(gc.GraphError, match="is damaged"):
        gc.convert(tmp_path / "a.npz", tmp_path / "b.safetensors")
    for name in ("a.npy", "a.npz"):
        with pytest.raises(gc.FeedError, match="is not a"):
            _load(tmp_path / name)
    reader = gc.Reader(str(tmp_path / "a.npz"), {"x": gc.spec((), "f32")}, batch=1)
    with pytest.raises(gc.GraphError, match="'x'"):
        gc.compile(lambda: reader.next()["x"])()
