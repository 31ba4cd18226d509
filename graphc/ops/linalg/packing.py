"""Constant matrices in the order in which the contraction core reads them.

    panel 0:  k0 [ columns ]  k1 [ columns ] ...  spare      panel 1:  ...      next matrix: ...

The pass `pack` puts such a node in place of a constant that contractions read again and again, and
an `unpack` into their regions; the compiled kernel reads the panels themselves.  Dims are given
outermost first as pairs of extent and stride, in elements of the flat constant.  `together`
neighbours in k lie side by side: 2 for bf16 on CPUs that multiply pairs.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from graphc.ir.literal import Literal
from graphc.ir.op import EXTENT, OFFSET, POSITIVE, Attr, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import MAX_RANK, AnyType, Type, tensor
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import late
from graphc.ops.record.families import define, require, require_tensor

Pairs = tuple[int, ...]
PAIRS = 2 * MAX_RANK

_LAYOUT = (
    Attr("batch", "ints", within=OFFSET, most=PAIRS),
    Attr("k", "ints", within=OFFSET, most=PAIRS),
    Attr("n", "ints", within=OFFSET, most=PAIRS),
    Attr("offset", "int", 0, within=EXTENT),
    Attr("columns", "int", within=POSITIVE),
    Attr("step", "int", within=EXTENT),
    Attr("together", "int", 1, within=POSITIVE),
)


def _check(size: int, batch: Pairs, k: Pairs, n: Pairs, offset: int) -> None:
    """Every element that the dims reach lies inside `size` elements."""
    first = last = offset
    for pairs in (batch, k, n):
        require(len(pairs) % 2 == 0, "a dim is a pair of extent and stride")
        for extent, stride in zip(pairs[::2], pairs[1::2], strict=True):
            require(extent > 0, "extents are positive")
            first += min(0, (extent - 1) * stride)
            last += max(0, (extent - 1) * stride)
    require(first >= 0 and last < size, f"dims reach elements {first}..{last} of {size}")


def _shape(
    batch: Pairs, k: Pairs, n: Pairs, columns: int, step: int, together: int
) -> tuple[int, int, int]:
    """Matrices, panels of each, elements of a panel."""
    require(columns > 0 and together > 0, "a panel has columns")
    rows = -(-prod(k[::2]) // together) * together
    require(step >= rows * columns, "a panel holds all of its matrix's rows")
    return prod(batch[::2]), -(-prod(n[::2]) // columns), step


def _infer_pack(
    *,
    value: Literal,
    batch: Pairs,
    k: Pairs,
    n: Pairs,
    offset: int,
    columns: int,
    step: int,
    together: int,
) -> Type:
    _check(value.type.size, batch, k, n, offset)
    return tensor(value.type.dtype, (prod(_shape(batch, k, n, columns, step, together)),))


def _infer_unpack(
    panels: AnyType,
    *,
    batch: Pairs,
    k: Pairs,
    n: Pairs,
    offset: int,
    columns: int,
    step: int,
    together: int,
    shape: tuple[int, ...],
) -> Type:
    require_tensor("unpack", panels)
    assert isinstance(panels, Type)
    _check(prod(shape), batch, k, n, offset)
    count = prod(_shape(batch, k, n, columns, step, together))
    require(panels.shape == (count,), f"these dims make {count} elements, not {panels}")
    return tensor(panels.dtype, shape)


def _matrices(flat: Array, offset: int, *groups: Pairs) -> Any:
    """The constant seen as [batch..., k..., n...]; the type rule has checked the bounds."""
    pairs = sum(groups, ())
    strides = [stride * flat.itemsize for stride in pairs[1::2]]
    return np.lib.stride_tricks.as_strided(flat[offset:], pairs[::2], strides)


def _body(panels: Array, rows: int, columns: int, together: int) -> Any:
    """The used part of [batch, panel, step] as [batch, k // together, together, panel, column]."""
    batches, count, _ = panels.shape
    deep = -(-rows // together)
    used = panels[:, :, : deep * together * columns]
    return used.reshape(batches, count, deep, columns, together).transpose(0, 2, 4, 1, 3)


def pack_panels(
    array: Array,
    batch: Pairs,
    k: Pairs,
    n: Pairs,
    offset: int,
    columns: int,
    step: int,
    together: int = 1,
) -> Any:
    """The panels of a constant, flat; what is no element of a matrix is zero."""
    panels = np.zeros(_shape(batch, k, n, columns, step, together), array.dtype)
    rows, width = prod(k[::2]), prod(n[::2])
    flat = np.ascontiguousarray(array).reshape(-1)
    source = _matrices(flat, offset, batch, k, n).reshape(len(panels), rows, width)
    if rows % together:
        spare = np.zeros((len(panels), together - rows % together, width), array.dtype)
        source = np.concatenate([source, spare], axis=1)
    body, full = _body(panels, rows, columns, together), width // columns
    source = source.reshape(*body.shape[:3], width)
    body[..., :full, :] = source[..., : full * columns].reshape(*body.shape[:3], full, columns)
    if width % columns:
        body[..., full, : width % columns] = source[..., full * columns :]
    return panels.reshape(-1)


def _unpack(
    panels: Array,
    batch: Pairs,
    k: Pairs,
    n: Pairs,
    offset: int,
    columns: int,
    step: int,
    together: int,
    shape: tuple[int, ...],
) -> Any:
    made = np.zeros(prod(shape), panels.dtype)
    rows, width = prod(k[::2]), prod(n[::2])
    packed = np.asarray(panels).reshape(_shape(batch, k, n, columns, step, together))
    body = _body(packed, rows, columns, together)
    body = body.reshape(len(packed), body.shape[1] * together, -1)[:, :rows, :width]
    target = _matrices(made, offset, batch, k, n)
    target[...] = body.reshape(target.shape)
    return made.reshape(shape)


pack = define(
    "pack",
    batch=late,
    infer=_infer_pack,
    reference=lambda value, **layout: pack_panels(value.array, **layout),
    lower=Structural(),
    attrs=(Attr("value", "literal"), *_LAYOUT),
    doc="A constant as the panels of a contraction, made once when the program is built.",
    traits=Traits(stored=True, resident=True, idle=True),
)

unpack = define(
    "unpack",
    batch=late,
    infer=_infer_unpack,
    reference=_unpack,
    lower=Structural(),
    attrs=(*_LAYOUT, Attr("shape", "ints", within=EXTENT)),
    in_kernels=True,
    doc="The constant that `pack` made panels of; elements outside of its matrices are zero.",
    traits=Traits(unpacks=True),
)
