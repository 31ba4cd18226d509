"""The `__call__` of compiled functions: calls like recent ones make no frame of Python.

    f(x)    an entry of a recent call takes these arguments, and what its trace read outside of
            them is what it was                              ->  its answer (see `entry`, `nesting`)
            a step of its run failed                         ->  `failed(f, code, entries, number,
                                                                  *args)`, which raises the error
            keywords, a trace, arguments of another kind     ->  `called(f, *args, **kwargs)`

It is a method with the METH_FASTCALL | METH_KEYWORDS calling convention.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I1,
    PTR,
    Global,
    Number,
    Pointer,
    Struct,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.python_api import (
    allocate,
    drop,
    error_clear,
    get_of_dict,
    keep,
    new_int,
    no_memory,
    release,
    size_of_tuple,
)
from graphc.codegen.runtime.python_api import call as vectorcall
from graphc.runtime.load.layouts import CallWords, DirectWords, WatchedWords
from graphc.seams.cpython import CellWords, ObjectWords
from graphc.seams.numpy import ArrayWords

settings = Global("call_words", CallWords)


@native(PTR, is_public=True)
def call_settings(f: Writer) -> None:
    """Where the words of `graphc_call` lie, for `graphc.runtime.call.direct_call` to fill."""
    f.give(settings(f))


@native(PTR, is_public=True)
def call(f: Writer, function: Pointer, args: Pointer, count: Number, names: Pointer) -> None:
    """Call a compiled function."""
    words = settings(f)
    entries, tracing = (function + words.place).load(PTR), words.traces.load()
    is_direct = entries.is_some & (entries != words.none)
    with f.when(is_direct & names.is_null & (tracing == 0)):
        keep(f, entries)  # a run lets other threads go on, and they may set others
        answer = ask(f, function, entries, args, count)
        drop(f, entries)
        with f.when(answer != words.none):
            f.give(answer)
        drop(f, answer)
    first = f.room(1)
    first.store(function)
    f.give(hand_over(f, words.called, first, 1, args, count, names))


@native(PTR)
def ask(
    f: Writer, function: Pointer, entries: Struct[ArrayWords], args: Pointer, count: Number
) -> None:
    """What the first entry answers that knows such a call; None where none does.

    Null, with the error set, where its run failed.
    """
    words, number = settings(f), f.local(0)
    with f.forever():
        entry = entries.data.to(DirectWords)[number]
        code = entry.code
        with f.when(code.is_null):
            keep(f, words.none)
            f.give(words.none)
        with f.when(is_unchanged(f, entry.watched)):
            found = f.invoke(PTR, code, entry.context, args, count)
            with f.when(found.is_null):
                f.give(found)
            with f.when(found.to(ObjectWords).type == words.integer):
                f.give(fail(f, function, found, entries, number, args, count))
            with f.when(found != words.none):
                f.give(found)
            drop(f, found)
        number += 1


@native(I1)
def is_unchanged(f: Writer, watched: Struct[WatchedWords]) -> None:
    """Whether cells and dicts hold the very objects that they held."""
    number = f.local(0)
    with f.forever():
        each, found = watched[number], f.local(f.null())
        with f.when(each.holder.is_null):
            f.give(1)
        with f.when(each.key.is_null):
            found.set(each.holder.to(CellWords).content)
        with f.otherwise():
            found.set(get_of_dict(f, each.holder, each.key))
        with f.when(found != each.value):
            error_clear(f)  # of comparing keys
            f.give(0)
        number += 1


@native(PTR)
def fail(
    f: Writer,
    function: Pointer,
    code: Pointer,
    entries: Pointer,
    number: Number,
    args: Pointer,
    count: Number,
) -> None:
    """Have Python raise the error of a run; gives up the reference to its code."""
    first, words = f.room(4), settings(f)
    first.store(function)
    first.at(1).store(code)
    first.at(2).store(entries)
    first.at(3).store(new_int(f, number))
    answer = hand_over(f, words.failed, first, 4, args, count, f.null())
    drop(f, first.pointer(3))
    drop(f, code)
    f.give(answer)


@native(PTR)
def hand_over(
    f: Writer,
    target: Pointer,
    first: Pointer,
    firsts: Number,
    args: Pointer,
    count: Number,
    names: Pointer,
) -> None:
    """What a function of Python makes of some objects and, behind them, the arguments of a call.

    Those are on the heap: there may be more of them than a stack holds.
    """
    named = f.local(0)
    with f.when(names.is_some):
        named.set(size_of_tuple(f, names))
    given, others = firsts + count, count + named
    objects = allocate(f, (given + named) << 3)
    with f.when(objects.is_null):
        f.give(no_memory(f))
    copy_bytes(f, objects, first, firsts << 3)
    copy_bytes(f, objects.at(firsts), args, others << 3)
    answer = vectorcall(f, target, objects, given, names)
    release(f, objects)
    f.give(answer)
