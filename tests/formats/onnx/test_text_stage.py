"""Texts that are cut into tokens before what is compiled, beside Python's own."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.STRING
TEXTS = ["The quick  brown fox", "", "jumps-over\tthe_lazy dog.", "Größe 2 the THE", "a,b;;c, d"]


def texts(items: Any) -> Any:
    return np.array(items, object)


def saved(path: Path, nodes: list[Any], inputs: dict[str, Any], output: str, **known: Any) -> Any:
    kinds = {name: (STRING if a.dtype == object else FLOAT) for name, a in inputs.items()}
    shapes = {n: [None] * a.ndim if a.dtype == object else a.shape for n, a in inputs.items()}
    given = [helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in inputs]
    constants = [numpy_helper.from_array(v, n) for n, v in known.items()]
    made = helper.make_tensor_value_info(output, STRING, None)
    graph = helper.make_graph(nodes, "g", given, [made], initializer=constants)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return gc.load(path)


def tokenizer(**attributes: Any) -> Any:
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    return helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **given)


def padded(rows: list[list[str]]) -> list[list[str]]:
    most = max(map(len, rows))
    return [[*row, *["#"] * (most - len(row))] for row in rows]


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-zA-Z0-9_]+",
        r"\w+",
        ".",
        r"\b\w\w+\b",
        "[^ ,;]+",
        "[a-z]{2,3}",
        r"\.",
        "th[e_]",
        r"[\w-]+",
    ],
)
def test_tokens_are_what_a_pattern_finds(tmp_path: Path, pattern: str) -> None:
    model = saved(tmp_path / "m.onnx", [tokenizer(tokenexp=pattern)], {"x": texts(TEXTS)}, "y")
    wanted = padded([re.findall(pattern, text, re.ASCII) for text in TEXTS])
    assert model(x=texts(TEXTS))["y"].tolist() == wanted
    both = model(x=texts(TEXTS[:3]))["y"]
    assert both.tolist() == padded([re.findall(pattern, text, re.ASCII) for text in TEXTS[:3]])


def test_separators_marks_and_short_tokens(tmp_path: Path) -> None:
    node = tokenizer(separators=[", *", ";"], mark=1, mincharnum=1)
    model = saved(tmp_path / "m.onnx", [node], {"x": texts(["a"])}, "y")
    made = model(x=texts(["a,b;;c, d", ""]))["y"].tolist()
    assert made == [["\x02", "a", "b", "c", "d", "\x03"], ["\x02", "\x03", *"####"]]
    model = saved(tmp_path / "n.onnx", [tokenizer(separators=[""])], {"x": texts([["a"]])}, "y")
    assert model(x=texts([["ab", "c"]]))["y"].tolist() == [[["a", "b"], ["c", "#"]]]
    node = tokenizer(separators=[" "], mincharnum=3)
    model = saved(tmp_path / "o.onnx", [node], {"x": texts(["a"])}, "y")
    assert model(x=texts(["to be there or"]))["y"].tolist() == [["there"]]
    assert model(x=texts(["to be"]))["y"].shape == (1, 0)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "a*a*b", "a+b+", "[a", "(?P<x>a)", "a|b", r"\1", "[[:alpha:]]+", "a{9999}"],
)
def test_patterns_that_could_take_forever_are_refused(tmp_path: Path, pattern: str) -> None:
    model = saved(tmp_path / "m.onnx", [tokenizer(tokenexp=pattern)], {"x": texts(TEXTS)}, "y")
    with pytest.raises(gc.GraphError, match="Tokenizer"):
        model(x=texts(["a" * 50]))


def test_texts_that_match_a_pattern(tmp_path: Path) -> None:
    pattern = r"www\.[\w.-]+\.\bcom\b"
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    model = saved(tmp_path / "m.onnx", [node], {"x": texts(["a"])}, "y")
    for lines in (["www.google.com", "www.bad", ""], ["www.a-b.c.com", "xwww.a.com"]):
        wanted = [re.fullmatch(pattern, line, re.ASCII) is not None for line in lines]
        assert model(x=texts(lines))["y"].tolist() == wanted


def bag_of_words(path: Path) -> Any:
    """How often each of three words is in a text, lower case, times x."""
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["low"], case_change_action="LOWER"),
        helper.make_node(
            *("Tokenizer", ["low"], ["tokens"]),
            domain="com.microsoft",
            mark=0,
            mincharnum=1,
            pad_value="#",
            tokenexp="[a-z]+",
        ),
        helper.make_node(
            *("TfIdfVectorizer", ["tokens"], ["counts"]),
            mode="TF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=0,
            ngram_counts=[0, 3],
            ngram_indexes=[0, 1, 2, 3],
            pool_strings=["the", "lazy", "fox", "the", "lazy"],
        ),
        helper.make_node("Mul", ["counts", "scale"], ["y"]),
    ]
    return saved(path, nodes, {"x": texts(["a"]), "scale": np.ones(1, np.float32)}, "y")


def test_one_compilation_serves_all_texts(tmp_path: Path) -> None:
    model = bag_of_words(tmp_path / "m.onnx")
    scale = np.array([2.0], np.float32)
    draws = np.random.default_rng(0)
    words = ["the", "THE", "Lazy", "fox", "dog", "was", "x" * 9]
    for _ in range(12):
        lines = [" ".join(draws.choice(words, draws.integers(0, 9))) for _ in range(4)]
        wanted = []
        for line in lines:
            row = line.lower().split()
            pairs = list(pairwise(row))
            counts = [row.count(w) for w in ("the", "lazy", "fox")]
            wanted.append([*counts, pairs.count(("the", "lazy"))])
        made = model(x=texts(lines), scale=scale)["y"]
        np.testing.assert_array_equal(made, 2 * np.array(wanted, np.float32))
    (behind,) = model._behind.values()
    assert len(behind._compilations) == 1, "the first sizes, and all others"
