"""The native call entry, as LLVM IR text: a CPython method that runs an executable on NumPy arrays.

`graphc_entry(self, args, count)` has the METH_FASTCALL calling convention.  `self` is a NumPy
array, the context, whose int64 words `graphc.runtime.call.entry` fills:

    0 ready     1 parameters   2 results      3 drop the GIL   4 frames      5 parameter records
    6 result records           7 ndarray type                  8 None        9 PyArray_NewFromDescr
    10 containers   11 homes   12 pointer to False   13 True   14 whether a parameter is donated
    16... frame addresses

A record is five words: dtype object, rank, pointer to the shape, bytes, and of a parameter whether
a result takes its memory over, of a result the parameter it takes over, else -1: that result is the
argument itself.  A home is three words for each container of variables (see
`graphc.runtime.call.variable`): its words and, if the run writes there, the methods acquire and
release of its lock.

The entry reads the fields of
the array structs at the offsets below, which the runtime has checked on a probe array.  It answers
None whenever anything is not plain (a subclass, another dtype or shape, strides, no free frame, a
container in use, a donated argument that is read-only or overlaps another, no memory): the Python
path then does the work or finds the error.  A failing step is answered by an int, row <<
32 | status.

`graphc_flat` does the work: it leaves the results behind a pointer and returns 0, NOT_RUN or the
code of a failure.
"""

from __future__ import annotations

from graphc.codegen.runtime.fast_path_checks import guards_ir
from graphc.codegen.runtime.results import NOT_RUN, answer_ir

# Byte offsets in PyObject and PyArrayObject of 64-bit CPython with a GIL.
TYPE, DATA, RANK, SHAPE, DTYPE, FLAGS = 8, 16, 24, 32, 56, 64
C_CONTIGUOUS_AND_ALIGNED, WRITEABLE = 0x101, 0x400

_ENTRY = f"""
define ptr @graphc_entry(ptr %self, ptr %args, i64 %count) {{
entry:
  %context.at = getelementptr i8, ptr %self, i64 {DATA}
  %context = load ptr, ptr %context.at
  %results.at = getelementptr i64, ptr %context, i64 2
  %results = load i64, ptr %results.at
  %made = alloca ptr, i64 %results
  %code = call i64 @graphc_flat(ptr %context, ptr %args, i64 %count, ptr %made)
  %answer = call ptr @graphc_answer(ptr %context, i64 %code, ptr %made)
  ret ptr %answer
}}
"""

_CHECK = f"""
define i64 @graphc_flat(ptr %context, ptr %args, i64 %count, ptr %made) {{
entry:
  %ready = load i64, ptr %context
  %params.at = getelementptr i64, ptr %context, i64 1
  %params = load i64, ptr %params.at
  %results.at = getelementptr i64, ptr %context, i64 2
  %results = load i64, ptr %results.at
  %array.type.at = getelementptr i64, ptr %context, i64 7
  %array.type = load ptr, ptr %array.type.at
  %records.at = getelementptr i64, ptr %context, i64 5
  %records = load ptr, ptr %records.at
  %is.ready = icmp ne i64 %ready, 0
  %right.count = icmp eq i64 %count, %params
  %start = and i1 %is.ready, %right.count
  br i1 %start, label %check.test, label %slow

check.test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %check.next ]
  %i.more = icmp slt i64 %i, %params
  br i1 %i.more, label %check, label %frame.first

check:
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at
  %type.at = getelementptr i8, ptr %arg, i64 {TYPE}
  %type = load ptr, ptr %type.at
  %is.array = icmp eq ptr %type, %array.type
  br i1 %is.array, label %check.fields, label %slow

check.fields:
  %record.index = mul i64 %i, 5
  %record = getelementptr i64, ptr %records, i64 %record.index
  %dtype = load ptr, ptr %record
  %rank.wanted.at = getelementptr i64, ptr %record, i64 1
  %rank.wanted = load i64, ptr %rank.wanted.at
  %shape.wanted.at = getelementptr i64, ptr %record, i64 2
  %shape.wanted = load ptr, ptr %shape.wanted.at
  %arg.dtype.at = getelementptr i8, ptr %arg, i64 {DTYPE}
  %arg.dtype = load ptr, ptr %arg.dtype.at
  %same.dtype = icmp eq ptr %arg.dtype, %dtype
  %rank.at = getelementptr i8, ptr %arg, i64 {RANK}
  %rank.int = load i32, ptr %rank.at
  %rank = sext i32 %rank.int to i64
  %same.rank = icmp eq i64 %rank, %rank.wanted
  %flags.at = getelementptr i8, ptr %arg, i64 {FLAGS}
  %flags = load i32, ptr %flags.at
  %flags.kept = and i32 %flags, {C_CONTIGUOUS_AND_ALIGNED}
  %plain = icmp eq i32 %flags.kept, {C_CONTIGUOUS_AND_ALIGNED}
  %same = and i1 %same.dtype, %same.rank
  %fits = and i1 %same, %plain
  br i1 %fits, label %shape.start, label %slow

shape.start:
  %shape.at = getelementptr i8, ptr %arg, i64 {SHAPE}
  %shape = load ptr, ptr %shape.at
  br label %shape.test

shape.test:
  %d = phi i64 [ 0, %shape.start ], [ %d.next, %shape.axis ]
  %d.more = icmp slt i64 %d, %rank
  br i1 %d.more, label %shape.axis, label %check.next

shape.axis:
  %extent.at = getelementptr i64, ptr %shape, i64 %d
  %extent = load i64, ptr %extent.at
  %extent.wanted.at = getelementptr i64, ptr %shape.wanted, i64 %d
  %extent.wanted = load i64, ptr %extent.wanted.at
  %same.extent = icmp eq i64 %extent, %extent.wanted
  %d.next = add i64 %d, 1
  br i1 %same.extent, label %shape.test, label %slow

check.next:
  %i.next = add i64 %i, 1
  br label %check.test

slow:
  ret i64 {NOT_RUN}
"""

# The GIL is held from here to the walk, so the list of frames cannot change meanwhile.
_PREPARE = f"""
frame.first:
  %frames.at = getelementptr i64, ptr %context, i64 4
  %frames = load i64, ptr %frames.at
  %containers.at = getelementptr i64, ptr %context, i64 10
  %containers = load i64, ptr %containers.at
  br label %frame.test

frame.test:
  %f = phi i64 [ 0, %frame.first ], [ %f.next, %frame.try ]
  %f.more = icmp slt i64 %f, %frames
  br i1 %f.more, label %frame.try, label %slow

frame.try:
  %f.next = add i64 %f, 1
  %frame.word = add i64 %f, 16
  %frame.at = getelementptr ptr, ptr %context, i64 %frame.word
  %frame = load ptr, ptr %frame.at
  %in.use.at = getelementptr i64, ptr %frame, i64 8
  %taken = cmpxchg ptr %in.use.at, i64 0, i64 1 acquire monotonic
  %won = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %won, label %hold, label %frame.test

hold:
  %held.all = call i1 @graphc_hold(ptr %context)
  br i1 %held.all, label %pointers, label %leave

leave.containers:
  call void @graphc_leave(ptr %context, i64 %containers)
  br label %leave

leave:
  store atomic i64 0, ptr %in.use.at release, align 8
  br label %slow

pointers:
  %cancel.at = getelementptr i64, ptr %frame, i64 5
  store atomic i64 0, ptr %cancel.at monotonic, align 8
  %bases = getelementptr ptr, ptr %frame, i64 18
  %donated.at = getelementptr i64, ptr %context, i64 14
  %donated = load i64, ptr %donated.at
  %donates = icmp ne i64 %donated, 0
  br label %pointer.test

pointer.test:
  %p = phi i64 [ 0, %pointers ], [ %p.next, %pointer.next ]
  %p.more = icmp slt i64 %p, %params
  br i1 %p.more, label %pointer, label %results.first

pointer:
  %given.at = getelementptr ptr, ptr %args, i64 %p
  %given = load ptr, ptr %given.at
  %data.at = getelementptr i8, ptr %given, i64 {DATA}
  %data = load ptr, ptr %data.at
  %base.at = getelementptr ptr, ptr %bases, i64 %p
  %data.before = load ptr, ptr %base.at
  store ptr %data, ptr %base.at
  br i1 %donates, label %pointer.donated, label %pointer.next

pointer.donated:
  %p.index = mul i64 %p, 5
  %p.record = getelementptr i64, ptr %records, i64 %p.index
  %p.taken.at = getelementptr i64, ptr %p.record, i64 4
  %p.taken = load i64, ptr %p.taken.at
  %p.is.taken = icmp ne i64 %p.taken, 0
  %p.flags.at = getelementptr i8, ptr %given, i64 {FLAGS}
  %p.flags = load i32, ptr %p.flags.at
  %p.writeable = and i32 %p.flags, {WRITEABLE}
  %p.fixed = icmp eq i32 %p.writeable, 0
  %p.refused = and i1 %p.is.taken, %p.fixed
  br i1 %p.refused, label %pointer.refused, label %pointer.moved

pointer.moved:
  %p.same = icmp eq ptr %data, %data.before
  br i1 %p.same, label %pointer.next, label %pointer.compare

pointer.compare:
  %apart = call i1 @graphc_apart(ptr %records, ptr %bases, i64 %params, i64 %p)
  br i1 %apart, label %pointer.next, label %pointer.refused

pointer.refused:
  store ptr null, ptr %base.at
  br label %leave.containers

pointer.next:
  %p.next = add i64 %p, 1
  br label %pointer.test

results.first:
  %result.records.at = getelementptr i64, ptr %context, i64 6
  %result.records = load ptr, ptr %result.records.at
  %new.at = getelementptr i64, ptr %context, i64 9
  %new = load ptr, ptr %new.at
  %result.bases = getelementptr ptr, ptr %bases, i64 %params
  br label %result.test

result.test:
  %r = phi i64 [ 0, %results.first ], [ %r.next, %result.keep ]
  %r.more = icmp slt i64 %r, %results
  br i1 %r.more, label %result, label %run

result:
  %r.index = mul i64 %r, 5
  %r.record = getelementptr i64, ptr %result.records, i64 %r.index
  %r.param.at = getelementptr i64, ptr %r.record, i64 4
  %r.param = load i64, ptr %r.param.at
  %r.fresh = icmp slt i64 %r.param, 0
  br i1 %r.fresh, label %result.new, label %result.taken

result.taken:
  %r.given.at = getelementptr ptr, ptr %args, i64 %r.param
  %r.given = load ptr, ptr %r.given.at
  call void @Py_IncRef(ptr %r.given)
  br label %result.keep

result.new:
  %r.dtype = load ptr, ptr %r.record
  %r.rank.at = getelementptr i64, ptr %r.record, i64 1
  %r.rank.word = load i64, ptr %r.rank.at
  %r.rank = trunc i64 %r.rank.word to i32
  %r.shape.at = getelementptr i64, ptr %r.record, i64 2
  %r.shape = load ptr, ptr %r.shape.at
  call void @Py_IncRef(ptr %r.dtype)
  %r.made = call ptr %new(ptr %array.type, ptr %r.dtype, i32 %r.rank, ptr %r.shape, ptr null,
    ptr null, i32 0, ptr null)
  %r.none = icmp eq ptr %r.made, null
  br i1 %r.none, label %no.memory, label %result.keep

result.keep:
  %r.array = phi ptr [ %r.given, %result.taken ], [ %r.made, %result.new ]
  %r.made.at = getelementptr ptr, ptr %made, i64 %r
  store ptr %r.array, ptr %r.made.at
  %r.data.at = getelementptr i8, ptr %r.array, i64 {DATA}
  %r.data = load ptr, ptr %r.data.at
  %r.base.at = getelementptr ptr, ptr %result.bases, i64 %r
  store ptr %r.data, ptr %r.base.at
  %r.next = add i64 %r, 1
  br label %result.test
"""

_RUN = """
run:
  %drop.gil.at = getelementptr i64, ptr %context, i64 3
  %drop.gil = load i64, ptr %drop.gil.at
  %held = icmp eq i64 %drop.gil, 0
  br i1 %held, label %run.held, label %run.free

run.held:
  %status.held = call i32 @graphc_run(ptr %frame)
  br label %ran

run.free:
  %thread = call ptr @PyEval_SaveThread()
  %status.free = call i32 @graphc_run(ptr %frame)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran

ran:
  %status = phi i32 [ %status.held, %run.held ], [ %status.free, %run.free ]
  %row.at = getelementptr i64, ptr %frame, i64 6
  %row = load i64, ptr %row.at
  call void @graphc_leave(ptr %context, i64 %containers)
  store atomic i64 0, ptr %in.use.at release, align 8
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %done, label %failed

done:
  ret i64 0

failed:
  call void @graphc_release(ptr %made, i64 %results)
  %low = zext i32 %status to i64
  %high = shl i64 %row, 32
  %code = or i64 %high, %low
  ret i64 %code

no.memory:
  call void @graphc_release(ptr %made, i64 %r)
  call void @PyErr_Clear()
  br label %leave.containers
}

declare void @PyErr_Clear()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""


def entry_ir() -> str:
    """The text of `graphc_entry` and what it is made of; `graphc_flat` calls `graphc_run`."""
    return "".join((_ENTRY, _CHECK, _PREPARE, _RUN, answer_ir(), guards_ir()))
