"""Files of weights of Keras 3, .weights.h5: arrays in groups that are called by layers.

    layers/dense_1/vars/0    the first array of the second Dense

Nothing outside of a file is read, and no more than the limits admit.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from graphc.errors import GraphError
from graphc.limits import check_within
from graphc.runtime.files.stable_file import OpenFile

Array = np.ndarray[Any, Any]
# Errors of h5py and zipfile on files that make no sense.
MALFORMED = (
    *(OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError, ArithmeticError),
    *(NotImplementedError, EOFError, IndexError, zipfile.BadZipFile, zlib.error),
)


def require_h5py(what: str) -> None:
    """Raise GraphError unless h5py is installed."""
    if importlib.util.find_spec("h5py") is None:
        raise GraphError(f"{what} needs h5py", hint="pip install 'graphc[keras]'")


def read_weights(path: Path) -> dict[str, Array]:
    """The arrays of a file by their places. Raises GraphError for a file that cannot be read."""
    require_h5py("reading weights of Keras")
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    try:
        with opened_weights(source.read(0, source.size).tobytes(), path.name) as file:
            return dict(_arrays(file, "", set()))
    except (*MALFORMED, RecursionError) as error:
        raise GraphError(f"{path.name} is damaged", details=(str(error)[:200],)) from None


def _arrays(group: Any, place: str, seen: set[int]) -> Iterator[tuple[str, Array]]:
    import h5py

    for name in group:
        held = group[name]
        address = h5py.h5o.get_info(held.id).addr
        if address in seen:
            raise ValueError(f"{name} is linked twice")  # paths to it would be without number
        seen.add(address)
        if isinstance(held, h5py.Group):
            yield from _arrays(held, f"{place}{name}/", seen)
        elif held.shape is not None and held.dtype.kind in "biufcV":
            yield f"{place}{name}", stored_array(held)


@contextmanager
def opened_weights(data: bytes, name: str) -> Iterator[Any]:
    """A file of weights that is in memory: it holds all its arrays itself, and they are no more
    than the limits admit.  Raises ValueError and LimitError."""
    import h5py

    with h5py.File(io.BytesIO(data), "r") as file:
        nbytes, pending, seen = 0, [file], set()
        while pending:
            group = pending.pop()
            for key in group:
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    raise ValueError(f"{key} is a link")
                held = group[key]
                place = h5py.h5o.get_info(held.id).addr  # what is linked twice is one thing
                if isinstance(held, h5py.Group) and place not in seen:
                    pending.append(held)
                elif isinstance(held, h5py.Dataset) and place not in seen:
                    nbytes += held.nbytes
                seen.add(place)
        check_within("model_bytes", nbytes, f"the arrays of {name} have {nbytes} bytes")
        yield file


def stored_array(data: Any) -> Array:
    """The array of a dataset. Raises ValueError for what is none, or lies in another file."""
    import h5py

    if not isinstance(data, h5py.Dataset) or data.external or data.is_virtual:
        raise ValueError(f"{data.name} lies in another file")
    array = np.asarray(data[...])
    told = data.attrs.get("dtype") == "bfloat16"  # HDF5 has no such type: two bytes without one
    return array.view(ml_dtypes.bfloat16) if told and array.dtype.itemsize == 2 else array
