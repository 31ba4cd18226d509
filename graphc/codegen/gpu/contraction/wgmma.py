"""Products by groups of four warps: `wgmma.mma_async` of PTX, which sm_90 alone has.

total = group_products_bf16(total, memory, a, b, thread, upright_a, upright_b)

starts to add the products of 64 lines of A and all lines of B, 128 bytes of k.  They begin at `a`
and `b` in shared memory, swizzled (see `swizzle`); `total` holds the sums of the warp's 16
rows in fragments of 16 x 8, as `mma` has them, and is there after `settled`.

`group_products_tf32` takes f32, of whose 23 bits of fraction it multiplies the first 10.

The simulator has no warps: there, each lane computes its own sums from shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types as numba_types

from graphc.codegen.gpu.contraction import plain
from graphc.codegen.gpu.contraction.device import bytes_of, cgutils, data_of, device, ir, literal
from graphc.codegen.gpu.contraction.mma import address, effect, volatile, wait
from graphc.codegen.gpu.contraction.tile_choice import ATOM, GROUP_DEPTH, LINE

types: Any = numba_types
Device = Callable[..., Any]

STEP = 32  # bytes of a line that one instruction multiplies
TF32 = "tf32"
SWIZZLED = 1 << 62  # by 128 bytes
ADDRESS = 0x3FFFF  # the bits of an address that a descriptor holds
UNIT = 4  # it counts 16 bytes
WGMMA = (
    "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} "
    "{{{sums}}}, left, right, yes, 1, 1{turned};"
)


def descriptor(builder: Any, place: Any, upright: int) -> Any:
    """How a matrix lies in shared memory (PTX ISA, "Matrix Descriptor Format")."""
    word, long = ir.IntType(32), ir.IntType(64)
    start = builder.and_(address(builder, place), ir.Constant(word, ADDRESS))
    start = builder.zext(builder.lshr(start, ir.Constant(word, UNIT)), long)
    lead = 1 if upright else GROUP_DEPTH * LINE >> UNIT  # lines of B beyond the first 64
    fixed = SWIZZLED | (ATOM >> UNIT) << 32 | lead << 16
    return builder.or_(start, ir.Constant(long, fixed))


def code_of(kind: str, count: int, upright_a: int, upright_b: int) -> str:
    """The instructions for `count` sums of a lane: registers, then two descriptors."""
    sums = ", ".join(f"${k}" for k in range(count))
    apart = [STEP >> UNIT if up else STEP // 2 * LINE >> UNIT for up in (upright_a, upright_b)]
    given = {"n": 2 * count, "k": 16, "kind": kind, "sums": sums}
    if kind == TF32:  # whose lines run along k
        product = WGMMA.format(**given | {"k": 8}, turned="")
    else:
        product = WGMMA.format(**given, turned=f", {1 - upright_a}, {1 - upright_b}")
    lines = ["{ .reg .pred yes; .reg .b64 left, right;", "setp.eq.u32 yes, 0, 0;"]
    lines.append("wgmma.fence.sync.aligned;")
    for step in range(LINE // STEP):
        lines.append(f"add.s64 left, ${2 * count}, {step * apart[0]};")
        lines.append(f"add.s64 right, ${2 * count + 1}, {step * apart[1]};")
        lines.append(product)
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned; }"])


def with_sums(builder: Any, text: str, total: Any, *given: Any) -> Any:
    """Instructions that change sums in place, which are their first operands."""
    sums = cgutils.unpack_tuple(builder, total)
    same = [str(k) for k in range(len(sums))]
    constraints = ["=f"] * len(sums) + same + ["l"] * len(given) + ["~{memory}"]
    kind = ir.LiteralStructType([ir.FloatType()] * len(sums))
    made = volatile(builder, text, ",".join(constraints), kind, *sums, *given)
    return cgutils.pack_array(builder, [builder.extract_value(made, k) for k in range(len(sums))])


def products(kind: str) -> Device:
    """The typing function of the products of one type."""

    def typed(
        context: Any,
        total: Any,
        memory: Any,
        a: Any,
        b: Any,
        thread: Any,
        upright_a: Any,
        upright_b: Any,
    ) -> Any:
        if not literal(upright_a, upright_b):
            return None
        along = upright_a.literal_value, upright_b.literal_value

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = data_of(context, builder, memory, args[1])
            places = [builder.gep(pointer, [at]) for at in args[2:4]]
            given = [descriptor(builder, *pair) for pair in zip(places, along, strict=True)]
            return with_sums(builder, code_of(kind, total.count, *along), args[0], *given)

        index = types.int64
        return total(total, memory, index, index, index, upright_a, upright_b), emit

    return typed


group_products_bf16 = device(plain.group_products_bf16)(products("bf16"))
group_products_f16 = device(plain.group_products_f16)(products("f16"))
group_products_tf32 = device(plain.group_products_tf32)(products(TF32))


@device(plain.wait_for_products)
def wait_for_products(context: Any, left: Any) -> Any:
    """Until no more than `left` of the calls that started products have any that go on."""
    return wait("wgmma.wait_group.sync.aligned {};", left)


@device(plain.settled)
def settled(context: Any, total: Any) -> Any:
    """The sums, when all products have been added."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return with_sums(builder, "wgmma.wait_group.sync.aligned 0;", args[0])

    return total(total), emit


@device(plain.show_copies)
def show_copies(context: Any) -> Any:
    """Let `wgmma` see what this thread has written to shared memory."""
    return types.void(), effect("fence.proxy.async.shared::cta;")


@device(plain.first_atom)
def first_atom(context: Any, memory: Any) -> Any:
    """The number of the first element whose address is a multiple of 1024."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, long = ir.IntType(32), ir.IntType(64)
        at = address(builder, data_of(context, builder, memory, args[0]))
        rest = builder.and_(builder.neg(at), ir.Constant(word, ATOM - 1))
        size = ir.Constant(word, bytes_of(memory.dtype))
        return builder.zext(builder.udiv(rest, size), long)

    return types.int64(memory), emit
