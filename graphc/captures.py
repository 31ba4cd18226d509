"""Captures: what a Python function reads from outside of itself.

    SCALE = 2.0                          ("SCALE",)                 a global
    def make(table):                     ("table",)                 a cell of the closure
        def f(x):
            return x * table[0] * SCALE * settings.rate             ("settings", "rate")

A path is a name and the attributes that are read from it, one after the other; inner functions and
comprehensions of a function count as parts of it.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

Path = tuple[str, ...]

_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_CELL = frozenset(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"))
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
MISSING: Any = object()


@lru_cache(maxsize=4096)
def paths(code: CodeType) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The paths that begin at a global and those that begin at a cell, inner functions included."""
    outer: dict[Path, None] = {}
    cells: dict[Path, None] = {}
    found = outer
    path: Path = ()
    for instruction in dis.get_instructions(code):
        if path and instruction.opname in _ATTRIBUTE:
            path = (*path, instruction.argval)
            continue
        if path:
            found[path] = None
        path = ()
        if instruction.opname in _GLOBAL:
            found, path = outer, (instruction.argval,)
        elif instruction.opname in _CELL:
            found, path = cells, (instruction.argval,)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more_outer, more_cells = paths(inner)
            outer.update(dict.fromkeys(more_outer))
            cells.update(dict.fromkeys(more_cells))
    return tuple(outer), tuple(cells)


def captures(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the function reads now, each with the name it goes by: globals that exist, cells that
    are filled. Of a module, what is read from it.
    """
    code: CodeType = function.__code__
    scope = function.__globals__
    from_globals, from_cells = paths(code)
    for path in from_globals:
        start = scope.get(path[0], getattr(builtins, path[0], MISSING))
        yield from _followed(start, path)
    filled = dict(zip(code.co_freevars, function.__closure__ or ()))
    for path in from_cells:
        if path[0] in filled:  # else it is a variable of its own that an inner function reads
            try:
                start = filled[path[0]].cell_contents
            except ValueError:  # not assigned yet
                continue
            yield from _followed(start, path)


def _followed(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """The value at the end of a path, as far as it leads through modules."""
    name, *attributes = path
    for attribute in attributes:
        if not isinstance(value, ModuleType):
            break
        value = getattr(value, attribute, MISSING)
        name = f"{name}.{attribute}"
    if value is not MISSING:
        yield name, value
