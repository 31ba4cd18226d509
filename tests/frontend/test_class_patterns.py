"""`match` by class: open sizes are ints, and traced arrays are NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc


def plain(x: Any) -> Any:
    match x.shape[0]:
        case str() | None:
            return x * 5
        case int():
            return x * 2
        case _:
            return x * 3


def named(x: Any) -> Any:
    match (x.shape[0], "a"):
        case (int() as rows, int()):
            return x * rows * 9
        case (int(rows), str()) if rows > 100:
            return x * rows * 8
        case (int() as rows, str(kind)):
            return x * rows + len(kind)
        case _:
            return x * 3


def several(x: Any) -> Any:
    match {"shape": x.shape, "x": x}:
        case {"shape": (float(), _)}:
            return x * 9
        case {"shape": (3, int())}:
            return x * 5
        case {"shape": (int(n) | float(n), 4), "x": np.ndarray()}:
            return x * n
        case _:
            return x * 3


def refused_first(x: Any) -> Any:
    n: Any = "kept"
    match x:
        case float(n):
            return x
        case np.ndarray() as found if found.ndim == 5:
            return x
        case list() | np.ndarray():
            return x * len(n)
        case _:
            return x * 0


def mixed(x: Any) -> Any:
    match x.shape[0]:
        case 3 | str():
            return x * 7
        case (float() | None) as n:
            return x * 9 * len(n)
        case (6 | str(nothing=5)) | bool():
            return x * 8
        case int(n) | (5.5 as n) as again:
            return x * n + again
        case _:
            return x * 3


def attributes(x: Any) -> Any:
    match {"x": x}:
        case {"x": np.ndarray(nothing=_) | np.ndarray(ndim=3)}:
            return x * 9
        case {"x": np.ndarray(ndim=2, size=int(size), T=np.ndarray() as turned)}:
            return x * size + turned[0, 0]
        case _:
            return x * 3


@pytest.mark.parametrize("model", [plain, named, several, refused_first, mixed, attributes])
def test_classes_of_open_sizes_are_those_of_python(model: Any, tmp_path: Path) -> None:
    run = gc.compile(model)
    arrays = [np.ones((rows, 4)) for rows in (5, 6, 7, 3, 120)]
    for x in arrays:
        np.testing.assert_array_equal(run(x), model(x))
    run.save(tmp_path / "m.gir", gc.spec(("n", 4), "f64"))
    loaded = gc.load(tmp_path / "m.gir")
    np.testing.assert_array_equal(loaded(arrays[0]), model(arrays[0]))
