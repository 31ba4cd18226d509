"""CPython: where objects keep their types and lengths, and functions of its C API through ctypes.

The C API is promised, except that ctypes reaches it; the layout of objects is not.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from dis import opname
from functools import cache
from types import CellType, FrameType
from typing import Any

from graphc.base.memory_layout import Address, Layout, Word

_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
_MANAGED_DICT = 1 << 4


class ObjectWords(Layout):
    """A Python object of 64-bit CPython with a GIL; tuples, lists and dicts have a length.

    The native call entry reads both without a call of Python: see `graphc.seams.numpy`.
    """

    type: Address = 8
    length: Word = 16


class CellWords(Layout):
    """A variable that functions share."""

    content: Address = 16


@cache
def is_known() -> bool:
    """Whether native code can read objects of this Python; else calls go through Python."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    return not sysconfig.get_config_var("Py_GIL_DISABLED")


@cache
def lengths_are_known() -> bool:
    """Whether containers have their types and lengths where native code reads them.

    Where they do not, nested arguments are taken apart in Python.
    """
    probes: tuple[Any, ...] = ({}, {1: 2, 3: 4}, (), (1, 2, 3), [], [1])
    return is_known() and all(
        word(probe, ObjectWords.type) == id(type(probe))
        and word(probe, ObjectWords.length) == len(probe)
        for probe in probes
    )


def word(value: object, number: int) -> int:
    """The number-th eight bytes of an object."""
    return ctypes.c_int64.from_address(id(value) + 8 * number).value


def half(value: object, number: int) -> int:
    """The first four of these bytes."""
    return ctypes.c_int32.from_address(id(value) + 8 * number).value


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin(address: int, owner: object) -> Callable[..., Any]:
    """A builtin function over native code at an address, with `owner` as its self."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = new(ctypes.addressof(_method(address)), owner, None)
    return function


@cache
def _method(address: int) -> _MethodDef:
    """One definition per address, alive for ever: functions point to it."""
    return _MethodDef(b"graphc_entry", address, _METH_FASTCALL, None)


def address_of_builtin(function: Callable[..., Any]) -> int:
    """The native code of a builtin function."""
    get = _function("PyCFunction_GetFunction", ctypes.c_void_p, ctypes.py_object)
    return get(function) or 0


def native_method(owner: type, name: str, address: int, text: str | None) -> Any:
    """A method of a class over native code at an address, which takes keywords, too.

    As `__call__` it saves the frame and the packing of arguments of one that is written in Python:
    a call of `x + y` on 4 floats takes 0.26 us with it and 0.55 without.
    """
    new = _function("PyDescr_NewMethod", ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    signature = f"{name}($self, /, *args, **kwargs)\n--\n\n{text or ''}"
    method = _MethodDef(name.encode(), address, _METH_FASTCALL | _METH_KEYWORDS, signature.encode())
    keep_for_ever(method)
    return new(owner, ctypes.addressof(method))


def place_of_slot(owner: type, slot: str) -> int:
    """At which byte of its instances a class has one of its `__slots__`; 0 for "unknown"."""
    if not is_known():
        return 0
    probe: object = object.__new__(owner)
    mark = object()
    setattr(probe, slot, mark)
    words = range(1, owner.__basicsize__ // 8)
    found = [8 * number for number in words if word(probe, number) == id(mark)]
    return found[0] if len(found) == 1 else 0


def place_of(owner: object, held: object) -> int:
    """At which address an object holds another one, its dict or defaults, say; 0 for "unknown".

    The dict of its attributes may lie before it.
    """
    if not is_known():
        return 0
    words = [-3] if type(owner).__flags__ & _MANAGED_DICT else []
    words += range(2, type(owner).__basicsize__ // 8)
    found = [number for number in words if word(owner, number) == id(held)]
    return id(owner) + 8 * found[0] if len(found) == 1 else 0


@cache
def cells_are_known() -> bool:
    """Whether a cell has its content where native code reads it; else Python looks."""
    probes: tuple[object, ...] = (object(), "text")
    return is_known() and all(word(CellType(p), CellWords.content) == id(p) for p in probes)


def keep_for_ever(owner: object) -> None:
    """Leak a reference: what native threads are in must outlive Python itself."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


def interpreter() -> ctypes.CDLL:
    """The library with the functions of CPython."""
    return ctypes.pythonapi


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the interpreter with a signature of its own: that of `pythonapi` is shared."""
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


def new_capsule(pointer: int, name: bytes, destructor: int | None) -> Any:
    """A capsule that holds a pointer; `destructor` is a C function of the capsule."""
    kinds = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    return _function("PyCapsule_New", ctypes.py_object, *kinds)(pointer, name, destructor)


def pointer_in(capsule: object, name: bytes | None) -> int:
    """The pointer that a capsule of this name holds. Raises ValueError for another name."""
    get = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return get(capsule, name) or 0


def pointer_at(capsule: int, name: bytes) -> int:
    """The same of a capsule that is being destroyed, by its address; 0 if it has another name."""
    kinds = ctypes.c_void_p, ctypes.c_char_p
    if not _function("PyCapsule_IsValid", ctypes.c_int, *kinds)(capsule, name):
        return 0
    return _function("PyCapsule_GetPointer", ctypes.c_void_p, *kinds)(capsule, name) or 0


def pickles_by_value() -> bool:
    """Whether cloudpickle is at work, which takes functions of `__main__` along."""
    frame: Any = frame_above(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith("cloudpickle.cloudpickle"):
            return True
        frame = frame.f_back
    return False


def assigns_item(frame: FrameType | None) -> bool:
    """Whether what a frame is doing is `x[i] = value`."""
    if frame is None:
        return False
    return opname[frame.f_code.co_code[frame.f_lasti]] in ("STORE_SUBSCR", "STORE_SLICE")


def _walked(depth: int = 0) -> FrameType | None:
    import inspect

    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame.f_back if frame is not None else None
    return frame


# The frame so many calls above: where the user's line is found, once for every node that is traced.
# `sys._getframe` takes 43 ns; without it frames are walked from `inspect`'s, which takes 280.
frame_above: Callable[..., Any] = getattr(sys, "_getframe", _walked)
