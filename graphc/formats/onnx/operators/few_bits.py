"""com.microsoft: weights of 2, 4 and 8 bits in blocks that share a scale, as language models hold.

    MatMulNBits           x @ w.T for the w of those blocks
    GatherBlockQuantized  rows of a table of them, by their numbers

Integers are stored without a sign; a block counts from its zero point, half of the range where none
is given.  Products keep the integers (`ops/linalg/few_bits.py`), counted from half of the range:
what another zero point adds is a small product of the sums of x over the blocks.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from graphc.formats.deciding_values import known, refuse
from graphc.formats.encoded_values import Narrow
from graphc.formats.onnx.table import MICROSOFT, operator
from graphc.ops.linalg.few_bits import BITS, LANES, packed, unpacked
from graphc.ops.record.value import emit
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]
MANY_ROWS = 256  # a matrix that so many rows are multiplied with is widened first


@operator("MatMulNBits", domain=MICROSOFT, folds=False)
def mat_mul_few_bits(
    x: Any,
    weights: Any,
    scales: Any,
    zeros: Any = None,
    order: Any = None,
    bias: Any = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Any:
    refuse(order is None and not weight_prepacked, "blocks in another order")
    refuse(bits in BITS and N > 0 < K == x.shape[-1], f"{bits} bits of a {N} by {K} matrix")
    refuse(block_size >= 16 and block_size % 16 == 0, f"blocks of {block_size}")
    blocks = -(-K // block_size)
    integers = _integers(known(weights).reshape(N, -1), bits)
    steps = known(scales).astype(np.float32).reshape(N, -1)
    refuse(integers.shape[1] == blocks * block_size, f"weights of {integers.shape[1]} columns")
    refuse(steps.shape[1] == blocks, f"{steps.shape[1]} scales a row")
    half = 1 << bits - 1
    *lead, _ = x.shape
    rows = f.reshape(f.astype(x, np.float32), (-1, K))
    full = f.pad(rows, ((0, 0), (0, blocks * block_size - K)))
    made = _product(full, integers - half, steps, bits, prod(d for d in lead if type(d) is int))
    if zeros is not None:
        sums = f.sum(f.reshape(full, (-1, blocks, block_size)), axis=-1)
        beyond = (_zeros(known(zeros), N, blocks, bits) - half) * steps
        made = f.subtract(made, f.matmul(sums, np.ascontiguousarray(beyond.T)))
    made = f.astype(f.reshape(made, (*lead, N)), x.dtype)
    return made if bias is None else f.add(made, bias)


def _product(x: Any, integers: Array, steps: Array, bits: int, rows: int) -> Any:
    """x[rows, depth] by integers[columns, depth] in steps[columns, blocks]."""
    columns, blocks = steps.shape
    words = packed(integers, bits)
    spread = np.zeros((words.shape[0] * LANES, blocks), np.float32)
    spread[:columns] = steps
    scales = np.ascontiguousarray(spread.reshape(-1, LANES, blocks).swapaxes(1, 2))
    if rows >= MANY_ROWS:
        return f.matmul(x, unpacked(words, scales, bits)[:, :columns])
    return emit("packed_matmul", x, words, scales, bits=bits, columns=columns)


def _integers(data: Array, bits: int) -> Array:
    """Bytes[..., n] as the integers in them, the lowest bits first: i32[..., n * 8 / bits]."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    apart = data.astype(np.uint8)[..., None] >> places & np.uint8((1 << bits) - 1)
    return apart.reshape(*data.shape[:-1], -1).astype(np.int32)


def _zeros(data: Array, rows: int, blocks: int, bits: int) -> Array:
    """Zero points [rows, blocks], which are numbers or integers of few bits."""
    if data.dtype.kind not in "iu":
        refuse(data.size == rows * blocks, f"{data.size} zero points")
        return data.reshape(rows, blocks).astype(np.float32)
    made = _integers(data.reshape(rows, -1), bits)
    refuse(made.shape[1] >= blocks, f"{made.shape[1]} zero points a row")
    return made[:, :blocks].astype(np.float32)


@operator("GatherBlockQuantized", domain=MICROSOFT, folds=False)
def gather_block_quantized(
    data: Any,
    indices: Any,
    scales: Any,
    zeros: Any = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Any:
    refuse(bits in BITS, f"integers of {bits} bits")
    table, signed = data, False
    if isinstance(data, Narrow):
        table, signed = data.value, not data.element.startswith("u")
    wide = known(table).astype(np.int32)
    if not isinstance(data, Narrow):
        wide = _integers(known(table), bits)
    steps = known(scales)
    refuse(wide.ndim == steps.ndim == 2, f"tables of rank {wide.ndim}")
    refuse(gather_axis == 0 and quantize_axis in (1, -1), "other axes than rows of blocks")
    rows, blocks = steps.shape
    refuse(len(wide) == rows and -(-wide.shape[1] // block_size) == blocks, "blocks of other sizes")
    start: Any = 0 if signed else 1 << bits - 1
    if zeros is not None:
        held = known(zeros.value if isinstance(zeros, Narrow) else zeros)
        given = held if isinstance(zeros, Narrow) else _zeros(held, rows, blocks, bits)
        start = given.repeat(block_size, 1)[:, : wide.shape[1]]
    picked = f.astype(f.take((wide - start).astype(np.int16), indices, axis=0), steps.dtype)
    near = f.repeat(f.take(steps, indices, axis=0), block_size, axis=-1)
    return f.multiply(picked, f.getitem(near, (..., slice(0, wide.shape[1]))))
