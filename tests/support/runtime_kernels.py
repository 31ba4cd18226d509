"""Hand-made kernels and step tables for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from graphc.codegen.llvm.target import host, optimise_and_object
from graphc.codegen.runtime.support import support_object
from graphc.runtime.call.execute import Executable
from graphc.runtime.load.program import Image, Origin, Slot
from graphc.runtime.load.table import TableBuilder

HEAD = """
define i32 @{name}(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {{
entry:
  %a = load ptr, ptr %bufs
  %b.at = getelementptr ptr, ptr %bufs, i64 1
  %b = load ptr, ptr %b.at
  %some = icmp slt i64 %lo, %hi
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ %lo, %entry ], [ %n, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %pa
  {body}
  store float %y, ptr %pb
  %n = add i64 %i, 1
  %m = icmp slt i64 %n, %hi
  br i1 %m, label %loop, label %end
end:
  ret i32 0
}}
"""
LESS = """
define i32 @less(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %a = load ptr, ptr %bufs
  %b.at = getelementptr ptr, ptr %bufs, i64 1
  %b = load ptr, ptr %b.at
  %x = load float, ptr %a
  %limit.word = load i64, ptr %params
  %limit = sitofp i64 %limit.word to float
  %c = fcmp olt float %x, %limit
  %byte = zext i1 %c to i8
  store i8 %byte, ptr %b
  ret i32 0
}
"""
FAIL = """
define i32 @fail(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %word = load i64, ptr %params
  %status = trunc i64 %word to i32
  ret i32 %status
}
"""
WHO = """
define i32 @who(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
  %a = load ptr, ptr %bufs
  %at = getelementptr i64, ptr %a, i64 %lo
  %mark = add i64 %hi, 1
  store i64 %mark, ptr %at
  ret i32 0
}
"""
KERNELS = ("double", "increment", "less", "fail", "who")
DOUBLE, INCREMENT, LESS_THAN, FAIL_WITH, WHO_RAN = range(5)


@cache
def kernels() -> bytes:
    texts = [
        HEAD.format(name="double", body="%y = fadd float %x, %x"),
        HEAD.format(name="increment", body="%y = fadd float %x, 1.0"),
        LESS,
        FAIL,
        WHO,
    ]
    return optimise_and_object(texts, host())


@cache
def support() -> bytes:
    return support_object(host())


def image(
    table: TableBuilder, params: Iterable[Slot], results: Iterable[Slot], **options: Any
) -> Image:
    words = np.array(options.pop("words", [0]), np.int64)
    constants = options.pop("constants", np.zeros(0, np.uint8))
    return Image(
        name="test",
        params=tuple(params),
        results=tuple(results),
        table=table.finish(),
        words=words,
        constants=constants,
        kernels=KERNELS,
        objects=((kernels(), KERNELS),),
        support=support(),
        **options,
    )


def vector(name: str, size: int) -> Slot:
    return Slot(name, "f32", (size,))


def doubler(size: int = 8, grain: int = 0, threads: int = 1, repeat: int = 1) -> Executable:
    table = TableBuilder()
    for _ in range(repeat):
        table.call(DOUBLE, [(2, 0), (0, 0)], units=size, grain=grain)
        table.call(INCREMENT, [(0, 0), (3, 0)], units=size, grain=grain)
    table.end()
    plan = image(
        table, [vector("x", size)], [vector("y", size)], arena_bytes=4 * size, threads=threads
    )
    return Executable(plan, threads=threads)


def failing(status: int) -> Executable:
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)])
    row = table.call(FAIL_WITH, [], params=0)
    table.end()
    plan = image(
        table,
        [vector("x", 1)],
        [vector("y", 1)],
        words=[status],
        origins={row: Origin("%7 = gather(%1, %2) : f32[1]", "model.py", 12)},
        reasons={3: "an index is out of range"},
    )
    return Executable(plan)
