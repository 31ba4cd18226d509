"""Strings, labels and maps of ONNX models, beside ONNX's own evaluator and plain Python."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from benchmarks.onnx_cases import Interpreted
from graphc.cli.commands import main
from graphc.formats.onnx.model import OnnxModel
from graphc.formats.onnx.reader import from_proto

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING
ML = "ai.onnx.ml"
rng = np.random.default_rng(0)
KINDS = {"f": FLOAT, "i": INT64, "O": STRING}


def texts(*items: Any) -> Any:
    return np.array(items, object)


def proto(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **constants: Any) -> Any:
    """A model of nodes; inputs are arrays like those that it will be fed, sizes left open."""
    given = [
        helper.make_tensor_value_info(n, KINDS[v.dtype.kind], [None] * v.ndim)
        for n, v in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, 1, None) for n in outputs]
    known = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", given, made, initializer=known)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 4)]
    return helper.make_model(graph, opset_imports=imports)


def interpreted(model: Any) -> Interpreted:
    return Interpreted(from_proto(model, Path("m.onnx")))


def run(op: str, *inputs: Any, results: int = 1, domain: str = "", **attributes: Any) -> Any:
    names = [f"i{k}" for k in range(len(inputs))]
    outputs = [f"o{k}" for k in range(results)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    model = proto([node], dict(zip(names, inputs)), outputs)
    return interpreted(model).run(list(inputs))


def test_strings_are_moved_joined_and_compared() -> None:
    a, b = texts("x", "yy", ""), texts("yy", "x", "x")
    (made,) = run("StringConcat", a, b[:, None])
    assert made.tolist() == [[p + q for p in a] for q in b]
    (made,) = run("Concat", a, b, axis=0)
    assert made.tolist() == [*a, *b]
    (made,) = run("Equal", a, b[:, None])
    assert made.tolist() == [[p == q for p in a] for q in b]
    (made,) = run("Transpose", texts(["p", "q"], ["r", "s"]))
    assert made.tolist() == [["p", "r"], ["q", "s"]]
    (made,) = run("Identity", np.zeros((0, 3), object))
    assert made.shape == (0, 3)


def test_numbers_are_spelled_and_read() -> None:
    (made,) = run("Cast", np.array([1.5, -2.0], np.float32), to=STRING)
    assert made.tolist() == ["1.5", "-2.0"]
    (made,) = run("Cast", texts("1.5", "nan", "-inf"), to=FLOAT)
    np.testing.assert_array_equal(made, np.float32([1.5, np.nan, -np.inf]))
    for bad in ("seven", "1_0", ""):
        with pytest.raises(gc.GraphError):
            run("Cast", texts(bad), to=INT64)


def test_strings_are_split_and_normalised() -> None:
    words = texts("a b  c", "", " d")
    made, counts = run("StringSplit", words, results=2)
    assert made.tolist() == [["a", "b", "c"], ["", "", ""], ["d", "", ""]]
    assert counts.tolist() == [3, 0, 1]
    options: dict[str, Any] = {"case_change_action": "UPPER", "stopwords": ["b"]}
    (made,) = run("StringNormalizer", texts("A", "B", "b"), **options, is_case_sensitive=0)
    assert made.tolist() == ["A"]
    (made,) = run("StringNormalizer", texts("b"), **options)
    assert made.tolist() == [""]


def classifier(keys: list[str]) -> Any:
    """Categories to numbers, numbers to labels and a dictionary per row."""
    labels = texts("no", "yes")
    nodes = [
        helper.make_node("OneHotEncoder", ["c"], ["h"], domain=ML, cats_strings=keys),
        helper.make_node("MatMul", ["h", "w"], ["s"]),
        helper.make_node("ArgMax", ["s"], ["k"], axis=1, keepdims=0),
        helper.make_node("Gather", ["labels", "k"], ["label"]),
        helper.make_node("ZipMap", ["s"], ["p"], domain=ML, classlabels_strings=list(labels)),
    ]
    weights = np.arange(2 * len(keys), dtype=np.float32).reshape(-1, 2)[::-1].copy()
    return proto(nodes, {"c": texts("a")}, ["label", "p"], w=weights, labels=labels)


def test_one_compilation_serves_all_strings() -> None:
    model = OnnxModel(from_proto(classifier(["a", "b", "c"]), Path("m.onnx")))
    rows = {"a": [4, 5], "b": [2, 3], "c": [0, 1], "other": [0, 0]}
    for batch in (["a", "b"], ["other", "a"], ["c", "never seen"]):
        made = model(c=texts(*batch))
        scores = [rows.get(word, rows["other"]) for word in batch]
        assert made["label"].tolist() == ["yes" if b > a else "no" for a, b in scores]
        assert made["p"] == [{"no": float(a), "yes": float(b)} for a, b in scores]
    assert len(model._compilations) == 1
    with pytest.raises(gc.GraphError, match="expected strings, got int"):
        model(c=texts(1, 2))
    assert model(c=np.array(["a"]))["label"].tolist() == ["yes"]
    assert model(c=np.array([], object))["p"] == []


def test_compiled_files_have_no_strings(tmp_path: Path) -> None:
    onnx.save(classifier(["a"]), tmp_path / "m.onnx")
    model = gc.load(tmp_path / "m.onnx")
    with pytest.raises(gc.GraphError, match="'label' holds strings"):
        model.prepared((texts("a"),), {})
    with pytest.raises(gc.GraphError, match="'c' takes strings"):
        model.build((1,))


def test_the_command_line_runs_models_of_strings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were refused, and strings that --seed drew were numbers."""
    model = classifier(["a", "b"])
    onnx.save(model, tmp_path / "whole.onnx")
    del model.graph.output[1:]
    onnx.save(model, tmp_path / "labels.onnx")
    np.save(tmp_path / "c.npy", np.array(["b", "a"]))
    feed, out = ("--feed", f"c={tmp_path / 'c.npy'}"), str(tmp_path / "out.npz")
    main(["run", str(tmp_path / "labels.onnx"), *feed, "-o", out])
    assert "'yes' 'yes'" in capsys.readouterr().out
    with np.load(out) as made:
        assert made["label"].tolist() == ["yes", "yes"]
    main(["run", str(tmp_path / "whole.onnx"), *feed])
    assert "{'no': 0.0, 'yes': 1.0}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "whole.onnx"), *feed, "-o", out])
    assert "the result 'p' is no array" in capsys.readouterr().err
    main(["run", str(tmp_path / "labels.onnx"), "--seed", "0", "--bind", "c_dim0=2", "--json"])
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["dtype"] == "str"
    assert set(result["values"]) <= {"yes", "no"}


def test_no_compiled_file_takes_strings(tmp_path: Path) -> None:
    """One was written: it took and gave places of words."""
    options = {"domain": ML, "keys_strings": ["a", "b"], "values_int64s": [1, 2]}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], **options)
    model = proto([node], {"x": texts("a", "b")}, ["y"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, tmp_path / "m.onnx")
    loaded = gc.load(tmp_path / "m.onnx")
    assert loaded(texts("b", "a"))["y"].tolist() == [2, 1]
    for write in (loaded.build, loaded.build_exactly, loaded.planned):
        with pytest.raises(gc.GraphError, match="'x' takes strings, compiled files take arrays"):
            write((2,))
    with pytest.raises(gc.GraphError, match="'x' takes strings"):
        loaded.build()


def test_labels_of_numbers_and_strings() -> None:
    options: dict[str, Any] = {
        "domain": ML,
        "keys_strings": ["a", "b"],
        "values_floats": [1.0, 2.0],
    }
    (made,) = run("LabelEncoder", texts("b", "?", "a"), **options, default_float=-1.0)
    assert made.tolist() == [2.0, -1.0, 1.0]
    words: dict[str, Any] = {"domain": ML, "keys_int64s": [3, 5], "values_strings": ["x", "y"]}
    (made,) = run("LabelEncoder", np.array([[5, 4]]), **words, default_string="none")
    assert made.tolist() == [["y", "none"]]
    mapping: dict[str, Any] = {"domain": ML, "cats_int64s": [7, 8], "cats_strings": ["p", "q"]}
    (made,) = run("CategoryMapper", texts("q", "z"), **mapping)
    assert made.tolist() == [8, -1]
    (made,) = run("CategoryMapper", np.array([7, 1]), **mapping)
    assert made.tolist() == ["p", "_Unused"]


def test_labels_of_the_first_version_are_places_of_classes() -> None:
    """A network that a package ships has them; later versions have keys and values."""
    options: dict[str, Any] = {"domain": ML, "classes_strings": ["a", "bb", "c"]}

    def first_version(given: Any, **more: Any) -> Any:
        node = helper.make_node("LabelEncoder", ["x"], ["y"], **options, **more)
        model = proto([node], {"x": given}, ["y"])
        model.opset_import[1].version = 1
        return interpreted(model).run([given])[0].tolist()

    assert first_version(texts("c", "?", "a")) == [2, -1, 0]
    assert first_version(texts("?", "bb"), default_int64=7) == [7, 1]
    assert first_version(np.array([[1, 3], [-1, 2]])) == [["bb", "_Unused"], ["_Unused", "c"]]
    assert first_version(np.array([0, 9]), default_string="none") == ["a", "none"]


def grams_of(row: list[int], size: int, skips: int) -> list[tuple[int, ...]]:
    """All n-grams of a row whose tokens lie 1 to skips + 1 apart."""
    steps = range(1, (skips if size > 1 else 0) + 2)
    return [
        tuple(row[k : k + (size - 1) * step + 1 : step])
        for step in steps
        for k in range(len(row) - (size - 1) * step)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_n_grams_beside_counting_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    pools = [random.integers(0, 4, (3, size)) for size in (1, 2, 3)]
    unique = [list(dict.fromkeys(map(tuple, pool.tolist()))) for pool in pools]
    grams = [gram for level in unique for gram in level]
    starts = np.cumsum([0, *(n * len(level) for n, level in enumerate(unique, 1))])[:3]
    columns = random.permutation(len(grams))
    weights = random.normal(size=len(grams)).astype(np.float32)
    low, skips = int(random.integers(1, 4)), int(random.integers(0, 3))
    x = random.integers(0, 5, (4, 9))
    expected = np.zeros((4, len(grams)), np.float32)
    for row, tokens in enumerate(x.tolist()):
        for size in range(low, 4):
            for gram in grams_of(tokens, size, skips):
                if gram in unique[size - 1]:
                    expected[row, columns[grams.index(gram)]] += 1
    scale = np.zeros(len(grams), np.float32)
    scale[columns] = weights
    flat = [token for gram in grams for token in gram]
    common: dict[str, Any] = {
        "min_gram_length": low,
        "max_gram_length": 3,
        "max_skip_count": skips,
        "ngram_counts": starts.tolist(),
        "ngram_indexes": columns.tolist(),
    }
    modes = {"TF": expected, "TFIDF": expected * scale, "IDF": (expected > 0) * scale}
    for mode, wanted in modes.items():
        (made,) = run(
            "TfIdfVectorizer", x, **common, mode=mode, weights=weights.tolist(), pool_int64s=flat
        )
        np.testing.assert_allclose(made, wanted, rtol=1e-6)
    spelled = {"pool_strings": [f"t{token}" for token in flat]}
    words = np.array([[f"t{token}" for token in row] for row in x.tolist()], object)
    (made,) = run("TfIdfVectorizer", words, **common, mode="TF", **spelled)
    np.testing.assert_array_equal(made, expected)


def pairs_of(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def svm(count: int, kernel: str, **more: Any) -> tuple[dict[str, Any], Any]:
    """A machine of random support vectors, and a function that gives the scores of pairs in f64."""
    sizes = [2 + k % 2 for k in range(count)]
    vectors, total = rng.normal(size=(sum(sizes), 3)), sum(sizes)
    coefficients = rng.normal(size=(count - 1, total))
    pairs = pairs_of(count)
    rho = rng.normal(size=len(pairs))
    starts = np.cumsum([0, *sizes])

    def scores(x: Any) -> Any:
        dot = x @ vectors.T
        seen = {
            "LINEAR": dot,
            "POLY": (0.5 * dot + 0.25) ** 3,
            "RBF": np.exp(-0.5 * ((x[:, None] - vectors) ** 2).sum(-1)),
            "SIGMOID": np.tanh(0.5 * dot + 0.25),
        }[kernel]
        own = [slice(a, b) for a, b in pairwise(starts)]

        def part(mine: int, row: int) -> Any:
            return seen[:, own[mine]] @ coefficients[row, own[mine]]

        made = [part(i, j - 1) + part(j, i) for i, j in pairs]
        return np.array(made).T + rho

    flat: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 3.0],
        "vectors_per_class": sizes,
        "coefficients": coefficients.ravel().tolist(),
        "rho": rho.tolist(),
        "support_vectors": vectors.ravel().tolist(),
        **more,
    }
    return flat, scores


def winners(scores: Any, count: int) -> Any:
    """The class that wins most pairs, whatever its probability."""
    votes = np.zeros((len(scores), count))
    for k, (i, j) in enumerate(pairs_of(count)):
        votes[np.arange(len(scores)), np.where(scores[:, k] > 0, i, j)] += 1
    return votes.argmax(1)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("count", [2, 4])
def test_support_vector_machines_vote(kernel: str, count: int) -> None:
    attributes, scores = svm(count, kernel, classlabels_ints=list(range(10, 10 + count)))
    x = rng.normal(size=(20, 3)).astype(np.float32)
    label, made = run("SVMClassifier", x, results=2, domain=ML, **attributes)
    wanted = scores(x.astype(np.float64))
    shown = np.concatenate([-wanted, wanted], 1) if count == 2 else wanted
    np.testing.assert_allclose(made, shown, rtol=1e-3, atol=1e-4)
    sure = (np.abs(wanted) > 1e-4).all(1)
    assert (label - 10)[sure].tolist() == winners(wanted, count)[sure].tolist()


@pytest.mark.parametrize("count", [2, 3, 5])
def test_probabilities_of_classes_agree_with_those_of_pairs(count: int) -> None:
    pairs = len(pairs_of(count))
    attributes, scores = svm(
        count,
        "RBF",
        classlabels_strings=[f"c{k}" for k in range(count)],
        prob_a=[-1.0] * pairs,
        prob_b=[0.1] * pairs,
    )
    x = rng.normal(size=(12, 3)).astype(np.float32)
    label, made = run("SVMClassifier", x, results=2, domain=ML, **attributes)
    np.testing.assert_allclose(made.sum(1), 1, rtol=1e-6)
    assert [int(name[1:]) for name in label] == winners(scores(x), count).tolist()
    r = 1 / (1 + np.exp(-scores(x.astype(np.float64)) + 0.1))
    if count == 2:
        np.testing.assert_allclose(made[:, 0], r[:, 0], atol=0.005)  # as near as libsvm comes
        return
    whole = np.zeros((len(x), count, count))
    for k, (i, j) in enumerate(pairs_of(count)):
        whole[:, i, j], whole[:, j, i] = r[:, k], 1 - r[:, k]

    def cost(p: Any) -> Any:
        return ((whole.swapaxes(1, 2) * p[:, :, None] - whole * p[:, None]) ** 2).sum((1, 2))

    best = cost(made)
    for _ in range(50):  # no other probabilities fit much better
        other = np.abs(made + rng.normal(size=made.shape) * 0.05)
        assert (cost(other / other.sum(1, keepdims=True)) > best - 1e-3).all()


def test_gradients_are_nodes_of_a_file() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Mul", ["square", "w"], ["y"]),
        helper.make_node(
            "Gradient",
            ["x", "w"],
            ["dx", "dw"],
            domain="ai.onnx.preview.training",
            xs=["x", "w"],
            y="y",
        ),
    ]
    x, w = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    model = proto(nodes, {"x": x, "w": w}, ["y", "dx", "dw"])
    model.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    y, dx, dw = interpreted(model).run([x, w])
    np.testing.assert_allclose(y, x * x * w)
    np.testing.assert_allclose(dx, 2 * x * w)
    np.testing.assert_allclose(dw, x * x)


def test_strings_are_not_mixed_with_numbers() -> None:
    a, b = texts("x", "y"), np.zeros(2, np.int64)
    for op, first, second in (("Concat", a, b), ("Concat", b, a), ("Gather", b, a)):
        with pytest.raises(gc.GraphError, match="different element types"):
            run(op, first, second, axis=0)


def test_operators_without_strings_say_so() -> None:
    with pytest.raises(gc.GraphError, match="strings are not supported here"):
        run("Neg", texts("a"))
    with pytest.raises(gc.GraphError, match=r"Neg-20 \(node"):
        run("Neg", texts("a"))
