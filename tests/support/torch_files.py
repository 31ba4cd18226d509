"""Programs of torch.export written without PyTorch: the zip file, its JSON and raw weights."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NUMBERS = {
    "uint8": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 12,
}


class Ref(str):
    """The name of a value, where a string would be a string."""


class Kind(str):
    """The name of an element type as an argument."""


def size_of(extent: int | str) -> dict[str, Any]:
    if isinstance(extent, int):
        return {"as_int": extent}
    text = f"Symbol('{extent}', positive=True, integer=True)"
    return {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}


def meta(dtype: str, shape: Sequence[int | str], strides: Sequence[int] = ()) -> dict[str, Any]:
    steps = list(strides)
    if not steps and all(isinstance(n, int) for n in shape):
        count = 1
        for extent in reversed(shape):
            steps.insert(0, count)
            count *= int(extent)
    return {
        "dtype": NUMBERS[dtype],
        "sizes": [size_of(n) for n in shape],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": n} for n in steps],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def argument(value: Any) -> dict[str, Any]:
    """A value as the union of the format."""
    match value:
        case None:
            return {"as_none": True}
        case Ref():
            return {"as_tensor": {"name": str(value)}}
        case Kind():
            return {"as_scalar_type": NUMBERS[value]}
        case bool():
            return {"as_bool": value}
        case int():
            return {"as_int": value}
        case float():
            return {"as_float": value}
        case str():
            return {"as_string": value}
        case [Ref(), *_]:
            return {"as_tensors": [{"name": str(v)} for v in value]}
        case _:
            return {"as_ints": list(value)}


def node(target: str, outputs: str | Sequence[str], **inputs: Any) -> dict[str, Any]:
    """A call of an operator of aten; `self` is given as `self_`."""
    names = [outputs] if isinstance(outputs, str) else list(outputs)
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [
            {"name": name.rstrip("_"), "arg": argument(value), "kind": 1}
            for name, value in inputs.items()
        ],
        "outputs": [{"as_tensor": {"name": name}} for name in names],
        "metadata": {"stack_trace": 'File "net.py", line 7, in forward\n    y = f(x)'},
    }


def document(
    nodes: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Sequence[str],
    weights: Sequence[str] = (),
    keys: Sequence[str] = (),
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """The JSON of a program; a weight `a.b` is called p_a_b in the graph."""
    stored = [f"p_{w.replace('.', '_')}" for w in weights]
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    tree = {
        "type": "builtins.dict" if keys else "builtins.tuple",
        "context": json.dumps(list(keys)) if keys else "null",
        "children_spec": [leaf] * len(outputs),
    }
    parameters: list[dict[str, Any]] = [
        {"parameter": {"arg": {"name": name}, "parameter_name": weight}}
        for name, weight in zip(stored, weights)
    ]
    users = [{"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in inputs]
    results = [{"as_tensor": {"name": name}} for name in outputs]
    return {
        "graph_module": {
            "graph": {
                "inputs": [{"as_tensor": {"name": name}} for name in (*stored, *inputs)],
                "outputs": results,
                "nodes": list(nodes),
                "tensor_values": {name: meta(*kind) for name, kind in inputs.items()},
                "sym_int_values": {},
                "sym_bool_values": {},
            },
            "signature": {
                "input_specs": [*parameters, *users],
                "output_specs": [{"user_output": {"arg": r}} for r in results],
            },
            "module_call_graph": [{"fqn": "", "signature": {"out_spec": json.dumps([1, tree])}}],
        },
        "opset_version": {"aten": 10},
        "range_constraints": {
            name: {"min_val": low, "max_val": high} for name, (low, high) in (ranges or {}).items()
        },
        "schema_version": {"major": 8, "minor": 20},
    }


def payload(path: str, array: Array, pickled: bool = False) -> dict[str, Any]:
    steps = [step // array.itemsize for step in array.strides]
    return {
        "path_name": path,
        "is_param": True,
        "use_pickle": pickled,
        "tensor_meta": meta(str(array.dtype), array.shape, steps),
    }


def entries(program: Mapping[str, Any], weights: Mapping[str, Array]) -> dict[str, bytes]:
    """The entries of the archive, as recent versions lay them out."""
    config = {name: payload(f"weight_{k}", w) for k, (name, w) in enumerate(weights.items())}
    return {
        "models/model.json": json.dumps(program).encode(),
        "data/weights/model_weights_config.json": json.dumps({"config": config}).encode(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        "archive_format": b"pt2",
        "byteorder": b"little",
        **{
            f"data/weights/weight_{k}": array.tobytes("A")
            for k, array in enumerate(weights.values())
        },
    }


def archive(files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", compression) as made:
        for name, data in files.items():
            made.writestr(f"net/{name}", data)
    return held.getvalue()


def save(
    path: Path, program: Mapping[str, Any], weights: Mapping[str, Array] | None = None
) -> Path:
    path.write_bytes(archive(entries(program, weights or {})))
    return path


def dense(path: Path) -> tuple[Path, Array, Array]:
    """A file of relu(x @ w.T + b) with a batch of any size, and its weights."""
    generator = np.random.default_rng(0)
    w = generator.normal(size=(2, 3)).astype(np.float32)
    b = generator.normal(size=2).astype(np.float32)
    nodes = [
        node("linear.default", "product", input=Ref("x"), weight=Ref("p_l_w"), bias=Ref("p_l_b")),
        node("relu.default", "y", self_=Ref("product")),
    ]
    inputs = {"x": ("float32", ("s0", 3))}
    program = document(nodes, inputs, ["y"], ["l.w", "l.b"], ranges={"s0": (1, 64)})
    return save(path, program, {"l.w": w, "l.b": b}), w, b
