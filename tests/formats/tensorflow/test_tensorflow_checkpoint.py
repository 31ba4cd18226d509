"""Checkpoints of TensorFlow are read without it, and damaged ones refused."""

from __future__ import annotations

import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tensor_bundle import message, number, object_graph, write_checkpoint

import graphc as gc
from graphc import limits
from graphc.cli import main
from graphc.cli.common import _load
from graphc.formats.convert import read_npz
from graphc.formats.tensorflow import object_graph as reading
from graphc.formats.tensorflow.checkpoint import DTYPES, read_checkpoint
from graphc.formats.tensorflow.object_graph import read_by_path


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


def parted() -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    rng = np.random.default_rng(2)
    made = {"table": rng.random((200, 2)).astype("f4"), "cube": rng.random((5, 2, 3))}
    return {**made, "a": np.arange(3)}, {"table": [70, 60, 70], "cube": [2, 3]}


def test_variables_in_pieces(tmp_path: Path) -> None:
    wanted, cuts = parted()
    write_checkpoint(tmp_path / "ckpt", wanted, cuts)
    found = read_checkpoint(tmp_path / "ckpt")
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        assert array.dtype == wanted[name].dtype and np.array_equal(array, wanted[name])
    for wrong in ([70, 60], [70, 60, 69]):
        write_checkpoint(tmp_path / "ckpt", wanted, {"table": wrong})
        with pytest.raises(gc.GraphError, match="piece"):
            read_checkpoint(tmp_path / "ckpt")


@pytest.mark.parametrize("cuts", [[(0, 2), (0, 2)], [(0, 3), (2, 1)], [(0, 4), (1, 2)]])
def test_pieces_that_overlap_are_refused(tmp_path: Path, cuts: list[tuple[int, int]]) -> None:
    held = {"a": np.arange(1, 5, dtype="f4")}
    write_checkpoint(tmp_path / "ckpt", held, {"a": cuts})
    with pytest.raises(gc.GraphError, match="overlap"):
        read_checkpoint(tmp_path / "ckpt")


def test_an_empty_piece_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    """Else a name's length counts for each of any number of them."""
    write_checkpoint(tmp_path / "ckpt", {"a": np.arange(4)}, {"a": [4, 0, (4, 0)]})
    with pytest.raises(gc.GraphError, match="overlap"):
        read_checkpoint(tmp_path / "ckpt")
    write_checkpoint(tmp_path / "ckpt", {"a": np.arange(4)}, {"a": [4, 0]})
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "ckpt")["a"], range(4))


def entry(shape: tuple[int, ...], *rest: bytes) -> bytes:
    sizes = b"".join(message(2, number(1, extent)) for extent in shape)
    return number(1, 1) + message(2, sizes) + b"".join(rest)


@pytest.mark.parametrize("axes", [0, 2, 255, 256, 1000])
def test_pieces_of_other_axes_than_their_variable_are_refused(tmp_path: Path, axes: int) -> None:
    piece = message(7, message(1, b"") * axes)
    write_checkpoint(tmp_path / "ckpt", {}, extra={b"a": entry((4,), piece)})
    with pytest.raises(gc.GraphError, match="piece"):
        read_checkpoint(tmp_path / "ckpt")


@pytest.mark.parametrize("shape", [(2**32, 0, 2**62), (0, 2**62), (0, 2**31, 2**31)])
@pytest.mark.parametrize("parted", [False, True])
def test_empty_shapes_that_no_array_has_are_refused(
    tmp_path: Path, shape: tuple[int, ...], parted: bool
) -> None:
    pieces = [message(7, message(1, b"") * len(shape))] if parted else []
    write_checkpoint(tmp_path / "ckpt", {}, extra={b"a": entry(shape, *pieces)})
    with pytest.raises(gc.GraphError, match="is damaged"):
        read_checkpoint(tmp_path / "ckpt")


def test_names_that_are_one_as_text_are_refused(tmp_path: Path) -> None:
    empty = {b"a\xfe": entry((0,)), b"a\xff": entry((0,))}
    write_checkpoint(tmp_path / "ckpt", {}, extra=empty)
    with pytest.raises(gc.GraphError, match="twice"):
        read_checkpoint(tmp_path / "ckpt")


OBJECTS = [
    ({"optimizer": 1, "model": 2, "again": 0}, []),
    ({"kept": 3}, []),
    ({"_operations": 4}, []),
    ({}, ["optimizer/kept"]),
    ({"1": 5, "0": 0}, []),
    ({"_kernel": 3, "bias": 6}, []),
    ({}, ["model/_operations/1/bias"]),
]


def test_variables_are_found_by_the_paths_of_objects(tmp_path: Path) -> None:
    """A kernel that an optimiser met first is the layer's, too."""
    held = {"optimizer/kept": np.ones((3, 2), "f4"), "model/_operations/1/bias": np.ones(2, "f4")}
    held["step"] = np.zeros((), "i8")
    write_checkpoint(tmp_path / "ckpt", held, graph=object_graph(OBJECTS))
    assert set(read_checkpoint(tmp_path / "ckpt")) == set(held)
    found = read_by_path(tmp_path / "ckpt")
    assert set(found) == {"model/_operations/1/_kernel", "model/_operations/1/bias", "step"}
    params, _ = gc.nn.load_keras(gc.nn.Dense(3, 2), tmp_path / "ckpt.index")
    np.testing.assert_array_equal(params["weight"], held["optimizer/kept"])


def named(prefix: Path, nodes: list[tuple[dict[str, int], list[str]]], *keys: str) -> list[str]:
    """The names that variables have, in the order of their keys."""
    held = {key: np.full((), place, "f4") for place, key in enumerate(keys)}
    write_checkpoint(prefix, held, graph=object_graph(nodes))
    found = {int(array): name for name, array in read_by_path(prefix).items()}
    return [found[place] for place in range(len(keys))]


def test_variables_keep_their_keys_where_paths_meet(tmp_path: Path) -> None:
    prefix = tmp_path / "ckpt"
    assert named(prefix, [({"t": 1}, []), ({}, ["a", "b"])], "a", "b") == ["t", "b"]
    assert named(prefix, [({"b": 1}, []), ({}, ["a"])], "a", "b") == ["a", "b"]
    swapped = [({"a": 1, "b": 2}, []), ({}, ["b"]), ({}, ["a"])]
    assert named(prefix, swapped, "a", "b") == ["a", "b"]
    slashes = [({"x/y": 1, "x": 2}, []), ({}, ["a"]), ({"y": 3}, []), ({}, ["b"])]
    assert named(prefix, slashes, "a", "b") == ["x/y", "b"]
    assert named(prefix, [({}, ["a"])], "a") == ["a"]


def chain(length: int, end: list[str]) -> list[tuple[dict[str, int], list[str]]]:
    return [*(({"n": k + 1}, []) for k in range(length)), ({}, end)]


def test_long_paths_are_refused_and_not_made_for_objects(tmp_path: Path) -> None:
    prefix = tmp_path / "ckpt"
    assert named(prefix, chain(1000, ["a"]), "a") == ["/".join("n" * 1000)]
    with pytest.raises(gc.GraphError, match="1000"):
        named(prefix, chain(1001, ["a"]), "a")
    write_checkpoint(prefix, {}, graph=object_graph(chain(4000, [])))
    tracemalloc.start()
    try:
        assert not read_by_path(prefix)
        assert tracemalloc.get_traced_memory()[1] < 5 << 20  # whole paths: 16 MB
    finally:
        tracemalloc.stop()


def test_objects_and_paths_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, keys = tmp_path / "ckpt", [f"k{place}" for place in range(50)]
    wide = [({"n" * 500: 1}, []), ({str(k): k + 2 for k in range(50)}, [])]
    wide += [({}, [key]) for key in keys]
    assert named(prefix, wide, *keys)[7] == "n" * 500 + "/7"
    before = limits.limit("text_bytes")
    limits.set_limit("text_bytes", 20_000)
    try:
        with pytest.raises(gc.GraphError, match="paths"):
            named(prefix, wide, *keys)
    finally:
        limits.set_limit("text_bytes", before)
    monkeypatch.setattr(reading, "MOST_FIELDS", 2000)
    assert len(named(prefix, wide, *keys)) == 50
    for graph in (message(1, message(1, b"") * 2000), message(1, b"") * 2001):
        write_checkpoint(prefix, {}, graph=graph)
        with pytest.raises(gc.GraphError, match="2000"):
            read_by_path(prefix)


def test_variables_in_a_list_are_weights_in_order(tmp_path: Path) -> None:
    held = {f"variables/{k}": np.full((3, 2) if k == 2 else (2,), k, "f4") for k in (2, 10)}
    write_checkpoint(tmp_path / "ckpt", {**held, "variables/11": np.zeros(2, "i8")})
    params, _ = gc.nn.load_keras(gc.nn.Dense(3, 2), tmp_path / "ckpt.index")
    np.testing.assert_array_equal(params["bias"], [10, 10])


def test_the_graph_of_a_saved_model_comes_through_onnx(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(gc.GraphError, match="is a folder") as told:
        gc.load(tmp_path)
    assert "onnx" in str(told.value)


def test_mutated_files(tmp_path: Path) -> None:
    wanted, cuts = parted()
    write_checkpoint(tmp_path / "ckpt", {**arrays(), **wanted}, cuts, object_graph(OBJECTS))
    index = tmp_path / "ckpt.index"
    whole, rng = index.read_bytes(), np.random.default_rng(1)
    text = object_graph(OBJECTS)
    for turn in range(500):
        if turn >= 400:
            changed = bytearray(text)
            changed[rng.integers(len(changed))] = rng.integers(256)
            write_checkpoint(tmp_path / "ckpt", arrays(), graph=bytes(changed))
            with suppress(gc.GraphError):
                read_by_path(index)
            continue
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


def test_strings_are_read_and_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = np.array([[b"one", b""], [b"three", b"x" * 300]])
    texts = {"words": words, "word": np.array(b"alone"), "none": np.zeros((0, 2), "S1")}
    held = {"a": np.arange(3, dtype="f4")}
    write_checkpoint(tmp_path / "ckpt", held, graph=object_graph([({}, ["a"])]), texts=texts)
    found = read_checkpoint(tmp_path / "ckpt")
    assert found.keys() == {*held, *texts}
    for name, array in texts.items():
        assert np.array_equal(found[name], array) and found[name].shape == array.shape
    gc.convert(tmp_path / "ckpt", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        assert np.array_equal(arrays["words"], words)
    main(["convert", str(tmp_path / "ckpt"), "-o", str(tmp_path / "a.safetensors")])
    assert "left out: 'words' holds strings" in capsys.readouterr().out
    assert gc.convert(tmp_path / "a.safetensors", tmp_path / "b.npz").without == ()
    with np.load(tmp_path / "b.npz") as arrays:
        assert list(arrays) == ["a"]


def test_strings_that_end_in_zero_bytes_keep_them(tmp_path: Path) -> None:
    words = np.array([b"ab\0", b"\0", b"c"], object)
    write_checkpoint(tmp_path / "ckpt", {"a": np.zeros(2)}, texts={"words": words})
    assert read_checkpoint(tmp_path / "ckpt")["words"].tolist() == words.tolist()
    made = gc.convert(tmp_path / "ckpt", tmp_path / "a.npz")
    assert made.without == ("'words' holds strings that end in zero bytes",)


def test_a_folder_may_be_the_working_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "variables").mkdir()
    write_checkpoint(tmp_path / "variables" / "variables", {"a": np.arange(3.0)})
    monkeypatch.chdir(tmp_path)
    gc.convert(Path(), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        assert list(arrays) == ["a"]
    with pytest.raises(gc.GraphError):
        gc.convert(Path("/"), tmp_path / "b.npz")


def test_strings_of_other_lengths_than_their_data_are_refused(tmp_path: Path) -> None:
    for size in (0, 3, 8, 10**6):
        entry = number(1, 7) + message(2, message(2, number(1, 2))) + number(5, size)
        write_checkpoint(tmp_path / "ckpt", {"a": np.zeros(2)}, extra={b"s": entry})
        with pytest.raises(gc.GraphError, match="'s' has the wrong size"):
            read_checkpoint(tmp_path / "ckpt")


def test_the_format_before_says_so(tmp_path: Path) -> None:
    """Its one file ends as an index does, and has none beside it."""
    write_checkpoint(tmp_path / "ckpt", {"a": np.zeros(2)})
    (tmp_path / "model.ckpt").write_bytes((tmp_path / "ckpt.index").read_bytes())
    for read in (read_checkpoint, lambda path: gc.convert(path, tmp_path / "a.npz")):
        with pytest.raises(gc.GraphError, match=r"first format \(V1\)"):
            read(tmp_path / "model.ckpt")


def test_bf16_comes_through_npz(tmp_path: Path) -> None:
    """NumPy writes it as two bytes of no type."""
    held = {"a": np.arange(6).reshape(2, 3).astype("bfloat16"), "b": np.ones((), "bfloat16")}
    np.savez(tmp_path / "a.npz", **held)
    for source, target in (("a.npz", "b.safetensors"), ("b.safetensors", "c.npz")):
        gc.convert(tmp_path / source, tmp_path / target)
    found = read_npz(tmp_path / "c.npz")
    for name, array in held.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


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
