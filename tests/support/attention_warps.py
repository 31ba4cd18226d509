"""The kernels of attention for tensor cores on a simulated GPU, in bf16: what fragments hold is
kept as rows, and the four lanes that share rows exchange their weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from gpu_launches import launches_of

import graphc as gc
from graphc.codegen.gpu.attention import device as attention_device
from graphc.codegen.gpu.attention import fragments as attention_fragments
from graphc.codegen.gpu.attention.plain import column_of, row_of
from graphc.codegen.gpu.compile import pointed_dtype
from graphc.gpu import cuda, exchange
from graphc.ops.record.value import emit

Array = np.ndarray[Any, Any]
BRAIN = ml_dtypes.bfloat16


class Rows(tuple[Any, ...]):
    """The registers of a left operand, which know the two rows that they are part of."""

    rows: list[Array]


def widened(bits: Any) -> Array:
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def stored(x: Any) -> Any:
    return np.float32(x).astype(BRAIN).view(np.uint16)


def rows_of(pointer: Any, first: int, second: int, step: int, lane: int, width: int) -> Rows:
    made = Rows((np.uint32(0),) * (-(-width // 16) * 4))
    made.rows = [np.zeros(4 * len(made), np.float32) for _ in range(2)]
    for row, start in zip(made.rows, (first, second), strict=True):
        row[:width] = [widened(pointer[int(start + c * step)]) for c in range(width)]
    return made


def lines(memory: Any, start: int, count: int, lead: int, width: int) -> Array:
    """Lines of shared memory, which all lanes of a warp read together."""
    flat = memory.array
    assert start >= 0 and start + (count - 1) * lead + width <= len(flat)
    return widened(np.stack([flat[start + n * lead :][:width] for n in range(count)]))


def scores(
    rows: Rows, memory: Any, start: int, lane: int, across: int, lead: int, down: int
) -> tuple[Any, ...]:
    keys = lines(memory, start, 8 * across, lead, len(rows.rows[0]))
    return tuple(
        np.float32(rows.rows[e % 4 // 2] @ keys[e // 4 * 8 + lane % 4 * 2 + e % 2])
        for e in range(4 * across)
    )


def weigh(
    total: Sequence[Any],
    weights: Sequence[Any],
    memory: Any,
    start: int,
    lane: int,
    lead: int,
    down: int,
) -> tuple[Any, ...]:
    place, whole = int(lane % 4), np.zeros((2, 2 * len(weights)), np.float32)
    for e, weight in enumerate(weights):
        own = np.float32(np.float32(weight).astype(BRAIN))
        near, far = exchange(own, 1, 4), exchange(own, 2, 4)
        for step, x in enumerate((own, near, far, exchange(near, 2, 4))):
            whole[e % 4 // 2, e // 4 * 8 + 2 * (place ^ step) + e % 2] = x
    values = lines(memory, start, whole.shape[1], lead, 2 * len(total))
    return tuple(
        np.float32(x + whole[e % 4 // 2] @ values[:, e // 4 * 8 + 2 * place + e % 2])
        for e, x in enumerate(total)
    )


def column_number(e: int) -> int:
    return e // 4 * 2 + e % 2


def columns_of(pointer: Any, start: int, count: int, across: int) -> tuple[Any, ...]:
    columns = [n // 2 * 8 + n % 2 for n in range(2 * across)]
    return tuple(pointer[int(start + c)] if c < count else np.float32(0) for c in columns)


def column_powers(scores: Any, tops: Any, parts: Any, factor: Any) -> tuple[Any, ...]:
    by = np.float32(1) if factor is None else factor
    return tuple(
        np.exp2(np.float32(x * by - tops[column_number(e)])) * parts[column_number(e)]
        for e, x in enumerate(scores)
    )


def column_slopes(weights: Any, values: Any, drops: Any) -> tuple[Any, ...]:
    pairs = enumerate(zip(weights, values, strict=True))
    return tuple(x * (y - drops[column_number(e)]) for e, (x, y) in pairs)


def slopes(weights: Any, values: Any, drops: Any, shape: int) -> tuple[Any, ...]:
    pairs = enumerate(zip(weights, values, strict=True))
    return tuple(x * (y - drops[row_of(e, len(weights), shape)]) for e, (x, y) in pairs)


def row_products(a: Rows, b: Rows, kind: int) -> tuple[Any, ...]:
    return tuple(np.float32((x @ y) / 4) for x, y in zip(a.rows, b.rows, strict=True))


def from_on(scores: Any, first: int, hidden: Any, shape: int, lanes: int) -> tuple[Any, ...]:
    size = len(scores)
    ahead = [column_of(e, size, shape, lanes) - 8 * row_of(e, size, shape) for e in range(size)]
    return tuple(x if n >= first else hidden for x, n in zip(scores, ahead, strict=True))


def store_bf16(pointer: Any, start: int, down: int, values: Any, *places: Any) -> None:
    first, rows, width, shape, lanes = places
    for e, x in enumerate(values):
        row = 8 * row_of(e, len(values), shape)
        column = first + column_of(e, len(values), shape, lanes)
        if row < rows and column < width:
            pointer[int(start + row * down + column)] = stored(x)


FRAGMENTS = {
    "rows_of": rows_of, "scores_bf16": scores, "weigh_bf16": weigh, "columns_of": columns_of,
    "column_powers": column_powers, "column_slopes": column_slopes, "slopes": slopes,
    "row_products": row_products, "from_on": from_on,
}  # fmt: skip
DEVICE = {"store_bf16": store_bf16, "narrow_bf16": stored}


def run(op: str, operands: Sequence[Array], results: Sequence[Array], **attrs: Any) -> None:
    """Fill in what the kernels of an op make for an H100."""
    for module, functions in ((attention_fragments, FRAGMENTS), (attention_device, DEVICE)):
        vars(module).update(functions)
    given = tuple(gc.spec(x.shape, "bool" if x.dtype == bool else "bf16") for x in operands)
    found = launches_of(lambda *a: emit(op, *a, **attrs), given, target="cuda:sm_90")
    memory: dict[Any, Array] = {("in", n): x for n, x in enumerate(operands)}
    memory |= {("out", n): x for n, x in enumerate(results)}
    for launch in found.values():
        for (kind, n, _), (dtype, count) in zip(launch.operands, launch.buffers, strict=True):
            if kind == "work":
                memory.setdefault((kind, n), np.full(count, np.nan, dtype.numpy))
        flat = (
            memory[kind, n].reshape(-1).view(pointed_dtype(dtype))
            for (kind, n, _), (dtype, _) in zip(launch.operands, launch.buffers, strict=True)
        )
        cuda.jit(launch.make())[launch.blocks, launch.threads](*flat, np.zeros(1, np.int64), 0)


def drawn(shapes: Iterable[tuple[int, ...]], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(BRAIN) for shape in shapes]
