"""What the onnx package says of operators: their attributes, and functions that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.formats.encoded_values import Narrow
from graphc.formats.kinds import Kind
from graphc.formats.onnx.reader import _Reader
from graphc.formats.onnx.records import Node, Subgraph
from graphc.ops.record.value import Value
from graphc.seams import onnx

_KINDS: dict[str, Any] = {
    "FLOAT": float,
    "INT": int,
    "STRING": str,
    "TENSOR": np.ndarray,
    "GRAPH": Subgraph,
    "SPARSE_TENSOR": np.ndarray,
    "TYPE_PROTO": Kind,
    "FLOATS": float,
    "INTS": int,
    "STRINGS": str,
    "TENSORS": np.ndarray,
    "GRAPHS": Subgraph,
}


schema_of = lru_cache(4096)(onnx.schema_of)


def check_call(node: Node) -> None:
    """Raise GraphError for attributes and numbers of inputs that the operator does not take."""
    schema = schema_of(node.domain, node.op, node.version)
    if schema is None:
        return
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        raise GraphError(f"takes {schema.min_input} to {schema.max_input} inputs")
    if len(node.outputs) > schema.max_output:
        raise GraphError(f"has at most {schema.max_output} results")
    for name, value in node.attributes.items():
        declared = schema.attributes.get(name)
        if declared is None:
            raise GraphError(f"has no attribute {name!r}")
        title = declared.type.name
        wanted = _KINDS[title]
        many = isinstance(value, tuple)
        fits = isinstance(value[0], wanted) if many and value else many or isinstance(value, wanted)
        if many != title.endswith("S") or not fits:
            raise GraphError(f"attribute {name} is no {title.lower()}")
    for name, declared in schema.attributes.items():
        if declared.required and name not in node.attributes:
            raise GraphError(f"attribute {name} is missing")


def is_function(node: Node) -> bool:
    """Whether the format says what the operator is in terms of others."""
    schema = schema_of(node.domain, node.op, node.version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(node: Node, arguments: Sequence[Any], versions: Mapping[str, int]) -> Subgraph | None:
    """The body of an operator that the format defines by others, for these arguments."""
    schema = schema_of(node.domain, node.op, node.version)
    if schema is None or not is_function(node):
        return None
    from onnx import FunctionProto, ModelProto

    text: bytes | None = None
    if schema.has_context_dependent_function:
        version = _latest(schema.context_dependent_function_opset_versions, node.version)
        types = [_type_bytes(value) for value in arguments]
        text = schema.get_context_dependent_function_with_opset_version(
            version, _node_bytes(node), types
        )
    if not text and schema.has_function:
        version = _latest(schema.function_opset_versions, node.version)
        text = schema.get_function_with_opset_version(version)
    if not text:
        return None
    proto = FunctionProto.FromString(text)
    model = ModelProto(opset_import=proto.opset_import)
    reader = _Reader(Path(node.op), model)
    reader.versions = {**versions, **reader.versions}
    defaults = {
        name: reader._attribute(a.default_value, 0)
        for name, a in schema.attributes.items()
        if a.default_value.name
    }
    body = reader._function(proto)
    return Subgraph(
        body.name, body.nodes, body.inputs, body.outputs, {}, {}, {**defaults, **body.defaults}
    )


def _latest(versions: Sequence[int], most: int) -> int:
    return max((v for v in versions if v <= most), default=max(versions))


def _node_bytes(node: Node) -> bytes:
    from onnx import helper

    if node.source:
        return node.source

    plain = {
        name: value
        for name, value in node.attributes.items()
        if isinstance(value, int | float | str | tuple)
    }
    made = helper.make_node(
        node.op, node.inputs, node.outputs, node.name, domain=node.domain, **plain
    )
    return made.SerializeToString()  # type: ignore[no-any-return]


def _type_bytes(value: Any) -> bytes:
    from onnx import TypeProto, helper

    if value is None:
        return TypeProto().SerializeToString()  # type: ignore[no-any-return]
    if isinstance(value, list):
        made = helper.make_sequence_type_proto(_type(value[0])) if value else TypeProto()
        return made.SerializeToString()  # type: ignore[no-any-return]
    return _type(value).SerializeToString()  # type: ignore[no-any-return]


def _type(value: Any) -> Any:
    import ml_dtypes
    from onnx import helper

    shape = (
        value.value.shape
        if isinstance(value, Narrow)
        else np.shape(value)
        if not isinstance(value, Value)
        else value.shape
    )
    element = (
        np.dtype(getattr(ml_dtypes, value.element)) if isinstance(value, Narrow) else value.dtype
    )
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(element), shape)
