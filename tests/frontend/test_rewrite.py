"""The source of a function is found in its own lines, or else in its whole file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.frontend.trace import rewrite

TABLE = np.arange(12.0).reshape(4, 3)
MODULES = (
    "graphc.frontend.trace.views",
    "graphc.learn.nn",
    "graphc.ops.linalg.factor",
    "graphc.ops.record.families",
)


def functions_of(module: Any) -> Iterator[FunctionType]:
    """The functions and methods of a module, those that Python finds under their names."""
    for found in vars(module).values():
        inner = vars(found).values() if inspect.isclass(found) else (found,)
        for each in map(inspect.unwrap, filter(callable, inner)):  # type: ignore[arg-type]
            if isinstance(each, FunctionType) and each.__module__ == module.__name__:
                yield each


def hooked(candidates: Iterator[Any], code: CodeType) -> CodeType | None:
    """The code with hooks of the first candidate that is the source."""
    for found in candidates:
        if rewrite._is_source(rewrite._compiled(found, code, False), code):
            return rewrite._compiled(found, code, True)
    return None


@pytest.mark.parametrize("name", MODULES)
def test_its_own_lines_say_what_the_whole_file_says(name: str) -> None:
    __import__(name)
    alone_is_found, count = 0, 0
    for function in functions_of(sys.modules[name]):
        code = function.__code__
        if not Path(code.co_filename).exists() or code.co_name == "<lambda>":
            continue
        alone = rewrite._found_alone(code, function.__globals__)
        source = rewrite._parsed(code.co_filename, function.__globals__)
        assert source is not None
        whole = hooked(
            (
                (source.imports, node, owner)
                for node, owner in rewrite._definitions(
                    source.tree, code.co_firstlineno, code.co_name
                )
            ),
            code,
        )
        made = hooked(iter([alone] if alone is not None else []), code)
        assert made is None or made == whole, code.co_qualname
        count, alone_is_found = count + (whole is not None), alone_is_found + (made is not None)
    assert alone_is_found >= 0.9 * count > 0, (alone_is_found, count)


def test_imports_may_share_their_line_with_definitions(tmp_path: Path) -> None:
    path = tmp_path / "crowded.py"
    path.write_text(
        "import numpy as np; twice = lambda x: x * 2\n\n\n"
        "def function(x):\n    return np.asarray(twice(x)) + 1\n"
    )
    made: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), made)
    x = np.arange(3.0)
    np.testing.assert_array_equal(gc.compile(made["function"])(x), x * 2 + 1)


class Model:
    """Functions in a class and in one another, with a private name."""

    __scale = 2.0

    def rows(self, ids: Any) -> Any:
        def chosen(k: Any) -> Any:
            return TABLE[k] * self.__scale

        return chosen(ids)


@gc.compile
def decorated(ids: Any) -> Any:
    return np.stack([
        TABLE[ids],
        TABLE[ids] + 1,
    ])  # fmt: skip


@pytest.mark.parametrize("function", [gc.compile(Model().rows), decorated])
def test_functions_see_arrays_from_outside(function: Callable[..., Any]) -> None:
    ids = np.array([3, 1])
    wanted = [TABLE[ids] * 2.0, np.stack([TABLE[ids], TABLE[ids] + 1])]
    np.testing.assert_array_equal(function(ids), wanted[function is decorated])


def test_a_file_is_not_parsed_where_lines_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_parsed", lambda *args: pytest.fail("parsed the whole file"))
    monkeypatch.setattr(rewrite, "_CODES", {})
    np.testing.assert_array_equal(gc.compile(Model().rows)(np.array([2])), TABLE[[2]] * 2.0)
