"""What code for GPUs is written with: `numba.cuda`, and device functions that it lacks.

The one door to `numba.cuda` for device code; importing it imports Numba, so it is imported where a
kernel is made and never before.  With NUMBA_ENABLE_CUDASIM=1 kernels run as Python functions over
NumPy arrays: `kernel_simulator` stands in for `numba.cuda` then, and each device function here has
a plain version that computes the same bits.  Pointers are one-dimensional arrays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config

from graphc.errors import GraphError
from graphc.gpu import intrinsics, plain


def _absent(error: ImportError) -> GraphError:
    return GraphError(
        f"GPU code needs Numba's CUDA target, which cannot be imported: {error}",
        hint="pip install 'graphc[cuda]'",
    )


SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", False))


def _target() -> Any:
    if SIMULATED:
        from graphc.gpu import kernel_simulator

        return kernel_simulator.cuda
    try:
        from numba import cuda
    except ImportError as error:
        raise _absent(error) from None
    return cuda


cuda = _target()
WARP = 4 if SIMULATED else 32  # threads that exchange values without a barrier
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


# ------------------------------------------------------------------------------------- compiled


def compiler_parts() -> tuple[Any, Any, Any]:
    """`llvmlite.ir`, Numba's `cgutils` and `intrinsic`: for device functions of other modules."""
    from llvmlite import ir

    try:
        from numba.cuda import cgutils
        from numba.cuda.extending import intrinsic
    except ImportError as error:  # a damaged numba-cuda leaves Numba its own old copy of the target
        raise _absent(error) from None

    return ir, cgutils, intrinsic


fma: Device
status_of: Device
load4: Device
store4: Device
as_array: Device
as_bools: Device
offset: Device
same: Device
if SIMULATED:
    fma, status_of = plain.fma, plain.status_of
    load4, store4 = plain.load4, plain.store4
    as_array, as_bools = plain.as_array, plain.as_bools
    offset, same = plain.offset, plain.same
    _bits_of, _of_bits = plain.bits_of, plain.of_bits
else:
    fma, status_of = intrinsics.values(compiler_parts())
    load4, store4 = intrinsics.vectors(compiler_parts())
    as_array, as_bools = intrinsics.arrays(compiler_parts())
    offset, same = intrinsics.places(compiler_parts())
    _bits_of, _of_bits = intrinsics.bit_casts(compiler_parts())


def _chosen(simulated: Device, text: str, operands: int = 1) -> Device:
    return simulated if SIMULATED else intrinsics.instruction(compiler_parts(), text, operands)


mul_rn = _chosen(plain.product, "mul.rn.{f}", 2)
add_rn = _chosen(plain.sum_of, "add.rn.{f}", 2)
sqrt = _chosen(np.sqrt, "sqrt.rn.{f}")
floor = _chosen(np.floor, "cvt.rmi.{f}.{f}")
ceil = _chosen(np.ceil, "cvt.rpi.{f}.{f}")
trunc = _chosen(np.trunc, "cvt.rzi.{f}.{f}")
rint = _chosen(np.rint, "cvt.rni.{f}.{f}")


def _exchange(x: Any, step: int, lanes: int) -> Any:
    """The value of the lane whose number differs by the bit `step`, for groups of `lanes` threads,
    at most a warp.  All lanes of a group call it together.
    """
    mask = FULL_MASK
    if lanes < WARP:
        mask = ((1 << lanes) - 1) << (cuda.threadIdx.x % WARP // lanes * lanes)
    return _of_bits(cuda.shfl_xor_sync(mask, _bits_of(x), step), x)


exchange = device(_exchange)


def _from_lane(x: Any, lane: int) -> Any:
    """The value of a lane of the warp, by its number. All lanes of the warp call it together."""
    return _of_bits(cuda.shfl_sync(FULL_MASK, _bits_of(x), lane), x)


from_lane = device(_from_lane)


def _ballot(holds: bool) -> Any:
    """The lanes of the warp for which something holds, as bits. All of them call it together."""
    return np.uint32(cuda.ballot_sync(FULL_MASK, holds))


ballot = device(_ballot)
