"""Models in one format become models in another: `gc.convert(source, "model.onnx")`.

.gir .onnx .pt2 .keras, or a graph  ->  .onnx   checked by running it
                                    ->  .mlir   StableHLO, checked by running it in JAX
                                    ->  .gir    graphc's own
                                    ->  .npz .safetensors   its constants and variables alone
                                    ->  .dot    a drawing by Graphviz
"""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.formats.exporting import unsaid
from graphc.formats.keras_weights import read_weights
from graphc.formats.tensorflow.checkpoint import is_checkpoint, read_checkpoint
from graphc.frontend.files.gir_files import graph_of, save
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.files.loaded_graph import load as load_saved
from graphc.frontend.files.saved_variables import values_of
from graphc.frontend.trace.spec import symbols_of
from graphc.ir.graph import Graph
from graphc.ir.literal import Literal
from graphc.limits import check_within
from graphc.runtime.files.files import npz, with_type, write_atomically
from graphc.runtime.files.stable_file import OpenFile
from graphc.runtime.files.tensors import encode_header, is_storable, raw_bytes, read_tensors

Array = np.ndarray[Any, Any]
# Errors of zipfile and NumPy on archives that make no sense.
MALFORMED = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, ArithmeticError),
    *(MemoryError, SyntaxError, TypeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
Feeds = Mapping[str, Any] | None


@record(frozen=True)
class Conversion:
    """What was written: the path, the checks that it passed, why others were left out, which
    arrays the format has no place for, and the path of the weights file beside it, if any."""

    path: str
    passed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    weights: str = ""


@refusing
def convert(
    source: Any,
    target: str | PathLike[str],
    *,
    sizes: Mapping[str, int] | None = None,
    feeds: Mapping[str, Any] | None = None,
) -> Conversion:
    """Write a model in the format that the name of `target` ends with.

    source  the path of a model (.gir, .onnx, .pt2, .keras), what gc.load returned, a graph or its
            text; or that of weights (.npz, .safetensors, .weights.h5, a checkpoint's .index, the
            folder of a SavedModel)
    sizes   values of symbolic dimensions; those of graphs stay symbolic without
    feeds   arrays by name to try an ONNX model or a StableHLO module on; drawn at random without

    The file appears when it is whole and, for ONNX and StableHLO, when the model was valid and
    computed what the interpreter does.  Raises GraphError for what the format cannot express, all
    of it at once.
    """
    path = Path(target)
    if path.suffix not in _WRITERS:
        raise GraphError(
            f"{path.name} is of no format that can be written",
            hint=f"names end with {', '.join(_WRITERS)}",
        )
    held = arrays_of(source)
    if held is not None:
        return _of_weights(held, path)
    graph = _graph(source, _checked(sizes), marked=path.suffix == ".gir")
    return _WRITERS[path.suffix](graph, path, feeds)


def _checked(sizes: Any) -> dict[str, int]:
    """Values of dimensions by name. Raises GraphError for what is none."""
    items = list(sizes.items()) if isinstance(sizes, Mapping) else [] if sizes is None else [(0, 0)]
    for name, size in items:
        if not isinstance(name, str) or type(size) is not int or size < 0:
            raise GraphError(f'sizes gives dimensions their values, {{"n": 32}}, got {sizes!r}')
    return dict(items)


def arrays_of(source: Any) -> dict[str, Array] | None:
    """The arrays of a file of weights, by name; None for what is no such file."""
    if not isinstance(source, PathLike) and not _is_path(source):
        return None
    path = Path(source)
    if path.suffix == ".safetensors":
        return read_tensors(path)
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".h5":
        return read_weights(path)
    return read_checkpoint(path) if is_checkpoint(path) else None


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file. Raises GraphError for one that is missing or damaged."""
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(source.read(0, source.size).tobytes())) as archive:
            total = sum(info.file_size for info in archive.infolist())
            check_within("model_bytes", total, f"{path.name} unpacks to {total} bytes")
            return {
                name.removesuffix(".npy"): with_type(
                    np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                )
                for name in archive.namelist()
            }
    except MALFORMED as error:
        raise GraphError(f"{path.name} is damaged", details=(str(error)[:200],)) from None


def _of_weights(arrays: dict[str, Array], path: Path) -> Conversion:
    if path.suffix not in (".npz", ".safetensors"):
        raise GraphError(f"{path.name} would hold a model, and these are weights alone")
    write, kinds, what = (
        (write_npz, "O", "strings that end in zero bytes")
        if path.suffix == ".npz"
        else (write_safetensors, "SUO", "strings")
    )
    texts = tuple(name for name, array in arrays.items() if array.dtype.kind in kinds)
    write(path, {name: array for name, array in arrays.items() if name not in texts})
    return Conversion(str(path), without=tuple(f"{name!r} holds {what}" for name in texts))


def _graph(source: Any, sizes: dict[str, int], marked: bool) -> Graph:
    found = _loaded(Path(source)) if isinstance(source, PathLike) or _is_path(source) else source
    if sizes:
        loaded = found if hasattr(found, "bound") else LoadedGraph(graph_of("convert", found))
        found = loaded.bound(sizes)
    return graph_of("convert", found, marked)


def _is_path(source: Any) -> bool:
    return isinstance(source, str) and "\n" not in source


def _loaded(path: Path) -> Any:
    if path.suffix == ".onnx":
        from graphc.formats.onnx.model import load as load_onnx

        return load_onnx(path)
    if path.suffix == ".pt2":
        from graphc.formats.torch.model import load as load_torch

        return load_torch(path)
    if path.suffix == ".keras":
        import graphc

        return graphc.load(path)
    if path.suffix == ".gcx":
        raise GraphError(f"{path.name} is compiled", hint="convert what it was compiled from")
    return load_saved(path)


# ------------------------------------------------------------------------------------ formats


def _to_onnx(graph: Graph, path: Path, feeds: Feeds) -> Conversion:
    from graphc.formats.onnx.export.model import save as save_onnx

    checked = save_onnx(graph, path, feeds)
    return Conversion(str(path), checked.passed, checked.left_out)


def _to_stablehlo(graph: Graph, path: Path, feeds: Feeds) -> Conversion:
    from graphc.formats.stablehlo.model import save as save_stablehlo

    checked = save_stablehlo(graph, path, feeds)
    return Conversion(str(path), checked.passed, checked.left_out)


def _to_gir(graph: Graph, path: Path, feeds: Feeds) -> Conversion:
    said = symbols_of(p.type for p in graph.params)
    found = sorted({name for node in graph.nodes for name in unsaid(node, said)})
    if found and not graph.marks:
        raise GraphError(
            f"@{graph.name} does not hold how a run finds out {', '.join(found)}",
            hint="save the function: fn.save(path, ...)",
        )
    weights = save(path, graph)
    return Conversion(str(path), weights=str(path.with_name(weights)) if weights else "")


def _to_graphviz(graph: Graph, path: Path, feeds: Feeds) -> Conversion:
    from graphc.formats.graphviz import graphviz

    write_atomically(path, [graphviz(graph).encode()])
    return Conversion(str(path))


def weights_of(graph: Graph) -> dict[str, Array]:
    """The constants with axes and the variables of a graph, under their names."""
    names = {id: name for name, id in graph.names.items()}
    made = {f"{box}/{name}": item.array for (box, name), item in values_of(graph).items()}
    for node in graph.nodes:
        value = node.attrs.get("value")
        if isinstance(value, Literal) and value.type.shape:
            made[names.get(node.id, f"constant_{node.id}")] = value.array
    return made


def _to_npz(graph: Graph, path: Path, feeds: Feeds) -> Conversion:
    write_npz(path, weights_of(graph))
    return Conversion(str(path))


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Arrays as an .npz file, which appears whole."""
    write_atomically(path, [npz(arrays)])


def _to_safetensors(graph: Graph, path: Path, feeds: Feeds) -> Conversion:
    write_safetensors(path, weights_of(graph))
    return Conversion(str(path))


def write_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Arrays as a .safetensors file, which appears whole. Raises GraphError for complex numbers."""
    whole = {name: _as_stored(array) for name, array in arrays.items()}
    for name, array in whole.items():
        if not is_storable(array.dtype) or array.dtype.kind == "c":
            raise GraphError(f"{name!r} of {array.dtype} has no place in a .safetensors file")
    write_atomically(path, [encode_header(whole.items()), *map(raw_bytes, whole.values())])


def _as_stored(array: Array) -> Array:
    """In C order, bytes in that of the format; elements that NumPy does not know as they are."""
    swapped = array.dtype.byteorder == ">" and array.dtype.kind != "V"
    return np.asarray(array, array.dtype.newbyteorder("<") if swapped else None, order="C")


_WRITERS: dict[str, Callable[[Graph, Path, Feeds], Conversion]] = {
    ".onnx": _to_onnx,
    ".mlir": _to_stablehlo,
    ".gir": _to_gir,
    ".npz": _to_npz,
    ".safetensors": _to_safetensors,
    ".dot": _to_graphviz,
}
