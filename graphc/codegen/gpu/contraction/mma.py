"""Products on tensor cores: `cp.async`, `ldmatrix` and `mma.sync.m16n8k16` of PTX, from sm_80 on.

total = products_bf16(total, memory, a, b, lane, down, across, lead_a, upright_a, lead_b, upright_b)

adds the products of `down` x 1 fragments of A (16 x 16) and 1 x `across` fragments of B (16 x 8).
They begin at `a` and `b` in shared memory, as lines `lead` apart that run along k if `upright`,
else across it.  `total` holds four sums of each fragment of the result: those at rows lane / 4 and
eight below, columns 2 * (lane % 4) and the next (PTX ISA, "Matrix Fragments for mma.m16n8k16").

The simulator has no warps: there, each lane computes its own sums from shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types as numba_types

from graphc.codegen.gpu.contraction import plain
from graphc.codegen.gpu.contraction.device import (
    WIDEST,
    bytes_of,
    cgutils,
    data_of,
    device,
    ir,
    literal,
)
from graphc.codegen.gpu.contraction.device import lane as element

types: Any = numba_types
Device = Callable[..., Any]

LOAD = "ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
MULTIPLY = (
    "mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
    "{{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
)
COPY = "cp.async.{where}.shared.global [$0], [$1], {size}, $2;"
LEAST = 4  # bytes of a copy in the background
GLOBAL, SHARED = 1, 3  # address spaces


def address(builder: Any, place: Any) -> Any:
    """The 32-bit address of an element of shared memory."""
    inside = builder.addrspacecast(place, ir.PointerType(place.type.pointee, SHARED))
    return builder.ptrtoint(inside, ir.IntType(32))


def volatile(builder: Any, text: str, constraints: str, result: Any, *given: Any) -> Any:
    """Instructions that stay where they are."""
    kind = ir.FunctionType(result, [x.type for x in given])
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), list(given))


def effect(text: str) -> Callable[..., Any]:
    """What emits an instruction without operands, which memory is not moved across."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        volatile(builder, text, "~{memory}", ir.VoidType())
        return context.get_dummy_value()

    return emit


def wait(text: str, left: Any) -> Any:
    """The same with how many may be `left`, a number that is known when code is generated."""
    if not literal(left):
        return None
    return types.void(left), effect(text.format(left.literal_value))


def load_four(builder: Any, place: Any, turned: bool) -> list[Any]:
    """Four matrices of 8 x 8, two elements of each per lane; `place` is a line of one of them."""
    word = ir.IntType(32)
    kind = ir.FunctionType(ir.LiteralStructType([word] * 4), [word])
    text = LOAD.format(turned=".trans" if turned else "")
    code = ir.InlineAsm(kind, text, "=r,=r,=r,=r,r,~{memory}", side_effect=True)
    made = builder.call(code, [place])
    return [builder.extract_value(made, k) for k in range(4)]


def multiply(builder: Any, name: str, a: list[Any], b: list[Any], sums: list[Any]) -> list[Any]:
    word, real = ir.IntType(32), ir.FloatType()
    kind = ir.FunctionType(ir.LiteralStructType([real] * 4), [word] * 6 + [real] * 4)
    code = ir.InlineAsm(kind, MULTIPLY.format(kind=name), "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f")
    made = builder.call(code, [*a, *b, *sums])
    return [builder.extract_value(made, k) for k in range(4)]


@device(plain.copy)
def copy(
    context: Any,
    memory: Any,
    start: Any,
    pointer: Any,
    index: Any,
    width: Any,
    aligned: Any,
    inside: Any,
) -> Any:
    """Elements of memory to shared memory, in the background if aligned; zeros if not inside.

    Elements of 4 bytes or more go there in the background one by one if they are not aligned.
    """
    if not literal(width):
        return None
    count, size = width.literal_value, bytes_of(pointer.dtype)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = builder.gep(data_of(context, builder, memory, args[0]), [args[1]])
        source = builder.gep(args[2], [args[3]])
        if count == 1:
            copy_each(builder, source, target, count, size, args[6])
            return context.get_dummy_value()
        with builder.if_else(args[5]) as (then, otherwise):
            with then:
                copy_later(builder, source, target, count * size, args[6])
            with otherwise:
                copy_each(builder, source, target, count, size, args[6])
        return context.get_dummy_value()

    words = types.int64, types.boolean
    given = (memory, words[0], pointer, words[0], width, words[1], words[1])
    return types.void(*given), emit


def copy_each(builder: Any, source: Any, target: Any, count: int, size: int, inside: Any) -> None:
    if size < LEAST:
        copy_now(builder, source, target, count, inside)
        return
    for k in range(count):
        first, second = (builder.gep(place, [element(k)]) for place in (source, target))
        copy_later(builder, first, second, size, inside)


def copy_now(builder: Any, source: Any, target: Any, count: int, inside: Any) -> None:
    for k in range(count):
        value = builder.load(builder.gep(source, [element(k)]))
        value = builder.select(inside, value, ir.Constant(value.type, 0))
        builder.store(value, builder.gep(target, [element(k)]))


def copy_later(builder: Any, source: Any, target: Any, size: int, inside: Any) -> None:
    """`cp.async`: what lies beyond the given number of bytes is filled with zeros."""
    word, long = ir.IntType(32), ir.IntType(64)
    kept = builder.select(inside, ir.Constant(word, size), ir.Constant(word, 0))
    place = builder.addrspacecast(source, ir.PointerType(source.type.pointee, GLOBAL))
    kind = ir.FunctionType(ir.VoidType(), [word, long, word])
    text = COPY.format(where="cg" if size == WIDEST else "ca", size=size)
    code = ir.InlineAsm(kind, text, "r,l,r,~{memory}", side_effect=True)
    builder.call(code, [address(builder, target), builder.ptrtoint(place, long), kept])


@device(plain.wait_for_copies)
def wait_for_copies(context: Any) -> Any:
    """Until the thread's copies are in shared memory; a barrier shows them to the others."""
    return types.void(), effect("cp.async.wait_all;")


@device(plain.commit_copies)
def commit_copies(context: Any) -> Any:
    """Make one group of the copies that the thread has started since the last one."""
    return types.void(), effect("cp.async.commit_group;")


@device(plain.wait_for_groups)
def wait_for_groups(context: Any, left: Any) -> Any:
    """Until no more than `left` groups of the thread's copies are under way."""
    return wait("cp.async.wait_group {};", left)


class Lanes:
    """Where the lines lie that a lane points at: lane l at line l % 8 of matrix l // 8.

    The four matrices are two neighbours along outer, and the same 8 further along k; in A the one
    along outer comes second, in B the one along k.
    """

    def __init__(self, builder: Any, lane: Any) -> None:
        self.builder = builder
        self.line = self.low(lane, 0, 7)
        self.first = self.low(lane, 3, 1)
        self.second = self.low(lane, 4, 1)

    def low(self, lane: Any, shift: int, mask: int) -> Any:
        b, kind = self.builder, lane.type
        return b.and_(b.lshr(lane, ir.Constant(kind, shift)), ir.Constant(kind, mask))

    def offset(self, lead: int, upright: int, outer: Any, along_k: Any) -> Any:
        """`outer` and `along_k` say which of the two matrices in that direction this is."""
        lines, inside = (outer, along_k) if upright else (along_k, outer)
        return self.sum((lines, 8 * lead), (self.line, lead), (inside, 8))

    def sum(self, *terms: tuple[Any, int]) -> Any:
        b = self.builder
        parts = [b.mul(value, ir.Constant(value.type, factor)) for value, factor in terms]
        return b.add(b.add(parts[0], parts[1]), parts[2])


def read(
    builder: Any, pointer: Any, start: Any, count: int, lead: int, turned: bool
) -> list[list[Any]]:
    """Squares of 16 x 16 beside each other along outer, as four registers each.

    Lines that do not run along k are turned.
    """
    apart = 16 if turned else 16 * lead
    first = builder.gep(pointer, [start])
    places = [builder.gep(first, [element(n * apart)]) for n in range(count)]
    return [load_four(builder, address(builder, place), turned) for place in places]


def products(name: str) -> Device:
    """The typing function of the products of one type."""

    def typed(
        context: Any,
        total: Any,
        memory: Any,
        a: Any,
        b: Any,
        lane: Any,
        down: Any,
        across: Any,
        lead_a: Any,
        upright_a: Any,
        lead_b: Any,
        upright_b: Any,
    ) -> Any:
        fixed = (down, across, lead_a, upright_a, lead_b, upright_b)
        if not literal(*fixed):
            return None
        high, wide, apart_a, along_a, apart_b, along_b = (v.literal_value for v in fixed)

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = data_of(context, builder, memory, args[1])
            lanes = Lanes(builder, args[4])
            at_a = builder.add(args[2], lanes.offset(apart_a, along_a, lanes.first, lanes.second))
            at_b = builder.add(args[3], lanes.offset(apart_b, along_b, lanes.second, lanes.first))
            rows = read(builder, pointer, at_a, high, apart_a, not along_a)
            pairs = read(builder, pointer, at_b, wide // 2, apart_b, not along_b)
            columns = [half for pair in pairs for half in (pair[:2], pair[2:])]
            sums, made = cgutils.unpack_tuple(builder, args[0]), []
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    first = 4 * (i * wide + j)
                    made += multiply(builder, name, row, column, sums[first : first + 4])
            return cgutils.pack_array(builder, made)

        index = types.int64
        return total(total, memory, index, index, index, *fixed), emit

    return typed


products_bf16 = device(plain.products_bf16)(products("bf16"))
products_f16 = device(plain.products_f16)(products("f16"))
