"""Models of Keras 3: files written by hand, and by Keras where it is installed."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import limits
from graphc.cli import main
from graphc.ir.graph import Graph

h5py = pytest.importorskip("h5py", reason="h5py reads models of Keras")
Entry = dict[str, Any]


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def layer(kind: str, name: str, *reads: Any, **config: Any) -> Entry:
    """An entry of a configuration; `reads` are what it is called with, one for each
    call: names of layers, or "name:1" for the second call of one.
    """
    calls = []
    for read in reads:
        parts = read if isinstance(read, tuple) else (read,)
        keys = [(*part.split(":"), "0")[:2] for part in parts]
        args = [
            {"class_name": "__keras_tensor__", "config": {"keras_history": [key, int(node), 0]}}
            for key, node in keys
        ]
        calls.append({"args": [args] if len(args) > 1 else args, "kwargs": {}})
    made = {"name": name, **config}
    return {"class_name": kind, "config": made, "name": name, "inbound_nodes": calls}


def given(name: str = "x", *shape: int | None) -> Entry:
    return layer("InputLayer", name, batch_shape=[None, *shape], dtype="float32")


def archive(told: Any, weights: dict[str, list[Any]]) -> bytes:
    held, made = io.BytesIO(), io.BytesIO()
    with h5py.File(held, "w") as file:
        for group, arrays in weights.items():
            for k, array in enumerate(arrays):
                file[f"layers/{group}/vars/{k}"] = array
    with zipfile.ZipFile(made, "w") as box:
        box.writestr("config.json", told if isinstance(told, str) else json.dumps(told))
        box.writestr("model.weights.h5", held.getvalue())
    return made.getvalue()


def sequence(path: Path, *entries: Entry, **weights: list[Any]) -> Path:
    told = {"class_name": "Sequential", "config": {"name": "net", "layers": list(entries)}}
    path.write_bytes(archive(told, weights))
    return path


def graph(path: Path, entries: list[Entry], out: Any, **weights: list[Any]) -> Path:
    ins = [[e["name"], 0, 0] for e in entries if e["class_name"] == "InputLayer"]
    config = {"name": "net", "layers": entries, "input_layers": ins, "output_layers": out}
    path.write_bytes(archive({"class_name": "Functional", "config": config}, weights))
    return path


def test_a_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w, b, k = normal(8, 5), normal(5), normal(3, 3, 2, 2)
    path = sequence(
        tmp_path / "m.keras",
        given("x", 4, 4, 2),
        layer("Conv2D", "c", padding="same", strides=[2, 2], activation="relu"),
        layer("Flatten", "flat"),
        layer("Dropout", "drop", rate=0.5),
        layer("Dense", "d", activation="softmax"),
        conv2d=[k],
        dense=[w, b],
    )
    x = normal(3, 4, 4, 2)
    padded = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    h = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, k), 0).reshape(3, -1) @ w + b
    e = np.exp(h - h.max(1, keepdims=True))
    model = gc.load(path)
    assert model.params == ("x",) and model.result_names == ("d",)
    np.testing.assert_allclose(model(x=x)["d"], e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.save(tmp_path / "x.npy", x)
    for line in (
        ["run", str(path), "--feed", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "y.npz")],
        ["convert", str(path), "-o", str(tmp_path / "m.gir"), "--bind", "batch=3"],
        ["audit", str(path), "--bind", "batch=1"],
    ):
        main(line)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["d"], model(x)["d"], rtol=1e-5)
    capsys.readouterr()


def test_a_graph_with_a_shared_layer_in_any_order(tmp_path: Path) -> None:
    w = normal(3, 3)
    path = graph(
        tmp_path / "m.keras",
        [
            layer("Subtract", "s", ("d", "d:1")),
            given("a", 3),
            layer("Dense", "d", "a", "b"),
            given("b", 3),
        ],
        [["s", 0, 0], ["d", 0, 0]],
        dense=[w],
    )
    a, b = normal(2, 3), normal(2, 3) + 1
    made = gc.load(path)(a, b)
    np.testing.assert_allclose(made["s"], a @ w - b @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made["d"], a @ w, rtol=1e-5, atol=1e-5)


def test_nodes_in_loops_are_told_by_their_layers(tmp_path: Path) -> None:
    """Those in the bodies of recurrent layers were told by a line of whoever called."""
    path = sequence(
        tmp_path / "m.keras",
        given("x", 5, 3),
        layer("SimpleRNN", "turns", units=2, use_bias=False),
        simple_rnn=[],
        **{"simple_rnn/cell": [normal(3, 2), normal(2, 2)]},
    )
    graph = gc.load(path).graph
    assert isinstance(graph, Graph)
    inside = [n for node in graph.nodes for region in node.regions for n in region.nodes]
    assert inside
    assert {node.loc for node in inside} == {("turns", 1)}


def test_all_that_cannot_be_imported_is_named_at_once(tmp_path: Path) -> None:
    path = sequence(
        tmp_path / "m.keras",
        given("x", 4),
        layer("Wild", "mine"),
        layer("GRU", "back", stateful=True),
        layer("Dense", "odd", activation="my_own"),
        layer("Dense", "bare"),
        dense=[normal(4, 2)],
    )
    with pytest.raises(gc.GraphError) as told:
        gc.load(path)
    for text in ("4 layers", "'mine'", "stateful=True", "activation='my_own'", "'bare'"):
        assert text in str(told.value)
    for kind in ("Model", "Lambda"):
        path.write_bytes(archive({"class_name": kind, "config": {"layers": []}}, {}))
        with pytest.raises(gc.GraphError, match="class"):
            gc.load(path)


def test_classes_that_are_named_as_layers_are_refused(tmp_path: Path) -> None:
    for changed in (
        {"registered_name": "mine>Multiply"},
        {"module": "keras.src.ops.image", "class_name": "Wild"},
    ):
        entry = layer("Multiply", "multiply", ("x", "x")) | changed
        path = graph(tmp_path / "m.keras", [given("x", 3), entry], [["multiply", 0, 0]])
        with pytest.raises(gc.GraphError, match="cannot be imported") as caught:
            gc.load(path)
        assert "(layer 'multiply')" in str(caught.value)


def test_a_layer_that_stands_in_a_wrapper_too(tmp_path: Path) -> None:
    """Its weights lie where it stands first, and its number says that it is the same."""
    one, w = layer("Dense", "d", "x"), normal(4, 3)
    for number in (7, None):
        shared = {} if number is None else {"shared_object_id": number}
        steps = layer("TimeDistributed", "t", "s", layer={**one, **shared})
        entries = [given("x", 4), given("s", 5, 4), {**one, **shared}, steps]
        path = graph(tmp_path / "m.keras", entries, [["d", 0, 0], ["t", 0, 0]], dense=[w])
        if number is None:
            with pytest.raises(gc.GraphError, match="a shared layer once"):
                gc.load(path)
        else:
            x, s = normal(2, 4), normal(2, 5, 4)
            made = gc.load(path)(x, s)
            np.testing.assert_allclose(made["d"], x @ w, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(made["t"], s @ w, rtol=1e-5, atol=1e-5)


def test_files_that_make_no_sense(tmp_path: Path) -> None:
    path = graph(tmp_path / "m.keras", [given("a", 3), layer("ReLU", "r", "s")], [["r", 0, 0]])
    with pytest.raises(gc.GraphError, match="circle"):
        gc.load(path)
    for told in ("[" * 100_000, "{}", '{"class_name": []}', "null"):
        path.write_bytes(archive(told, {}))
        with pytest.raises(gc.GraphError):
            gc.load(path)
    path.write_bytes(b"PK")
    with pytest.raises(gc.GraphError):
        gc.load(path)


def with_weights(path: Path, write: Any) -> Path:
    """A dense layer whose file of weights `write` fills."""
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        write(file)
    told = {"name": "net", "layers": [given("x", 3), layer("Dense", "dense", units=2)]}
    with zipfile.ZipFile(path, "w") as box:
        box.writestr("config.json", json.dumps({"class_name": "Sequential", "config": told}))
        box.writestr("model.weights.h5", held.getvalue())
    return path


def test_weights_lie_in_the_file_and_within_the_limits(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["vars/0"], other["vars/1"] = np.ones((3, 2), "f4"), np.ones(2, "f4")

    def linked(file: Any) -> None:
        file["layers/dense"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")

    def large(file: Any) -> None:
        for k in range(3):  # each within the limit, of no bytes in the file
            file.create_dataset(f"layers/dense/vars/{k}", (1 << 28,), "f4", chunks=(1 << 20,))

    def circle(file: Any) -> None:
        file["layers/dense/vars/0"], file["layers/dense/vars/1"] = np.ones((3, 2), "f4"), np.ones(2)
        file["layers/dense/again"] = file["layers"]

    for write, match in ((linked, "is a link"), (large, "bytes")):
        with pytest.raises(gc.GraphError, match=match):
            gc.load(with_weights(tmp_path / "m.keras", write))
    assert gc.load(with_weights(tmp_path / "m.keras", circle))


def test_mutated_files_raise_nothing_else(tmp_path: Path) -> None:
    entries = [given("x", 4), layer("Dense", "d", "x"), layer("LSTM", "l", "e"), given("e", 2, 4)]
    weights = {"dense": [normal(4, 2)], "lstm/cell": [normal(4, 8), normal(2, 8), normal(8)]}
    whole = graph(tmp_path / "m.keras", entries, [["d", 0, 0], ["l", 0, 0]], **weights)
    data, draw = whole.read_bytes(), Random(0)
    text = zipfile.ZipFile(whole).read("config.json")
    for turn in range(60):
        changed = bytearray(data if turn % 3 == 0 else text)
        changed[draw.randrange(len(changed))] = draw.choice(b'0129-".{}[]ntas')
        made = bytes(changed)
        if turn % 3:
            made = archive(made.decode("latin1"), weights)
        whole.write_bytes(made)
        with suppress(gc.GraphError):
            loaded: Any = gc.load(whole)
            loaded.bound({"batch": 2})


def called(entry: Entry, **keywords: Any) -> Entry:
    entry["inbound_nodes"][0]["kwargs"] = keywords
    return entry


def test_what_a_layer_is_called_with_is_done_or_refused(tmp_path: Path) -> None:
    for name, kind in (("training", "BatchNormalization"), ("training", "Dropout")):
        statistics = [np.ones(3, "f4")] * 4
        for value in (True, False, None):
            entries = [given("x", 3), called(layer(kind, "b", "x"), **{name: value})]
            graph(tmp_path / "m.keras", entries, ["b", 0, 0], batch_normalization=statistics)
            if value:
                with pytest.raises(gc.GraphError, match="training=True"):
                    gc.load(tmp_path / "m.keras")
            else:
                gc.load(tmp_path / "m.keras")
    for wrong in (
        layer("Dense", "d", ("x", "x")),
        layer("Reshape", "d", "x", target_shape=5),
        layer("Rescaling", "d", "x", scale="a"),
        layer("BatchNormalization", "d", "x", epsilon=None),
    ):
        held = {"dense": [normal(3, 3)], "batch_normalization": [np.ones(3, "f4")] * 4}
        graph(tmp_path / "m.keras", [given("x", 3), wrong], ["d", 0, 0], **held)
        with pytest.raises(gc.GraphError, match="'d'"):
            gc.load(tmp_path / "m.keras")(normal(2, 3))


def test_what_has_fewer_axes_is_merged_behind_the_batch(tmp_path: Path) -> None:
    entries = [given("a", 3), given("b", 4, 3), layer("Multiply", "m", ("a", "b"))]
    a, b = normal(4, 3), normal(4, 4, 3)
    made = gc.load(graph(tmp_path / "m.keras", entries, ["m", 0, 0]))(a, b)["m"]
    np.testing.assert_array_equal(made, a[:, None] * b)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_that_looks_back_alone(tmp_path: Path, causal: bool) -> None:
    parts = [normal(8, 2, 4), normal(2, 4)] * 3 + [normal(2, 4, 8), normal(8)]
    names = ("query", "key", "value", "output")
    held = {
        f"multi_head_attention/{name}_dense": parts[2 * k : 2 * k + 2]
        for k, name in enumerate(names)
    }
    settings = {"num_heads": 2, "key_dim": 4, "value_dim": 4}
    entry = called(layer("MultiHeadAttention", "a", "x", **settings), use_causal_mask=causal)
    entry["inbound_nodes"][0]["args"] *= 2
    model = gc.load(graph(tmp_path / "m.keras", [given("x", 5, 8), entry], ["a", 0, 0], **held))
    x = normal(2, 5, 8)
    q, k, v = (
        np.einsum("bid,dhe->bhie", x, w) + b[:, None] for w, b in zip(*[iter(parts[:6])] * 2)
    )
    scores = np.where(np.tri(5) > 0 if causal else True, q @ k.swapaxes(2, 3) / 2, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = shares / shares.sum(-1, keepdims=True) @ v
    expected = np.einsum("bhie,hed->bid", mixed, parts[6]) + parts[7]
    np.testing.assert_allclose(model(x)["a"], expected, rtol=1e-4, atol=1e-4)


def operator(kind: str, name: str, *args: Any, **config: Any) -> Entry:
    """A function of keras.ops in a model: strings are layers, anything else is a constant."""
    given = [layer("", "", a)["inbound_nodes"][0]["args"][0] if type(a) is str else a for a in args]
    made = layer(kind, name, **config)
    call = {"args": given, "kwargs": {}}
    return {**made, "module": "keras.src.ops.numpy", "registered_name": kind} | {
        "inbound_nodes": [call]
    }


def test_functions_are_not_the_layers_of_the_same_names(tmp_path: Path) -> None:
    """`x * 2.0` is the function Multiply, whose numbers count, and which broadcasts as NumPy."""
    entries = [
        given("a", 3, 5),
        given("b", 5),
        operator("Multiply", "m", "a", 2.0),
        operator("Add", "s", 1, "m"),
        operator("GetItem", "g", "s", [{"class_name": "__ellipsis__"}, 1]),
        operator("Maximum", "t", "g", 0.5),
        operator("Add", "u", "a", "b"),
    ]
    a, b = normal(3, 3, 5), normal(3, 5)
    made = gc.load(graph(tmp_path / "m.keras", entries, [["t", 0, 0], ["u", 0, 0]]))(a, b)
    np.testing.assert_array_equal(made["t"], np.maximum((a * 2 + 1)[..., 1], 0.5))
    np.testing.assert_array_equal(made["u"], a + b)


def test_a_model_is_a_layer_of_another(tmp_path: Path) -> None:
    w, v = normal(3, 3), normal(3, 2)
    within = [given("i", 3), layer("Dense", "d", "i"), layer("Dense", "e", "d")]
    inner = layer("Functional", "inner", "x", "y", layers=within)
    inner["config"] |= {"input_layers": ["i", 0, 0], "output_layers": [["d", 0, 0], ["e", 0, 0]]}
    entries = [given("x", 3), given("y", 3), inner]
    outputs = [["inner", 1, 0], ["inner", 1, 1], ["inner", 2, 1]]
    weights = {"functional/layers/dense": [w], "functional/layers/dense_1": [v]}
    x, y = normal(2, 3), normal(4, 3)[:2]
    made = gc.load(graph(tmp_path / "m.keras", entries, outputs, **weights))(x, y)
    expected = (x @ w, x @ w @ v, y @ w @ v)
    for found, wanted in zip(made.values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_steps_that_do_not_count_are_passed_over(tmp_path: Path) -> None:
    table, w, u = normal(6, 4), normal(4, 3), normal(3, 3)
    path = sequence(
        tmp_path / "m.keras",
        layer("InputLayer", "x", batch_shape=[None, 5], dtype="int32"),
        layer("Embedding", "e", mask_zero=True),
        layer("Dropout", "p"),
        layer("SimpleRNN", "r", activation="tanh", return_sequences=True),
        layer("GlobalAveragePooling1D", "g"),
        **{"embedding": [table], "simple_rnn/cell": [w, u]},
    )
    words = np.array([[3, 0, 1, 2, 0], [1, 2, 3, 4, 5]], np.int32)
    wanted = []
    for row in words:
        h, outputs = np.zeros(3, "f4"), []
        for word in row[row != 0]:
            h = np.tanh(table[word] @ w + h @ u)
            outputs.append(h)
        wanted.append(np.mean(outputs, 0))
    np.testing.assert_allclose(gc.load(path)(words)["g"], wanted, rtol=1e-5, atol=1e-6)


def test_a_dictionary_of_inputs_and_results(tmp_path: Path) -> None:
    entries = [given("first", 3), given("second", 4), layer("ReLU", "r", "first")]
    path = graph(tmp_path / "m.keras", entries, {"out": ["r", 0, 0]})
    with zipfile.ZipFile(path) as box:
        told = json.loads(box.read("config.json"))
    told["config"]["input_layers"] = {"b": ["second", 0, 0], "a": ["first", 0, 0]}
    path.write_bytes(archive(told, {}))
    model, x = gc.load(path), normal(2, 3)
    assert model.params == ("first", "second") and model.result_names == ("out",)
    np.testing.assert_array_equal(model(x, normal(2, 4))["out"], np.maximum(x, 0))


def test_every_result_has_a_name_of_its_own(tmp_path: Path) -> None:
    entries = [
        given("x", 3),
        layer("ReLU", "r", "x", "r"),
        layer("ELU", "r_1", "x"),
        layer("Softmax", "r_0", "x"),
    ]
    out = [["r", 0, 0], ["r_1", 0, 0], ["r", 1, 0], ["r_0", 0, 0]]
    model = gc.load(graph(tmp_path / "m.keras", entries, out))
    assert model.result_names == ("r_2", "r_1", "r_3", "r_0") and len(model(normal(2, 3))) == 4


def test_settings_that_nothing_heeds_are_refused(tmp_path: Path) -> None:
    for kind, told in (("Sqrt", {"odd": 1}), ("Max", {"axis": 1, "where": "x"})):
        entries = [given("x", 3), operator(kind, "o", "x", **told)]
        with pytest.raises(gc.GraphError, match=r"odd=1|where='x'"):
            gc.load(graph(tmp_path / "m.keras", entries, [["o", 0, 0]]))
    entries = [given("x", 3), operator("Repeat", "o", "x", repeats=[10**9, 1, 1], axis=1)]
    with pytest.raises(gc.GraphError, match="repeats of elements"):
        gc.load(graph(tmp_path / "m.keras", entries, [["o", 0, 0]]))
    entries = [given("x", 3), operator("Max", "o", "x", axis=1, initial=None, sparse=False)]
    x = normal(2, 3)
    made = gc.load(graph(tmp_path / "m.keras", entries, [["o", 0, 0]]))(x)["o"]
    np.testing.assert_array_equal(made, x.max(1))


def test_settings_of_layers_that_nothing_heeds_are_refused(tmp_path: Path) -> None:
    """In layers, in what they hold and in activations; those of training, and unset ones, pass."""
    path, square = tmp_path / "m.keras", normal(3, 3)
    cell = [normal(3, 12), normal(3, 12), normal(12)]

    def problem(entry: Entry, group: str, arrays: list[Any]) -> str:
        with pytest.raises(gc.GraphError, match="cannot be imported") as caught:
            gc.load(sequence(path, given("x", 4, 3), entry, **{group: arrays}))
        return " ".join(str(caught.value).split())

    inner = {"class_name": "LSTM", "config": {"units": 3, "bent": True}}
    steep = {"class_name": "ReLU", "config": {"steep": 2}}
    wrapped = {"class_name": "Dense", "config": {"name": "d", "bent": [0]}}
    held = {"class_name": "LSTMCell", "config": {"units": 3, "bent": "up"}}
    found = [
        problem(layer("Dense", "d", bent=0), "dense", [square]),
        problem(layer("Dense", "d", activation=steep), "dense", [square]),
        problem(layer("TimeDistributed", "t", layer=wrapped), "time_distributed/layer", [square]),
        problem(layer("Bidirectional", "b", layer=inner), "bidirectional/forward_layer/cell", cell),
        problem(layer("RNN", "r", cell=held), "rnn/cell", cell),
    ]
    for line, wanted in zip(found, ("bent=0", "steep=2", "bent=[0]", "bent=True", "bent='up'")):
        assert wanted in line, line
    unset = {"bent": None, "crooked": False, "kernel_initializer": "zeros", "seed": 7}
    model = gc.load(sequence(path, given("x", 4, 3), layer("Dense", "d", **unset), dense=[square]))
    x = normal(2, 4, 3)
    np.testing.assert_allclose(model(x)["d"], x @ square, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("UpSampling2D", {"size": [10**9, 1], "interpolation": "bilinear"}),
        ("UpSampling2D", {"size": [0, 1]}),
        ("AdaptiveAveragePooling2D", {"output_size": 10**8}),
        ("AdaptiveMaxPooling2D", {"output_size": [1, 0]}),
        ("Resizing", {"height": 10**9, "width": 1}),
        ("Resizing", {"height": 3, "width": -1}),
        ("Cropping2D", {"cropping": -1}),
        ("Cropping2D", {"cropping": 9}),
        ("Cropping2D", {"cropping": [[1, 1]]}),
        ("ZeroPadding2D", {"padding": -1}),
        ("Discretization", {"bin_boundaries": [3.0, 1.0, 2.0]}),
    ],
)
def test_sizes_that_make_no_sense(tmp_path: Path, kind: str, told: dict[str, Any]) -> None:
    path = sequence(tmp_path / "m.keras", given("x", 4, 4, 2), layer(kind, "a", **told))
    with pytest.raises(gc.GraphError):
        gc.load(path)(normal(1, 4, 4, 2))


def thirty_times(inner: Entry, name: str) -> Entry:
    """A model that calls a layer on its own result, 30 times."""
    first = 1 if inner["class_name"] == "Functional" else 0
    calls = layer("", inner["name"], "x", *(f"{inner['name']}:{k}" for k in range(29)))
    entry = {**inner, "inbound_nodes": calls["inbound_nodes"]}
    whole = layer("Functional", name, layers=[given("x", 2), entry])
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [[inner["name"], 29 + first, 0]]}
    whole["config"] |= ends
    return whole


@pytest.mark.parametrize("steps", [False, True])
def test_calls_are_counted_within_models_too(tmp_path: Path, steps: bool) -> None:
    made = thirty_times(layer("ReLU", "r"), "m0")
    path = tmp_path / "m.keras"
    path.write_bytes(archive(thirty_times(made, "m1"), {}))
    model: Any = gc.load(path)
    assert model.node_count == 900
    for depth in range(1, 6):
        made = thirty_times(
            layer("TimeDistributed", "t", layer=made) if steps else made, f"m{depth}"
        )
    path.write_bytes(archive(made, {}))
    with pytest.raises(gc.GraphError, match="729000000 calls"):
        gc.load(path)


def test_what_layers_share_is_read_once(tmp_path: Path) -> None:
    """One layer in many places; one array that is linked to many layers is read for each."""
    w, x, count = normal(128, 128) / 11, normal(2, 128), 20
    entries = [{**layer("Dense", f"d{k}"), "shared_object_id": 1} for k in range(count)]
    wanted = x @ np.linalg.matrix_power(w.astype("f8"), count)
    before = limits.limit("model_bytes")
    limits.set_limit("model_bytes", 10 * w.nbytes)
    try:
        path = sequence(tmp_path / "m.keras", given("x", 128), *entries, dense=[w])
        made = gc.load(path)(x)["d19"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
        entries = [layer("Dense", f"d{k}") for k in range(count)]
        held = io.BytesIO()
        with h5py.File(held, "w") as file:
            file["layers/dense/vars/0"] = w
            for k in range(1, count):
                file[f"layers/dense_{k}/vars/0"] = file["layers/dense/vars/0"]
        with zipfile.ZipFile(path, "w") as box:
            told = {"name": "net", "layers": [given("x", 128), *entries]}
            box.writestr("config.json", json.dumps({"class_name": "Sequential", "config": told}))
            box.writestr("model.weights.h5", held.getvalue())
        with pytest.raises(gc.GraphError, match="layers have"):
            gc.load(path)
    finally:
        limits.set_limit("model_bytes", before)
