"""`graphc bench MODEL --beside onnxruntime` (or openvino): both run the same model on the same
arrays, in turn.

Calls alternate, so that what else the machine does meets both alike; the medians are shown, how
many times faster graphc is in the median of the pairs, and how far the results lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from graphc.base.record import replace
from graphc.cli.common import bindable, load_graph, random_array
from graphc.errors import GraphError

THREADS = (1, 2)
LEAST_PAIRS = 3
Call = Callable[[], Any]


def compare(
    model: Path, beside: str, seconds: float, binding: dict[str, int], config: Any
) -> list[dict[str, Any]]:
    """One row for each number of threads: one and two, or those of the configuration."""
    if not 0 < seconds <= 600:
        raise GraphError(f"--seconds must be between 0 and 600, got {seconds}")
    counts = (config.threads,) if config.threads else THREADS
    share = seconds / len(counts)
    return [_row(model, beside, share, binding, replace(config, threads=count)) for count in counts]


def _row(
    model: Path, beside: str, seconds: float, binding: dict[str, int], config: Any
) -> dict[str, Any]:
    import numpy as np

    from graphc.formats.onnx.export.model import distance
    from graphc.ir.types import Type, substitute

    started = perf_counter()
    loaded = load_graph(model, config)
    kinds = [substitute(kind, binding) for kind in bindable(loaded.types, binding)]
    rng = np.random.default_rng(0)
    arrays = [random_array(rng, kind) for kind in kinds if isinstance(kind, Type)]
    own: Call = lambda: loaded.run(arrays)  # noqa: E731
    results = own()
    ready = perf_counter()
    others, theirs = _ready(beside, model, loaded, arrays, config, binding)
    first = perf_counter()
    errors = [distance(np.asarray(a), np.asarray(b)) for a, b in zip(results, others)]
    pairs = _pairs(own, theirs, seconds)
    ratios = sorted(other / mine for mine, other in pairs)
    return {
        "threads": config.threads,
        "graphc_us": _median([mine for mine, _ in pairs]) * 1e6,
        "beside_us": _median([other for _, other in pairs]) * 1e6,
        "times_faster": ratios[len(ratios) // 2],
        "pairs": len(pairs),
        "difference": max(errors, default=0.0),
        "graphc_first_ms": (ready - started) * 1e3,
        "beside_first_ms": (first - ready) * 1e3,
    }


def _pairs(own: Call, other: Call, seconds: float) -> list[tuple[float, float]]:
    """Times of calls in turn; who comes first changes with every pair."""
    made: list[tuple[float, float]] = []
    end = perf_counter() + seconds
    while len(made) < LEAST_PAIRS or perf_counter() < end:
        swapped = len(made) % 2 == 1
        first, second = (other, own) if swapped else (own, other)
        start = perf_counter()
        first()
        middle = perf_counter()
        second()
        times = middle - start, perf_counter() - middle
        made.append((times[1], times[0]) if swapped else times)
    return made


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _ready(
    beside: str, model: Path, loaded: Any, arrays: list[Any], config: Any, binding: dict[str, int]
) -> tuple[list[Any], Call]:
    """The results of another runtime, and a call of it; a graph of ours is written as ONNX first.

    Raises GraphError where it is not installed or does not run the model.
    """
    if find_spec(beside) is None:
        raise GraphError(f"--beside {beside} needs that package", hint=f"pip install {beside}")
    source = _source(model, loaded, binding)
    feeds = dict(zip(loaded.params, arrays))
    try:
        call = RUNTIMES[beside](source, feeds, config)
        return call(), call
    except Exception as error:  # noqa: BLE001  (one class for each status)
        raise GraphError(
            f"{beside} does not run {model.name}", details=(str(error)[:300],)
        ) from None


def _onnxruntime(source: Any, feeds: dict[str, Any], config: Any) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = config.threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def _openvino(source: Any, feeds: dict[str, Any], config: Any) -> Call:
    """In f32, or, beside products of 16 bits, in what it chooses itself; it knows the sizes."""
    import openvino

    options = {"INFERENCE_NUM_THREADS": config.threads, "PERFORMANCE_HINT": "LATENCY"}
    if config.precision == "f32":
        options["INFERENCE_PRECISION_HINT"] = "f32"
    core = openvino.Core()
    model = core.read_model(source)
    inputs = {port: feeds[name] for port in model.inputs for name in port.names & feeds.keys()}
    model.reshape({port: list(array.shape) for port, array in inputs.items()})
    request = core.compile_model(model, "CPU", options).create_infer_request()
    given = list(inputs.values())

    def call() -> list[Any]:
        request.infer(given)
        return [tensor.data.copy() for tensor in request.output_tensors]

    return call


RUNTIMES: dict[str, Callable[[Any, dict[str, Any], Any], Call]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def _source(model: Path, loaded: Any, binding: dict[str, int]) -> Any:
    if model.suffix == ".onnx":
        return str(model)
    from graphc.formats.onnx.export.model import model_of

    graph = loaded.bound(binding) if binding else loaded.graph
    return model_of(graph).SerializeToString()


def print_comparison(beside: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        threads = f"{row['threads']} thread{'s' * (row['threads'] != 1)}"
        times = row["times_faster"]
        told = f"{times:.2f} times faster" if times >= 1 else f"{1 / times:.2f} times slower"
        click.echo(
            f"{threads}: graphc {row['graphc_us']:.1f} us, "
            f"{beside} {row['beside_us']:.1f} us (medians of {row['pairs']} pairs), "
            f"{told}; results differ by {row['difference']:.1e}"
        )
        click.echo(
            f"  load and first call {row['graphc_first_ms']:.0f} ms, "
            f"{beside} {row['beside_first_ms']:.0f} ms"
        )
