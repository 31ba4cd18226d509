"""gc.load("model.onnx"): names, sizes, refusals, untrusted files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from project import ROOT

import graphc as gc
from graphc.cli import main
from graphc.cli.audit import audit
from graphc.cli.compile import parse_bindings
from graphc.limits import limit, set_limit
from graphc.runtime.files.stable_file import OpenFile

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper


FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def tensor(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def save(path: Path, nodes: Any, inputs: Any, outputs: Any, opset: int = 18, **graph: Any) -> Path:
    made = helper.make_graph(nodes, "model", inputs, outputs, **graph)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)]
    path.write_bytes(helper.make_model(made, opset_imports=imports).SerializeToString())
    return path


def dense(path: Path) -> Path:
    """relu(x @ w) with a named batch."""
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2) - 2, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    return save(path, nodes, [tensor("x", ["N", 3])], [tensor("y", ["N", 2])], initializer=[w])


def test_names_and_sizes(tmp_path: Path) -> None:
    model = gc.load(dense(tmp_path / "m.onnx"))
    assert (model.params, model.result_names) == (("x",), ("y",))
    for n in (1, 4):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        expected = np.maximum(x @ (np.arange(6, dtype=np.float32).reshape(3, 2) - 2), 0)
        np.testing.assert_allclose(model(x=x)["y"], expected, rtol=1e-6)
        np.testing.assert_allclose(model(x)["y"], expected, rtol=1e-6)
    with pytest.raises(gc.FeedError, match="parameter 'z'"):
        model(z=x)
    with pytest.raises(gc.FeedError, match="f64"):
        model(x=x.astype(np.float64))
    with pytest.raises(gc.FeedError):
        model(x=x[:, :2])
    assert str(model.graph.params[0].type) == "f32[N,3]"


def test_a_compiled_file_of_it_serves_every_size(tmp_path: Path) -> None:
    main(["compile", str(dense(tmp_path / "m.onnx")), "-o", str(tmp_path / "m.gcx")])
    model, served = gc.load(tmp_path / "m.onnx"), gc.load(tmp_path / "m.gcx")
    for n in (1, 4, 33, 100):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        np.testing.assert_allclose(served(x=x)["y"], model(x=x)["y"], rtol=1e-5, atol=1e-6)


def reshaping(path: Path) -> Path:
    """Sizes computed as files do: rows joined, numbered, the even ones of them."""
    node = helper.make_node
    constants = {
        "zero": 0,
        "one": 1,
        "two": 2,
        "ax": [0],
        "front": [0],
        "end": [1 << 62],
        "st": [2],
    }
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["b"]),
        node("Gather", ["shape", "one"], ["t"]),
        node("Mul", ["b", "t"], ["rows"]),
        node("Unsqueeze", ["rows", "ax"], ["rows1"]),
        node("Concat", ["rows1", "last"], ["flat"], axis=0),
        node("Reshape", ["x", "flat"], ["joined"]),
        node("Range", ["zero", "rows", "one"], ["places"]),
        node("Cast", ["places"], ["numbers"], to=FLOAT),
        node("Unsqueeze", ["numbers", "axis1"], ["column"]),
        node("Shape", ["joined"], ["whole"]),
        node("Expand", ["column", "whole"], ["wide"]),
        node("Add", ["joined", "wide"], ["sum"]),
        node("Div", ["rows", "two"], ["half"]),
        node("Unsqueeze", ["half", "ax"], ["half1"]),
        node("Slice", ["sum", "front", "half1", "ax"], ["first"]),
        node("Slice", ["first", "front", "end", "ax", "st"], ["y"]),
    ]
    given = [known(name, value) for name, value in constants.items()]
    given += [known("last", [4]), known("axis1", [1])]
    inputs, outputs = [tensor("x", ["b", "t", 4])], [tensor("y", ["n", 4])]
    return save(path, nodes, inputs, outputs, initializer=given)


def test_sizes_that_it_computes_stay_open(tmp_path: Path) -> None:
    model = gc.load(reshaping(tmp_path / "m.onnx"))
    for b, t in ((3, 4), (5, 6), (2, 2), (1, 7), (8, 1), (9, 30)):
        x = np.random.default_rng(b).normal(size=(b, t, 4)).astype(np.float32)
        joined = x.reshape(-1, 4) + np.arange(b * t, dtype=np.float32)[:, None]
        np.testing.assert_allclose(model(x=x)["y"], joined[: b * t // 2][::2], rtol=1e-6)
    stages = {id(stage.built.stages) for stage in (*model._compilations.values(), *model._sized)}
    assert len(stages) <= 2, "those of the first size, and of all others"
    main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.gcx")])
    np.testing.assert_allclose(gc.load(tmp_path / "m.gcx")(x=x)["y"], model(x=x)["y"])


def test_any_value_is_fetched_by_its_name(tmp_path: Path) -> None:
    graph = gc.load(dense(tmp_path / "m.onnx")).bound({"N": 2})
    session = gc.Session()
    session.extend(graph)
    x = np.ones((2, 3), np.float32)
    (found,) = session.run(["product"], {"x": x})
    np.testing.assert_allclose(found, x @ (np.arange(6, dtype=np.float32).reshape(3, 2) - 2))


def test_inside_a_trace_it_is_differentiated(tmp_path: Path) -> None:
    model = gc.load(dense(tmp_path / "m.onnx"))

    @gc.compile
    def slope(x: Any) -> Any:
        return gc.grad(lambda v: model(x=v)["y"].sum())(x)

    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(slope(x), [[-1.0, 1.0, 3.0]])


def test_it_is_pickled_and_called_from_threads(tmp_path: Path) -> None:
    model = pickle.loads(pickle.dumps(gc.load(dense(tmp_path / "m.onnx"))))
    results: dict[int, Any] = {}

    def call(n: int) -> None:
        results[n] = model(x=np.ones((n, 3), np.float32))["y"]

    threads = [threading.Thread(target=call, args=(n,)) for n in (1, 2, 3, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: r.shape for n, r in results.items()} == {n: (n, 2) for n in (1, 2, 3)}


def test_sizes_that_shapes_are_computed_from_may_be_bound(tmp_path: Path) -> None:
    """Such a model is imported for numbers alone."""
    node, one = helper.make_node, numpy_helper.from_array(np.ones(1, np.float32))
    path = save(
        tmp_path / "m.onnx",
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["ones"], value=one),
            node("Add", ["x", "ones"], ["y"]),
        ],
        [tensor("x", ["N", 3])],
        [tensor("y", ["N", 3])],
    )
    target = tmp_path / "m.gcx"
    main(["compile", str(path), "-o", str(target), "--bind", "N=2"])
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(gc.load(target)(x)["y"], x + 1)


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))

    def command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "graphc", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "matmul" in command("show", str(path), "--bind", "N=2")
    assert "y" in command("run", str(path), "--feed", "x=x.npy", "--check")
    command("compile", str(path), "-o", "m.gcx", "--bind", "N=2")
    command("run", "m.gcx", "--feed", "x=x.npy", "-o", "out.npz")
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], [[0, 3], [0, 3]])


def test_sizes_are_bound_by_the_names_of_the_file() -> None:
    assert parse_bindings(("Dim.0=2", "p=3", "a=b=4")) == {"Dim_0": 2, "p": 3, "a_b": 4}
    for wrong in ("=2", "n=", "n=x", "n"):
        with pytest.raises(gc.GraphError, match="is not a binding"):
            parse_bindings((wrong,))


# ------------------------------------------------------------------------------ sizes of the data


def test_an_input_that_decides_a_shape(tmp_path: Path) -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    path = save(
        tmp_path / "m.onnx",
        [node],
        [tensor("x", [6]), tensor("shape", [2], INT64)],
        [tensor("y", [None, None])],
    )
    model = gc.load(path)
    x = np.arange(6, dtype=np.float32)
    for dims in ([2, 3], [3, 2], [-1, 1], [2, 3]):
        np.testing.assert_array_equal(model(x=x, shape=np.array(dims))["y"], x.reshape(dims))
    with pytest.raises(gc.GraphError, match="Reshape-18"):
        model(x=x, shape=np.array([4, 4]))
    with pytest.raises(gc.GraphError, match="decide sizes"):
        _ = model.graph


def test_data_that_decides_a_size(tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("NonZero", ["a"], ["places"])]
    path = save(
        tmp_path / "m.onnx", nodes, [tensor("x", [2, 3])], [tensor("places", [2, None], INT64)]
    )
    model = gc.load(path)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(-1, 2, (2, 3)).astype(np.float32)
        np.testing.assert_array_equal(model(x=x)["places"], np.stack(np.nonzero(x)))


def test_branches_of_different_shapes(tmp_path: Path) -> None:
    def branch(op: str, name: str) -> Any:
        node = helper.make_node(op, ["x"], [name], **({"axis": 0} if op == "Flatten" else {}))
        return helper.make_graph([node], name, [], [tensor(name, None)])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Flatten", "a"), else_branch=branch("Neg", "b")
    )
    path = save(
        tmp_path / "m.onnx",
        [node],
        [tensor("x", [2, 2]), tensor("c", [], BOOL)],
        [tensor("y", None)],
    )
    model, x = gc.load(path), np.ones((2, 2), np.float32)
    assert model(x=x, c=np.array(True))["y"].shape == (1, 4)
    np.testing.assert_array_equal(model(x=x, c=np.array(False))["y"], -x)


def test_a_branch_that_has_no_result_at_these_sizes(tmp_path: Path) -> None:
    w = {n: numpy_helper.from_array(np.full((n, 1), n, np.float32), "w") for n in (2, 3)}

    def branch(n: int) -> Any:
        node = helper.make_node("MatMul", ["x", "w"], [f"y{n}"])
        return helper.make_graph([node], f"b{n}", [], [tensor(f"y{n}", None)], [w[n]])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch(2), else_branch=branch(3))
    path = save(
        tmp_path / "m.onnx",
        [node],
        [tensor("x", [1, "n"]), tensor("c", [], BOOL)],
        [tensor("y", None)],
    )
    model = gc.load(path)
    for n in (2, 3, 2):
        x = np.ones((1, n), np.float32)
        np.testing.assert_array_equal(model(x=x, c=np.array(n == 2))["y"], [[n * n]])
        with pytest.raises(gc.GraphError, match="MatMul-18"):
            model(x=x, c=np.array(n != 2))


# ------------------------------------------------------------------------------ refusals


def test_everything_unsupported_is_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Fancy", ["x"], ["a"], domain="com.example", name="first"),
        helper.make_node("ImageDecoder", ["x"], ["b"], name="second"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [tensor("x", [2])], [tensor("y", [2])], 20)
    with pytest.raises(gc.GraphError) as caught:
        gc.load(path)
    text = str(caught.value)
    assert "com.example.Fancy-1 (node 'first')" in text
    assert "ImageDecoder-20 (node 'second')" in text


@pytest.mark.parametrize(
    ("attributes", "message"),
    [({"axis": 7}, "axis 7"), ({"axis": "x"}, "is no int"), ({"size": 1}, "no attribute")],
)
def test_bad_attributes_name_the_node(
    tmp_path: Path, attributes: dict[str, Any], message: str
) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="soft", **attributes)
    path = save(tmp_path / "m.onnx", [node], [tensor("x", [2])], [tensor("y", [2])])
    with pytest.raises(gc.GraphError, match=r"Softmax-18 \(node 'soft'\)") as caught:
        gc.load(path)(x=np.ones(2, np.float32))
    assert message in str(caught.value)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    for data in (b"", b"\xff" * 40, b"hello", dense(tmp_path / "m.onnx").read_bytes()[:-9]):
        path = tmp_path / "bad.onnx"
        path.write_bytes(data)
        with pytest.raises(gc.GraphError):
            gc.load(path).bound({"N": 1})
    with pytest.raises(gc.GraphError, match="cannot read"):
        gc.load(tmp_path / "none.onnx")


def big(path: Path, name: str, nbytes: int = 24) -> Path:
    """A model whose weights lie in a file of this name."""
    proto = TensorProto(name="w", data_type=FLOAT, dims=[2, 3])
    proto.data_location = TensorProto.EXTERNAL
    for key, text in (("location", name), ("offset", "8"), ("length", str(nbytes))):
        proto.external_data.add(key=key, value=text)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return save(path, [node], [tensor("x", [2, 3])], [tensor("y", [2, 3])], initializer=[proto])


def test_external_data(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"\0" * 8 + weights.tobytes())
    x = np.ones((2, 3), np.float32)
    made = gc.load(big(tmp_path / "m.onnx", "w.bin"))(x=x)["y"]
    np.testing.assert_array_equal(made, x + weights.reshape(2, 3))
    for name in ("../w.bin", "/etc/passwd", "", ".."):
        with pytest.raises(gc.GraphError, match="no plain file name"):
            gc.load(big(tmp_path / "m.onnx", name))
    with pytest.raises(gc.GraphError, match="needs 24 bytes"):
        gc.load(big(tmp_path / "m.onnx", "w.bin", 25))
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(gc.GraphError, match="is a link"):
        gc.load(big(tmp_path / "m.onnx", "link.bin"))


def chain(op: str, count: int) -> list[Any]:
    """Each node takes the result of the one before twice."""
    return [helper.make_node(op, [f"v{k}", f"v{k}"], [f"v{k + 1}"], axis=0) for k in range(count)]


def test_a_small_file_does_not_fold_to_a_large_constant(tmp_path: Path) -> None:
    """2**40 known elements are never made: what is beyond the limit is left to the graph."""
    start = helper.make_node("Constant", [], ["v0"], value_ints=[1, 2])
    nodes = [start, *chain("Concat", 40), helper.make_node("Shape", ["v40"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [], [tensor("y", [1], INT64)])
    assert gc.load(path)()["y"] == 2**41


def test_loops_are_not_copied_without_end(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["go"]),
            helper.make_node("Concat", ["v", "v"], ["w"], axis=0),
        ],
        "body",
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("v", [None])],
        [tensor("go", [], BOOL), tensor("w", [None])],
    )
    most = numpy_helper.from_array(np.array(2**60), "most")
    node = helper.make_node("Loop", ["most", "", "x"], ["y"], body=body)
    path = save(
        tmp_path / "m.onnx", [node], [tensor("x", [1])], [tensor("y", [None])], initializer=[most]
    )
    before = limit("imported_nodes")
    set_limit("imported_nodes", 200)
    try:
        with pytest.raises(gc.GraphError):
            gc.load(path)(x=np.ones(1, np.float32))
    finally:
        set_limit("imported_nodes", before)


def test_functions_that_call_one_another_end(tmp_path: Path) -> None:
    """f0 calls f1 twice, which calls f2 twice ...: 2**40 nodes are refused."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = []
    for k in range(40):
        inner = [
            helper.make_node(f"f{k + 1}", ["a"], ["b"], domain="own"),
            helper.make_node(f"f{k + 1}", ["b"], ["c"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"f{k}", ["a"], ["c"], inner, imports))
    last = [helper.make_node("Neg", ["a"], ["c"])]
    functions.append(helper.make_function("own", "f40", ["a"], ["c"], last, imports))
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    graph = helper.make_graph([call], "g", [tensor("x", [1])], [tensor("y", [1])])
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    before = limit("imported_nodes")
    set_limit("imported_nodes", 500)
    try:
        with pytest.raises(gc.LimitError, match="functions copied"):
            gc.load(path)(x=np.ones(1, np.float32))
    finally:
        set_limit("imported_nodes", before)


def test_an_index_has_no_more_parts_than_there_are_axes(tmp_path: Path) -> None:
    for op, given in (("ScatterND", ["x", "i", "u"]), ("GatherND", ["x", "i"])):
        path = save(
            tmp_path / "m.onnx",
            [helper.make_node(op, given, ["y"])],
            [
                tensor("x", [4, 4]),
                tensor("i", [2, 1 << 31], TensorProto.INT64),
                tensor("u", [2, 4]),
            ],
            [tensor("y", None)],
        )
        with pytest.raises(gc.GraphError, match="too many indices"):
            gc.load(path).bound({})


def known(name: str, value: Any) -> Any:
    return numpy_helper.from_array(np.array(value), name)


HOSTILE = {
    "LSTM": ([1 << 30, 1, 1], {"hidden_size": 1}, [np.zeros((1, 4, 1), np.float32)] * 2),
    "OneHot": ([4], {}, [np.array(1 << 40), np.zeros(2, np.float32)]),
    "AveragePool": ([1, 1, 1 << 20, 1 << 20], {"kernel_shape": [3, 3]}, []),
    "MaxPool": ([1, 1, 1 << 20, 1 << 20], {"kernel_shape": [1 << 12, 1 << 12]}, []),
    "Pad": ([4], {"mode": "reflect"}, [np.array([0, 1 << 40])]),
    "Tile": ([4, 4], {}, [np.array([1 << 30, 1 << 30])]),
    "DFT": ([1, 1 << 20, 1], {"axis": 1}, []),
    "EyeLike": ([1 << 20, 1 << 20], {}, []),
    "Neg": ([1 << 20, 1 << 20], {}, []),
    "ReduceSum": ([1 << 20, 1 << 20], {}, [np.array([0])]),
}


@pytest.mark.parametrize("op", HOSTILE)
def test_sizes_of_a_few_bytes_cost_nothing(tmp_path: Path, op: str) -> None:
    """What it would need is refused, or left to the graph, before anything of it is made."""
    shape, attributes, others = HOSTILE[op]
    names = [f"k{n}" for n in range(len(others))]
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["big"]),
        helper.make_node(op, ["big", *names], ["y"], **attributes),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [],
        [tensor("y", None)],
        initializer=[known("shape", shape), *map(known, names, others)],
    )
    tracemalloc.start()
    try:
        gc.load(path).graph.params  # noqa: B018  (traces it)
    except gc.GraphError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 200e6


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_may_be_large(tmp_path: Path, op: str) -> None:
    """A window of 750 elements is pooled axis by axis."""
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[25, 30], strides=[2, 3])
    path = save(
        tmp_path / "m.onnx", [node], [tensor("x", [1, 2, 31, 37])], [tensor("y", None)], opset=22
    )
    x = np.random.default_rng(0).normal(size=(1, 2, 31, 37)).astype(np.float32)
    read = np.lib.stride_tricks.sliding_window_view(x, (25, 30), (2, 3))[:, :, ::2, ::3]
    axes = (-2, -1)
    wanted = {
        "MaxPool": read.max(axes),
        "AveragePool": read.mean(axes, np.float64),
        "LpPool": np.sqrt((read.astype(np.float64) ** 2).sum(axes)),
    }
    np.testing.assert_allclose(gc.load(path)(x)["y"], wanted[op], rtol=1e-5, atol=1e-6)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
MANY = 1 << 31


@pytest.mark.parametrize("operand", ["W", "R", "B"])
@pytest.mark.parametrize("op", GATES)
def test_weights_of_many_directions_are_refused(tmp_path: Path, op: str, operand: str) -> None:
    """Declared sizes are no work: nothing is made for directions that the operator lacks."""
    gates = GATES[op]
    shapes = {"W": [1, gates * 3, 2], "R": [1, gates * 3, 3], "B": [1, gates * 6]}
    shapes[operand][0] = MANY
    path = save(
        tmp_path / "m.onnx",
        [helper.make_node(op, ["X", "W", "R", "B"], ["", "Y"], hidden_size=3)],
        [tensor("X", [1, 3, 2]), *(tensor(name, shape) for name, shape in shapes.items())],
        [tensor("Y", None)],
    )
    with pytest.raises(gc.GraphError, match="weights of 1 direction"):
        gc.load(path).graph  # noqa: B018  (traces it)


@pytest.mark.parametrize(
    "head", [b"", b"\x08\x07", b"\x08\x07\x12\x03abc", b"PK\x03\x04", b"\xff" * 11]
)
def test_a_large_file_of_another_kind_is_not_read_whole(
    head: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counts, read = tmp_path / "m.onnx", list[int](), OpenFile.read

    def counted(source: OpenFile, place: int, count: int) -> Any:
        counts.append(count)
        return read(source, place, count)

    monkeypatch.setattr(OpenFile, "read", counted)
    monkeypatch.setattr(OpenFile, "whole", lambda source: counts.append(source.size))
    with path.open("wb") as file:
        file.write(head)
        file.truncate(900 << 20)
    with pytest.raises(gc.GraphError, match=r"m\.onnx is no ONNX model: no field begins at byte"):
        gc.load(path)
    assert sum(counts) < 1000


def test_images_of_an_open_batch_have_a_graph(tmp_path: Path) -> None:
    """Resize to sizes of which one is the batch, which stays."""
    rest = numpy_helper.from_array(np.array([1, 4, 6], np.int64), "rest")
    nodes = [
        helper.make_node("Shape", ["x"], ["batch"], start=0, end=1),
        helper.make_node("Concat", ["batch", "rest"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    given, made = [tensor("x", ["N", 1, 2, 3])], [tensor("y", ["N", 1, 4, 6])]
    model = gc.load(save(tmp_path / "m.onnx", nodes, given, made, initializer=[rest]))
    assert str(model.graph.results[0].type) == "f32[N,1,4,6]"


def test_a_size_that_the_file_fixes_is_refused_with_the_way_to_open_it(tmp_path: Path) -> None:
    w = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = [tensor("x", [1, 3])], [tensor("y", [1, 2])]
    path = save(tmp_path / "m.onnx", [node], *made, initializer=[w])
    x = np.ones((4, 3), np.float32)
    with pytest.raises(gc.FeedError, match="x has shape") as refused:
        gc.load(path)(x=x)
    assert refused.value.hint is not None
    model = onnx.load(path)
    told = refused.value.hint.split(": ")[-1]
    assert told.startswith("model.graph.input[0]") and told.endswith("dim[0].dim_param = 'size'")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, path)
    np.testing.assert_array_equal(gc.load(path)(x=x)["y"], x @ np.ones((3, 2)))


def test_the_way_to_open_a_size_names_the_input_and_the_axis_that_are_fixed(tmp_path: Path) -> None:
    """dim[0] was named where the batch is open and the second axis fixed."""
    w = numpy_helper.from_array(np.ones(5, np.float32), "w")
    nodes = [
        helper.make_node("Mul", ["y", "w"], ["scaled"]),
        helper.make_node("Add", ["x", "scaled"], ["z"]),
    ]
    given = [tensor("w", [5]), tensor("x", ["N", 1]), tensor("y", ["N", 5])]
    path = save(tmp_path / "m.onnx", nodes, given, [tensor("z", ["N", 5])], initializer=[w])
    x, y = np.ones((4, 1), np.float32), np.ones((4, 3), np.float32)
    with pytest.raises(gc.FeedError, match="y has shape") as refused:
        gc.load(path)(x=x, y=y)
    assert refused.value.hint is not None
    told = refused.value.hint.split(": ")[-1]
    assert told.startswith("model.graph.input[2].type.tensor_type.shape.dim[1].dim_param")


def test_sizes_of_one_name_may_differ_where_it_computes(tmp_path: Path) -> None:
    """A network that a package ships calls the sizes of phonemes and of notes N; other runtimes
    look at what is computed alone."""
    node = helper.make_node("Add", ["x", "y"], ["z"])
    given = [tensor("x", ["N", 3]), tensor("y", ["N", 3])]
    model = gc.load(save(tmp_path / "m.onnx", [node], given, [tensor("z", ["N", 3])]))
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(model(x=x, y=x)["z"], x + x)
    with pytest.raises(gc.FeedError, match="y: dimension N is 2, not 4: N is 4 in x"):
        model(x=x, y=x[:2])
    np.testing.assert_array_equal(model(x=x, y=y)["z"], x + y)
    np.testing.assert_array_equal(model(x=y, y=x)["z"], x + y)
    np.testing.assert_array_equal(model(x=x, y=x)["z"], x + x)
    with pytest.raises(gc.GraphError):
        model(x=x, y=x[:2])


def test_the_rank_of_an_input_may_be_open(tmp_path: Path) -> None:
    """Such a file was refused; other runtimes run it."""
    node = helper.make_node("Relu", ["x"], ["y"])
    path = save(tmp_path / "m.onnx", [node], [tensor("x", None)], [tensor("y", None)])
    model = gc.load(path)
    for shape in ((), (3,), (2, 3), (4, 3), (5, 3), (1, 2, 2)):
        x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(model(x=x)["y"], np.maximum(x, 0))
    with pytest.raises(gc.FeedError, match=r"x is f64\[3\], the graph takes f32"):
        model(x=np.ones(3))
    for ask in (lambda: model.graph, lambda: model.bound({}), model.build):
        with pytest.raises(gc.GraphError, match="'x' has no declared rank: only calls say"):
            ask()


def test_stored_arrays_keep_their_names(tmp_path: Path) -> None:
    """An audit called them %1, %2, ..."""
    rows = audit(gc.load(dense(tmp_path / "m.onnx")).graph)["constants"]
    assert [row["name"] for row in rows] == ["w"]


def test_the_graph_of_open_sizes_is_one(tmp_path: Path) -> None:
    """It was another at every access."""
    model = gc.load(dense(tmp_path / "m.onnx"))
    assert model.graph is model.graph
