"""Captures: what a Python function reads from outside of itself.

    SCALE = 2.0                          ("SCALE",)                 a global
    def make(table):                     ("table",)                 a cell of the closure
        def f(self, x):                  ("self", "weight")         a local: an argument, say
            return x * table[0] * SCALE * settings.rate @ self.weight
                                         ("settings", "rate")       a global, of which that is read

A path is a name and the attributes that are read from it, one after the other; inner functions and
comprehensions of a function count as parts of it.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any, NamedTuple

Path = tuple[str, ...]

_KINDS = {
    "LOAD_GLOBAL": "outer",
    "LOAD_NAME": "outer",
    "LOAD_DEREF": "cells",
    "LOAD_CLASSDEREF": "cells",
    "LOAD_FROM_DICT_OR_DEREF": "cells",
    "LOAD_FAST": "local",
    "LOAD_FAST_CHECK": "local",
    "LOAD_FAST_BORROW": "local",
}
_STORES = {"STORE_GLOBAL": "outer", "STORE_DEREF": "cells"}
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
MISSING: Any = object()


class Paths(NamedTuple):
    """The paths of a code object by what they begin with: a global, a cell, a local variable.

    `stored` are those of any kind that something is stored to.
    """

    outer: tuple[Path, ...]
    cells: tuple[Path, ...]
    local: tuple[Path, ...]
    stored: tuple[Path, ...]


@lru_cache(maxsize=4096)
def paths(code: CodeType) -> Paths:
    """The paths in a code object; of inner functions, those that begin outside of them."""
    found: dict[str, dict[Path, None]] = {name: {} for name in Paths._fields}
    kind, path, changed = "", (), False  # type: str, Path, bool
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if path and name == "COPY":  # of what += stores to after it has read it
            changed = True
            continue
        if path and name in _ATTRIBUTE:
            path = (*path, instruction.argval)
            if changed:
                found["stored"][path] = None
            continue
        changed = False
        if path and name == "STORE_ATTR":
            found["stored"][(*path, instruction.argval)] = None
        elif path:
            found[kind][path] = None
        kind, path = _KINDS.get(name, ""), ()
        if kind:
            path = (instruction.argval,) if isinstance(instruction.argval, str) else ()
        elif name in _STORES:
            found["stored"][(instruction.argval,)] = None
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            deeper, own = paths(inner), {*inner.co_varnames, *inner.co_cellvars}
            for name in ("outer", "cells", "stored"):
                outside = (path for path in getattr(deeper, name) if path[0] not in own)
                found[name].update(dict.fromkeys(outside))
    return Paths(*(tuple(found[name]) for name in Paths._fields))


def cells_of(function: Any) -> dict[str, Any]:
    """The cells of a function's closure by name."""
    return dict(zip(function.__code__.co_freevars, function.__closure__ or ()))


def captures(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the function reads now, each with the name it goes by: globals that exist, cells that
    are filled. Of a module, what is read from it.
    """
    code: CodeType = function.__code__
    scope = function.__globals__
    found = paths(code)
    for path in found.outer:
        start = scope.get(path[0], getattr(builtins, path[0], MISSING))
        yield from _followed(start, path)
    filled = cells_of(function)
    for path in found.cells:
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
