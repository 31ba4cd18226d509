"""Functions whose results are to be equal in every bit wherever they run, and their arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import graphc as gc
from graphc.ir.op import OPS, Op, Sample, Scalar
from graphc.ir.types import BF16, DType, dtype
from graphc.ops.record.value import emit

gc.sum  # noqa: B018  a public name fills the op table

FLOATS = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BF16.numpy]
SCALARS = sorted(n for n, op in OPS.items() if op.samples and isinstance(op.lower, Scalar))
AXES = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


def bits(array: Any) -> bytes:
    """The bytes of an array with one NaN for all."""
    array = np.array(array)
    if array.dtype.kind == "c":
        return bits(array.real) + bits(array.imag)
    if dtype(array.dtype).is_float:
        array[array != array] = np.nan
    return bytes(array.tobytes())


def assert_same_bits(got: Any, want: Any, where: str) -> None:
    got, want = (x if isinstance(x, tuple | list) else [x] for x in (got, want))
    assert len(got) == len(want), where
    for number, (x, y) in enumerate(zip(got, want, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape, f"{where}, result {number}"
        if bits(x) != bits(y):
            differ = [k for k in np.ndindex(x.shape) if bits(x[k]) != bits(y[k])]
            shown = [(k, x[k], y[k]) for k in differ[:4]]
            raise AssertionError(f"{where}, result {number}: {len(differ)} differ: {shown}")


# ---------------------------------------------------------------------------- element by element


def specials(kind: DType) -> np.ndarray:
    """Zeros, denormals, ends of the range, halves, infinities and NaN; extremes of integers."""
    if kind.is_float:
        limits: Any = np.finfo(kind.numpy) if kind is not BF16 else np.finfo(np.float32)
        tiny, most = float(limits.smallest_normal), float(limits.max)
        least = tiny * 2.0 ** -(7 if kind is BF16 else limits.nmant)
        values = [0.0, least, tiny, tiny * 0.75, 0.5, 1.0, 1.5, 2.5, math.pi, 88.7, most / 4, most]
        return np.array([*values, math.inf, *(-v for v in values), -math.inf, math.nan], kind.numpy)
    if kind.is_integer:
        ends = np.iinfo(kind.numpy)
        return np.array([ends.min, ends.max, 0, 1, 2, ends.max - 1], kind.numpy)
    return np.array([False, True])


def drawn(kind: DType, count: int, random: np.random.Generator) -> np.ndarray:
    """Special values and others of all sizes, in an order of their own."""
    if kind.is_complex:
        parts = [drawn(kind.real, count, random) for _ in range(2)]
        return np.stack(parts, axis=-1).view(kind.numpy)[..., 0]
    known = specials(kind)
    known = random.permutation(known)[: count // 2]
    rest = count - len(known)
    if kind.is_float:
        sizes = random.choice([1e-3, 1.0, 30.0, 1e4], rest)
        made = (random.standard_normal(rest) * sizes).astype(kind.numpy)
    else:
        made = random.integers(0, 100, rest).astype(kind.numpy)
    return random.permutation(np.concatenate([known, made]))


def scalar_operands(op: Op, count: int, random: np.random.Generator) -> list[Sample]:
    """For each combination of dtypes that the samples of an op show: arrays of special values."""
    found: dict[Any, Sample] = {}
    for sample in op.samples() if op.samples else ():
        kinds = tuple(dtype(np.asarray(o).dtype) for o in sample.operands)
        if sample.good:
            key = (*(k.name for k in kinds), repr(sample.attrs))
            arrays = tuple(drawn(k, count, random) for k in kinds)
            found.setdefault(key, Sample(arrays, sample.attrs))
    return list(found.values())


def apply_samples(op: Op, samples: list[Sample]) -> Any:
    def apply_all(operands: Any) -> Any:
        return [emit(op, *given, **s.attrs) for given, s in zip(operands, samples, strict=True)]

    return apply_all


# ------------------------------------------------------------------------------------------- folds


def folds(x: Any, axis: tuple[int, ...]) -> list[Any]:
    return [
        np.sum(x, axis=axis),
        np.mean(x, axis=axis),
        np.var(x, axis=axis),
        np.max(x, axis=axis),
        np.min(x, axis=axis),
        np.prod(x, axis=axis),
        gc.logsumexp(x, axis=axis),
    ]


def all_folds(x: Any, row: Any) -> list[Any]:
    """Folds over all axes: of what is stored, of what is computed on the way, through a view."""
    made = [r for axis in AXES for r in folds(x, axis)]
    made += [np.sum(x * row, axis=axis) for axis in AXES]
    return made + [np.sum(np.swapaxes(x, 0, 1) * 0.5 + 1, axis=axis) for axis in AXES]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5) * scale + shift


def row_functions(x: Any, scale: Any, shift: Any) -> list[Any]:
    norm = layer_norm(x, scale, shift)
    return [softmax(x), gc.softmax(x), gc.log_softmax(x), gc.logsumexp(x, axis=-1), norm]


# ---------------------------------------------------------------------------------------- products


def products(a: Any, b: Any, across: Any, bias: Any) -> list[Any]:
    """Plain, with operands stored across, and with what follows fused."""
    return [a @ b, a @ across.T, (b.T @ a.T).T * 2, np.maximum(a @ across.T + bias, 0)]


def mlp(x: Any, p: Any) -> Any:
    h = np.maximum(x @ p["w1"] + p["b1"], 0)
    return softmax(np.tanh(h @ p["w2"] + p["b2"]))


def loss(p: Any, x: Any) -> Any:
    return -np.mean(np.log(mlp(x, p)[:, 0]))


def trained(p: Any, x: Any) -> Any:
    value, slopes = gc.value_and_grad(loss)(p, x)
    return [value, *slopes.values()]


def layers(sizes: tuple[int, int, int], random: np.random.Generator) -> dict[str, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    first, hidden, last = sizes
    return {
        "w1": normal(first, hidden) / 4,
        "b1": normal(hidden),
        "w2": normal(hidden, last) / 4,
        "b2": normal(last),
    }
