"""The functions of CPython that native code calls."""

from __future__ import annotations

from graphc.codegen.llvm.writer import I32, I64, PTR, VOID, Extern, Number, Pointer, Writer, native

keep = Extern("Py_IncRef", VOID, PTR)
kept = Extern("Py_XNewRef", PTR, PTR)  # the same object; also of null
drop = Extern("Py_DecRef", VOID, PTR)
call = Extern("PyObject_Vectorcall", PTR, PTR, PTR, I64, PTR)
get_attribute = Extern("PyObject_GetAttr", PTR, PTR, PTR)
save_thread = Extern("PyEval_SaveThread", PTR)
restore_thread = Extern("PyEval_RestoreThread", VOID, PTR)
error_occurred = Extern("PyErr_Occurred", PTR)
error_matches = Extern("PyErr_ExceptionMatches", I32, PTR)
check_signals = Extern("PyErr_CheckSignals", I32)  # runs handlers of signals: -1 if one raises
error_clear = Extern("PyErr_Clear", VOID)
no_memory = Extern("PyErr_NoMemory", PTR)  # null, and a MemoryError is set
allocate = Extern("PyMem_Malloc", PTR, I64)
release = Extern("PyMem_Free", VOID, PTR)
new_int = Extern("PyLong_FromLongLong", PTR, I64)
new_tuple = Extern("PyTuple_New", PTR, I64)
get_of_tuple = Extern("PyTuple_GetItem", PTR, PTR, I64)
set_in_tuple = Extern("PyTuple_SetItem", I32, PTR, I64, PTR)
size_of_tuple = Extern("PyTuple_Size", I64, PTR)
new_list = Extern("PyList_New", PTR, I64)
get_of_list = Extern("PyList_GetItem", PTR, PTR, I64)
set_in_list = Extern("PyList_SetItem", I32, PTR, I64, PTR)
new_dict = Extern("PyDict_New", PTR)
get_of_dict = Extern("PyDict_GetItemWithError", PTR, PTR, PTR)
set_in_dict = Extern("PyDict_SetItem", I32, PTR, PTR, PTR)


@native()
def drop_all(f: Writer, objects: Pointer, count: Number) -> None:
    """Give up so many references."""
    with f.loop(0, count) as k:
        drop(f, objects.pointer(k))
