"""Nodes of a file that do not stand in the order in which they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
from graphc.formats.onnx.model import OnnxModel  # noqa: E402
from graphc.formats.onnx.order import in_order  # noqa: E402
from graphc.formats.onnx.reader import from_proto  # noqa: E402
from graphc.formats.onnx.records import Node  # noqa: E402

helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def number(name: str, shape: Any = ()) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def nodes(reads: list[list[int]]) -> tuple[Node, ...]:
    """Nodes that read others by their numbers."""
    return tuple(
        Node(k, "", "", "Sum", 13, tuple(f"v{j}" for j in found), (f"v{k}",), {})
        for k, found in enumerate(reads)
    )


@given(st.data())
def test_each_stands_behind_what_it_reads(data: Any) -> None:
    count = data.draw(st.integers(1, 12))
    place = data.draw(st.permutations(range(count)))
    reads: list[list[int]] = [[] for _ in range(count)]
    for k in range(1, count):
        reads[place[k]] = [place[j] for j in data.draw(st.lists(st.integers(0, k - 1), max_size=3))]
    made = in_order(nodes(reads))
    seen: set[str] = set()
    for node in made:
        assert seen.issuperset(node.inputs)
        seen.update(node.outputs)
    assert len(seen) == count
    assert in_order(made) is made


def model(*made: Any) -> Any:
    graph = helper.make_graph(made, "g", [number("x", [3])], [number("y", [3])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return OnnxModel(from_proto(proto, Path("shuffled.onnx")))


def test_a_body_reads_what_stands_behind_its_node() -> None:
    node = helper.make_node
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["late"], [name])], name, [], [number(name, [3])]
        )
        for name, op in (("then", "Neg"), ("else", "Exp"))
    }
    found = model(
        node("If", ["test"], ["y"], **branches),
        node("Greater", ["total", "total"], ["test"]),
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Mul", ["x", "x"], ["late"]),
    )
    x = np.array([1, 0, -1], np.float32)
    np.testing.assert_allclose(found(x=x)["y"], np.exp(x * x), rtol=1e-6)


def test_a_circle_is_refused() -> None:
    node = helper.make_node
    with pytest.raises(gc.GraphError, match="nothing before it makes"):
        model(node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["a"], ["y"]))(
            x=np.ones(3, np.float32)
        )
