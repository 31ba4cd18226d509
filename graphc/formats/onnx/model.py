"""OnnxModel: an ONNX file as a function of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from graphc.base.record import record, replace
from graphc.config import Config
from graphc.errors import FeedError, GraphError
from graphc.formats.kinds import Kind
from graphc.formats.model import ImportedModel
from graphc.formats.onnx.interpret import Importer
from graphc.formats.onnx.reader import read
from graphc.formats.onnx.records import File
from graphc.formats.onnx.support import require_supported, words_of
from graphc.formats.onnx.text_stage import text_stage
from graphc.frontend.trace.spec import symbols_of
from graphc.ir.types import Dim, Type


def load(path: str | PathLike[str], **options: Any) -> OnnxModel:
    """An ONNX file as a callable: `gc.load("model.onnx")(x=...)`, options as for gc.compile.

    Results come in a dict under the file's names.  Raises GraphError for a file that is missing or
    damaged, and one that lists every operator that cannot be imported.
    """
    return OnnxModel(read(Path(path)), Config.create(**options))


@record(frozen=True)
class _Source:
    """A file as something that can be traced."""

    file: File

    @property
    def title(self) -> str:
        return self.file.graph.name or Path(self.file.name).stem

    @property
    def kinds(self) -> Mapping[str, Kind]:
        graph = self.file.graph
        inputs = [name for name in graph.inputs if name not in graph.constants]
        return {name: graph.kinds.get(name, Kind()) for name in inputs}

    @property
    def result_names(self) -> tuple[str, ...]:
        return self.file.graph.outputs

    @property
    def node_count(self) -> int:
        return len(self.file.graph.nodes)

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        return Importer(self.file).results(feeds)


class OnnxModel(ImportedModel):
    """A model from an ONNX file. Raises GraphError that lists what cannot be imported."""

    def __init__(self, file: File, config: Config | None = None) -> None:
        require_supported(file)
        self.file = file
        super().__init__(_Source(file), config, words_of(file))
        self.beside = file.beside
        self._texts = text_stage(file)
        self._behind: dict[tuple[Any, ...], OnnxModel] = {}  # by types of what it is fed
        self._apart: OnnxModel | None = None  # once the names of its sizes have been wrong

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The values of the symbolic dimensions. Raises FeedError for a shape that does not fit."""
        try:
            return super().bind(shapes)
        except FeedError as error:
            found = next(filter(None, map(_other_size, self.params, self.types, shapes)), None)
            if found is None:
                raise
            name, axis = found
            place = self.file.graph.inputs.index(name)
            raise FeedError(
                error.message,
                hint="the file fixes this size: export it with an open one (dynamic_axes, "
                "dynamic_shapes), or name it in the file: "
                f"model.graph.input[{place}].type.tensor_type.shape.dim[{axis}].dim_param = 'size'",
            ) from None

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Names of sizes are what a file claims: where two of one name differ, and it computes all
        the same, no size is taken for another from then on."""
        if self._apart is not None:
            return self._apart.run(values)
        try:
            return self._named(values)
        except FeedError:
            if not self._shares_names():
                raise
            apart = OnnxModel(_unnamed(self.file), self.config)
            try:
                made = apart.run(values)
            except GraphError:
                made = None
            if made is None:
                raise
        self._apart = apart
        return made

    def _shares_names(self) -> bool:
        """Whether it says of two sizes of its inputs how they are related."""
        extents = [e for kind in self.types for e in kind.shape if isinstance(e, Dim)]
        return len(extents) > len(symbols_of(self.types))

    def _named(self, values: Sequence[Any]) -> list[Any]:
        if self._texts is None:
            return super().run(values)
        made = self._texts.results(dict(zip(self.params, values)))
        if made is None:
            return super().run(values)
        key = tuple((name, array.dtype, array.ndim) for name, array in made.items())
        with self._lock:
            if key not in self._behind:
                self._behind[key] = OnnxModel(self._texts.file_for(made), self.config)
        return self._behind[key].run([made[name] for name in self._behind[key].params])

    def __reduce__(self) -> tuple[Any, ...]:
        return OnnxModel, (self.file, super().__reduce__()[1][1])


def _unnamed(file: File) -> File:
    """The file with open sizes that have no names."""

    def opened(kind: Kind) -> Kind:
        shape = kind.shape
        return replace(kind, shape=shape and tuple(e if type(e) is int else None for e in shape))

    kinds = {name: opened(kind) for name, kind in file.graph.kinds.items()}
    return replace(file, graph=replace(file.graph, kinds=kinds))


def _other_size(name: str, declared: Type, shape: tuple[int, ...]) -> tuple[str, int] | None:
    """The input and the first axis where a shape has another size than the number in the file."""
    if len(shape) != declared.rank:
        return None
    for axis, (extent, size) in enumerate(zip(declared.shape, shape)):
        if isinstance(extent, int) and extent != size:
            return name, axis
    return None
