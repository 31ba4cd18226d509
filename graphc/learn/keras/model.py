"""Models of Keras 3 from their .keras files: configuration, weights, and no Keras.

    model.keras   config.json        layers, and which reads which   -> network.Call
                  model.weights.h5   arrays under the kinds of layers -> table.Weights

    gc.load("model.keras")(images)   arrays as Keras has them: [batch, height, width, channels]

What runs is inference: dropout and its like pass everything on.  A file is data: nothing in it is
imported, and layers that are not in the table are refused by name, all of them at once.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.formats.keras_weights import MALFORMED, opened_weights, require_h5py
from graphc.formats.kinds import Kind
from graphc.formats.model import ImportedModel
from graphc.learn.keras import (  # noqa: F401  they fill the table
    activations,
    attention,
    dense,
    images,
    norms,
    operators,
    recurrent,
    shapes,
    wrappers,
)
from graphc.learn.keras.network import SHOWN, Network, Refused, network
from graphc.learn.keras.table import Masked, Settings, Weights, is_own
from graphc.limits import check_within
from graphc.runtime.files.stable_file import OpenFile


@record(frozen=True)
class KerasFile:
    """What a file holds, as something that can be traced."""

    title: str
    kinds: Mapping[str, Kind]
    network: Network

    @property
    def result_names(self) -> tuple[str, ...]:
        """A name that several results have gets numbers that make it differ from all others."""
        counts = Counter(self.network.names)
        taken = {name for name, count in counts.items() if count == 1}
        return tuple(
            name if counts[name] == 1 else _numbered(name, k, taken)
            for k, name in enumerate(self.network.names)
        )

    @property
    def node_count(self) -> int:
        return self.network.count

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        given = {name: Masked(feeds[name], None) for name in self.network.inputs}
        return [part.value for part in self.network.run(given)]


def _numbered(name: str, number: int, taken: set[str]) -> str:
    while (title := f"{name}_{number}") in taken:
        number += 1
    taken.add(title)
    return title


class KerasModel(ImportedModel):
    """A model from a .keras file. Raises GraphError that lists what cannot be imported."""

    def __init__(self, file: KerasFile, config: Config | None = None) -> None:
        super().__init__(file, config)


def load(path: str | PathLike[str], **options: Any) -> KerasModel:
    """A .keras file as a callable: `gc.load("model.keras")(x)`, options as for gc.compile.

    It takes arrays as Keras does, in order or by the names of its input layers, and returns those
    of its output layers in a dict.  Needs h5py.  Raises GraphError for a file that is missing or
    damaged, and one that lists every layer that cannot be imported.
    """
    return KerasModel(read(Path(path)), Config.create(**options))


def read(path: Path) -> KerasFile:
    """The layers and weights of a .keras file. Raises GraphError."""
    require_h5py("reading models of Keras")
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    try:
        data = io.BytesIO(source.read(0, source.size).tobytes())
        with zipfile.ZipFile(data) as archive:
            told = json.loads(_member(archive, "config.json"))
            weights = _member(archive, "model.weights.h5")
        with opened_weights(weights, path.name) as file:
            return _file(path.name, told, Weights(file))
    except Refused as problem:
        raise _refusal(path.name, problem.lines) from None
    except (*MALFORMED, RecursionError) as error:
        raise GraphError(
            f"{path.name} holds no model of Keras 3", details=(str(error)[:200],)
        ) from None


def _refusal(name: str, lines: list[str]) -> GraphError:
    more = len(lines) - SHOWN
    rest = (f"and {more} more",) if more > 0 else ()
    count = f"{len(lines)} layer{'s' if len(lines) > 1 else ''}"
    return GraphError(
        f"{name} has {count} that cannot be imported", details=(*lines[:SHOWN], *rest)
    )


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    check_within("model_bytes", info.file_size, f"{name} unpacks to {info.file_size} bytes")
    return archive.read(info)


def _file(name: str, told: Settings, weights: Weights) -> KerasFile:
    kind, settings = told["class_name"], told["config"]
    if kind not in ("Sequential", "Functional") or is_own(told):
        own = " of one's own" if is_own(told) else ""
        raise GraphError(
            f"{name} holds a model of the class {str(kind)[:60]!r}{own}",
            hint="Sequential and Functional models can be imported; others say in Python what "
            "they do: gc.nn.load_keras takes their weights",
        )
    found = network(kind, settings, weights)
    check_within("imported_nodes", found.count, f"the model has {found.count} calls of layers")
    kinds = {key: _kind(given) for key, given in found.inputs.items()}
    return KerasFile(str(settings.get("name", "model")), kinds, found)


def _kind(settings: Settings) -> Kind:
    shape = settings.get("batch_shape") or settings["batch_input_shape"]
    if settings.get("sparse") or settings.get("ragged"):
        raise GraphError("a sparse or ragged input cannot be imported")
    dims: list[int | str | None] = [None if d is None else int(d) for d in shape]
    first = dims[0] if dims else None
    return Kind(
        "tensor",
        str(settings.get("dtype") or "float32"),
        ("batch" if first is None else first, *dims[1:]) if dims else (),
    )
