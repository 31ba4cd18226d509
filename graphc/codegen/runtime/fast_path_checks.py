"""What the native call entry asks before it runs, as LLVM IR text; the words are in `entry`.

graphc_apart   does an argument overlap a donated one
graphc_hold    enter the containers of the variables, as a reader or as the only writer
graphc_leave   leave the first of them again
"""

from __future__ import annotations

# Whether parameter p overlaps no other where one of the two is donated.  Any two pointers of a
# frame have passed this before, so only one that has changed is compared; null overlaps nothing.
_APART = """
define i1 @graphc_apart(ptr %records, ptr %bases, i64 %params, i64 %p) {
entry:
  %p.index = mul i64 %p, 5
  %p.record = getelementptr i64, ptr %records, i64 %p.index
  %p.bytes.at = getelementptr i64, ptr %p.record, i64 3
  %p.bytes = load i64, ptr %p.bytes.at
  %p.taken.at = getelementptr i64, ptr %p.record, i64 4
  %p.taken = load i64, ptr %p.taken.at
  %p.at = getelementptr i64, ptr %bases, i64 %p
  %p.first = load i64, ptr %p.at
  %p.end = add i64 %p.first, %p.bytes
  br label %test

test:
  %q = phi i64 [ 0, %entry ], [ %q.next, %next ]
  %more = icmp slt i64 %q, %params
  br i1 %more, label %other, label %apart

other:
  %q.index = mul i64 %q, 5
  %q.record = getelementptr i64, ptr %records, i64 %q.index
  %q.bytes.at = getelementptr i64, ptr %q.record, i64 3
  %q.bytes = load i64, ptr %q.bytes.at
  %q.taken.at = getelementptr i64, ptr %q.record, i64 4
  %q.taken = load i64, ptr %q.taken.at
  %q.at = getelementptr i64, ptr %bases, i64 %q
  %q.first = load i64, ptr %q.at
  %q.end = add i64 %q.first, %q.bytes
  %taken = or i64 %p.taken, %q.taken
  %counts = icmp ne i64 %taken, 0
  %different = icmp ne i64 %p, %q
  %known = icmp ne i64 %q.first, 0
  %below = icmp ult i64 %p.first, %q.end
  %above = icmp ult i64 %q.first, %p.end
  %both = and i1 %below, %above
  %compared = and i1 %counts, %different
  %real = and i1 %compared, %known
  %overlap = and i1 %both, %real
  br i1 %overlap, label %together, label %next

next:
  %q.next = add i64 %q, 1
  br label %test

apart:
  ret i1 true

together:
  ret i1 false
}
"""

# The GIL is held: nobody else looks at the words of a container meanwhile.
_HOLD = """
define i1 @graphc_hold(ptr %context) {
entry:
  %count.at = getelementptr i64, ptr %context, i64 10
  %count = load i64, ptr %count.at
  %homes.at = getelementptr i64, ptr %context, i64 11
  %homes = load ptr, ptr %homes.at
  br label %test

test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %home, label %held

home:
  %k.index = mul i64 %k, 3
  %home.at = getelementptr i64, ptr %homes, i64 %k.index
  %words = load ptr, ptr %home.at
  %closed.at = getelementptr i64, ptr %words, i64 1
  %closed = load i64, ptr %closed.at
  %open = icmp eq i64 %closed, 0
  br i1 %open, label %enter, label %busy

enter:
  %acquire.at = getelementptr i64, ptr %home.at, i64 1
  %acquire = load ptr, ptr %acquire.at
  %readers = load i64, ptr %words
  %reads = icmp eq ptr %acquire, null
  br i1 %reads, label %reader, label %writer

reader:
  %readers.more = add i64 %readers, 1
  store i64 %readers.more, ptr %words
  br label %next

writer:
  %empty = icmp eq i64 %readers, 0
  br i1 %empty, label %lock, label %busy

lock:
  %false.at = getelementptr i64, ptr %context, i64 12
  %false = load ptr, ptr %false.at
  %true.at = getelementptr i64, ptr %context, i64 13
  %true = load ptr, ptr %true.at
  %answer = call ptr @PyObject_Vectorcall(ptr %acquire, ptr %false, i64 1, ptr null)
  %locked = icmp eq ptr %answer, %true
  call void @Py_DecRef(ptr %answer)
  br i1 %locked, label %close, label %busy

close:
  store i64 1, ptr %closed.at
  br label %next

next:
  %k.next = add i64 %k, 1
  br label %test

busy:
  call void @graphc_leave(ptr %context, i64 %k)
  ret i1 false

held:
  ret i1 true
}
"""

_LEAVE = """
define void @graphc_leave(ptr %context, i64 %count) {
entry:
  %homes.at = getelementptr i64, ptr %context, i64 11
  %homes = load ptr, ptr %homes.at
  br label %test

test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %home, label %left

home:
  %k.index = mul i64 %k, 3
  %home.at = getelementptr i64, ptr %homes, i64 %k.index
  %words = load ptr, ptr %home.at
  %release.at = getelementptr i64, ptr %home.at, i64 2
  %release = load ptr, ptr %release.at
  %reads = icmp eq ptr %release, null
  br i1 %reads, label %reader, label %writer

reader:
  %readers = load i64, ptr %words
  %readers.less = sub i64 %readers, 1
  store i64 %readers.less, ptr %words
  br label %next

writer:
  %closed.at = getelementptr i64, ptr %words, i64 1
  store i64 0, ptr %closed.at
  %answer = call ptr @PyObject_Vectorcall(ptr %release, ptr null, i64 0, ptr null)
  call void @Py_DecRef(ptr %answer)
  br label %next

next:
  %k.next = add i64 %k, 1
  br label %test

left:
  ret void
}
"""


def guards_ir() -> str:
    """The text of the functions; they call Python's lock methods."""
    return "".join((_APART, _HOLD, _LEAVE))
