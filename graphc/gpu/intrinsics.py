"""Device functions that Numba has none for, as LLVM IR and PTX instructions.

Every function here takes what intrinsics are made with, `graphc.gpu.compiler_parts()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.errors import TypingError

from graphc.seams.numba_cuda import struct_value

Parts = tuple[Any, Any, Any]  # llvmlite.ir, Numba's cgutils and intrinsic
Device = Callable[..., Any]


def scalar_of(pointer: Any) -> Any:
    """What a pointer points to."""
    if not isinstance(pointer, types.CPointer):
        raise TypingError("a pointer is expected")
    return pointer.dtype


def vectors(parts: Parts) -> tuple[Device, Device]:
    """load4 and store4."""
    ir, cgutils, intrinsic = parts

    def vector_at(builder: Any, pointer: Any, index: Any, element: Any) -> Any:
        """The address of four elements, as one value."""
        place = builder.gep(pointer, [index])
        return builder.bitcast(place, ir.VectorType(element, 4).as_pointer())

    @intrinsic
    def load4(context: Any, pointer: Any, index: Any) -> Any:
        """Four elements at a position that is a multiple of four, read at once."""
        element = scalar_of(pointer)
        made = types.UniTuple(element, 4)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_data_type(element)
            vector = builder.load(
                vector_at(builder, args[0], args[1], kind), align=4 * element.bitwidth // 8
            )
            parts = [
                builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(4)
            ]
            return cgutils.pack_array(builder, parts)

        return made(pointer, types.int64), generate

    @intrinsic
    def store4(context: Any, pointer: Any, index: Any, x0: Any, x1: Any, x2: Any, x3: Any) -> Any:
        """Write four elements at a position that is a multiple of four at once."""
        element = scalar_of(pointer)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_data_type(element)
            vector = ir.Constant(ir.VectorType(kind, 4), ir.Undefined)
            for k, part in enumerate(args[2:]):
                vector = builder.insert_element(vector, part, ir.Constant(ir.IntType(32), k))
            place = vector_at(builder, args[0], args[1], kind)
            builder.store(vector, place, align=4 * element.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(pointer, types.int64, *[element] * 4), generate

    return load4, store4


def places(parts: Parts) -> tuple[Device, Device]:
    """offset and same."""
    intrinsic = parts[2]

    @intrinsic
    def offset(context: Any, pointer: Any, count: Any) -> Any:
        """The pointer `count` elements further on."""
        scalar_of(pointer)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.gep(args[0], [args[1]])

        return pointer(pointer, types.int64), generate

    @intrinsic
    def same(context: Any, a: Any, b: Any) -> Any:
        """Whether two pointers of one type are one address."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.icmp_unsigned("==", *args)

        return types.boolean(a, b), generate

    return offset, same


def arrays(parts: Parts) -> tuple[Device, Device]:
    """as_array and as_bools."""
    intrinsic = parts[2]

    @intrinsic
    def as_array(context: Any, pointer: Any, count: Any) -> Any:
        """A row-major array over memory, of so many elements or of a shape that is a tuple: for
        atomics and for code that wants arrays.
        """
        return viewed(scalar_of(pointer), pointer, count)

    @intrinsic
    def as_bools(context: Any, pointer: Any, count: Any) -> Any:
        """An array of bool over memory, where kernels see bytes."""
        return viewed(types.boolean, pointer, count)

    return as_array, as_bools


def viewed(dtype: Any, pointer: Any, count: Any) -> Any:
    """The type of an array over memory, and what makes it."""
    rank = 1 if isinstance(count, types.Integer) else len(count)
    kind = types.Array(dtype, rank, "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        width = context.get_abi_sizeof(context.get_data_type(scalar_of(pointer)))
        size = context.get_constant(types.intp, width)
        shape, strides = args[1:], [size]
        if not isinstance(count, types.Integer):
            parts = [builder.extract_value(args[1], k) for k in range(rank)]
            shape = [context.cast(builder, x, t, types.intp) for x, t in zip(parts, count)]
            for extent in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], extent))
        context.populate_array(
            array,
            data=args[0],
            shape=shape,
            strides=strides[:rank] if rank else [],
            itemsize=size,
            meminfo=None,
        )
        return struct_value(array)

    return kind(pointer, types.int64 if isinstance(count, types.Integer) else count), generate


def values(parts: Parts) -> tuple[Device, Device]:
    """fma and status_of."""
    intrinsic = parts[2]

    @intrinsic
    def fma(context: Any, x: Any, y: Any, z: Any) -> Any:
        """x * y + z, rounded once. All three of one float type."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fma(*args)

        return x(x, y, z), generate

    @intrinsic
    def status_of(context: Any, code: Any) -> Any:
        """What a function returned, an int or nothing, as an int."""
        if not isinstance(code, types.Integer | types.Boolean | types.NoneType):
            raise TypingError("a function may return nothing, or an int status")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if isinstance(code, types.NoneType):
                return context.get_constant(types.int64, 0)
            return context.cast(builder, args[0], code, types.int64)

        return types.int64(code), generate

    return fma, status_of


def bit_casts(parts: Parts) -> tuple[Device, Device]:
    """A number as a 32- or 64-bit integer that lanes can exchange, and back as what `like` is."""
    ir, _, intrinsic = parts

    def width_of(kind: Any) -> int:
        return 1 if isinstance(kind, types.Boolean) else int(kind.bitwidth)

    @intrinsic
    def bits_of(context: Any, x: Any) -> Any:
        wide = width_of(x) > 32

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.bitcast(args[0], ir.IntType(width_of(x)))
            return builder.zext(value, ir.IntType(64 if wide else 32))

        return (types.int64 if wide else types.int32)(x), generate

    @intrinsic
    def of_bits(context: Any, bits: Any, like: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.trunc(args[0], ir.IntType(width_of(like)))
            return builder.bitcast(value, context.get_value_type(like))

        return like(bits, like), generate

    return bits_of, of_bits


def instruction(parts: Parts, text: str, operands: int) -> Device:
    """A PTX instruction over floats of one type; `{f}` in its text stands for f32 or f64.

    The compiler does not look inside: a product or sum made so is never fused with another one.
    """
    ir, _, intrinsic = parts

    def code(builder: Any, args: Any) -> Any:
        kind = args[0].type
        name, letter = ("f32", "f") if isinstance(kind, ir.FloatType) else ("f64", "d")
        places = ", ".join(f"${k}" for k in range(operands + 1))
        signature = ir.FunctionType(kind, [kind] * operands)
        constraint = ",".join([f"={letter}", *[letter] * operands])
        assembly = ir.InlineAsm(signature, f"{text.format(f=name)} {places};", constraint)
        return builder.call(assembly, args)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return code(builder, args)

    if operands == 1:

        @intrinsic
        def unary(context: Any, x: Any) -> Any:
            return x(x), generate

        return unary  # type: ignore[no-any-return]

    @intrinsic
    def binary(context: Any, x: Any, y: Any) -> Any:
        return x(x, y), generate

    return binary  # type: ignore[no-any-return]
