"""One operator of an ONNX file, run on the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.onnx_cases import Interpreted
from graphc.formats.onnx.reader import from_proto

helper = onnx.helper
ML = "ai.onnx.ml"
rng = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def model_of(op: str, domain: str, inputs: list[Any], results: int, **attributes: Any) -> Any:
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    outputs = [f"o{k}" for k in range(results)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs)
        if v is not None
    ]
    empty = [helper.make_tensor_value_info(n, 1, None) for n in outputs]
    graph = helper.make_graph([node], "g", kinds, empty)
    imports = [helper.make_opsetid(*p) for p in (("", 17), ("com.microsoft", 1), (ML, 3))]
    return helper.make_model(graph, opset_imports=imports)


def run(
    op: str,
    inputs: list[Any],
    results: int = 1,
    domain: str = "com.microsoft",
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> Any:
    """Results of an operator; inputs at some positions are constants of the file."""
    proto = model_of(op, domain, inputs, results, **attributes)
    held = {f"i{k}": inputs[k] for k in constants if inputs[k] is not None}
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in held.items()]
    proto.graph.initializer.extend(tensors)
    fed = [entry for entry in proto.graph.input if entry.name not in held]
    del proto.graph.input[:]
    proto.graph.input.extend(fed)
    model = Interpreted(from_proto(proto, Path("m.onnx")))
    return model.run([v for k, v in enumerate(inputs) if v is not None and f"i{k}" not in held])


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
