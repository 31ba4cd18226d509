"""Programs of models that are kept for the next process: served unchanged, never out of date."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError
from graphc.formats import model_cache
from graphc.formats.model_cache import CachedModel
from graphc.runtime.tuning import tuned
from graphc.tuning import chosen

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
helper, numpy_helper, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept, in this test alone."""
    monkeypatch.setenv("GRAPHC_KEEP_MODELS", "1")
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def scaled(path: Path, factor: float, external: bool = False) -> Path:
    """x * factor for any number of rows; the factor in a file beside it if it is `external`."""
    w = numpy_helper.from_array(np.full((1, 3), factor, np.float32), "w")
    if external:
        (path.parent / "w.bin").write_bytes(w.raw_data)
        w.ClearField("raw_data")
        w.data_location = onnx.TensorProto.EXTERNAL
        w.external_data.add(key="location", value="w.bin")
    kinds = [helper.make_tensor_value_info(n, FLOAT, ["n", 3]) for n in "xy"]
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "m", kinds[:1], kinds[1:], initializer=[w])
    opset = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())
    return path


def x(rows: int) -> Any:
    return np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)


def called(path: Path, *rows: int, **options: Any) -> Any:
    """The model of a file, which was called with these numbers of rows."""
    model = gc.load(path, **options)
    for n in rows:
        assert model(x(n))["y"].shape == (n, 3)
    return model


SERVES = """
import sys, numpy as np, graphc as gc
model = gc.load(sys.argv[1])
for rows in (2, 5, 9):
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    np.testing.assert_array_equal(model(x=x)["y"], x * 2)
compiler = {"onnx", "llvmlite", "graphc.ops", "graphc.frontend"}
assert not compiler & sys.modules.keys()
"""


def test_another_process_runs_it_without_a_compiler(models: Path, tmp_path: Path) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    assert not isinstance(called(path, 2, 5), CachedModel)
    subprocess.run([sys.executable, "-c", SERVES, str(path)], check=True)


REPEATS = """
import sys, numpy as np, graphc as gc
model = gc.load(sys.argv[1])
for n in (2, 3, 2):
    made = model(x=np.ones(3, np.float32), n=np.array([n]))["y"]
    np.testing.assert_array_equal(made, np.ones(3 * n, np.float32))
assert not {"onnx", "llvmlite", "graphc.ops", "graphc.frontend"} & sys.modules.keys()
assert model(x=np.ones(3, np.float32), n=np.array([4]))["y"].shape == (12,)
"""


@pytest.mark.slow
def test_answers_of_the_data_are_kept_too(models: Path, tmp_path: Path) -> None:
    int64, path = onnx.TensorProto.INT64, tmp_path / "m.onnx"
    x = helper.make_tensor_value_info("x", FLOAT, [3])
    n = helper.make_tensor_value_info("n", int64, [1])
    y = helper.make_tensor_value_info("y", FLOAT, [None])
    graph = helper.make_graph([helper.make_node("Tile", ["x", "n"], ["y"])], "m", [x, n], [y])
    opset = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())
    model = gc.load(path)
    for count in (2, 3):
        assert model(x=np.ones(3, np.float32), n=np.array([count]))["y"].size == 3 * count
    subprocess.run([sys.executable, "-c", REPEATS, str(path)], check=True)


@pytest.mark.slow
def test_another_process_with_tuned_numbers_runs_it_without_a_compiler(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_TUNING", "passes.block_rows=32,runtime.kept_sizes=8")
    path = scaled(tmp_path / "m.onnx", 2)
    makes = f"import graphc.passes.tuning; {SERVES.partition('compiler')[0]}"
    for program in (makes, SERVES):
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)


def test_numbers_that_a_process_has_changed_have_programs_of_their_own(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    called(path, 2)
    with chosen({"passes.block_rows": 32}):
        assert not isinstance(called(path, 2), CachedModel)
    assert isinstance(called(path, 2), CachedModel)


def test_a_file_that_changed_is_read_again(models: Path, tmp_path: Path) -> None:
    for factor in (2, 3, 2):
        model = gc.load(scaled(tmp_path / "m.onnx", factor))
        np.testing.assert_array_equal(model(x(4))["y"], x(4) * factor)
    assert isinstance(model, CachedModel)


def test_data_beside_it_that_changed_is_read_again(models: Path, tmp_path: Path) -> None:
    for factor, rows in ((2, (4, 6)), (3, (4,)), (2, (4, 6)), (3, (6, 4))):
        model = gc.load(scaled(tmp_path / "m.onnx", factor, external=True))
        for n in rows:
            np.testing.assert_array_equal(model(x(n))["y"], x(n) * factor)


def test_a_loaded_model_never_becomes_another_one(models: Path, tmp_path: Path) -> None:
    for external in (False, True):
        path = scaled(tmp_path / "m.onnx", 2, external)
        called(path, 2)
        model = gc.load(path)
        scaled(path, 3, external)
        with pytest.raises(GraphError, match="changed since it was loaded"):
            model(x(5))
        np.testing.assert_array_equal(model(x(2))["y"], x(2) * 2)


def test_a_model_of_a_relative_path_is_found_from_other_folders(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    called(path, 3)
    monkeypatch.chdir(tmp_path)
    loaded = gc.load("m.onnx")
    monkeypatch.chdir("/")
    for rows in (3, 7):
        assert np.array_equal(next(iter(loaded(x(rows)).values())), 2 * x(rows))


def test_a_file_that_changes_while_it_is_loaded_is_not_kept(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    digest = model_cache._digest
    with monkeypatch.context() as patch:
        patch.setattr(model_cache, "_digest", lambda p: (digest(p), scaled(p, 3))[0])
        called(path, 2)
    np.testing.assert_array_equal(gc.load(scaled(path, 2))(x(2))["y"], x(2) * 2)


def test_options_and_settings_have_programs_of_their_own(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    called(path, 4)
    assert isinstance(called(path, 4), CachedModel)
    assert not isinstance(called(path, 4, check_finite=True), CachedModel)
    assert not isinstance(called(path, 4, dump=tmp_path / "dump"), CachedModel)
    with pytest.raises(gc.RunError, match="non-finite"):
        gc.load(path, check_finite=True)(np.full((4, 3), np.inf, np.float32))
    monkeypatch.setenv("GRAPHC_KEEP_MODELS", "0")
    assert not isinstance(called(path, 4), CachedModel)


def test_what_is_not_kept_is_the_model_itself(models: Path, tmp_path: Path) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    called(path, 4)
    model = gc.load(path)
    assert (model.params, model.result_names) == (("x",), ("y",))
    with pytest.raises(gc.FeedError, match="f64"):
        model(x(4).astype(np.float64))
    with pytest.raises(gc.FeedError):
        model(x(4)[:, :2])
    with pytest.raises(gc.FeedError, match="parameter 'z'"):
        model(z=x(4))
    np.testing.assert_array_equal(called(path, 4)(x(7))["y"], x(7) * 2)
    np.testing.assert_array_equal(gc.compile(lambda v: gc.load(path)(v)["y"])(x(4)), x(4) * 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(gc.load(path)))(x(4))["y"], x(4) * 2)
    assert str(gc.load(path).graph.params[0].type) == "f32[n,3]"


def test_an_index_that_is_not_there_is_told_with_its_extent(models: Path, tmp_path: Path) -> None:
    """At the first size, at others, and of what another process compiled; it was a line alone."""
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    table = numpy_helper.from_array(np.ones((7, 2), np.float32), "table")
    given = [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])]
    made = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 2])]
    graph = helper.make_graph([node], "lookup", given, made, [table])
    path = tmp_path / "lookup.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    for _ in range(2):
        model = gc.load(path)
        for size in (3, 4, 5, 3):
            with pytest.raises(IndexError, match="index 9 is out of range for axis 0 of extent 7"):
                model(np.arange(9, 9 - size, -1))


def flipped(data: bytes) -> bytes:
    at = len(data) * 2 // 3
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", flipped])
def test_damaged_files_count_as_absent(models: Path, tmp_path: Path, damage: Any) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    called(path, 4)
    for file in models.iterdir():
        file.write_bytes(damage(file.read_bytes()))
    np.testing.assert_array_equal(gc.load(path)(x(4))["y"], x(4) * 2)


def test_a_folder_that_others_may_write_to_is_not_used(models: Path, tmp_path: Path) -> None:
    path = scaled(tmp_path / "m.onnx", 2)
    called(path, 4)
    models.chmod(0o777)
    assert not isinstance(gc.load(path), CachedModel)


def test_what_was_not_used_for_long_goes(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called(scaled(tmp_path / "m.onnx", 2), 4)
    size = sum(kept.stat().st_size for kept in models.iterdir())
    monkeypatch.setattr(tuned, "kept_models", 3 * size)
    for factor in range(3, 9):
        called(scaled(tmp_path / "m.onnx", factor), 4)
        assert sum(kept.stat().st_size for kept in models.iterdir()) <= 3 * size
    assert isinstance(called(tmp_path / "m.onnx", 4), CachedModel)
