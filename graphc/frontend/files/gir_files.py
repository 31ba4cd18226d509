"""Saved graphs: text in a .gir file, big constants in a .safetensors file beside it.

The first lines of a saved file are comments; one of them may name the weights file:

    # weights minilm.safetensors

which also holds the values of its variables (see `stored`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import GraphError, ParseError
from graphc.frontend.files.saved_variables import (
    comment,
    declare,
    digests,
    keys_of,
    restore,
    values_of,
    with_containers,
)
from graphc.frontend.files.weights import Weights, write_weights
from graphc.ir.graph import Graph, Program
from graphc.ir.literal import Literal
from graphc.ir.op import Host
from graphc.ir.verify import with_blocks
from graphc.limits import check_within
from graphc.ops.record.effects import Key
from graphc.runtime.call.variable import names_of_own
from graphc.runtime.files.files import write_atomically

_WEIGHTS_LINE = re.compile(r"# weights (.*)")
_FILE_NAME = re.compile(r"[^/\\\0]{1,100}")
_STAGE_LINE = re.compile(r"# stage (\w+)")
_OPTIONS_LINE = "# options "
_DECIDING = ("precision", "compress", "error_budget", "fast_math", "parity", "check_finite")


@refusing
def show(value: Any, *, locations: bool = True) -> str:
    """The canonical text of a graph or program. Raises GraphError for anything else."""
    from graphc.ir.text import show as print_text

    graph = getattr(value, "graph", value)
    if not isinstance(graph, Graph | Program):
        hint = "a compiled function has one for its arguments: gc.show(f.graph(x))"
        raise GraphError(
            f"show takes a graph, got {type(value).__name__}",
            hint=hint if callable(graph) and graph is not value else None,
        )
    return print_text(graph, locations=locations)


@refusing
def parse(text: str, tensors: Mapping[str, Any] | None = None) -> Graph | Program:
    """The graph (or partitioned program) that a text denotes; `tensors` maps digests to arrays.

    Raises ParseError with line, column and what was expected.
    """
    import graphc.ops  # noqa: F401  (fills the op table that the reader looks names up in)
    from graphc.ir.parse import parse as parse_text

    if not isinstance(text, str):
        raise GraphError(f"parse takes text, got {type(text).__name__}")
    check_within("text_bytes", len(text), f"graph text of {len(text)} characters")
    return parse_text(text, tensors)


def graph_of(name: str, value: Any, marked: bool = False) -> Graph:
    """The traced graph in what the function `name` was given: a graph, its text, a loaded graph;
    one whose marks say sizes where these may be `marked`.

    Raises GraphError for anything else.
    """
    found = parse(value) if isinstance(value, str) else value
    if callable(getattr(found, "graph", None)):
        raise GraphError(
            f"{name} takes a graph, and this is a function that has one for every signature",
            hint="f.graph(x) with arrays or gc.spec(...) as arguments",
        )
    found = getattr(found, "graph", found)
    if not isinstance(found, Graph):
        raise GraphError(f"{name} takes a graph of one device, got {type(value).__name__}")
    if not marked and any("." in mark for mark in found.marks):
        raise GraphError(
            f"{found.name} has sizes that no argument says, and {name} takes no such graph",
            hint="gc.load runs it; where arguments decide them all, give those sizes: --bind n=32",
        )
    if found.device is not None:
        raise GraphError(
            f"{found.name} is placed on {found.device} already",
            hint=f"{name} takes a graph as it was traced, before the passes: f.graph(x)",
        )
    return found


@refusing
def save(
    path: str | PathLike[str],
    value: Any,
    *,
    comments: tuple[str, ...] = (),
    weights: str = "",
    variables: Mapping[Key, Literal] | None = None,
) -> str:
    """Write a graph and, if it has big constants or variables, the weights file beside it, whose
    name is returned; "" without one.

    `weights` names an existing weights file of the same folder to refer to instead; `variables` are
    the values in it, by default the present ones.  Raises GraphError when the disk does not take a
    file or a value has no place in one.
    """
    from graphc.ir.text import literals

    target = Path(path)
    if target.suffix == ".gcx":
        text = target.with_suffix(".gir").name
        raise GraphError(
            f"{target.name} would hold text, and a .gcx file is compiled",
            hint=f"save {text}, then: graphc compile {text} -o {target.name}",
        )
    graph = getattr(value, "graph", value)
    if not comments:  # a dump is there to be read
        _require_no_functions(graph)
    stored = values_of(graph) if variables is None else variables
    big = [*literals(graph), *stored.values()]
    if big and not weights:
        weights = target.with_suffix(".safetensors").name
        if weights == target.name:
            raise GraphError(f"{target.name} would overwrite its own weights file", hint="use .gir")
        write_weights(target.with_name(weights), big)
    lines = [*comments, *([f"# weights {weights}"] if big else []), *comment(stored)]
    text = "".join(f"{line}\n" for line in lines) + show(graph)
    write_atomically(target, [text.encode()])
    return weights if big else ""


def _require_no_functions(value: Graph | Program) -> None:
    """Raise GraphError for a graph that calls functions of this process."""
    for graph in with_blocks(value):
        for node in graph.nodes:
            if isinstance(node.op.lower, Host) and node.op.lower.is_local:
                raise GraphError(
                    f"a file may only compute, and {node.op.name} calls a Python function",
                    details=node.describe(),
                    location=node.loc,
                    hint="gc.print and gc.assert_ may be saved",
                )


def _of_folder(path: Path) -> str | None:
    if not (path / "saved_model.pb").exists():
        return None
    return (
        "gc.nn.load_keras and graphc convert read the weights of a SavedModel; its graph comes "
        'through ONNX: model.export("model.onnx", format="onnx") in Keras, or tf2onnx'
    )


def read_text(path: Path) -> str:
    """The text of a .gir file. Raises GraphError for one that is missing, too large or not text."""
    try:
        size = path.stat().st_size
        check_within("text_bytes", size, f"{path} has {size} bytes")
        if not path.is_file():
            if path.is_dir():
                raise GraphError(f"{path} is a folder, not a graph", hint=_of_folder(path))
            raise GraphError(f"{path} is no ordinary file", hint="a device or pipe may never end")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        if path.suffix in _OF_WEIGHTS:
            whole = "; a whole model: keras.models.load_model(...).save('model.keras')"
            raise GraphError(
                f"{path} holds weights, and no model",
                hint="graphc audit lists them, graphc convert writes them in another format"
                + whole * (path.suffix == ".h5"),
            ) from None
        other = next((hint for names, hint in _OTHERS if path.suffix in names), None)
        raise GraphError(
            f"{path} is not graph text" if other is None else f"{path} is no file that is read",
            hint=other or "a .gir file is text; a .gcx file is compiled",
        ) from None


_OF_WEIGHTS = (".npz", ".safetensors", ".h5", ".index")
# Files of other libraries that are not read, and how what is in them comes here.
_OTHERS = (
    (
        (".pt", ".pth", ".bin", ".ckpt", ".jit", ".ts"),
        "files of torch.save and TorchScript run code: export the model instead "
        "(torch.export.save(torch.export.export(model, arguments), 'model.pt2')), or save its "
        "weights as .safetensors",
    ),
    (
        (".pkl", ".pickle", ".joblib", ".sav"),
        "pickles run code: export the model as ONNX instead (skl2onnx for scikit-learn, "
        "onnxmltools for XGBoost and LightGBM)",
    ),
    ((".pb", ".tflite"), "graphs of TensorFlow come through ONNX: python -m tf2onnx.convert"),
)


def head_comments(text: str) -> list[str]:
    """The comment lines that a file starts with."""
    found: list[str] = []
    position = 0
    while text.startswith("#", position) and len(found) < 16:
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        found.append(text[position:end])
        position = end + 1
    return found


def stage_of(text: str) -> str | None:
    """The pass a dumped file is the output of."""
    for line in head_comments(text):
        match = _STAGE_LINE.match(line)
        if match:
            return match[1]
    return None


def weights_beside(path: Path, text: str) -> Path | None:
    """The weights file of a saved graph: named in its comments, or of the same name.

    Raises GraphError for a name that is a path, and a file that is missing or lies outside of the
    graph's folder.
    """
    named = None
    for line in head_comments(text):
        match = _WEIGHTS_LINE.fullmatch(line)
        named = match[1] if match else named
    candidate = path.with_suffix(".safetensors") if named is None else None
    if named is not None:
        if not _FILE_NAME.fullmatch(named) or named in (".", ".."):
            raise GraphError(
                f"{path.name} names the weights file {named[:80]!r}, which is no plain file name",
                hint="a weights file lies beside its graph and is named without a folder",
            )
        candidate = path.with_name(named)
        if not candidate.exists():
            raise GraphError(
                f"the graph of {path.name} has its weights in {named}, which is not beside it",
                hint=f"put {named} into its folder; only a compiled run of a .gcx file needs none",
            )
    assert candidate is not None
    if candidate == path or (named is None and not candidate.exists()):
        return None
    if candidate.exists() and candidate.resolve().parent != path.resolve().parent:
        raise GraphError(f"weights file {candidate.name} lies outside the folder of {path.name}")
    return candidate


@record(frozen=True)
class Read:
    """What a file holds: the graph and, for a dumped one, its stage.

    `containers` are those of its variables: the file's names and what they are called here.
    """

    value: Graph | Program
    stage: str | None
    containers: Mapping[str, str]


def graph_of_text(
    file: Path,
    text: str,
    *,
    weights: bool = True,
    share: bool | str | Iterable[str] = True,
    custom: Iterable[str] | bool = (),
) -> Read:
    """The graph that a text denotes, whose big constants lie beside a file.

    Without `weights`, big constants have no data.  `share` and `custom` say which containers and
    which custom ops of this program it may use.  Raises GraphError when data should be there and
    the weights file lacks it.
    """
    from graphc.ir.reader import custom_ops
    from graphc.ir.text import literals
    from graphc.ops.control.custom import permitted

    beside = weights_beside(file, text) if weights else None
    tensors = Weights(beside) if beside is not None else None
    token = custom_ops.set(permitted(custom))
    try:
        value = parse(text, tensors)
    except ParseError as error:
        error.message = f"{file}: {error.message}"
        raise
    finally:
        custom_ops.reset(token)
    names = names_of_own((container for container, _ in keys_of(value)), share)
    value = with_containers(value, names)
    if weights:
        _require_data(file, [i.digest for i in literals(value) if not i.has_data], tensors)
        restore(digests(head_comments(text)), tensors, file.name, names)
    declare(value, [own for name, own in names.items() if own != name])
    return Read(value, stage_of(text), names)


def _deciding(config: Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _DECIDING}


def options_of(file: str, text: str) -> dict[str, Any]:
    """The options that decide values, as an embedded text says it was compiled with.

    Raises GraphError where it says so in other words.
    """
    lines = [line for line in head_comments(text) if line.startswith(_OPTIONS_LINE)]
    try:
        found = json.loads(lines[0][len(_OPTIONS_LINE) :]) if lines else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found.keys() <= set(_DECIDING):
        raise GraphError(f"{file} is damaged: the options that it was compiled with")
    return found


def embedded_text(path: Path, value: Graph | Program, config: Config) -> str:
    """The text of a graph from a file as a .gcx file embeds it: it still names the weights file
    and the values of variables in it, and says which options decide its values.
    """
    text = read_text(path) if path.suffix == ".gir" else ""
    beside = weights_beside(path, text) if text else None
    lines = [f"# weights {beside.name}"] if beside is not None else []
    if (told := _deciding(config)) != _deciding(Config()):
        lines.append(_OPTIONS_LINE + json.dumps(told))
    lines += [line for line in head_comments(text) if line.startswith("# variables ")]
    return "".join(f"{line}\n" for line in lines) + show(value)


def _require_data(file: Path, digests: list[str], tensors: Weights | None) -> None:
    missing = [digest for digest in digests if tensors is None or digest not in tensors]
    if missing:
        where = f"{tensors.path.name} lacks it" if tensors else "there is no weights file beside it"
        raise GraphError(
            f"{file.name} needs the data of constant {missing[0]}, but {where}",
            details=(f"{len(missing)} constant(s) without data",),
            hint=f"put {file.with_suffix('.safetensors').name} beside it",
        )
