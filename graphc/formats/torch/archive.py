"""`.pt2` files of torch.export become records without PyTorch: a zip file of JSON and raw weights.

Entries are stored, not compressed, as PyTorch writes them, so that a file is never larger than it
seems.  Nothing that is pickled is read: neither weights that older versions wrote so, nor the
examples that every file holds.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphc.errors import GraphError, LimitError
from graphc.formats.kinds import Kind
from graphc.formats.torch.records import (
    ELEMENTS,
    OF_MEMORY,
    Array,
    Block,
    Element,
    Location,
    Name,
    Node,
    Operator,
    Program,
    element_name,
    portable,
    strided,
    user_line,
)
from graphc.limits import check_within
from graphc.runtime.files.stable_file import OpenFile

T = TypeVar("T")
MALFORMED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    EOFError,
    OSError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
)
SCHEMA = 8  # of the JSON: the major version
MOST_NAME = 1000
EXPORT_AGAIN = "export it again with PyTorch 2.9 or newer: torch.export.save(program, 'model.pt2')"
_SYMBOL = re.compile(r"(?:Symbol\(')?([A-Za-z_]\w{0,60})(?:'[\w=, ]*\))?\Z")


def read(path: Path) -> Program:
    """The program of a file. Raises GraphError for one that is missing, damaged or pickled."""
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    data = source.read(0, source.size)
    try:
        return _Reader(path.name, _Archive(path.name, data)).program(path.stem)
    except GraphError as error:
        if isinstance(error, LimitError) or error.message.startswith(path.name):
            raise
        raise GraphError(f"{path.name}: {error.message}", hint=error.hint) from None
    except MALFORMED as error:
        reason = f"{type(error).__name__}: {error}"
        raise GraphError(f"{path.name} is damaged", details=(reason[:300],)) from None


# ------------------------------------------------------------------------------------ the zip file


class _Bytes(io.RawIOBase):
    """Bytes in memory as a file, without a copy."""

    def __init__(self, data: Array) -> None:
        self.data, self.at = memoryview(data.data), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = max(0, offset + (0, self.at, len(self.data))[whence])
        return self.at

    def read(self, size: int = -1) -> bytes:
        end = len(self.data) if size < 0 else self.at + size
        made = bytes(self.data[self.at : end])
        self.at += len(made)
        return made


class _Archive:
    """The entries of a zip file, below the one folder that all lie in."""

    def __init__(self, file: str, data: Array) -> None:
        self.data = data
        with zipfile.ZipFile(_Bytes(data)) as opened:
            infos = opened.infolist()
        roots = {info.filename.partition("/")[0] for info in infos}
        self.entries: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename.partition("/")[2] if len(roots) == 1 else info.filename
            if name in self.entries:
                raise GraphError(f"two entries are named {name[:80]!r}")
            self.entries[name] = info
        if sum(info.file_size for info in infos) > data.size:
            raise GraphError(
                f"{file} holds compressed entries", hint="keep it as torch.export.save wrote it"
            )

    def bytes(self, name: str) -> Array:
        """What an entry holds. Raises GraphError where it is missing, compressed or changed."""
        info = self.entries.get(name)
        if info is None:
            raise GraphError(f"entry {name[:80]!r} is missing")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise GraphError(
                f"entry {name[:80]!r} is compressed", hint="keep it as torch.export.save wrote it"
            )
        head = self.data[info.header_offset : info.header_offset + 30].tobytes()
        title, extra = struct.unpack("<HH", head[26:30])
        start = info.header_offset + 30 + title + extra
        made = self.data[start : start + info.file_size]
        if (
            head[:4] != b"PK\3\4"
            or made.size != info.file_size
            or zlib.crc32(made.data) != info.CRC
        ):
            raise GraphError(f"entry {name[:80]!r} is damaged")
        return made

    def text(self, name: str) -> str:
        made = self.bytes(name)
        check_within("text_bytes", made.size, f"entry {name[:80]!r} has {made.size} bytes")
        return made.tobytes().decode()

    def json(self, name: str) -> Any:
        return json.loads(self.text(name))


# ------------------------------------------------------------------------------------ checked JSON


def _is(value: Any, kind: type[T], what: str) -> T:
    """The value, which must be of this very type: True is no integer."""
    if type(value) is not kind:
        raise GraphError(f"{what} is {str(value)[:60]!r}")
    return value


def _name(value: Any) -> str:
    text = _is(value, str, "a name")
    if not 0 < len(text) <= MOST_NAME or not text.isprintable():
        raise GraphError(f"a name is {text[:60]!r}")
    return text


def _target(value: Any) -> str:
    return _name(value).removeprefix("torch.ops.")


def _int(value: Any) -> int:
    number = _is(value, int, "an integer")
    if not -(1 << 63) <= number < 1 << 64:
        raise GraphError(f"an integer is {str(number)[:60]}")
    return number


def _float(value: Any) -> float:
    if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN"):
        return float(value)
    return float(_int(value)) if type(value) is int else _is(value, float, "a number")


def _list(value: Any) -> list[Any]:
    return _is(value, list, "a list")


def _dict(value: Any) -> dict[str, Any]:
    return _is(value, dict, "an object")


def _variant(value: Any) -> tuple[str, Any]:
    """The one field of a union that is there."""
    pairs = [(k, v) for k, v in _dict(value).items() if v is not None]
    if len(pairs) != 1:
        raise GraphError(f"a value has {len(pairs)} meanings: {str(value)[:80]}")
    return pairs[0]


def _size(value: Any) -> int:
    """An extent, stride or offset that is known."""
    form, held = _variant(value)
    if form != "as_int":
        raise GraphError(f"a size of a stored tensor is {str(held)[:60]}")
    return _int(held)


def _extent(value: Any) -> int | str | None:
    """An extent of an input: an integer, a named size, or None for what follows from others."""
    form, held = _variant(value)
    if form == "as_int":
        extent = _int(held)
        if extent < 0:
            raise GraphError(f"an extent is {extent}")
        return extent
    found = _SYMBOL.match(_is(_dict(held)["expr_str"], str, "a size"))
    return found[1] if found else None


# ------------------------------------------------------------------------------------ the program


class _Reader:
    def __init__(self, file: str, archive: _Archive) -> None:
        self.file = file
        self.archive = archive
        self.depth = 0
        self.metas: list[Mapping[str, Any]] = []
        self.plain: dict[str, Callable[[Any], Any]] = {
            "as_none": lambda value: None,
            "as_tensor": self._ref,
            "as_tensors": self._listed(self._ref),
            "as_int": _int,
            "as_ints": self._listed(_int),
            "as_int_lists": self._listed(self._listed(_int)),
            "as_float": _float,
            "as_floats": self._listed(_float),
            "as_float_lists": self._listed(self._listed(_float)),
            "as_string": lambda value: _is(value, str, "a string"),
            "as_strings": self._listed(lambda value: _is(value, str, "a string")),
            "as_bool": lambda value: _is(value, bool, "a bool"),
            "as_bools": self._listed(lambda value: _is(value, bool, "a bool")),
            "as_complex": lambda value: complex(_float(value["real"]), _float(value["imag"])),
            "as_scalar_type": lambda value: Element(element_name(value)),
            "as_name": lambda value: Name(_name(value)),
            "as_operator": lambda value: Operator(_target(value)),
            "as_graph": lambda value: self.block(_dict(value)["graph"]),
            "as_nested_tensors": self._listed(self._listed(self._ref)),
            **dict.fromkeys(("as_device", "as_memory_format", "as_layout"), lambda value: None),
            **dict.fromkeys(
                ("as_sym_int", "as_sym_float", "as_sym_bool", "as_optional_tensor"), self.value
            ),
            **dict.fromkeys(
                ("as_sym_ints", "as_sym_floats", "as_sym_bools", "as_optional_tensors"),
                self._listed(self.value),
            ),
        }

    @staticmethod
    def _listed(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
        return lambda values: [read(value) for value in _list(values)]

    @staticmethod
    def _ref(value: Any) -> Name:
        return Name(_name(_dict(value)["name"]))

    def value(self, union: Any) -> Any:
        """An argument: a number, a string, None, a name, or a list of those."""
        form, held = _variant(union)
        read = self.plain.get(form)
        if read is None:
            raise GraphError(
                f"an argument is {form.removeprefix('as_')}, which has no meaning here"
            )
        return read(held)

    # ---------------------------------------------------------------------------------- graphs

    def block(self, graph: Any) -> Block:
        self.depth += 1
        check_within("region_depth", self.depth, f"{self.file} has graphs in one another")
        graph = _dict(graph)
        nodes = _list(graph["nodes"])
        check_within("text_lines", len(nodes), f"{self.file} has {len(nodes)} nodes")
        self.metas.append(_dict(graph["tensor_values"]))
        inputs = tuple(self._input(value) for value in _list(graph["inputs"]))
        made = tuple(self._node(k, node) for k, node in enumerate(nodes))
        outputs = tuple(self.value(value) for value in _list(graph["outputs"]))
        self.metas.pop()
        self.depth -= 1
        return Block(inputs, made, outputs)

    def _input(self, union: Any) -> str:
        made = self.value(union)
        return made.name if isinstance(made, Name) else ""

    def _node(self, index: int, node: Any) -> Node:
        node = _dict(node)
        inputs = []
        for given in _list(node["inputs"]):
            name = _is(_dict(given)["name"], str, "an argument's name")
            inputs.append((name, self.value(given["arg"])))
        outputs = tuple(self._output(union) for union in _list(node["outputs"]))
        target = _target(node["target"])
        if target in OF_MEMORY and inputs:
            inputs.append(("laid", self._laid(inputs[0][1])))
        return Node(index, target, tuple(inputs), outputs, _location(node.get("metadata")))

    def _laid(self, tensor: Any) -> Any:
        """The strides and the start in memory of a value of the innermost graph."""
        meta = _dict(self.metas[-1][tensor.name]) if isinstance(tensor, Name) else {}
        given = [*_list(meta.get("strides", [])), meta.get("storage_offset")]
        if not meta or any(_variant(n)[0] != "as_int" for n in given):
            return None
        numbers = [_int(_variant(n)[1]) for n in given]
        return [numbers[:-1], numbers[-1]]

    def _output(self, union: Any) -> Any:
        made = self.value(union)
        if isinstance(made, list):
            return tuple(v.name if isinstance(v, Name) else None for v in made)
        return made.name if isinstance(made, Name) else None

    # ---------------------------------------------------------------------------------- the file

    def program(self, name: str) -> Program:
        model, document = self._document()
        version = _dict(document["schema_version"])
        if _int(version["major"]) != SCHEMA:
            raise GraphError(
                f"{self.file} is of version {_int(version['major'])} of the format",
                hint=f"this reads version {SCHEMA}; {EXPORT_AGAIN}",
            )
        module = _dict(document["graph_module"])
        block = self.block(module["graph"])
        metas = _dict(_dict(module["graph"])["tensor_values"])
        signature = _dict(module["signature"])
        stored = self._stored(model)
        kinds: dict[str, Kind] = {}
        fixed: dict[str, Any] = {}
        titles: dict[str, str] = {}
        specs = _list(signature["input_specs"])
        if len(specs) != len(block.inputs):
            raise GraphError(f"{len(specs)} of {len(block.inputs)} inputs are explained")
        for input_name, union in zip(block.inputs, specs):
            form, spec = _variant(union)
            if form == "user_input":
                given = self.value(_dict(spec)["arg"])
                if isinstance(given, Name):
                    kinds[given.name] = self._kind(_variant(spec["arg"])[0], metas, given.name)
            elif form == "constant_input":
                fixed[_name(spec["name"])] = self.value(spec["value"])
            elif form in _STORED:
                title = _name(spec[_STORED[form]])
                fixed[input_name], titles[input_name] = stored(title), title
            elif form == "token":
                fixed[input_name] = None
            else:
                raise GraphError(f"input {input_name!r} is a {form.replace('_', ' ')}")
        names = list(map(_variant, _list(signature["output_specs"])))
        if len(names) != len(block.outputs):
            raise GraphError(f"{len(names)} of {len(block.outputs)} results are explained")
        wanted = [value for (form, _), value in zip(names, block.outputs) if form in _RESULTS]
        return Program(
            name,
            Block(block.inputs, block.nodes, tuple(wanted)),
            kinds,
            fixed,
            _result_names(wanted, _out_keys(module)),
            titles,
            _ranges(document.get("range_constraints") or {}),
            default=_default_float(_dict(module["graph"])),
        )

    def _document(self) -> tuple[str, Any]:
        """The name of the model in the archive and its JSON."""
        if "serialized_exported_program.json" in self.archive.entries:
            return "", self.archive.json("serialized_exported_program.json")
        if "archive_format" not in self.archive.entries:
            raise GraphError(f"{self.file} is no file of torch.export", hint=EXPORT_AGAIN)
        if "byteorder" in self.archive.entries and self.archive.text("byteorder") != "little":
            raise GraphError(f"{self.file} was written by a big-endian machine")
        models = [
            n for n in self.archive.entries if n.startswith("models/") and n.endswith(".json")
        ]
        if len(models) != 1:
            raise GraphError(
                f"{self.file} holds {len(models)} models", hint="save one program in each file"
            )
        return models[0][7:-5], self.archive.json(models[0])

    def _kind(self, form: str, metas: Mapping[str, Any], name: str) -> Kind:
        if form != "as_tensor":
            kinds = {"as_sym_float": "float64", "as_float": "float64", "as_sym_bool": "bool"}
            return Kind("tensor", kinds.get(form, "int64"), ())
        meta = _dict(metas[name])
        shape = tuple(_extent(value) for value in _list(meta["sizes"]))
        return Kind("tensor", element_name(meta["dtype"]), shape)

    # ---------------------------------------------------------------------------------- weights

    def _stored(self, model: str) -> Callable[[str], Array]:
        """What gives a parameter, buffer or constant by its name in the module."""
        payloads: dict[str, tuple[str, Any]] = {}
        if not model and "serialized_exported_program.json" in self.archive.entries:
            return self._pickled
        for folder in ("weights", "constants"):
            config = f"data/{folder}/{model}_{folder}_config.json"
            if config in self.archive.entries:
                entries = _dict(_dict(self.archive.json(config))["config"])
                payloads |= {title: (folder, _dict(meta)) for title, meta in entries.items()}
            elif f"data/{folder}/{model}.pt" in self.archive.entries:
                payloads[""] = ("", {})
        read: dict[str, Array] = {}

        def stored(title: str) -> Array:
            if title not in payloads and "" in payloads:
                return self._pickled(title)
            if title not in payloads:
                raise GraphError(f"no data for {title!r}")
            folder, meta = payloads[title]
            return self._tensor(title, folder, meta, read)

        return stored

    def _pickled(self, title: str) -> Array:
        raise GraphError(
            f"{self.file} holds {title!r} pickled, which is not read: it could run any code",
            hint=f"{EXPORT_AGAIN}; or gc.from_torch(module, ...)",
        )

    def _tensor(self, title: str, folder: str, meta: Any, read: dict[str, Array]) -> Array:
        if _is(meta["use_pickle"], bool, "use_pickle"):
            return self._pickled(title)
        path = f"data/{folder}/{_name(meta['path_name'])}"
        if path not in read:
            read[path] = self.archive.bytes(path)
        facts = _dict(meta["tensor_meta"])
        if facts.get("layout", 7) != 7:
            raise GraphError(f"{title!r} is a sparse tensor, which graphs have none of")
        shape, strides = (tuple(map(_size, _list(facts[k]))) for k in ("sizes", "strides"))
        element = _numpy(element_name(facts["dtype"]))
        data = read[path]
        usable = data[: data.size // element.itemsize * element.itemsize]
        if usable.ctypes.data % element.itemsize:
            usable = usable.copy()
        try:
            return strided(usable.view(element), shape, strides, _size(facts["storage_offset"]))
        except GraphError as error:
            raise GraphError(f"{title!r}: {error.message}") from None


_STORED = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}
_RESULTS = ("user_output", "loss_output")


def _numpy(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def _location(metadata: Any) -> Location | None:
    """The user's line that a node comes from."""
    trace = metadata.get("stack_trace") if isinstance(metadata, dict) else None
    found = user_line(trace[-20_000:]) if isinstance(trace, str) else None
    return (portable(found[0]), found[1]) if found is not None else None


def _ranges(constraints: Any) -> dict[str, tuple[int | None, int | None]]:
    def bound(value: Any) -> int | None:
        return value if type(value) is int else None

    made = {}
    for name, held in _dict(constraints).items():
        made[name] = bound(_dict(held).get("min_val")), bound(held.get("max_val"))
    return made


_FLOAT64 = next(number for number, name in ELEMENTS.items() if name == "float64")
_FLOATLIKE = {n for n, name in ELEMENTS.items() if name.startswith(("float", "bfloat", "complex"))}


def _default_float(graph: Mapping[str, Any]) -> str:
    """The type of floats that nothing says the type of, which files do not tell: that of a float
    which a node makes of no floats, and without naming a type."""
    metas = _dict(graph["tensor_values"])

    def element(name: Any) -> Any:
        return metas[name].get("dtype") if name in metas else None

    for node in graph["nodes"]:
        given = [_variant(entry["arg"]) for entry in node["inputs"]]
        lists = [v if isinstance(v, list) else [v] for form, v in given if "tensor" in form]
        read = {element(v.get("name")) for held in lists for v in held if isinstance(v, dict)}
        named = any(form in ("as_scalar_type", "as_graph") for form, _ in given)
        made = [v for form, v in map(_variant, node["outputs"]) if form == "as_tensor"]
        wide = bool(made) and element(made[0].get("name")) == _FLOAT64
        if wide and not named and not read & _FLOATLIKE:
            return "float64"
    return "float32"


# ------------------------------------------------------------------------------------ result names


def _out_keys(module: Any) -> list[str] | None:
    """The keys of the dict that the module returns, joined by dots with those inside.

    None where it returns no dict: results are then called as in the graph.
    """
    for entry in _list(module.get("module_call_graph") or []):
        signature = entry.get("signature")
        if entry.get("fqn") == "" and signature is not None:
            version, tree = json.loads(signature["out_spec"])
            return _paths(tree, 0) if version == 1 and _dict_keys(tree) else None
    return None


def _dict_keys(tree: Any) -> list[str] | None:
    """The keys of a node of a nesting, if it is a dict or a dataclass with named fields."""
    context = tree["context"]
    keys = json.loads(context) if isinstance(context, str) else context
    named = isinstance(keys, list) and len(keys) == len(tree["children_spec"])
    return list(map(str, keys)) if named else None


def _paths(tree: Any, depth: int) -> list[str]:
    """The keys and positions that lead to every leaf."""
    check_within("region_depth", depth, "results in one another")
    children = tree["children_spec"]
    if tree["type"] is None:
        return [""]
    titles = _dict_keys(tree) or [str(k) for k in range(len(children))]
    return [
        f"{title}.{rest}".rstrip(".")
        for title, child in zip(titles, children)
        for rest in _paths(child, depth + 1)
    ]


def _result_names(outputs: list[Any], keys: list[str] | None) -> tuple[str, ...]:
    """One name for every result: that of the caller's dict, or that of the value in the graph."""
    if keys is None or len(keys) != len(outputs) or not all(k and k.isprintable() for k in keys):
        keys = [v.name if isinstance(v, Name) else f"result_{k}" for k, v in enumerate(outputs)]
    made: list[str] = []
    for key in keys:
        title = key[:MOST_NAME]
        while title in made:
            title += "_"
        made.append(title)
    return tuple(made)
