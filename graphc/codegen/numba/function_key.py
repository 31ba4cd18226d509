"""The key of a function that Numba compiles: a text of all that its code depends on.

Numba freezes what a function reads from outside: numbers, arrays, other functions, the attributes
of modules.  A value that has no text of its own makes the whole text one of a kind: such a function
is compiled whenever it is needed, and kept in no cache.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable
from itertools import count
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from graphc.base.captures import captures
from graphc.ir.types import DType
from graphc.seams.numba_objects import intrinsic_of

ONE_OF_A_KIND = "one of a kind"
_PLAIN = (bool, float, complex, str, bytes, type(None), type(Ellipsis), range, slice, DType)
_FOREIGN = ("math", "cmath", "numpy", "numba", "llvmlite")
_numbers = count()


def function_text(function: Callable[..., Any]) -> str:
    """A text that changes whenever a function, or anything it reads, changes.

    It holds `ONE_OF_A_KIND` where something is read that no text tells apart: no other text is
    equal to it then.
    """
    return "\n".join(_Description().of(function))


def jitted_within(function: Any) -> list[Any]:
    """Numba's functions that a function leads to, itself included; each after those that it calls.

    They keep the values that they were compiled with.
    """
    found: list[Any] = []
    seen: set[int] = set()

    def visit(value: Any) -> None:
        plain = getattr(value, "py_func", value)
        if isinstance(value, tuple):
            list(map(visit, value))
        elif isinstance(plain, FunctionType) and id(plain) not in seen and not _is_named(plain):
            seen.add(id(plain))
            for _, inner in captures(plain):
                visit(inner)
            if plain is not value:
                found.append(value)

    visit(function)
    return found


class _Description:
    """Lines about values; what has been described before is referred to by number."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # objects whose identities are in `seen`

    def of(self, value: Any) -> list[str]:
        """The lines about a value and all that it refers to."""
        waiting = [("", value)]
        while waiting:
            name, value = waiting.pop()
            text, further = self._one(value)
            self.lines.append(f"{name}: {text}")
            waiting.extend(further)
        return self.lines

    def _one(self, value: Any) -> tuple[str, list[tuple[str, Any]]]:
        """The line about one value, and the values that it is made of, each with a name."""
        if id(value) in self.seen:
            return f"as {self.seen[id(value)]}", []
        if type(value) is int:
            return f"int {value:x}", []
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {value!r}", []
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        plain = getattr(value, "py_func", None)
        if isinstance(plain, FunctionType):
            return f"jitted {_options(value)}", [("function", plain)]
        if isinstance(value, FunctionType) and not _is_named(value):
            return f"function {value.__qualname__}", list(_parts(value))
        if isinstance(value, CodeType):
            return _code_text(value), list(_named("constant", value.co_consts))
        return self._data(value)

    def _data(self, value: Any) -> tuple[str, list[tuple[str, Any]]]:
        title = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            data = hashlib.sha256(value.tobytes()).hexdigest()
            layout = f"{value.dtype.descr} {value.shape} {value.flags.c_contiguous}"
            return f"{title} {layout} {value.flags.writeable} {data}", []
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return f"{title} {value.dtype.descr} {value.tobytes().hex()}", []
        if isinstance(value, np.dtype):
            return f"{title} {value.descr}", []
        if isinstance(value, enum.Enum):
            return f"{title} {value.name}", [("value", value.value)]
        if isinstance(value, tuple | list):
            return f"{title} {len(value)}", list(_named("item", value))
        if isinstance(value, frozenset):
            return f"{title} {len(value)}", list(_named("item", sorted(value, key=repr)))
        if isinstance(value, type) and issubclass(value, enum.Enum):
            return f"{title} {value.__qualname__}", list(_named("member", value))
        if _is_named(value):
            return f"{title} {_name_of(value)}", []
        intrinsic = intrinsic_of(value)
        if intrinsic is not None:
            return f"{title} {intrinsic.__qualname__}", [("code", intrinsic.__code__)]
        return f"{title} {ONE_OF_A_KIND} {next(_numbers)} {np.random.SeedSequence().entropy}", []


def _named(name: str, values: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    return ((name, value) for value in values)


def _options(dispatcher: Any) -> str:
    return f"{type(dispatcher).__name__} {sorted(dispatcher.targetoptions.items())}"


def _parts(function: FunctionType) -> Iterable[tuple[str, Any]]:
    """What a function is made of: its code, its defaults and what it reads from outside."""
    yield "code", function.__code__
    yield from _named("default", function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    yield from captures(function)


def _code_text(code: CodeType) -> str:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"code {code.co_code.hex()} {code.co_exceptiontable.hex()} {counts} {names}"


def _is_named(value: Any) -> bool:
    """Whether a module and a name tell all about it: it belongs to Python, NumPy or Numba, or
    is a module of which nothing is read.
    """
    if isinstance(value, ModuleType):
        return True
    home = getattr(value, "__module__", None) or type(value).__module__
    if not callable(value) or not isinstance(home, str):
        return False
    if home == "builtins":  # where functions of generated code seem to live, too
        return isinstance(value, type | BuiltinFunctionType)
    return home.partition(".")[0] in _FOREIGN


def _name_of(value: Any) -> str:
    home = getattr(value, "__module__", "")
    return f"{home}.{getattr(value, '__qualname__', getattr(value, '__name__', repr(value)))}"
