"""Files of weights on the command line: listed, converted, and told from models."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tensor_bundle import write_checkpoint

import graphc as gc


@pytest.fixture
def held(tmp_path):
    """The same arrays in every format."""
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.int64)}
    np.savez(tmp_path / "w.npz", **arrays)
    gc.convert(tmp_path / "w.npz", tmp_path / "w.safetensors")
    write_checkpoint(tmp_path / "ck", arrays)
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    write_checkpoint(tmp_path / "saved" / "variables" / "variables", arrays)
    return arrays


@pytest.mark.parametrize("name", ["w.npz", "w.safetensors", "ck.index", "ck", "saved"])
def test_weights_are_listed(name, held, run, tmp_path):
    status, out, _ = run("audit", tmp_path / name, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["total"] == {"arrays": 2, "parameters": 10, "bytes": 56}
    rows = {row["name"]: (row["dtype"], row["shape"], row["bytes"]) for row in found["weights"]}
    assert rows == {"a": ("float32", [2, 3], 24), "b": ("int64", [4], 32)}
    assert "10 parameters in 2 arrays (56 bytes)" in run("audit", tmp_path / name)[1]


@pytest.mark.parametrize("command", ["show", "bench", "run"])
def test_weights_are_no_model(command, held, run, tmp_path):
    for name in ("w.npz", "w.safetensors", "ck.index"):
        status, _, err = run(command, tmp_path / name)
        assert status == 1 and "holds weights, and no model" in err
        assert "graphc audit lists them" in err


def test_weights_of_keras_are_converted(run, tmp_path):
    """Every array of a .weights.h5 file under its place, and none from another file."""
    h5py = pytest.importorskip("h5py", reason="h5py reads weights of Keras")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with h5py.File(tmp_path / "m.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = array
        file["layers/dense_1/vars/0"] = array.astype("bfloat16").view("V2")
        file["layers/dense_1/vars/0"].attrs["dtype"] = "bfloat16"
        file["words"] = ["no", "numbers"]
    assert run("convert", tmp_path / "m.weights.h5", "-o", tmp_path / "m.npz")[0] == 0
    found = json.loads(run("audit", tmp_path / "m.npz", "--json")[1])["weights"]
    assert {row["name"]: row["dtype"] for row in found} == {
        "layers/dense/vars/0": "float32",
        "layers/dense_1/vars/0": "bfloat16",
    }
    with h5py.File(tmp_path / "m.weights.h5", "a") as file:
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/a")
    status, _, err = run("audit", tmp_path / "m.weights.h5")
    assert status == 1 and "m.weights.h5 is damaged" in err and "is a link" in err


def test_weights_of_keras_that_are_linked_twice_are_refused(tmp_path):
    """Twenty groups with two links each are a million paths."""
    h5py = pytest.importorskip("h5py", reason="h5py reads weights of Keras")
    with h5py.File(tmp_path / "m.weights.h5", "w") as file:
        group = file
        for _ in range(22):
            held = group.create_group("a")
            group["b"] = held
            group = held
        file["none"] = h5py.Empty("f4")
    with pytest.raises(gc.GraphError, match="damaged") as caught:
        gc.convert(tmp_path / "m.weights.h5", tmp_path / "m.npz")
    assert "linked twice" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("m.pt", "torch.export.save"),
        ("m.pkl", "skl2onnx"),
        ("m.tflite", "tf2onnx"),
        ("m.h5", "keras.models.load_model"),
        ("m.weights.h5", "graphc audit lists them"),
        ("m.what", "a .gir file is text"),
    ],
)
def test_files_that_are_not_read_say_how_theirs_is(name, told, run, tmp_path):
    (tmp_path / name).write_bytes(b"\x80\x04\x95\xff\xfe")
    status, _, err = run("show", tmp_path / name)
    assert status == 1 and told in err


def test_arrays_of_open_sizes_have_no_number(run, tmp_path):
    gc.compile(np.tanh).save(tmp_path / "m.gir", gc.spec(("n", 3), "f32"))
    status, out, _ = run("audit", tmp_path / "m.gir")
    assert status == 0 and "open" in out and "None" not in out
    status, out, _ = run("audit", tmp_path / "m.gir", "--json")
    assert status == 0 and json.loads(out)["inputs"][0]["elements"] is None


def test_bytes_in_the_other_order_are_turned(run, tmp_path):
    """They were refused, as if no such elements had a place."""
    given = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez(tmp_path / "w.npz", a=given)
    for source, target in (("w.npz", "w.safetensors"), ("w.safetensors", "back.npz")):
        assert run("convert", tmp_path / source, "-o", tmp_path / target)[0] == 0
    with np.load(tmp_path / "back.npz") as back:
        np.testing.assert_array_equal(back["a"], given)
