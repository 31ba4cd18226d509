"""ONNX files become plain records: nothing in them is trusted before it is one of these.

External data lies in files beside the model, named without a folder, no links; their sizes are
checked before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.formats.kinds import Kind
from graphc.formats.onnx.order import in_order
from graphc.formats.onnx.records import File, Node, Reference, Subgraph
from graphc.limits import check_within, limit
from graphc.runtime.files.stable_file import OpenFile
from graphc.seams import onnx

Array = np.ndarray[Any, Any]

MOST_HEADS = 1000  # of outermost fields that are looked at before a file is read
_LONGEST_VARINT = 10  # bytes
_FIXED = {1: 8, 5: 4}  # bytes of the wire types of one size

# Element types that are NumPy's, by their numbers in the format, and fields with numbers of them.
_PLAIN = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
}
_LISTED = {
    "float32": "float_data",
    "float64": "double_data",
    "int32": "int32_data",
    "int64": "int64_data",
}

# Errors of the protobuf package and of NumPy on fields that make no sense.
MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


def read(path: Path) -> File:
    """The records of a file. Raises GraphError for one that is missing or makes no sense."""
    messages = package(onnx.messages)
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    _require_fields(source, path)
    data = source.whole()
    try:
        model = messages.ModelProto.FromString(data)
    except Exception as error:  # noqa: BLE001  (protobuf has one error class per implementation)
        raise GraphError(f"{path.name} is no ONNX model", details=(str(error)[:200],)) from None
    return from_proto(model, path)


def _require_fields(source: OpenFile, path: Path) -> None:
    """Raise GraphError unless the outermost fields of a protobuf message follow each other, as far
    as that can be told from the heads of a few: a file of another kind is not read whole.
    """
    place = 0
    for _ in range(MOST_HEADS):
        if place == source.size:
            return
        head = source.read(place, min(2 * _LONGEST_VARINT, source.size - place)).tobytes()
        tag, start = _varint(head, 0)
        size = _FIXED.get(tag & 7)
        if tag & 7 == 0:
            start, size = _varint(head, start)[1], 0
        elif tag & 7 == 2:
            size, start = _varint(head, start)
        if tag >> 3 == 0 or size is None or place + start + size > source.size:
            raise GraphError(f"{path.name} is no ONNX model: no field begins at byte {place}")
        place += start + size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of protobuf, and where it ends; 0 where it does not end."""
    value = 0
    for k, byte in enumerate(data[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value, place + k + 1
    return 0, place


def from_proto(model: Any, path: Path) -> File:
    """The records of a ModelProto; `path` is where its external data lies beside, and its name."""
    try:
        return _Reader(path, model).file()
    except MALFORMED as error:
        reason = f"{type(error).__name__}: {error}"
        raise GraphError(f"{path.name} is damaged", details=(reason[:300],)) from None


def package(load: Callable[[], Any] = lambda: import_module("onnx")) -> Any:
    """The onnx package, or what `load` takes of it. Raises GraphError where there is none."""
    try:
        return load()
    except ImportError:
        raise GraphError(
            "ONNX files need the onnx package", hint="pip install 'graphc[onnx]'"
        ) from None


def domain_of(name: str | bytes) -> str:
    """The domain as tables have it: that of ONNX itself has two spellings."""
    return "" if name == "ai.onnx" else _text(name)


def _versions(imports: Any, file: str) -> dict[str, int]:
    made = {domain_of(o.domain): int(o.version) for o in imports}
    for domain, version in made.items():
        if not 0 < version < 1 << 20:
            raise GraphError(f"{file} is of version {version} of {domain or 'ai.onnx'}")
    return made


def _texts(values: Any) -> tuple[str, ...]:
    """Strings of the file, each word made once: trees say one of seven for every node."""
    listed = tuple(values)
    words = {value: _text(value) for value in set(listed)}
    return tuple(map(words.__getitem__, listed))


class _Reader:
    def __init__(self, path: Path, model: Any) -> None:
        self.path = path
        self.model = model
        self.versions = _versions(model.opset_import, path.name)
        self.opened: dict[str, OpenFile] = {}

    def file(self) -> File:
        if not self.model.HasField("graph"):
            raise GraphError(f"{self.path.name} is no ONNX model", hint="it holds no graph")
        functions = {
            (domain_of(f.domain), _text(f.name), _text(f.overload)): self._function(f)
            for f in self.model.functions
        }
        graph = self._graph(self.model.graph, 0)
        beside = {name: source.stamp for name, source in self.opened.items()}
        return File(self.path.name, graph, functions, self.versions, beside)

    def _function(self, proto: Any) -> Subgraph:
        versions = _versions(proto.opset_import, self.path.name)
        nodes = self._nodes(proto.node, 0, versions)
        defaults = {_text(a.name): self._attribute(a, 0) for a in proto.attribute_proto}
        return Subgraph(
            _text(proto.name), nodes, _texts(proto.input), _texts(proto.output), {}, {}, defaults
        )

    def _graph(self, proto: Any, depth: int) -> Subgraph:
        check_within("region_depth", depth, f"{self.path.name} has graphs in one another")
        constants = {_text(t.name): self.tensor(t) for t in proto.initializer}
        constants |= {_text(t.values.name): self._sparse(t) for t in proto.sparse_initializer}
        return Subgraph(
            _text(proto.name),
            self._nodes(proto.node, depth, self.versions),
            _texts(v.name for v in proto.input),
            _texts(v.name for v in proto.output),
            constants,
            {_text(v.name): kind_of(v.type) for v in (*proto.input, *proto.output)},
        )

    def _nodes(self, nodes: Any, depth: int, versions: Mapping[str, int]) -> tuple[Node, ...]:
        made = []
        for k, proto in enumerate(nodes):
            domain = domain_of(proto.domain)
            graphs = any(a.type == a.GRAPH for a in proto.attribute)
            made.append(
                Node(
                    k,
                    _text(proto.name),
                    domain,
                    _text(proto.op_type),
                    versions.get(domain, self.versions.get(domain, 1)),
                    _texts(proto.input),
                    _texts(proto.output),
                    {_text(a.name): self._attribute(a, depth) for a in proto.attribute},
                    _text(proto.overload),
                    proto.SerializeToString() if graphs and domain else b"",
                )
            )
        return in_order(tuple(made))

    def _attribute(self, proto: Any, depth: int) -> Any:
        if proto.ref_attr_name:
            return Reference(_text(proto.ref_attr_name))
        kinds = type(proto)
        plain: dict[int, Callable[[], Any]] = {
            kinds.FLOAT: lambda: float(proto.f),
            kinds.INT: lambda: int(proto.i),
            kinds.STRING: lambda: _text(proto.s),
            kinds.TENSOR: lambda: self.tensor(proto.t),
            kinds.GRAPH: lambda: self._graph(proto.g, depth + 1),
            kinds.SPARSE_TENSOR: lambda: self._sparse(proto.sparse_tensor),
            kinds.TYPE_PROTO: lambda: kind_of(proto.tp),
            kinds.FLOATS: lambda: tuple(proto.floats),
            kinds.INTS: lambda: tuple(proto.ints),
            kinds.STRINGS: lambda: _texts(proto.strings),
            kinds.TENSORS: lambda: tuple(map(self.tensor, proto.tensors)),
            kinds.GRAPHS: lambda: tuple(self._graph(g, depth + 1) for g in proto.graphs),
        }
        if proto.type not in plain:
            raise GraphError(f"{self.path.name}: attribute {proto.name!r} has type {proto.type}")
        return plain[proto.type]()

    # ---------------------------------------------------------------------------------- tensors

    def tensor(self, proto: Any) -> Array:
        """A tensor of the file as an array. Raises GraphError where its data has another size."""
        shape = tuple(map(int, proto.dims))
        count = _elements(shape, f"tensor {proto.name!r}")
        if proto.data_type == proto.STRING:
            texts = [_text(s) for s in proto.string_data]
            _require_size(proto.name, len(texts), count)
            return np.array(texts, object).reshape(shape)
        element = _numpy_dtype(proto.data_type, proto.name)
        width = _bits(proto.data_type) * count
        nbytes = -(-width // 8)
        if proto.data_location == proto.EXTERNAL:
            raw = self._external(proto, nbytes)
            if _bits(proto.data_type) < 8:
                copy = type(proto)()
                copy.CopyFrom(proto)
                copy.ClearField("data_location")
                copy.ClearField("external_data")
                copy.raw_data = raw.tobytes()
                return _array(copy)
            return raw.view(element).reshape(shape)
        if proto.HasField("raw_data"):
            _require_size(proto.name, len(proto.raw_data), nbytes)
        elif count > 8 * proto.ByteSize() + 8:
            _require_size(proto.name, 0, count)
        made = _array(proto)
        _require_size(proto.name, made.size, count)
        made.flags.writeable = False
        return made.reshape(shape)

    def _sparse(self, proto: Any) -> Array:
        shape = tuple(map(int, proto.dims))
        count = _elements(shape, "a sparse tensor")
        check_within("inline_elements", count, f"a sparse tensor of {count} elements")
        values, indices = self.tensor(proto.values), self.tensor(proto.indices)
        made = np.zeros(shape, values.dtype)
        if indices.ndim == 2:
            indices = np.ravel_multi_index(tuple(indices.T), shape)
        made.reshape(-1)[indices] = values
        return made

    def _external(self, proto: Any, nbytes: int) -> Array:
        entries = {_text(e.key): _text(e.value) for e in proto.external_data}
        name, start = entries.get("location", ""), int(entries.get("offset", 0) or 0)
        length = int(entries.get("length", nbytes) or nbytes)
        if not name or name in (".", "..") or any(c in name for c in "/\\\0") or len(name) > 200:
            raise GraphError(
                f"{self.path.name} names the data file {name[:80]!r}, which is no plain file name",
                hint="external data lies beside its model and is named without a folder",
            )
        beside = self.path.with_name(name)
        if beside.is_symlink():
            raise GraphError(f"data file {name} is a link", hint="put the file itself there")
        if name not in self.opened:
            self.opened[name] = OpenFile(beside, "data file ")
        source = self.opened[name]
        if length != nbytes or start < 0 or start + nbytes > source.size:
            raise GraphError(
                f"{self.path.name}: tensor {proto.name!r} needs {nbytes} bytes at {start} of "
                f"{name}, which has {source.size}"
            )
        return source.read(start, nbytes)


def _text(value: str | bytes) -> str:
    """A string of the file; one that is no UTF-8 comes as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _elements(shape: tuple[int, ...], what: str) -> int:
    if any(extent < 0 for extent in shape) or len(shape) > 32:
        raise GraphError(f"{what} has shape {list(shape)[:40]}")
    total = 1
    for extent in shape:
        total *= extent
        if total > limit("model_bytes") * 8:
            raise GraphError(f"{what} has shape {list(shape)}")
    return total


def _require_size(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise GraphError(f"tensor {name!r} needs data of size {expected}, the file has {found}")


def _array(proto: Any) -> Array:
    """The elements of a tensor, flat where they are of a plain kind; others by onnx itself."""
    kind = _PLAIN.get(proto.data_type)
    if kind is not None and not proto.HasField("segment"):
        if proto.HasField("raw_data"):
            return np.frombuffer(proto.raw_data, np.dtype(kind).newbyteorder("<"))
        if kind in _LISTED:
            return np.array(getattr(proto, _LISTED[kind]), kind)
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(proto))


def _numpy_dtype(number: int, name: str) -> np.dtype[Any]:
    if number in _PLAIN:
        return np.dtype(_PLAIN[number])
    from onnx import helper

    try:
        return helper.tensor_dtype_to_np_dtype(number)  # type: ignore[no-any-return]
    except KeyError:
        raise GraphError(f"tensor {name!r} has elements of an unknown type {number}") from None


def _bits(number: int) -> int:
    if number in _PLAIN:
        return 8 * np.dtype(_PLAIN[number]).itemsize
    title = onnx.messages().TensorProto.DataType.Name(number)
    if title in ("INT4", "UINT4", "FLOAT4E2M1"):
        return 4
    if title in ("INT2", "UINT2"):
        return 2
    return 8 * _numpy_dtype(number, "").itemsize


def element_name(number: int) -> str:
    """The name of an element type by its number in the format: "float32", "int4", "string"."""
    if number == 0:
        return ""
    if number == 8:
        return "string"
    return str(_numpy_dtype(number, "a value"))


def kind_of(proto: Any, depth: int = 0) -> Kind:
    """What a TypeProto says."""
    if proto.HasField("tensor_type"):
        tensor = proto.tensor_type
        shape = tuple(map(_extent, tensor.shape.dim)) if tensor.HasField("shape") else None
        return Kind("tensor", element_name(tensor.elem_type), shape)
    for form in ("sequence", "optional"):
        if proto.HasField(f"{form}_type") and depth < 8:
            inner = kind_of(getattr(proto, f"{form}_type").elem_type, depth + 1)
            return Kind(form, inner.element, inner.shape)
    return Kind("other" if proto.WhichOneof("value") else "")


def _extent(proto: Any) -> int | str | None:
    which = proto.WhichOneof("value")
    if which == "dim_value":
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    return _text(proto.dim_param) or None if which == "dim_param" else None
