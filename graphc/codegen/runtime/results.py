"""What a native call entry returns."""

from __future__ import annotations

from graphc.codegen.llvm.writer import PTR, Number, Pointer, Struct, Writer, native
from graphc.codegen.runtime.python_api import drop_all, keep, new_int, new_tuple, set_in_tuple
from graphc.runtime.load.layouts import ContextWords

NOT_RUN, RAISED = -1, -2  # codes that no failure has (rows are below 2**31); an error is set


@native(PTR)
def answer(f: Writer, context: Struct[ContextWords], code: Number, made: Pointer) -> None:
    """The object that a code and, if that is 0, the results behind a pointer stand for."""
    with f.when(code == NOT_RUN):
        keep(f, context.none)
        f.give(context.none)
    with f.when(code == RAISED):
        f.give(f.null())
    with f.when(code != 0):
        f.give(new_int(f, code))
    count = context.results
    with f.when(count == 1):
        f.give(made.load(PTR))
    found = new_tuple(f, count)
    with f.when(found.is_null):
        drop_all(f, made, count)
        f.give(f.null())
    with f.loop(0, count) as k:
        set_in_tuple(f, found, k, made.pointer(k))
    f.give(found)
