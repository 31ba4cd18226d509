"""What code for GPUs is written with: `numba.cuda`, or its simulator, and what neither has.

The one door to `numba.cuda` for device code; importing it imports Numba, so it is imported where a
kernel is made and never before.  With NUMBA_ENABLE_CUDASIM=1 kernels run as Python threads over
NumPy arrays; the simulator has neither warps nor intrinsics, so each device function here has a
plain version that computes the same bits.  Pointers are one-dimensional arrays there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphc.errors import GraphError

try:
    from numba import cuda as cuda
    from numba import types
    from numba.core import config
except ImportError as error:
    raise GraphError(
        f"GPU code needs Numba's CUDA target, which cannot be imported: {error}",
        hint="pip install 'graphc[cuda]'",
    ) from None

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", False))
WARP = 32
_LARGEST = Fraction(np.finfo(np.float64).max.item())
FULL_MASK = 0xFFFFFFFF

Device = Callable[..., Any]


_devices: dict[tuple[Any, ...], Device] = {}


def device(function: Callable[..., Any]) -> Device:
    """Make a function callable from kernels: once, however often its text is executed."""
    code = function.__code__
    used = [function.__globals__.get(name) for name in code.co_names]
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    names = (code.co_name, *code.co_names)  # of attributes, too: np.int8 is not np.int16
    key = (names, code.co_code, repr(code.co_consts), *map(id, used), *map(id, closure))
    if key not in _devices:  # which keeps what the ids are of
        _devices[key] = cuda.jit(device=True)(function)
    return _devices[key]


# ------------------------------------------------------------------------------------- simulated


def _exact_fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once, for NumPy scalars of one float type."""
    kind = type(x)
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(z):
        return kind(z)  # whatever the product overflows to
    if not all(math.isfinite(v) for v in (x, y, z)):
        return kind(x * y + z)
    if kind is np.float32:
        product, addend = float(x) * float(y), float(z)
        total = product + addend
        part = total - product
        error = (product - (total - part)) + (addend - part)
        if error and math.isfinite(total):  # round to odd, so that the next rounding cannot err
            toward = math.inf if error > 0 else -math.inf
            if not np.float64(total).view(np.uint64) & np.uint64(1):
                total = math.nextafter(total, toward)
        return np.float32(total)
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    if abs(exact) > _LARGEST:
        return kind(math.inf if exact > 0 else -math.inf)
    return kind(float(exact)) if exact else kind(x * y + z)


def _load4_array(pointer: Any, index: int) -> tuple[Any, ...]:
    return tuple(pointer[index + k] for k in range(4))


def _store4_array(pointer: Any, index: int, x0: Any, x1: Any, x2: Any, x3: Any) -> None:
    pointer[index : index + 4] = (x0, x1, x2, x3)


def _as_array_plain(pointer: Any, count: Any) -> Any:
    return (
        pointer[: math.prod(count)].reshape(count) if isinstance(count, tuple) else pointer[:count]
    )


def _as_bools_plain(pointer: Any, count: Any) -> Any:
    return _as_array_plain(pointer, count).view(np.bool_)


def _offset_plain(pointer: Any, count: int) -> Any:
    return pointer[count:]


def _same_plain(a: Any, b: Any) -> bool:
    return bool(a.ctypes.data == b.ctypes.data)


def _status_of_plain(code: Any) -> int:
    return 0 if code is None else int(code)


def _product(x: Any, y: Any) -> Any:
    return x * y


def _sum(x: Any, y: Any) -> Any:
    return x + y


def _exchange_plain(x: Any, step: int, lanes: int, shared: Any) -> Any:
    """No device function: while one runs, the simulator puts another module in place of `cuda`
    where it was defined, and other threads import that from here.
    """
    from numba.cuda.simulator.kernel import _get_kernel_context

    running = _get_kernel_context()
    thread = running.threadIdx.x
    running.syncthreads()
    shared[thread] = x
    running.syncthreads()
    return shared[thread ^ step]


def _take_turns() -> None:
    """Let simulated threads run while the simulator asks each whether it has ended: it asks without
    a pause and keeps them from running, which costs ten times what they compute.
    """
    from numba.cuda.simulator.kernel import BlockThread

    ended = BlockThread.is_alive

    def is_alive(thread: Any) -> bool:
        time.sleep(0)
        return bool(ended(thread))

    BlockThread.is_alive = is_alive


# ------------------------------------------------------------------------------------- compiled


def _intrinsics() -> tuple[Device, ...]:
    """Code that Numba has no function for: fma, load4, store4 and so on, as named below."""
    from llvmlite import ir
    from numba.cuda import cgutils
    from numba.cuda.extending import intrinsic

    def scalar_of(pointer: Any) -> Any:
        if not isinstance(pointer, types.CPointer):
            raise TypeError("a pointer is expected")
        return pointer.dtype

    def vector_at(builder: Any, pointer: Any, index: Any, element: Any) -> Any:
        """The address of four elements, as one value."""
        place = builder.gep(pointer, [index])
        return builder.bitcast(place, ir.VectorType(element, 4).as_pointer())

    @intrinsic
    def fma(context: Any, x: Any, y: Any, z: Any) -> Any:
        """x * y + z, rounded once. All three of one float type."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fma(*args)

        return x(x, y, z), generate

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

    @intrinsic
    def offset(context: Any, pointer: Any, count: Any) -> Any:
        """The pointer `count` elements further on."""
        scalar_of(pointer)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.gep(args[0], [args[1]])

        return pointer(pointer, types.int64), generate

    def viewed(dtype: Any, pointer: Any, count: Any) -> Any:
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
                array, data=args[0], shape=shape, strides=strides[:rank] if rank else [],
                itemsize=size, meminfo=None,
            )  # fmt: skip
            return array._getvalue()

        return kind(pointer, types.int64 if isinstance(count, types.Integer) else count), generate

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

    @intrinsic
    def same(context: Any, a: Any, b: Any) -> Any:
        """Whether two pointers of one type are one address."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.icmp_unsigned("==", *args)

        return types.boolean(a, b), generate

    @intrinsic
    def status_of(context: Any, code: Any) -> Any:
        """What a function returned, an int or nothing, as an int."""
        if not isinstance(code, types.Integer | types.Boolean | types.NoneType):
            raise TypeError("a function may return nothing, or an int status")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if isinstance(code, types.NoneType):
                return context.get_constant(types.int64, 0)
            return context.cast(builder, args[0], code, types.int64)

        return types.int64(code), generate

    return fma, load4, store4, as_array, as_bools, offset, same, status_of


def _bit_casts() -> tuple[Device, Device]:
    """A number as a 32- or 64-bit integer that lanes can exchange, and back as what `like` is."""
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

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


def _instruction(text: str, operands: int) -> Device:
    """A PTX instruction over floats of one type; `{f}` in its text stands for f32 or f64.

    The compiler does not look inside: a product or sum made so is never fused with another one.
    """
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

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


def compiler_parts() -> tuple[Any, Any, Any]:
    """`llvmlite.ir`, Numba's `cgutils` and `intrinsic`: for device functions of other modules."""
    from llvmlite import ir
    from numba.cuda import cgutils
    from numba.cuda.extending import intrinsic

    return ir, cgutils, intrinsic


@contextmanager
def compiling_for(chip: tuple[int, int]) -> Iterator[None]:
    """Let device functions compile for a chip (compute capability) that need not be here.

    Numba asks the current device for what it is; here the chip compiled for stands in for it.
    """
    from numba.cuda import dispatcher
    from numba.cuda.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        before = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=chip)
        try:
            yield
        finally:
            dispatcher.get_current_device = before


fma: Device
load4: Device
store4: Device
as_array: Device
as_bools: Device
offset: Device
same: Device
status_of: Device
if SIMULATED:
    _take_turns()
    fma, load4, store4, as_array, as_bools, offset, same, status_of = (
        _exact_fma, _load4_array, _store4_array, _as_array_plain, _as_bools_plain,
        _offset_plain, _same_plain, _status_of_plain,
    )  # fmt: skip
else:
    fma, load4, store4, as_array, as_bools, offset, same, status_of = _intrinsics()
    _bits_of, _of_bits = _bit_casts()


def _chosen(simulated: Device, text: str, operands: int = 1) -> Device:
    return simulated if SIMULATED else _instruction(text, operands)


mul_rn = _chosen(_product, "mul.rn.{f}", 2)
add_rn = _chosen(_sum, "add.rn.{f}", 2)
sqrt = _chosen(np.sqrt, "sqrt.rn.{f}")
floor = _chosen(np.floor, "cvt.rmi.{f}.{f}")
ceil = _chosen(np.ceil, "cvt.rpi.{f}.{f}")
trunc = _chosen(np.trunc, "cvt.rzi.{f}.{f}")
rint = _chosen(np.rint, "cvt.rni.{f}.{f}")


def _exchange(x: Any, step: int, lanes: int, shared: Any) -> Any:
    """The value of the lane whose number differs by the bit `step`, for groups of `lanes` threads.

    All lanes of a group call it together; `shared` has an element per thread of the block.
    """
    thread = cuda.threadIdx.x
    if step >= WARP:
        cuda.syncthreads()
        shared[thread] = x
        cuda.syncthreads()
        return shared[thread ^ step]
    mask = FULL_MASK
    if lanes < WARP:
        mask = ((1 << lanes) - 1) << (thread % WARP // lanes * lanes)
    return _of_bits(cuda.shfl_xor_sync(mask, _bits_of(x), step), x)


exchange = _exchange_plain if SIMULATED else device(_exchange)
