"""The user's own lines: those outside of graphc and NumPy."""

from __future__ import annotations

import os
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graphc.ir.unknowns import Location
from graphc.seams.cpython import frame_above


def _folders(*homes: Path) -> tuple[str, ...]:
    """As they begin the names of files; a folder may be reached through a link."""
    return tuple(str(p) + os.sep for home in homes for p in {home, home.resolve()})


# Frames of these files are never what the user wrote.
_INTERNAL = (
    *_folders(Path(__file__).parents[1], Path(np.__file__).parent),
    "<__array_function__",
    "<frozen",
)
_FILES: dict[types.CodeType, str | None] = {}
_LIBRARY = _folders(Path(sysconfig.get_path("stdlib")))
_INSTALLED = _folders(*(Path(path) / "site-packages" for path in _LIBRARY))
_ASKS: dict[types.CodeType, bool | None] = {}


def user_file(code: types.CodeType) -> str | None:
    """The file of a code object as users know it; None for code of graphc and NumPy."""
    name = code.co_filename
    if name.startswith(_INTERNAL):
        return None
    here = os.getcwd() + os.sep
    return name[len(here) :] if name.startswith(here) else name


def of_python(code: types.CodeType) -> bool:
    """Whether code is of a module that comes with Python."""
    name = code.co_filename
    return name.startswith(_LIBRARY) and not name.startswith(_INSTALLED)


def locate(start: int = 1) -> Location | None:
    """(file, line) of the innermost frame outside graphc."""
    return locate_instruction(start + 1)[0]


def locate_instruction(start: int = 1) -> tuple[Location | None, int]:
    """`locate`, and which instruction of the frame is run; the file of a code object is cached."""
    frame: types.FrameType | None = frame_above(start)
    while frame is not None:
        code = frame.f_code
        try:
            name = _FILES[code]
        except KeyError:
            name = _FILES[code] = user_file(code)
        if name is not None:
            return (name, frame.f_lineno), frame.f_lasti
        frame = frame.f_back
    return None, 0


def location_of(error: BaseException) -> Location | None:
    """Where in the user's code an error that passed through graphc came from."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        name = user_file(traceback.tb_frame.f_code)
        if name is not None:
            found = name, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def defined_at(function: Callable[..., Any]) -> Location | None:
    """Where the user defined a function; None for functions of C, NumPy and graphc."""
    code = getattr(function, "__code__", None)
    name = user_file(code) if code is not None else None
    return (name, code.co_firstlineno) if code is not None and name is not None else None


def asking(tracing: bool) -> Location | None:
    """The user's line that asks for something: its own while it is traced, else that of the node
    that a pass looks at.
    """
    frame = frame_above(2)
    while frame is not None:
        file = user_file(frame.f_code)
        if file is not None:
            return (file, frame.f_lineno) if tracing else None
        loc: Location | None = getattr(frame.f_locals.get("node"), "loc", None)
        if loc is not None:
            return loc
        frame = frame.f_back
    return None


def user_asks(start: int = 1) -> bool:
    """Whether the user's code asks for something, itself or through Python's library or NumPy, and
    not graphc; modules of graphc with `CALLS_FOR_USERS` do so for others."""
    frame = frame_above(start + 1)
    while frame is not None:
        try:
            asks = _ASKS[frame.f_code]
        except KeyError:
            asks = _ASKS[frame.f_code] = _asks(frame)
        if asks is not None:
            return asks
        frame = frame.f_back
    return False


def _asks(frame: types.FrameType) -> bool | None:
    """Whether a frame is the user's; None for one that works for another."""
    module = frame.f_globals
    if module.get("__name__") == "weakref":  # what goes away just then is nobody's question
        return False
    if str(module.get("__name__")).startswith("graphc.") and not module.get("CALLS_FOR_USERS"):
        return False
    return None if of_python(frame.f_code) or user_file(frame.f_code) is None else True
