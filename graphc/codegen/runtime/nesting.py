"""The call entry for nested arguments and results, as LLVM IR text.

`graphc_nested(self, args, count)` takes arguments apart, gives their arrays to `graphc_flat` and
nests what it answers.  `self` is a NumPy array whose int64 words `graphc.runtime.call.nesting`
fills:

    0 words of the context of `graphc_entry`       1 arguments   2 fetches   3 fetch records
    4 arrays      5 builds      6 build records    7 results     8 None
    9 class of errors after which Python looks again

A fetch takes one object: out of an argument or out of the object of an earlier fetch.  Its record
is six words: that fetch, how, the key, the test, and two words for the test.

    how   0 argument   1 dict   2 tuple   3 list   4 attribute
    test  0 an array: its type, a function that makes one of other objects or 0
          1 a container: its type, its length or -1
          2 the object itself
          3 a number: its type, a function that makes an array of it
          4 any container: its type, a function that makes the tuple of its children

Builds are a stack machine; a record is three words: how, how many objects it takes from the stack,
and the keys or the function that it needs.

    how   0 the next result   1 None   2 dict   3 tuple   4 list   5 call

Objects taken out of containers are kept until the run is over: their containers may change when
the GIL is dropped, or when a key or an attribute runs Python code.  The answers are those of
`graphc_entry`; None also means another nesting.
"""

from __future__ import annotations

# Byte offsets in objects of 64-bit CPython with a GIL; tuples, lists and dicts have a length.
TYPE, LENGTH, DATA = 8, 16, 16
FETCH, BUILD = 6, 3  # words of a record


def _load(name: str, base: str, word: int, kind: str) -> str:
    """A line that reads a word behind a pointer."""
    return f"""  %{name}.at = getelementptr i64, ptr %{base}, i64 {word}
  %{name} = load {kind}, ptr %{name}.at
"""


_CONTEXT = "".join(
    _load(name, "context", word, kind)
    for word, (name, kind) in enumerate(
        (
            ("flat", "ptr"), ("arguments", "i64"), ("fetches", "i64"), ("records", "ptr"),
            ("arrays", "i64"), ("builds", "i64"), ("plan", "ptr"), ("results", "i64"),
            ("none", "ptr"), ("errors", "ptr"),
        )
    )
)  # fmt: skip

_FETCH = f"""
define ptr @graphc_nested(ptr %self, ptr %args, i64 %count) {{
entry:
  %context.at = getelementptr i8, ptr %self, i64 {DATA}
  %context = load ptr, ptr %context.at
{_CONTEXT}
  %objects = alloca ptr, i64 %fetches
  %leaves = alloca ptr, i64 %arrays
  %made.all = alloca ptr, i64 %results
  %right.count = icmp eq i64 %count, %arguments
  br i1 %right.count, label %fetch.test, label %answer.none

fetch.test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fetched ]
  %leaf = phi i64 [ 0, %entry ], [ %leaf.next, %fetched ]
  %more = icmp slt i64 %i, %fetches
  br i1 %more, label %fetch, label %call

fetch:
  %i.word = mul i64 %i, {FETCH}
  %record = getelementptr i64, ptr %records, i64 %i.word
  %parent.number = load i64, ptr %record
{_load("how", "record", 1, "i64")}{_load("key", "record", 2, "ptr")}
{_load("place", "record", 2, "i64")}{_load("test", "record", 3, "i64")}
{_load("wanted", "record", 4, "ptr")}{_load("detail", "record", 5, "i64")}
  %parent.at = getelementptr ptr, ptr %objects, i64 %parent.number
  %object.at = getelementptr ptr, ptr %objects, i64 %i
  switch i64 %how, label %argument [
    i64 1, label %from.dict
    i64 2, label %from.tuple
    i64 3, label %from.list
    i64 4, label %from.attribute
  ]

argument:
  %argument.at = getelementptr ptr, ptr %args, i64 %place
  %argument.found = load ptr, ptr %argument.at
  br label %borrowed

from.dict:
  %dict = load ptr, ptr %parent.at
  %dict.found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  br label %borrowed

from.tuple:
  %tuple = load ptr, ptr %parent.at
  %tuple.found = call ptr @PyTuple_GetItem(ptr %tuple, i64 %place)
  br label %borrowed

from.list:
  %list = load ptr, ptr %parent.at
  %list.found = call ptr @PyList_GetItem(ptr %list, i64 %place)
  br label %borrowed

borrowed:
  %found = phi ptr [ %argument.found, %argument ], [ %dict.found, %from.dict ],
    [ %tuple.found, %from.tuple ], [ %list.found, %from.list ]
  %is.found = icmp ne ptr %found, null
  br i1 %is.found, label %take, label %failed

take:
  call void @Py_IncRef(ptr %found)
  br label %taken

from.attribute:
  %holder = load ptr, ptr %parent.at
  %attribute = call ptr @PyObject_GetAttr(ptr %holder, ptr %key)
  %has.attribute = icmp ne ptr %attribute, null
  br i1 %has.attribute, label %taken, label %failed

taken:
  %object = phi ptr [ %found, %take ], [ %attribute, %from.attribute ]
  store ptr %object, ptr %object.at
  %i.next = add i64 %i, 1
  %type.at = getelementptr i8, ptr %object, i64 {TYPE}
  %type = load ptr, ptr %type.at
  switch i64 %test, label %array [
    i64 1, label %container
    i64 2, label %itself
    i64 3, label %typed
    i64 4, label %typed
  ]

array:
  %is.array = icmp eq ptr %type, %wanted
  br i1 %is.array, label %keep, label %array.other

array.other:
  %convertible = icmp ne i64 %detail, 0
  br i1 %convertible, label %convert, label %differs

container:
  %same.type = icmp eq ptr %type, %wanted
  br i1 %same.type, label %container.open, label %differs

container.open:
  %no.length = icmp slt i64 %detail, 0
  br i1 %no.length, label %fetched, label %container.length

container.length:
  %length.at = getelementptr i8, ptr %object, i64 {LENGTH}
  %length = load i64, ptr %length.at
  %same.length = icmp eq i64 %length, %detail
  br i1 %same.length, label %fetched, label %differs

itself:
  %is.itself = icmp eq ptr %object, %wanted
  br i1 %is.itself, label %fetched, label %differs

typed:
  %same.kind = icmp eq ptr %type, %wanted
  br i1 %same.kind, label %convert, label %differs

convert:
  %maker = inttoptr i64 %detail to ptr
  %converted = call ptr @PyObject_Vectorcall(ptr %maker, ptr %object.at, i64 1, ptr null)
  call void @Py_DecRef(ptr %object)
  %is.converted = icmp ne ptr %converted, null
  br i1 %is.converted, label %replace, label %failed

replace:
  store ptr %converted, ptr %object.at
  %is.tuple = icmp eq i64 %test, 4
  br i1 %is.tuple, label %fetched, label %keep

keep:
  %kept = phi ptr [ %object, %array ], [ %converted, %replace ]
  %leaf.at = getelementptr ptr, ptr %leaves, i64 %leaf
  store ptr %kept, ptr %leaf.at
  %leaf.more = add i64 %leaf, 1
  br label %fetched

fetched:
  %leaf.next = phi i64 [ %leaf.more, %keep ], [ %leaf, %container.open ],
    [ %leaf, %container.length ], [ %leaf, %itself ], [ %leaf, %replace ]
  br label %fetch.test

failed:
  %error = call ptr @PyErr_Occurred()
  %no.error = icmp eq ptr %error, null
  br i1 %no.error, label %release.none, label %raised

raised:
  %known = call i32 @PyErr_ExceptionMatches(ptr %errors)
  %unknown = icmp eq i32 %known, 0
  br i1 %unknown, label %release.error, label %forget

forget:
  call void @PyErr_Clear()
  br label %release.none

release.error:
  call void @graphc_release(ptr %objects, i64 %i)
  ret ptr null

release.none:
  call void @graphc_release(ptr %objects, i64 %i)
  br label %answer.none

differs:
  call void @graphc_release(ptr %objects, i64 %i.next)
  br label %answer.none

answer.none:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
"""

_CALL = """
call:
  %code = call i64 @graphc_flat(ptr %flat, ptr %leaves, i64 %arrays, ptr %made.all)
  call void @graphc_release(ptr %objects, i64 %fetches)
  %has.run = icmp eq i64 %code, 0
  %nests = icmp ne i64 %builds, 0
  %go.on = and i1 %has.run, %nests
  br i1 %go.on, label %nest, label %as.it.is

as.it.is:
  %answer = call ptr @graphc_answer(ptr %flat, i64 %code, ptr %made.all)
  ret ptr %answer

nest:
  %stack = alloca ptr, i64 %builds
  br label %build.test
"""

_SEQUENCE = """
make.{kind}:
  %{kind}.made = call ptr @{new}(i64 %taken.count)
  %{kind}.none = icmp eq ptr %{kind}.made, null
  br i1 %{kind}.none, label %give.up, label %{kind}.test

{kind}.test:
  %{kind}.k = phi i64 [ 0, %make.{kind} ], [ %{kind}.k.next, %{kind}.item ]
  %{kind}.more = icmp slt i64 %{kind}.k, %taken.count
  br i1 %{kind}.more, label %{kind}.item, label %pushed

{kind}.item:
  %{kind}.item.at = getelementptr ptr, ptr %items, i64 %{kind}.k
  %{kind}.object = load ptr, ptr %{kind}.item.at
  %{kind}.set = call i32 @{set}(ptr %{kind}.made, i64 %{kind}.k, ptr %{kind}.object)
  %{kind}.k.next = add i64 %{kind}.k, 1
  br label %{kind}.test
"""

_BUILD = f"""
build.test:
  %b = phi i64 [ 0, %nest ], [ %b.next, %pushed ]
  %depth = phi i64 [ 0, %nest ], [ %depth.next, %pushed ]
  %result = phi i64 [ 0, %nest ], [ %result.next, %pushed ]
  %b.more = icmp slt i64 %b, %builds
  br i1 %b.more, label %build, label %built

build:
  %b.word = mul i64 %b, {BUILD}
  %step = getelementptr i64, ptr %plan, i64 %b.word
  %made.how = load i64, ptr %step
{_load("taken.count", "step", 1, "i64")}{_load("names", "step", 2, "ptr")}
  %base = sub i64 %depth, %taken.count
  %items = getelementptr ptr, ptr %stack, i64 %base
  switch i64 %made.how, label %next.result [
    i64 1, label %push.none
    i64 2, label %make.dict
    i64 3, label %make.tuple
    i64 4, label %make.list
    i64 5, label %make.call
  ]

next.result:
  %result.at = getelementptr ptr, ptr %made.all, i64 %result
  %array.found = load ptr, ptr %result.at
  %result.more = add i64 %result, 1
  br label %pushed

push.none:
  call void @Py_IncRef(ptr %none)
  br label %pushed

make.dict:
  %dict.made = call ptr @PyDict_New()
  %dict.none = icmp eq ptr %dict.made, null
  br i1 %dict.none, label %give.up, label %dict.test

dict.test:
  %k = phi i64 [ 0, %make.dict ], [ %k.next, %dict.item ]
  %k.more = icmp slt i64 %k, %taken.count
  br i1 %k.more, label %dict.item, label %used

dict.item:
  %name.at = getelementptr ptr, ptr %names, i64 %k
  %name = load ptr, ptr %name.at
  %value.at = getelementptr ptr, ptr %items, i64 %k
  %value = load ptr, ptr %value.at
  %status = call i32 @PyDict_SetItem(ptr %dict.made, ptr %name, ptr %value)
  %k.next = add i64 %k, 1
  %is.set = icmp eq i32 %status, 0
  br i1 %is.set, label %dict.test, label %dict.failed

dict.failed:
  call void @Py_DecRef(ptr %dict.made)
  br label %give.up

make.call:
  %call.made = call ptr @PyObject_Vectorcall(ptr %names, ptr %items, i64 %taken.count, ptr null)
  %call.none = icmp eq ptr %call.made, null
  br i1 %call.none, label %give.up, label %used
{_SEQUENCE.format(kind="tuple", new="PyTuple_New", set="PyTuple_SetItem")}
{_SEQUENCE.format(kind="list", new="PyList_New", set="PyList_SetItem")}
used:
  %used.made = phi ptr [ %dict.made, %dict.test ], [ %call.made, %make.call ]
  call void @graphc_release(ptr %items, i64 %taken.count)
  br label %pushed

pushed:
  %made = phi ptr [ %array.found, %next.result ], [ %none, %push.none ], [ %used.made, %used ],
    [ %tuple.made, %tuple.test ], [ %list.made, %list.test ]
  %result.next = phi i64 [ %result.more, %next.result ], [ %result, %push.none ],
    [ %result, %used ], [ %result, %tuple.test ], [ %result, %list.test ]
  store ptr %made, ptr %items
  %depth.next = add i64 %base, 1
  %b.next = add i64 %b, 1
  br label %build.test

built:
  %root = load ptr, ptr %stack
  ret ptr %root

give.up:
  call void @graphc_release(ptr %stack, i64 %depth)
  %rest.at = getelementptr ptr, ptr %made.all, i64 %result
  %rest = sub i64 %results, %result
  call void @graphc_release(ptr %rest.at, i64 %rest)
  ret ptr null
}}
"""

_DECLARE = """
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_ExceptionMatches(ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
"""


def nesting_ir() -> str:
    """The text of `graphc_nested`; it calls what `entry` and `answer` define."""
    return "".join((_FETCH, _CALL, _BUILD, _DECLARE))
