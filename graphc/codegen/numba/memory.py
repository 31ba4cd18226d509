"""Numba's reference-counted blocks over malloc, as LLVM IR.

Code that allocates arrays calls Numba's C runtime, which lives in the Numba package.  An object
that must load without Numba carries these definitions instead.  A block is its header, then data:

    { reference count, destructor, destructor argument, data, size, allocator }  data ...
"""

from __future__ import annotations

_HEADER = "{ i64, ptr, ptr, ptr, i64, ptr }"

_ALLOCATE = f"""
declare ptr @malloc(i64)
declare void @free(ptr)

define internal ptr @block(i64 %size, i64 %align) {{
  %room = add i64 %size, %align
  %total = add i64 %room, 48
  %made = call ptr @malloc(i64 %total)
  %none = icmp eq ptr %made, null
  br i1 %none, label %out, label %fill
fill:
  %start = ptrtoint ptr %made to i64
  %behind = add i64 %start, 48
  %up = add i64 %behind, %align
  %last = sub i64 %up, 1
  %mask = sub i64 0, %align
  %place = and i64 %last, %mask
  %data = inttoptr i64 %place to ptr
  store {_HEADER} {{ i64 1, ptr null, ptr null, ptr null, i64 0, ptr null }}, ptr %made
  %at.data = getelementptr {_HEADER}, ptr %made, i32 0, i32 3
  store ptr %data, ptr %at.data
  %at.size = getelementptr {_HEADER}, ptr %made, i32 0, i32 4
  store i64 %size, ptr %at.size
  br label %out
out:
  ret ptr %made
}}
"""

_ALIGNED = """
define ptr @{name}(i64 %size, i32 %align) {{
  %wide = zext i32 %align to i64
  %made = call ptr @block(i64 %size, i64 %wide)
  ret ptr %made
}}
"""

_PLAIN = """
define ptr @{name}(i64 %size) {{
  %made = call ptr @block(i64 %size, i64 16)
  ret ptr %made
}}
"""

_RELEASE = f"""
define void @NRT_MemInfo_call_dtor(ptr %block) {{
  %at.dtor = getelementptr {_HEADER}, ptr %block, i32 0, i32 1
  %dtor = load ptr, ptr %at.dtor
  %plain = icmp eq ptr %dtor, null
  br i1 %plain, label %release, label %destroy
destroy:
  %at.info = getelementptr {_HEADER}, ptr %block, i32 0, i32 2
  %info = load ptr, ptr %at.info
  %at.data = getelementptr {_HEADER}, ptr %block, i32 0, i32 3
  %data = load ptr, ptr %at.data
  %at.size = getelementptr {_HEADER}, ptr %block, i32 0, i32 4
  %size = load i64, ptr %at.size
  call void %dtor(ptr %data, i64 %size, ptr %info)
  br label %release
release:
  call void @free(ptr %block)
  ret void
}}
"""

_RAW = """
define ptr @NRT_Allocate(i64 %size) {
  %made = call ptr @malloc(i64 %size)
  ret ptr %made
}

define void @NRT_Free(ptr %block) {
  call void @free(ptr %block)
  ret void
}
"""

# Lists: the data is an allocation of its own, which grows; the block's destructor frees it.
_LISTS = f"""
declare ptr @realloc(ptr, i64)

define internal void @free_elements(ptr %data, i64 %size, ptr %elements) {{
  %plain = icmp eq ptr %elements, null
  br i1 %plain, label %release, label %destroy
destroy:
  call void %elements(ptr %data)
  br label %release
release:
  call void @free(ptr %data)
  ret void
}}

define ptr @NRT_MemInfo_new_varsize_dtor(i64 %size, ptr %elements) {{
  %made = call ptr @block(i64 0, i64 16)
  %none = icmp eq ptr %made, null
  br i1 %none, label %out, label %fill
fill:
  %at.dtor = getelementptr {_HEADER}, ptr %made, i32 0, i32 1
  store ptr @free_elements, ptr %at.dtor
  %at.info = getelementptr {_HEADER}, ptr %made, i32 0, i32 2
  store ptr %elements, ptr %at.info
  %data = call ptr @NRT_MemInfo_varsize_alloc(ptr %made, i64 %size)
  br label %out
out:
  ret ptr %made
}}

define ptr @NRT_MemInfo_new_varsize(i64 %size) {{
  %made = call ptr @NRT_MemInfo_new_varsize_dtor(i64 %size, ptr null)
  ret ptr %made
}}

define ptr @NRT_MemInfo_varsize_alloc(ptr %block, i64 %size) {{
  %data = call ptr @malloc(i64 %size)
  call void @hold(ptr %block, ptr %data, i64 %size)
  ret ptr %data
}}

define ptr @NRT_MemInfo_varsize_realloc(ptr %block, i64 %size) {{
  %at.data = getelementptr {_HEADER}, ptr %block, i32 0, i32 3
  %old = load ptr, ptr %at.data
  %data = call ptr @realloc(ptr %old, i64 %size)
  %none = icmp eq ptr %data, null
  br i1 %none, label %out, label %keep
keep:
  call void @hold(ptr %block, ptr %data, i64 %size)
  br label %out
out:
  ret ptr %data
}}

define internal void @hold(ptr %block, ptr %data, i64 %size) {{
  %at.data = getelementptr {_HEADER}, ptr %block, i32 0, i32 3
  store ptr %data, ptr %at.data
  %at.size = getelementptr {_HEADER}, ptr %block, i32 0, i32 4
  store i64 %size, ptr %at.size
  ret void
}}

define void @NRT_MemInfo_varsize_free(ptr %block, ptr %data) {{
  call void @free(ptr %data)
  %at.data = getelementptr {_HEADER}, ptr %block, i32 0, i32 3
  %now = load ptr, ptr %at.data
  %same = icmp eq ptr %now, %data
  %left = select i1 %same, ptr null, ptr %now
  store ptr %left, ptr %at.data
  ret void
}}
"""

PROVIDED = frozenset((
    "NRT_MemInfo_alloc", "NRT_MemInfo_alloc_safe", "NRT_MemInfo_alloc_aligned",
    "NRT_MemInfo_alloc_safe_aligned", "NRT_MemInfo_call_dtor", "NRT_Allocate", "NRT_Free",
    "NRT_MemInfo_new_varsize", "NRT_MemInfo_new_varsize_dtor", "NRT_MemInfo_varsize_alloc",
    "NRT_MemInfo_varsize_realloc", "NRT_MemInfo_varsize_free",
))  # fmt: skip


def memory_ir() -> str:
    """Definitions of every function in `PROVIDED`."""
    plain = "".join(_PLAIN.format(name=f"NRT_MemInfo_alloc{s}") for s in ("", "_safe"))
    aligned = "".join(_ALIGNED.format(name=f"NRT_MemInfo_alloc{s}_aligned") for s in ("", "_safe"))
    return _ALLOCATE + plain + aligned + _RELEASE + _RAW + _LISTS
