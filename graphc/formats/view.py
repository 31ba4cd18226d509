"""`gc.view`: one page of anything that can be compiled or loaded."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import ArgumentError, GraphError
from graphc.frontend.compile.decorator import CompiledFunction
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.files.page_sources import page_of, page_of_graph, traced_runs
from graphc.frontend.files.read_dump import dumped_page, is_dump
from graphc.frontend.trace.spec import symbols_of
from graphc.ir.graph import Graph, Program
from graphc.ops.record.value import PUBLIC, Value
from graphc.runtime.call.array import Array
from graphc.runtime.files.gcx_function import Loaded, LoadedExecutable
from graphc.viewer.page import Page


@refusing
def view(model: Any, *args: Any, runs: int = 0, **kwargs: Any) -> Page:
    """A page of a model: its graph, every stage, kernels, memory and timeline.

    model   a compiled function, a graph, what gc.load returned, or the path of a model (.gir, .gcx,
            .onnx, .pt2) or of a dump folder
    args    arguments of the function or graph, by name or in order: arrays, or specs if nothing is
            measured.  A function that was compiled already needs none
    runs    so many runs on the arguments are measured; every one counts, variables change

    An array is none: of that and an element type of equal width it gives the same bits (np.view).

    The page is one file without any link: `.save("page.html")` writes it, a notebook shows it.
    Raises GraphError for what is no model, and what compiling it raises.
    """
    if isinstance(model, np.ndarray | np.generic | Value | Array) and (args or kwargs):
        if len(args) + len(kwargs) > 1:
            raise ArgumentError(
                f"view of an array takes an element type, got {len(args) + len(kwargs)} arguments"
            )
        return PUBLIC["view"](model, *args, **kwargs)  # type: ignore[no-any-return]
    if isinstance(model, CompiledFunction):
        return model._view(args, kwargs, runs)
    if isinstance(model, LoadedExecutable):
        model = model.path
    if isinstance(model, str | PathLike):
        path = Path(model)
        if is_dump(path):
            return dumped_page(path)
        model = model_at(path)
    if isinstance(model, Graph | Program):
        model = LoadedGraph(model)
    model = model.whole if isinstance(model, Loaded) else model
    if not isinstance(model, LoadedGraph):
        raise GraphError(
            f"view takes a compiled function, a graph or a path, got {type(model).__name__}",
            hint="gc.compile(function) makes a compiled function",
        )
    if args or kwargs:
        built, arrays = model.prepared(args, kwargs)
        return page_of(built, model.config, traced_runs(built, arrays, runs))
    return page_of_graph(model) if symbols_of(model.types) else page_of(model.build(), model.config)


def model_at(path: Path, config: Config | None = None) -> LoadedGraph:
    """The graph of any model file, a compiled one's among them."""
    from graphc.frontend.files.gir_files import graph_of_text, read_text
    from graphc.runtime.files.gcx_files import text_of

    if path.suffix == ".onnx":
        from graphc.formats.onnx.model import OnnxModel
        from graphc.formats.onnx.reader import read as read_onnx

        return OnnxModel(read_onnx(path), config)
    if path.suffix == ".pt2":
        from graphc.formats.torch.archive import read as read_torch
        from graphc.formats.torch.model import TorchModel

        return TorchModel(read_torch(path), config)
    text = text_of(path) if path.suffix == ".gcx" else read_text(path)
    read = graph_of_text(path, text, share=False)
    return LoadedGraph(read.value, config, read.stage)
