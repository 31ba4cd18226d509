"""Files of torch.export, read without PyTorch: what they hold, and what is refused."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_files import Ref, archive, dense, document, entries, node, payload, save

import graphc as gc
from graphc.cli.commands import main
from graphc.formats.torch.records import portable, user_line


def reference(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w.T + b, 0)


def test_a_program_runs_for_any_batch(tmp_path: Path) -> None:
    path, w, b = dense(tmp_path / "net.pt2")
    model = gc.load(path)
    assert "x: f32[s0,3]" in repr(model)
    for batch in (1, 4):
        x = np.ones((batch, 3), np.float32)
        np.testing.assert_allclose(model(x)["y"], reference(x, w, b), rtol=1e-5)
        np.testing.assert_allclose(model(x=x)["y"], reference(x, w, b), rtol=1e-5)


def test_pytorch_is_not_imported(tmp_path: Path) -> None:
    path, _, _ = dense(tmp_path / "net.pt2")
    before = "torch" in sys.modules
    gc.load(path)(np.ones((1, 3), np.float32))
    assert before or "torch" not in sys.modules


def test_names_of_the_file_are_kept(tmp_path: Path) -> None:
    path, w, b = dense(tmp_path / "net.pt2")
    graph = gc.load(path).bound({"s0": 2})
    assert {"product", "l.w", "l.b"} <= set(graph.names)
    assert any(node.loc == ("net.py", 7) for node in graph.nodes)
    session = gc.Session()
    session.extend(graph)
    x = np.ones((2, 3), np.float32)
    (product,) = session.run(["product"], {"x": x})
    np.testing.assert_allclose(product, x @ w.T + b, rtol=1e-5)


def test_results_are_called_as_the_module_calls_them(tmp_path: Path) -> None:
    nodes = [node("sin.default", "a", self_=Ref("x")), node("cos.default", "b", self_=Ref("x"))]
    program = document(nodes, {"x": ("float32", (2,))}, ["a", "b"], keys=["sine", "cosine"])
    made = gc.load(save(tmp_path / "net.pt2", program))(np.zeros(2, np.float32))
    assert list(made) == ["sine", "cosine"] and made["cosine"].tolist() == [1, 1]


def test_sizes_outside_of_the_exported_range_are_refused(tmp_path: Path) -> None:
    path, _, _ = dense(tmp_path / "net.pt2")
    with pytest.raises(gc.GraphError, match=r"s0 is 65.*exported for 1 to 64"):
        gc.load(path)(np.ones((65, 3), np.float32))


def test_weights_may_be_strided_and_shared(tmp_path: Path) -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    nodes = [node("matmul.default", "y", self_=Ref("x"), other=Ref("p_w"))]
    program = document(nodes, {"x": ("float32", (1, 2))}, ["y"], ["w"])
    made = gc.load(save(tmp_path / "net.pt2", program, {"w": w.T}))
    assert made(np.ones((1, 2), np.float32))["y"].tolist() == [[1, 5, 9]]


def test_what_is_written_to_views_reaches_their_array(tmp_path: Path) -> None:
    """x's first row doubled through a view, then one element through a view of that."""
    nodes = [
        node("clone.default", "c", self_=Ref("x")),
        node("select.int", "row", self_=Ref("c"), dim=0, index=0),
        node("mul_.Tensor", "row2", self_=Ref("row"), other=2),
        node("slice.Tensor", "part", self_=Ref("row2"), dim=0, start=1, end=2),
        node("fill_.Scalar", "filled", self_=Ref("part"), value=7.0),
        node("add.Tensor", "y", self_=Ref("c"), other=Ref("x")),
    ]
    program = document(nodes, {"x": ("float32", (2, 2))}, ["y", "row"])
    made = gc.load(save(tmp_path / "net.pt2", program))(np.ones((2, 2), np.float32))
    assert made["y"].tolist() == [[3, 8], [2, 2]] and made["row"].tolist() == [2, 7]


def test_all_operators_without_a_rule_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [node(f"nothing{k}.default", f"v{k}", self_=Ref("x")) for k in range(12)]
    path = save(tmp_path / "net.pt2", document(nodes, {"x": ("float32", (2,))}, ["v0"]))
    with pytest.raises(gc.GraphError, match="12 operator") as caught:
        gc.load(path)
    assert "nothing0.default (node 'v0')" in str(caught.value) and "3 more" in str(caught.value)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    path, w, b = dense(tmp_path / "net.pt2")
    program = json.loads(zipfile.ZipFile(path).read("net/models/model.json"))
    files = entries(program, {"l.w": w, "l.b": b})
    config = {"l.w": payload("weight_0", w, pickled=True), "l.b": payload("weight_1", b)}
    files["data/weights/model_weights_config.json"] = json.dumps({"config": config}).encode()
    path.write_bytes(archive(files))
    with pytest.raises(gc.GraphError, match=r"'l\.w' pickled.*run any code"):
        gc.load(path)
    old = {"serialized_exported_program.json": json.dumps(program).encode()}
    path.write_bytes(archive(old))
    with pytest.raises(gc.GraphError, match="pickled") as caught:
        gc.load(path)
    assert "export it again" in str(caught.value)


def test_the_older_layout_is_read_where_nothing_is_pickled(tmp_path: Path) -> None:
    nodes = [node("relu.default", "y", self_=Ref("x"))]
    program = document(nodes, {"x": ("float32", (2,))}, ["y"])
    path = tmp_path / "net.pt2"
    path.write_bytes(archive({"serialized_exported_program.json": json.dumps(program).encode()}))
    assert gc.load(path)(np.array([-1, 1], np.float32))["y"].tolist() == [0, 1]


def test_compressed_entries_are_refused(tmp_path: Path) -> None:
    """Zeros pack to a thousandth: a file would be larger than it seems."""
    path, w, b = dense(tmp_path / "net.pt2")
    program = json.loads(zipfile.ZipFile(path).read("net/models/model.json"))
    program["filler"] = " " * 10_000_000
    path.write_bytes(archive(entries(program, {"l.w": w, "l.b": b}), zipfile.ZIP_DEFLATED))
    with pytest.raises(gc.GraphError, match="compressed"):
        gc.load(path)


def change_weight(program: dict[str, Any], config: dict[str, Any]) -> None:
    config["l.w"]["tensor_meta"]["sizes"] = [{"as_int": 2}, {"as_int": 300}]


def change_path(program: dict[str, Any], config: dict[str, Any]) -> None:
    config["l.w"]["path_name"] = "../../etc/passwd"


def change_huge(program: dict[str, Any], config: dict[str, Any]) -> None:
    facts = config["l.w"]["tensor_meta"]
    facts["sizes"] = [{"as_int": 1 << 40}, {"as_int": 1 << 40}]
    facts["strides"] = [{"as_int": 0}, {"as_int": 0}]


def change_offset(program: dict[str, Any], config: dict[str, Any]) -> None:
    config["l.w"]["tensor_meta"]["storage_offset"] = {"as_int": -4}


def change_missing(program: dict[str, Any], config: dict[str, Any]) -> None:
    del config["l.b"]


def change_version(program: dict[str, Any], config: dict[str, Any]) -> None:
    program["schema_version"]["major"] = 99


def change_name(program: dict[str, Any], config: dict[str, Any]) -> None:
    program["graph_module"]["graph"]["nodes"][0]["outputs"] = [{"as_tensor": {"name": 3}}]


def change_reader(program: dict[str, Any], config: dict[str, Any]) -> None:
    program["graph_module"]["graph"]["nodes"].reverse()


CHANGES = {
    change_weight: "needs .* elements",
    change_path: "missing",
    change_huge: "repeats",
    change_offset: "shape",
    change_missing: "no data for 'l.b'",
    change_version: "version 99",
    change_name: "a name is '3'",
    change_reader: "nothing before it makes",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_damaged_files_are_refused(tmp_path: Path, change: Any) -> None:
    path, w, b = dense(tmp_path / "net.pt2")
    program = json.loads(zipfile.ZipFile(path).read("net/models/model.json"))
    files = entries(program, {"l.w": w, "l.b": b})
    config = json.loads(files["data/weights/model_weights_config.json"])
    change(program, config["config"])
    files["models/model.json"] = json.dumps(program).encode()
    files["data/weights/model_weights_config.json"] = json.dumps(config).encode()
    path.write_bytes(archive(files))
    with pytest.raises(gc.GraphError, match=CHANGES[change]):
        gc.load(path)(np.ones((1, 3), np.float32))


def test_mutated_files_raise_nothing_else(tmp_path: Path) -> None:
    path, w, b = dense(tmp_path / "net.pt2")
    chosen = random.Random(1)
    whole = path.read_bytes()
    program = zipfile.ZipFile(path).read("net/models/model.json")
    for turn in range(150):
        if turn % 3 == 0:
            data = bytearray(whole)
            data[chosen.randrange(len(data))] = chosen.randrange(256)
            path.write_bytes(bytes(data))
        else:
            text = bytearray(program)
            text[chosen.randrange(len(text))] = chosen.choice(b'0129-".{}[]ntas')
            files = entries({}, {"l.w": w, "l.b": b})
            path.write_bytes(archive({**files, "models/model.json": bytes(text)}))
        with contextlib.suppress(gc.GraphError):
            gc.load(path).bound({"s0": 1})


def test_the_command_line_takes_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, w, b = dense(tmp_path / "net.pt2")
    x = np.ones((2, 3), np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npz"
    compiled = tmp_path / "net.gcx"
    for line in (
        ["run", str(path), "--feed", f"x={tmp_path / 'x.npy'}", "-o", str(out)],
        ["show", str(path), "--bind", "s0=2"],
        ["audit", str(path), "--bind", "s0=2"],
        ["compile", str(path), "-o", str(compiled), "--bind", "s0=2"],
    ):
        main(line)  # exits where it fails
    assert "l.w" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(out)["y"], reference(x, w, b), rtol=1e-5)
    np.testing.assert_allclose(gc.load(compiled)(x)["y"], reference(x, w, b), rtol=1e-5)


@pytest.mark.slow
def test_the_graph_of_open_sizes_is_shown_and_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many rows as there are, five at most: a size that is no polynomial of the batch."""
    nodes = [
        node("slice.Tensor", "part", self_=Ref("x"), dim=0, start=1, end=6),
        node("exp.default", "y", self_=Ref("part")),
    ]
    program = document(nodes, {"x": ("float32", ("s0", 3))}, ["y"])
    path, converted = save(tmp_path / "part.pt2", program), tmp_path / "part.gir"
    for line in (
        ["audit", str(path)],
        ["show", str(path)],
        ["view", str(path), "-o", str(tmp_path / "part.html")],
        ["convert", str(path), "-o", str(converted)],
    ):
        main(line)  # exits where it fails
    assert "mark " in capsys.readouterr().out and (tmp_path / "part.html").stat().st_size
    model = gc.load(converted)
    for batch in (1, 3, 6, 9):
        x = np.arange(batch * 3, dtype=np.float32).reshape(batch, 3) / 9
        np.testing.assert_allclose(model(x)["y"], np.exp(x[1:6]), rtol=1e-6)
    with pytest.raises(gc.GraphError, match="no such graph"):
        gc.convert(path, tmp_path / "part.mlir")
    gc.convert(path, tmp_path / "part.mlir", sizes={"s0": 4})


def test_the_line_of_a_node_is_not_one_of_pytorch() -> None:
    frames = [
        ("/home/me/model.py", 12),
        ("/x/lib/python3.12/site-packages/torchvision/models/resnet", 92),
        ("/x/lib/python3.12/site-packages/torch/nn/modules/conv", 385),
    ]
    lines = [f'File "{file}", line {line}, in forward' for file, line in frames]
    assert user_line("\n".join(lines)) == frames[1]
    assert user_line("\n".join((lines[0], lines[2]))) == frames[0]
    assert user_line(lines[2]) == frames[2]
    assert user_line("") is None
    assert portable(frames[1][0]) == "torchvision/models/resnet"
    assert portable(frames[0][0]) == frames[0][0]
