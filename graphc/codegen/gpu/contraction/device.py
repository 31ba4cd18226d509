"""Short vectors in registers, for the source of contraction kernels: tuples that become 16-byte
loads and stores and rows of multiply-adds.

Numba has no vectors; these functions write the LLVM IR that a tuple stands for.  The versions for
the simulator, which say what each computes, are in `plain`.  Counts and steps that are
not run-time values are literals in the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types as numba_types

from graphc.codegen.gpu.contraction import plain
from graphc.gpu import SIMULATED, compiler_parts

Device = Callable[..., Any]
types: Any = numba_types
UniTuple = types.UniTuple
ir: Any = None
cgutils: Any = None
intrinsic: Any = None
if not SIMULATED:
    ir, cgutils, intrinsic = compiler_parts()

WIDEST = 16  # bytes of a load or store


def device(simulated: Device) -> Callable[[Device], Device]:
    """The intrinsic of a typing function, or the plain version in the simulator."""

    def choose(typing: Device) -> Device:
        return simulated if SIMULATED else intrinsic(typing)

    return choose


def literal(*values: Any) -> bool:
    """Are all literals? If not, Numba asks again with literal types."""
    return all(isinstance(v, types.IntegerLiteral) for v in values)


def lane(k: int) -> Any:
    return ir.Constant(ir.IntType(32), k)


def split(builder: Any, vector: Any) -> list[Any]:
    return [builder.extract_element(vector, lane(k)) for k in range(vector.type.count)]


def joined(builder: Any, parts: list[Any]) -> Any:
    vector = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
    for k, part in enumerate(parts):
        vector = builder.insert_element(vector, part, lane(k))
    return vector


def bytes_of(element: Any) -> int:
    return int(element.bitwidth) // 8


def load_vector(builder: Any, place: Any, width: int, size: int) -> list[Any]:
    """`width` elements of `size` bytes; the address is a multiple of what they take."""
    vector = ir.VectorType(place.type.pointee, width)
    return split(
        builder,
        builder.load(builder.bitcast(place, vector.as_pointer()), align=min(WIDEST, width * size)),
    )


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


@device(plain.repeat)
def repeat(context: Any, value: Any, count: Any) -> Any:
    if not literal(count):
        return None
    element = types.unliteral(value)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.pack_array(builder, [args[0]] * count.literal_value)

    return UniTuple(element, count.literal_value)(element, count), emit


@device(plain.is_aligned)
def is_aligned(context: Any, pointer: Any) -> Any:
    """Is the address a multiple of 16?"""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        rest = builder.and_(builder.ptrtoint(args[0], word), ir.Constant(word, WIDEST - 1))
        return builder.icmp_unsigned("==", rest, ir.Constant(word, 0))

    return types.boolean(pointer), emit


@device(plain.load)
def load(context: Any, pointer: Any, index: Any, width: Any, aligned: Any) -> Any:
    """Elements of memory: at once if that is aligned, else one by one."""
    if not literal(width):
        return None
    count = width.literal_value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        if count == 1:
            return cgutils.pack_array(builder, [builder.load(place)])
        with builder.if_else(args[3]) as (then, otherwise):
            with then:
                fast = load_vector(builder, place, count, bytes_of(pointer.dtype))
                first = builder.block
            with otherwise:
                slow = [builder.load(builder.gep(place, [lane(k)])) for k in range(count)]
                second = builder.block
        made = []
        for one, other in zip(fast, slow, strict=True):
            phi = builder.phi(one.type)
            phi.add_incoming(one, first)
            phi.add_incoming(other, second)
            made.append(phi)
        return cgutils.pack_array(builder, made)

    made = UniTuple(pointer.dtype, count)
    return made(pointer, types.int64, width, types.boolean), emit


@device(plain.fixed)
def fixed(context: Any, pointer: Any, index: Any) -> Any:
    """An element of memory that nothing writes while the kernel runs: writes to other memory do not
    hold it up."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.gep(args[0], [args[1]]))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    return pointer.dtype(pointer, types.int64), emit


@device(plain.keep)
def keep(context: Any, inside: Any, values: Any) -> Any:
    """The values, or zeros."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = cgutils.unpack_tuple(builder, args[1])
        kept = [builder.select(args[0], x, ir.Constant(x.type, 0)) for x in parts]
        return cgutils.pack_array(builder, kept)

    return values(types.boolean, values), emit


@device(plain.widen)
def widen(context: Any, values: Any, zero: Any) -> Any:
    """Integers as wider ones of their own sign; anything else as it is."""
    result = UniTuple(zero, values.count)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = context.get_data_type(zero)
        parts = cgutils.unpack_tuple(builder, args[0])
        if parts[0].type != target:
            extend = builder.sext if values.dtype.signed else builder.zext
            parts = [extend(x, target) for x in parts]
        return cgutils.pack_array(builder, parts)

    return result(values, zero), emit


def from_half(builder: Any, bits: Any) -> Any:
    return builder.fpext(builder.bitcast(bits, ir.HalfType()), ir.FloatType())


def from_brain(builder: Any, bits: Any) -> Any:
    word = ir.IntType(32)
    high = builder.shl(builder.zext(bits, word), ir.Constant(word, 16))
    return builder.bitcast(high, ir.FloatType())


def widening(rule: Device) -> Device:
    def typed(context: Any, values: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            parts = [rule(builder, x) for x in cgutils.unpack_tuple(builder, args[0])]
            return cgutils.pack_array(builder, parts)

        return UniTuple(types.float32, values.count)(values), emit

    return typed


widen_f16 = device(plain.widen_f16)(widening(from_half))
widen_bf16 = device(plain.widen_bf16)(widening(from_brain))


@device(plain.read)
def read(context: Any, array: Any, start: Any, groups: Any, step: Any, width: Any) -> Any:
    """Runs of `width` elements of shared memory, `step` apart; runs are aligned."""
    if not literal(groups, step, width):
        return None
    many, apart, count = (v.literal_value for v in (groups, step, width))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.gep(data_of(context, builder, array, args[0]), [args[1]])
        size, parts = bytes_of(array.dtype), []
        for k in range(many):
            parts += load_vector(builder, builder.gep(base, [lane(k * apart)]), count, size)
        return cgutils.pack_array(builder, parts)

    made = UniTuple(array.dtype, many * count)
    return made(array, types.int64, groups, step, width), emit


@device(plain.write)
def write(context: Any, array: Any, start: Any, values: Any) -> Any:
    """A run of elements into shared memory, aligned to what it takes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = joined(builder, cgutils.unpack_tuple(builder, args[2]))
        place = builder.gep(data_of(context, builder, array, args[0]), [args[1]])
        place = builder.bitcast(place, vector.type.as_pointer())
        builder.store(vector, place, align=min(WIDEST, values.count * bytes_of(array.dtype)))
        return context.get_dummy_value()

    return types.void(array, types.int64, values), emit


@device(plain.write_column)
def write_column(context: Any, array: Any, start: Any, step: Any, values: Any) -> Any:
    """Elements into shared memory, `step` apart."""
    if not literal(step):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.gep(data_of(context, builder, array, args[0]), [args[1]])
        for k, part in enumerate(cgutils.unpack_tuple(builder, args[3])):
            builder.store(part, builder.gep(base, [lane(k * step.literal_value)]))
        return context.get_dummy_value()

    return types.void(array, types.int64, step, values), emit


def add_product(builder: Any, x: Any, y: Any, total: Any) -> Any:
    if isinstance(total.type, ir.IntType):
        return builder.add(builder.mul(x, y), total)
    return builder.fma(x, y, total)


@device(plain.outer)
def outer(context: Any, total: Any, x: Any, y: Any) -> Any:
    """total[i * len(y) + j] + x[i] * y[j] for every pair: fused, or wrapping for integers."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, left, right = (cgutils.unpack_tuple(builder, a) for a in args)
        width = len(right)
        made = [
            add_product(builder, left[k // width], right[k % width], part)
            for k, part in enumerate(sums)
        ]
        return cgutils.pack_array(builder, made)

    return total(total, x, y), emit


@device(plain.dots)
def dots(context: Any, total: Any, x: Any, y: Any, run: Any) -> Any:
    """total[i * columns + j] and the products of the i-th run of x with the j-th run of y."""
    if not literal(run):
        return None
    steps = run.literal_value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, left, right = (cgutils.unpack_tuple(builder, a) for a in args[:3])
        columns = len(right) // steps
        for step in range(steps):
            sums = [
                add_product(
                    builder, left[k // columns * steps + step], right[k % columns * steps + step], s
                )
                for k, s in enumerate(sums)
            ]
        return cgutils.pack_array(builder, sums)

    return total(total, x, y, run), emit


@device(plain.plus)
def plus(context: Any, x: Any, y: Any) -> Any:
    """Sums element by element."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(*(cgutils.unpack_tuple(builder, a) for a in args), strict=True)
        whole = isinstance(args[0].type.element, ir.IntType)
        add = builder.add if whole else builder.fadd
        return cgutils.pack_array(builder, [add(a, b) for a, b in pairs])

    return x(x, y), emit
