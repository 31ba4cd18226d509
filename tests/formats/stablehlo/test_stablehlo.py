"""graphc convert model.gir -o model.mlir: XLA computes what the interpreter does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import arguments, random_graphs
from hypothesis import given, settings
from op_harness import array_type

import graphc as gc
import graphc.ops
from graphc.formats.onnx.export.model import TOLERANCE, distance
from graphc.formats.stablehlo import rules  # noqa: F401  (fills the table)
from graphc.formats.stablehlo.model import run, text_of_graph
from graphc.formats.stablehlo.writer import HLO
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import OPS, Composite, Op, Structural
from graphc.ir.types import TupleType, Type
from graphc.ops.control.control import param_node
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.gradient import gradient

# What the format has no words for; all other ops of traced graphs are written.
INEXPRESSIBLE = {
    *("lu", "lu_solve", "solve", "fft", "rfft", "irfft", "qr", "svd", "svdvals", "gcd"),
    *("eigh", "eigvalsh", "eig", "eigvals", "pinv", "least_squares", "expm"),
    *("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "reduce_to", "to_all"),
    *("sparse_matmul", "sparse_adjoint", "sparse_sampled"),
}
MADE_BY_PASSES = re.compile(
    "fused_|tile_|winograd|conv_windows|conv_last|narrow|pack$|unpack$|blocked|workspace|(byte_)?digits"
)


def of_one_op(op: Op, sample: Any) -> tuple[Graph, list[Any]]:
    arrays = [np.asarray(a) for a in sample.operands]
    params = tuple(param_node(k, array_type(a), f"x{k}") for k, a in enumerate(arrays))
    builder = Builder(len(params))
    node = builder.emit(op, params, sample.attrs)
    results = (node,)
    if isinstance(node.type, TupleType):
        count = range(len(node.type.elements))
        results = tuple(builder.emit(OPS["item"], (node,), {"index": k}) for k in count)
    return Graph("g", params, builder.nodes, results), arrays


def is_traced(op: Op) -> bool:
    return bool(op.samples) and not op.is_custom and not MADE_BY_PASSES.match(op.name)


def same(graph: Graph, text: str, arrays: list[Any]) -> None:
    """XLA, where it is installed, gives what the interpreter does."""
    found = run(text, arrays)
    if found is None:
        return
    expected = interpret(gradient(graph, gc.config.Config.create()), arrays)
    for node, got, want in zip(graph.results, found, expected, strict=True):
        assert isinstance(node.type, Type)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert distance(got, np.asarray(want)) <= TOLERANCE.get(node.type.dtype.name, 1e-6)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if is_traced(op)])
def test_every_op_is_written_or_refused(name: str) -> None:
    op = OPS[name]
    good = [s for s in op.samples() if s.good]  # type: ignore[misc]
    plain = [s for s in good if all(np.asarray(a).dtype.name == "float32" for a in s.operands)]
    graph, arrays = of_one_op(op, (plain or good)[0])
    if name in INEXPRESSIBLE:
        with pytest.raises(gc.GraphError, match="that StableHLO cannot express"):
            text_of_graph(graph)
        return
    known = name in HLO.rules or name in HLO.traced
    assert known or isinstance(op.lower, Composite | Structural)
    same(graph, text_of_graph(graph), arrays)


@settings(deadline=None, max_examples=5)
@given(g=random_graphs(8))
def test_random_graphs(g: Graph) -> None:
    same(g, text_of_graph(g), arguments(g))


def step(params: Any, x: Any, y: Any) -> Any:
    """A step of training by Adam, through a network, a branch and a scan."""
    adam = gc.optim.adam(1e-2)

    def loss(params: Any) -> Any:
        h = gc.nn.gelu(x @ params["w"] + params["b"])
        h = gc.cond(h.sum() > 0, lambda h: h * 2, lambda h: h - 1, h)
        total, ys = gc.scan(lambda c, row: (np.tanh(c + row), c * row), h[0], h)
        return ((ys - y) ** 2).mean() + total.sum()

    value, gradients = gc.value_and_grad(loss)(params)
    return value, adam.update(gradients, adam.init(params), params)


def test_a_training_step() -> None:
    rng = np.random.default_rng(0)
    draw = lambda *dims: rng.standard_normal(dims).astype("f4")
    params = {"w": draw(3, 4), "b": draw(4)}
    graph = gc.compile(step).graph(params, draw(5, 3), draw(5, 4))
    arrays = [draw(*p.type.dims) for p in graph.params if isinstance(p.type, Type)]
    same(graph, text_of_graph(graph), arrays)


def test_what_is_refused(tmp_path: Path) -> None:
    def grows(x: Any) -> Any:
        return gc.while_loop(lambda s: s.sum() < 9, lambda s: np.sinh(s) + 1, x).sum()

    graph = gc.compile(gc.grad(grows)).graph(gc.spec((3,), "f32"))
    with pytest.raises(gc.GraphError, match="cannot express") as caught:
        gc.convert(graph, tmp_path / "m.mlir")
    assert "a stack grows" in str(caught.value) and "test_stablehlo.py" in str(caught.value)
    waves = gc.compile(lambda x: np.abs(np.fft.rfft(x))).graph(gc.spec((4, 16), "f32"))
    with pytest.raises(gc.GraphError, match="cannot express"):
        gc.convert(waves, tmp_path / "m.mlir")
    free = gc.compile(lambda x: x + 1).graph(gc.spec(("n", 3), "f32"))
    with pytest.raises(gc.GraphError, match="sizes must be known"):
        gc.convert(free, tmp_path / "m.mlir")
    for wrong in (3, "n", {"n": "x"}, {"n": -1}, {"n": 1.5}, {1: 1}):
        with pytest.raises(gc.GraphError, match="sizes gives dimensions their values"):
            gc.convert(free, tmp_path / "m.mlir", sizes=wrong)  # type: ignore[arg-type]
    done = gc.convert(free, tmp_path / "m.mlir", sizes={"n": 0})
    assert done.passed == ("jax",) or done.left_out == ("jax: not installed",)
    assert [path.name for path in tmp_path.iterdir()] == ["m.mlir"]


def test_names_are_quoted(tmp_path: Path) -> None:
    graph = gc.compile(lambda x: {'a"b\\é\n\ud800': x * 2}).graph(gc.spec((), "f64"))
    same(graph, text_of_graph(graph), [np.float64(3)])


@pytest.mark.parametrize("order", [2, 4])
def test_a_pole_is_right_where_xla_adds_no_zero(order: int) -> None:
    x = np.array([-0.0, 0.0, 0.5])
    graph = gc.compile(lambda x: gc.polygamma(order, x)).graph(x)
    same(graph, text_of_graph(graph), [x])
