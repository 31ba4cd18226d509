"""Threefry: random bits and keys. Element i of a result is a block cipher of (key, i).

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", 2011).  It needs no state, so it runs in parallel, fuses into what reads it, and every
backend computes the same bits.

    (x0, x1) --+k--> [ x0 += x1 ; x1 = rotl(x1, r) ^ x0 ] x 4 --+k'--> ... five groups
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import EXTENT, Attr, Compute, Sample
from graphc.ir.types import U32, U64, AnyType, Dimension, DType, Type, tensor
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import where
from graphc.ops.record.arguments import Applied, Array, Index, Read
from graphc.ops.record.batching import leading
from graphc.ops.record.families import UNSIGNED, define, require

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
MASK = 2**32 - 1

Words = tuple[Any, Any]
Dims = tuple[Dimension, ...]

# --------------------------------------------------------------------------------------- the cipher


def _rotate(x: Expr, count: int) -> Any:
    left = x << count
    return left | (x >> (32 - count))


def threefry(key: Words, counter: Words) -> Words:
    """Twenty rounds on two u32 expressions."""
    schedule = (*key, key[0] ^ key[1] ^ _PARITY)
    x0, x1 = counter[0] + key[0], counter[1] + key[1]
    for group in range(5):
        for count in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = _rotate(x1, count) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + (group + 1)
    return x0, x1


def threefry_reference(key: Array, high: Array, low: Array) -> tuple[Any, Any]:
    """The cipher on NumPy u32 arrays of counters."""
    with np.errstate(over="ignore"):
        k = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY)]
        a, c = high.astype(np.uint32) + k[0], low.astype(np.uint32) + k[1]
        for round_number in range(20):
            r = np.uint32(_ROTATIONS[(round_number // 4) % 2][round_number % 4])
            a = a + c
            c = ((c << r) | (c >> (np.uint32(32) - r))) ^ a
            if round_number % 4 == 3:
                step = round_number // 4 + 1
                a, c = a + k[step % 3], c + k[(step + 1) % 3] + np.uint32(step)
    return a, c


def _key_words(b: Scalars, read: Read, lead: Index = ()) -> Words:
    return read(0, (*lead, b.integer(0))), read(0, (*lead, b.integer(1)))


def _counter(b: Any, position: Expr, size: int) -> Words:
    """A 64-bit position as two u32 words; the high one is 0 for results of up to 2**32 elements."""
    high = b.const(0, U32)
    if size > 2**32:
        high = (position >> 32).cast(U32)
    return high, position.cast(U32)


def _reference_words(key: Array, size: int) -> tuple[Any, Any]:
    """The words of counters 0, 1, ... for each key: the axes of the keys, then the counters."""
    counter = np.arange(size, dtype=np.uint64)
    words = np.moveaxis(np.asarray(key), -1, 0)[..., None]
    return threefry_reference(words, counter >> np.uint64(32), counter & np.uint64(MASK))


def check_key(name: str, kind: AnyType) -> Dims:
    """The axes before a key: there may be keys side by side, each of which makes its own."""
    is_key = isinstance(kind, Type) and kind.dtype is U32 and kind.shape[-1:] == (2,)
    require(is_key, f"{name} takes a key (u32[2]), got {kind}", hint="make one with gc.random.key")
    assert isinstance(kind, Type)
    return kind.shape[:-1]


# --------------------------------------------------------------------------------------------- bits


def _infer_bits(key: AnyType, *, dims: Dims, dtype: DType) -> Type:
    return tensor(dtype, (*check_key("random_bits", key), *dims))


def _bits(b: Scalars, node: Applied, read: Read, index: Index) -> Any:
    lead, element = node.inputs[0].type.rank - 1, node.type.dtype
    dims, position = node.type.dims[lead:], b.integer(0)
    for extent, i in zip(dims, index[lead:], strict=True):
        position = position * extent + i
    counter = _counter(b, position, math.prod(dims))
    high, low = threefry(_key_words(b, read, index[:lead]), counter)
    if element is not U64:
        return (high ^ low).cast(element)
    return (high.cast(U64) << 32) | low.cast(U64)


def bits_reference(key: Array, dims: tuple[int, ...], dtype: DType) -> Any:
    high, low = _reference_words(key, math.prod(dims))
    if dtype is U64:
        made = (high.astype(np.uint64) << np.uint64(32)) | low
    else:
        made = (high ^ low).astype(dtype.numpy)
    return made.reshape((*np.shape(key)[:-1], *dims))


def key_samples(*attrs: dict[str, Any], extra: tuple[Any, ...] = ()) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        key_ = np.array([1, 0xFFFFFFF0], np.uint32)
        good = [Sample((key_, *extra), a, tolerance=4) for a in attrs]
        keys, more = np.stack([key_, key_[::-1]]), (np.stack([e, e + 1]) for e in extra)
        good.append(Sample((keys, *more), attrs[0], tolerance=4))
        return [*good, Sample((key_.astype(np.int32), *extra), attrs[0], good=False)]

    return samples


def shape_attrs(dtypes: tuple[str, ...]) -> tuple[Attr, ...]:
    """The attributes of an op that makes random numbers of one of these dtypes."""
    return Attr("dims", "dims", within=EXTENT), Attr("dtype", "dtype", choices=dtypes)


def bits_cost(node: Applied) -> tuple[float, float]:
    return 75.0 * node.type.size, float(node.type.nbytes)


define(
    "random_bits",
    batch=leading,
    infer=_infer_bits,
    reference=bits_reference,
    lower=Compute(_bits, flat=lambda node: node.inputs[0].type.rank - 1, cheap=False),
    attrs=shape_attrs(UNSIGNED),
    dtypes=("u32",),
    differentiable=False,
    cost=bits_cost,
    samples=key_samples(
        *({"dims": (3, 5), "dtype": name} for name in UNSIGNED),
        {"dims": (), "dtype": "u32"},
        {"dims": (0, 2), "dtype": "u32"},
    ),
    doc="Uniform bits: element i is Threefry-2x32 of the key and i.",
)


def _infer_split(key: AnyType, *, count: int) -> Type:
    lead = check_key("random_split", key)
    require(count >= 0, f"random_split makes {count} keys")
    return tensor(U32, (*lead, count, 2))


def _split(b: Scalars, node: Applied, read: Read, index: Index) -> Any:
    *lead, place, word = index
    high, low = threefry(_key_words(b, read, tuple(lead)), _counter(b, place, node.type.dims[-2]))
    return where(word == 0, high, low)


define(
    "random_split",
    batch=leading,
    infer=_infer_split,
    reference=lambda key, count: np.stack(_reference_words(key, count), axis=-1),
    lower=Compute(_split, cheap=False),
    attrs=(Attr("count", "int", within=EXTENT),),
    dtypes=("u32",),
    differentiable=False,
    cost=bits_cost,
    samples=key_samples({"count": 2}, {"count": 5}),
    doc="New keys: key i is Threefry-2x32 of the key and i.",
)


def _infer_fold(key: AnyType, data: AnyType) -> Type:
    lead = check_key("random_fold", key)
    fits = data is tensor(U32, lead)
    require(fits, f"random_fold takes a u32 number for each key, got {data} for {key}")
    return tensor(U32, (*lead, 2))


def _fold(b: Scalars, node: Applied, read: Read, index: Index) -> Any:
    lead = index[:-1]
    high, low = threefry(_key_words(b, read, lead), (b.const(MASK, U32), read(1, lead)))
    return where(index[-1] == 0, high, low)


def _fold_reference(key: Array, data: Array) -> Any:
    word = np.asarray(data, np.uint32)
    words = np.moveaxis(np.asarray(key), -1, 0)
    return np.stack(threefry_reference(words, np.full_like(word, MASK), word), -1)


define(
    "random_fold",
    batch=leading,
    infer=_infer_fold,
    reference=_fold_reference,
    lower=Compute(_fold, cheap=False),
    dtypes=("u32",),
    differentiable=False,
    cost=bits_cost,
    samples=key_samples({}, extra=(np.uint32(7),)),
    doc="The key that belongs to a key and a number: Threefry of counters that bits never reach.",
)
