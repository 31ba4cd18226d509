"""Makes the native call entry of an executable: a builtin function that takes flat NumPy arrays.

The code is `graphc_entry` of the support object (see `graphc.codegen.runtime.entry`).  It reads
the structs of arrays directly, so it is only used where a probe array shows the fields where they
are expected: 64-bit CPython with a GIL.  Elsewhere `make` answers None and calls take the Python
path.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from graphc.runtime.call.binding import Binding
from graphc.runtime.call.memory import LARGE, address_of
from graphc.runtime.load.layouts import ArrayWords, ContextWords, RecordWords
from graphc.runtime.load.program import Image

MOST_FRAMES = 8

_API_ARRAY_TYPE, _API_NEW_FROM_DESCR = 2, 94
_METH_FASTCALL = 0x80


class Context(np.ndarray[Any, np.dtype[np.int64]]):
    """The int64 words the entry reads, and in `keep` what their addresses point to."""

    keep: Any


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def make_context(
    image: Image, dtypes: Sequence[np.dtype[Any]], binding: Binding | None, keep: list[Any]
) -> Context | None:
    """The context of an executable (not ready yet), or None where the entry cannot be used.

    It makes results as NumPy does, so large ones are not for it.

    `dtypes` are those of params and results; `keep` lives as long as the context.
    """
    if not layout_is_known() or any(slot.nbytes >= LARGE for slot in image.results):
        return None
    context = np.zeros(ContextWords.first_frame + MOST_FRAMES, np.int64).view(Context)
    slots = (*image.params, *image.results)
    donated = image.donated or (-1,) * len(image.results)
    shapes = [np.array(slot.shape, np.int64) for slot in slots]
    records = np.zeros((len(slots), len(RecordWords.fields)), np.int64)
    taken = [int(number in donated) for number in range(len(image.params))]
    for record, slot, dtype, shape, param in zip(
        records, slots, dtypes, shapes, (*taken, *donated)
    ):
        record[RecordWords.dtype], record[RecordWords.rank] = id(dtype), shape.size
        record[RecordWords.shape], record[RecordWords.size] = address_of(shape), slot.nbytes
        record[RecordWords.taken] = param
    homes = binding.records() if binding is not None else np.zeros(0, np.int64)
    no_wait = np.array([id(False)], np.int64)
    api = _array_api()
    context[ContextWords.parameters] = len(image.params)
    context[ContextWords.results] = len(image.results)
    context[ContextWords.parameter_records] = address_of(records)
    context[ContextWords.result_records] = address_of(records[len(image.params) :])
    context[ContextWords.array_type] = id(np.ndarray)
    context[ContextWords.none] = id(None)
    context[ContextWords.new_array] = api[_API_NEW_FROM_DESCR]
    context[ContextWords.containers] = len(homes)
    context[ContextWords.homes] = address_of(homes)
    context[ContextWords.no_wait] = address_of(no_wait)
    context[ContextWords.true] = id(True)
    context[ContextWords.donates] = int(any(taken))
    if binding is not None:
        binding.pause = partial(_not_ready, weakref.ref(context))
    context.keep = (shapes, records, tuple(dtypes), homes, no_wait, binding, keep)
    return context


def _not_ready(context: weakref.ref[Context]) -> None:
    found = context()
    if found is not None:
        found[ContextWords.ready] = 0


def make(address: int, context: Context) -> Callable[..., Any]:
    """A builtin function over the entry at `address` with that context as its self."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = new(ctypes.addressof(_method(address)), context, None)
    return function


@cache
def _method(address: int) -> _MethodDef:
    """One definition per entry address, alive for ever: functions point to it."""
    return _MethodDef(b"graphc_entry", address, _METH_FASTCALL, None)


@cache
def layout_is_known() -> bool:
    """Whether array structs are laid out as the entry reads them, seen on probe arrays."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    probes: list[np.ndarray] = [np.zeros((3, 5), np.float32)]
    probes += [np.zeros((2, 7, 4), np.int64)[:, ::2], np.zeros(())]
    table = _array_api()[_API_ARRAY_TYPE]
    return all(_is_expected(probe) for probe in probes) and table == id(np.ndarray)


def _is_expected(array: np.ndarray) -> bool:
    def word(number: int) -> int:
        return ctypes.c_int64.from_address(id(array) + 8 * number).value

    def half(number: int) -> int:
        return ctypes.c_int32.from_address(id(array) + 8 * number).value

    fields = (
        word(ArrayWords.type),
        word(ArrayWords.data),
        half(ArrayWords.rank),
        word(ArrayWords.dtype),
        half(ArrayWords.flags),
    )
    expected = id(np.ndarray), address_of(array), array.ndim, id(array.dtype), array.flags.num
    if fields != expected:
        return False
    shape = word(ArrayWords.shape)
    extents = [ctypes.c_int64.from_address(shape + 8 * axis).value for axis in range(array.ndim)]
    return tuple(extents) == array.shape


@cache
def _array_api() -> list[int]:
    """The first addresses of NumPy's C function table."""
    module = sys.modules.get("numpy._core._multiarray_umath")
    capsule = getattr(module, "_ARRAY_API", None)
    if capsule is None:
        return [0] * (_API_NEW_FROM_DESCR + 1)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    table = (ctypes.c_int64 * (_API_NEW_FROM_DESCR + 1)).from_address(pointer(capsule, None) or 0)
    return list(table)
