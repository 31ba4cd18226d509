"""graphc convert model.gir -o model.onnx: what is written computes the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import arguments, random_graphs, same
from hypothesis import given, settings
from op_harness import array_type

import graphc as gc
import graphc.ops
from graphc.cli import main
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import OPS, Composite, Op, Structural
from graphc.ir.types import TupleType
from graphc.ops.control.control import param_node
from graphc.ops.reference.interpreter import interpret

onnx = pytest.importorskip("onnx", reason="the onnx package writes ONNX files")

from graphc.formats.onnx.export import rules  # noqa: E402, F401  (fills the tables)
from graphc.formats.onnx.export.model import check, model_of  # noqa: E402
from graphc.formats.onnx.export.writer import ONNX  # noqa: E402
from graphc.formats.onnx.model import OnnxModel  # noqa: E402
from graphc.formats.onnx.reader import from_proto  # noqa: E402

# What the format has no words for; of all other ops that traces hold, some sample is written.
INEXPRESSIBLE = {
    *("lu", "lu_solve", "solve", "cholesky", "lgamma", "digamma", "polygamma"),
    *("nextafter", "bitcast", "popcount", "gcd", "complex", "real", "imag"),
    *("conj", "angle", "print", "assert", "callback", "truncate16", "widen16"),
    *("sort_keys", "argsort_keys", "topk_keys", "fft", "rfft", "irfft", "qr", "svd", "svdvals"),
    *("eigh", "eigvalsh", "eig", "eigvals", "pinv", "least_squares", "expm"),
    *("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "reduce_to", "to_all"),
    *("sparse_matmul", "sparse_adjoint", "sparse_sampled", "packed_matmul"),
}


def nest_values(made: Any) -> list[Any]:
    return list(made.values()) if isinstance(made, dict) else [made]


def imported(model: Any) -> OnnxModel:
    return OnnxModel(from_proto(model, Path("m.onnx")))


@settings(deadline=None, max_examples=6)
@given(g=random_graphs(8))
def test_random_graphs(g: Graph) -> None:
    model = model_of(g)
    arrays = arguments(g)
    named = {p.attrs["name"]: a for p, a in zip(g.params, arrays)}
    assert check(model, g, named).passed[:2] == ("checker", "reference evaluator")
    made = imported(model).run(arrays)
    same([np.asarray(m) for m in made], interpret(g, arrays), 1e-4)


def of_one_op(op: Op, sample: Any) -> tuple[Graph, dict[str, Any]]:
    arrays = [np.asarray(a) for a in sample.operands]
    params = tuple(param_node(k, array_type(a), f"x{k}") for k, a in enumerate(arrays))
    builder = Builder(len(params))
    node = builder.emit(op, params, sample.attrs)
    results = (node,)
    if isinstance(node.type, TupleType):
        count = range(len(node.type.elements))
        results = tuple(builder.emit(OPS["item"], (node,), {"index": k}) for k in count)
    return Graph("g", params, builder.nodes, results), {f"x{k}": a for k, a in enumerate(arrays)}


def traced_ops() -> list[str]:
    """Ops of traced graphs that have samples."""
    made = {"pack", "unpack", "tile_pool", "tile_choose", "conv_windows", "blocked", "workspace"}
    made |= {"conv_last", "conv_windows_last", "narrow"}
    return [
        name
        for name, op in OPS.items()
        if op.samples
        and not op.is_custom
        and name not in made
        and "winograd" not in name
        and "digits" not in name
        and not name.startswith("fused_")
    ]


def is_evaluated(done: Any) -> bool:
    """Whether a second implementation gave the same. ONNX's own evaluator lacks some of `Scan`."""
    return len(done.passed) > 1 or "onnxruntime: not installed" in done.left_out


@pytest.mark.parametrize("name", traced_ops())
def test_every_op_is_written_or_refused(name: str) -> None:
    op = OPS[name]
    assert op.samples is not None
    good = [s for s in op.samples() if s.good]
    plain = [s for s in good if all(np.asarray(a).dtype.name == "float32" for a in s.operands)]
    graph, feeds = of_one_op(op, (plain or good)[0])
    if name in INEXPRESSIBLE:
        with pytest.raises(gc.GraphError, match="that ONNX cannot express"):
            model_of(graph)
        return
    assert name in ONNX.rules or name in ONNX.traced or isinstance(op.lower, Composite | Structural)
    model = model_of(graph)
    onnx.checker.check_model(model, full_check=True)
    finite = all(np.isfinite(a).all() for a in feeds.values() if a.dtype.kind == "f")
    if finite:  # runtimes differ in what NaN becomes
        assert is_evaluated(check(model, graph, feeds))


def loops(x: Any, n: Any) -> Any:
    """Branches and loops of all kinds, with a gradient through each."""

    def loss(x: Any) -> Any:
        h = gc.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x)
        h = gc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + x), (0, h))[1]
        last, ys = gc.scan(lambda c, v: (c * v + 1, c), h[0], x)
        return last.sum() + (ys**2).sum() + gc.fori(0, 3, lambda k, c: c * h.mean(), 1.0)

    return gc.value_and_grad(loss)(x)


def test_control_flow_and_gradients(tmp_path: Path) -> None:
    x = np.linspace(-1, 2, 6).astype(np.float32).reshape(3, 2)
    for sign in (1, -1):
        graph = gc.compile(loops).graph(sign * x, np.int64(3))
        name = {p.attrs["name"]: a for p, a in zip(graph.params, (sign * x, np.int64(3)))}
        done = gc.convert(graph, tmp_path / "loops.onnx", feeds=name)
        assert "onnxruntime" in (*done.passed, *(t.split(":")[0] for t in done.left_out))
        assert is_evaluated(done), done.left_out


def test_training_step(tmp_path: Path) -> None:
    """Loss, gradients and new parameters of a convolutional net, in one model."""
    net = gc.nn.Sequential(
        gc.nn.Conv(1, 4, 3, padding=1),
        gc.nn.relu,
        gc.nn.MaxPool(2),
        gc.nn.Flatten(),
        gc.nn.Dense(64, 10),
    )
    params = net.init(gc.random.key(0))
    optimizer = gc.optim.adam(1e-3)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return gc.cross_entropy(net(params, x), y).mean()

        value, gradients = gc.value_and_grad(loss)(params)
        return *optimizer.update(gradients, state, params), value

    x = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    y = np.array([3, 1])
    graph = gc.compile(step).graph(params, optimizer.init(params), x, y)
    done = gc.convert(graph, tmp_path / "step.onnx")
    assert "reference evaluator" in done.passed, done.left_out


def test_symbols_stay_symbols(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return x.reshape(-1, 2, 3).sum(axis=1) @ np.ones((3, 4), np.float32)

    graph = gc.compile(model).graph(gc.spec(("N", 6), "f32"))
    assert gc.convert(graph, tmp_path / "m.onnx").passed[0] == "checker"
    loaded = gc.load(tmp_path / "m.onnx")
    for n in (1, 5):
        x = np.ones((n, 6), np.float32)
        (found,) = nest_values(loaded(x))
        np.testing.assert_allclose(found, model(x))


def test_open_sorts_normal_numbers_and_halves(tmp_path: Path) -> None:
    """Results that went through 16 bits may differ as those of 16 bits do."""

    def model(x: Any) -> Any:
        noise = gc.random.normal(gc.random.key(3), (5, 7))
        halves = x.astype(np.float16)
        product = (halves @ halves.T).astype(np.float32)
        return np.sort(x, axis=-1), np.argsort(x, axis=-1), gc.erfinv(np.tanh(x)), noise, product

    for shape in ((5, 7), (5, "n")):
        graph = gc.compile(model).graph(gc.spec(shape, "f32"))
        assert is_evaluated(gc.convert(graph, tmp_path / "m.onnx"))
    x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    loaded = list(gc.load(tmp_path / "m.onnx")(x).values())
    for found, wanted in zip(loaded, gc.compile(model)(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_sizes_that_a_run_finds_out_are_refused(tmp_path: Path) -> None:
    graph = gc.compile(lambda x: x[x > 0] * 2).graph(gc.spec((12,), "f32"))
    for name in ("m.onnx", "m.mlir"):
        with pytest.raises(gc.GraphError, match="a run finds out its size") as caught:
            gc.convert(graph, tmp_path / name)
        assert "test_export.py" in str(caught.value)
    with pytest.raises(gc.GraphError, match="save the function"):
        gc.convert(graph, tmp_path / "m.gir")
    assert not list(tmp_path.iterdir())


def test_all_refusals_at_once(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return np.linalg.solve(x, x), gc.lgamma(x)

    graph = gc.compile(model).graph(gc.spec((3, 3), "f32"))
    with pytest.raises(gc.GraphError) as caught:
        gc.convert(graph, tmp_path / "m.onnx")
    text = str(caught.value)
    assert "lu at" in text and "lgamma at" in text and "test_export.py" in text
    assert not list(tmp_path.iterdir())
    with pytest.raises(gc.GraphError, match="names end with"):
        gc.convert(graph, tmp_path / "m.bin")


def test_command_and_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    gc.save(tmp_path / "m.gir", gc.compile(lambda x: x @ w).graph(gc.spec((2, 3), "f32")))
    for name in ("m.onnx", "m.npz", "m.safetensors"):
        main(["convert", str(tmp_path / "m.gir"), "-o", str(tmp_path / name)])
    assert "passed: checker, reference evaluator" in capsys.readouterr().out
    (stored,) = np.load(tmp_path / "m.npz").values()
    assert np.array_equal(stored, w)
    main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "again.gir")])
    x = np.ones((2, 3), np.float32)
    (found,) = nest_values(gc.load(tmp_path / "again.gir")(x))
    np.testing.assert_array_equal(found, x @ w)
