"""What a native call entry returns, as LLVM IR text; the words of the context are in `entry`.

graphc_answer    the object that a code and, if that is 0, the results behind a pointer stand for
graphc_release   gives up so many references
"""

from __future__ import annotations

NOT_RUN = -1  # a code that no failure has: rows are below 2**31

_ANSWER = """
define ptr @graphc_answer(ptr %context, i64 %code, ptr %made) {
entry:
  %results.at = getelementptr i64, ptr %context, i64 2
  %results = load i64, ptr %results.at
  switch i64 %code, label %report [
    i64 0, label %answer
    i64 NOT_RUN, label %none
  ]

none:
  %none.at = getelementptr i64, ptr %context, i64 8
  %none.object = load ptr, ptr %none.at
  call void @Py_IncRef(ptr %none.object)
  ret ptr %none.object

report:
  %number = call ptr @PyLong_FromLongLong(i64 %code)
  ret ptr %number

answer:
  %single = icmp eq i64 %results, 1
  br i1 %single, label %answer.one, label %answer.many

answer.one:
  %only = load ptr, ptr %made
  ret ptr %only

answer.many:
  %tuple = call ptr @PyTuple_New(i64 %results)
  %no.tuple = icmp eq ptr %tuple, null
  br i1 %no.tuple, label %drop, label %item.test

item.test:
  %t = phi i64 [ 0, %answer.many ], [ %t.next, %item ]
  %t.more = icmp slt i64 %t, %results
  br i1 %t.more, label %item, label %answered

item:
  %item.at = getelementptr ptr, ptr %made, i64 %t
  %item.array = load ptr, ptr %item.at
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %t, ptr %item.array)
  %t.next = add i64 %t, 1
  br label %item.test

answered:
  ret ptr %tuple

drop:
  call void @graphc_release(ptr %made, i64 %results)
  ret ptr null
}

"""

_RELEASE = """
define internal void @graphc_release(ptr %objects, i64 %count) {
entry:
  br label %test

test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %done

one:
  %at = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %at
  call void @Py_DecRef(ptr %object)
  %i.next = add i64 %i, 1
  br label %test

done:
  ret void
}

declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
"""


def answer_ir() -> str:
    """The text of the functions."""
    return _ANSWER.replace("NOT_RUN", str(NOT_RUN)) + _RELEASE
