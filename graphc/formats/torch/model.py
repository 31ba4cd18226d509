"""TorchModel: a program of torch.export as a function of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import FeedError
from graphc.formats.kinds import Kind
from graphc.formats.model import ImportedModel
from graphc.formats.torch.archive import read
from graphc.formats.torch.interpret import Importer, require_supported
from graphc.formats.torch.records import Program


def load(path: str | PathLike[str], **options: Any) -> TorchModel:
    """A file of torch.export as a callable: `gc.load("model.pt2")(x)`, options as for gc.compile.

    PyTorch is not needed.  Results come in a dict: under the keys of the dict that the module
    returns, or the names of the values in its graph.  Raises GraphError for a file that is
    missing, damaged or holds pickled weights, and one that lists every operator that cannot be
    imported.
    """
    return TorchModel(read(Path(path)), Config.create(**options))


@record(frozen=True)
class _Source:
    """A program as something that can be traced."""

    program: Program

    @property
    def title(self) -> str:
        return self.program.name

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return self.program.kinds

    @property
    def result_names(self) -> tuple[str, ...]:
        """Those of arrays: texts are no part of what is compiled."""
        pairs = zip(self.program.result_names, self.program.block.outputs)
        return tuple(name for name, made in pairs if not isinstance(made, str))

    @property
    def node_count(self) -> int:
        return len(self.program.block.nodes)

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        made = Importer(self.program).results(feeds)
        return [value for value in made if not isinstance(value, str)]


class TorchModel(ImportedModel):
    """A program of PyTorch. Raises GraphError that lists what cannot be imported."""

    def __init__(self, program: Program, config: Config | None = None) -> None:
        require_supported(program)
        self.program = program
        super().__init__(_Source(program), config)

    def __call__(self, *args: Any, **feeds: Any) -> Any:
        """Results in a dict under the program's names; texts among them are the program's own."""
        found = super().__call__(*args, **feeds)
        pairs = list(zip(self.program.result_names, self.program.block.outputs))
        if len(found) == len(pairs):
            return found
        arrays = iter(found.items())
        return dict((n, v) if isinstance(v, str) else next(arrays) for n, v in pairs)

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The values of the symbolic dimensions. Raises FeedError for a shape that does not fit."""
        try:
            return super().bind(shapes)
        except FeedError as error:
            raise FeedError(
                error.message,
                hint="sizes are those of the arguments of the export, unless it leaves them open: "
                'dynamic_shapes=({0: torch.export.Dim("batch")},)',
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.program, super().__reduce__()[1][1])
