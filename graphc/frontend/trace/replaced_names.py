"""A function whose source cannot be had, with other objects behind the names that it looks up.

It runs the same code over globals that answer each look-up with what stands for the true value
(np's functions, arrays from outside, functions of the user's).  Less is seen than with hooks in the
code: attributes of objects, methods and results of other functions are what they are.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from inspect import CO_OPTIMIZED
from types import CellType, CodeType, FunctionType
from typing import Any

# Code that writes to its globals, or sees them other than by name, is left alone.
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "IMPORT_NAME")
_SEES = {"globals", "exec", "eval", "vars"}


class _Globals(dict[str, Any]):
    """The globals of a function, each as `present` shows it."""

    def __init__(self, true: dict[str, Any], present: Callable[[Any], Any]) -> None:
        super().__init__({k: true[k] for k in ("__name__", "__builtins__") if k in true})
        self.true = true
        self.present = present
        self.shown: dict[str, tuple[Any, Any]] = {}  # by name: the value and what stands for it

    def __getitem__(self, name: str) -> Any:
        value = self.true[name]
        known = self.shown.get(name)
        if known is None or known[0] is not value:
            known = self.shown[name] = value, self.present(value)
        return known[1]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


_MOVABLE: dict[CodeType, bool] = {}


def _is_movable(code: CodeType) -> bool:
    found = _MOVABLE.get(code)
    if found is None:
        found = _MOVABLE[code] = all(
            each.co_flags & CO_OPTIMIZED
            and not _SEES.intersection(each.co_names)
            and all(step.opname not in _WRITES for step in dis.get_instructions(each))
            for each in _codes(code)
        )
    return found


def over_shown_names(function: FunctionType, present: Callable[[Any], Any]) -> FunctionType:
    """The function with what `present` shows behind its globals and cells; itself where it writes
    to its globals or has a class in it."""
    if isinstance(function.__globals__, _Globals) or not _is_movable(function.__code__):
        return function
    written = {
        step.argval
        for code in _codes(function.__code__)
        for step in dis.get_instructions(code)
        if step.opname in ("STORE_DEREF", "DELETE_DEREF")
    }
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    closure = tuple(c if name in written else _shown(c, present) for name, c in cells)
    scope = _Globals(function.__globals__, present)
    made = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, closure or None
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _shown(cell: CellType, present: Callable[[Any], Any]) -> CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # not bound yet
        return cell
    stand_in = present(value)
    return cell if stand_in is value else CellType(stand_in)
