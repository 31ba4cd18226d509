"""Loops whose condition is made of a counter and its end, as TensorFlow's are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.formats.onnx import turns

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL


def evaluator(path: str) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(path)


def tensor(name: str, shape: list[Any], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def counted(
    path: Path, start: int, step: int, test: str, most: int | None, stacked: bool, data: bool
) -> str:
    """A loop over the rows of x: h = tanh(h + x[t]), t = t + step, while t is `test` than n.

    The end n is carried, too; `data` makes the condition depend on h.
    """
    node = helper.make_node
    inner = [
        node("Cast", ["t"], ["at"], to=TensorProto.INT64),
        node("Gather", ["x", "at"], ["row"], axis=0),
        node("Add", ["h", "row"], ["sum"]),
        node("Tanh", ["sum"], ["h1"]),
        node("Add", ["t", "step"], ["t1"]),
        node(test, ["t1", "n"], ["counts"]),
        node("Identity", ["n"], ["n1"]),
        node("ReduceMax", ["h1"], ["top"], keepdims=0),
        node("Less", ["top", "bound"], ["low"]),
        node("And", ["counts", "low"], ["go1"]) if data else node("Identity", ["counts"], ["go1"]),
        node("Neg", ["h1"], ["out"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(step, np.int32), "step"),
        numpy_helper.from_array(np.array(0.9, np.float32), "bound"),
    ]
    body = helper.make_graph(
        inner,
        "body",
        [
            *(tensor("i", [], TensorProto.INT64), tensor("go", [], BOOL)),
            *(tensor("t", [], INT), tensor("h", [3]), tensor("n", [], INT)),
        ],
        [
            *(tensor("go1", [], BOOL), tensor("t1", [], INT), tensor("h1", [3])),
            *(tensor("n1", [], INT), *[tensor("out", [3])] * stacked),
        ],
        constants,
    )
    outer = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["length"], axis=0),
        node("Cast", ["length"], ["rows"], to=INT),
        node("Identity", ["rows" if step > 0 else "none"], ["end"]),
        node(test, ["start", "end"], ["first"]),
        node(
            "Loop",
            ["most" if most is not None else "", "first", "start", "h0", "end"],
            ["last", "h_end", "n_end", "rows_of_h"][: 3 + stacked],
            body=body,
        ),
    ]
    made = helper.make_graph(
        outer,
        "model",
        [tensor("x", ["rows", 3]), tensor("h0", [3])],
        [tensor("h_end", [3]), *[tensor("rows_of_h", [None, 3])] * stacked],
        [
            numpy_helper.from_array(np.array(0), "zero"),
            numpy_helper.from_array(np.array(-1, np.int32), "none"),
            numpy_helper.from_array(np.array(start, np.int32), "start"),
            numpy_helper.from_array(np.array(0 if most is None else most), "most"),
        ],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return str(path)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(
    ("start", "step", "test", "most"),
    [
        (0, 1, "Less", None),
        (2, 3, "Less", None),
        (0, 2, "LessOrEqual", 4),
        (0, 1, "Less", 100),
        (7, -1, "Greater", None),
        (50, 1, "Less", None),
    ],
)
def test_loops_that_count(
    tmp_path: Path, start: int, step: int, test: str, most: int | None, stacked: bool
) -> None:
    path = counted(tmp_path / "m.onnx", start, step, test, most, stacked, False)
    model = gc.load(path)
    for rows in (9, 12):
        x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        feeds = {"x": x, "h0": np.zeros(3, np.float32)}
        if start >= rows and stacked:  # the reference makes no rows of a loop without a turn
            assert model(**feeds)["rows_of_h"].shape == (0, 3)
            continue
        wanted = evaluator(path).run(None, feeds)
        for name, want in zip(model(**feeds), wanted):
            np.testing.assert_allclose(model(**feeds)[name], want, rtol=1e-5, atol=1e-6)


def test_a_loop_of_many_turns_that_stacks_is_one_loop(tmp_path: Path) -> None:
    """It was copied out, and 1,000 turns of it are more nodes than may be copied."""
    path = counted(tmp_path / "m.onnx", 0, 1, "Less", None, True, False)
    x = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    feeds = {"x": x, "h0": np.zeros(3, np.float32)}
    made = gc.load(path)(**feeds)
    h, rows = feeds["h0"], []
    for row in x:
        h = np.tanh(h + row)
        rows.append(-h)
    np.testing.assert_allclose(made["rows_of_h"], np.stack(rows), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made["h_end"], h, rtol=1e-4, atol=1e-5)


def test_a_condition_of_data_is_asked_in_every_turn(tmp_path: Path) -> None:
    path = counted(tmp_path / "m.onnx", 0, 1, "Less", None, False, True)
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(9, 3)).astype(np.float32)
        feeds = {"x": x, "h0": np.zeros(3, np.float32)}
        want = evaluator(path).run(None, feeds)[0]
        np.testing.assert_allclose(gc.load(path)(**feeds)["h_end"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("most", [None, 2**63 - 1])
@pytest.mark.parametrize("rows", [3, 5000, 30_000])
def test_loops_of_many_turns_are_loops(tmp_path: Path, rows: int, most: int | None) -> None:
    """Counting copied the counter's nodes, of which a model may have 10,000."""
    path = counted(tmp_path / "m.onnx", 0, 1, "Less", most, False, False)
    x = np.zeros((rows, 3), np.float32)
    x[-1] = 0.5
    made = gc.load(path)(x=x, h0=np.zeros(3, np.float32))["h_end"]
    np.testing.assert_allclose(made, np.tanh(x[-1]), rtol=1e-6)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_loop_that_is_counted_no_further_runs_to_its_end(
    tmp_path: Path, stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended where counting did."""
    monkeypatch.setattr(turns, "MOST_WORK", 10 * turns.NODE_WORK)
    path = counted(tmp_path / "m.onnx", 0, 1, "Less", None, stacked, False)
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    feeds = {"x": x, "h0": np.zeros(3, np.float32)}
    for made, want in zip(gc.load(path)(**feeds).values(), evaluator(path).run(None, feeds)):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
