"""The native call entry: a CPython method that runs an executable on NumPy arrays.

`entry(self, args, count)` has the METH_FASTCALL calling convention.  `self` is a NumPy array, the
context, whose words `graphc.runtime.call.entry` fills.

The entry reads the fields of the array structs at offsets that the runtime has checked on a probe
array.  It answers None whenever anything is not plain (a subclass, another dtype or shape, strides,
no free frame, a container in use, a donated argument that is read-only or overlaps another, no
memory): the Python path then does the work or finds the error.  A failing step is answered by an
int, row << 32 | status.

A run that lets other threads of Python go on can be stopped by Ctrl-C.  It notes when it began, and
then looks for a signal: one that came before is handled here, before anything runs, and one that
comes later finds a run that began before it (see `graphc.runtime.call.interrupt`).
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    ACQUIRE,
    I1,
    I32,
    I64,
    PTR,
    RELAXED,
    RELEASE,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    native,
)
from graphc.codegen.runtime.fast_path_checks import apart, hold, leave
from graphc.codegen.runtime.python_api import (
    check_signals,
    drop_all,
    error_clear,
    keep,
    restore_thread,
    save_thread,
)
from graphc.codegen.runtime.results import NOT_RUN, RAISED, answer
from graphc.codegen.runtime.system import now
from graphc.codegen.runtime.team import run
from graphc.runtime.load.layouts import ContextWords, FrameWords, RecordWords
from graphc.runtime.load.table import FIRST_PARAM
from graphc.seams.numpy import ArrayWords

C_CONTIGUOUS_AND_ALIGNED, WRITEABLE = 0x101, 0x400  # flags of an array


@native(PTR, is_public=True)
def entry(f: Writer, self: Struct[ArrayWords], args: Pointer, count: Number) -> None:
    """Run on flat arrays."""
    context = self.data.to(ContextWords)
    made = f.room(context.results)
    code = flat(f, context, args, count, made)
    f.give(answer(f, context, code, made))


@native(I64)
def flat(
    f: Writer, context: Struct[ContextWords], args: Pointer, count: Number, made: Pointer
) -> None:
    """Leave the results behind a pointer: 0, NOT_RUN, RAISED or the code of a failure."""
    with f.when((context.ready == 0) | (count != context.parameters)):
        f.give(NOT_RUN)
    with f.when(fit(f, context, args) == 0):
        f.give(NOT_RUN)
    begun = f.local(0)
    with f.when(context.drop_gil != 0):
        begun.set(now(f))
        with f.when(check_signals(f) != 0):
            f.give(RAISED)
    # The GIL is held from here to the run, so the list of frames cannot change meanwhile.
    with f.loop(0, context.frames) as k:
        frame = context.at("first_frame").pointer(k).to(FrameWords)
        in_use = frame.at("in_use")
        with f.when(in_use.cas(0, 1, ACQUIRE)):
            code = f.local(NOT_RUN)
            with f.when(hold(f, context)):
                frame.at("cancel").store(0, RELAXED)
                frame.at("begun").store(begun)
                with (
                    f.when(point_at(f, context, frame, args)),
                    f.when(make_results(f, context, frame, args, made)),
                ):
                    code.set(run_with_gil_or_without(f, context, frame))
                    with f.when(code != 0):
                        drop_all(f, made, context.results)
                leave(f, context, context.containers)
            in_use.store(0, RELEASE)
            f.give(code)
    f.give(NOT_RUN)


@native(I1)
def fit(f: Writer, context: Struct[ContextWords], args: Pointer) -> None:
    """Whether the arguments are plain arrays of the right types."""
    records, array_type = context.parameter_records.to(RecordWords), context.array_type
    with f.loop(0, context.parameters) as k:
        array, wanted = args.pointer(k).to(ArrayWords), records[k]
        with f.when(array.type != array_type):
            f.give(0)
        rank = array.rank.cast("sext", I64)
        is_plain = (array.flags & C_CONTIGUOUS_AND_ALIGNED) == C_CONTIGUOUS_AND_ALIGNED
        with f.when(((array.dtype == wanted.dtype) & (rank == wanted.rank) & is_plain) == 0):
            f.give(0)
        shape, wanted_shape = array.shape, wanted.shape
        with f.loop(0, rank) as axis, f.when(shape[axis] != wanted_shape[axis]):
            f.give(0)
    f.give(1)


@native(I1)
def point_at(
    f: Writer, context: Struct[ContextWords], frame: Struct[FrameWords], args: Pointer
) -> None:
    """Point the frame at the arguments; false where one may not be donated."""
    records, count = context.parameter_records.to(RecordWords), context.parameters
    bases, donates = frame.at("bases").at(FIRST_PARAM), context.donates != 0
    with f.loop(0, count) as k:
        array, base = args.pointer(k).to(ArrayWords), bases.at(k)
        data, before = array.data, base.load(PTR)
        base.store(data)
        with f.when(donates):
            is_fixed = (array.flags & WRITEABLE) == 0
            is_refused = f.local((records[k].taken != 0) & is_fixed)
            with f.when((is_refused == 0) & (data != before)):
                is_refused.set(apart(f, records, bases, count, k) == 0)
            with f.when(is_refused):
                base.store(f.null())
                f.give(0)
    f.give(1)


@native(I1)
def make_results(
    f: Writer,
    context: Struct[ContextWords],
    frame: Struct[FrameWords],
    args: Pointer,
    made: Pointer,
) -> None:
    """Make arrays of the results, or take those of donated arguments; false without memory."""
    records = context.result_records.to(RecordWords)
    bases = frame.at("bases").at(FIRST_PARAM).at(context.parameters)
    with f.loop(0, context.results) as k:
        record, array = records[k], f.local(f.null())
        with f.when(record.taken >= 0):
            array.set(args.pointer(record.taken))
            keep(f, array)
        with f.otherwise():
            array.set(new_array(f, context, record))
            with f.when(array.is_null):
                drop_all(f, made, k)
                error_clear(f)
                f.give(0)
        made.at(k).store(array)
        bases.at(k).store(array.to(ArrayWords).data)
    f.give(1)


def new_array(f: Writer, context: Struct[ContextWords], record: Struct[RecordWords]) -> Value:
    keep(f, record.dtype)
    rank, none = record.rank.cast("trunc", I32), None
    return f.invoke(
        PTR,
        context.new_array,
        context.array_type,
        record.dtype,
        rank,
        record.shape,
        none,
        none,
        f.half(0),
        none,
    )


def run_with_gil_or_without(
    f: Writer, context: Struct[ContextWords], frame: Struct[FrameWords]
) -> Value:
    """Run; 0, or the code of a failure."""
    status = f.local(0, I32)
    with f.when(context.drop_gil == 0):
        status.set(run(f, frame))
    with f.otherwise():
        thread = save_thread(f)
        status.set(run(f, frame))
        restore_thread(f, thread)
    code = (frame.row << 32) | status.cast("zext", I64)
    return (status == 0).choose(0, code)
