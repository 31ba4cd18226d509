"""A graph as an ONNX model, which is checked before its file appears.

    traced graph -> gradients expanded -> nodes by rule -> model -> checker, evaluators -> file

The model runs in ONNX's reference evaluator and, where it is installed, in ONNX Runtime; both must
compute what graphc's interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.version import __version__
from graphc.config import Config
from graphc.errors import GraphError
from graphc.formats.onnx.export.writer import Writer
from graphc.formats.onnx.reader import package
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.files.saved_variables import values_of
from graphc.frontend.trace.spec import symbols_of
from graphc.ir.graph import Graph
from graphc.ir.regions import scheduled_graphs
from graphc.ir.specialise import specialise
from graphc.ir.types import DType, Type, leaves
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.gradient import gradient
from graphc.runtime.files.files import write_atomically

Array = np.ndarray[Any, Any]
OPSET = 20  # the first with Gelu, and with halves in all operators used here
MOST_BYTES = 2**31 - 1  # of a file of this format: no longer message can be parsed
EVALUATED = 2e9  # flops up to which the reference evaluator, which is slow, runs a model
SMALL_EXTENT = 3  # the first extent that stands for a symbol in the trial

# How far results may lie apart, relative to the largest: evaluators round each operator, and
# the reference evaluator computes some operators of f64 in f32.
TOLERANCE = {"f64": 1e-6, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


@record(frozen=True)
class Checked:
    """What was found out about a model: the checks that it passed, and why others were left out."""

    passed: tuple[str, ...]
    left_out: tuple[str, ...]


def save(graph: Graph, path: Path, feeds: Mapping[str, Any] | None = None) -> Checked:
    """Write a graph as an ONNX model; the file appears when the model has passed its checks.

    `feeds` are arrays by name to try it on; without them they are drawn at random.  Raises
    GraphError that lists every op that cannot be written, and for a model that computes something
    else.
    """
    model = model_of(graph)
    data = model.SerializeToString()
    if len(data) > MOST_BYTES:
        raise GraphError(
            f"{path.name} would have {len(data)} bytes: such models have at most 2**31"
        )
    checked = check(model, graph, feeds)
    write_atomically(path, [data])
    return checked


def model_of(graph: Graph) -> Any:
    """The ModelProto of a graph. Raises GraphError that lists every op that cannot be written."""
    import graphc.formats.onnx.export.rules  # noqa: F401  (fills the tables)

    onnx = package()
    values = {key: item.array for key, item in values_of(graph).items()}
    writer = Writer(values)
    expanded = gradient(graph, Config.create())
    inputs = [param.attrs["name"] for param in expanded.params]
    writer.measure(expanded.params, inputs)
    made = writer.whole(expanded, inputs)
    outputs = _outputs(writer, graph, inputs, made)
    proto = onnx.helper.make_graph(
        writer.nodes,
        graph.name,
        [writer.info(name, p.type) for name, p in zip(inputs, expanded.params)],
        [writer.info(name, r.type) for name, r in zip(outputs, expanded.results)],
        [proto for proto, _ in writer.constants.values()],
    )
    return onnx.helper.make_model(
        proto,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=9,
        producer_name="graphc",
        producer_version=__version__,
    )


def _outputs(writer: Writer, graph: Graph, inputs: Sequence[str], made: Sequence[str]) -> list[str]:
    """The results under their own names, each made by a node of its own."""
    taken, names = set(inputs), []
    for title, result in zip(graph.result_names, made):
        name = title
        while name in taken:
            name += "_out"
        taken.add(name)
        names.append(name)
        writer.nodes.append(writer.helper.make_node("Identity", [result], [name]))
    return names


# ------------------------------------------------------------------------------------ checks


def check(model: Any, graph: Graph, feeds: Mapping[str, Any] | None = None) -> Checked:
    """Run a model beside the interpreter. Raises GraphError where it is wrong."""
    onnx = package()
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # noqa: BLE001  (the package has several, one per kind of check)
        raise GraphError(
            f"the model of @{graph.name} is not valid", details=(str(error)[:300],)
        ) from None
    passed, left_out = ["checker"], []
    try:
        concrete, arguments = trial(graph, feeds)
        expected = interpret(gradient(concrete, Config.create()), arguments, state=state_of(graph))
    except GraphError as error:
        left_out.append(f"evaluators: {error.message}")
        return Checked(tuple(passed), tuple(left_out))
    named = {p.attrs["name"]: a for p, a in zip(graph.params, arguments)}
    for name, evaluator in (("reference evaluator", _reference), ("onnxruntime", _runtime)):
        try:
            run = evaluator(model, concrete)
            found = run(named)
        except _LeftOut as reason:
            left_out.append(f"{name}: {reason}")
            continue
        require_equal(name, graph, found, expected)
        passed.append(name)
    return Checked(tuple(passed), tuple(left_out))


class _LeftOut(Exception):
    """An evaluator that cannot run a model, for reasons of its own."""


def trial(graph: Graph, feeds: Mapping[str, Any] | None) -> tuple[Graph, list[Array]]:
    """The graph with an extent for every symbol, and arguments for it."""
    if feeds is None:
        small = _small(graph)
        return small, _arguments(small)
    loaded = LoadedGraph(graph)
    arrays = loaded.check(loaded.arrange((), dict(feeds)))
    bound = loaded.bound(loaded.bind([a.shape for a in arrays]))
    assert isinstance(bound, Graph)
    return bound, arrays


def _small(graph: Graph) -> Graph:
    names = sorted(symbols_of([p.type for p in graph.params if isinstance(p.type, Type)]))
    if not names:
        return graph
    return specialise(graph, {name: SMALL_EXTENT + k for k, name in enumerate(names)})


def state_of(graph: Graph) -> dict[tuple[str, str], Array]:
    return {key: item.array for key, item in values_of(graph).items()}


def _arguments(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    kinds = [p.type for p in graph.params]
    return [_drawn(rng, kind.dtype, kind.dims) for kind in kinds if isinstance(kind, Type)]


def _drawn(rng: np.random.Generator, element: DType, dims: tuple[int, ...]) -> Array:
    if not element.is_float:
        return rng.integers(0, 2, dims).astype(element.numpy)
    return np.asarray(rng.standard_normal(dims), element.numpy)


Run = Callable[[dict[str, Array]], list[Any]]


def _reference(model: Any, graph: Graph) -> Run:
    from onnx.reference import ReferenceEvaluator

    if _flops(graph) > EVALUATED:
        raise _LeftOut(f"{_flops(graph):.0e} flops would take it minutes")

    def run(feeds: dict[str, Array]) -> list[Any]:
        try:
            with np.errstate(all="ignore"):
                return list(ReferenceEvaluator(model).run(None, feeds))
        except Exception as error:  # noqa: BLE001  (its operators raise anything)
            raise _LeftOut(f"{type(error).__name__}: {str(error)[:120]}") from None

    return run


def _runtime(model: Any, graph: Graph) -> Run:
    try:
        import onnxruntime
    except ImportError:
        raise _LeftOut("not installed") from None

    def run(feeds: dict[str, Array]) -> list[Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return list(session.run(None, feeds))
        except Exception as error:  # noqa: BLE001  (one class for each status)
            raise _LeftOut(f"{type(error).__name__}: {str(error)[:160]}") from None

    return run


def _flops(graph: Graph) -> float:
    """Of the nodes outside regions that say what they cost."""
    total = 0.0
    for node in graph.nodes:
        if not node.regions:
            total += node.op.estimate(node)[0]
    return total


def require_equal(name: str, graph: Graph, found: Sequence[Any], expected: Sequence[Array]) -> None:
    """Raise GraphError for a result that lies too far from the interpreter's."""
    coarsest = max(TOLERANCE.get(kind.dtype.name, 0.0) for kind in _types(graph))
    for title, got, want, node in zip(graph.result_names, found, expected, graph.results):
        assert isinstance(node.type, Type)
        got = np.asarray(got)
        if got.shape != want.shape or got.dtype != want.dtype:
            raise GraphError(
                f"{name} gives {got.dtype}{list(got.shape)} for {title!r}, "
                f"not {want.dtype}{list(want.shape)}"
            )
        error = distance(got, want)
        if error > (coarsest if node.type.dtype.is_float else 0.0):
            raise GraphError(
                f"{name} gives something else for the result {title!r}",
                details=(f"relative error {error:.2e}",),
                hint="please report it: the model was not written",
            )


def _types(graph: Graph) -> Iterator[Type]:
    """Of all its values: one of few bits on the way makes a result as coarse."""
    for inner in scheduled_graphs(graph):
        for node in (*inner.params, *inner.nodes):
            yield from (kind for kind in leaves(node.type) if isinstance(kind, Type))


def distance(got: Array, want: Array) -> float:
    """The largest difference relative to the largest number; infinite where only one is NaN."""
    kinds = {"c": np.complex128, **dict.fromkeys("iub", object)}
    wide: Any = kinds.get(want.dtype.kind, np.float64)
    a, b = (x.astype(wide) for x in (got, want))
    if wide is object:
        return 0.0 if np.array_equal(a, b) else float("inf")
    finite = np.isfinite(b)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return float("inf")
    scale = np.max(np.abs(b[finite]), initial=1.0)
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0) / scale)
