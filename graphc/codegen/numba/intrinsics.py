"""What generated source needs and Numba does not offer. Imported only where Numba is in use."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic


@intrinsic
def fma(context: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once. All three of one float type."""
    if not (isinstance(x, types.Float) and x == y == z):
        raise TypingError("fma takes three floats of one type")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return x(x, y, z), generate


@intrinsic
def advance(context: Any, pointer: Any, count: Any) -> Any:
    """The pointer `count` elements further on; a void pointer counts bytes."""
    if not isinstance(pointer, types.RawPointer | types.CPointer):
        raise TypingError("advance takes a pointer")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), generate


@intrinsic
def stopped(context: Any, cancelled: Any) -> Any:
    """Whether the run was cancelled, by its flag: read each time, for another thread writes it."""
    if not isinstance(cancelled, types.Array) or cancelled.dtype != types.int64:
        raise TypingError("stopped takes the cancel flag")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flag = context.make_array(signature.args[0])(context, builder, args[0])
        now = builder.load_atomic(flag.data, "monotonic", 8)
        return builder.icmp_unsigned("!=", now, now.type(0))

    return types.boolean(cancelled), generate
