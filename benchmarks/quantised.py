"""Quantised ONNX models beside ONNX Runtime: made by its quantiser, timed in pairs.

    python -m benchmarks.quantised                  every case, one thread
    python -m benchmarks.quantised --threads 2 --match conv

Static QDQ (one scale a channel), QLinear operators and dynamic quantisation of products and
convolutional networks, and bare MatMulInteger.  A figure is the median time of a call; with one
thread it is CPU time.  Results are compared, too: `differ` is the share of elements further apart
than a thousandth of the largest.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc

RNG = np.random.default_rng(0)
Layers = tuple[list[Any], dict[str, Any], tuple[int, ...], str]


def normal(*dims: int, of: float = 1.0) -> Any:
    return (RNG.standard_normal(dims) * of).astype(np.float32)


def dense(rows: int, width: int) -> Layers:
    """Two layers with biases and relu: nodes, constants, input shape, result."""
    from onnx.helper import make_node

    nodes, held, x = [], {}, "x"
    for k in "12":
        held |= {f"w{k}": normal(width, width, of=width**-0.5), f"b{k}": normal(width, of=0.1)}
        nodes += [
            make_node("MatMul", [x, f"w{k}"], [f"m{k}"]),
            make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"]),
            make_node("Relu", [f"a{k}"], [f"y{k}"]),
        ]
        x = f"y{k}"
    return nodes, held, (rows, width), x


def convolutions(separable: bool) -> Layers:
    """Images of 112 x 112 through layers as MobileNet's or as ResNet's."""
    from onnx.helper import make_node

    nodes: list[Any] = []
    held: dict[str, Any] = {}

    def conv(x: str, fed: int, made: int, window: int, step: int, groups: int = 1) -> str:
        k = len(nodes)
        terms = fed // groups * window**2
        held[f"w{k}"] = normal(made, fed // groups, window, window, of=(2 / terms) ** 0.5)
        held[f"b{k}"] = normal(made, of=0.1)
        how = {"strides": [step] * 2, "pads": [window // 2] * 4, "group": groups}
        nodes.append(make_node("Conv", [x, f"w{k}", f"b{k}"], [f"c{k}"], **how))
        nodes.append(make_node("Relu", [f"c{k}"], [f"r{k}"]))
        return f"r{k}"

    x, fed = conv("x", 3, 32, 3, 2), 32
    for made, step in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)):
        if separable:
            x = conv(conv(x, fed, fed, 3, step, fed), fed, made, 1, 1)
        else:
            x = conv(x, fed, made, 3, step)
        fed = made
    nodes.append(make_node("GlobalAveragePool", [x], ["y"]))
    return nodes, held, (1, 3, 112, 112), "y"


MODELS: dict[str, Callable[[], Layers]] = {
    **{f"dense {m} x {n}": lambda m=m, n=n: dense(m, n) for m, n in ((1, 1024), (8, 1024))},
    **{f"dense {n} x {n}": lambda n=n: dense(n, n) for n in (256, 512, 1024)},
    "conv separable": lambda: convolutions(True),
    "conv 3 x 3": lambda: convolutions(False),
}


def written(layers: Layers, folder: Path) -> tuple[Path, tuple[int, ...]]:
    from onnx import TensorProto, helper, numpy_helper, save

    nodes, held, shape, result = layers
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", shape), (result, None))
    ]
    constants = [numpy_helper.from_array(v, name) for name, v in held.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, folder / "f32.onnx")
    return folder / "f32.onnx", shape


def quantised(path: Path, shape: tuple[int, ...]) -> Iterator[tuple[str, Path]]:
    """The model as ONNX Runtime quantises it, in each of its ways."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        quantize_dynamic,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([{"x": normal(*shape)} for _ in range(3)])

        def get_next(self) -> Any:
            return next(self.left, None)

    ways = {"qdq": (QuantFormat.QDQ, True), "qlinear": (QuantFormat.QOperator, False)}
    for name, (form, channels) in ways.items():
        made = path.with_name(f"{name}.onnx")
        quantize_static(path, made, Reader(), quant_format=form, per_channel=channels)
        yield name, made
    quantize_dynamic(path, path.with_name("dynamic.onnx"))
    yield "dynamic", path.with_name("dynamic.onnx")


def product(size: int, folder: Path) -> Path:
    """Bare MatMulInteger of u8 by i8."""
    from onnx import TensorProto, helper, numpy_helper, save

    values = [
        helper.make_tensor_value_info(name, kind, (size, size))
        for name, kind in (("x", TensorProto.UINT8), ("y", TensorProto.INT32))
    ]
    w = numpy_helper.from_array(RNG.integers(-128, 128, (size, size)).astype(np.int8), "w")
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, folder / "product.onnx")
    return folder / "product.onnx"


def compare(title: str, path: Path, x: Any, threads: int) -> None:
    """One line: ONNX Runtime's time, ours, their ratio, and whether results agree."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    model = gc.load(path, threads=threads)
    wanted, (got, *_) = session.run(None, {"x": x})[0], model(x=x).values()
    far = np.abs(wanted.astype(np.float64) - got) > 1e-3 * np.abs(wanted).max()
    theirs, ours = pairs(lambda: session.run(None, {"x": x}), lambda: model(x=x), threads)
    print(
        f"{title:24} onnxruntime {theirs:8.3f} ms  graphc {ours:8.3f} ms  "
        f"{theirs / ours:6.2f} times  differ {far.mean():.2%}",
        flush=True,
    )


def pairs(
    first: Callable[[], Any], second: Callable[[], Any], threads: int, seconds: float = 0.5
) -> tuple[float, float]:
    """Medians of both in ms, measured in turn."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    found: tuple[list[float], list[float]] = ([], [])
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(found[0]) < 7:
        for run, times in zip((first, second), found, strict=True):
            start = clock()
            run()
            times.append(clock() - start)
    return float(np.median(found[0]) * 1e3), float(np.median(found[1]) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--match", default="")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # the quantiser's advice
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in (256, 512, 1024, 2048):
            if given.match in (title := f"product {size}"):
                x = RNG.integers(0, 256, (size, size)).astype(np.uint8)
                compare(title, product(size, folder), x, given.threads)
        for title, layers in MODELS.items():
            if given.match in title:
                path, shape = written(layers(), folder)
                for way, made in quantised(path, shape):
                    compare(f"{title} {way}", made, normal(*shape), given.threads)


if __name__ == "__main__":
    main()
